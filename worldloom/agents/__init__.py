"""Who acts: agents that see text and say actions, by name."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from worldloom.agents.base import Agent, Decision, Start
from worldloom.envs import construct, imported, suggest
from worldloom.errors import ConfigError

AGENTS = {
    "scripted-alfworld": "worldloom.agents.alfworld:ALFWorldAgent",
    "scripted-backoffice": "worldloom.agents.backoffice:BackOfficeAgent",
    "scripted-support": "worldloom.agents.support:SupportAgent",
    "scripted-scienceworld": "worldloom.agents.scienceworld:ScienceWorldAgent",
    "scripted-textworld": "worldloom.agents.textworld:TextWorldAgent",
    "scripted-toolbench": "worldloom.agents.toolbench:ToolBenchAgent",
    "scripted-textworld-coin-collector": "worldloom.agents.textworld_explorer:CoinCollectorAgent",
    "scripted-textworld-cooking": "worldloom.agents.textworld_cook:CookAgent",
    "scripted-textworld-treasure-hunter": "worldloom.agents.textworld_explorer:TreasureHunterAgent",
    "scripted-webshop": "worldloom.agents.webshop:WebShopAgent",
    "gold": "worldloom.agents.gold:GoldFollower",
    "noisy-gold": "worldloom.agents.slips:NoisyGold",
    "llm": "worldloom.agents.llm:LLMAgent",
    "replay": "worldloom.agents.gold:Replay",
}

__all__ = ["AGENTS", "Agent", "AgentSpec", "Decision", "Start", "defaults", "make"]


def make(name: str, **params: Any) -> Agent:
    """Build an agent by its name, or by ``"module:Class"``; ``params`` go to its constructor.

    Raises:
        ConfigError: no such agent or parameter; the message suggests the nearest name.
    """
    if ":" not in name and name not in AGENTS:
        raise ConfigError(f"unknown agent {name!r}{suggest(name, AGENTS)}")
    agent: Agent = construct(AGENTS.get(name, name), params)
    return agent


def defaults(name: str) -> dict[str, Any]:
    """The default parameters of an agent of ``AGENTS``; nothing for a name that is not known."""
    if name not in AGENTS:
        return {}
    parameters = inspect.signature(imported(AGENTS[name])).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


@dataclass(frozen=True)
class AgentSpec:
    """What another process needs to build an agent: a name of ``AGENTS`` or ``"module:Class"``."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def build(self) -> Agent:
        """Build it.

        Raises:
            ConfigError: no such agent, module, class or parameter.
        """
        return make(self.name, **self.params)
