"""Synthetic records whose metrics can be worked out by hand, and intervals that cover a known truth as they say.

Ten episodes of ten steps each; the tenth step is the end. Each model below is wrong in a way that is known exactly.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import multinomial

from worldloom.evaluate import stats
from worldloom.evaluate.agreement import kappa_of
from worldloom.evaluate.confidence import Steps, auroc
from worldloom.evaluate.consistency import record
from worldloom.evaluate.metrics import measured
from worldloom.evaluate.one_step import NOTHING, answer_episode
from worldloom.evaluate.stats import difference, quotient, rate
from worldloom.lm.replies import Replies
from worldloom.protocol import said
from worldloom.trajectory import AgentRef, EnvRef, Failure, Step, TaskRef, Trajectory

Says = Callable[[int, int, Step], str | None]


def step(number: int) -> Step:
    """Every other step can be done anew; the last one wins."""
    told = {"observation": f"You see a lamp {number}.", "admissible_actions": ["go", f"take lamp {number}"]}
    if number == 10:
        return Step(action="go", observation='{"won": 1, "by": "you"}', terminal="success", reward=1.0)
    return Step(action="go", reward=0.0, **told)


REAL = [
    Trajectory(
        env=EnvRef(name="e", version="1"), task=TaskRef(id=f"t{n}", seed=0), agent=AgentRef(name="walker"),
        initial_observation="You see a lamp 0.", steps=[step(number) for number in range(1, 11)],
    )
    for n in range(10)
]  # fmt: skip


class Model:
    """Says what it is told to; None breaks off, as if the window were full."""

    replies = None

    def __init__(self, says: Says):
        self.says = says

    def answers(self, trajectory: Trajectory) -> Any:
        for number, real in enumerate(trajectory.steps, 1):
            text = self.says(REAL.index(trajectory), number, real)
            if text is None:
                return
            yield text


class Parrot:
    """Says the same at every step."""

    def __init__(self, text: str, replies: Replies | None):
        self.text, self.replies = text, replies

    def answers(self, trajectory: Trajectory) -> list[str]:
        return [self.text] * len(trajectory.steps)


def told(real: list[Trajectory], text: str, replies: Replies | None = None) -> dict[str, Any]:
    """What a parrot's one-step metrics are."""
    found: dict[str, Any] = measured([answer_episode(Parrot(text, replies), t, t.task.id) for t in real])["one_step"]
    return found


def right(episode: int, number: int, real: Step) -> str:
    return said(real.observation, real.terminal)


def one_step(says: Says) -> list[dict[str, Any]]:
    return [answer_episode(Model(says), t, t.task.id) for t in REAL]


def of(says: Says) -> dict[str, Any]:
    found: dict[str, Any] = measured(one_step(says))["one_step"]
    return found


def values(found: dict[str, Any], *names: str) -> list[float]:
    return [found[name]["value"] for name in names]


EXACT = ("em", "em_macro", "em_observation", "em_without_counters", "em_without_order", "word_f1")


def test_an_oracle() -> None:
    found = of(right)
    assert (found["n_episodes"], found["n_steps"], found["left_out"]) == (10, 100, 0)
    assert values(found, *EXACT) == [1.0] * 6
    few = pytest.approx(0.025**0.1)  # the hundred steps are of ten rows
    assert found["em"] == {"value": 1.0, "low": few, "high": 1.0, "n": 10, "of": 100}
    assert (found["terminal"]["precision"]["n"], found["terminal"]["false_success_rate"]["of"]) == (10, 90)
    assert values(found["terminal"], "precision", "recall", "f1", "false_success_rate") == [1.0, 1.0, 1.0, 0.0]
    assert found["reward_error"]["value"] == 0.0
    assert values(found["tool_answers"], "json", "schema_agreement") == [1.0, 1.0]
    # Nobody says the same again here; of the ends none is "Nothing happens."
    assert values(found["baselines"]["repeat_last"], "em") == [0.0]


