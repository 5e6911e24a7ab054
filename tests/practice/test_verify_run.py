"""A whole measurement of verification, by a retrieval world whose answers can be told in advance."""

from pathlib import Path
from typing import Any

import pytest

from tests.practice.kiosk import Kiosk, Seller
from worldloom.agents import AgentSpec
from worldloom.envs import EnvSpec
from worldloom.errors import ConfigError
from worldloom.evaluate.stats import unseen
from worldloom.practice.verify import Check
from worldloom.practice.verify_run import verify
from worldloom.rollout import rollout
from worldloom.runs import read_json, read_records
from worldloom.trajectory import write

KIOSK = EnvSpec("tests.practice.kiosk:Kiosk")
SELLERS = [AgentSpec("tests.practice.kiosk:Seller", {"order": order}) for order in (["red", "green", "blue"], ["blue"])]
FIRST, SECOND = "seller(order=['red', 'green', 'blue'])", "seller(order=['blue'])"
SETTINGS: dict[str, Any] = {"split": "test", "tasks": 6, "max_steps": 8, "workers": 1}


@pytest.fixture(scope="module")
def losers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Episodes in which every sale fails: a world made of them foresees nothing else."""
    path = tmp_path_factory.mktemp("logs") / "losers.jsonl"
    write(
        path, [rollout(Kiosk(), Seller(["red"]), str(n), split="train", max_steps=8) for n in (10, 11, 13, 14, 16, 17)]
    )
    return path


@pytest.fixture(scope="module")
def run(losers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("verify")
    verify(out, f"retrieval:{losers}", KIOSK, SELLERS, Check(["sell"]), [0, 1, 2], threshold=0.5, **SETTINGS)
    return out


def test_every_arm_is_as_worked_out_by_hand(run: Path) -> None:
    utility = read_json(run / "metrics.json")["utility"]
    # Tasks 0..5 want red, green, blue, red, green, blue. The first seller sells its first, second or third colour with
    # a budget of 0, 1 or 2, since this world foresees failure always; the second one sells blue in any case.
    for name in (f"{FIRST}, budget {n}" for n in range(3)):
        assert utility["arms"][name]["real_success"]["value"] == pytest.approx(1 / 3)
    first = utility["arms"][f"{FIRST}, budget 1"]
    assert (first["n_tasks"], first["real_steps"], first["imagined_steps"], first["errors"]) == (6, 18, 6, 0)
    assert first["refusals"] == {"right": 4, "wrong": 2, "unknown": 0}  # red was right for two tasks
    assert first["passes"] == {"right": 0, "wrong": 0, "unknown": 0}  # the budget is spent: the next sale is not judged
    assert first["wrong_actions_prevented"]["value"] == first["right_actions_blocked"]["value"] == 1.0
    dry = utility["arms"][f"{FIRST}, budget 0"]
    assert (dry["refusals"], dry["passes"]) == (
        {"right": 0, "wrong": 0, "unknown": 0},
        {"right": 2, "wrong": 4, "unknown": 0},
    )
    assert dry["real_steps"] == 12
    second = utility["arms"][f"{SECOND}, budget 2"]
    assert second["refusals"] == {"right": 8, "wrong": 4, "unknown": 0}
    # Both agents win a third; of two, the second in rank is the middle, and of budgets alike the smaller is the best.
    gain = utility["gain"]
    assert (gain["value"], gain["n"], gain["agent"], gain["budget"]) == (0.0, 6, SECOND, 1)
    assert gain["best_of"] == 2
    assert (gain["low"], gain["high"]) == (-unseen(6), unseen(6))  # the second seller sells the same in all arms
    assert utility["gains"][FIRST]["1"]["low"] < 0 < utility["gains"][FIRST]["1"]["high"]


def test_started_again_it_goes_on_and_refuses_other_settings(run: Path, losers: Path) -> None:
    before = {k: v for k, v in read_json(run / "metrics.json").items() if k != "provenance"}
    lines = (run / "arms.jsonl").read_bytes().splitlines(keepends=True)
    (run / "arms.jsonl").write_bytes(b"".join(lines[:20]) + lines[20][:30])  # as a kill leaves it
    model = f"retrieval:{losers}"
    verify(run, model, KIOSK, SELLERS, Check(["sell"]), [0, 1, 2], threshold=0.5, **SETTINGS)
    assert {k: v for k, v in read_json(run / "metrics.json").items() if k != "provenance"} == before
    assert (run / "arms.jsonl").read_bytes().count(b"\n") == len(lines)
    assert (run / "report.html").read_text().startswith("<!")
    with pytest.raises(ConfigError, match="holds a run with other settings"):
        verify(run, model, KIOSK, SELLERS, Check(["sell"]), [0, 1], threshold=0.5, **SETTINGS)


def test_what_really_followed_stands_in_the_log(run: Path) -> None:
    verdicts = [v for record in read_records(run / "arms.jsonl") for v in record["verdicts"]]
    assert all(("followed" in v) is not v["held"] for v in verdicts)
    ends = [v["followed"]["terminal"] for v in verdicts if "followed" in v]
    assert (ends.count("success"), ends.count("failure")) == (4, 8)  # the dry runs of both sellers


def test_the_threshold_is_chosen_on_other_episodes(
    losers: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "run"
    found = verify(
        out, f"retrieval:{losers}", KIOSK, SELLERS[:1], Check(["sell"]), [0, 2], calibrate=losers, **SETTINGS
    )
    # Six sales, all wrong, all with a chance of 0: another try is right as often as these, never; nothing is gained.
    told = {k: found["verification"]["calibration"][k] for k in ("threshold", "n", "right", "refusals")}
    assert told == {"threshold": 0.0, "n": 6, "right": 0, "refusals": {"right": 0, "wrong": 0}}
    assert found["utility"]["arms"][f"{FIRST}, budget 2"]["refusals"] == {"right": 0, "wrong": 0, "unknown": 0}
    assert found["utility"]["gain"]["value"] == 0.0
    # The world is made of the very episodes that it is calibrated on, and of none of the tasks that are played.
    assert found["verification"]["calibration"]["overlap"] == {"tasks": 6, "of": 6}
    assert found["overlap"] == {"tasks": 0, "of": 6}
    assert "was trained on 6 of the 6 tasks that it is calibrated on" in caplog.text


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"threshold": None}, "give either a threshold, or real episodes"),
        ({"budgets": [0, 0]}, "budgets are numbers of refusals"),
        ({"agents": [SELLERS[0], SELLERS[0]]}, "each once"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is_written(
    losers: Path, tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    settings = {"agents": SELLERS, "check": Check(["sell"]), "budgets": [0, 1], "threshold": 0.5, **SETTINGS, **changed}
    with pytest.raises(ConfigError, match=told):
        verify(tmp_path / "run", f"retrieval:{losers}", KIOSK, **settings)
    assert not (tmp_path / "run").exists()


def test_episodes_of_the_played_tasks_do_not_calibrate(losers: Path, tmp_path: Path) -> None:
    same = tmp_path / "same.jsonl"
    write(same, [rollout(Kiosk(), Seller(), "0", split="test", max_steps=8)])
    with pytest.raises(ConfigError, match="has episodes of 1 of the tasks that are to be played, such as '0'"):
        verify(
            tmp_path / "run", f"retrieval:{losers}", KIOSK, SELLERS, Check(["sell"]), [0, 1], calibrate=same, **SETTINGS
        )
