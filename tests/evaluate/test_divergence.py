"""Where imagined episodes leave reality, and why, on steps made by hand."""

from typing import Any

import pytest

from worldloom.evaluate.divergence import divergence, divergence_metrics, refusals_of
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
        (("a", "x"), ("b", "y"), "parser"),
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


def test_refusals_are_learnt_from_what_was_not_listed() -> None:
    played = episode(
        ("go", "ok", None, ["look"]), ("look", SHELF, None, ["go"]), ("fly", NO, None, ["go"]), ("go", "ok")
    )
    assert refusals_of([played]) == {NO}


def test_survival_and_causes_by_hand() -> None:
    def made(imagined: list[str], real: list[str], **more: Any) -> dict[str, Any]:
        wm = episode(*(("go", text) for text in imagined))
        return {"real": episode(), "wm": wm, "w2r": episode(*(("go", text) for text in real)) | more}

    records = [
        made(["a", "b", "c"], ["a", "b", "c"]),
        made(["a", "x", "c"], ["a", "b", "c"]),
        made(["a"], ["a"]),
        made(["a"], ["a"], error={"kind": "E"}),
        made(["a"], []),
    ]
    found = divergence_metrics(records)
    assert (found["n"], found["left_out"]) == (3, 2)
    assert found["never"]["value"] == pytest.approx(2 / 3)
    assert found["causes"] == {"wrong_state": 1}
    assert found["survival"] == [
        {"step": 1, "n": 3, "agree": 1.0}, {"step": 2, "n": 2, "agree": 0.5}, {"step": 3, "n": 2, "agree": 0.5},
    ]  # fmt: skip


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
