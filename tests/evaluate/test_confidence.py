"""Confidence by hand and in simulation: what is known to be true must come out."""

import math
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from tests.evaluate.test_consistency import played
from worldloom.evaluate.confidence import (
    Steps,
    _area,
    _table,
    auroc,
    calibration_curve,
    confidence_metrics,
    expected_calibration_error,
    risk_bound,
    threshold_for,
)
from worldloom.evaluate.consistency import record


def steps(rows: list[tuple[int, float, bool]]) -> Steps:
    group, score, right = zip(*rows, strict=True)
    return Steps(np.array(group), np.array(score), np.array(right))


def simulated(seed: int, episodes: int, length: int = 10) -> Steps:
    """A model that is right exactly as often as it says, on steps that have nothing to do with each other."""
    draw = np.random.default_rng(seed)
    score = 1 - draw.beta(0.3, 2.0, episodes * length)
    return Steps(np.repeat(np.arange(episodes), length), score, draw.random(len(score)) < score)


def step(probability: float, correct: bool, agrees: bool = True) -> dict[str, Any]:
    sure = {"logprob": math.log(probability), "lowest": math.log(probability), "tokens": 2, "agrees": agrees}
    return {"correct": correct, "confidence": sure}


def test_auroc_by_hand() -> None:
    # Wrong ones at 0.2 and 0.6, right ones at 0.4, 0.6 and 0.9: of six pairs four are in order and one is even.
    found = auroc(steps([(0, 0.2, False), (0, 0.6, False), (1, 0.4, True), (1, 0.6, True), (2, 0.9, True)]))
    assert found["value"] == pytest.approx((3 + 1 + 0.5) / 6)
    assert found["n"] == 3
    assert auroc(steps([(0, 0.2, True), (1, 0.3, True)])) is None


def test_auroc_is_sklearns_and_so_are_its_resamples() -> None:
    told = simulated(1, 30)
    told = told._replace(score=told.score.round(1))  # ties
    assert auroc(told)["value"] == pytest.approx(roc_auc_score(told.right, told.score))
    scores, place = np.unique(told.score, return_inverse=True)
    often = np.random.default_rng(5).multinomial(30, np.full(30, 1 / 30), size=4)  # how often each episode was drawn
    wrong, right = (_table(told.group, place, chosen) for chosen in (~told.right, told.right))
    assert wrong.shape == (30, len(scores))
    by_sklearn = [roc_auc_score(told.right, told.score, sample_weight=row[told.group]) for row in often]
    assert _area(often @ wrong, often @ right) == pytest.approx(by_sklearn)


def test_calibration_by_hand() -> None:
    told = steps(
        [(0, 0.95, True), (0, 0.91, True), (1, 0.97, False), (1, 0.55, True), (2, 0.05, False), (2, 1.0, True)]
    )
    curve = calibration_curve(told)
    assert [(row["low"], row["high"], row["n"]) for row in curve] == [(0.0, 0.1, 1), (0.5, 0.6, 1), (0.9, 1.0, 4)]
    assert [row["right"]["value"] for row in curve] == [0.0, 1.0, 0.75]
    assert curve[2]["probability"] == pytest.approx((0.95 + 0.91 + 0.97 + 1.0) / 4)
    by_hand = (1 * 0.05 + 1 * 0.45 + 4 * abs(0.75 - 3.83 / 4)) / 6
    assert expected_calibration_error(told)["value"] == pytest.approx(by_hand)


def test_a_calibrated_model_has_little_error_and_one_that_boasts_has_much() -> None:
    told = simulated(2, 400)
    assert expected_calibration_error(told)["value"] < 0.02
    half = told._replace(right=told.right & (np.random.default_rng(0).random(len(told.right)) < 0.5))
    expected = (told.score - half.right).mean()  # it is sure everywhere, so each bin errs the same way
    assert expected_calibration_error(half)["value"] == pytest.approx(expected, abs=0.01)


def test_the_threshold_is_the_lowest_that_can_be_vouched_for() -> None:
    # Scores say it all: below 0.5 half are wrong, above none. 400 right ones above vouch for 5 %, with surety 0.9.
    score = np.linspace(0.001, 0.999, 800)
    told = Steps(np.arange(800), score, (score > 0.5) | (np.arange(800) % 2 == 0))
    found = threshold_for(told, 0.05)
    assert 0.4 < found <= 0.5  # at 0.45 a twentieth of all above is wrong by chance of the grid's places
    assert (~told.right[score >= found]).mean() <= 0.05
    assert threshold_for(told._replace(right=np.zeros(800, bool)), 0.05) is None
    few = Steps(np.arange(20), np.ones(20), np.ones(20, bool))
    assert threshold_for(few, 0.05) is None  # 0.95 ** 20 > 0.1: twenty right ones prove nothing
    assert threshold_for(few, 0.2) == 1.0  # 0.8 ** 20 = 0.01