def wrong_in_a_tenth(episode: int, number: int, real: Step) -> str:
    """Episode n errs in step n + 1 alone: another lamp, and in the last episode an end that is missed and misspelt."""
    if number != episode + 1:
        return right(episode, number, real)
    return '{"won": 1}' if number == 10 else "You see a lamp 77."


def test_a_model_that_is_wrong_in_a_tenth_of_known_steps() -> None:
    found = of(wrong_in_a_tenth)
    assert values(found, "em", "em_macro", "em_observation") == [0.9, pytest.approx(0.9), 0.9]
    assert [row["em"]["value"] for row in found["by_step_index"]] == [0.9] * 10  # each index is wrong once
    assert [row["n"] for row in found["by_step_index"]] == [10] * 10
    # Nine wrong steps share 4 of 5 words with the truth; the tenth has '{"won":' of 4 words, and '1}' is not '1,'.
    assert found["word_f1"]["value"] == pytest.approx((90 + 9 * 4 / 5 + 2 * 1 / (2 + 4)) / 100)
    # Nine of ten ends are told, none falsely.
    assert values(found["terminal"], "precision", "recall", "f1", "false_success_rate") == [1.0, 0.9, 18 / 19, 0.0]
    assert found["reward_error"]["value"] == 1 / 100
    # Ten answers are JSON; all are answered so, one with the keys "" and .won of "", .won and .by.
    assert found["tool_answers"]["n"] == 10
    assert values(found["tool_answers"], "json", "schema_agreement") == [1.0, pytest.approx((9 + 2 / 3) / 10)]
    strata = {name: (s["n"], s["em"]["value"]) for name, s in found["strata"].items()}
    assert strata["first_time"] == (10, 0.9)
    assert strata["done_before"] == (90, 0.9)
    # The actions listed before each step hold "go" always, and they change each time, in the last step to unknown.
    assert strata["state_changing"] == (90, 0.9)
    assert strata["verb go"] == (100, 0.9)


def test_a_model_that_always_claims_success() -> None:
    found = of(lambda e, n, real: f"{real.observation} [SUCCESS]")
    assert values(found, "em", "em_observation", "word_f1") == [0.1, 1.0, 1.0]
    assert values(found["terminal"], "precision", "recall", "f1", "false_success_rate") == [0.1, 1.0, 2 / 11, 1.0]
    assert found["reward_error"]["value"] == 0.9  # it pays 1 at each of nine steps in ten that pay nothing


def test_a_model_that_drops_steps() -> None:
    """It breaks off after three steps in odd episodes; what it did not say is left out and counted, not wrong."""
    found = of(lambda e, n, real: None if e % 2 and n > 3 else right(e, n, real))
    assert (found["n_episodes"], found["n_steps"], found["left_out"]) == (10, 65, 35)
    assert values(found, "em", "em_macro") == [1.0, 1.0]
    assert [row["n"] for row in found["by_step_index"]] == [10] * 3 + [5] * 7
    assert values(found["terminal"], "precision", "recall") == [1.0, 1.0]  # of the five ends that it came to
    silent = of(lambda e, n, real: None)
    assert (silent["n_steps"], silent["left_out"], silent["em"]) == (0, 100, None)  # nothing measured is no number


def test_how_sure_a_model_is_by_hand() -> None:
    records = one_step(wrong_in_a_tenth)
    for judged in (s for r in records for s in r["steps"]):
        chance = 0.95 if judged["correct"] else 0.35
        judged["confidence"] = {"logprob": math.log(chance), "lowest": math.log(chance), "tokens": 5}
    found = measured(records)["confidence"]
    assert found["auroc_wrong_step"] == {"value": 1.0, "low": pytest.approx(0.025**0.1), "high": 1.0, "n": 10}
    assert found["ece"]["value"] == pytest.approx((90 * 0.05 + 10 * 0.35) / 100)
    assert [(row["n"], row["right"]["value"]) for row in found["calibration"]] == [(10, 0.0), (90, 1.0)]
    # Half of the episodes: 45 of 45 are right at 0.95, and 0.85 ** 45 < 0.05; at 0.35 only 45 of 50 are.
    bound = measured(records, risk=0.15)["confidence"]["risk_bound"]
    assert bound["threshold"] == pytest.approx(0.95)
    assert (bound["observed"]["value"], bound["accepted"]["value"]) == (0.0, 0.9)


