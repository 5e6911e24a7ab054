"""Utility: what agents do in the real environment, on the same tasks with the same seeds, whatever they learnt from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from worldloom.agents import AgentSpec
from worldloom.collect import choose_tasks, job_key, key, plan, play
from worldloom.envs import EnvSpec
from worldloom.envs.versions import version_of
from worldloom.lineage import weights_of
from worldloom.naming import UNKNOWN
from worldloom.practice.arms import apart, share
from worldloom.practice.place import steps_of
from worldloom.rollout import MAX_STEPS
from worldloom.runs import open_run
from worldloom.trajectory import Trajectory, read

Record = dict[str, Any]
Steps = Mapping[str, int | str]
"""{"real_steps", "imagined_steps"}, each a number or "unknown"."""


def utility(
    out: Path,
    env: EnvSpec,
    arms: Mapping[str, AgentSpec],
    split: str,
    tasks: int | None = None,
    *,
    made: Mapping[str, Steps] | None = None,
    gain: tuple[str, str] | None = None,
    seed: int = 0,
    max_steps: int = MAX_STEPS,
    workers: int = 2,
) -> Record:
    """Play every arm's agent on the same real tasks, and say how often each succeeds.

    Episodes that broke count as no success. ``out/NAME.jsonl`` keeps each arm's; started again it plays what is
    missing.

    Args:
        made: of each arm, the steps that were played to make its agent; unknown if not given.
        gain: the arm whose gain is asked, and the arm over which.

    Returns:
        The ``utility`` part of ``metrics.json``: {"arms": {name: {"real_success", "n_tasks", "errors", "made" and
        "played": the steps that it cost to make its agent, and to let it play these tasks, "real_steps" and
        "imagined_steps": both together}}, "gain": the paired difference of success, with its interval over tasks}.

    Raises:
        ConfigError: ``out`` holds another comparison, or one of models that were trained on since, or the engine's
            version changed.
    """
    open_run(out, {
        "stage": "utility", "env": env.name, "options": {k: v for k, v in env.options.items() if k != "data"},
        "arms": {name: {"name": agent.name, "params": dict(agent.params)} for name, agent in arms.items()},
        "split": split, "tasks": tasks, "seed": seed, "max_steps": max_steps, **weights_of(arms.values()),
    })  # fmt: skip
    chosen = choose_tasks(env, split, tasks, seed)
    episodes = {}
    for name, agent in arms.items():
        jobs = plan(chosen, [agent], split, 1, seed, max_steps)
        play(out / f"{name}.jsonl", env, jobs, workers)
        found = {key(t): t for t in read(out / f"{name}.jsonl")}
        episodes[name] = [found[job_key(job)] for job in jobs]
    version_of((t.env for played in episodes.values() for t in played), "this comparison")
    return compared(episodes, made or {}, gain)


def compared(
    episodes: Mapping[str, list[Trajectory]],
    made: Mapping[str, Steps],
    gain: tuple[str, str] | None = None,
) -> Record:
    """See ``utility``; each arm's episodes stand in the same order of tasks."""
    won = {name: [float(t.outcome == "success") for t in played] for name, played in episodes.items()}
    arms = {name: {
        "real_success": share(won[name]), "n_tasks": len(played),
        "errors": sum(t.outcome == "error" for t in played), **_cost(made.get(name), played),
    } for name, played in episodes.items()}  # fmt: skip
    found: Record = {"arms": arms}
    if gain:
        better, base = gain
        found["gain"] = {**(apart(won[better], won[base]) or {}), "of": better, "over": base}
    return found


def _cost(made: Steps | None, played: list[Trajectory]) -> Record:
    made = made or {"real_steps": UNKNOWN, "imagined_steps": UNKNOWN}
    own = {"real_steps": steps_of(played), "imagined_steps": 0}
    total = {name: steps if isinstance(steps, str) else steps + own[name] for name, steps in made.items()}
    return {"made": dict(made), "played": own, **total}
