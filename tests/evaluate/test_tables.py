"""The README's and the docs' tables, from results made up here."""

from pathlib import Path
from typing import Any

import pytest

from worldloom.evaluate.paper import PAPER, paper_table
from worldloom.evaluate.tables import filled, shown, strata_table, table


def rate(value: float) -> dict[str, Any]:
    return {"value": value, "low": value - 0.01, "high": value + 0.01, "n": 66}


ONE_STEP = {
    "n_episodes": 66, "n_steps": 2224, "em": rate(0.898), "word_f1": rate(0.945),
    "strata": {"state_changing": {"n": 1573, "em": rate(0.921)}, "verb go": {"n": 957, "em": rate(0.918)}},
    "baselines": {"repeat_last": {"em": rate(0.06)}, "retrieval": {"em": rate(0.78)}, "majority_reply": {"em": None}},
}  # fmt: skip
RUN = {
    "split": "valid_seen", "one_step": ONE_STEP,
    "train": {"trainable_parameters": 134_515_008, "trajectories_seen": 438, "tokens_seen": 797_086, "seconds": 5285.0},
    "consistency": {"overall": {"n": 180, "real": rate(0.64), "wm": rate(0.27), "w2r": rate(0.51), "cr": rate(0.8)}},
}  # fmt: skip


def rows(made: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in made.splitlines()]


def test_the_readme_shows_a_run_of_each_world_beside_its_best_baseline() -> None:
    names = ["alfworld-few-shot", "alfworld-retrieval", "alfworld-smollm2-cpu", "alfworld-smollm2-cpu-unseen", "demo",
             "study-data-alfworld", "utility-alfworld"]  # fmt: skip
    assert list(shown(dict.fromkeys(names, RUN))) == ["alfworld-smollm2-cpu", "alfworld-smollm2-cpu-unseen", "demo"]
    head, _, row = rows(table({"alfworld-smollm2-cpu": RUN}))
    assert len(head) == len(row)
    assert row[1:4] == [
        "0.80 M tokens in 88 min", "89.8% [88.8%, 90.8%], 2224 steps of 66 episodes",
        "78.0% [77.0%, 79.0%], nearest transition",
    ]  # fmt: skip
    assert row[4:] == [
        "64.0% [63.0%, 65.0%]",
        "27.0% [26.0%, 28.0%]",
        "51.0% [50.0%, 52.0%]",
        "0.80 [0.79, 0.81], n=180",
    ]
    known = {"n": 180, "cr": rate(0.8) | {"of": 115}}  # older results, as above, do not tell it
    (*_, row) = rows(table({"alfworld-smollm2-cpu": RUN | {"consistency": {"overall": known}}}))
    assert row[-1] == "0.80 [0.79, 0.81], n=180, 115 real wins"


def test_the_paper_s_figures_stand_beside_ours_with_the_sizes_of_both() -> None:
    assert len(rows(paper_table({}))) == 2
    results = {f"{env}-smollm2-cpu": RUN for env in ("support", "toolbench", "alfworld")}
    results["toolbench-smollm2-cpu"] = {"train": RUN["train"], "one_step": ONE_STEP}  # no rollouts there
    head, _, *told = rows(paper_table(results | {"alfworld-smollm2-cpu-unseen": RUN}))
    rates, none = ["64.0%", "27.0%", "51.0%", "0.80"], [""] * 4
    assert told == [
        ["[ALFWorld](results/alfworld-smollm2-cpu/metrics.json)", "135 M, 438", "89.8%", *rates],
        ["ALFWorld, the paper's", "7 B (Qwen2.5), 40,000", "99.87%", "61.51%", "58.16%", "59.19%", "0.96"],
        ["[StableToolBench](results/toolbench-smollm2-cpu/metrics.json)", "135 M, 438", "89.8%, word F1 94.5%", *none],
        ["StableToolBench, the paper's", "7 B (Qwen2.5), 160,000", "48.90%, word F1 79.15%", *none],
        ["[support desk](results/support-smollm2-cpu/metrics.json)", "135 M, 438", "89.8%", *rates],
    ]  # fmt: skip
    assert {len(row) for row in (head, *told)} == {7}


@pytest.mark.parametrize("env", [env for env, paper in PAPER.items() if paper.rates])
def test_the_paper_s_ratios_are_near_those_of_its_rates(env: str) -> None:
    """CR = W2R / Real: a slip of the pen in one of the three would show."""
    real, _, w2r, cr = PAPER[env].rates
    assert cr == pytest.approx(w2r / real, abs=0.02)


def test_strata_stand_side_by_side_for_models_of_one_split() -> None:
    other = RUN | {"split": "valid_unseen"}
    few = {
        "split": "valid_seen",
        "one_step": ONE_STEP | {"em": rate(0.5), "strata": {"invalid": {"n": 9, "em": rate(0.2)}}},
    }
    made = strata_table({"alfworld-few-shot": few, "alfworld-smollm2-cpu": RUN, "alfworld-retrieval": other})
    assert rows(made) == [
        ["alfworld, valid_seen", "fine-tuned", "few-shot"],
        ["---", "---", "---"],
        ["all steps", "89.8% [88.8%, 90.8%] of 2,224", "50.0% [49.0%, 51.0%] of 2,224"],
        ["changes the state", "92.1% [91.1%, 93.1%] of 1,573", ""],
        ["impossible action", "", "20.0% [19.0%, 21.0%] of 9"],
    ]
    assert strata_table({"demo": RUN}) == ""


def test_only_what_is_between_the_marks_is_replaced() -> None:
    page = "a\n<!-- x: made by `make tables` -->\nold\n<!-- end of x -->\nb <!-- end of y -->\n"
    assert filled(page, "new\n", "x") == page.replace("old", "new")
    assert filled(page, "new\n", "y") == page


def test_the_picture_shows_what_was_recorded(tmp_path: Path) -> None:
    import xml.etree.ElementTree as ElementTree

    from worldloom.evaluate.plots import write_readme_plot

    path = write_readme_plot(tmp_path / "plot.svg", {f"world {n}": RUN for n in range(7)})
    root = ElementTree.parse(path).getroot()
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("world 3") == 2 and texts.count("90") == 7
    width, height = (float(root.attrib[side].removesuffix("pt")) for side in ("width", "height"))
    assert width > 600 and height > 400  # seven worlds: one plot under the other
