"""Agents that follow a list of actions: the gold plan with noise, or a recorded episode."""

from collections.abc import Sequence

from worldloom.agents.base import Agent, Decision, Finished, Start, chances
from worldloom.errors import ConfigError


class GoldFollower(Agent):
    """Follows the environment's winning plan; at each step, with probability ``noise``, it does something else first.

    A detour is one of ``detours`` (harmless in any of our worlds), a repeated earlier action, or the plan's next
    action broken (its last word dropped), which the world has to refuse.

    Raises:
        ConfigError: on ``begin``, if the environment gives no plan.
    """

    name = "gold"
    detours = ("look", "inventory")

    def __init__(self, noise: float = 0.0):
        (self.noise,) = chances(noise=noise)

    def begin(self, start: Start) -> None:
        if not start.gold_actions:
            raise ConfigError(f"{start.task_id!r} has no gold plan; build the environment with gold=True if it can")
        self.random, self.plan, self.at = self.rng(start), list(start.gold_actions), 0

    def act(self, observation: str) -> Decision:
        if self.at >= len(self.plan):
            raise Finished("the plan is at its end")
        if self.random.random() < self.noise:
            return Decision(self.random.choice([*self.detours, self._broken()]))
        self.at += 1
        return Decision(self.plan[self.at - 1])

    def _broken(self) -> str:
        return self.plan[self.at].rpartition(" ")[0] or "wait"


class Idle(Agent):
    """Does nothing of use, again and again: what it wins, a world gives away (``worldloom.practice.rehearse``)."""

    name = "idle"
    words = ("look", "wait", "do nothing")

    def begin(self, start: Start) -> None:
        self.at = 0

    def act(self, observation: str) -> Decision:
        self.at += 1
        return Decision(self.words[(self.at - 1) % len(self.words)])


class Replay(Agent):
    """Takes given actions in order, whatever happens.

    Raises:
        ConfigError: ``actions`` is one text, not a list of them.
    """

    name = "replay"

    def __init__(self, actions: Sequence[str]):
        if isinstance(actions, str):
            raise ConfigError(f"replay takes a list of actions, not {actions!r}")
        self.actions = list(actions)

    def begin(self, start: Start) -> None:
        self.at = 0

    def act(self, observation: str) -> Decision:
        self.at += 1
        return Decision(self.actions[self.at - 1])
