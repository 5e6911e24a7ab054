"""What rollouts of logged actions say, from their records alone: verdicts, divergence, self-consistency."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from worldloom.evaluate.stats import interval, rate, widened

Record = dict[str, Any]
VERDICTS = ("success", "failure", "none")
UNSAYABLE = "unsayable"  # why an episode was not played: the text protocol cannot say it


def rollout_metrics(records: Sequence[Record]) -> Record:
    """The ``rollouts`` part of ``metrics.json``; what cannot be measured is absent.

    Returns:
        ``n_episodes`` and ``n_steps`` (of the logs, as far as their answers are known); ``em`` and ``word_f1`` of the
        observations (a step that the model's world did not reach, as it had ended, says nothing and counts as wrong);
        ``by_step`` with both and ``agree``, the share of episodes in which all was the same up to there; ``verdicts``
        (see ``verdict_metrics``); ``ended_early``: the share of episodes that the model ended before the log's last
        step; ``outgrew_window``: how many its window did not hold to their end; ``self_consistency``. Episodes of which
        the text protocol cannot say all are in none of these, but counted in ``left_out``.
    """
    left_out = sum(record.get("reason") == UNSAYABLE for record in records)
    records = [record for record in records if record.get("reason") != UNSAYABLE]
    steps = [list(_all_steps(record)) for record in records]
    found = {
        "n_episodes": len(records),
        "n_steps": sum(map(len, steps)),
        "left_out": left_out or None,
        "em": _mean(steps, "same"),
        "word_f1": _mean(steps, "word_f1"),
        "verdicts": verdict_metrics(records),
        "ended_early": rate([_early(r) for r in records], [1] * len(records)),
        "outgrew_window": sum(r.get("reason") == "window" for r in records),
        "by_step": list(_by_step(steps)),
        "self_consistency": self_consistency(records),
    }
    return {name: value for name, value in found.items() if value is not None}


def _all_steps(record: Record) -> Iterator[Record]:
    """The steps of the log: as they were told, and empty ones after the model's world had ended."""
    told = {step["index"]: step for step in record["steps"]}
    for index in range(1, record["of"] + 1):
        step = told.get(index, {"index": index, "same": False, "word_f1": 0.0})
        if "same" in step and index not in record.get("unknown", ()):
            yield step


def _early(record: Record) -> bool:
    return record["verdict"] is not None and len(record["steps"]) < record["of"]


def _mean(steps: Sequence[Sequence[Record]], name: str) -> Record | None:
    return rate([sum(float(s[name]) for s in episode) for episode in steps], [len(episode) for episode in steps])


def _by_step(steps: Sequence[Sequence[Record]]) -> Iterator[Record]:
    for index in range(1, max((s["index"] for episode in steps for s in episode), default=0) + 1):
        upto = [episode for episode in steps if any(s["index"] == index for s in episode)]
        here = [[s for s in episode if s["index"] == index] for episode in upto]
        agreeing = [all(s["same"] for s in episode if s["index"] <= index) for episode in upto]
        if here:
            yield {
                "step": index, "n": len(here), "em": _mean(here, "same"), "word_f1": _mean(here, "word_f1"),
                "agree": rate(agreeing, [1] * len(agreeing)),
            }  # fmt: skip


def verdict_metrics(records: Sequence[Record]) -> Record | None:
    """Whether the model ends episodes as their logs do; of those whose log says success or failure.

    A rollout that comes to no end has the verdict ``none``.

    Returns:
        ``n``; ``table``: logged end -> verdict -> episodes; ``accuracy``; ``always``: what saying the commonest end
        every time would get; of ``success`` and ``failure`` each ``precision`` and ``recall``; Cohen's ``kappa`` (Cohen
        1960) over the three verdicts. None if no log says how its episode ended.
    """
    pairs = [(r["logged"], r["verdict"] or "none") for r in records if r["logged"]]
    if not pairs:
        return None
    one = [1] * len(pairs)
    counts = Counter(pairs)
    commonest = Counter(logged for logged, _ in pairs).most_common(1)[0][0]
    found = {
        "n": len(pairs),
        "table": {end: {v: counts[end, v] for v in VERDICTS} for end in VERDICTS[:2]},
        "accuracy": rate([logged == verdict for logged, verdict in pairs], one),
        "always": {"verdict": commonest, "accuracy": rate([logged == commonest for logged, _ in pairs], one)},
        **{end: _of_end(pairs, end) for end in VERDICTS[:2]},
        "kappa": _kappa(pairs),
    }
    return {name: value for name, value in found.items() if value not in (None, {})}


def _of_end(pairs: Sequence[tuple[str, str]], end: str) -> Record:
    hits = [logged == verdict == end for logged, verdict in pairs]
    rates = {
        "precision": rate(hits, [verdict == end for _, verdict in pairs]),
        "recall": rate(hits, [logged == end for logged, _ in pairs]),
    }
    return {name: value for name, value in rates.items() if value is not None}


def _kappa(pairs: Sequence[tuple[str, str]]) -> Record | None:
    columns = [[float(pair[side] == end) for pair in pairs] for end in VERDICTS for side in (0, 1)]
    return widened(interval(kappa, columns), len(pairs), least=-1.0)


def kappa(*columns: Any, axis: int = -1) -> Any:
    """Cohen's kappa of two raters: for each verdict two columns of 0 and 1. NaN where chance alone agrees."""
    ours, theirs = columns[::2], columns[1::2]
    agree = sum(np.mean(a * b, axis=axis) for a, b in zip(ours, theirs, strict=True))
    chance = sum(np.mean(a, axis=axis) * np.mean(b, axis=axis) for a, b in zip(ours, theirs, strict=True))
    return np.divide(agree - chance, 1 - chance, out=np.full(np.shape(agree), np.nan), where=chance < 1 - 1e-12)


def self_consistency(records: Sequence[Record]) -> Record | None:
    """Whether the model answers the same action alike: ``asked_again``, asked twice in a row; ``repeated``, at a later
    step of the same episode, beside ``logged``, how often the logs did so at the same steps."""
    played = [record["steps"] for record in records]
    found = {
        "asked_again": _share(played, "asked_again", float),
        "repeated": _share(played, "repeated", lambda pair: float(pair["alike"])),
        "logged": _share(played, "repeated", lambda pair: float(pair["logged"])),
    }
    return {name: value for name, value in found.items() if value is not None} or None


def _share(played: Sequence[Sequence[Record]], name: str, value: Callable[[Any], float]) -> Record | None:
    """A rate over the steps that have a field, with ``steps``, how many these are."""
    chosen = [[value(s[name]) for s in steps if name in s] for steps in played]
    rated = rate([sum(values) for values in chosen], [len(values) for values in chosen])
    return {**rated, "steps": sum(map(len, chosen))} if rated else None
