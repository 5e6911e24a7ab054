"""Synthetic experience: what is played in a world model, what is kept of it, and how it is marked."""

import math
from pathlib import Path
from typing import Any

import pytest

from tests.envs.corridor import Corridor
from tests.lm.serving import Answer, Recorded, completion, recorded
from worldloom.agents import AgentSpec
from worldloom.envs import EnvSpec
from worldloom.errors import ConfigError
from worldloom.practice.place import Ground, Place, draws
from worldloom.practice.synthesize import chosen, sureness, synthesize
from worldloom.selection import is_imagined
from worldloom.trajectory import EnvRef, Step, TaskRef, Trajectory, read

CORRIDOR = EnvSpec("tests.envs.corridor:Corridor", {"longest": 3})
WALKER = AgentSpec("tests.envs.corridor:Walker")


def episode(task: str, *actions: str, end: str = "success", logprob: float = -0.1) -> Trajectory:
    steps = [
        Step(action=action, observation="o", confidence={"logprob": logprob, "lowest": logprob, "tokens": 1})
        for action in actions
    ]
    steps[-1] = steps[-1].model_copy(update={"terminal": end})
    return Trajectory(env=EnvRef(name="world-model:e"), task=TaskRef(id=task), initial_observation="x", steps=steps)


def walk(where: str, body: Any) -> Answer:
    """A walker as a language model behind a server: it goes by the last thing that it was told."""
    told = body["messages"][-1]["content"]
    said = [turn["content"] for turn in body["messages"] if turn["role"] == "assistant"]
    action = "go east"
    if "There is a key" in told and not any("take key" in text for text in said):
        action = "take key"
    elif told == "The door is locked.":
        action = "unlock door"
    return Answer(completion(f"Thought: on we go\nAction: {action}"))


def test_names_of_places() -> None:
    real, imagined = Place.parse("alfworld"), Place.parse("world-model:alfworld=runs/world", {"games": "composed"})
    assert (real.imagined, real.env.name, real.model) == (False, "alfworld", None)
    assert (imagined.imagined, imagined.env, imagined.model) == (
        True, EnvSpec("alfworld", {"games": "composed"}), "runs/world")  # fmt: skip
    own = Place.parse("world-model:tests.envs.corridor:Corridor=m@http://127.0.0.1:1/v1")
    assert (own.env.name, own.model) == ("tests.envs.corridor:Corridor", "m@http://127.0.0.1:1/v1")
    with pytest.raises(ConfigError, match="write world-model:NAME=MODEL"):
        Place.parse("world-model:alfworld")


def test_winners_are_kept_each_once() -> None:
    won, again, other = episode("t", "a", "b"), episode("t", "a", "b"), episode("u", "a", "b")
    lost, late = episode("t", "c", end="failure"), episode("t", "d", end="truncated")
    played = [won, again, other, lost, late]
    assert chosen(played) == [won, other]
    assert len(chosen(played, "ended")) == 3
    assert len(chosen(played, "all")) == 4


def test_an_episode_is_as_sure_as_all_that_was_said_in_it() -> None:
    """Two steps of which each has the probability 0.9: 0.81."""
    unsure = episode("t", "a", "b", logprob=math.log(0.9))
    assert sureness(unsure) == pytest.approx(0.81)
    assert chosen([unsure], least_confidence=0.80) == [unsure]
    assert chosen([unsure], least_confidence=0.82) == []
    cut = Step(action="c", observation="", terminal="truncated", reason="window")  # the world said nothing there
    outgrown = unsure.model_copy(update={"steps": [unsure.steps[0], cut]})
    assert sureness(outgrown) == pytest.approx(0.9)
    assert chosen([outgrown], "all", least_confidence=0.80) == [outgrown]
    mute = unsure.model_copy(update={"steps": [Step(action="a", observation="o", terminal="success")]})
    with pytest.raises(ConfigError, match="do not tell how sure their world was"):
        sureness(mute)


