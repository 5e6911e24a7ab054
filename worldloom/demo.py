"""The main job in one command: play composed ALFWorld, learn it, measure what was learnt."""

import math
from pathlib import Path
from typing import Any, NamedTuple

from worldloom.agents import AgentSpec
from worldloom.collect import TRAJECTORIES, collect
from worldloom.envs import EnvSpec
from worldloom.errors import ConfigError

FULL_MINUTES = 25


class Sizes(NamedTuple):
    """How much of each stage fits into some minutes on two cores."""

    episodes: int
    train_minutes: float
    test_episodes: int
    tasks: int

    @classmethod
    def of(cls, minutes: float) -> "Sizes":
        """Scaled from an estimate for 25 minutes."""
        share = minutes / FULL_MINUTES
        return cls(max(8, round(150 * share)), 18 * share, max(4, round(30 * share)), max(2, round(12 * share)))


def mixed_agents() -> list[AgentSpec]:
    """Agents of six skills: a world is learnt from successes and from mistakes."""
    skills = (
        {"skill": 1.0, "curious": 0.15},
        {"skill": 0.85},
        {"skill": 0.7},
        {"skill": 0.5},
        {"skill": 0.25},
        {"skill": 0.0},
    )
    return [AgentSpec("scripted-alfworld", params) for params in skills]


def demo(out: Path, minutes: float = FULL_MINUTES, workers: int = 2) -> dict[str, Any]:
    """Collect, train and evaluate on composed ALFWorld games, within about ``minutes`` on two cores.

    Returns:
        The metrics, also in ``out/evaluate/metrics.json``; the report is ``out/evaluate/report.html``.

    Raises:
        ConfigError: ``minutes`` is less than half a minute, or no number.
    """
    from worldloom.config import TrainConfig
    from worldloom.evaluate.run import evaluate
    from worldloom.train import train

    if not 0.5 <= minutes < math.inf:
        raise ConfigError(f"minutes is {minutes}; it must be at least 0.5")
    sizes, env = Sizes.of(minutes), EnvSpec("alfworld", {"games": "composed"})
    agents = mixed_agents()[:4]  # those that mostly act with a purpose: four levels of noise
    collect(out / "train", env, agents, "train", tasks=sizes.episodes, max_steps=30, workers=workers)
    collect(out / "test", env, agents, "valid_seen", tasks=sizes.test_episodes, seed=1, max_steps=30, workers=workers)
    train([out / "train" / TRAJECTORIES], out / "model", TrainConfig(minutes=sizes.train_minutes, batch=2))
    return evaluate(
        out / "evaluate", str(out / "model"), name="demo", data=out / "test" / TRAJECTORIES, env=env,
        split="valid_seen", tasks=sizes.tasks, agents=[agents[0]], max_steps=30, workers=workers,
    )  # fmt: skip
