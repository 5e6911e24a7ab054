"""WebShop in text (Yao et al. 2022): search a catalogue, look at products, choose options, buy.

A shop of our own that follows the released one's pages, buttons and reward on its real catalogue of 1,000 products.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from worldloom.envs.base import Environment, Observation, StepInfo, StepResult
from worldloom.envs.webshop_catalogue import SPLITS, Goal, Product, catalogue
from worldloom.envs.webshop_reward import reward
from worldloom.errors import ConfigError, EnvError
from worldloom.trajectory import Terminal

ON_A_PAGE = 10
ACTION = re.compile(r"(\w+)\[(.+)\]", re.DOTALL)
BACK, PREVIOUS, NEXT, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"
SUB_PAGES = ("Description", "Features", "Reviews", "Attributes")
CONTEXT_PRODUCTS = 20


@dataclass(frozen=True)
class State:
    """Where in the shop somebody is."""

    query: str | None = None
    page: int = 1
    asin: str | None = None
    sub_page: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    bought: bool = False


class WebShop(Environment):
    """Find and buy what an instruction asks for. A purchase ends the episode: reward 1 is a success, less a failure.

    Actions are ``search[words]`` on the first page and ``click[text]`` of whatever the page shows to be clicked; any
    other action shows the page again, as WebShop does. Options that were clicked are not shown: they are remembered.

    Args:
        data: folder of WebShop's files; default ``$WEBSHOP_DATA``, else what ``worldloom fetch webshop`` got.
        layout: ``"sep"``: texts joined by `` [SEP] ``, as in Word2World; ``"plain"``: one a line, buttons in brackets.
        context: what a world model is told besides the first page: ``"none"`` (as in Word2World), or ``"results"``:
            the products that a search for the instruction gives.

    Raises:
        MissingDependency: data or libraries are absent.
    """

    name = "webshop"
    version = "webshop-1"

    def __init__(
        self,
        data: str | None = None,
        layout: Literal["sep", "plain"] = "sep",
        context: Literal["none", "results"] = "none",
    ):
        if layout not in ("sep", "plain") or context not in ("none", "results"):
            raise ConfigError(f"layout={layout!r}, context={context!r}: one of sep/plain, and none/results")
        self.catalogue = catalogue(data)
        self.layout, self.context = layout, context
        self._goal: Goal | None = None
        self._state = State(bought=True)

    @property
    def options(self) -> dict[str, str]:
        """Constructor arguments, without the machine's own data folder."""
        return {"layout": self.layout, "context": self.context}

    @property
    def splits(self) -> tuple[str, ...]:
        """``train``, ``valid`` and ``test``: WebShop's own order of its goals, cut where it cuts it."""
        return tuple(reversed(SPLITS))

    def task_ids(self, split: str) -> Sequence[str]:
        self.check_split(split)
        return self.catalogue.splits[split]

    def reset(self, task_id: str, seed: int = 0) -> Observation:
        """Start a task. There is no chance in the shop, so ``seed`` changes nothing."""
        if task_id not in self.catalogue.goals:
            raise EnvError(f"WebShop has no goal {task_id!r}")
        goal = self._goal = self.catalogue.goals[task_id]
        self._state = State()
        context = self._results_context(goal) if self.context == "results" else None
        return Observation(self._said(), goal.instruction, context, gold_plan(self.catalogue.search, goal))

    def _results_context(self, goal: Goal) -> str:
        found = self.catalogue.search(goal.instruction)[:CONTEXT_PRODUCTS]
        return "\n".join(self._joined([(p.asin, True), (p.title, False), (p.price_tag, False)]) for p in found)

    def step(self, action: str) -> StepResult:
        if self._goal is None or self._state.bought:
            raise EnvError("the episode has ended or none was started: call reset first")
        before, after = self._state, self._after(action)
        self._state = after or before
        if not self._state.bought:
            return StepResult(self._said(), 0.0, False, False, self._info(self._state != before, after is None))
        worth = reward(self._product(), self._state.options, self._goal).value
        text = self._joined([("Thank you for shopping with us!", False), ("Your score (min 0.0, max 1.0)", False),
                             (f"{worth:.4g}", False)])  # fmt: skip
        ending: Terminal = "success" if worth == 1.0 else "failure"
        info = StepInfo(terminal=ending, admissible_actions=[], changed=True, refused=False)
        return StepResult(text, worth, True, False, info)

    def close(self) -> None:
        self._goal, self._state = None, State(bought=True)

    def _info(self, changed: bool, refused: bool) -> StepInfo:
        """What may be clicked; on the first page anything may be searched, so nothing is listed there."""
        info = StepInfo(terminal=None, changed=changed, refused=refused)
        if self._state.query is not None:
            buttons = [f"click[{text.lower()}]" for text, button in self._page() if button]
            info["admissible_actions"] = list(dict.fromkeys(buttons))
        return info

    def _product(self) -> Product:
        return self.catalogue.products[self._state.asin or ""]

    def _after(self, action: str) -> State | None:
        """The state that an action leads to; None if it cannot be done here."""
        match = ACTION.fullmatch(action.strip())
        if match is None:
            return None
        verb, said = match[1], match[2].lower()
        if verb == "search":
            return State(query=said) if self._state.query is None else None
        shown = {text.lower(): text for text, button in self._page() if button}
        return self._clicked(shown[said]) if verb == "click" and said in shown and said != "search" else None

    def _clicked(self, text: str) -> State:
        state = self._state
        if text == BACK:
            return State()
        if text == BUY:
            return replace(state, bought=True)
        if text in (NEXT, PREVIOUS):
            return self._turned(text)
        if state.asin is None:
            return State(query=state.query, page=state.page, asin=text)
        if text in SUB_PAGES:
            return replace(state, sub_page=text)
        return replace(state, options=state.options | {self._option(text): text})

    def _turned(self, text: str) -> State:
        state = self._state
        if state.sub_page is not None:
            return replace(state, sub_page=None)
        if state.asin is not None:
            return State(query=state.query, page=state.page)
        return replace(state, page=state.page + (1 if text == NEXT else -1))

    def _option(self, value: str) -> str:
        """The option that a value belongs to: the last one that has it, as a page's later buttons hide earlier ones."""
        return [name for name, values in self._product().options.items() if value in values][-1]

    def _said(self) -> str:
        return self._joined(self._page())

    def _joined(self, parts: Sequence[tuple[str, bool]]) -> str:
        if self.layout == "sep":
            return " [SEP] ".join(text for text, _ in parts)
        return "\n".join(f"[{text}]" if button else text for text, button in parts)

    def _page(self) -> list[tuple[str, bool]]:
        """What the page shows, and which of it can be clicked."""
        state, goal = self._state, self._goal
        head = [("Instruction:", False), (goal.instruction if goal else "", False)]
        if state.query is None:
            return [("WebShop", False), *head, ("Search", True)]
        back = [*head, (BACK, True)]
        if state.asin is None:
            return [*back, *self._results()]
        page = self._sub_page() if state.sub_page else self._item()
        return [*back, (PREVIOUS, True), *page]

    def _results(self) -> Iterator[tuple[str, bool]]:
        state = self._state
        found = self.catalogue.search(state.query or "")
        yield f"Page {state.page} (Total results: {len(found)})", False
        if state.page > 1:
            yield PREVIOUS, True
        if state.page * ON_A_PAGE < len(found):
            yield NEXT, True
        for product in found[(state.page - 1) * ON_A_PAGE : state.page * ON_A_PAGE]:
            yield from ((product.asin, True), (product.title, False), (product.price_tag, False))

    def _item(self) -> Iterator[tuple[str, bool]]:
        product = self._product()
        for name, values in product.options.items():
            yield name, False
            yield from ((value, True) for value in values)
        yield from ((product.title, False), (f"Price: {product.price_tag}", False))
        yield f"Rating: {product.rating}", False
        yield from ((name, True) for name in SUB_PAGES)
        yield BUY, True

    def _sub_page(self) -> list[tuple[str, bool]]:
        product = self._product()
        texts = {
            "Description": [product.description or "No Description"],
            "Features": product.features or ["No Features"],
            "Reviews": product.reviews or ["No reviews found"],
            "Attributes": [*product.attributes, product.kind, product.query, " › ".join(product.categories)],
        }[self._state.sub_page or ""]
        return [(" ".join(text.split()), False) for text in texts]


def gold_plan(search: Callable[[str], Sequence[Product]], goal: Goal) -> tuple[str, ...] | None:
    """Actions that buy the goal's own product as wanted; None if a search for its title does not show it."""
    wanted = goal.product
    asins = [product.asin for product in search(wanted.title.lower())]
    if wanted.asin not in asins:
        return None
    turns = [f"click[{NEXT.lower()}]"] * (asins.index(wanted.asin) // ON_A_PAGE)
    chosen = [f"click[{value}]" for value in goal.options.values()]
    return (f"search[{wanted.title}]", *turns, f"click[{wanted.asin.lower()}]", *chosen, f"click[{BUY.lower()}]")
