"""Runs side by side: differences by hand, what cannot be compared, and the page that shows it all."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.evaluate.test_consistency import triple
from tests.evaluate.test_known_answers import one_step, right, wrong_in_a_tenth
from tests.evaluate.test_report import Page
from worldloom.cli import app
from worldloom.errors import ConfigError, DataError
from worldloom.evaluate.compare import open_runs, step_differences, world_differences
from worldloom.evaluate.comparison import compare
from worldloom.evaluate.metrics import measured
from worldloom.evaluate.stats import unseen
from worldloom.runs import write_json

Record = dict[str, Any]
Keep = Callable[..., Path]
ENDS = ("failure", "success")


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    """Writes the folder of a finished evaluation."""

    def write(name: str, records: Sequence[Record], **about: Any) -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        found = {"name": folder.name, "environment": "e", "environment_version": "1", **measured(records), **about}
        write_json(folder / "metrics.json", found)
        return folder

    return write


def worlds(wm: Sequence[int], w2r: Sequence[int], real: Sequence[int] = (1,) * 10) -> list[Record]:
    """Records of one agent that won (1) or not (0) on tasks t0, t1, ..."""
    rows = enumerate(zip(real, wm, w2r, strict=True))
    return [triple(f"t{n}", *(ENDS[won] for won in row)) for n, row in rows]


def test_a_paired_difference_by_hand(keep: Keep) -> None:
    first, other = open_runs([keep("oracle", one_step(right)), keep("tenth", one_step(wrong_in_a_tenth))])
    found = step_differences(first, other)
    assert not isinstance(found, str)
    assert (found["n_episodes"], found["n_steps"], found["left_out"]) == (10, 100, 0)
    assert found["steps"] == {"both": 90, "first_only": 10, "other_only": 0, "neither": 0}
    # Each of ten episodes has one wrong step in ten: no row differs, so the width is that of what ten rows can hide.
    assert found["em"]["value"] == pytest.approx(-0.1)
    assert found["em"]["low"] == pytest.approx(-0.1 - unseen(10) * 0.9)
    assert found["em"]["high"] == pytest.approx(-0.1 + unseen(10) * 1.1)
    assert found["strata"]["state_changing"]["value"] == pytest.approx(-0.1)
    back = step_differences(other, first)
    assert not isinstance(back, str)
    assert (back["em"]["value"], back["steps"]["other_only"]) == (pytest.approx(0.1), 10)


def test_a_paired_difference_is_narrower_than_two_intervals(keep: Keep) -> None:
    """Episodes are all right or all wrong, alike in both runs but for one: vague rates, a less vague difference."""

    def says(rights: int) -> Callable[..., str]:
        return lambda episode, number, real: right(episode, number, real) if episode < rights else "You see a cup 1."

    first, other = open_runs([keep("five", one_step(says(5))), keep("six", one_step(says(6)))])
    found = step_differences(first, other)
    assert not isinstance(found, str)
    assert found["em"] == {"value": pytest.approx(0.1), "low": 0.0, "high": pytest.approx(0.3), "n": 10}
    assert first.metrics["one_step"]["em"]["high"] - first.metrics["one_step"]["em"]["low"] == pytest.approx(0.6)


def test_steps_that_one_model_did_not_answer_are_left_out_of_both(keep: Keep) -> None:
    short = one_step(lambda episode, number, real: right(episode, number, real) if number < 9 else None)
    first, other = open_runs([keep("oracle", one_step(right)), keep("short", short)])
    found = step_differences(first, other)
    assert not isinstance(found, str)
    assert (found["n_steps"], found["left_out"], found["em"]["value"]) == (80, 20, 0.0)


def test_other_episodes_are_not_paired_and_the_page_says_so(keep: Keep, tmp_path: Path) -> None:
    fewer, changed = one_step(right)[:9], one_step(right)
    changed[3]["steps"][2] |= {"gold": "You see another lamp."}
    folders = [keep("oracle", one_step(right)), keep("fewer", fewer), keep("changed", changed)]
    first, *others = open_runs(folders)
    assert step_differences(first, others[0]) == "their episodes differ: 10 and 9, of which 9 are the same"
    assert step_differences(first, others[1]) == "the same episodes say different things in the two runs"
    page = Page(compare(folders, tmp_path / "page.html"))
    assert "Not for fewer: their episodes differ: 10 and 9, of which 9 are the same." in page.text
    assert "Not for changed: the same episodes say different things" in page.text
    assert "paired differences" not in page.text
    (folders[1] / "records.jsonl").unlink()  # as in recorded results
    assert step_differences(first, open_runs(folders)[1]) == "there are no such records of both at hand"


def test_success_in_two_models_on_the_same_tasks(keep: Keep) -> None:
    runs = [keep("a", worlds([1] * 5 + [0] * 5, [1] * 10)), keep("b", worlds([1] * 8 + [0] * 2, [0] + [1] * 9))]
    found = world_differences(*open_runs(runs))
    assert not isinstance(found, str)
    assert (found["n_tasks"], found["n"]) == (10, 10)
    assert (found["wm"]["value"], found["w2r"]["value"]) == (pytest.approx(0.3), pytest.approx(-0.1))
    assert found["wm"]["low"] == pytest.approx(0.0) or found["wm"]["low"] == pytest.approx(0.1)
    other = keep("c", worlds([1] * 10, [1] * 10, [0] + [1] * 9))
    assert world_differences(*open_runs([runs[0], other])) == "the same agents fared differently in reality"
    fewer = keep("d", worlds([1] * 10, [1] * 10)[:4])
    assert "their episodes differ: 10 and 4" in world_differences(*open_runs([runs[0], fewer]))


def test_what_cannot_be_compared_is_refused(keep: Keep, tmp_path: Path) -> None:
    run = keep("a", one_step(right))
    out = tmp_path / "page.html"

    def refused(error: type[Exception], *paths: Path) -> str:
        with pytest.raises(error) as raised:
            compare(list(paths), out)
        return str(raised.value)

    shop, old = keep("shop", one_step(right), environment="shop"), keep("old", one_step(right), environment_version="0")
    assert "different environments cannot be compared (a: e; shop: shop)" in refused(ConfigError, run, shop)
    assert "different versions of an environment cannot be compared (a: 1; old: 0)" in refused(ConfigError, run, old)
    assert "a run is there twice" in refused(ConfigError, run, run / "metrics.json")
    assert "1 runs: a comparison is of 2 to 6" in refused(ConfigError, run)
    (tmp_path / "empty").mkdir()
    assert "empty: there is no finished evaluation" in refused(DataError, run, tmp_path / "empty")
    write_json(tmp_path / "empty" / "metrics.json", {"name": "empty", "environment": "e"})
    assert "nothing was measured in it" in refused(DataError, run, tmp_path / "empty")
    assert not out.exists()


def test_runs_of_one_name_are_told_apart(keep: Keep) -> None:
    runs = open_runs([keep("x/eval", one_step(right)), keep("y/eval", one_step(right)), keep("z", one_step(right))])
    assert [run.name.endswith(end) for run, end in zip(runs, ("x/eval)", "y/eval)", "z"), strict=True)] == [True] * 3


def test_the_page_shows_runs_side_by_side(keep: Keep, tmp_path: Path) -> None:
    oracle = keep("oracle", [*one_step(right), *worlds([1] * 10, [1] * 10)], train={"trajectories_seen": 1234})
    tenth = keep("<b>tenth", [*one_step(wrong_in_a_tenth), *worlds([1] * 5 + [0] * 5, [1] * 5 + [0] * 5)])
    page = Page(compare([oracle, tenth], tmp_path / "page.html"))
    assert ["", "oracle", "<b>tenth"] in page.rows
    assert ["episodes learnt from", "1,234", "-"] in page.rows  # what is not known is no number
    assert ["exact match", "100.0 [69.2, 100.0], n = 100 in 10", "90.0 [62.2, 93.1], n = 100 in 10"] in page.rows
    assert ["terminal recall", "100.0 [69.2, 100.0], n = 10", "90.0 [70.0, 100.0], n = 10"] in page.rows
    assert ["baseline: nothing happens", *["0.0 [0.0, 30.8], n = 100 in 10"] * 2] in page.rows
    assert ["exact match", "-10.0 [-37.8, +23.9]"] in page.rows
    assert ["both right", "90"] in page.rows and ["the first alone", "10"] in page.rows
    assert ["W2R", "100.0 [69.2, 100.0], n = 10", "50.0 [20.0, 80.0], n = 10"] in page.rows
    assert ["W2R", "-50.0 [-80.0, -20.0]"] in page.rows
    assert page.found["h2"] == [
        "The runs", "One step ahead", "How much they differ", "Exact match by kind of step",
        "Exact match by step of the episode", "Real, imagined, replayed", "Where replays leave what was imagined",
        "Where these numbers come from",
    ]  # fmt: skip
    assert [target for target in page.loads if not target.startswith("#")] == []
    assert "img" not in page.tags and page.handlers == []


def test_the_command_writes_one_page_or_compares(keep: Keep, tmp_path: Path) -> None:
    a, b = keep("a", one_step(right)), keep("b", one_step(wrong_in_a_tenth))
    before = (a / "metrics.json").read_bytes()
    done = CliRunner().invoke(app, ["report", str(a)])
    assert (done.exit_code, done.output.strip()) == (0, f"report: {a / 'report.html'}")
    assert Page(a / "report.html").found["title"][0] == "a"
    assert (a / "metrics.json").read_bytes() == before
    done = CliRunner().invoke(app, ["report", str(a), str(b / "metrics.json"), "--out", str(tmp_path / "both.html")])
    assert done.exit_code == 0, done.output
    assert Page(tmp_path / "both.html").found["title"][0] == "e: 2 runs"
