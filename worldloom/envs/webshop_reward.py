"""What a purchase is worth, as Yao et al. 2022 ("WebShop", section 3 and appendix) and the released engine have it:

    r = r_type * (attributes met + options met + price met) / (attributes + options + 1)

Two of its helpers are not on PyPI and have a stand-in: nouns of titles are found by HanTa instead of spaCy's
``en_core_web``, and colours are reduced to the first of ``COLOURS`` that they name instead of WebShop's own list.
"""

import re
import threading
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from worldloom.envs.webshop_catalogue import Goal, Product
from worldloom.errors import MissingDependency

ALIKE = 85  # token-set ratio above which two phrases say the same
EXACT = ("size",)
COLOURS = (
    "aqua", "beige", "black", "blue", "bronze", "brown", "burgundy", "champagne", "charcoal", "chocolate", "coffee",
    "copper", "coral", "cream", "gold", "gray", "green", "grey", "indigo", "ivory", "khaki", "lavender", "leopard",
    "lilac", "magenta", "maroon", "mint", "multicolor", "navy", "olive", "orange", "peach", "pink", "plum", "purple",
    "red", "rose", "rust", "salmon", "sand", "silver", "tan", "taupe", "teal", "turquoise", "violet", "white", "wine",
    "yellow",
)  # fmt: skip
_one_at_a_time = threading.Lock()


class Reward(NamedTuple):
    """``value`` in [0, 1] and what it is made of."""

    value: float
    r_type: float
    attributes: int
    options: int
    price: bool


def reward(product: Product, options: Mapping[str, str], goal: Goal) -> Reward:
    """What buying a product with some options chosen is worth for a goal."""
    met = sum(_has_attribute(product, attribute) for attribute in goal.attributes)
    chosen = sum(_is_wanted(product, name, value, goal.options.values()) for name, value in options.items())
    chosen = min(chosen, len(goal.options))  # another product can have more options than were asked for
    cheap = goal.price_upper is None or product.price <= goal.price_upper
    share = (met + chosen + cheap) / (len(goal.attributes) + len(goal.options) + 1)
    kind = r_type(product, goal.product)
    return Reward(kind * share, kind, met, chosen, cheap)


def r_type(bought: Product, wanted: Product) -> float:
    """How far a product is of the wanted kind: 1, 0.5, 0.1 or 0."""
    desired, found = nouns(wanted.title), nouns(bought.title)
    title = len(desired & found) / len(desired) if desired else 0.2
    if title == 0.0:
        return 0.0
    if title < 0.1:
        return 0.1
    alike = bought.query == wanted.query or len(set(bought.categories) & set(wanted.categories)) >= 2
    return 1.0 if alike or title > 0.2 else 0.5


def _has_attribute(product: Product, attribute: str) -> bool:
    return any(_alike(own, attribute) for own in product.attributes) or _mentions(product, attribute)


def _is_wanted(product: Product, name: str, value: str, wanted: Iterable[str]) -> bool:
    value, wishes = colour(value), [colour(wish) for wish in wanted]
    same = value in wishes if name.lower() in EXACT else any(_alike(wish, value) for wish in wishes)
    return same or _mentions(product, value)


def _mentions(product: Product, phrase: str) -> bool:
    return any(phrase in text.lower() for text in (product.title, " ".join(product.features), product.description))


@cache
def _alike(one: str, other: str) -> bool:
    from rapidfuzz import fuzz, utils

    return round(fuzz.token_set_ratio(one, other, processor=utils.default_process)) > ALIKE


def colour(text: str) -> str:
    """The plain colour that a text names, else the text."""
    return next((name for name in COLOURS if name in text), text)


@cache
def nouns(title: str) -> frozenset[str]:
    """The common and proper nouns of a title, lower case."""
    with _one_at_a_time:
        tagged = _tagger().tag_sent(re.findall(r"[\w'-]+|[^\w\s]", title))
    return frozenset(word.lower() for word, _, tag in tagged if tag.startswith(("NN", "NP")))


@cache
def _tagger() -> Any:
    try:
        from HanTa.HanoverTagger import HanoverTagger
    except ImportError as error:
        raise MissingDependency(
            f'WebShop\'s reward needs a tagger ({error}): pip install "worldloom[webshop]"'
        ) from error
    return HanoverTagger("morphmodel_en.pgz")
