"""Where an imagined episode leaves reality: its actions replayed in the real environment, compared step by step.

The first step at which the two say different things is kept with its cause. Whether an action was refused is what the
real environment says, or, of older files, what it had listed as admissible; how a refusal sounds is learnt from those.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
from scipy.stats import CensoredData, ecdf

from worldloom.evaluate.agreement import outcome
from worldloom.evaluate.lenient import masked, unordered
from worldloom.evaluate.stats import CONFIDENCE, RESAMPLES, rate, widened

Record = dict[str, Any]
THING = re.compile(r"\ban? ([\w-]+(?: \d+)?)")
ENDS = ("success", "failure")
CAUSES = (
    "illegal_accepted", "legal_refused", "premature_success", "missed_success", "missed_failure", "invented_failure",
    "wrong_counter", "wording_only", "invented_object", "missing_object", "wrong_state",
)  # fmt: skip
AS_IMAGINED, NOTHING, BROKE = "as_imagined", "nothing_to_replay", "replay_broke"  # of failures that never part
UNKNOWN = "not_recorded"  # of one whose real answers are known only to some step


def divergence(imagined: Record, real: Record, refusals: Collection[str]) -> Record | None:
    """The first step at which a replay says something else than was imagined, and why; None if it never does, as far as
    the real answers are known.

    Args:
        imagined, real: trajectories as records; the same actions.
        refusals: what the real environment says to impossible actions; see ``refusals_of``.

    Returns:
        ``step`` (from 1), ``action``, ``cause`` (one of ``CAUSES``), ``imagined`` and ``real``.
    """
    admissible = None
    for number, (ours, theirs) in enumerate(compared(imagined, real), 1):
        if _same(ours, theirs):
            admissible = theirs.get("admissible_actions")
            continue
        cause = _cause(ours, theirs, admissible, refusals)
        return {
            "step": number, "action": theirs["action"], "cause": cause,
            "imagined": ours["observation"], "real": theirs["observation"],
        }  # fmt: skip
    return None


def told(imagined: Record) -> list[Record]:
    """The steps of an imagined episode that say what follows: not one at which the world model broke off."""
    return [step for step in imagined["steps"] if not step.get("reason")]


def compared(imagined: Record, real: Record) -> list[tuple[Record, Record]]:
    """The steps of both that can be compared: as many as both have, and none from the first one on whose real answer is
    not recorded."""
    pairs = zip(told(imagined), real["steps"], strict=False)
    return list(takewhile(lambda pair: not pair[1].get("not_recorded"), pairs))


def agrees(imagined: Record, real: Record) -> bool | None:
    """Whether a replay says what was imagined to its end; None if it does so up to an answer that is not recorded."""
    pairs = compared(imagined, real)
    if not all(_same(*pair) for pair in pairs):
        return False
    return True if len(pairs) == min(len(told(imagined)), len(real["steps"])) else None


def _same(ours: Record, theirs: Record) -> bool:
    return ours["observation"].strip() == theirs["observation"].strip() and _end(ours) == _end(theirs)


def _end(step: Record) -> str | None:
    terminal = step.get("terminal")
    return terminal if terminal in ENDS else None


def _cause(ours: Record, theirs: Record, admissible: Sequence[str] | None, refusals: Collection[str]) -> str:
    said, heard = _words(ours), _words(theirs)
    refused = _refused(theirs, admissible)
    if refused is None:
        refused = heard in refusals
    refusal = said in refusals or (refused and said == heard)
    if refused != refusal:
        return "illegal_accepted" if refused else "legal_refused"
    if _end(ours) != _end(theirs):
        return _wrong_end(_end(ours), _end(theirs))
    return "wrong_counter" if said == heard else _wrong_text(ours["observation"], theirs["observation"])


def _words(step: Record) -> str:
    """What a step says, its counters set aside."""
    return masked(step["observation"].strip())


def _refused(step: Record, admissible: Sequence[str] | None) -> bool | None:
    """Whether the real environment refused an action: it says so, or had not listed it; None if neither is known."""
    refused: bool | None = step.get("refused")
    return step["action"] not in admissible if refused is None and admissible is not None else refused


def _wrong_end(ours: str | None, theirs: str | None) -> str:
    if ours == "success":
        return "premature_success"
    if theirs == "success":
        return "missed_success"
    return "missed_failure" if theirs == "failure" else "invented_failure"


def _wrong_text(ours: str, theirs: str) -> str:
    if unordered(ours.lower()) == unordered(theirs.lower()):
        return "wording_only"
    mine, real = Counter(THING.findall(ours)), Counter(THING.findall(theirs))
    invented, missing = mine - real, real - mine
    if invented and not missing:
        return "invented_object"
    if missing and not invented:
        return "missing_object"
    return "wrong_state"


def refusals_of(trajectories: Iterable[Record]) -> set[str]:
    """What the real environment says only to actions that it refuses, counters set aside.

    A reply that shows once more what was seen before, as a page, has no words of its own and is none of them.
    """
    refusals: set[str] = set()
    others: set[str] = set()
    for trajectory in trajectories:
        seen, admissible = masked(trajectory.get("initial_observation", "").strip()), None
        for step in trajectory["steps"]:
            said, refused = _words(step), _refused(step, admissible)
            if refused is False or (refused and said != seen):
                (refusals if refused else others).add(said)
            seen, admissible = said, step.get("admissible_actions")
    return refusals - others


def divergence_metrics(records: Sequence[Record]) -> Record:
    """How long replays agree with what was imagined, and why they part.

    Args:
        records: of kind ``consistency``; those whose replay broke or had no step are left out, and counted.

    Returns:
        ``n``; ``not_recorded``, how many of these agree up to a step whose real answer is not recorded, so that nobody
        knows more; ``never`` (of the others, the share that agrees to the end), ``survival`` (see ``survival``),
        ``causes`` (first divergences by cause), and ``failed``: of all records, how many replays did not succeed
        (``n``), in how many of these the model had told a success (``promised``), and their ``causes``, which add up
        to them (see ``why_failed``).
    """
    refusals = refusals_of(r[kind] for r in records for kind in ("real", "w2r"))
    usable = [r for r in records if r["w2r"]["steps"] and not r["w2r"].get("error")]
    found = [divergence(r["wm"], r["w2r"], refusals) for r in usable]
    agreed = [agrees(r["wm"], r["w2r"]) for r in usable]
    known = [each for each in agreed if each is not None]
    lengths = [d["step"] if d else len(compared(r["wm"], r["w2r"])) for d, r in zip(found, usable, strict=True)]
    return {
        "n": len(usable),
        "left_out": len(records) - len(usable),
        "not_recorded": len(agreed) - len(known),
        "never": rate(known, [1] * len(known)),
        "survival": survival([r["task_id"] for r in usable], lengths, [d is not None for d in found]),
        "causes": dict(Counter(d["cause"] for d in found if d).most_common()),
        "failed": _failed(records, refusals),
    }


def _failed(records: Sequence[Record], refusals: Collection[str]) -> Record:
    failed = [r for r in records if outcome(r["w2r"]) != "success"]
    causes = Counter(why_failed(r["wm"], r["w2r"], refusals) for r in failed)
    promised = sum(outcome(r["wm"]) == "success" for r in failed)
    return {"n": len(failed), "promised": promised, "causes": dict(causes.most_common())}


def why_failed(imagined: Record, real: Record, refusals: Collection[str]) -> str:
    """Why a replay did not succeed: the cause of its first divergence, or, where it never parts from what was imagined,
    that this was no success either, that nothing had been imagined, that the replay broke, or that it met a question
    whose answer is not recorded."""
    if parted := divergence(imagined, real, refusals):
        return str(parted["cause"])
    if not told(imagined):
        return NOTHING
    if real.get("error"):
        return BROKE
    return UNKNOWN if agrees(imagined, real) is None else AS_IMAGINED


def survival(tasks: Sequence[str], lengths: Sequence[int], parted: Sequence[bool]) -> list[Record]:
    """The share of episodes that agree through each step, after Kaplan and Meier (1958): an episode that ends while it
    agrees says nothing of the steps that it does not have.

    Args:
        tasks: of each episode.
        lengths: steps of each, up to the one at which it parts.
        parted: whether it does.

    Returns:
        For each ``step`` (from 1) ``n``, how many episodes agreed until then and have it, ``agree``, and its 95 %
        interval ``low`` and ``high``, from resampling tasks.
    """
    if not any(lengths):
        return []
    times, gone = np.asarray(lengths), np.asarray(parted, bool)
    steps = np.arange(1, times.max() + 1)
    agree = ecdf(CensoredData(uncensored=times[gone], right=times[~gone])).sf.evaluate(steps)
    names, row = np.unique(tasks, return_inverse=True)
    present, parting = np.zeros((2, len(names), len(steps)))
    np.add.at(present, row, times[:, None] >= steps)
    np.add.at(parting, row, (times[:, None] == steps) & gone[:, None])
    bounds = zip(*_bounds(present, parting), strict=True)
    seen = (present + parting.cumsum(1) > 0).sum(0)  # tasks of which something is known
    return [
        {"step": int(step), "n": int(n), **_widened(value, low, high, int(rows))}
        for step, n, value, (low, high), rows in zip(steps, present.sum(0), agree, bounds, seen, strict=True)
    ]


def _bounds(present: Any, parting: Any) -> Any:
    """The bounds (2, steps) of the curve, from how many episodes of each task (tasks, steps) are there and part."""
    tasks = len(present)
    often = np.random.default_rng(0).multinomial(tasks, np.full(tasks, 1 / tasks), size=RESAMPLES)
    here, gone = often @ present, often @ parting
    curves = np.cumprod(1 - np.divide(gone, here, out=np.zeros_like(gone), where=here > 0), axis=1)
    tail = 50 * (1 - CONFIDENCE)
    return np.percentile(curves, (tail, 100 - tail), axis=0)


def _widened(value: float, low: float, high: float, rows: int) -> Record:
    found = widened({"value": float(value), "low": float(low), "high": float(high)}, rows) or {}
    return {"agree": found["value"], "low": found["low"], "high": found["high"]}
