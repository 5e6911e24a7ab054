"""Whether success in a world model, or in the replay of what was done there, goes with success in reality."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy.stats import binomtest, permutation_test

from worldloom.evaluate.stats import TINY, difference, interval_of_sums, widened

Record = dict[str, Any]
Ends = tuple[bool, bool]  # success in reality, success in the other world
CELLS: tuple[Ends, ...] = ((True, True), (True, False), (False, True), (False, False))
EXACT_UP_TO = 13  # tasks that differ: all 2 ** 13 ways of giving them signs are looked at; of more, as many drawn


def outcome(trajectory: Record) -> str:
    """How a recorded episode ended; "unknown" if nothing says so."""
    if trajectory.get("error"):
        return "error"
    return (trajectory["steps"][-1].get("terminal") if trajectory["steps"] else None) or "unknown"


def wins(records: Iterable[Record], tasks: Sequence[str], names: Sequence[str]) -> list[float]:
    """How many of each task's records are a success in all the named worlds."""
    counts = dict.fromkeys(tasks, 0.0)
    for r in records:
        counts[r["task_id"]] += all(outcome(r[name]) == "success" for name in names)
    return list(counts.values())


def agreement(records: Sequence[Record], name: str) -> Record:
    """How far success in the model (``wm``) or in the replay (``w2r``) agrees with success in reality.

    Returns:
        The 2x2 table (``both``, ``real_only``, ``other_only``, ``neither``); ``difference`` of the two rates of success
        (the other less reality) and Cohen's ``kappa`` (absent where chance alone agrees), both with intervals from
        resampling tasks; and the two-sided test that neither is the more successful, absent where nothing differs:
        ``mcnemar_p`` (exact) of one episode a task, ``sign_flip_p`` (see ``sign_flip``) of several.
    """
    tasks = sorted({r["task_id"] for r in records})
    pairs = [(r["task_id"], (outcome(r["real"]) == "success", outcome(r[name]) == "success")) for r in records]
    counts = Counter(pairs)
    table = np.array([[counts[task, cell] for cell in CELLS] for task in tasks])
    both, real_only, other_only, neither = table.sum(0).tolist()
    found: Record = {"both": both, "real_only": real_only, "other_only": other_only, "neither": neither}
    found["difference"] = difference(table[:, [0, 2]].sum(1), table[:, [0, 1]].sum(1), table.sum(1))
    if parted := real_only + other_only:
        if len(tasks) == len(records):
            found["mcnemar_p"] = float(binomtest(real_only, parted).pvalue)
        else:
            found["sign_flip_p"] = sign_flip(table[:, 2] - table[:, 1])
    if (agreed := kappa_of(table)) is not None:
        found["kappa"] = agreed
    return found


def sign_flip(apart: Any, seed: int = 0) -> float:
    """Two-sided p of a permutation test that the sum of differences, one a task, is 0: were there nothing in them, each
    could as well have the other sign (Fisher 1935, "The Design of Experiments", section 21). Exact up to
    ``EXACT_UP_TO`` tasks that differ. Of differences of 1 it is McNemar's exact test."""
    told = apart[apart != 0]
    if len(told) < 2:  # with the other sign it would be as large
        return 1.0
    found = permutation_test(
        (told,), np.sum, permutation_type="samples", vectorized=True, n_resamples=2**EXACT_UP_TO,
        rng=np.random.default_rng(seed),
    )  # fmt: skip
    return float(found.pvalue)


def kappa_of(table: Any) -> Record | None:
    """Cohen's kappa of a table (tasks, ``CELLS``) with an interval over tasks; None where chance alone agrees."""
    return widened(interval_of_sums(_kappa, [table]), len(table), least=-1.0)


def _kappa(cells: Any) -> Any:
    """Cohen (1960), "A coefficient of agreement for nominal scales", from counts (..., 4); NaN where chance is 1."""
    both, real_only, other_only, _ = np.moveaxis(cells / cells.sum(-1, keepdims=True), -1, 0)
    real, other = both + real_only, both + other_only
    by_chance = real * other + (1 - real) * (1 - other)
    apart = real_only + other_only
    return 1 - np.divide(apart, 1 - by_chance, out=np.full(np.shape(apart), np.nan), where=by_chance < 1)


def rank_agreement(records: Sequence[Record]) -> Record:
    """Whether the model ranks agents as reality does: Kendall's tau-b over agents, with their number and an interval
    from resampling tasks (the agents stay the same); absent with fewer than two agents, or where all are alike. Without
    the interval where it would have no width: few agents are in the same order whichever tasks are drawn."""
    agents, tasks = sorted({r["agent"] for r in records}), sorted({r["task_id"] for r in records})
    by_agent = [[r for r in records if r["agent"] == agent] for agent in agents]
    won = {name: np.array([wins(of, tasks, [name]) for of in by_agent]).T for name in ("real", "wm", "w2r")}
    found: Record = {"n_agents": len(agents)}
    for name in ("wm", "w2r") if records else ():
        if (tau := interval_of_sums(tau_b, [won["real"], won[name]])) is not None:
            found[f"kendall_{name}"] = tau if tau["high"] - tau["low"] > TINY else {k: tau[k] for k in ("value", "n")}
    return found


def tau_b(left: Any, right: Any) -> Any:
    """Kendall's tau-b (1945) of two rows of scores (..., k), many rows at once; NaN where a row is all alike."""
    above, below = np.triu_indices(left.shape[-1], 1)
    ours, theirs = (np.sign(scores[..., above] - scores[..., below]) for scores in (left, right))
    scale = np.sqrt((ours**2).sum(-1) * (theirs**2).sum(-1))
    return np.divide((ours * theirs).sum(-1), scale, out=np.full(np.shape(scale), np.nan), where=scale > 0)
