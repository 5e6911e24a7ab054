"""Where imagined episodes leave reality, and why, on steps made by hand."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import CensoredData, ecdf

from worldloom.evaluate.divergence import agrees, divergence, divergence_metrics, refusals_of, survival
from worldloom.evaluate.lenient import masked, unordered

NO = "Nothing happens."
SHELF = "On the shelf 1, you see a pen 1, and a book 2."


def episode(
    *steps: tuple[str, str] | tuple[str, str, str | None] | tuple[str, str, str | None, list[str]],
) -> dict[str, Any]:
    made = []
    for action, observation, *rest in steps:
        step: dict[str, Any] = {"action": action, "observation": observation}
        step |= {"terminal": rest[0]} if rest and rest[0] else {}
        step |= {"admissible_actions": rest[1]} if len(rest) > 1 else {}
        made.append(step)
    return {"steps": made}


@pytest.mark.parametrize(
    ("ours", "theirs", "cause"),
    [
        (("look", SHELF), ("look", SHELF), None),
        (("look", f" {SHELF}\n"), ("look", SHELF), None),
        (("look", SHELF), ("look", "On the shelf 1, you see a book 2, and a pen 1."), "wording_only"),
        (("look", SHELF.upper()), ("look", SHELF), "wording_only"),
        (("look", SHELF), ("look", "On the shelf 1, you see a pen 1."), "invented_object"),
        (("look", "On the shelf 1, you see a pen 1."), ("look", SHELF), "missing_object"),
        (("look", SHELF), ("look", "On the shelf 1, you see a pen 1, and a mug 2."), "wrong_state"),
        (("look", "The safe is open."), ("look", "The safe is closed."), "wrong_state"),
        (("take pen 1", "You pick up the pen 1."), ("take pen 1", NO), "illegal_accepted"),
        (("take pen 1", NO), ("take pen 1", "You pick up the pen 1."), "legal_refused"),
        (("put it", "Done.", "success"), ("put it", "Done."), "premature_success"),
        (("put it", "Done."), ("put it", "Done.", "success"), "missed_success"),
        (("put it", "Done."), ("put it", "Done.", "failure"), "missed_failure"),
        (("put it", "Done.", "failure"), ("put it", "Done."), "invented_failure"),
        (("wait", "Time passes. 0/7"), ("wait", "Time passes. 0/8"), "wrong_counter"),
    ],
)
def test_causes(ours: Any, theirs: Any, cause: str | None) -> None:
    found = divergence(episode(("go", "ok"), ours), episode(("go", "ok"), theirs), {NO})
    assert (found and found["cause"]) == cause
    assert found is None or (found["step"], found["action"]) == (2, theirs[0])


def test_what_is_not_listed_is_illegal_even_if_its_refusal_was_never_heard() -> None:
    ours, theirs = (
        episode(("go", "ok"), ("fly", "You fly.")),
        episode(("go", "ok", None, ["go"]), ("fly", "You cannot.")),
    )
    found = divergence(ours, theirs, set())
    assert found is not None
    assert found["cause"] == "illegal_accepted"


def told(episode: dict[str, Any], *refused: bool) -> dict[str, Any]:
    """The episode, with the environment's word on which actions it refused."""
    return {"steps": [s | {"refused": r} for s, r in zip(episode["steps"], refused, strict=True)]}


def test_refusals_are_learnt_from_what_was_not_listed() -> None:
    played = episode(
        ("go", "ok", None, ["look"]), ("look", SHELF, None, ["go"]), ("fly", NO, None, ["go"]), ("go", "ok")
    )
    assert refusals_of([played]) == {NO}


def test_refusals_are_what_the_environment_says_to_be_some() -> None:
    played = episode(("examine door", "A door.", None, ["go"]), ("examine it", "A door.", None, ["go"]), ("fly", NO))
    assert refusals_of([told(played, False, False, True)]) == {NO}
    heard = episode(("help", "You may: go.", None, ["go"]), ("sing", "You may: go."), ("go", "ok"))
    assert refusals_of([told(heard, False, True, False)]) == set()  # which is heard of what is possible, too


SHOP, LAMPS, LAMP = "Search", "Page 1: lamp a, lamp b", "lamp a: buy"
BUTTONS = ["click[a]", "click[b]"]


