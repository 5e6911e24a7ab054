"""A rehearsal before going live: the agent in a world model, beside controls that ought to fail there.

A world that gives success away would let any agent pass. So the same world is played by an agent that does nothing of
use (``idle``), and by the agent's own actions on other tasks (``swapped``): what these win is not the agent's merit.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from worldloom.coverage.steps import form_of, kind_of
from worldloom.evaluate.confidence import probability
from worldloom.evaluate.stats import rate
from worldloom.practice.arms import share
from worldloom.trajectory import Step, Trajectory

Record = dict[str, Any]
SHOWN = 20  # of the riskiest actions


class Rehearsed(NamedTuple):
    """What was played in the world, and what came of the replays in reality (None: there is none)."""

    episodes: Sequence[Trajectory]
    idle: Sequence[Trajectory]
    swapped: Sequence[Trajectory]
    real: Mapping[str, Trajectory] | None = None
    """By task: the imagined successes, replayed."""


def swap(episodes: Sequence[Trajectory]) -> dict[str, list[str]]:
    """For each task, the actions that were meant for the next one (in the order of the tasks); none for one task."""
    actions = [t.actions for t in episodes]
    return dict(zip([t.task.id for t in episodes], [*actions[1:], *actions[:1]], strict=True)) if actions[1:] else {}


def seen_kinds(logged: Iterable[Trajectory]) -> set[str]:
    """The kinds of actions that some episodes show."""
    return {kind_of(step.action).name for trajectory in logged for step in trajectory.steps}


def measured(found: Rehearsed, seen: set[str] | None, unsure_below: float) -> Record:
    """Every figure of a rehearsal. A rate is ``{"value", "low", "high", "n"}``; what could not be measured is absent.

    Args:
        seen: kinds of actions that the world was shown; None if that is not known.
        unsure_below: the probability of an answer below which the world counts as unsure.
    """
    episodes = found.episodes
    told: Record = {
        "success": _won(episodes),
        "idle_success": _won(found.idle),
        "swapped_success": _won(found.swapped),
        "errors": _share(episodes, lambda t: t.outcome == "error"),
        "unfinished": _share(episodes, lambda t: any(step.reason for step in t.steps)),
        "unsure": _steps(episodes, lambda step: _sure(step) is not None, lambda step: _unsure(step, unsure_below)),
    }
    if seen is not None:
        told["new_actions"] = _steps(episodes, lambda step: True, lambda step: kind_of(step.action).name not in seen)
    known = [t for t in replays_of(found) if t.error is None]
    told["false_success"] = _share(known, lambda t: t.outcome != "success")
    return {name: value for name, value in told.items() if value is not None}


def replays_of(found: Rehearsed) -> list[Trajectory]:
    """What came in reality of the imagined successes; nothing where there is no real environment. A replay that broke
    (``error``) says nothing of the success, so it is no false one."""
    real = found.real or {}
    return [real[t.task.id] for t in found.episodes if t.outcome == "success" and t.task.id in real]


def _share(episodes: Sequence[Trajectory], holds: Any) -> Record | None:
    return share([float(holds(t)) for t in episodes])


def _won(episodes: Sequence[Trajectory]) -> Record | None:
    return _share(episodes, lambda t: t.outcome == "success")


def _steps(episodes: Sequence[Trajectory], counts: Any, holds: Any) -> Record | None:
    """A rate over steps, with its interval over episodes."""
    of = [[step for step in t.steps if counts(step)] for t in episodes]
    found = rate([sum(map(holds, steps)) for steps in of], [len(steps) for steps in of])
    return {**found, "n": sum(map(len, of))} if found else None


def _sure(step: Step) -> float | None:
    return probability(step.confidence) if step.confidence else None


def _unsure(step: Step, below: float) -> bool:
    sure = _sure(step)
    return sure is not None and sure < below


def riskiest(episodes: Sequence[Trajectory], seen: set[str] | None, unsure_below: float) -> list[Record]:
    """Actions by how much is to be feared of them, the worst first; calls of one tool are one, and so are texts that
    differ in numbers only.

    Of each: ``steps``; ``failures``, how many of them ended an episode in failure; ``in_lost``, how many stand in
    episodes that did not succeed; ``unsure``, the share of answers below ``unsure_below`` (absent if the world does not
    tell); ``new``, whether the world was never shown such a kind (absent if that is not known); and the ``example``
    with the least probability. The order is by failures, then new ones, then by ``unsure`` and number.
    """
    kinds: dict[str, list[tuple[Step, bool]]] = {}
    for trajectory in episodes:
        for step in trajectory.steps:
            kinds.setdefault(_name(step.action), []).append((step, trajectory.outcome != "success"))
    rows = [_risk(name, steps, seen, unsure_below) for name, steps in kinds.items()]
    return sorted(rows, key=_fear)[:SHOWN]


def _name(action: str) -> str:
    kind = kind_of(action)
    return kind.name if kind.call else form_of(action)[:60]


def _fear(row: Record) -> tuple[Any, ...]:
    return -row["failures"], not row.get("new"), -row.get("unsure", 0.0), -row["steps"], row["action"]


def _risk(name: str, steps: Sequence[tuple[Step, bool]], seen: set[str] | None, unsure_below: float) -> Record:
    sure = [probability for step, _ in steps if (probability := _sure(step)) is not None]
    worst = min((step for step, _ in steps), key=lambda step: 1.0 if (found := _sure(step)) is None else found)
    row: Record = {
        "action": name,
        "steps": len(steps),
        "failures": sum(step.terminal == "failure" for step, _ in steps),
        "in_lost": sum(lost for _, lost in steps),
        "example": worst.action,
    }
    if sure:
        row["unsure"] = sum(value < unsure_below for value in sure) / len(sure)
    return row | ({"new": kind_of(worst.action).name not in seen} if seen is not None else {})
