"""What a choice made in the model gains in reality: by hand, and how often the interval holds what is so."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.evaluate.test_consistency import triple
from worldloom.errors import ConfigError, DataError
from worldloom.evaluate.metrics import measured
from worldloom.evaluate.summary import table
from worldloom.evaluate.transfer import halved, shares, transfer_metrics, transfer_of, won
from worldloom.runs import Log, write_json

ENDS = ("failure", "success")


def records(real: dict[str, Sequence[int]], wm: dict[str, Sequence[int]]) -> list[dict[str, Any]]:
    """Records of agents that won (1) or not (0) on tasks t0, t1, ..."""
    return [
        triple(f"t{n}", ENDS[won], ENDS[wm[agent][n]], "failure", agent)
        for agent, wins in real.items()
        for n, won in enumerate(wins)
    ]


def values(found: dict[str, Any]) -> dict[str, float]:
    return {name: found[name]["value"] for name in ("gain_over_random", "regret_to_best")}


ALL, NONE = [1] * 16, [0] * 16


def test_a_model_that_knows_the_better_agent() -> None:
    found = transfer_metrics(records({"able": ALL, "dull": NONE}, {"able": ALL, "dull": NONE}))
    assert values(found) == {"gain_over_random": 0.5, "regret_to_best": 0.0}
    off = 1 - 0.025 ** (1 / 16)  # so many tasks may be otherwise though none was; a gain is between -1 and 1
    assert found["gain_over_random"] == {
        "value": 0.5, "low": pytest.approx(0.5 - 1.5 * off), "high": pytest.approx(0.5 + 0.5 * off), "n": 16,
    }  # fmt: skip
    assert {name: rate["value"] for name, rate in found["success"].items()} == {
        "chosen_in_model": 1.0, "chosen_in_reality": 1.0, "at_random": 0.5,
    }  # fmt: skip
    assert found["agents"] == {
        "able": {"real": 1.0, "wm": 1.0, "chosen_in_model": 1.0, "chosen_in_reality": 1.0},
        "dull": {"real": 0.0, "wm": 0.0, "chosen_in_model": 0.0, "chosen_in_reality": 0.0},
    }


def test_a_model_that_takes_the_worse_agent_for_the_better_one() -> None:
    found = transfer_metrics(records({"able": ALL, "dull": NONE}, {"able": NONE, "dull": ALL}))
    assert values(found) == {"gain_over_random": -0.5, "regret_to_best": 1.0}


def test_a_model_in_which_all_are_alike_chooses_at_random() -> None:
    """Whatever the agents are called: of those that tie, each is chosen as often."""
    real = {"a": ALL, "b": NONE, "c": NONE, "d": NONE}
    found = transfer_metrics(records(real, {agent: ALL for agent in real}))
    assert values(found) == {"gain_over_random": pytest.approx(0.0), "regret_to_best": pytest.approx(0.75)}
    assert [of["chosen_in_model"] for of in found["agents"].values()] == [0.25] * 4


def test_two_that_tie_in_the_model_share_the_choice() -> None:
    real = {"a": ALL, "b": [1] * 8 + [0] * 8, "c": NONE}
    found = transfer_metrics(records(real, {"a": ALL, "b": ALL, "c": NONE}))
    # (16 + 8) / 2 of 16 by the model's choice, 24 / 3 of 16 at random, 16 of 16 by the real one.
    assert values(found) == {
        "gain_over_random": pytest.approx(12 / 16 - 8 / 16), "regret_to_best": pytest.approx(1 - 12 / 16),
    }  # fmt: skip


def test_an_agent_is_never_measured_on_what_it_was_chosen_by() -> None:
    """Of two agents, each wins where the other does not, in the model as in reality. Whoever is ahead in one half is
    behind in the other by as much; measured where it was chosen, the choice would seem to gain."""
    real = {"even": [1, 0] * 5, "odd": [0, 1] * 5}
    found = transfer_metrics(records(real, real))
    wins, _ = won(records(real, real))
    halves = halved(wins).sum(0).reshape(20, 2, 2, 2)  # halving, half, world, agent
    behind = [5 - abs(even - odd) / 2 - 5 for even, odd in halves[:, 0, 1]]  # of ten tasks, beside five by chance
    assert found["gain_over_random"]["value"] == pytest.approx(2 * np.mean(behind) / 10)
    assert found["gain_over_random"]["value"] < 0
    assert found["regret_to_best"]["value"] == 0.0


def test_halves_are_halves_and_hold_every_task_once() -> None:
    wins = np.ones((7, 2, 3))
    table = halved(wins).reshape(7, 20, 2, 2, 3)
    assert (table.sum(2) == 1).all()  # in one half of each halving
    assert {tuple(half) for half in table[..., 0, 0].sum(0)} == {(4, 3)}
    assert len({tuple(column) for column in table[:, :, 0, 0, 0].T}) > 10  # and not always in the same


def test_a_share_for_each_of_the_best() -> None:
    assert shares(np.array([[3.0, 1.0, 3.0], [0.0, 2.0, 1.0]])).tolist() == [[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]


def test_errors_are_no_success_and_seeds_are_averaged() -> None:
    told = [triple(f"t{n}", "success", "error", "error", "a") for n in range(4)]
    told += [triple(f"t{n}", "success" if n else "failure", "success", "error", "a") for n in range(4)]
    wins, agents = won(told)
    assert agents == ["a"]
    assert wins[:, :, 0].tolist() == [[0.5, 0.5], [0.5, 1.0], [0.5, 1.0], [0.5, 1.0]]


def test_what_cannot_be_told_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"1 agents on 16 tasks: .* needs 2 agents and 4 tasks"):
        transfer_metrics(records({"a": ALL}, {"a": ALL}))
    with pytest.raises(ConfigError, match="2 agents on 3 tasks"):
        transfer_metrics(records({"a": [1] * 3, "b": [0] * 3}, {"a": [1] * 3, "b": [0] * 3}))
    with pytest.raises(ConfigError, match="did not play the same tasks"):
        transfer_metrics(records({"a": ALL, "b": NONE}, {"a": ALL, "b": NONE})[:-1])


def test_an_evaluation_of_three_agents_tells_it_by_itself() -> None:
    three = {"a": ALL, "b": NONE, "c": NONE}
    assert measured(records(three, three))["transfer"]["gain_over_random"]["value"] == pytest.approx(2 / 3)
    two = {"a": ALL, "b": NONE}
    assert "transfer" not in measured(records(two, two))


def test_it_is_told_of_a_finished_evaluation_without_its_model(tmp_path: Path) -> None:
    run = tmp_path / "eval"
    write_json(
        run / "metrics.json", {"name": "n", "model": "gone", "split": "s", "one_step": {}, "provenance": {"a": 1}}
    )
    with Log(run / "records.jsonl") as log:
        for number, told in enumerate([*records({"a": ALL, "b": NONE}, {"a": ALL, "b": NONE}), {"kind": "one_step"}]):
            log.append(json.dumps({**told, "key": str(number)}))
    found = transfer_of(run)
    assert found["transfer"]["gain_over_random"]["value"] == 0.5
    assert {key: found[key] for key in ("name", "model", "split")} == {"name": "n", "model": "gone", "split": "s"}
    assert set(found) == {"name", "model", "split", "transfer", "provenance"}
    assert found["provenance"]["command"]
    (run / "records.jsonl").write_text('{"kind": "one_step", "key": "0"}\n')
    with pytest.raises(DataError, match=r"records\.jsonl: there is no record of an agent; evaluate with --env"):
        transfer_of(run)


def simulated(draw: np.random.Generator, skills: Sequence[float], tasks: int, noise: float) -> list[dict[str, Any]]:
    """Tasks that are hard or easy for all agents; a model that is right about an end but for a share of coin flips."""
    chance = np.array(skills) + (draw.beta(2, 2, tasks)[:, None] - 0.5) * 0.6
    real = draw.random(chance.shape) < chance
    imagined = np.where(draw.random(chance.shape) < noise, draw.random(chance.shape) < 0.5, real)
    ends = {True: {"steps": [{"terminal": "success"}]}, False: {"steps": [{"terminal": "failure"}]}}
    return [
        {"task_id": f"t{task}", "agent": f"a{agent}", "real": ends[bool(won)], "wm": ends[bool(imagined[task, agent])]}
        for (task, agent), won in np.ndenumerate(real)
    ]


@pytest.mark.parametrize("skills", [(0.8, 0.6, 0.4), (0.5, 0.5, 0.5)])
def test_intervals_cover_what_the_choice_gains_on_average(skills: tuple[float, ...], monkeypatch: Any) -> None:
    """The truth is the mean of the true gains over all repetitions: each is that of the choices that it made. The
    interval is wide where agents are alike, and never too narrow."""
    from worldloom.evaluate import stats

    monkeypatch.setattr(stats, "RESAMPLES", 200)
    draw, found = np.random.default_rng(5), []
    for _ in range(300):
        told = transfer_metrics(simulated(draw, skills, 40, 0.3))
        gain = sum(of["chosen_in_model"] * skill for of, skill in zip(told["agents"].values(), skills, strict=True))
        found.append((gain - sum(skills) / len(skills), told["gain_over_random"]))
    truth = sum(gain for gain, _ in found) / len(found)
    assert sum(rate["value"] for _, rate in found) / len(found) == pytest.approx(truth, abs=0.015)
    assert 0.92 <= sum(rate["low"] <= truth <= rate["high"] for _, rate in found) / len(found) <= 1.0


def test_the_report_says_so(tmp_path: Path) -> None:
    from worldloom.evaluate.report import write_report

    three = {"able": ALL, "dull": NONE, "dim": NONE}
    told = records(three, three)
    page = write_report(tmp_path / "r.html", title="t", metrics=measured(told), records=told).read_text()
    assert (
        "choosing in the model gains        66.7% [32.3%, 73.5%] of success over chance (3 agents, 16 tasks)"
        in table(measured(told))
    )
    assert "Is the best one in the model the best one in reality" in page
    assert "what the choice in the model gains over one at random</th><td>66.7</td>" in page
