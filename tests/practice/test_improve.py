"""Expert iteration's mechanics on a tiny policy, in a real corridor and in a broken world."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.lm.serving import recorded
from tests.practice.test_synthesize import walk
from worldloom.agents import AgentSpec
from worldloom.agents.policy import shared
from worldloom.envs import EnvSpec
from worldloom.errors import ConfigError
from worldloom.practice.guard import Guard, GuardConfig
from worldloom.practice.improve import ImproveConfig, improve
from worldloom.practice.place import Place
from worldloom.runs import read_json
from worldloom.trajectory import read

CORRIDOR = EnvSpec("tests.envs.corridor:Corridor", {"longest": 3})
TRAIN = {"steps": 2, "learning_rate": 1e-3, "precision": "float32", "epochs": 100}
SMALL = ImproveConfig(rounds=2, tasks=3, samples=3, temperature=0.7, max_steps=8)


def test_rounds_in_reality_learn_from_what_was_won(policy: Path, demonstrations: Path, tmp_path: Path) -> None:
    agent = AgentSpec("policy", {"model": str(policy)})
    told = improve(tmp_path, Place(CORRIDOR), agent, "train", SMALL, train=TRAIN, data=[demonstrations])
    assert "stopped" not in told
    assert [one["round"] for one in told["rounds"]] == [1, 2]
    assert told["imagined_steps"] == 0
    for one in told["rounds"]:
        folder = tmp_path / f"round-{one['round']}"
        played, kept = read(folder / "rollouts.jsonl"), read(folder / "kept.jsonl")
        assert len(played) == one["success"]["n"] == 9
        assert one["success"]["value"] == sum(t.outcome == "success" for t in played) / 9
        assert one["kept"] == len(kept) > 0
        assert {t.outcome for t in kept} == {"success"}
        assert {t.env.name for t in played} == {"corridor"}
        about = read_json(folder / "policy" / "train.json")
        assert about["data"][0] == demonstrations.as_posix()  # the demonstrations stay in
        assert len(about["data"]) == 1 + one["round"]  # and all that was won so far
        assert (about["learns"], len(about["before"])) == ("policy", one["round"])
    assert told["real_steps"] == sum(one["steps"] for one in told["rounds"])
    assert told["policy"] == {"model": str(tmp_path / "round-2" / "policy"), "rounds": 2}
    assert read_json(tmp_path / "model" / "train.json") == read_json(tmp_path / "round-2" / "policy" / "train.json")
    shared(str(tmp_path))  # the run's folder is a policy
    shutil.rmtree(tmp_path / "model")
    before = (tmp_path / "round-1" / "rollouts.jsonl").stat().st_mtime_ns
    assert improve(tmp_path, Place(CORRIDOR), agent, "train", SMALL, train=TRAIN, data=[demonstrations]) == told
    assert (tmp_path / "round-1" / "rollouts.jsonl").stat().st_mtime_ns == before
    assert (tmp_path / "model" / "model.safetensors").exists()


def test_a_world_that_always_says_success_is_caught(policy: Path, liar: Path, tmp_path: Path) -> None:
    """Nothing but the environment's name differs from the run in reality. Of 3 tasks, all false: at least 44 %."""
    agent, sure = AgentSpec("policy", {"model": str(policy)}), GuardConfig(limit=0.4)
    told = improve(tmp_path, Place(CORRIDOR, str(liar)), agent, "train", SMALL, sure, train=TRAIN)
    (only,) = told["rounds"]
    assert only["success"]["value"] == 1.0  # what the broken world says
    assert only["guard"] == "stop"
    assert "false in the real environment" in told["stopped"]
    assert told["real_steps"] == 0 < told["imagined_steps"]
    (check,) = read_json(tmp_path / "guard.json")
    assert check["false_success"]["value"] == 1.0
    assert told["policy"] == {"model": str(policy), "rounds": 0}  # nothing was learnt from it
    kept, first = (folder / "model" / "model.safetensors" for folder in (tmp_path, policy))
    assert kept.read_bytes() == first.read_bytes()
    shared(str(tmp_path))


def test_stopped_later_the_rounds_before_are_kept(
    policy: Path, liar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(self: Guard, at: int, episodes: Any) -> str:
        return "stop" if at == 2 else "fine"

    monkeypatch.setattr(Guard, "check", check)
    agent = AgentSpec("policy", {"model": str(policy)})
    told = improve(tmp_path, Place(CORRIDOR, str(liar)), agent, "train", SMALL, train=TRAIN)
    assert (len(told["rounds"]), told["policy"]["rounds"]) == (2, 1)
    kept, trained = (folder / "model" / "model.safetensors" for folder in (tmp_path, tmp_path / "round-1" / "policy"))
    assert kept.read_bytes() == trained.read_bytes()
    assert not (tmp_path / "round-2" / "policy").exists()


def test_without_the_guard_the_broken_world_is_believed(policy: Path, liar: Path, tmp_path: Path) -> None:
    one = ImproveConfig(rounds=1, tasks=2, samples=2, max_steps=8)
    agent, place = AgentSpec("policy", {"model": str(policy)}), Place(CORRIDOR, str(liar))
    told = improve(tmp_path, place, agent, "train", one, GuardConfig(action="off"), train=TRAIN)
    assert "stopped" not in told and "guard" not in told["rounds"][0]
    assert (tmp_path / "model" / "model.safetensors").exists()


def test_an_agent_behind_a_server_plays_the_first_round(tiny_lm_folder: Path, tmp_path: Path) -> None:
    once = ImproveConfig(rounds=1, tasks=2, samples=2, max_steps=20)
    with recorded(walk) as server:
        agent = AgentSpec("llm", {"model": "m", "base_url": server.base_url})
        told = improve(
            tmp_path,
            Place(CORRIDOR),
            agent,
            "train",
            once,
            train={**TRAIN, "model": str(tiny_lm_folder), "says": "react"},
        )
    assert told["rounds"][0]["success"]["value"] == 1.0
    about = read_json(tmp_path / "model" / "train.json")
    assert (about["base"], about["says"]) == (str(tiny_lm_folder), "react")


def test_where_nothing_is_won_nothing_is_learnt(tiny_lm_folder: Path, policy: Path, tmp_path: Path) -> None:
    hopeless = ImproveConfig(rounds=2, tasks=2, samples=2, max_steps=1)  # no corridor is one step long
    told = improve(tmp_path, Place(CORRIDOR), AgentSpec("policy", {"model": str(policy)}), "train", hopeless)
    assert len(told["rounds"]) == 1
    assert "nothing was won" in told["stopped"]
    assert told["policy"] == {"model": str(policy), "rounds": 0}
    assert read_json(tmp_path / "model" / "train.json") == read_json(policy / "train.json")


def test_where_no_policy_played_and_nothing_is_won_there_is_none(tiny_lm_folder: Path, tmp_path: Path) -> None:
    hopeless = ImproveConfig(rounds=1, tasks=1, samples=2, max_steps=1)
    with recorded(walk) as server:
        agent = AgentSpec("llm", {"model": "m", "base_url": server.base_url})
        told = improve(tmp_path, Place(CORRIDOR), agent, config=hopeless, train={"model": str(tiny_lm_folder)})
    assert "stopped" in told and "policy" not in told
    assert not (tmp_path / "model").exists()


def test_settings_out_of_range_are_refused() -> None:
    for wrong in ({"rounds": 0}, {"temperature": -1.0}, {"learn_from": "none"}):
        with pytest.raises(ConfigError, match="must be"):
            ImproveConfig(**wrong)  # type: ignore[arg-type]
