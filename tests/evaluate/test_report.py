"""The report shows the numbers it was given, no more, and nothing from a log can act on the page."""

import html
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldloom.evaluate.plots import write_readme_plot
from worldloom.evaluate.report import write_report
from worldloom.evaluate.viewer import diff, select

HOSTILE = """</script><script>alert(1)</script><img src="http://evil.example/x.png" onerror='x()'>"""


def rate(value: float, low: float, high: float, **more: int) -> dict:
    return {"value": value, "low": low, "high": high, **more}


ONE_STEP = {
    "n_episodes": 60,
    "n_steps": 1312,
    "em": rate(0.9712, 0.9612, 0.9798),
    "em_observation": rate(0.9755, 0.9655, 0.98),
    "terminal": {"precision": 0.875, "recall": 0.75, "f1": 0.8077, "false_success_rate": 0.0021},
    "strata": {"state_changing": {"n": 400, "em": rate(0.93, 0.9, 0.95)}, "no_change": {"n": 0, "em": None}},
    "baselines": {"repeat_last": {"em": rate(0.05, 0.04, 0.06)}, "nothing_happens": {"em": 0.31}},
    "by_step_index": [
        {"step": 1, "n": 60, "em": rate(1.0, 0.95, 1.0)},
        {"step": 2, "n": 58, "em": rate(0.9, 0.8, 1.0)},
    ],
}
AGENT = {
    "n": 30,
    "real": rate(0.6, 0.43, 0.77),
    "wm": rate(0.5, 0.33, 0.67),
    "w2r": rate(0.5667, 0.4, 0.73),
    "cr": rate(0.9444, 0.8, 1.05),
    "errors": {"real": 0, "wm": 2, "w2r": 1},
}
CONSISTENCY = {"n_tasks": 30, "same_task_ids": True, "agents": {"bold": AGENT, "shy": AGENT}, "overall": AGENT}


class Page(HTMLParser):
    """What a browser would make of the file: its table rows, marked words, scripts, and what it would load."""

    def __init__(self, path: Path):
        super().__init__()
        self.rows: list[list[str]] = []
        self.found: dict[str, list[str]] = {
            tag: [] for tag in ("mark", "script", "style", "option", "h2", "title", "dd")
        }
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.handlers: list[str] = []
        self.text = path.read_text(encoding="utf-8")
        self._open: list[list[str]] = []
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "data", "srcset")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._open.append(self.rows[-1])
        if tag in self.found:
            self.found[tag].append("")
            self._open.append(self.found[tag])

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") or tag in self.found:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        for texts in self._open:
            texts[-1] += data


def episode(*observations: str, end: str | None = None, task: str = "t1") -> dict:
    steps = [{"action": f"act {n}", "observation": text} for n, text in enumerate(observations, 1)]
    steps[-1]["terminal"] = end
    return {
        "schema": "worldloom/1",
        "env": {"name": "toy"},
        "task": {"id": task},
        "initial_context": "The drawer is closed.",
        "initial_observation": "You are in a room.",
        "steps": steps,
    }


def played(real: dict, imagined: dict, replay: dict, task: str = "t1") -> dict:
    return {"kind": "consistency", "key": task, "task_id": task, "agent": "bold", "seed": 7} | {
        "real": real,
        "wm": imagined,
        "w2r": replay,
    }


def predicted(task: str, *pairs: tuple[str, str], ends: tuple[str | None, str | None] = (None, None)) -> dict:
    steps = [
        {"index": n, "action": f"act {n}", "gold": gold, "predicted": said, "correct": gold == said}
        for n, (gold, said) in enumerate(pairs, 1)
    ]
    last = steps[-1]
    last |= {"gold_terminal": ends[0], "predicted_terminal": ends[1], "correct": last["correct"] and ends[0] == ends[1]}
    return {"kind": "one_step", "key": task, "task_id": task, "agent": None, "steps": steps}


@pytest.fixture
def write(tmp_path):
    def make(metrics: dict, records: list[dict] = (), **more) -> Page:
        return Page(
            write_report(
                tmp_path / "run" / "report.html", **{"title": "a run"} | more, metrics=metrics, records=records
            )
        )

    return make