def browsed(*refused: bool) -> dict[str, Any]:
    """A search, what cannot be clicked (so that the page is shown again), and a lamp; maybe told which was refused."""
    made = episode(
        ("search[lamp]", LAMPS, None, BUTTONS), ("click[moon]", LAMPS, None, BUTTONS), ("click[a]", LAMP, None, [])
    )
    return (told(made, *refused) if refused else made) | {"initial_observation": SHOP}


@pytest.mark.parametrize("real", [browsed(), browsed(False, True, False)])
def test_a_page_shown_again_is_no_word_of_refusal(real: dict[str, Any]) -> None:
    refusals = refusals_of([real])
    assert refusals == set()
    for number, cause in enumerate(("wrong_state", "illegal_accepted", "wrong_state")):
        imagined = [(step["action"], step["observation"]) for step in real["steps"]]
        imagined[number] = (imagined[number][0], "Page 1: lamp a, shoe b")
        found = divergence(episode(*imagined), real, refusals)
        assert found is not None
        assert (found["step"], found["cause"]) == (number + 1, cause)


@pytest.mark.parametrize("refused", [(), (False, True, True)])
def test_a_refusal_with_a_wrong_counter_is_one(refused: tuple[bool, ...]) -> None:
    rooms = ["go north", "look"]
    real = episode(("look", "A hall. 0/2", None, rooms), ("fly", "No verb. 0/3", None, rooms), ("sit", "No verb. 0/4"))
    real = told(real, *refused) if refused else real
    imagined = episode(("look", "A hall. 0/2"), ("fly", "No verb. 0/2"), ("sit", "No verb. 0/4"))
    assert refusals_of([real]) == {"No verb. #"}
    for refusals in (refusals_of([real]), set()):
        found = divergence(imagined, real, refusals)
        assert found is not None
        assert (found["step"], found["cause"]) == (2, "wrong_counter")
    ignored = divergence(
        imagined, episode(*[("look", "A hall. 0/2", None, ["fly"])], ("fly", "You fly. 0/3")), {"No verb. #"}
    )
    assert ignored is not None and ignored["cause"] == "legal_refused"


def made(imagined: list[str], real: list[str], task: str = "t", **more: Any) -> dict[str, Any]:
    """A record of an episode, from what is said at each step; what is asked of nobody is not recorded."""
    wm, w2r = (episode(*(("go", text) for text in texts)) for texts in (imagined, real))
    for step in w2r["steps"]:
        step |= {"not_recorded": True} if step["observation"] == "?" else {}
    return {"task_id": task, "real": episode(), "wm": wm, "w2r": w2r | more}


def curve(found: dict[str, Any]) -> list[tuple[int, int, float]]:
    return [(row["step"], row["n"], row["agree"]) for row in found["survival"]]


def test_survival_and_causes_by_hand() -> None:
    records = [
        made(["a", "b", "c"], ["a", "b", "c"]),
        made(["a", "x", "c"], ["a", "b", "c"]),
        made(["a"], ["a"]),
        made(["a"], ["a"], error={"kind": "E"}),
        made(["a"], []),
    ]
    found = divergence_metrics(records)
    assert (found["n"], found["left_out"], found["not_recorded"]) == (3, 2, 0)
    assert found["never"]["value"] == pytest.approx(2 / 3)
    assert found["causes"] == {"wrong_state": 1}
    # At the second step two episodes are left, one of which parts; the third step has one, which agrees.
    assert curve(found) == [(1, 3, 1.0), (2, 2, 0.5), (3, 1, 0.5)]


