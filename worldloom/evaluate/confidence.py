"""Whether a world model knows when it is wrong, told by the probabilities of what it says.

A step's confidence is the probability of the whole answer (``worldloom.lm.base.Confidence``). Measured: how well it
tells wrong steps from right ones, and rollouts that reality will not repeat from others (area under the ROC curve,
AUROC); whether answers given a probability of 0.9 are right nine times in ten (calibration); and a threshold above
which at most a stated share of steps is wrong (Angelopoulos et al. 2022, "Learn then test", arXiv 2110.01052).
"""

import math
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from worldloom.evaluate.divergence import agrees
from worldloom.evaluate.stats import interval_of_sums, rate, unseen

Record = dict[str, Any]
Feature = Callable[[Mapping[str, Any]], float]  # of a step's confidence as its record has it
TARGET, LEVEL = 0.05, 0.9  # share of accepted steps that may be wrong; how surely no more are
BINS = 10  # of equal width (Guo et al. 2017, "On Calibration of Modern Neural Networks", section 2)
THRESHOLDS, STARTS = 20, 4  # tried; places from which the tests of them begin
FOLDS = 5


class Steps(NamedTuple):
    """Answers in one row, each (n,): which group (a task) it is of, its score, and whether it was right."""

    group: Any
    score: Any
    right: Any

    def of(self, chosen: Any) -> "Steps":
        """Some of them."""
        return Steps(self.group[chosen], self.score[chosen], self.right[chosen])


def probability(confidence: Mapping[str, Any]) -> float:
    """Of a whole answer, as its record has it."""
    return math.exp(min(confidence["logprob"], 0.0))


FEATURES: dict[str, Feature] = {
    "probability": probability,
    "mean_logprob": lambda confidence: confidence["logprob"] / confidence["tokens"],
    "lowest_logprob": lambda confidence: confidence["lowest"],
    "agreement": lambda confidence: float(confidence["agrees"]),
}


def confidence_metrics(
    one_step: Sequence[Record], consistency: Sequence[Record] = (), target: float = TARGET
) -> Record | None:
    """The ``confidence`` part of ``metrics.json``; None where no record says how sure the model was.

    Args:
        one_step, consistency: records of these kinds; those without a confidence are passed over. Several episodes of
            one task, such as those of several agents, stay together: in intervals, folds and halves.
        target: the share of accepted steps that may be wrong.
    """
    found: Record = {}
    episodes = [[s for s in r["steps"] if "confidence" in s] for r in one_step]
    if any(episodes):
        tasks = _by_task(one_step, episodes)
        steps = _steps(tasks, probability)
        found |= {
            "n_episodes": sum(map(bool, episodes)),
            "n_steps": len(steps.score),
            "auroc_wrong_step": auroc(steps),
            "features": _features(tasks),
            "ece": expected_calibration_error(steps),
            "calibration": calibration_curve(steps),
            "risk_bound": risk_bound(steps, target),
        }
    if rollouts := _rollouts(consistency):
        found["auroc_rollout"] = auroc(rollouts)
    return {name: value for name, value in found.items() if value is not None} or None


def _by_task(records: Sequence[Record], episodes: Sequence[Sequence[Record]]) -> list[list[Record]]:
    """The steps of each task's episodes together."""
    found: dict[str, list[Record]] = {}
    for record, steps in zip(records, episodes, strict=True):
        found.setdefault(record["task_id"], []).extend(steps)
    return list(found.values())


def _steps(tasks: Sequence[Sequence[Record]], score: Feature) -> Steps:
    rows = [(n, score(s["confidence"]), bool(s["correct"])) for n, steps in enumerate(tasks) for s in steps]
    group, scores, right = zip(*rows, strict=True)
    return Steps(np.array(group), np.array(scores, float), np.array(right))


def auroc(steps: Steps) -> Record | None:
    """The chance that a wrong answer has a lower score than a right one (half a point where they are equal), with an
    interval over groups; None where all are right, or all wrong.

    Where all pairs are in order (or none), the other bound is that of as many pairs as there are independent ones: a
    wrong answer of one group and a right one of another (Birnbaum 1956, for the chance that X < Y).
    """
    _, place = np.unique(steps.score, return_inverse=True)
    found = interval_of_sums(_area, [_table(steps.group, place, chosen) for chosen in (~steps.right, steps.right)])
    if found is None or 0 < found["value"] < 1:
        return found
    pairs = min(np.unique(steps.group[chosen]).size for chosen in (steps.right, ~steps.right))
    return found | ({"low": 1 - unseen(pairs)} if found["value"] == 1 else {"high": unseen(pairs)})


def _area(wrong: Any, right: Any) -> Any:
    """From counts by score, (..., scores) in rising order."""
    above = right.sum(-1, keepdims=True) - right.cumsum(-1) + right / 2
    pairs = wrong.sum(-1) * right.sum(-1)
    return np.divide((wrong * above).sum(-1), pairs, out=np.full(np.shape(pairs), np.nan), where=pairs > 0)


def _table(group: Any, place: Any, weight: Any) -> Any:
    """Sums of weights, (groups, places)."""
    _, row = np.unique(group, return_inverse=True)
    table = np.zeros((row.max() + 1, place.max() + 1))
    np.add.at(table, (row, place), weight)
    return table


def _features(tasks: Sequence[Sequence[Record]]) -> Record:
    """AUROC of a wrong step by each feature alone, and by all of them in a logistic regression fitted to other tasks:
    whether the self-check (agreement with logged replies) adds anything."""
    told = [s["confidence"] for steps in tasks for s in steps]
    known = {name: of for name, of in FEATURES.items() if name != "agreement" or all("agrees" in c for c in told)}
    found = {name: auroc(_steps(tasks, of)) for name, of in known.items()}
    values = np.array([[of(c) for of in known.values()] for c in told])
    steps = _steps(tasks, probability)
    if (combined := _fitted(values, steps)) is not None:
        found["all"] = auroc(steps._replace(score=combined))
    return {name: value for name, value in found.items() if value is not None}


