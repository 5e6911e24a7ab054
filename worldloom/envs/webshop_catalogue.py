"""WebShop's products and shopping goals, read from its own data files, and its search.

Files, fields, goals and splits follow Yao et al. 2022 ("WebShop", section 3) and its released engine. Two things are
drawn by seed here that it draws anew at each start: a price within a product's range, and a goal's highest price.
"""

import gzip
import itertools
import json
import os
import random
import re
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from worldloom.cache import cache_dir
from worldloom.errors import EnvError, MissingDependency

PRODUCT_FILES = ("products_1k.json.gz", "items_shuffle_1000.json", "items_shuffle_1000.json.gz")
GOAL_FILES = ("items_ins_v2_1000.json.gz", "items_ins_v2_1000.json")
# Where WebShop's setup.sh takes its small data set from.
OFFICIAL = {
    "items_shuffle_1000.json": "https://drive.google.com/uc?export=download&id=1EgHdxQ_YxqIQlvvq5iKlCrkEKR6-j0Ib",
    "items_ins_v2_1000.json": "https://drive.google.com/uc?export=download&id=1IduG0xl544V_A_jv3tHXC0kyFi7PnyBu",
}
SPLITS = {"test": slice(0, 500), "valid": slice(500, 1500), "train": slice(1500, None)}  # of the shuffled goals
SHUFFLE = 233
PRICES = [10.0 * n for n in range(1, 100)]  # what a goal's highest price may be
FOUND = 50  # products that a search gives


@dataclass(frozen=True)
class Product:
    """One thing on sale."""

    asin: str
    title: str
    description: str
    features: tuple[str, ...]
    attributes: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    price_tag: str
    price: float
    kind: str
    """Its department."""
    query: str
    """The search by which it was found when the data were made."""
    categories: tuple[str, ...]
    rating: str = "N.A."
    reviews: tuple[str, ...] = ()


@dataclass(frozen=True)
class Goal:
    """What somebody wants: a product like ``product``, with these attributes and options, for at most a price."""

    id: str
    product: Product
    instruction: str
    attributes: tuple[str, ...]
    options: Mapping[str, str]
    price_upper: float | None


class Catalogue:
    """All products, goals and the search index; never changed after it was made, so threads may share it."""

    def __init__(self, products: Iterable[Product], wishes: Mapping[str, Any]):
        self.products = {product.asin: product for product in products}
        goals = [goal for p in self.products.values() for goal in _goals(p, wishes.get(p.asin, {}))]
        random.Random(SHUFFLE).shuffle(goals)
        self.goals = {goal.id: goal for goal in goals}
        self.splits = {split: tuple(goal.id for goal in goals[part]) for split, part in SPLITS.items()}
        self._index()

    def _index(self) -> None:
        try:
            import bm25s
            import Stemmer
        except ImportError as error:
            raise MissingDependency(
                f'WebShop\'s search is not installed ({error}): pip install "worldloom[webshop]"'
            ) from error
        self._tokenize = bm25s.tokenization.Tokenizer(stemmer=Stemmer.Stemmer("english"), stopwords="en")
        texts = [_indexed(product) for product in self.products.values()]
        self._bm25 = bm25s.BM25()
        self._bm25.index(self._tokenize.tokenize(texts, show_progress=False), show_progress=False)
        self._order = list(self.products.values())

    @cache  # noqa: B019 - a catalogue lives as long as the process
    def search(self, query: str) -> tuple[Product, ...]:
        """The best products for some words, by BM25; of equals the one that the file has first."""
        [tokens] = self._tokenize.tokenize([query.lower()], update_vocab=False, show_progress=False)
        if not tokens:
            return ()
        scores = self._bm25.get_scores(tokens)
        best = sorted((n for n in range(len(scores)) if scores[n] > 0), key=lambda n: (-scores[n], n))
        return tuple(self._order[n] for n in best[:FOUND])


def _indexed(product: Product) -> str:
    options = " ".join(f"{name}: {', '.join(values)}" for name, values in product.options.items())
    return " ".join([product.title, product.description, *product.features[:1], options]).lower()