def test_rates_are_shown_as_percents_with_interval_and_n(write):
    page = write({"one_step": ONE_STEP})
    assert ["exact match", "97.1", "[96.1, 98.0]", "1,312"] in page.rows
    assert ["terminal precision", "87.5", "-", "-"] in page.rows
    assert ["false-success rate", "0.2", "-", "-"] in page.rows
    assert ["nothing happens", "31.0", "-", "1,312"] in page.rows
    assert ["state changing", "93.0", "[90.0, 95.0]", "400"] in page.rows
    assert ["2", "90.0", "[80.0, 100.0]", "58"] in page.rows  # the data of the plot


def test_headlines_put_the_best_baseline_beside_exact_match(write):
    texts = [" ".join(text.split()) for text in write({"one_step": ONE_STEP, "consistency": CONSISTENCY}).found["dd"]]
    assert texts[:2] == ["97.1 % [96.1, 98.0] 1,312 steps, 60 episodes", "31.0 % nothing happens"]
    assert texts[-4:] == [
        "60.0 % [43.0, 77.0] 30 episodes, 30 tasks",
        "50.0 % [33.0, 67.0] 30 episodes, 30 tasks",
        "56.7 % [40.0, 73.0] 30 episodes, 30 tasks",
        "0.94 [0.80, 1.05] 30 episodes, 30 tasks",
    ]


def test_the_denominator_is_told_where_it_is_another_number_than_that_of_episodes(write):
    ends = {"precision": rate(0.875, 0.8, 0.95, n=38, of=41), "recall": rate(0.75, 0.6, 0.9, n=40)}
    page = write({"one_step": ONE_STEP | {"terminal": ends}})
    assert ["terminal precision", "87.5", "[80.0, 95.0]", "41 in 38"] in page.rows
    assert ["terminal recall", "75.0", "[60.0, 90.0]", "40"] in page.rows
    texts = [" ".join(text.split()) for text in page.found["dd"]]
    assert "87.5 % [80.0, 95.0] n = 41 in 38" in texts and "75.0 % [60.0, 90.0] n = 40" in texts


def test_agents_have_a_row_each_and_errors_are_counted(write):
    rates = ["30", "60.0 [43.0, 77.0]", "50.0 [33.0, 67.0]", "56.7 [40.0, 73.0]", "0.94 [0.80, 1.05]", "-"]
    page = write({"consistency": CONSISTENCY})
    cells = [*rates, "-", "0", "2", "1"]  # older results do not tell how many real successes there are
    assert [row for row in page.rows if row[1:] == cells] == [[name, *cells] for name in ("bold", "shy", "overall")]
    newer = AGENT | {"cr": AGENT["cr"] | {"n": 30, "of": 18}}
    page = write({"consistency": CONSISTENCY | {"agents": {"bold": newer}, "overall": newer}})
    assert ["bold", *rates, "18", "0", "2", "1"] in page.rows
    assert " ".join(page.found["dd"][-1].split()) == "0.94 [0.80, 1.05] 30 episodes, 30 tasks, 18 real wins"


def test_who_acted_and_what_was_left_out_are_told(write):
    page = write({"one_step": ONE_STEP | {"by_agent": {"bold": rate(0.98, 0.97, 0.99, n=30)}, "left_out": 12}})
    assert ["bold", "98.0", "[97.0, 99.0]", "30"] in page.rows
    assert "12 more are left out" in page.text


AGREEMENT = {
    "both": 14, "real_only": 4, "other_only": 3, "neither": 9, "mcnemar_p": 1.0,
    "difference": rate(-0.0333, -0.2, 0.1333, n=30), "kappa": rate(0.5221, 0.2, 0.8, n=30),
}  # fmt: skip


def test_agreement_with_reality_is_told_of_the_model_and_of_the_replay(write):
    agent = AGENT | {"agreement": {"wm": AGREEMENT | {"kappa": 0.25}, "w2r": AGREEMENT}}  # older runs have no interval
    ranks = {"n_agents": 3, "kendall_wm": rate(0.3333, -1.0, 1.0, n=30)}
    agents = {"bold": agent, "shy": AGENT}
    both = {name: of for name, of in AGREEMENT.items() if name != "mcnemar_p"} | {"sign_flip_p": 0.0625}
    overall = AGENT | {"agreement": {"wm": both, "w2r": both}}
    page = write({"consistency": CONSISTENCY | {"agents": agents, "overall": overall, "rank_agreement": ranks}})
    cells = ["14", "4", "3", "9", "-3.3 [-20.0, +13.3]"]
    assert ["bold", *cells, "0.25", "1", "-"] in page.rows
    assert ["bold", *cells, "0.52 [0.20, 0.80]", "1", "-"] in page.rows
    assert ["overall", *cells, "0.52 [0.20, 0.80]", "-", "0.0625"] in page.rows
    assert ["in WM as in reality", "0.33 [-1.00, 1.00]", "3"] in page.rows


