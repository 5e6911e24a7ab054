"""A scripted WebShop agent that acts from text alone, with a skill knob."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from worldloom.agents.base import Agent, Decision, Start, chances

ASIN = re.compile(r"B[0-9A-Z]{9}")
PRICE = re.compile(r",? and price lower than ([\d.]+) dollars")
CHOICE = re.compile(r"(?: with |, and )(?:(?! with )[\w ])+: (.+?)(?=, and [\w ]+: |$)")
DOLLARS = re.compile(r"\$([\d.]+)")
WORD = re.compile(r"[a-z0-9]+")
PART = re.compile(r" \[SEP\] |\n")
EMPTY = frozenset(["find", "me", "for", "with", "and", "in", "of", "the", "a", "an", "that", "is", "are", "to"])
ENOUGH = 0.99  # share of the wanted words that a product must have to be bought at once
LOOKED_AT = 8  # products, before the best of them is bought
BUY = "click[buy now]"
GIVEN_UP = -99.0  # how well a product fits that was held back


class Wish(NamedTuple):
    """What an instruction asks for."""

    words: frozenset[str]
    options: tuple[str, ...]
    most: float

    @classmethod
    def parse(cls, instruction: str) -> "Wish":
        """Read an instruction in the wording of WebShop's synthetic goals; any other gives its words."""
        price = PRICE.search(instruction)
        text = PRICE.sub("", instruction.lower())
        options = tuple(match[1].strip() for match in CHOICE.finditer(text))
        return cls(words_of(CHOICE.sub("", text)), options, float(price[1]) if price else float("inf"))


def words_of(text: str) -> frozenset[str]:
    """The words of a text that say something, without a plural's s."""
    return frozenset(word.removesuffix("s") for word in WORD.findall(text.lower())) - EMPTY - {""}


class Page:
    """What an observation shows."""

    def __init__(self, text: str):
        self.parts = [part.strip("[]") for part in PART.split(text)]
        lower = [part.lower() for part in self.parts]
        self.lower = lower
        self.is_search = "search" in lower and "back to search" not in lower
        self.is_item = "buy now" in lower
        self.is_results = any(part.startswith("page ") for part in lower) and not self.is_item
        self.is_sub = not (self.is_search or self.is_item or self.is_results) and "< prev" in lower

    def products(self) -> Iterator[tuple[str, str, float]]:
        """Code, title and lowest price of each product of a results page."""
        for code, title, price in zip(self.parts, self.parts[1:], self.parts[2:], strict=False):
            if ASIN.fullmatch(code) and (dollars := DOLLARS.search(price)):
                yield code, title, float(dollars[1])

    def clickable(self) -> list[str]:
        """What can probably be clicked, in lower case."""
        known = {"back to search", "< prev", "next >", "description", "features", "reviews", "attributes", "buy now"}
        codes = [part.lower() for part in self.parts if ASIN.fullmatch(part)]
        return [part for part in self.lower if part in known] + codes + self.values()

    def values(self) -> list[str]:
        """Values (and names) of an item's options: what stands between the way back and the title."""
        if not self.is_item or "< prev" not in self.lower:
            return []
        price = next((n for n, part in enumerate(self.lower) if part.startswith("price: ")), 0)
        return self.lower[self.lower.index("< prev") + 1 : max(price - 1, 0)]


