"""Who acts: agents that see text and say actions, by name."""

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from worldloom.agents.base import Agent, Decision, Start
from worldloom.envs import construct, imported, suggest
from worldloom.errors import ConfigError, WorldloomError
from worldloom.runs import as_json
from worldloom.texts import pairs

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
    "hasty-webshop": "worldloom.agents.webshop_hasty:HastyShopper",
    "idle": "worldloom.agents.gold:Idle",
    "gold": "worldloom.agents.gold:GoldFollower",
    "noisy-gold": "worldloom.agents.slips:NoisyGold",
    "llm": "worldloom.agents.llm:LLMAgent",
    "policy": "worldloom.agents.policy:PolicyAgent",
    "replay": "worldloom.agents.gold:Replay",
}
SECRET = re.compile(r"api_?key|password|secret|access_token", re.IGNORECASE)

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
    """What another process needs to build an agent: a name of ``AGENTS`` or ``"module:Class"``.

    It is written down with the run, so ``params`` are kept as JSON gives them back (tuples as lists).

    Raises:
        ConfigError: a parameter is none that JSON has a form for, or a secret.
    """

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "AgentSpec":
        """Read NAME or NAME:KEY=VALUE,KEY=VALUE; NAME may be MODULE:CLASS.

        Raises:
            ConfigError: a parameter is not KEY=VALUE.
        """
        name, _, params = text.partition(":")
        if params and "=" not in params.partition(":")[0]:
            own_class, _, params = params.partition(":")
            name = f"{name}:{own_class}"
        return cls(name, pairs(params.split(",") if params else []))

    def __post_init__(self) -> None:
        if secret := [name for name in self.params if SECRET.search(name)]:
            raise ConfigError(
                f"agent {self.name!r}: {secret[0]} would be written down with the run; leave it out and set it in the "
                "environment instead (for llm: OPENAI_API_KEY)"
            )
        object.__setattr__(self, "params", as_json(self.params, f"agent {self.name!r}"))

    def build(self) -> Agent:
        """Build it.

        Raises:
            ConfigError: no such agent, module, class or parameter, or the class cannot be used as an agent.
        """
        try:
            agent = make(self.name, **self.params)
            as_json(agent.ref.params, f"agent {self.name!r}")
        except WorldloomError:
            raise
        except Exception as error:
            hint = "; an agent derives from worldloom.agents.Agent and has a `name`" if _lacks(error) else ""
            raise ConfigError(f"agent {self.name!r} cannot be built: {type(error).__name__}: {error}{hint}") from error
        return agent


def _lacks(error: Exception) -> bool:
    return isinstance(error, AttributeError) and error.name in ("name", "params", "ref")