def test_the_bound_holds_as_often_as_it_says() -> None:
    """In at least nine of ten worlds at most a twentieth of what is accepted is wrong, by the truth itself."""
    kept, accepted = [], []
    for seed in range(100):
        told = simulated(seed, 40)
        threshold = threshold_for(told, 0.05)
        fresh = simulated(10_000 + seed, 2_000)
        if threshold is None:
            kept.append(True)  # nothing is accepted, so nothing is wrong
            continue
        above = fresh.score >= threshold
        kept.append((1 - fresh.score[above]).mean() <= 0.05)
        accepted.append(above.mean())
    assert np.mean(kept) >= 0.9
    assert len(accepted) > 75 and np.mean(accepted) > 0.3  # and it is not bought by accepting nothing


def test_what_a_bound_reports() -> None:
    told = simulated(3, 60)
    found = risk_bound(told, 0.1)
    assert (found["target"], found["n_calibrated"], found["n_checked"]) == (0.1, 300, 300)
    assert found["observed"]["n"] <= 30  # over episodes
    again = risk_bound(told, 0.1)
    assert again == found
    refused = risk_bound(steps([(n, 0.5, False) for n in range(20)]))
    assert refused == {"target": 0.05, "level": 0.9, "n_calibrated": 10, "n_checked": 10}


def test_metrics_from_records() -> None:
    one_step = [
        {"task_id": "a", "steps": [step(0.9, True), step(0.2, False, agrees=False)]},
        {"task_id": "b", "steps": [step(0.8, True), {"correct": False}]},  # a step without a confidence is passed over
    ]
    found = confidence_metrics(one_step)
    assert (found["n_episodes"], found["n_steps"]) == (2, 3)
    assert found["auroc_wrong_step"]["value"] == 1.0
    assert {name: rate["value"] for name, rate in found["features"].items()} == {
        "probability": 1.0, "mean_logprob": 1.0, "lowest_logprob": 1.0, "agreement": 1.0,
    }  # fmt: skip
    assert found["ece"]["value"] == pytest.approx((0.1 + 0.2 + 0.2) / 3)
    assert "threshold" not in found["risk_bound"]
    assert "auroc_rollout" not in found
    assert confidence_metrics([{"task_id": "a", "steps": [{"correct": True}]}]) is None


def test_episodes_of_one_task_stay_together() -> None:
    """Two agents take 2 ** n steps each on task n: how many steps a half has tells which tasks these are of."""
    one_step = [
        {"task_id": f"t{n}", "agent": agent, "steps": [step(0.9, k % 3 > 0) for k in range(2**n)]}
        for agent in ("a", "b")
        for n in range(8)
    ]
    found = confidence_metrics(one_step)
    assert (found["n_episodes"], found["n_steps"], found["auroc_wrong_step"]["n"]) == (16, 510, 8)
    chosen, odd = divmod(found["risk_bound"]["n_calibrated"], 2)
    assert (odd, chosen.bit_count()) == (0, 4)
    assert found["risk_bound"]["n_checked"] == 510 - 2 * chosen


def test_the_self_check_is_added_where_it_helps() -> None:
    """Probabilities say nothing here and agreement says all: a regression on both finds that out on other episodes."""
    draw, episodes = np.random.default_rng(0), []
    for n in range(40):
        right = draw.random(10) < 0.6
        told = [step(p, r, agrees=r) for p, r in zip(draw.random(10), right.tolist(), strict=True)]
        episodes.append({"task_id": f"t{n}", "steps": told})
    features = confidence_metrics(episodes)["features"]
    assert features["agreement"]["value"] == features["all"]["value"] == 1.0
    assert abs(features["probability"]["value"] - 0.5) < 0.1


def rollout(task: str, logprobs: list[float | None], same: bool) -> dict[str, Any]:
    """A record of an imagined episode whose replay says the same, or something else at its end."""
    found = record(played(task, "success"), played(task, "success"), played(task, "success"))
    line = found["wm"]["steps"][0]
    found["wm"]["steps"] = [
        line | ({"anchored": True} if p is None else {"confidence": {"logprob": p, "lowest": p, "tokens": 1}})
        for p in logprobs
    ]
    found["w2r"]["steps"] = [dict(line) for _ in logprobs]
    if not same:
        found["w2r"]["steps"][-1]["observation"] = "z"
    return found


def test_rollouts_that_reality_will_not_repeat() -> None:
    # Sums: -0.1 and -0.5 repeat, -0.3 and -3 do not: three of four pairs are in order. What was not imagined is sure.
    told = [
        rollout("a", [-0.05, -0.05], True), rollout("b", [-0.5, None], True),
        rollout("c", [-0.3], False), rollout("d", [-1.0, -2.0], False),
    ]  # fmt: skip
    assert confidence_metrics([], told)["auroc_rollout"]["value"] == 3 / 4
    unheard = rollout("e", [-9.0], True)
    unheard["w2r"]["steps"][0]["not_recorded"] = True
    assert confidence_metrics([], [*told, unheard])["auroc_rollout"] == confidence_metrics([], told)["auroc_rollout"]
    unknown = rollout("e", [-9.0], True)
    del unknown["wm"]["steps"][0]["confidence"]
    assert confidence_metrics([], [*told, unknown])["auroc_rollout"]["n"] == 4
    assert confidence_metrics([], [unknown]) is None
