"""A scripted support agent that acts from text alone, with a skill knob."""

import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

from worldloom.agents.base import Agent, Decision, Start, chances
from worldloom.agents.slips import misspelt
from worldloom.agents.support_plans import PLANS, Notes
from worldloom.envs.support_desk import Call

TOOL = re.compile(r"\b(\w+)\(([^()]*)\)")
NO_CASE = "Hello, how may I help you today?"


class SupportAgent(Agent):
    """Works through a plan with probability ``skill`` at each step, else tries something that its notes suggest.

    The plan looks the customer up, opens their records and does what the scenario asks for, as far as its words
    show it; then the agent says that it is done. Without the plan it makes calls of the plan out of turn, does what
    was not asked for, mixes up ids, looks again at what it has changed, or, now and then, is done too early.

    Args:
        skill: 0 acts at random, 1 works through the plan.
        invalid: share of the random steps that no desk understands: ids that are not, unknown tools, broken JSON.
    """

    name = "scripted-support"

    def __init__(self, skill: float = 1.0, invalid: float = 0.15):
        self.skill, self.invalid = chances(skill=skill, invalid=invalid)

    def begin(self, start: Start) -> None:
        self.random = self.rng(start)
        self.notes = Notes(start.instruction or start.text)
        head = start.text.partition("\n")[0]
        self.plan = next((plan for word, plan in PLANS.items() if word in head), PLANS["shop"])
        self.tools = [name for name, parameters in TOOL.findall(start.text) if not parameters]
        self.last: str | None = None
        self.planned: set[tuple[str, str]] = set()

    def act(self, observation: str) -> Decision:
        if self.last is not None:
            self.notes.hear(self.last, observation)
        self.last = self._work() if self.random.random() < self.skill else self._stray()
        return Decision(self.last)

    def did(self, action: str) -> None:
        self.last = action

    def _work(self) -> str:
        """The first call of the plan that was not made yet, whatever its numbers; done if there is none."""
        for call in self.plan(self.notes):
            named = [value for value in call.arguments.values() if not isinstance(value, int | float)]
            if (call.name, str(named)) not in self.planned:
                self.planned.add((call.name, str(named)))
                return call.text
        return self._done()

    def _done(self) -> str:
        """Say what was found: how many variants are on sale, what was paid or given back."""
        on_sale = [
            str(sum(variant["available"] for variant in product["variants"].values()))
            for product in self.notes.records["product_id"].values()
        ]
        orders = self.notes.all("order_id")
        sums = [str(abs(order["exchange_price_difference"])) for order in orders if order["exchange_price_difference"]]
        sums += [str(payment["amount"]) for order in orders for payment in order["payment_history"]]
        return Call("done", {"message": " ".join(dict.fromkeys(on_sale + sums))}).text

    def _stray(self) -> str:
        return Straying(self.notes, self.plan, self.tools, self.random).action(self.invalid)


class Straying:
    """Random actions: mostly possible by what is known, some of them not."""

    def __init__(self, notes: Notes, plan: Callable[..., Iterator[Call]], tools: list[str], rng: random.Random):
        self.notes, self.random = notes, rng
        self.calls = [*plan(notes), *plan(notes, bold=True), *(Call(name, {}) for name in tools)]

    def action(self, invalid: float) -> str:
        """One action."""
        if self.random.random() < invalid:
            return self._impossible()
        kinds: list[Callable[[], str]] = [self._any, self._mixed_up, self._again, self._early_end]
        return self.random.choices(kinds, [5, 3, 2, 0.4])[0]()

    def _any(self) -> str:
        return self.random.choice(self.calls).text if self.calls else self._early_end()

    def _mixed_up(self) -> str:
        """A call with one of its names replaced by another of the same form."""
        call = self.random.choice(self.calls) if self.calls else Call("calculate", {"expression": "1 + 1"})
        names = [name for name, value in call.arguments.items() if isinstance(value, str | list)]
        if not names:
            return call.text
        name = self.random.choice(names)
        return Call(call.name, {**call.arguments, name: self._other(call.arguments[name])}).text

    def _other(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._other(part) if isinstance(part, str) else part for part in value][self.random.randint(0, 1) :]
        alike = [word for word in self.notes.words if form(word) == form(str(value))]
        return self.random.choice(alike or [value])

    def _again(self) -> str:
        """A look at something that was looked at or changed before."""
        made = list(self.notes.told) or [self._any()]
        return self.random.choice(made[-4:])

    def _early_end(self) -> str:
        return Call("done", {"message": ""}).text

    def _impossible(self) -> str:
        call = self.random.choice(self.calls) if self.calls else Call("get_user_details", {"user_id": "noah_li_1"})
        less = dict(list(call.arguments.items())[1:])
        return self.random.choice(
            [
                misspelt(call.text, self.random),
                misspelt(call.text, self.random),
                Call(call.name, less).text,
                Call(call.name, {**call.arguments, "note": "urgent"}).text,
                Call(
                    self.random.choice(["look_up_customer", "refund", "escalate", "get_details"]), call.arguments
                ).text,
                call.text[:-1],
                json.dumps(call.arguments),
                f"{call.name}({', '.join(map(str, call.arguments.values()))})",
                NO_CASE,
            ]
        )


def form(text: str) -> str:
    """The form of a name: its letters and digits without their values, and how it begins."""
    return re.sub(r"[a-z]+", "a", re.sub(r"\d", "0", text)).replace("A", "a")
