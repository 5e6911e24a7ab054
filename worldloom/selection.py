"""Which of the episodes at hand a model learns from: winners only, so many of them, so many of them imagined."""

import random
from collections.abc import Sequence

from worldloom.config import TrainConfig
from worldloom.errors import ConfigError, DataError
from worldloom.naming import IMAGINED
from worldloom.trajectory import Trajectory


def is_imagined(trajectory: Trajectory) -> bool:
    """Whether a world model answered it."""
    return bool(trajectory.imagined) or trajectory.env.name.startswith(IMAGINED)


def select(trajectories: Sequence[Trajectory], config: TrainConfig) -> list[Trajectory]:
    """The episodes that ``config.keep``, ``config.imagined`` and ``config.episodes`` leave, in the order given.

    With a share of imagined ones, there are as many in all as that share allows, or ``episodes``; what is drawn for
    fewer is part of what is drawn for more.

    Raises:
        DataError: none is left.
        ConfigError: there are not as many as asked for.
    """
    kept = [t for t in trajectories if config.keep == "all" or t.outcome == config.keep]
    if not kept:
        raise DataError(f"none of {len(trajectories)} episodes ended in {config.keep}; collect others, or say keep=all")
    if config.imagined is None:
        return kept if config.episodes is None else _in_order(kept, _drawn(kept, config.episodes, "", config.seed))
    real, dreamt = ([t for t in kept if is_imagined(t) == imagined] for imagined in (False, True))
    total = config.episodes or _most(len(real), len(dreamt), config.imagined)
    wanted = round(total * config.imagined)
    return _in_order(
        kept, [*_drawn(real, total - wanted, "real ", config.seed), *_drawn(dreamt, wanted, "imagined ", config.seed)]
    )


def _most(real: int, dreamt: int, share: float) -> int:
    """How many episodes there can be with that share of imagined ones."""
    by_real = real / (1 - share) if share < 1 else float("inf")
    by_dreamt = dreamt / share if share > 0 else float("inf")
    if not (found := int(min(by_real, by_dreamt) + 1e-9)):
        raise ConfigError(f"imagined={share:g} cannot be had of {real} real and {dreamt} imagined episodes")
    return found


def _drawn(pool: Sequence[Trajectory], count: int, kind: str, seed: int) -> list[Trajectory]:
    if count > len(pool):
        raise ConfigError(f"{count} {kind}episodes are asked for, but there are {len(pool)}; collect more")
    return random.Random(f"episodes {seed}").sample(pool, len(pool))[:count]


def _in_order(order: Sequence[Trajectory], chosen: Sequence[Trajectory]) -> list[Trajectory]:
    places = {id(t): place for place, t in enumerate(order)}
    return sorted(chosen, key=lambda t: places[id(t)])
