"""A policy that learnt to act in a world which always says success: the guard and the rehearsal both refuse it."""

from pathlib import Path

import pytest

from worldloom.agents import AgentSpec
from worldloom.envs import EnvSpec
from worldloom.practice.guard import GuardConfig
from worldloom.practice.improve import ImproveConfig, improve
from worldloom.practice.limits import Limits
from worldloom.practice.place import Place
from worldloom.practice.rehearse_run import World, rehearse
from worldloom.runs import read_json
from worldloom.trajectory import read

CORRIDOR = EnvSpec("tests.envs.corridor:Corridor", {"longest": 3})
TRAIN = {"steps": 30, "learning_rate": 1e-2, "precision": "float32", "epochs": 100}


@pytest.fixture(scope="module")
def exploiting(policy: Path, liar: Path, tmp_path_factory: pytest.TempPathFactory) -> AgentSpec:
    """Trained on its own successes in the broken world, with nobody who looks."""
    out = tmp_path_factory.mktemp("exploiting")
    once = ImproveConfig(rounds=1, tasks=4, samples=2, temperature=0.7, max_steps=8)
    agent, unguarded = AgentSpec("policy", {"model": str(policy)}), GuardConfig(action="off")
    told = improve(out, Place(CORRIDOR, str(liar)), agent, config=once, guard=unguarded, train=TRAIN)
    assert told["policy"]["rounds"] == 1
    learnt = read(out / "round-1" / "kept.jsonl")
    assert {len(episode.steps) for episode in learnt} == {1}  # the first action always wins there
    assert read_json(out / "model" / "train.json")["environments"].keys() == {"world-model:corridor"}
    return AgentSpec("policy", {"model": str(out)})


def test_the_guard_stops_it(exploiting: AgentSpec, liar: Path, tmp_path: Path) -> None:
    """No corridor is left by one action: all 4 replays are false, which is at least 51 % of them."""
    greedy = ImproveConfig(rounds=1, tasks=4, samples=1, temperature=0.0, max_steps=8)
    told = improve(tmp_path, Place(CORRIDOR, str(liar)), exploiting, config=greedy, train=TRAIN)
    (check,) = read_json(tmp_path / "guard.json")
    assert (check["verdict"], check["reward"]["value"]) == ("stop", 1.0)
    assert (check["false_success"]["value"], check["false_success"]["n"]) == (1.0, 4)
    assert told["policy"] == {"model": exploiting.params["model"], "rounds": 0}


def test_the_rehearsal_fails_it(exploiting: AgentSpec, liar: Path, demonstrations: Path, tmp_path: Path) -> None:
    """It wins all that there is, and would pass by that alone; the controls, and reality, tell why."""
    world = World(str(liar), demonstrations, env=CORRIDOR)
    limits = Limits(max_unsure=None, max_new_actions=None, max_false_success=0.1)
    report = rehearse(tmp_path, exploiting, world, limits, max_steps=8)
    found = {name: rate["value"] for name, rate in report["measured"].items()}
    assert (found["success"], found["idle_success"], found["swapped_success"], found["false_success"]) == (1, 1, 1, 1)
    assert not report["passed"]
    failed = [verdict["limit"] for verdict in report["limits"] if not verdict["met"]]
    assert failed == ["max_idle_success", "max_swapped_success", "max_false_success"]
