"""Logged episodes played again inside a world model: the same actions, on nothing but its own imagined history.

Where there is no environment to compare with, this is what logs can tell of whole episodes: whether the model's verdict
is that of the log, how soon it says something else, and whether it contradicts itself.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from worldloom.collect import key, label
from worldloom.coverage.steps import Kind, kind_of
from worldloom.errors import ProtocolError
from worldloom.evaluate.budget import Budget
from worldloom.evaluate.stats import word_f1
from worldloom.evaluate.verdicts import UNSAYABLE
from worldloom.progress import progress
from worldloom.rollouts import AT_ONCE
from worldloom.runs import Log, read_records
from worldloom.trajectory import Trajectory
from worldloom.world import WorldModelEnv, starts_of

Record = dict[str, Any]
KIND = "rollout"
ENDS = ("success", "failure")


def name_of(trajectory: Trajectory) -> str:
    """The key of an episode among records."""
    return "|".join(map(str, key(trajectory)))


def steady_kinds(logged: Iterable[Trajectory]) -> set[Kind]:
    """Kinds of actions that the logs show to be answered alike when they are repeated: those of which the same action
    came twice in an episode, and always had the same answer. Where tools are called, only calls count."""
    alike: dict[Kind, bool] = {}
    calls = False
    for trajectory in logged:
        for number, earlier in repeats(trajectory).items():
            step = trajectory.steps[number]
            same = step.observation == trajectory.steps[earlier].observation
            kind = kind_of(step.action)
            alike[kind] = alike.get(kind, True) and same
        calls = calls or any(kind_of(step.action).call for step in trajectory.steps)
    return {kind for kind, same in alike.items() if same and (kind.call or not calls)}


def repeats(trajectory: Trajectory) -> dict[int, int]:
    """Index of each step whose very action was taken before -> the index of the last time; unknown answers are no
    answers."""
    last: dict[str, int] = {}
    found = {}
    for number, step in enumerate(trajectory.steps):
        if step.not_recorded:
            continue
        if step.action in last:
            found[number] = last[step.action]
        last[step.action] = number
    return found


def score_rollouts(
    path: Path, lm: Any, logged: Sequence[Trajectory], steady: Collection[Kind], budget: Budget
) -> list[Record]:
    """One record for each logged episode, playing those that the file lacks; fewer where the budget ends first."""
    named = {name_of(trajectory): trajectory for trajectory in logged}
    done = {r["key"] for r in read_records(path) if r["kind"] == KIND} & set(named)
    missing = [trajectory for name, trajectory in named.items() if name not in done]
    with Log(path) as log, progress("rollouts", len(named), "episodes", len(done)) as advance:
        for part in budget.parts(missing, log):
            for record in _played(lm, part, steady):
                log.append(json.dumps(record, ensure_ascii=False))
                advance(1, "")
    found = {r["key"]: r for r in read_records(path) if r["kind"] == KIND}
    return [found[name] for name in named if name in found]


def _played(lm: Any, logged: Sequence[Trajectory], steady: Collection[Kind]) -> Iterator[Record]:
    threads = ThreadPoolExecutor(AT_ONCE)
    try:
        asked = [threads.submit(play_again, lm, trajectory, steady) for trajectory in logged]
        yield from (future.result() for future in as_completed(asked))
    finally:  # also where it is stopped: those that wait are not begun
        threads.shutdown(cancel_futures=True)


def play_again(lm: Any, logged: Trajectory, steady: Collection[Kind] = ()) -> Record:
    """Take a logged episode's actions inside a world model, from the same beginning.

    At an action of a ``steady`` kind it is asked the same once more, aside, so that the episode does not notice.

    Returns:
        The record: ``logged`` and ``verdict`` (how the episode ended, None if it did not), ``reason`` where the model
        broke off (``unsayable``: of a text that the protocol cannot say, so that nothing was played), ``of`` (steps of
        the log), ``unknown`` (the indices of those whose answer the log does not know, if any), and ``steps``: those
        that were played, each with ``index``, ``action``, ``gold``, ``said``, ``same``, ``word_f1``, and where there is
        something to tell ``asked_again`` (whether the answer was the same) and ``repeated`` (the same of an action that
        the log repeats, in the model and in the log).
    """
    record: Record = {
        "kind": KIND, "key": name_of(logged), "task_id": logged.task.id, "agent": label(logged),
        "logged": logged.outcome if logged.outcome in ENDS else None, "verdict": None, "of": len(logged.steps),
        "steps": [],
    }  # fmt: skip
    if unknown := [number for number, step in enumerate(logged.steps, 1) if step.not_recorded]:
        record["unknown"] = unknown
    try:
        return _played_again(lm, logged, steady, {**record, "steps": []})
    except ProtocolError:
        return {**record, "reason": UNSAYABLE}


def _played_again(lm: Any, logged: Trajectory, steady: Collection[Kind], record: Record) -> Record:
    world = WorldModelEnv(lm, starts_of([logged]), logged.env.name)
    world.reset(logged.task.id)
    earlier = repeats(logged)
    for number, step in enumerate(logged.steps):
        result = world.step(step.action)
        if reason := result.info.get("reason"):
            return {**record, "reason": reason}
        record["steps"].append(_compared(logged, number, result.observation, record["steps"], earlier))
        if result.terminated:
            return {**record, "verdict": result.info.get("terminal")}
        if kind_of(step.action) in steady:
            twin = world.fork().step(step.action)
            if not twin.info.get("reason"):
                record["steps"][-1]["asked_again"] = twin.observation == result.observation
    return record


def _compared(
    logged: Trajectory, number: int, told: str, before: Sequence[Mapping[str, Any]], earlier: Mapping[int, int]
) -> Record:
    step = logged.steps[number]
    found: Record = {"index": number + 1, "action": step.action, "gold": step.observation, "said": told}
    if not step.not_recorded:
        same = told.strip() == step.observation.strip()
        found |= {"same": same, "word_f1": word_f1(told, step.observation)}
    if number in earlier:
        last = earlier[number]
        alike = told == before[last]["said"]
        found["repeated"] = {"alike": alike, "logged": step.observation == logged.steps[last].observation}
    return found
