"""A gold follower that slips as people do at a desk: wrong numbers, steps left out, steps in the wrong order."""

import random
import re
from collections.abc import Sequence

from worldloom.agents.base import Agent, Decision, Start, chances
from worldloom.errors import ConfigError

NUMBERED = re.compile(r"\w*\d\w*")
QUOTED = re.compile(r"(['\"])(\w[^'\"]+)\1")


class NoisyGold(Agent):
    """Follows the environment's winning plan with slips; the plan's last step, which often ends the episode, stays.

    The slips are drawn when the episode begins. A slip in a step is noticed: the right step follows it, unless it is
    left out itself.

    Args:
        wrong: chance that a step is first taken with a slip: one digit wrong or, without digits, a letter left out.
        skip: chance that a step is left out.
        swap: chance that a step comes after the one that should follow it.
        repeat: chance that a step is taken twice.

    Raises:
        ConfigError: a chance is not within 0 and 1; on ``begin``, the environment gives no plan.
    """

    name = "noisy-gold"

    def __init__(self, wrong: float = 0.15, skip: float = 0.05, swap: float = 0.05, repeat: float = 0.05):
        found = chances(wrong=wrong, skip=skip, swap=swap, repeat=repeat)
        self.wrong, self.skip, self.swap, self.repeat = found

    def begin(self, start: Start) -> None:
        if not start.gold_actions:
            raise ConfigError(f"{start.task_id!r} has no gold plan; build the environment with gold=True if it can")
        *steps, last = start.gold_actions
        rng = self.rng(start)
        self.actions = [*self._slipped(self._swapped(steps, rng), rng), last]
        self.at = 0

    def _swapped(self, steps: Sequence[str], rng: random.Random) -> list[str]:
        order = list(steps)
        for n in range(len(order) - 1):
            if rng.random() < self.swap:
                order[n], order[n + 1] = order[n + 1], order[n]
        return order

    def _slipped(self, steps: Sequence[str], rng: random.Random) -> list[str]:
        taken: list[str] = []
        for step in steps:
            if rng.random() < self.wrong:
                taken.append(misspelt(step, rng))
            if rng.random() >= self.skip:
                taken += [step] * (2 if rng.random() < self.repeat else 1)
        return taken

    def act(self, observation: str) -> Decision:
        self.at += 1
        return Decision(self.actions[min(self.at, len(self.actions)) - 1])


def misspelt(action: str, rng: random.Random) -> str:
    """The action with one digit of a numbered name changed, or a letter left out of something in quotes."""
    names = list(NUMBERED.finditer(action))
    if names:
        name = rng.choice(names)
        place = rng.choice([n for n in range(*name.span()) if action[n].isdecimal()])
        return action[:place] + str((int(action[place]) + rng.randint(1, 9)) % 10) + action[place + 1 :]
    words = [match.span(2) for match in QUOTED.finditer(action)]
    if not words:
        return action
    place = rng.randrange(*rng.choice(words))
    return action[:place] + action[place + 1 :]
