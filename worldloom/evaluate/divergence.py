"""Where an imagined episode leaves reality: its actions replayed in the real environment, compared step by step.

The first step at which the two say different things is kept with its cause. What counts as a refusal is learnt from the
real episodes: a reply that the environment gave to an action it had not listed as admissible.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Any

from worldloom.evaluate.agreement import outcome
from worldloom.evaluate.lenient import unordered
from worldloom.evaluate.stats import rate

Record = dict[str, Any]
THING = re.compile(r"\ban? ([\w-]+(?: \d+)?)")
ENDS = ("success", "failure")
CAUSES = (
    "parser", "illegal_accepted", "legal_refused", "premature_success", "missed_success", "missed_failure",
    "invented_failure", "wording_only", "invented_object", "missing_object", "wrong_state",
)  # fmt: skip
AS_IMAGINED, NOTHING, BROKE = "as_imagined", "nothing_to_replay", "replay_broke"  # of failures that never part


def divergence(imagined: Record, real: Record, refusals: Collection[str]) -> Record | None:
    """The first step at which a replay says something else than was imagined, and why; None if it never does.

    Args:
        imagined, real: trajectories as records; the same actions.
        refusals: what the real environment says to impossible actions.

    Returns:
        ``step`` (from 1), ``action``, ``cause`` (one of ``CAUSES``), ``imagined`` and ``real``.
    """
    admissible = None
    for number, (ours, theirs) in enumerate(zip(told(imagined), real["steps"], strict=False), 1):
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


def _same(ours: Record, theirs: Record) -> bool:
    return ours["observation"].strip() == theirs["observation"].strip() and _end(ours) == _end(theirs)


def _end(step: Record) -> str | None:
    terminal = step.get("terminal")
    return terminal if terminal in ENDS else None


def _cause(ours: Record, theirs: Record, admissible: Sequence[str] | None, refusals: Collection[str]) -> str:
    if ours["action"] != theirs["action"]:
        return "parser"
    refused = theirs["observation"] in refusals
    if admissible is not None:
        refused = refused or theirs["action"] not in admissible
    refusal = ours["observation"] in refusals
    if refused != refusal:
        return "illegal_accepted" if refused else "legal_refused"
    if _end(ours) != _end(theirs):
        return _wrong_end(_end(ours), _end(theirs))
    return _wrong_text(ours["observation"], theirs["observation"])


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
    """What the real environment answered to actions that it had not listed."""
    found: set[str] = set()
    for trajectory in trajectories:
        steps = trajectory["steps"]
        for before, step in pairwise(steps):
            listed = before.get("admissible_actions")
            if listed is not None and step["action"] not in listed:
                found.add(step["observation"])
    return found


def divergence_metrics(records: Sequence[Record]) -> Record:
    """How long replays agree with what was imagined, and why they part.

    Args:
        records: of kind ``consistency``; those whose replay broke or had no step are left out, and counted.

    Returns:
        ``n``, ``never`` (share of episodes that agree to their end), ``survival`` (share that agrees through each step,
        of those that have as many), ``causes`` (first divergences by cause), and ``failed``: of all records, how many
        replays did not succeed (``n``), in how many of these the model had told a success (``promised``), and their
        ``causes``, which add up to them (see ``why_failed``).
    """
    refusals = refusals_of(r[kind] for r in records for kind in ("real", "w2r"))
    usable = [r for r in records if r["w2r"]["steps"] and not r["w2r"].get("error")]
    found = [divergence(r["wm"], r["w2r"], refusals) for r in usable]
    lengths = [min(len(told(r["wm"])), len(r["w2r"]["steps"])) for r in usable]
    firsts = [d["step"] if d else None for d in found]
    return {
        "n": len(usable),
        "left_out": len(records) - len(usable),
        "never": rate([d is None for d in found], [1] * len(found)),
        "survival": [_survival(step, firsts, lengths) for step in range(1, max(lengths, default=0) + 1)],
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
    that this was no success either, that nothing had been imagined, or that the replay broke."""
    if parted := divergence(imagined, real, refusals):
        return str(parted["cause"])
    if not told(imagined):
        return NOTHING
    return BROKE if real.get("error") else AS_IMAGINED


def _survival(step: int, firsts: Sequence[int | None], lengths: Sequence[int]) -> Record:
    """Of the episodes that last this long or have parted before, the share that has not parted."""
    parted = sum(first is not None and first <= step for first in firsts)
    agree = sum(
        length >= step and (first is None or first > step) for first, length in zip(firsts, lengths, strict=True)
    )
    return {"step": step, "n": agree + parted, "agree": agree / (agree + parted)}