def _goals(product: Product, wish: Mapping[str, Any]) -> Iterable[Goal]:
    """One goal for each choice of options, as WebShop's synthetic goals."""
    if not wish.get("instruction"):
        return
    upper = _price_upper(product)
    price = f", and price lower than {upper:.2f} dollars" if upper else ""
    names = sorted(product.options)
    for number, choice in enumerate(itertools.product(*(product.options[name] for name in names))):
        options = dict(zip(names, choice, strict=True))
        said = ", and ".join(f"{name}: {value}" for name, value in options.items())
        text = wish["instruction"] + (f" with {said}" if said else "") + price
        yield Goal(f"{product.asin}-{number:04d}", product, text, tuple(wish["instruction_attributes"]), options, upper)


def _price_upper(product: Product) -> float | None:
    above = [price for price in PRICES if price > product.price][:4]
    if len(above) < 2:
        return None
    return max(random.Random(f"price {product.asin}").sample(above, 2))


def product_of(row: Mapping[str, Any]) -> Product:
    """A product from a row of WebShop's file, before or after its own engine has worked on it."""
    pricing = row.get("pricing") or [100.0]
    if isinstance(pricing, str):
        pricing = [float(re.sub(r"[^\d.]", "", price)) for price in pricing.split("$")[1:]] or [100.0]
    features = row.get("small_description") or []
    reviews = row.get("Reviews") or []
    return Product(
        asin=row["asin"],
        title=row["name"],
        description=row.get("full_description") or "",
        features=tuple(features if isinstance(features, list) else [features]),
        attributes=tuple(row.get("Attributes") or ()),
        options=row_options(row),
        price_tag=" to ".join(f"${price}" for price in pricing[:2]),
        price=pricing[0] if len(pricing) == 1 else random.Random(f"cost {row['asin']}").uniform(*pricing[:2]),
        kind=row["category"],
        query=row["query"].lower().strip(),
        categories=tuple(part.strip() for part in row["product_category"].split("›")),
        rating=str(row.get("Rating") or "N.A."),
        reviews=tuple(f"{review.get('score')}: {review.get('body', '')}" for review in reviews),
    )


def row_options(row: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Option name -> values, lower case, from either form of the file."""
    if row.get("options"):
        return {name: tuple(values) for name, values in row["options"].items()}
    custom = row.get("customization_options") or {}
    return {
        name.lower(): tuple(entry["value"].strip().replace("/", " | ").lower() for entry in entries)
        for name, entries in custom.items()
        if entries
    }


@cache
def catalogue(folder: str | None = None) -> Catalogue:
    """The catalogue of a folder; default ``$WEBSHOP_DATA``, else where ``fetch`` puts it.

    Raises:
        MissingDependency: the files are not there.
        EnvError: a file is broken.
    """
    place = Path(folder or os.environ.get("WEBSHOP_DATA") or cache_dir() / "webshop").expanduser()
    rows, wishes = _read(place, PRODUCT_FILES), _read(place, GOAL_FILES)
    known: dict[str, Any] = {}
    for row in rows:
        if len(row["asin"]) <= 10 and row["asin"] not in known:
            attributes = row.get("Attributes") or wishes.get(row["asin"], {}).get("attributes", [])
            known[row["asin"]] = product_of({**row, "Attributes": attributes})
    return Catalogue(known.values(), wishes)


def _read(folder: Path, names: Sequence[str]) -> Any:
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        raise MissingDependency(
            f"WebShop's data are not at {folder} ({' or '.join(names)}): run `worldloom fetch webshop`, or set "
            "WEBSHOP_DATA to the folder that holds them"
        )
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return json.loads(data)
    except (OSError, ValueError) as error:
        raise EnvError(f"{path}: cannot be read ({error}); fetch it again with `worldloom fetch webshop`") from error


def fetch(folder: Path | None = None) -> Path:
    """Download WebShop's small data set (MIT licence) from where its authors offer it.

    Raises:
        MissingDependency: it cannot be reached.
    """
    place = folder or cache_dir() / "webshop"
    place.mkdir(parents=True, exist_ok=True)
    for name, url in OFFICIAL.items():
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                data = answer.read()
            json.loads(data)
        except (OSError, ValueError) as error:
            raise MissingDependency(
                f"{url} does not give {name} ({error}); fetch it where there is a network and put it into {place}"
            ) from error
        (place / name).write_bytes(data)
    return place