def played(n: int, steps: list[Step]) -> Trajectory:
    return REAL[n].model_copy(update={"steps": steps})


def triples(imagined: Callable[[int], list[Step]], replayed: Callable[[int], list[Step]]) -> dict[str, Any]:
    return measured([record(REAL[n], played(n, imagined(n)), played(n, replayed(n))) for n in range(10)])["consistency"]


def test_consistency_of_an_oracle_and_of_one_that_always_claims_success() -> None:
    oracle = triples(lambda n: REAL[n].steps, lambda n: REAL[n].steps)["overall"]
    assert values(oracle, "real", "wm", "w2r", "cr", "cr_paired") == [1.0] * 5
    # It claims success at the first step; there the replay ends too, and reality has not been won.
    claim = step(1).model_copy(update={"terminal": "success"})
    cut = step(1).model_copy(update={"terminal": "truncated"})
    boasting = triples(lambda n: [claim], lambda n: [cut])
    assert values(boasting["overall"], "real", "wm", "w2r", "cr") == [1.0, 1.0, 0.0, 0.0]
    assert boasting["divergence"]["causes"] == {"premature_success": 10}
    assert boasting["overall"]["agreement"]["w2r"]["real_only"] == 10


def test_first_divergences_of_a_model_that_is_wrong_in_known_steps() -> None:
    def imagined(n: int) -> list[Step]:
        steps = list(REAL[n].steps)
        if n < 9:
            steps[n] = steps[n].model_copy(update={"observation": f"You see a lamp {n + 1}, and a cup 1."})
        return steps

    found = triples(imagined, lambda n: REAL[n].steps)["divergence"]
    assert (found["n"], found["never"]["value"]) == (10, 0.1)
    assert found["causes"] == {"invented_object": 9}  # they add up to those that part
    assert [row["agree"] for row in found["survival"]] == pytest.approx([1 - min(k, 9) / 10 for k in range(1, 11)])


def test_causes_of_failed_replays_add_up_to_them() -> None:
    """Ten episodes: three replays win; the others fail in every way there is, each with one cause."""
    whole, start = REAL[0].steps, REAL[0].steps[:4]
    invented = whole[4].model_copy(update={"observation": "You see a lamp 5, and a cup 1."})
    lost = Step(action="go", observation="You drop it.", terminal="truncated")
    plays: list[tuple[list[Step], list[Step]]] = [
        *[(whole, whole)] * 3,
        ([*start, invented], whole[:5]),
        ([*start, invented, *whole[5:]], [*whole[:9], lost]),  # promised a success, and parted before
        *[(whole, [*whole[:9], lost])] * 2,  # promised a success at the very step that is none
        ([*whole[:9], lost], [*whole[:9], lost]),
        ([*whole[:9], lost], whole[:6]),  # the engine dies
        ([], []),
    ]
    error = Failure(kind="EngineDied", message="exit 9")
    records = [
        record(REAL[n], played(n, ours), played(n, theirs).model_copy(update={"error": error if n > 7 else None}))
        for n, (ours, theirs) in enumerate(plays)
    ]
    found = measured(records)["consistency"]
    failed = found["divergence"]["failed"]
    assert failed["causes"] == {
        "invented_object": 2, "premature_success": 2, "as_imagined": 1, "replay_broke": 1, "nothing_to_replay": 1,
    }  # fmt: skip
    assert failed["n"] == sum(failed["causes"].values()) == 7
    assert failed["n"] == found["overall"]["n"] - sum(values(found["overall"], "w2r")) * 10
    assert failed["promised"] == 3  # episodes 4 (which parts before), 5 and 6
    assert (found["divergence"]["n"], found["divergence"]["left_out"]) == (8, 2)
    # Errors stay in the denominators: 10 real successes, 3 replayed.
    assert found["overall"]["errors"] == {"real": 0, "wm": 0, "w2r": 2}
    assert values(found["overall"], "real", "wm", "w2r", "cr", "cr_paired") == [1.0, 0.6, 0.3, 0.3, 0.3]


