"""What a study has to play, to train and to measure: the same for whoever runs it, before anything is run."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from worldloom.agents import AgentSpec
from worldloom.config import TrainConfig
from worldloom.envs import EnvSpec
from worldloom.errors import ConfigError
from worldloom.study.settings import Settings, World

SPARE = 0.04  # more episodes than are to be learnt, of which one may hold no step


class Played(NamedTuple):
    """Episodes of agents who take turns, ``per_task`` of them on each task; to learn from, or to be measured on."""

    env: EnvSpec
    agents: Sequence[AgentSpec]
    split: str
    episodes: int
    seed: int
    max_steps: int
    to_learn: bool = True
    per_task: int = 1


class Trained(NamedTuple):
    """A model, and the names of the episodes that it learns."""

    data: tuple[str, ...]
    config: TrainConfig


class Arm(NamedTuple):
    """A model (after ``at`` episodes, None: at the end; or one ``trained`` before), measured on episodes and, where
    there are ``tasks``, by what ``players`` do in it."""

    model: str
    test: str
    world: str
    at: int | None = None
    players: tuple[AgentSpec, ...] = ()
    tasks: int = 0
    trained: str | None = None


@dataclass
class Plan:
    """Names of episodes, models and arms -> what they are; and which arms are compared, the first less the second."""

    played: dict[str, Played] = field(default_factory=dict)
    trained: dict[str, Trained] = field(default_factory=dict)
    arms: dict[str, Arm] = field(default_factory=dict)
    compared: list[tuple[str, str]] = field(default_factory=list)


def plan(settings: Settings) -> Plan:
    """The plan of a study.

    Raises:
        ConfigError: a world is not known, or lacks what the study needs.
    """
    found, sized = Plan(), settings.sized()
    KINDS[settings.study](found, sized, settings.places)
    return found


def _train_episodes(world: World, settings: Settings, agents: Sequence[AgentSpec] | None = None) -> Played:
    count = settings.trajectories[-1]
    return Played(world.spec(), agents or world.players, world.train, count, settings.seed, world.max_steps)


def _test_episodes(
    world: World, settings: Settings, split: str | None = None, agents: Sequence[AgentSpec] | None = None
) -> Played:  # fmt: skip
    """Of other tasks than those that consistency is measured on: both are drawn by their seeds."""
    split = split or world.test
    return Played(
        world.spec(), agents or world.players, split, settings.test, settings.seed + 1, world.max_steps, False
    )


def _both(world: World) -> tuple[AgentSpec, ...]:
    """Whose consistency is measured: the most able one, and one that is not in the training data."""
    return (world.players[0], world.unknown)


def _data(found: Plan, settings: Settings, worlds: Mapping[str, World]) -> None:
    """One pass; the first episodes of it are those that a shorter one would have had."""
    config, last = settings.training, settings.trajectories[-1]
    config = replace(config, snapshots=settings.trajectories, steps=math.ceil(last / config.batch))
    for name, world in worlds.items():
        episodes = _train_episodes(world, settings)
        found.played[name] = episodes._replace(episodes=last + math.ceil(last * SPARE))
        found.played[f"{name}-test"] = _test_episodes(world, settings)
        found.trained[name] = Trained((name,), config)
        arms = [f"{name}-{count}" for count in settings.trajectories]
        for arm, count in zip(arms, settings.trajectories, strict=True):
            found.arms[arm] = Arm(name, f"{name}-test", name, count, _both(world), settings.tasks)
        found.compared += [(more, less) for less, more in pairwise(arms)]


def _mixture(found: Plan, settings: Settings, worlds: Mapping[str, World]) -> None:
    """The mixture has as many episodes of each world as the model of that world alone."""
    if len({world.env for world in worlds.values()}) < len(worlds):
        raise ConfigError("a mixture is of several environments; two of the worlds are of the same")
    for name, world in worlds.items():
        found.played[name] = _train_episodes(world, settings)
        found.played[f"{name}-test"] = _test_episodes(world, settings)
        found.trained[name] = Trained((name,), settings.training)
    found.trained["mixture"] = Trained(tuple(worlds), settings.training)
    for name, world in worlds.items():
        for arm, model in ((f"{name}-alone", name), (f"{name}-mixed", "mixture")):
            found.arms[arm] = Arm(model, f"{name}-test", name, None, _both(world), settings.tasks)
        found.compared.append((f"{name}-mixed", f"{name}-alone"))


def _coverage(found: Plan, settings: Settings, worlds: Mapping[str, World]) -> None:
    for name, world in worlds.items():
        found.played[f"{name}-test"] = _test_episodes(world, settings, agents=[world.unknown])
        arms = {f"{name}-one-agent": world.players[:1], f"{name}-several-agents": world.players}
        for arm, agents in arms.items():
            found.played[arm] = _train_episodes(world, settings, agents)
            found.trained[arm] = Trained((arm,), settings.training)
            found.arms[arm] = Arm(arm, f"{name}-test", name, None, (world.unknown,), settings.tasks)
        one, several = arms
        found.compared.append((several, one))


def _ood(found: Plan, settings: Settings, worlds: Mapping[str, World]) -> None:
    for name, world in worlds.items():
        if not world.unseen:
            raise ConfigError(f"world {name!r} has no split of what was not seen in training (unseen); take another")
        if not settings.trained:
            found.played[name] = _train_episodes(world, settings)
            found.trained[name] = Trained((name,), settings.training)
        for split in (world.test, *world.unseen):
            arm = f"{name}-{split}"
            found.played[arm] = _test_episodes(world, settings, split)
            found.arms[arm] = Arm(name, arm, name, None, _both(world), settings.tasks, settings.trained)


def _context(found: Plan, settings: Settings, worlds: Mapping[str, World]) -> None:
    for name, world in worlds.items():
        if len(world.contexts) < 2:
            raise ConfigError(f"world {name!r} has no options that tell a world model more or less (contexts)")
        arms = []
        for context, options in world.contexts.items():
            env, arm = world.spec(**options), f"{name}-{context}"
            found.played[arm] = _train_episodes(world, settings)._replace(env=env)
            found.played[f"{arm}-test"] = _test_episodes(world, settings)._replace(env=env)
            found.trained[arm] = Trained((arm,), settings.training)
            found.arms[arm] = Arm(arm, f"{arm}-test", name, None, _both(world), settings.tasks)
            arms.append(arm)
        found.compared += [(arms[0], other) for other in arms[1:]]


KINDS: dict[str, Callable[[Plan, Settings, Mapping[str, World]], None]] = {
    "data": _data, "mixture": _mixture, "coverage": _coverage, "ood": _ood, "context": _context,
}  # fmt: skip
