"""The threshold below which an action is held back, chosen on episodes that were kept for it."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from worldloom.errors import ConfigError
from worldloom.evaluate.confidence import Steps, auroc


class Judged(NamedTuple):
    """One action: the chance of success that the model foresaw, whether it was right, and whose episode it is of."""

    chance: float
    right: bool
    episode: str = ""


def by_gain(judged: Sequence[Judged]) -> float:
    """The threshold with the largest expected gain.

    An action that is held back is followed by another try, which is reckoned to be right as often as these actions are
    on the whole (q). So holding back gains q for each wrong action and q - 1 for each right one. Of thresholds that
    gain the same the lowest is taken; 0 (nothing is held back) if none gains.

    Raises:
        ConfigError: there is nothing to choose by.
    """
    _check(judged)
    q = sum(each.right for each in judged) / len(judged)
    best, most, gain = 0.0, 0.0, 0.0
    ordered = sorted(judged)
    for here, after in zip(ordered, [*ordered[1:], None], strict=True):
        gain += q - here.right
        above = math.nextafter(here.chance, math.inf) if after is None else (here.chance + after.chance) / 2
        if (after is None or after.chance > here.chance) and gain > most + 1e-12:
            best, most = max(above, math.nextafter(here.chance, math.inf)), gain
    return best


def by_refusals(judged: Sequence[Judged], most: float) -> float:
    """The highest threshold that holds back a right action with a probability of at most ``most``.

    That of split conformal prediction (Angelopoulos and Bates 2021, arXiv 2107.07511, section 1): with n right actions,
    the k-th lowest of their chances for k = floor(most (n + 1)); it holds where new actions are exchangeable with
    these. 0 (nothing is held back) where they are too few to promise it.

    Raises:
        ConfigError: there is nothing to choose by, or ``most`` is no share.
    """
    _check(judged)
    if not 0 < most < 1:
        raise ConfigError(f"the share of right actions held back is {most}; it must be between 0 and 1")
    right = sorted(each.chance for each in judged if each.right)
    place = math.floor(most * (len(right) + 1))
    return right[place - 1] if place else 0.0


def _check(judged: Sequence[Judged]) -> None:
    if not judged:
        raise ConfigError(
            "no action of the declared kinds was judged, so no threshold can be chosen; give one, or more"
        )


def described(judged: Sequence[Judged], threshold: float) -> dict[str, Any]:
    """What is known of a threshold: how many actions it was chosen on, how many of them it would hold back, rightly and
    wrongly, and how well the chances tell right from wrong (AUROC, over episodes; absent if all are alike)."""
    held = [each for each in judged if each.chance < threshold]
    found = {
        "threshold": threshold,
        "n": len(judged),
        "right": sum(each.right for each in judged),
        "refusals": {"right": sum(not each.right for each in held), "wrong": sum(each.right for each in held)},
    }
    area = discrimination(judged)
    return found | ({"auroc": area} if area else {})


def discrimination(judged: Sequence[Judged]) -> dict[str, float] | None:
    """The chance that a wrong action is given a lower chance of success than a right one."""
    if not judged:
        return None
    groups = {name: n for n, name in enumerate(dict.fromkeys(each.episode for each in judged))}
    columns = ([groups[each.episode] for each in judged], [each.chance for each in judged], [e.right for e in judged])
    return auroc(Steps(*(np.array(column) for column in columns)))
