"""Synthetic experience: agents play inside a world model, and what it says they won becomes training data.

As Word2World does (arXiv 2512.18832, section 5): it trains agents on 1K imagined episodes as well as on 1K real ones.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from worldloom.agents import AgentSpec
from worldloom.collect import TRAJECTORIES, plan, summarize
from worldloom.errors import ConfigError
from worldloom.lineage import weights_of
from worldloom.practice.place import Ground, Place, draws, steps_of
from worldloom.rollout import MAX_STEPS
from worldloom.runs import open_run, write_json
from worldloom.trajectory import Trajectory, write

ROLLOUTS = "rollouts.jsonl"
Keep = Literal["success", "ended", "all"]


def synthesize(
    out: Path,
    place: Place,
    agents: Sequence[AgentSpec],
    split: str = "train",
    *,
    tasks: int | None = None,
    samples: int = 1,
    seed: int = 0,
    max_steps: int = MAX_STEPS,
    keep: Keep = "success",
    least_confidence: float | None = None,
) -> dict[str, Any]:
    """Let agents play, and keep what ended well by the place's own verdict.

    ``out/rollouts.jsonl`` holds every episode, ``out/trajectories.jsonl`` those that were kept, ``out/summary.json``
    the counts. Started again with the same settings it goes on where it was.

    Args:
        place: where; new tasks of an environment that composes them are simply other tasks of its split.
        samples: how often each agent plays each task, with other luck.
        keep: winners; all that ended (also lost ones); or all that did not break.
        least_confidence: of an imagined episode, the least probability of all that the world model said in it.

    Raises:
        ConfigError: settings out of range, or ``out`` holds a run with others.
        ModelError: the world model cannot be loaded or asked.
    """
    if keep not in ("success", "ended", "all"):
        raise ConfigError(f"keep is {keep!r}; it must be success, ended or all")
    drawn = [draw for agent in agents for draw in draws(agent, samples)]
    jobs = plan(place.tasks(split, tasks, seed), drawn, split, len(drawn), seed, max_steps)
    open_run(out, {
        "stage": "imagine", **place.record(), "split": split, "tasks": tasks, "samples": samples, "seed": seed,
        "agents": [{"name": agent.name, "params": dict(agent.params)} for agent in agents], "max_steps": max_steps,
        "keep": keep, "least_confidence": least_confidence, **weights_of(agents),
    })  # fmt: skip
    with Ground(place, out) as ground:
        played = ground.play(out / ROLLOUTS, jobs)
    kept = chosen(played, keep, least_confidence)
    write(out / TRAJECTORIES, kept)
    steps = "imagined_steps" if place.imagined else "real_steps"
    summary = {**summarize(played), steps: steps_of(played), "kept": len(kept)}
    write_json(out / "summary.json", summary)
    return summary


def chosen(
    played: Iterable[Trajectory], keep: Keep = "success", least_confidence: float | None = None
) -> list[Trajectory]:
    """The episodes that are kept, each task's same actions once; see ``synthesize``."""
    found: dict[tuple[str, ...], Trajectory] = {}
    for episode in sorted(played, key=lambda t: (t.task.id, str(t.agent))):  # not in the order in which they ended
        if _wanted(episode, keep) and (least_confidence is None or sureness(episode) >= least_confidence):
            found.setdefault((episode.task.id, *episode.actions), episode)
    return list(found.values())


def _wanted(episode: Trajectory, keep: Keep) -> bool:
    wanted = {
        "success": ("success",),
        "ended": ("success", "failure"),
        "all": ("success", "failure", "truncated", None),
    }
    return bool(episode.steps) and episode.outcome in wanted[keep]


def sureness(episode: Trajectory) -> float:
    """The probability of all that a world model said in an episode, by which rollouts are judged elsewhere, too. A step
    from which it broke off says nothing.

    Raises:
        ConfigError: the model does not tell how sure it is.
    """
    said = [step for step in episode.steps if not step.anchored and not step.reason]
    if any(step.confidence is None for step in said):
        raise ConfigError("these episodes do not tell how sure their world was; leave least_confidence out")
    return math.exp(min(0.0, sum(step.confidence["logprob"] for step in said if step.confidence)))
