"""Fits a plan to the tasks that there are, before anything is run: a large scale wants more than a split may have."""

import logging
import math
from dataclasses import replace

from worldloom.envs import EnvSpec
from worldloom.errors import ConfigError
from worldloom.study.plan import Arm, Plan, Played

logger = logging.getLogger(__name__)


def fitted(planned: Plan) -> Plan:
    """The plan with no more test episodes and tasks than their splits have, and with several agents on each task where
    more episodes are to be learnt than a split has tasks.

    Raises:
        ConfigError: a split does not exist, or all agents on all of its tasks are too few.
        MissingDependency: an environment is not installed.
    """
    sizes = _Sizes()
    played = {name: _fit(name, episodes, sizes) for name, episodes in planned.played.items()}
    return replace(planned, played=played, arms={n: _cut(n, arm, played, sizes) for n, arm in planned.arms.items()})


class _Sizes:
    """How many tasks splits have; each environment is built once."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], int] = {}

    def of(self, env: EnvSpec, split: str) -> int:
        key = (f"{env.name} {sorted(env.options.items())}", split)
        if key not in self.known:
            with env.build() as world:
                self.known[key] = len(world.task_ids(split))
        return self.known[key]


def _fit(name: str, played: Played, sizes: _Sizes) -> Played:
    there = sizes.of(played.env, played.split)
    if played.episodes <= there:
        return played
    if not played.to_learn:
        logger.warning("%s: %d episodes, all tasks that split %r has", name, there, played.split)
        return played._replace(episodes=there)
    per_task = math.ceil(played.episodes / there)
    if per_task > len(played.agents):
        raise ConfigError(
            f"{played.episodes} episodes of {name!r} to learn from, but split {played.split!r} has {there} tasks and "
            f"{len(played.agents)} agents play them; lower scale or trajectories"
        )
    return played._replace(per_task=per_task)


def _cut(name: str, arm: Arm, played: dict[str, Played], sizes: _Sizes) -> Arm:
    test = played[arm.test]
    there = sizes.of(test.env, test.split)
    if arm.tasks > there:
        logger.warning("%s: consistency on %d tasks, all that split %r has", name, there, test.split)
    return arm._replace(tasks=min(arm.tasks, there))
