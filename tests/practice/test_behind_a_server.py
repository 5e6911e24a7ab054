"""A policy behind a real OpenAI-compatible server acts as it does here, and practises in an imagined world."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.envs.corridor import Corridor
from tests.lm.serving import Served, serve
from worldloom.agents import AgentSpec
from worldloom.agents.policy import PolicyAgent
from worldloom.envs import EnvSpec
from worldloom.errors import ModelError
from worldloom.lm.base import open_lm
from worldloom.practice.place import Place
from worldloom.practice.synthesize import synthesize
from worldloom.rollout import rollout
from worldloom.trajectory import read

CORRIDOR = EnvSpec("tests.envs.corridor:Corridor", {"longest": 3})


@pytest.fixture(scope="module")
def served(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(policy / "model", tmp_path_factory.mktemp("serve") / "log") as found:
        yield found


def test_the_same_actions_as_here(served: Served, policy: Path) -> None:
    there = PolicyAgent(f"{served.model}@{served.base_url}")
    with Corridor(3) as env:
        for task in ("train-0", "train-1"):
            local = rollout(env, PolicyAgent(str(policy)), task, max_steps=8)
            remote = rollout(env, there, task, max_steps=8)
            assert remote.error is None
            assert remote.actions == local.actions
    with pytest.raises(ModelError, match="is a policy, not a world model"):
        open_lm(f"{served.model}@{served.base_url}")


def test_both_kinds_of_agents_behind_a_server_play_in_a_world_model(served: Served, liar: Path, tmp_path: Path) -> None:
    where = {"model": served.model, "base_url": served.base_url, "temperature": 0.0, "max_tokens": 8}
    agents = [AgentSpec("policy", {"model": f"{served.model}@{served.base_url}"}), AgentSpec("llm", where)]
    summary = synthesize(tmp_path, Place(CORRIDOR, str(liar)), agents, tasks=2, max_steps=2, keep="all")
    assert summary["episodes"] == 4
    assert "error" not in summary["outcomes"]
    assert {t.agent.name for t in read(tmp_path / "rollouts.jsonl") if t.agent} == {"policy", "llm"}
