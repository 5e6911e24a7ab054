"""The guard: its verdicts by hand, and a broken world that is caught."""

from pathlib import Path
from typing import Any

import pytest

from tests.envs.corridor import Corridor, Walker
from worldloom.envs import EnvSpec
from worldloom.errors import ConfigError
from worldloom.practice.guard import Guard, GuardConfig, share, verdict
from worldloom.rollout import rollout
from worldloom.runs import read_json
from worldloom.trajectory import Step, Trajectory, read

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


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        ([check(1, 5, 10, false=0)], "fine"),
        ([check(1, 10, 10, false=8)], "stop"),  # surely more than half: at least 68 %
        ([check(1, 10, 10, false=5)], "warn"),  # 62 %, but it could be 31 %
        ([check(1, 5, 10, false=0), check(2, 9, 10, false=1)], "fine"),  # really 0.5, then 0.79
        ([check(1, 5, 10, false=0), check(2, 9, 10, false=4)], "warn"),  # really 0.5, then 0.45: they part
        ([check(1, 5, 10, false=8), check(2, 0, 10)], "fine"),  # nothing to replay, nothing to say
    ],
)
def test_verdicts(checks: list[dict[str, Any]], expected: str) -> None:
    assert verdict(checks, 0.5) == expected


def true_and_false(task: str) -> tuple[Trajectory, Trajectory]:
    """An episode that reality repeats, and one that a world model wrongly calls a success."""
    won = rollout(Corridor(3), Walker(), task, split="train")
    lie = Step(action="look", observation="You are through.", terminal="success")
    return won, won.model_copy(update={"steps": [lie]})


def test_reality_is_asked_and_the_answer_is_kept(tmp_path: Path) -> None:
    pairs = [true_and_false(f"train-{n}") for n in range(3)]
    honest, lies = [won for won, _ in pairs], [lie for _, lie in pairs]
    guard = Guard(tmp_path, CORRIDOR, GuardConfig(every=2, sample=6, limit=0.3))
    assert guard.check(1, lies) == "fine"  # it does not look at 1
    assert guard.checks == []
    assert guard.check(2, honest) == "fine"
    assert guard.checks[0]["false_success"]["value"] == 0.0
    assert guard.checks[0]["real_steps"] == sum(len(t.steps) for t in honest)
    assert guard.check(4, lies) == "stop"  # all of 3: at least 44 %
    assert (tmp_path / "guard.svg").read_text().startswith("<?xml")
    told = read_json(tmp_path / "guard.json")
    assert [one["verdict"] for one in told] == ["fine", "stop"]
    before = (tmp_path / "guard" / "4.jsonl").read_bytes()
    again = Guard(tmp_path, CORRIDOR, GuardConfig(every=2, sample=6, limit=0.3))
    assert again.check(4, honest) == "stop"  # it has looked before
    assert (tmp_path / "guard" / "4.jsonl").read_bytes() == before
    assert {t.env.name for t in read(tmp_path / "guard" / "4.jsonl")} == {"corridor"}


def test_a_guard_may_only_warn(tmp_path: Path) -> None:
    lies = [true_and_false(f"train-{n}")[1] for n in range(3)]
    assert Guard(tmp_path, CORRIDOR, GuardConfig(limit=0.3, action="warn")).check(1, lies) == "warn"
    assert Guard(tmp_path / "off", CORRIDOR, GuardConfig(action="off")).check(1, lies) == "fine"
    assert not (tmp_path / "off").exists()
    for wrong in ({"every": 0}, {"limit": 1.0}, {"action": "shout"}):
        with pytest.raises(ConfigError, match="guard's"):
            GuardConfig(**wrong)  # type: ignore[arg-type]
