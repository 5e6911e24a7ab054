"""The guard: its verdicts by hand, and a broken world that is caught."""

import random
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binomtest

from tests.envs.corridor import Corridor, Walker
from worldloom.envs import EnvSpec
from worldloom.errors import ConfigError
from worldloom.practice.guard import Guard, GuardConfig, false_share, share, spread, verdict
from worldloom.rollout import rollout
from worldloom.runs import read_json
from worldloom.trajectory import Step, TaskRef, Trajectory, read

CORRIDOR = EnvSpec("tests.envs.corridor:Corridor", {"longest": 3})


def check(at: int, won: int, of: int, false: int | None = None, replayed: int = 8) -> dict[str, Any]:
    told: dict[str, Any] = {"at": at, "reward": share(won, of)}
    return told if false is None else {**told, "false_success": share(false, replayed)}


def test_a_share_has_a_width_even_where_all_are_hits() -> None:
    """Wilson: all of 8 are hits; the lower bound is n / (n + z^2) = 8 / (8 + 3.8415)."""
    all_of_eight = share(8, 8)
    assert all_of_eight["low"] == pytest.approx(8 / (8 + 1.959964**2), abs=1e-4)
    assert (all_of_eight["value"], all_of_eight["high"], all_of_eight["n"]) == (1.0, 1.0, 8)
    assert share(0, 0) == {"value": 0.0, "low": 0.0, "high": 1.0, "n": 0}
    for hits in range(9):
        known = binomtest(hits, 8).proportion_ci(method="wilson")
        assert (share(hits, 8)["low"], share(hits, 8)["high"]) == pytest.approx((known.low, known.high), abs=1e-6)


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        ([check(1, 5, 10, false=0)], "fine"),
        ([check(1, 10, 10, false=8)], "stop"),  # surely more than half: at least 68 %
        ([check(1, 10, 10, false=5)], "warn"),  # 62 %, but it could be 31 %
        ([check(1, 5, 10, false=0), check(2, 9, 10, false=1)], "fine"),  # really 0.5, then 0.79
        ([check(1, 5, 10, false=0), check(2, 9, 10, false=4)], "warn"),  # really 0.5, then 0.45: they part
        ([check(1, 5, 10, false=8), check(2, 0, 10)], "fine"),  # nothing to replay, nothing to say
        ([check(1, 5, 10)], "warn"),  # there was something to replay, and nothing is known of it
        ([check(1, 5, 10, false=0), check(2, 9, 10)], "warn"),
    ],
)
def test_verdicts(checks: list[dict[str, Any]], expected: str) -> None:
    assert verdict(checks, 0.5) == expected


def true_and_false(task: str) -> tuple[Trajectory, Trajectory]:
    """An episode that reality repeats, and one that a world model wrongly calls a success."""
    won = rollout(Corridor(3), Walker(), task, split="train")
    lie = Step(action="look", observation="You are through.", terminal="success")
    return won, won.model_copy(update={"steps": [lie]})


def lies(task: str, *actions: str) -> list[Trajectory]:
    """Wrong successes of one task, each by one action."""
    _, lie = true_and_false(task)
    return [lie.model_copy(update={"steps": [lie.steps[0].model_copy(update={"action": a})]}) for a in actions]


def test_tasks_have_their_turn_before_one_has_a_second() -> None:
    won = [*lies("a", "1", "2", "3", "4", "5"), *lies("b", "1"), *lies("c", "1", "2")]
    for seed in range(5):
        drawn = spread(won, 5, random.Random(seed))
        assert {t.task.id for t in drawn[:3]} == {"a", "b", "c"}
        assert {t.task.id for t in drawn[3:]} == {"a", "c"}  # b has no other
        assert len({(t.task.id, *t.actions) for t in drawn}) == 5
        assert len(spread(won, 20, random.Random(seed))) == 8  # all that there are