def test_what_anchors_buy_by_hand() -> None:
    """Without an anchor five of ten replays win; with reality answering three steps in ten, eight do; with all, all."""
    lost = [*REAL[0].steps[:9], Step(action="go", observation="You drop it.", terminal="truncated")]

    def plays(wins: int, answered: int) -> list[dict[str, Any]]:
        ours = [s.model_copy(update={"anchored": n < answered or None}) for n, s in enumerate(REAL[0].steps)]
        return [record(REAL[n], played(n, ours), played(n, REAL[0].steps if n < wins else lost)) for n in range(10)]

    def anchored(name: str, wins: int, answered: int) -> list[dict[str, Any]]:
        return [r | {"kind": "anchored", "anchor": name, "key": f"{name}|{r['key']}"} for r in plays(wins, answered)]

    found = measured([*anchored("every=1", 10, 10), *anchored("first=3", 8, 3), *plays(5, 0)])["anchoring"]
    assert list(found) == ["none", "first=3", "every=1"]  # by their share of real answers
    assert [values(of, "share_real", "w2r", "cr") for of in found.values()] == [
        [0.0, 0.5, 0.5], [0.3, 0.8, 0.8], [1.0, 1.0, 1.0],
    ]  # fmt: skip
    assert found["none"]["share_real"]["high"] == 0.0  # it is so by definition, not by measurement
    assert "cr_gain" not in found["none"]
    assert found["first=3"]["cr_gain"]["value"] == pytest.approx(0.3)
    gain = found["every=1"]["cr_gain"]  # paired: the five that won anyhow add nothing to its spread
    assert (gain["value"], gain["n"]) == (0.5, 10) and 0 < gain["low"] < 0.5 < gain["high"] <= 0.9


def test_a_model_that_miscounts_and_one_that_sorts_otherwise() -> None:
    """Each is wrong in the strict sense and right in its kinder one; the other kindness does not help it."""
    listed = [
        t.model_copy(update={"steps": [Step(action="look", observation="You see a pen, and a mug. Moves: 3 moves")]})
        for t in REAL
    ]

    miscounted = told(listed, "You see a pen, and a mug. Moves: 4 moves")
    resorted = told(listed, "You see a mug, and a pen. Moves: 3 moves")
    kinds = ("em", "em_observation", "em_without_counters", "em_without_order")
    assert values(miscounted, *kinds) == [0.0, 0.0, 1.0, 0.0]
    assert values(resorted, *kinds) == [0.0, 0.0, 0.0, 1.0]
    assert miscounted["word_f1"]["value"] == pytest.approx(9 / 10)


def test_baselines_by_hand() -> None:
    """Logged replies of one earlier episode: "go" is always answered by "A hall." there."""
    steps = [Step(action=a, observation=o) for a, o in (("go", "A hall."), ("go", "A hall."), ("look", NOTHING))]
    logged = Replies().learn([REAL[0].model_copy(update={"steps": steps})])
    asked = [Step(action="go", observation="A hall."), Step(action="look", observation=NOTHING),
             Step(action="go", observation=NOTHING), Step(action="go", observation=NOTHING)]  # fmt: skip
    found = told([REAL[0].model_copy(update={"steps": asked})], "A hall.", logged)
    assert values(found, "em") == [0.25]
    usual = {name: of["em"]["value"] for name, of in found["baselines"].items()}
    # Said again: "A hall." is not what was seen first, the next two are other than before, the last is the same.
    assert (usual["repeat_last"], usual["nothing_happens"], usual["majority_reply"]) == (0.5, 0.75, 0.5)