def test_episodes_that_end_in_agreement_do_not_pull_the_curve_down() -> None:
    """Freireich's 21 leukaemia patients on 6-MP (1963), the textbook example of Kaplan and Meier's estimate."""
    relapsed, followed = [6, 6, 6, 7, 10, 13, 16, 22, 23], [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    lengths, parted = [*relapsed, *followed], [*[True] * 9, *[False] * 12]
    rows = {row["step"]: row for row in survival([f"t{n}" for n in range(21)], lengths, parted)}
    published = {6: 0.857, 7: 0.807, 10: 0.753, 13: 0.690, 16: 0.627, 22: 0.538, 23: 0.448}
    assert {step: round(rows[step]["agree"], 3) for step in published} == published
    assert {step: rows[step]["n"] for step in published} == {6: 21, 7: 17, 10: 15, 13: 12, 16: 11, 22: 7, 23: 6}
    assert (len(rows), rows[35]["agree"]) == (35, rows[23]["agree"])
    # The standard error after step 10 by Greenwood's formula: 0.753 * sqrt(3/(21*18) + 1/(17*16) + 1/(15*14)) = 0.0963.
    assert rows[10]["low"] == pytest.approx(0.753 - 1.96 * 0.0963, abs=0.04)
    assert rows[10]["high"] == pytest.approx(0.753 + 1.96 * 0.0963, abs=0.04)


def test_the_interval_is_that_of_greenwood_where_there_are_many() -> None:
    """scipy's own interval of the same curve, for 300 episodes of a task each."""
    draw = np.random.default_rng(3)
    lengths, parted = draw.integers(1, 9, 300), draw.random(300) < 0.4
    rows = survival([f"t{n}" for n in range(300)], lengths.tolist(), parted.tolist())
    curve = ecdf(CensoredData(uncensored=lengths[parted], right=lengths[~parted])).sf
    bounds = curve.confidence_interval()
    for row in rows[:7]:
        assert row["low"] == pytest.approx(bounds.low.evaluate(row["step"]), abs=0.02)
        assert row["high"] == pytest.approx(bounds.high.evaluate(row["step"]), abs=0.02)


def test_agents_alike_on_the_same_tasks_tell_no_more_than_one() -> None:
    lengths, parted = [1, 2, 2, 3, 4, 4], [True, False, True, False, True, False]
    tasks = [f"t{n}" for n in range(6)]
    alone, twice = survival(tasks, lengths, parted), survival(tasks * 2, lengths * 2, parted * 2)
    assert [row | {"n": 2 * row["n"]} for row in alone] == twice


def test_a_curve_that_all_of_few_share_is_not_sure() -> None:
    (agreeing,) = survival(["a", "b", "c"], [1, 1, 1], [False] * 3)
    assert agreeing == {"step": 1, "n": 3, "agree": 1.0, "low": pytest.approx(0.025 ** (1 / 3)), "high": 1.0}
    first, last = survival(["a", "b"], [1, 2], [True, True])
    assert (last["agree"], last["low"], last["high"]) == (0.0, 0.0, pytest.approx(1 - 0.025 ** (1 / 2)))
    assert (first["agree"], last["n"]) == (0.5, 1)
    assert survival([], [], []) == survival(["a"], [0], [False]) == []


def test_what_is_not_recorded_ends_the_comparison() -> None:
    records = [
        made(["a", "b", "c"], ["a", "?", "x"]),  # agrees as far as is known
        made(["x", "b"], ["a", "?"]),  # parts before
        made(["a", "b"], ["a", "b"]),
        made(["a"], ["?"]),
    ]
    assert [agrees(r["wm"], r["w2r"]) for r in records] == [None, False, True, None]
    found = divergence_metrics(records)
    assert (found["n"], found["not_recorded"], found["causes"]) == (4, 2, {"wrong_state": 1})
    assert (found["never"]["value"], found["never"]["n"]) == (0.5, 2)
    assert curve(found) == [(1, 3, pytest.approx(2 / 3)), (2, 1, pytest.approx(2 / 3))]
    assert found["failed"]["causes"] == {"not_recorded": 2, "wrong_state": 1, "as_imagined": 1}


def test_counters_are_set_aside() -> None:
    assert masked("-= Kitchen =-1/12") == masked("-= Kitchen =-2/13")
    assert masked("It is 10:45, score 7.") == masked("It is 9:05, score 8.")
    assert masked("in 3 moves") == masked("in 4 moves")
    assert masked("a mug 1") != masked("a mug 2")
    assert masked("shelf 1.5") == "shelf 1.5"


def test_order_is_set_aside_within_a_list_only() -> None:
    assert unordered("You see a pen, and a mug. Go.") == unordered("You see a mug, and a pen. Go.")
    assert unordered("You see a pen. You see a mug.") != unordered("You see a mug. You see a pen.")
    assert unordered("On the desk, you see a pen.") != unordered("On the bed, you see a pen.")