def test_of_one_task_there_is_one_piece_of_evidence(tmp_path: Path) -> None:
    """Half of a's replays are false and none of b's: a quarter, known of two tasks."""
    true, _ = true_and_false("train-0")
    half = [true, *lies("train-0", "look"), true_and_false("train-1")[0]]
    half[1] = half[1].model_copy(update={"steps": [Step(action="look", observation="", terminal="truncated")]})
    found = false_share(half)
    assert (found["value"], found["n"]) == (0.25, 2)
    guard = Guard(tmp_path, CORRIDOR, GuardConfig(limit=0.3))
    assert guard.check(1, [t for _ in range(8) for t in lies("train-0", "look")]) == "warn"
    assert guard.check(2, [*lies("train-0", "look", "go west", "wait"), *lies("train-1", "look")]) == "stop"
    once, twice = guard.checks
    assert (once["replays"], once["false_success"]["n"]) == (1, 1)  # the eight are one
    assert (twice["replays"], twice["false_success"]["n"]) == (4, 2)
    assert twice["false_success"]["low"] == pytest.approx(2 / (2 + 1.959964**2), abs=1e-4)


def test_replays_that_break_are_told_and_are_no_all_clear(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard(tmp_path, CORRIDOR, GuardConfig(limit=0.3))
    unknown = [true_and_false("train-0")[0].model_copy(update={"task": TaskRef(id=f"no-{n}")}) for n in range(2)]
    assert guard.check(1, unknown) == "warn"
    assert "guard at 1: 2 of 2 replays broke in the real environment (no task" in caplog.text
    assert guard.check(2, [*unknown, true_and_false("train-0")[0]]) == "fine"
    none, one = read_json(tmp_path / "guard.json")
    assert (none["broken"], none["replays"], "false_success" in none) == (2, 2, False)
    assert (one["broken"], one["false_success"]["n"], one["false_success"]["value"]) == (2, 1, 0.0)


def test_reality_is_asked_and_the_answer_is_kept(tmp_path: Path) -> None:
    pairs = [true_and_false(f"train-{n}") for n in range(3)]
    honest, false = [won for won, _ in pairs], [lie for _, lie in pairs]
    guard = Guard(tmp_path, CORRIDOR, GuardConfig(every=2, sample=6, limit=0.3))
    assert guard.check(1, false) == "fine"  # it does not look at 1
    assert guard.checks == []
    assert guard.check(2, honest) == "fine"
    assert guard.checks[0]["false_success"]["value"] == 0.0
    assert guard.checks[0]["real_steps"] == sum(len(t.steps) for t in honest)
    assert guard.check(4, false) == "stop"  # all of 3: at least 44 %
    assert (tmp_path / "guard.svg").read_text().startswith("<?xml")
    told = read_json(tmp_path / "guard.json")
    assert [one["verdict"] for one in told] == ["fine", "stop"]
    before = (tmp_path / "guard" / "4.jsonl").read_bytes()
    again = Guard(tmp_path, CORRIDOR, GuardConfig(every=2, sample=6, limit=0.3))
    assert again.check(4, honest) == "stop"  # it has looked before
    assert (tmp_path / "guard" / "4.jsonl").read_bytes() == before
    assert {t.env.name for t in read(tmp_path / "guard" / "4.jsonl")} == {"corridor"}


def test_a_guard_may_only_warn(tmp_path: Path) -> None:
    false = [true_and_false(f"train-{n}")[1] for n in range(3)]
    assert Guard(tmp_path, CORRIDOR, GuardConfig(limit=0.3, action="warn")).check(1, false) == "warn"
    assert Guard(tmp_path / "off", CORRIDOR, GuardConfig(action="off")).check(1, false) == "fine"
    assert not (tmp_path / "off").exists()
    for wrong in ({"every": 0}, {"limit": 1.0}, {"action": "shout"}):
        with pytest.raises(ConfigError, match="guard's"):
            GuardConfig(**wrong)  # type: ignore[arg-type]