REPETITIONS = 1000


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of the usual number: a little less exact, and a thousand repetitions in a second."""
    monkeypatch.setattr(stats, "RESAMPLES", 400)


def covered(truth: float, simulate: Callable[[np.random.Generator], dict[str, float] | None]) -> float:
    """How often the interval of a simulated measurement holds the truth."""
    draw, held = np.random.default_rng(1), 0
    for _ in range(REPETITIONS):
        found = simulate(draw)
        assert found is not None
        held += found["low"] <= truth <= found["high"]
    return held / REPETITIONS


@pytest.mark.usefixtures("few_resamples")
def test_intervals_of_rates_over_steps_cover_the_truth() -> None:
    """Sixty episodes, each with a difficulty of its own, so that its steps are alike: 0.8 of the steps are right."""

    def simulate(draw: np.random.Generator) -> dict[str, float] | None:
        lengths = draw.integers(5, 16, 60)
        return rate(draw.binomial(lengths, draw.beta(8, 2, 60)).tolist(), lengths.tolist())

    assert 0.93 <= covered(0.8, simulate) <= 0.97


# How many tasks are won in reality, of these again in the replay, and in the replay of the others.
CONSISTENT = [
    (0.6, 0.9, 0.1), (0.6, 0.97, 0.03), (0.6, 0.9, 0.0), (0.6, 1.0, 0.1), (0.3, 0.5, 0.05), (0.9, 0.95, 0.5),
    (0.4, 0.6, 0.2), (0.2, 0.9, 0.02), (0.3, 0.9, 0.3), (0.9, 0.8, 0.1),
]  # fmt: skip


def consistency_ratio(real: float, again: float, beside: float) -> float:
    return (real * again + (1 - real) * beside) / real


def tabled(both: int, lost: int, gained: int, neither: int) -> tuple[list[float], list[float]]:
    """Tasks with so many of each kind: wins in the replay and in reality."""
    replayed = [1.0] * both + [0.0] * lost + [1.0] * gained + [0.0] * neither
    return replayed, [1.0] * (both + lost) + [0.0] * (gained + neither)


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("n", [12, 24])
def test_intervals_of_consistency_ratios_of_few_tasks_cover_the_truth(n: int) -> None:
    """One agent: every table that n tasks can give, each as likely as the truth makes it, so that no luck is in it."""
    tables = [(b, r, o, n - b - r - o) for b in range(n + 1) for r in range(n + 1 - b) for o in range(n + 1 - b - r)]
    tables = [table for table in tables if table[0] + table[1]]
    found = [quotient(*tabled(*table), [1.0] * n) for table in tables]
    low, high = (np.array([each[bound] for each in found if each]) for bound in ("low", "high"))
    covering = {}
    for truth in CONSISTENT:
        real, again, beside = truth
        shares = [real * again, real * (1 - again), (1 - real) * beside, (1 - real) * (1 - beside)]
        chance, ratio = multinomial.pmf(tables, n, shares), consistency_ratio(*truth)
        covering[truth] = chance[(low <= ratio) & (ratio <= high)].sum() / chance.sum()
    assert min(covering.values()) >= 0.89, covering
    assert 0.94 <= np.mean([*covering.values()]) <= 0.985, covering
    assert covering[0.6, 0.9, 0.1] >= 0.95  # a percentile bootstrap holds it in 80 % of cases of twelve tasks


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("truth", [(0.6, 0.9, 0.1), (0.9, 0.95, 0.5)])
def test_intervals_of_consistency_ratios_of_many_tasks_cover_the_truth(truth: tuple[float, float, float]) -> None:
    real, again, beside = truth
    shares = [real * again, real * (1 - again), (1 - real) * beside, (1 - real) * (1 - beside)]

    def simulate(draw: np.random.Generator) -> dict[str, float] | None:
        return quotient(*tabled(*draw.multinomial(60, shares)), [1.0] * 60)

    assert 0.93 <= covered(consistency_ratio(*truth), simulate) <= 0.97


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("n", [12, 24])
@pytest.mark.parametrize("truth", [(0.6, 0.9, 0.1), (0.4, 0.6, 0.2)])
def test_intervals_of_the_ratios_of_several_agents_cover_the_truth(n: int, truth: tuple[float, float, float]) -> None:
    """Three agents: tasks are harder or easier to win and to model, so that agents fare alike on them."""

    def simulate(draw: np.random.Generator, paired: bool) -> dict[str, float] | None:
        real, again, beside = (draw.beta(2 * p, 2 * (1 - p), (n, 1)) for p in truth)
        won = draw.random((n, 3)) < real
        replayed = draw.random((n, 3)) < np.where(won, again, beside)
        if paired:
            return quotient((won & replayed).sum(1).tolist(), won.sum(1).tolist())
        return quotient(replayed.sum(1).tolist(), won.sum(1).tolist(), [3.0] * n)

    assert 0.9 <= covered(consistency_ratio(*truth), lambda draw: simulate(draw, False)) <= 0.98
    assert 0.9 <= covered(truth[1], lambda draw: simulate(draw, True)) <= 0.98


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize(("n", "truth"), [(12, 0.9), (30, 0.03), (60, 0.99)])
def test_intervals_of_rates_near_their_ends_cover_the_truth(n: int, truth: float) -> None:
    """Often no row is otherwise here, and resampling such rows gives no width: then the exact bound has to hold."""
    covering = covered(truth, lambda draw: rate((draw.random(n) < truth).tolist(), [1] * n))
    assert covering >= 0.93


@pytest.mark.usefixtures("few_resamples")
def test_intervals_of_differences_cover_the_truth() -> None:
    """Sixty episodes scored by two models: a hard one is hard for both, and the second is right in 0.1 more."""

    def simulate(draw: np.random.Generator) -> dict[str, float] | None:
        lengths, ease = draw.integers(5, 16, 60), draw.beta(6, 4, 60) * 0.9
        first, second = draw.binomial(lengths, ease), draw.binomial(lengths, ease + 0.1)
        return difference(second.tolist(), first.tolist(), lengths.tolist())

    assert 0.93 <= covered(0.1, simulate) <= 0.97


@pytest.mark.usefixtures("few_resamples")
def test_intervals_of_kappa_cover_the_truth() -> None:
    """Fifty tasks of three episodes each: half are won in reality, and the model agrees in eight of ten."""

    def simulate(draw: np.random.Generator) -> dict[str, float] | None:
        real = draw.random((50, 3)) < 0.5
        other = np.where(draw.random((50, 3)) < 0.8, real, ~real)
        cells = [(real & other), (real & ~other), (~real & other), (~real & ~other)]
        return kappa_of(np.stack([cell.sum(1) for cell in cells], axis=1))

    assert 0.93 <= covered(0.6, simulate) <= 0.97  # 0.8 agree, 0.5 would by chance


@pytest.mark.usefixtures("few_resamples")
def test_intervals_of_areas_under_the_curve_cover_the_truth() -> None:
    """Sixty episodes of ten steps, each right as often as its score says, of twenty scores that are alike likely."""
    scores = (np.arange(20) + 0.5) / 20
    wrong, good = (1 - scores) / 20, scores / 20
    below = np.concatenate([[0], wrong.cumsum()[:-1]])
    truth = float((good * (below + wrong / 2)).sum() / (wrong.sum() * good.sum()))

    def simulate(draw: np.random.Generator) -> dict[str, float] | None:
        score = draw.choice(scores, 600)
        return auroc(Steps(np.repeat(np.arange(60), 10), score, draw.random(600) < score))

    assert truth == pytest.approx(5 / 6, abs=0.01)
    assert 0.93 <= covered(truth, simulate) <= 0.97