def test_where_replays_part_and_why_they_fail(write):
    divergence = {
        "n": 4, "left_out": 1, "never": rate(0.25, 0.0, 0.75, n=4), "causes": {"wrong_state": 2, "missed_success": 1},
        "survival": [{"step": 1, "n": 4, "agree": 0.75}, {"step": 2, "n": 4, "agree": 0.25, "low": 0.1, "high": 0.6}],
        "failed": {"n": 3, "promised": 1, "causes": {"wrong_state": 2, "replay_broke": 1}},
    }  # fmt: skip
    page = write({"consistency": CONSISTENCY | {"divergence": divergence}})
    assert ["wrong state", "2", "66.7"] in page.rows and ["replay broke", "1", "33.3"] in page.rows
    assert ["2", "25.0", "[10.0, 60.0]", "4"] in page.rows  # the data of the curve
    assert "why replays fail: 3 did, of which the model had promised 1" in page.text
    assert page.tags.count("svg") == 2
    older = {key: value for key, value in divergence.items() if key != "failed"}
    assert "why replays fail" not in write({"consistency": CONSISTENCY | {"divergence": older}}).text


def test_different_task_ids_are_called_out(write):
    assert "NOT known to be on the same task ids" in write({"consistency": CONSISTENCY | {"same_task_ids": False}}).text
    assert "NOT known" not in write({"consistency": CONSISTENCY}).text


def test_what_was_not_measured_is_absent(write):
    assert write({"one_step": ONE_STEP}).found["h2"] == [
        "One step ahead", "Exact match by kind of step", "Exact match by step of the episode",
    ]  # fmt: skip
    assert "no change" not in [row[0] for row in write({"one_step": ONE_STEP}).rows]  # its em is None, not 0
    assert write({"train": {"tokens": 12345}}).found["h2"] == ["Training"]
    nothing = write({})
    assert (nothing.found["h2"], nothing.found["dd"], nothing.rows) == ([], [], [])
    assert "svg" not in nothing.tags


CONFIDENCE = {
    "auroc_wrong_step": rate(0.84, 0.8, 0.88, n=60),
    "features": {"probability": rate(0.84, 0.8, 0.88, n=60), "agreement": rate(0.7, 0.65, 0.75, n=60)},
    "auroc_rollout": rate(0.61, 0.5, 0.7, n=30),
    "ece": rate(0.041, 0.03, 0.06, n=60),
    "calibration": [
        {"low": 0.4, "high": 0.5, "n": 12, "probability": 0.46, "right": rate(0.25, 0.1, 0.5, n=9)},
        {"low": 0.9, "high": 1.0, "n": 1300, "probability": 0.991, "right": rate(0.97, 0.96, 0.98, n=60)},
    ],
    "risk_bound": {
        "target": 0.05, "level": 0.9, "threshold": 0.8125, "n_calibrated": 700, "n_checked": 612,
        "observed": rate(0.036, 0.02, 0.05, n=30, of=550), "accepted": rate(0.9, 0.85, 0.95, n=30),
    },
}  # fmt: skip
ANCHORING = {
    "none": AGENT | {"share_real": rate(0.0, 0.0, 0.0, n=30)},
    "first=3 <b>": AGENT
    | {"share_real": rate(0.125, 0.1, 0.15, n=30), "cr": None, "cr_gain": rate(0.25, -0.1, 0.5, n=30)},
}


def test_confidence_and_anchoring_have_their_sections(write):
    page = write({"confidence": CONFIDENCE, "anchoring": ANCHORING})
    assert page.found["h2"] == ["Does it know when it is wrong", "What real answers buy"]
    assert page.tags.count("svg") == 2
    assert ["wrong step, by the answer's probability", "0.84", "[0.80, 0.88]", "60"] in page.rows
    assert ["imagined episode that reality does not repeat", "0.61", "[0.50, 0.70]", "30"] in page.rows
    assert ["least probability, chosen on half of the tasks", "0.8125"] in page.rows
    assert ["wrong among accepted steps, %, other half", "3.6 [2.0, 5.0], n = 550 in 30"] in page.rows
    assert ["accepted steps, %, other half", "90.0 [85.0, 95.0], n = 30"] in page.rows
    assert ["46.0", "25.0", "[10.0, 50.0]", "9", "12"] in page.rows
    assert "Expected calibration error: 4.1 % [3.0, 6.0]." in page.text
    worlds = ["60.0 [43.0, 77.0]", "50.0 [33.0, 67.0]", "56.7 [40.0, 73.0]"]
    assert ["first=3 <b>", "12.5 [10.0, 15.0]", *worlds, "-", "0.25 [-0.10, 0.50]"] in page.rows


