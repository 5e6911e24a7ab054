"""A world behind a server: what it is sent, and a real one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lm.serving import Served, serve
from worldloom.envs.base import Observation
from worldloom.errors import ModelError
from worldloom.evaluate.one_step import answer_episode
from worldloom.lm.base import open_lm
from worldloom.lm.engine import Sampling
from worldloom.lm.server import ServerLM
from worldloom.protocol import system_text
from worldloom.trajectory import Trajectory
from worldloom.world import Start, WorldModelEnv


class Asked(ServerLM):
    """Answers with how many messages came, instead of sending them."""

    def reply(self, messages: Any, max_new_tokens: int = 512, sampling: Any = None) -> str:
        self.last = [message["content"] for message in messages]
        return f"{len(messages)} messages"


@pytest.fixture
def asked() -> Asked:
    return Asked(base_url="http://127.0.0.1:9/v1", model="m")


def test_a_session_sends_the_whole_history(asked: Asked) -> None:
    session = asked.session("A context.", "A room.")
    assert session.step("look") == "2 messages"
    assert session.step("go") == "4 messages"
    assert asked.last == [system_text("A context.", "A room."), "look", "2 messages", "go"]
    assert session.taken == 2


def test_forks_and_rewinding(asked: Asked) -> None:
    session = asked.session(None, "A room.")
    session.step("one")
    twin = session.fork()
    session.step("two")
    assert (session.taken, twin.taken) == (2, 1)
    session.rewind()
    assert session.messages == twin.messages
    with pytest.raises(ValueError, match="cannot take back 2 steps of 1"):
        session.rewind(2)


def test_one_step_is_generated_after_the_real_history(asked: Asked) -> None:
    steps = [{"action": "look", "observation": "2 messages"}, {"action": "go", "observation": "A hall."}]
    episode = {"env": {"name": "e"}, "task": {"id": "t"}, "initial_observation": "A room.", "steps": steps}
    record = answer_episode(asked, Trajectory.model_validate(episode), "k")
    assert [step["correct"] for step in record["steps"]] == [True, False]
    assert asked.last == ["A room.", "look", "2 messages", "go"]
    assert record["steps"][1]["predicted"] == "4 messages"


def test_the_address_says_that_it_is_a_server() -> None:
    lm = open_lm("qwen/3b@http://127.0.0.1:9/v1")
    assert isinstance(lm, ServerLM)
    assert (lm.name, lm.server.base_url, lm.server.temperature) == ("qwen/3b", "http://127.0.0.1:9/v1", 0.0)
    with pytest.raises(ModelError, match="no server answers"):
        lm.session(None, "A room.").step("look")


@pytest.fixture(scope="module")
def served(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(smollm2, tmp_path_factory.mktemp("serve") / "log") as found:
        yield found


@pytest.mark.model
def test_a_real_server_imagines(served: Served) -> None:
    lm = ServerLM(base_url=served.base_url, model=served.model)
    world = WorldModelEnv(lm, {"t": Start("all", Observation("You are in a room."))}, max_new_tokens=6)
    world.reset("t")
    first = world.step("look")
    world.step("go north")
    world.rewind(2)
    assert world.step("look") == first
    assert first.observation
    drawn = lm.session(None, "You are in a room.").step("look", 6, Sampling(1.5, seed=3))
    assert drawn == lm.session(None, "You are in a room.").step("look", 6, Sampling(1.5, seed=3))
