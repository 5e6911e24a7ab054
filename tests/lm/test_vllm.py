"""A world behind a real vLLM server, where it is installed (`make peers`)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks import peers
from worldloom.envs.base import Observation
from worldloom.errors import ContextOverflow, ModelError
from worldloom.lm.server import ServerLM
from worldloom.world import Start, WorldModelEnv

pytestmark = [
    pytest.mark.model,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not peers.VLLM_PYTHON.exists(), reason="vLLM is not installed: run `make peers`"),
]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vllm") / "log"


@pytest.fixture(scope="module")
def base_url(smollm2: Path, log: Path) -> Iterator[str]:
    """With our own guesses as its speculation."""
    with peers.vllm(smollm2, log, speculation=peers.OURS, eager=True) as found:
        yield found


def test_it_imagines(base_url: str, log: Path) -> None:
    assert "Loaded custom proposer class 'worldloom.lm.vllm_drafts.Proposer'" in log.read_text()
    lm = ServerLM(base_url=base_url, model=peers.SERVED)
    world = WorldModelEnv(lm, {"t": Start("all", Observation("You are in a room with a red door."))}, max_new_tokens=8)
    world.reset("t")
    first, second = world.step("look"), world.step("open the red door")
    assert first.observation
    assert second.observation
    twin = world.fork()
    world.rewind(2)
    assert world.step("look") == first
    assert twin.step("look").observation


def test_many_ask_at_once(base_url: str) -> None:
    lm = ServerLM(at_once=4, base_url=base_url, model=peers.SERVED)

    def told(number: int) -> str:
        return lm.session(None, f"You are in room {number}.").step("look", 8)

    with ThreadPoolExecutor(12) as threads:
        assert len(list(threads.map(told, range(12)))) == 12


def test_what_does_not_fit_is_told_as_that(base_url: str) -> None:
    lm = ServerLM(base_url=base_url, model=peers.SERVED)
    with pytest.raises(ContextOverflow):
        lm.session(None, "word " * 5000).step("look")
    world = WorldModelEnv(lm, {"t": Start("all", Observation("word " * 5000))})
    world.reset("t")
    assert world.step("look").truncated


def test_an_unknown_model_is_named_with_those_there_are(base_url: str) -> None:
    with pytest.raises(ModelError, match="the server lists: world"):
        ServerLM(base_url=base_url, model="nobody").session(None, "A room.").step("look")
