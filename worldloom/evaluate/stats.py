"""Rates with their intervals: bootstrap over episodes or tasks, never over steps.

Where all rows are alike, resampling them gives no width, however few they are. There the bounds are what the rate
would be if as many rows as may be unseen were otherwise: after Clopper and Pearson (1934) for that many rows of which
none is otherwise, the "rule of three" of Hanley and Lippman-Hand (1983, "If nothing goes wrong, is everything all
right?"). A quotient needs more than that, see ``quotient``.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from scipy.stats import DegenerateDataWarning, binomtest, bootstrap

RESAMPLES = 2000
CONFIDENCE = 0.95
TINY = 1e-9  # a width that is none but for rounding


def interval(
    statistic: Callable[..., Any], columns: Sequence[Sequence[float]], seed: int = 0
) -> dict[str, float] | None:
    """A statistic of paired columns (one row an episode or task) with its 95 % percentile-bootstrap interval.

    Args:
        statistic: takes the columns as arrays of shape (..., n) and an ``axis``, and gives shape (...).
        columns: as many as ``statistic`` takes, each of length n.

    Returns:
        {"value", "low", "high", "n"}; None if there is nothing to measure. With one row, or where every resample
        gives the same, low and high are the value: see ``rate`` for what is known all the same.
    """
    data = [np.asarray(column, dtype=float) for column in columns]
    n = len(data[0])
    value = float(statistic(*data, axis=-1)) if n else float("nan")
    if np.isnan(value):
        return None
    low = high = value
    if n > 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DegenerateDataWarning)  # no width is an answer, too
            found = bootstrap(
                data, statistic, paired=True, vectorized=True, n_resamples=RESAMPLES, confidence_level=CONFIDENCE,
                method="percentile", rng=np.random.default_rng(seed),
            ).bootstrap_distribution  # fmt: skip
        tail = 50 * (1 - CONFIDENCE)
        low, high = (float(np.nanpercentile(found, q)) for q in (tail, 100 - tail))
    return {"value": value, "low": low, "high": high, "n": n}


def interval_of_sums(statistic: Callable[..., Any], tables: Sequence[Any], seed: int = 0) -> dict[str, float] | None:
    """Like ``interval``, for a statistic of sums over rows: cheap however many numbers belong to a row.

    Args:
        statistic: takes the sums of each table, arrays of shape (..., k), and gives shape (...).
        tables: each of shape (n, k), one row an episode or task.
    """
    n = len(tables[0])
    value = float(statistic(*(table.sum(0) for table in tables))) if n else float("nan")
    if np.isnan(value):
        return None
    draw = np.random.default_rng(seed)
    found: list[float] = []
    while len(found) < RESAMPLES:  # some at a time, which keeps the memory small
        often = draw.multinomial(n, np.full(n, 1 / n), size=RESAMPLES // 10)  # how often each row was drawn
        found += statistic(*(often @ table for table in tables)).tolist()
    tail = 50 * (1 - CONFIDENCE)
    low, high = (float(np.nanpercentile(found, q)) for q in (tail, 100 - tail))
    return {"value": value, "low": low, "high": high, "n": n}


def ratio(numerator: Any, denominator: Any, axis: int = -1) -> Any:
    """Sum over sum; NaN where the denominator is 0. For rates over steps, resampled by episode."""
    top, bottom = np.sum(numerator, axis=axis), np.sum(denominator, axis=axis)
    return np.divide(top, bottom, out=np.full(np.shape(top), np.nan), where=bottom != 0)


def rate(hits: Sequence[float], totals: Sequence[float]) -> dict[str, float] | None:
    """A rate over steps with an interval over episodes.

    Args:
        hits, totals: of each row (an episode or task), counts with 0 <= hits <= totals.

    Returns:
        {"value", "low", "high", "n"}: n rows have any of the denominator; and "of", the denominator, where that is
        another number than n. None if there is nothing to measure.
    """
    rows = sum(total > 0 for total in totals)
    found = widened(interval(ratio, [hits, totals]), rows)
    return found and found | _sizes(rows, sum(totals))


def _sizes(rows: int, of: float) -> dict[str, float]:
    return {"n": rows} if of == rows else {"n": rows, "of": int(of)}


def widened(
    found: dict[str, float] | None, rows: int, least: float = 0.0, most: float = 1.0
) -> dict[str, float] | None:
    """An interval without width, of so many rows that are all alike, as wide as if those ``unseen`` were at the bounds
    of what can be; any other one as it is."""
    if found is None or found["high"] - found["low"] > TINY:
        return found
    value, share = found["value"], unseen(rows)
    return found | {"low": value - share * (value - least), "high": value + share * (most - value)}


@cache
def unseen(rows: int) -> float:
    """The largest share of rows that may be otherwise though none of so many was: 1 - 0.025 ** (1 / rows)."""
    return float(binomtest(0, rows).proportion_ci(CONFIDENCE, method="exact").high)


def difference(left: Sequence[float], right: Sequence[float], totals: Sequence[float]) -> dict[str, float] | None:
    """A rate less another one of the same rows (paired: the same episodes or tasks), with an interval over them."""
    found = interval(lambda a, b, n, axis: ratio(a, n, axis) - ratio(b, n, axis), [left, right, totals])
    return widened(found, sum(total > 0 for total in totals), least=-1.0)


def quotient(
    top: Sequence[float], bottom: Sequence[float], most: Sequence[float] | None = None, seed: int = 0
) -> dict[str, float] | None:
    """A quotient of two counts of the same rows (W2R / Real) with a 95 % interval from a Bayesian bootstrap.

    Rows get weights drawn from a Dirichlet distribution (Rubin 1981, "The Bayesian bootstrap"), and so does half a row
    of each kind that there can be beside them: else low would stay at 1 where no row was lost, however few there are.
    Where each row is one episode, that is Jeffreys' prior for the shares of the kinds (Brown, Cai and DasGupta 2001,
    "Interval estimation for a binomial proportion"). ``docs/evaluate.md`` says how often the interval holds the truth.

    Args:
        top, bottom: counts of each row.
        most: how many there are of each row; None if the top ones are some of the bottom ones (paired CR).

    Returns:
        As ``rate``: n rows that could have any of it, "of" the sum of ``bottom``. None if that is 0.
    """
    above, below = np.asarray(top, float), np.asarray(bottom, float)
    if not below.sum():
        return None
    value, sizes = float(above.sum() / below.sum()), below if most is None else np.asarray(most, float)
    more = _imagined(above, below, sizes)[: 2 if most is None else 3]
    weights = np.random.default_rng(seed).dirichlet([1.0] * len(above) + [0.5] * len(more), RESAMPLES)
    found = (weights @ np.append(above, more[:, 0])) / (weights @ np.append(below, more[:, 1]))
    tail = 50 * (1 - CONFIDENCE)
    low, high = (float(each) for each in np.percentile(found, (tail, 100 - tail)))
    told = {"value": value, "low": min(low, value), "high": max(high, value)}
    return told | _sizes(int((sizes > 0).sum()), float(below.sum()))


def _imagined(top: Any, bottom: Any, sizes: Any) -> Any:
    """A row (top, bottom) of each kind that tells something of a quotient: with both, the bottom alone, the top alone.

    As large as rows differ on average where they do, which is much where agents fail on the same tasks; where none
    differs, as large as rows are.
    """
    apart = np.abs(top - bottom)
    known = apart if apart.any() else sizes
    return known[known > 0].mean() * np.array([(1, 1), (0, 1), (1, 0)])


def word_f1(predicted: str, gold: str) -> float:
    """F1 of the words (split at white space, with multiplicity) of two texts; 1 if both are empty."""
    from collections import Counter

    left, right = Counter(predicted.split()), Counter(gold.split())
    if not left and not right:
        return 1.0
    return 2 * (left & right).total() / (left.total() + right.total())