def _fitted(values: Any, steps: Steps) -> Any:
    """The chance that each step is right, by a regression that did not see its task; None with too few tasks."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    both = [np.unique(steps.group[chosen]).size for chosen in (steps.right, ~steps.right)]
    if min(both) < 2 * FOLDS:
        return None
    model = make_pipeline(StandardScaler(), LogisticRegression())
    folds = GroupKFold(FOLDS, shuffle=True, random_state=0)
    return cross_val_predict(model, values, steps.right, groups=steps.group, cv=folds, method="predict_proba")[:, 1]


def expected_calibration_error(steps: Steps) -> Record | None:
    """How far probabilities are from the shares that are right: the mean over bins, weighted by size, of the difference
    between the two (Guo et al. 2017, equation 3), with an interval over groups."""
    place = _bin(steps.score)
    tables = [_table(steps.group, place, weight) for weight in (steps.right, steps.score, np.ones(len(place)))]
    return interval_of_sums(lambda right, score, n: np.abs(right - score).sum(-1) / n.sum(-1), tables)


def calibration_curve(steps: Steps) -> list[Record]:
    """For each bin of probabilities that is not empty: its bounds, mean probability, and the share that is right."""
    place, rows = _bin(steps.score), []
    for number in range(BINS):
        if n := int((place == number).sum()):
            chosen = steps.of(place == number)
            rows.append({"low": number / BINS, "high": (number + 1) / BINS, "n": n,
                         "probability": float(chosen.score.mean()), "right": share(chosen)})  # fmt: skip
    return rows


def _bin(score: Any) -> Any:
    return np.minimum((score * BINS).astype(int), BINS - 1)


def share(steps: Steps) -> Record | None:
    """The share that is right, with an interval over groups."""
    groups = np.unique(steps.group)
    chosen = [steps.right[steps.group == group] for group in groups]
    return rate([float(right.sum()) for right in chosen], [len(right) for right in chosen])


def risk_bound(steps: Steps, target: float = TARGET, level: float = LEVEL, seed: int = 0) -> Record:
    """A threshold such that at most ``target`` of the answers at or above it are wrong, and what became of that.

    The threshold is chosen on one half of the groups (tasks), drawn by ``seed``, and checked on the other. It holds
    with probability ``level`` where steps are exchangeable; within a task they are alike, so that the check, whose
    interval is over tasks, is what counts.

    Returns:
        ``target``, ``level``, ``n_calibrated`` and ``n_checked`` (steps); and if a threshold was found: ``threshold``,
        ``observed`` (the share of accepted steps that is wrong, in the half that it was not chosen on) and
        ``accepted`` (the share of steps there that it accepts).
    """
    groups = np.unique(steps.group).tolist()
    chosen = random.Random(f"risk {seed}").sample(groups, len(groups) // 2)
    inside = np.isin(steps.group, chosen)
    ours, others = steps.of(inside), steps.of(~inside)
    found: Record = {"target": target, "level": level, "n_calibrated": len(ours.score), "n_checked": len(others.score)}
    threshold = threshold_for(ours, target, level)
    if threshold is None:
        return found
    accepted = others.score >= threshold
    found |= {"threshold": threshold, "accepted": share(others._replace(right=accepted))}
    if accepted.any():
        kept = others.of(accepted)
        found["observed"] = share(kept._replace(right=~kept.right))
    return found


def threshold_for(steps: Steps, target: float, level: float = LEVEL) -> float | None:
    """The lowest score at or above which at most ``target`` of the answers are wrong, with probability ``level``; None
    if there is none that can be vouched for with so many steps. ``mapie`` tests thresholds at the scores' quantiles."""
    from mapie.risk_control import BinaryClassificationController, FWERFixedSequenceTesting, precision

    if not len(steps.score):
        return None
    tried = np.unique(np.quantile(steps.score, np.linspace(0, 1, THRESHOLDS, endpoint=False), method="lower"))
    controller = BinaryClassificationController(
        lambda scores: np.column_stack([1 - scores, scores]), precision, 1 - target, level,
        list_predict_params=tried, fwer_method=FWERFixedSequenceTesting(min(STARTS, len(tried))),
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that none was found is an answer, too; so is a share that does not fall
        controller.calibrate(steps.score, steps.right)
    return None if controller.best_predict_param is None else float(controller.best_predict_param)


def _rollouts(records: Sequence[Record]) -> Steps | None:
    """Imagined episodes by task: the probability of all that was said, and whether reality repeats it to the end; those
    of which that is not recorded are left out."""
    played = [r for r in records if r["w2r"]["steps"] and not r["w2r"].get("error") and _all_sure(r["wm"])]
    usable = [r for r in played if agrees(r["wm"], r["w2r"]) is not None]
    if not usable:
        return None
    right = [agrees(r["wm"], r["w2r"]) for r in usable]
    scores = [sum(s["confidence"]["logprob"] for s in r["wm"]["steps"] if "confidence" in s) for r in usable]
    return Steps(np.array([r["task_id"] for r in usable]), np.array(scores, float), np.array(right))


def _all_sure(imagined: Record) -> bool:
    steps = imagined["steps"]
    known = [s for s in steps if "confidence" in s]
    return bool(known) and all("confidence" in s or s.get("anchored") or s.get("reason") for s in steps)
