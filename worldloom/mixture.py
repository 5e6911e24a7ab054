"""One model over several environments: whose episode comes when.

Each environment has its share of the episodes, exactly and at any moment: after n episodes, n times the share, rounded
up or down. The order depends on nothing but weights, sizes and seed, so a run that was stopped goes on in it.
"""

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from torch.utils.data import Sampler

from worldloom.errors import ConfigError, suggest


class Drawn(NamedTuple):
    """An episode: of which environment, and its place among all."""

    env: str
    place: int


class MixedOrder(Sampler[int]):
    """Indices of episodes for the Trainer, which tells it the epoch.

    An epoch is as many episodes as there are. Each environment's episodes come in an order of their own, all of them
    before any comes again, whatever the epoch.

    Args:
        sizes: how many episodes each environment has; they stand behind one another in this order.
        weights: of each, in any unit; None gives each as many as it has.
        seed: of the orders.
    """

    def __init__(self, sizes: Mapping[str, int], weights: Mapping[str, float] | None, seed: int):
        self.sizes, self.seed, self.epoch = dict(sizes), seed, 0
        self.shares = shares({env: (weights or sizes)[env] for env in sizes})

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch is next, from 0."""
        self.epoch = epoch

    def __len__(self) -> int:
        return sum(self.sizes.values())

    def __iter__(self) -> Iterator[int]:
        begin = self.epoch * len(self)
        return (drawn.place for drawn in itertools.islice(self.drawn(), begin, begin + len(self)))

    def drawn(self) -> Iterator[Drawn]:
        """All epochs' episodes, one behind the other, without end."""
        own, start = {}, 0
        for env, size in self.sizes.items():
            own[env], start = passes(start, size, f"{self.seed} {env}"), start + size
        return (Drawn(env, next(own[env])) for env in alternation(self.shares))


def shares(weights: Mapping[str, float]) -> dict[str, Fraction]:
    """Weights as parts of one, decimals taken as they are written."""
    exact = {env: Fraction(str(weight)) for env, weight in weights.items()}
    return {env: weight / sum(exact.values()) for env, weight in exact.items()}


def alternation(parts: Mapping[str, Fraction]) -> Iterator[str]:
    """Names without end, each as often as its part says: after n names, n times its part, rounded up or down.

    It is the quota method of apportionment (Balinski and Young 1975, American Mathematical Monthly 82): of those that
    are not ahead, the one whose next turn is due first.
    """
    taken = dict.fromkeys(parts, 0)
    for place in itertools.count(1):
        behind = [env for env in parts if taken[env] < place * parts[env]]
        chosen = min(behind, key=lambda env: (taken[env] + 1) / parts[env])
        taken[chosen] += 1
        yield chosen


def passes(start: int, size: int, seed: str) -> Iterator[int]:
    """The indices from ``start`` on, ``size`` of them, again and again, each time in another order."""
    for number in itertools.count():
        yield from random.Random(f"{seed} {number}").sample(range(start, start + size), size)


def check_weights(weights: Mapping[str, float] | None, environments: Iterable[str]) -> None:
    """Refuse weights that do not fit the data.

    Raises:
        ConfigError: an environment has no weight, or a weight no environment.
    """
    there = set(environments)
    if unknown := [env for env in weights or {} if env not in there]:
        hint = suggest(unknown[0], there)
        raise ConfigError(f"mixture has a weight for {unknown[0]!r}, of which the data holds no episode{hint}")
    if missing := sorted(there - set(weights or there)):
        raise ConfigError(f"mixture has no weight for {', '.join(missing)}; give one, or leave out that data")