def test_without_a_threshold_none_is_shown(write):
    bound = {"target": 0.05, "level": 0.9, "n_calibrated": 10, "n_checked": 10}
    page = write({"confidence": {"auroc_rollout": CONFIDENCE["auroc_rollout"], "risk_bound": bound}})
    assert ["least probability, chosen on half of the tasks", "-"] in page.rows
    assert page.tags.count("svg") == 0


def test_loss_curve_is_drawn_and_its_data_kept(write):
    page = write({}, loss_curve=[(10, 0.44), (20, 0.0123)])
    assert page.tags.count("svg") == 1
    assert page.rows == [["training step", "loss"], ["10", "0.44"], ["20", "0.0123"]]


def test_provenance_and_unknown_parts_are_listed(write):
    provenance = {"git_commit": "0123abcd", "versions": {"torch": "2.13.0"}, "seconds": 5123.4}
    page = write({"provenance": provenance, "speed": {"wm_steps_per_second": {"single": 4.25}}})
    assert ["git commit", "0123abcd"] in page.rows
    assert ["versions: torch", "2.13.0"] in page.rows
    assert ["seconds", "5,123"] in page.rows
    assert ["speed: wm steps per second: single", "4.25"] in page.rows


def test_nothing_from_a_log_acts_on_the_page(write):
    benign = write(
        {
            "one_step": ONE_STEP,
            "consistency": {**CONSISTENCY, "agents": {"a": AGENT, "b": AGENT}},
            "provenance": {"x": 1},
        },
        [predicted("t", ("x", "y")), played(episode("x"), episode("y"), episode("x"))],
    )
    bad = episode(HOSTILE, end="success") | {"initial_context": HOSTILE, "error": {"kind": HOSTILE, "message": HOSTILE}}
    page = write(
        {
            "model": HOSTILE,
            "one_step": ONE_STEP,
            "consistency": {**CONSISTENCY, "agents": {HOSTILE: AGENT, "$b$": AGENT}},
            "provenance": {HOSTILE: HOSTILE},
        },
        [predicted(HOSTILE, (HOSTILE, HOSTILE + "!")), played(bad, bad, episode("x"), HOSTILE)],
        title=HOSTILE,
    )
    assert page.found["script"] == benign.found["script"] and len(page.found["script"]) == 1
    assert page.handlers == [] and "img" not in page.tags
    assert page.found["title"][0] == HOSTILE
    assert [HOSTILE, HOSTILE] in page.rows
    assert page.text.count(html.escape("<script>alert(1)").replace("&#x27;", "&#39;")) > 5
    assert "$b$" in page.text


def test_the_page_loads_nothing(write):
    page = write(
        {"one_step": ONE_STEP, "consistency": CONSISTENCY},
        [predicted("t", ("x", "y"))],
        loss_curve=[(1, 0.5), (2, 0.4)],
    )
    assert page.tags.count("svg") == 4
    assert [target for target in page.loads if not target.startswith("#")] == []
    assert re.findall(r"url\((?!#)|@import|\bimport\b|fetch\(", page.text) == []
    assert not {"link", "iframe", "img", "object", "embed"} & set(page.tags)
    ids = re.findall(r'\bid="([^"]+)"', page.text)
    assert len(ids) == len(set(ids))


def test_differing_words_are_marked_on_both_sides():
    pair = diff("On the desk 1, you see a bowl 2, and a pen 1.", "On the desk 1, you see a mug 3, and a pen 1.")
    assert pair.real == "On the desk 1, you see a <mark>bowl 2</mark>, and a pen 1."
    assert pair.imagined == "On the desk 1, you see a <mark>mug 3</mark>, and a pen 1."


def test_what_only_one_side_says_is_marked_there():
    pair = diff("You see nothing.", "You see a pen and nothing.")
    assert pair == ("You see nothing.", "You see <mark>a pen and</mark> nothing.")


def test_a_difference_in_spaces_alone_is_marked():
    assert diff("a b", "a\n\nb") == ("a<mark> </mark>b", "a<mark>\n\n</mark>b")


