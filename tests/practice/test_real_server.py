"""A real language model behind a real server acts while it is verified, plans, and is rehearsed; what it says does not
matter."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lm.serving import Served, serve
from tests.practice.kiosk import Kiosk, Seller
from worldloom.agents import AgentSpec
from worldloom.envs import EnvSpec
from worldloom.practice.limits import Limits
from worldloom.practice.plan import Search
from worldloom.practice.plan_run import plan
from worldloom.practice.rehearse_run import World, rehearse
from worldloom.practice.verify import Check
from worldloom.practice.verify_run import verify
from worldloom.rollout import rollout
from worldloom.trajectory import read, write

KIOSK = EnvSpec("tests.practice.kiosk:Kiosk")


@pytest.fixture(scope="module")
def served(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(smollm2, tmp_path_factory.mktemp("serve") / "log") as found:
        yield found


@pytest.mark.model
def test_a_real_model_looks_ahead_and_is_rehearsed(served: Served, tmp_path: Path) -> None:
    where = {"model": served.model, "base_url": served.base_url, "max_tokens": 4, "timeout_s": 300.0}
    agent = AgentSpec("llm", {**where, "prompt": "Answer with one action.\nAction: look"})
    data = tmp_path / "logged.jsonl"
    write(data, [rollout(Kiosk(), Seller(["red"]), "0", split="test", max_steps=8)])
    world, size = f"retrieval:{data}", {"split": "test", "tasks": 1, "max_steps": 2, "workers": 1}

    found = verify(tmp_path / "verify", world, KIOSK, [agent], Check(["*"]), [0, 1], threshold=0.5, **size)
    dry, held = found["utility"]["arms"].values()
    assert (dry["errors"], dry["real_steps"], dry["imagined_steps"]) == (0, 2, 2)  # each action is judged
    assert (held["errors"], held["real_steps"]) == (0, 2)

    found = plan(tmp_path / "plan", world, KIOSK, [agent], [Search(width=2, depth=2, cost=4)], **size)
    alone, planned = found["utility"]["arms"].values()
    assert (alone["errors"], alone["real_steps"], alone["imagined_steps"]) == (0, 2, 0)
    assert (planned["errors"], planned["real_steps"]) == (0, 2)
    assert 2 <= planned["imagined_steps"] <= 4

    report = rehearse(tmp_path / "rehearse", agent, World(world, data), Limits(), tasks=1, max_steps=2)
    assert report["measured"]["errors"]["value"] == 0.0
    (episode,) = read(tmp_path / "rehearse" / "agent.jsonl")
    assert (len(episode.steps), episode.agent.name) == (2, "llm")
