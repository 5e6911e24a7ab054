"""Who acts: an agent sees text and says an action."""

import copy
import hashlib
import inspect
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from worldloom.errors import ConfigError
from worldloom.trajectory import AgentRef

HELD_BACK = "Your action was held back and nothing has changed: {!r} is not expected to succeed. Choose another action."


class Decision(NamedTuple):
    """An action, and the thought before it if there was one."""

    action: str
    thought: str | None = None


class Finished(Exception):
    """Raised by ``Agent.act``: there is nothing more that the agent would do. The episode is then truncated."""


class Start(NamedTuple):
    """What an agent may know when an episode begins.

    ``gold_actions`` is None unless the environment gave a winning plan; only gold followers read it.
    """

    task_id: str
    text: str
    instruction: str | None
    seed: int
    gold_actions: Sequence[str] | None = None


def chances(**values: float) -> tuple[float, ...]:
    """The values, which are chances.

    Raises:
        ConfigError: one is not a number from 0 to 1; names it.
    """
    for name, value in values.items():
        if not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ConfigError(f"{name} is a chance between 0 and 1, not {value!r}")
    return tuple(values.values())


class Agent(ABC):
    """Acts from text alone, so that it can act in a real and in an imagined world alike."""

    name: str
    together = False
    """Whether its episodes are to be played in one process, since it keeps a language model there for all of them."""

    @property
    def params(self) -> dict[str, Any]:
        """The settings that make this agent differ from others of its name: its constructor's arguments, kept under
        their names."""
        named = inspect.signature(type(self)).parameters
        return {name: getattr(self, name) for name in named if hasattr(self, name)}

    @property
    def ref(self) -> AgentRef:
        """How trajectories name this agent."""
        return AgentRef(name=self.name, params=self.params)

    @abstractmethod
    def begin(self, start: Start) -> None:
        """An episode begins."""

    @abstractmethod
    def act(self, observation: str) -> Decision:
        """Say the next action; ``observation`` is the newest text (at first, that of ``Start``).

        Raises:
            Finished: there is none.
        """

    def held_back(self, action: str, observation: str) -> Decision:
        """Say what to do instead of an action that was held back before it was taken (``worldloom.practice.verify``).

        ``observation`` is still the newest text of the world. Unless an agent has a way of its own to react, it is told
        in words (``HELD_BACK``), as if the world had said so.
        """
        return self.act(HELD_BACK.format(action))

    def did(self, action: str) -> None:  # noqa: B027
        """Hear that another action than the one just said was taken in the agent's name (``worldloom.practice.plan``).

        An agent that keeps no account of its own actions has nothing to do here.
        """

    def fork(self, seed: int | None = None) -> "Agent":
        """The same agent at the same moment, to go on by itself.

        With a ``seed``, what it does at random from here on depends on the seed; that is what ``self.random`` draws.
        """
        twin = copy.deepcopy(self)
        drawing = getattr(twin, "random", None)
        if seed is not None and isinstance(drawing, random.Random):
            drawing.seed(f"{seed} {drawing.random()}")
        return twin

    def rng(self, start: Start) -> random.Random:
        """Randomness that depends on nothing but task, agent and seed."""
        key = f"{start.task_id}\0{self.name}\0{sorted(self.params.items())}\0{start.seed}"
        return random.Random(hashlib.sha256(key.encode()).digest())