class WebShopAgent(Agent):
    """Shops with a purpose with probability ``skill`` at each step, else clicks or searches at random.

    With a purpose it searches for the instruction, opens the products whose titles fit best, reads their attributes,
    and buys the first that has all that is wanted, or the best of eight.

    Args:
        skill: 0 acts at random, 1 always with a purpose.
        invalid: share of the random steps that cannot be done on the page.
    """

    name = "scripted-webshop"
    looks = LOOKED_AT

    def __init__(self, skill: float = 1.0, invalid: float = 0.15):
        self.skill, self.invalid = chances(skill=skill, invalid=invalid)

    def begin(self, start: Start) -> None:
        self.random = self.rng(start)
        self.text = start.instruction or start.text
        self.wish = Wish.parse(self.text)
        self.seen: dict[str, float] = {}
        self.open: str | None = None
        self.titles: dict[str, str] = {}
        self.chosen: set[str] = set()
        self.final: str | None = None
        self.in_sub = self.on_purpose = False

    def act(self, observation: str) -> Decision:
        page = Page(observation)
        self.titles |= {code: title for code, title, _ in page.products()}
        self.on_purpose = self.random.random() < self.skill
        action = self._shop(page) if self.on_purpose else self._wander(page)
        self._note(action)
        return Decision(action)

    def held_back(self, action: str, observation: str) -> Decision:
        """Look at the page again. Of a product that was to be bought on purpose, choose what is wanted and was not
        chosen; if there is nothing, give it up for another one."""
        if self.on_purpose and action == BUY and self.open:
            missing = self._missing(Page(observation))
            if missing:
                self._note(missing[0])
                return Decision(missing[0])
            self.seen[self.open], self.final = GIVEN_UP, None
        return self.act(observation)

    def did(self, action: str) -> None:
        self._note(action)

    def _note(self, action: str) -> None:
        """Remember what was opened and chosen."""
        said = action.partition("[")[2].rstrip("]")
        if ASIN.fullmatch(said.upper()):
            self.open, self.chosen = said.upper(), set()
        elif said in self.wish.options:
            self.chosen.add(said)
        elif said in ("< prev", "back to search") and not self.in_sub:
            self.chosen = set()

    def _shop(self, page: Page) -> str:
        self.in_sub = page.is_sub
        if page.is_search:
            return f"search[{PRICE.sub('', self.text).removeprefix('Find me ')}]"
        if page.is_results:
            return self._pick(page)
        if page.is_item:
            return self._judge(page)
        if page.is_sub and self.open:
            self.seen[self.open] = self._fit(self.titles.get(self.open, "") + " " + " ".join(page.parts[4:]))
        return "click[< prev]"

    def _pick(self, page: Page) -> str:
        """The unseen product that fits best and is cheap enough; at last the best of those seen."""
        found = [(self._fit(title), code) for code, title, price in page.products() if price <= self.wish.most]
        fresh = [(fit, code) for fit, code in found if code not in self.seen]
        if self.final or len(self._wanted()) >= self.looks or not fresh:
            self.final = self.final or self._best()
            shown = [code for _, code in found]
            if self.final in shown or not fresh:
                target = self.final if self.final in shown else None
                return f"click[{target.lower()}]" if target else self._turn(page)
        return f"click[{max(fresh, key=lambda pair: pair[0])[1].lower()}]"

    def _wanted(self) -> list[str]:
        """The products that were looked at and not given up."""
        return [code for code, fit in self.seen.items() if fit > GIVEN_UP]

    def _best(self) -> str | None:
        return max(self._wanted(), key=lambda code: self.seen[code], default=None)

    def _turn(self, page: Page) -> str:
        return next((f"click[{b}]" for b in ("next >", "< prev") if b in page.lower), "click[back to search]")

    def _judge(self, page: Page) -> str:
        """On an item's page: go on, read, choose or buy."""
        code = self.open or ""
        lacking = [value for value in self.wish.options if value not in page.values()]
        if code not in self.seen and lacking:
            self.seen[code] = -len(lacking)
            return "click[< prev]"
        if code not in self.seen:
            return "click[attributes]"
        if self.seen[code] < ENOUGH and code != self.final:
            return "click[< prev]"
        return next(iter(self._missing(page)), BUY)

    def _missing(self, page: Page) -> list[str]:
        """Clicks on what is wanted, is there, and was not chosen."""
        wanted = [value for value in self.wish.options if value in page.values() and value not in self.chosen]
        return [f"click[{value}]" for value in wanted]

    def _fit(self, text: str) -> float:
        return len(self.wish.words & words_of(text)) / max(len(self.wish.words), 1)

    def _wander(self, page: Page) -> str:
        self.in_sub = page.is_sub
        if self.random.random() < self.invalid:
            return self._impossible()
        if page.is_search:
            words = sorted(self.wish.words) or ["shirt"]
            return f"search[{' '.join(self.random.sample(words, self.random.randint(1, min(3, len(words)))))}]"
        options = page.clickable() or ["< prev"]
        weights = [0.3 if option == "buy now" else 1.0 for option in options]
        return f"click[{self.random.choices(options, weights)[0]}]"

    def _impossible(self) -> str:
        word = self.random.choice(sorted(self.wish.words) or ["shirt"])
        return self.random.choice(
            [
                f"click[{word}]",
                f"search[{word}]",
                "click[add to cart]",
                "buy now",
                "click[]",
                "next >",
                f"click[B0{'X' * 8}]",
            ]
        )
