"""A small real environment in which an action cannot be taken back, and language models that imagine it exactly or not.

A customer wants one of three colours. ``take COLOUR`` puts it on the counter (in place of another), ``sell`` ends the
episode, ``smash COLOUR`` breaks all of that colour for good, ``look`` shows the counter.
"""

import math
from collections.abc import Iterable, Sequence

from worldloom.agents.base import Agent, Decision, Start
from worldloom.envs.base import Environment, Observation, StepInfo, StepResult
from worldloom.errors import ConfigError, EnvError
from worldloom.lm.base import Confidence, check_rewind
from worldloom.protocol import said

COLOURS = ("red", "green", "blue")


class Kiosk(Environment):
    """Task ``n`` wants the colour ``n % 3``; the first text does not say it, the initial context does."""

    name = "kiosk"
    version = "1"

    def __init__(self) -> None:
        self.wanted: str | None = None

    @property
    def splits(self) -> tuple[str, ...]:
        return ("train", "test")

    def task_ids(self, split: str) -> Sequence[str]:
        self.check_split(split)
        return [str(n) for n in (range(10, 22) if split == "train" else range(6))]

    def reset(self, task_id: str, seed: int = 0) -> Observation:
        if not task_id.isdigit():
            raise EnvError(f"no task {task_id!r}")
        self.wanted, self.held, self.broken = COLOURS[int(task_id) % 3], None, set()
        gold = (f"take {self.wanted}", "sell")
        return Observation("A customer comes.", None, f"The customer wants {self.wanted}.", gold)

    def step(self, action: str) -> StepResult:
        if self.wanted is None:
            raise EnvError("call reset")
        verb, _, colour = action.partition(" ")
        if verb == "sell" and self.held:
            won = self.held == self.wanted
            self.wanted = None
            return StepResult("Sold.", float(won), True, False, StepInfo(terminal="success" if won else "failure"))
        return StepResult(self._text(verb, colour), 0.0, False, False, StepInfo(terminal=None, admissible_actions=[
            *(f"take {c}" for c in COLOURS), "sell", "look"]))  # fmt: skip

    def _text(self, verb: str, colour: str) -> str:
        if verb == "take" and colour in COLOURS and colour not in self.broken:
            self.held = colour
            return f"You take {colour}."
        if verb == "smash" and colour in COLOURS:
            self.broken.add(colour)
            self.held = None if self.held == colour else self.held
            return "Crash."
        if verb == "look":
            return f"There is {self.held or 'nothing'}."
        return "Nothing happens."

    def close(self) -> None:
        self.wanted = None


class Jammed(Kiosk):
    """Its till breaks in some tasks."""

    def __init__(self, tasks: Sequence[str] = ()):
        super().__init__()
        self.tasks = tasks

    def reset(self, task_id: str, seed: int = 0) -> Observation:
        self.jams = task_id in self.tasks
        return super().reset(task_id, seed)

    def step(self, action: str) -> StepResult:
        if action == "sell" and self.jams:
            raise EnvError("the till is jammed")
        return super().step(action)


class Seller(Agent):
    """Offers colours in an order, each at once sold; the next one when it hears that this was held back."""

    name = "seller"

    def __init__(self, order: Sequence[str] = COLOURS):
        if not set(order) <= set(COLOURS):
            raise ConfigError(f"no such colours: {order}")
        self.order = list(order)

    def begin(self, start: Start) -> None:
        self.at, self.heard = 0, [start.text]

    def act(self, observation: str) -> Decision:
        self.heard.append(observation)
        if observation.startswith("You take"):
            return Decision("sell")
        self.at += 1
        return Decision(f"take {self.order[(self.at - 1) % len(self.order)]}")


class Wanderer(Agent):
    """Takes a colour at random, or sells what it has."""

    name = "wanderer"

    def begin(self, start: Start) -> None:
        self.random = self.rng(start)

    def act(self, observation: str) -> Decision:
        return Decision(self.random.choice([*(f"take {colour}" for colour in COLOURS), "sell"]))


class Session:
    """An imagined episode: the kiosk itself, played again from its beginning for each answer."""

    def __init__(self, lm: "ExactLM", context: str, history: Iterable[tuple[str, str]] = ()):
        self.lm, self.context, self.history = lm, context, list(history)
        self.confidence: Confidence | None = None

    @property
    def taken(self) -> int:
        return len(self.history)

    def step(self, action: str, max_new_tokens: int = 512, sampling: object = None) -> str:
        self.lm.asked.append((*(a for a, _ in self.history), action))
        text, sure = self.lm.answer(self, action), math.log(self.lm.sure_of(self, action))
        self.history.append((action, text))
        self.confidence = Confidence(sure, sure, 1)
        return text

    def really(self, action: str) -> str:
        """What the kiosk answers after this history."""
        kiosk = Kiosk()
        colour = next(c for c in COLOURS if c in self.context)
        kiosk.reset(str(COLOURS.index(colour)))
        for before, _ in self.history:
            kiosk.step(before)
        result = kiosk.step(action)
        return said(result.observation, result.info.get("terminal"))

    def hear(self, action: str, text: str) -> None:
        self.history.append((action, text))

    def fork(self) -> "Session":
        return Session(self.lm, self.context, self.history)

    def rewind(self, steps: int = 1) -> None:
        check_rewind(steps, self.taken)
        del self.history[len(self.history) - steps :]


class ExactLM:
    """Imagines the kiosk exactly, and is as sure as it is told; ``asked`` has the history of each answer."""

    replies = None

    def __init__(self, sure: float = 0.9):
        self.name, self.sure, self.asked = "exact", sure, []

    def session(self, initial_context: str | None, initial_observation: str, env: str | None = None) -> Session:
        assert initial_context, "the world is told what the customer wants"
        return Session(self, initial_context)

    def answer(self, session: Session, action: str) -> str:
        return session.really(action)

    def sure_of(self, session: Session, action: str) -> float:
        """The probability that it gives to its answer."""
        return self.sure


class GivingLM(ExactLM):
    """A broken world: whatever is done succeeds."""

    def answer(self, session: Session, action: str) -> str:
        return "Well done. [SUCCESS]"


class SellingLM(ExactLM):
    """A broken world: every sale succeeds."""

    def answer(self, session: Session, action: str) -> str:
        return session.really(action).replace("[FAILURE]", "[SUCCESS]")
