"""Recorded episodes -> what the world model foresaw of their actions, and whether these were right."""

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

from worldloom.agents.base import Start
from worldloom.collect import key
from worldloom.envs import EnvSpec
from worldloom.envs.remote import RemoteEnvs
from worldloom.lm.base import WorldLM
from worldloom.practice.following import Recorded
from worldloom.practice.threshold import Judged
from worldloom.practice.truth import truth_of
from worldloom.practice.verify import Check, Verdict, VerifiedAgent
from worldloom.progress import progress
from worldloom.runs import Log, read_records
from worldloom.trajectory import Trajectory
from worldloom.world import starts_of


def judge(lm: WorldLM, recorded: Trajectory, check: Check, env: str | None = None) -> list[Verdict]:
    """What the model foresees of each action of a recorded episode that is to be checked, after what really happened.

    With a ``horizon``, the actions that follow are the recorded ones.
    """
    dry = replace(check, dry_run=True)
    agent = VerifiedAgent(Recorded(recorded.actions), lm, dry, starts_of([recorded]), env)
    task = recorded.task
    agent.begin(Start(task.id, recorded.initial_observation, task.instruction, task.seed or 0))
    for text in [recorded.initial_observation, *(step.observation for step in recorded.steps[:-1])]:
        agent.act(text)
    return agent.verdicts


def judge_all(
    path: Path, lm: WorldLM, episodes: Iterable[Trajectory], check: Check, env: EnvSpec, workers: int = 2
) -> list[Judged]:
    """Judge episodes, log them in ``path`` as they are done, and say for each action whether it was right.

    Whether an action was right is what the episode says where that action ended it; else what the real environment
    says (``practice.truth``). Actions of which neither can tell are left out.
    """
    named = {"|".join(map(str, key(t))): t for t in episodes if any(map(check.covers, t.actions))}
    done = {record["key"] for record in read_records(path)}
    missing = [name for name in named if name not in done]
    with (
        Log(path) as log,
        RemoteEnvs(env) as envs,
        ThreadPoolExecutor(workers) as threads,
        progress("calibrate", len(named), "episodes", len(named) - len(missing)) as advance,
    ):

        def judged(name: str) -> None:
            record = _judged(name, named[name], lm, check, envs)
            log.append(json.dumps(record, ensure_ascii=False))  # here, so that what ends after a stop is kept, too

        try:
            for ended in as_completed([threads.submit(judged, name) for name in missing]):
                ended.result()
                advance(1, "")
        finally:
            threads.shutdown(cancel_futures=True)
    return judged_of([verdict for r in read_records(path) if r["key"] in named for verdict in r["verdicts"]])


def _judged(name: str, recorded: Trajectory, lm: WorldLM, check: Check, envs: RemoteEnvs) -> dict[str, Any]:
    found = judge(lm, recorded, check, recorded.env.name)
    told = [{**v, "task_id": recorded.task.id, "right": _right(v, recorded, envs)} for v in found]
    return {"key": name, "verdicts": told}


def _right(verdict: Verdict, recorded: Trajectory, envs: RemoteEnvs) -> bool | None:
    step = recorded.steps[verdict["step"]]
    if step.terminal in ("success", "failure"):
        return step.terminal == "success"
    history = recorded.actions[: verdict["step"]]
    with envs.one() as env:
        return truth_of(env, recorded.task.id, recorded.task.seed or 0, history, step.action)


def judged_of(verdicts: Sequence[Verdict]) -> list[Judged]:
    """Those verdicts whose truth is known and of which the model could say something."""
    return [
        Judged(verdict["chance"], verdict["right"], verdict["task_id"])
        for verdict in verdicts
        if verdict.get("right") is not None and verdict.get("chance") is not None
    ]
