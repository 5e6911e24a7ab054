"""An agent and a world that are language models behind a real HTTP server, and a planner on a real (tiny) model."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.lm.serving import Answer, completion, recorded
from tests.practice.kiosk import ExactLM, Kiosk, Wanderer
from worldloom.agents.base import HELD_BACK
from worldloom.agents.base import Start as AgentStart
from worldloom.agents.llm import LLMAgent
from worldloom.lm.server import ServerLM
from worldloom.lm.session import LocalLM, Session
from worldloom.practice.plan import Planner, Search
from worldloom.practice.verify import Check, VerifiedAgent
from worldloom.rollout import rollout
from worldloom.world import Start

STARTS = {"2": Start("test", Kiosk().reset("2"))}


def acting(where: str, body: Any) -> Answer:
    """An agent that takes red and sells it, and after a refusal takes blue and sells that."""
    seen = [turn["content"] for turn in body["messages"] if turn["role"] == "user"]
    refused = any("was held back" in text for text in seen)
    action = "sell" if seen[-1].startswith("You take") else f"take {'blue' if refused else 'red'}"
    return Answer(completion(f"Thought: so be it\nAction: {action}"))


def imagining(where: str, body: Any) -> Answer:
    """A world that says what the kiosk says."""
    turns = [turn["content"] for turn in body["messages"]]
    session = ExactLM().session(turns[0], "")
    for action in turns[1:-1:2]:
        session.hear(action, "")
    return Answer(completion(session.really(turns[-1])))


def test_verification_with_an_agent_and_a_world_behind_servers() -> None:
    with recorded(acting) as agent_at, recorded(imagining) as world_at:
        world = ServerLM(base_url=world_at.base_url, model="world")
        agent = VerifiedAgent(LLMAgent("m", agent_at.base_url), world, Check(["sell"], budget=2), STARTS)
        episode = rollout(Kiosk(), agent, "2", max_steps=6)
        assert episode.error is None
        assert (episode.actions, episode.outcome) == (["take red", "take blue", "sell"], "success")
        assert [(v["chance"], v["held"]) for v in agent.verdicts] == [(0.0, True), (1.0, False)]
        told = [turn["content"] for turn in agent_at.chats[-1]["messages"] if turn["role"] == "user"]
        assert told[-3:] == ["You take red.", HELD_BACK.format("sell"), "You take blue."]
        assert episode.agent.dropped_exchanges == 0


def test_planning_with_an_agent_and_a_world_behind_servers() -> None:
    with recorded(acting) as agent_at, recorded(imagining) as world_at:
        world = ServerLM(base_url=world_at.base_url, model="world")
        planner = Planner(LLMAgent("m", agent_at.base_url), world, Search(width=2, depth=3, cost=20), STARTS,
                          admissible=lambda: ["take blue"])  # fmt: skip
        episode = rollout(Kiosk(), planner, "2", max_steps=6)
        assert (episode.actions, episode.outcome) == (["take blue", "sell"], "success")
        (plan,) = episode.agent.plans
        assert (plan["success"], plan["trust"], plan["length"]) == (True, 1.0, 2)
        said = [turn["content"] for chat in agent_at.chats for turn in chat["messages"] if turn["role"] == "assistant"]
        assert "Action: take blue" in said  # it has for its own what was done in its name


@pytest.fixture(scope="module")
def tiny(tiny_lm_folder: Path) -> LocalLM:
    return LocalLM(str(tiny_lm_folder), torch.float32)


def test_histories_imagined_side_by_side_are_those_imagined_alone(
    tiny: LocalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session.step, "__defaults__", (6, None))  # tokens of an answer: random weights know no end
    planner = Planner(Wanderer(), tiny, Search(width=4, depth=2, cost=40), STARTS)
    planner.begin(AgentStart("2", "A customer comes.", None, 0))
    first = planner.act("A customer comes.")
    alone = tiny.session("The customer wants blue.", "A customer comes.")
    assert len(planner._left) == 1
    assert planner._expected == alone.step(first.action)
    assert [step.observation for step in planner._left] == [alone.step(s.decision.action) for s in planner._left]
    assert planner.follower.session is not None and planner.follower.session.taken == 0
