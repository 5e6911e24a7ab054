"""Episodes in threads, each real engine in a process of its own."""

import re

import pytest

from worldloom.agents import AgentSpec
from worldloom.envs import EnvSpec
from worldloom.envs.worker import Job
from worldloom.errors import EnvError, ModelError
from worldloom.rollout import broken
from worldloom.rollouts import Engines, play_at_once
from worldloom.trajectory import AgentRef, EnvRef, Failure, TaskRef, Trajectory

WALKER = AgentSpec("tests.envs.corridor:Walker")


def job(task: str) -> Job:
    return Job(task, WALKER, 0, "train", 30)


def process(played: Trajectory) -> str:
    found = re.search(r"pid=(\d+)", played.initial_observation)
    assert found
    return found[1]


def test_as_many_engines_as_are_needed_at_once() -> None:
    tasks = [f"train-{n}" for n in range(6)]
    with Engines(EnvSpec("tests.envs.corridor:Unsafe", {"slow": 0.05})) as engines:
        assert engines.ref.name == "corridor"
        played = list(play_at_once([job(task) for task in tasks], engines.play, threads=3))
    assert sorted(t.task.id for t in played) == tasks
    assert {t.outcome for t in played} == {"success"}
    assert 1 < len({process(t) for t in played}) <= 3


def test_an_engine_that_died_costs_its_episode_and_is_replaced() -> None:
    with Engines(EnvSpec("tests.envs.corridor:Unsafe", {"die": "train-1"})) as engines:
        before, died, after = (engines.play(job(task)) for task in ("train-0", "train-1", "train-2"))
    assert (before.outcome, died.outcome, after.outcome) == ("success", "error", "success")
    assert died.error is not None and died.error.kind == EnvError.__name__
    assert process(before) == process(died) != process(after)


def test_what_cannot_be_built_fails_at_once() -> None:
    with pytest.raises(FileNotFoundError, match=r"corridor\.map is missing"):
        Engines(EnvSpec("tests.envs.corridor:Unbuildable"))


def test_a_model_that_is_gone_is_no_episode_s_fault() -> None:
    gone = broken(
        EnvRef(name="e"), TaskRef(id="t"), AgentRef(name="a"), Failure(kind=ModelError.__name__, message="no server")
    )
    with pytest.raises(ModelError, match="no server"):
        list(play_at_once([job("t")], lambda each: gone))