@given(st.text(alphabet="ab <>&'\n.é"), st.text(alphabet="ab <>&'\n.é"))
def test_marking_changes_no_text(real, imagined):
    for side, text in zip(diff(real, imagined), (real, imagined), strict=True):
        assert html.unescape(re.sub("</?mark>", "", side)) == text
        assert ("<mark>" in side) <= (real != imagined)
    assert real == imagined or "<mark>" in "".join(diff(real, imagined))


def test_wrong_ends_come_first_and_the_rest_is_counted():
    records = [
        predicted("right", ("a", "a")),
        predicted("wrong word", ("a", "b"), ("c", "c")),
        predicted("false success", ("a", "a"), ("c", "c"), ends=(None, "success")),
        played(episode("a"), episode("a"), episode("a"), "agrees"),
        {"kind": "something newer"},
    ]
    shown = select(records, limit=2)
    assert [each.title for each in shown.episodes] == ["false success", "wrong word"]
    assert shown.left_out == 2
    assert select(records, limit=9).left_out == 0


def test_a_rollout_that_broke_is_among_the_first():
    broken = episode("a") | {"steps": [], "error": {"kind": "EngineDied", "message": "exit 9"}}
    records = [predicted("s", ("a", "b")), played(episode("a"), broken, broken)]
    (shown,) = select(records, limit=1).episodes
    assert shown.label == "t1 · bold · seed 7 · no steps"
    assert shown.facts["WM"] == "EngineDied: exit 9 after 0 steps"


def test_kinds_take_turns():
    steps = [predicted(f"s{n}", ("a", "b")) for n in range(5)]
    worlds = [played(episode("a"), episode("b"), episode("a"), f"w{n}") for n in range(5)]
    titles = [each.title.split()[0] for each in select(steps + worlds, limit=4).episodes]
    assert sorted(titles) == ["s0", "s1", "w0", "w1"]


def test_the_imagined_episode_stands_beside_the_replay_of_its_actions():
    real = episode("R1", end="success")
    imagined = episode("A pen.", "A mug.", "Done.", end="success")
    replay = episode("A pen.", "A cup.")
    (shown,) = select([played(real, imagined, replay)]).episodes
    assert shown.differing == [2, 3]
    assert (shown.rows[1].real, shown.rows[1].imagined) == ("A <mark>cup</mark>.", "A <mark>mug</mark>.")
    assert (shown.rows[2].real, shown.rows[2].imagined) == (None, "Done.")
    assert shown.label == "t1 · bold · seed 7 · 2 of 3 steps differ, first at 2"
    assert shown.facts == {
        "Real": "success after 1 steps",
        "WM": "success after 3 steps",
        "W2R": "no end after 2 steps",
    }


def test_running_out_of_steps_is_no_difference():
    (shown,) = select([played(episode("a"), episode("a", end="truncated"), episode("a"))]).episodes
    assert shown.differing == []
    (shown,) = select([played(episode("a"), episode("a", end="success"), episode("a", end="truncated"))]).episodes
    assert shown.differing == [1] and shown.rows[0].ends_differ


def test_a_long_run_shows_sixty_and_says_how_many_are_left_out(write):
    page = write({}, [predicted(f"task-{n}", ("a", "b" if n >= 40 else "a")) for n in range(1061)])
    assert len(page.found["option"]) == 60
    assert all("1 of 1 steps differ" in option for option in page.found["option"])
    assert "1,001 more are left out" in page.text


def test_readme_plot_is_standalone_svg_of_what_was_measured(tmp_path):
    runs = {"ALFWorld": {"one_step": ONE_STEP, "consistency": CONSISTENCY}, "Text<World>": {"one_step": ONE_STEP}}
    path = write_readme_plot(tmp_path / "docs" / "plot.svg", runs)
    root = ElementTree.parse(path).getroot()
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("97") == 2 and texts.count("31") == 2  # exact match and its best baseline, twice
    assert texts.count("60") == texts.count("57") == 1  # Real and W2R, of the one run that has them
    assert {"ALFWorld", "Text<World>", "Real", "WM", "W2R", "best trivial baseline"} <= set(texts)
    links = [value for element in root.iter() for key, value in element.attrib.items() if key.endswith("href")]
    assert all(link.startswith("#") for link in links)
    assert path.stat().st_size < 60_000


def test_readme_plot_without_numbers_is_refused(tmp_path):
    with pytest.raises(ValueError, match="evaluate first"):
        write_readme_plot(tmp_path / "plot.svg", {"ALFWorld": {"name": "x"}})