def test_draws_of_who_does_the_same_each_time_are_refused() -> None:
    sampling = AgentSpec("policy", {"model": "m", "temperature": 1.0})
    assert [draw.params["sample"] for draw in draws(sampling, 3)] == [0, 1, 2]
    assert draws(WALKER, 1) == [WALKER]
    for greedy in (WALKER, AgentSpec("policy", {"model": "m"}), AgentSpec("scripted-alfworld")):
        with pytest.raises(ConfigError, match="would all be the same"):
            draws(greedy, 2)


def test_imagined_episodes_are_marked_and_say_who_imagined_them(liar: Path, tmp_path: Path) -> None:
    place = Place(CORRIDOR, str(liar))
    summary = synthesize(tmp_path, place, [WALKER], "train", tasks=3, max_steps=4)
    assert summary["outcomes"] == {"success": 3}
    assert (summary["kept"], summary["imagined_steps"]) == (3, 3)
    for played in read(tmp_path / "trajectories.jsonl"):
        assert is_imagined(played) and played.imagined is True
        assert (played.env.name, played.env.version) == ("world-model:corridor", str(liar))
        assert played.model_extra is not None and played.model_extra["world"]["model"] == str(liar)
        really = Corridor(3).reset(played.task.id)
        assert (played.initial_observation, played.initial_context) == (really.text, really.initial_context)
        assert played.task.instruction == really.instruction
    assert all(not t.steps for t in read(tmp_path / "starts.jsonl"))  # reality was not played
    before = (tmp_path / "rollouts.jsonl").read_bytes()
    assert synthesize(tmp_path, place, [WALKER], "train", tasks=3, max_steps=4) == summary
    assert (tmp_path / "rollouts.jsonl").read_bytes() == before
    with pytest.raises(ConfigError, match="other settings"):
        synthesize(tmp_path, place, [WALKER], "train", tasks=3, max_steps=5)


def test_tasks_may_begin_as_recorded_episodes_did(liar: Path, demonstrations: Path, tmp_path: Path) -> None:
    place = Place(EnvSpec("nowhere"), str(liar), demonstrations)
    summary = synthesize(tmp_path, place, [WALKER], "train", tasks=4, max_steps=4)
    assert summary["episodes"] == 4
    assert {t.env.name for t in read(tmp_path / "trajectories.jsonl")} == {"world-model:corridor"}
    with pytest.raises(ConfigError, match="5 tasks asked of split 'train'"):
        place.tasks("train", 5, 0)


def test_the_same_call_plays_reality(tmp_path: Path) -> None:
    summary = synthesize(tmp_path, Place(CORRIDOR), [WALKER], "train", tasks=3, max_steps=20)
    assert summary["outcomes"] == {"success": 3}
    assert summary["real_steps"] > 3 and "imagined_steps" not in summary
    assert not any(is_imagined(t) for t in read(tmp_path / "trajectories.jsonl"))


def test_an_agent_behind_a_server_plays_in_either(liar: Path, tmp_path: Path) -> None:
    with recorded(walk) as server:
        agent = AgentSpec("llm", {"model": "m", "base_url": _url(server)})
        imagined = synthesize(tmp_path / "wm", Place(CORRIDOR, str(liar)), [agent], tasks=2, samples=2, max_steps=4)
        real = synthesize(tmp_path / "real", Place(CORRIDOR), [agent], tasks=2, max_steps=20)
    assert imagined["outcomes"] == {"success": 4} and real["outcomes"] == {"success": 2}
    assert len({body["seed"] for body in server.chats}) > 4  # each draw has luck of its own
    assert {step.thought for t in read(tmp_path / "real" / "trajectories.jsonl") for step in t.steps} == {"on we go"}


def _url(server: Recorded) -> str:
    return server.base_url


def test_engines_are_kept_for_the_next_episode(tmp_path: Path) -> None:
    from worldloom.envs.worker import Job

    with Ground(Place(CORRIDOR), tmp_path) as ground:
        for task in ("train-0", "train-1"):
            assert ground.play_one(Job(task, WALKER, 0, "train", 20)).outcome == "success"
        assert ground._engines is not None and len(ground._engines._all) == 1
