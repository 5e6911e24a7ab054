"""What a back-office agent reads out of requests and answers: which functions are meant, and what to say to them."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

FUNCTION = re.compile(r"\b(\w+)\(([^()]*)\)")
QUOTED = re.compile(r"(?<!\w)['\"‘“]([^'\"]+(?:'\w[^'\"]*)*)['\"’”](?!\w)")
FILE = re.compile(r"\b[\w-]+\.[a-z]{2,4}\b")
NUMBER = re.compile(r"(?<![\w.])\$?(\d+(?:,\d{3})*(?:\.\d+)?)(?!\w)")
DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
DAY = re.compile(r"\b([A-Z][a-z]{2})[a-z]* (\d{1,2})(?:st|nd|rd|th)?,? (\d{4})\b")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
CODE = re.compile(r"\b(?!USD|GBP|EUR|PSI|CVV)[A-Z]{3,4}\b")
NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+(?: [A-Z][a-z]+)*\b")
HASHTAG = re.compile(r"#\w+")
MENTION = re.compile(r"@\w+")
USER = re.compile(r"\bUSR\d+\b")
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
EMPTY = frozenset(("get", "set", "by", "based", "on", "from", "current", "info", "status", "in"))
DOORS = ["driver", "passenger", "rear_left", "rear_right"]

# Words of a request that speak of a function without having any word of its name.
ALSO = {
    "cat": "display read show contents view output",
    "cd": "navigate go enter directory folder",
    "cp": "copy copied",
    "ls": "list files contents directory inventory hidden visible",
    "mv": "move moved rename transfer",
    "mkdir": "create directory folder make",
    "touch": "create file new initiate",
    "echo": "write put content jot",
    "grep": "lines containing identify occurrence keyword",
    "wc": "count words lines characters",
    "rm": "delete remove file",
    "rmdir": "delete remove directory",
    "diff": "compare difference differences alterations juxtapose",
    "du": "disk usage size",
    "tail": "last lines",
    "sort": "alphabetically order",
    "find": "locate search files",
    "pwd": "where current directory",
    "startEngine": "ignite ignition",
    "fillFuelTank": "refuel gallons top",
    "lockDoors": "secure",
    "pressBrakePedal": "start engine",
    "activateParkingBrake": "handbrake",
    "place_order": "buy purchase acquire acquisition snag shares transaction",
    "get_stock_info": "details price information",
    "message_login": "log user id",
    "create_ticket": "file raise submit",
    "get_zipcode_based_on_city": "distance far mileage from",
    "estimate_distance": "far mileage journey",
    "mean": "average",
    "set_navigation": "navigate route destination",
    "authenticate_travel": "log",
    "get_flight_cost": "price",
    "cancel_booking": "trip",
    "post_tweet": "share",
    "authenticate_twitter": "username password",
    "send_message": "notify",
}
# What has to be done first, by what an answer complains of: a call, or a function to be called with what is known.
REMEDIES = (
    ("doors must be locked", "lockDoors(unlock=False, door=['driver', 'passenger', 'rear_left', 'rear_right'])"),
    ("Brake pedal needs", "pressBrakePedal(pedalPosition=1.0)"),
    ("brake fully", "pressBrakePedal(pedalPosition=1.0)"),
    ("Start the engine", "startEngine(ignitionMode='START')"),
    ("No user is currently logged in", "message_login"),
    ("authenticate before", "authenticate_twitter"),
    ("log in to create", "ticket_login"),
    ("log in to", "trading_login(username='user', password='password')"),
)


class Function(NamedTuple):
    """A function as the first text lists it: its parameters, and those that can be left out."""

    name: str
    parameters: tuple[str, ...]
    optional: frozenset[str]

    @classmethod
    def all_in(cls, text: str) -> "list[Function]":
        """The functions that a text lists."""
        found = []
        for name, inside in FUNCTION.findall(text):
            said = [part.strip() for part in re.split(r",(?![^\[\]]*\])", inside) if part.strip()]
            names = tuple(part.partition("=")[0] for part in said)
            found.append(cls(name, names, frozenset(part.partition("=")[0] for part in said if "=" in part)))
        return found

    def fit(self, request: str) -> float:
        """How much a request speaks of it: the share of its name's words, and a little for each kindred word."""
        said = {word.lower().rstrip("s") for word in re.findall(r"[A-Za-z]+", request)}
        own = {word.lower().rstrip("s") for word in PART.findall(self.name)} - EMPTY
        kindred = {word.rstrip("s") for word in ALSO.get(self.name, "").split()}
        return len(own & said) / max(len(own), 1) + 0.35 * len(kindred & said)


class Facts:
    """What the texts of one episode have told, by the keys of the answers."""

    def __init__(self) -> None:
        self.known: dict[str, list[Any]] = {}
        self.paths: list[str] = []
        self.names: list[str] = []
        """Files, folders, users, stocks ... in the order in which they came up."""

    def hear(self, observation: str) -> None:
        """Take in an answer."""
        try:
            self._read(json.loads(observation), "")
        except ValueError:
            return

    def _read(self, said: Any, key: str) -> None:
        if isinstance(said, dict):
            for name, value in said.items():
                self._read(value, name)
        elif isinstance(said, list):
            for value in said:
                self._read(value, key)
        else:
            self.known.setdefault(key.lower(), []).append(said)
            self.paths += [said] if key == "matches" else []
            if isinstance(said, str) and len(said) < 60:
                self.names += [part for part in said.split("/") if part not in (*self.names, ".")]

    def folder_of(self, file: str) -> list[str] | None:
        """The folders that lead from the first one to a file, if a search has shown it."""
        path = next((path for path in self.paths if path.rpartition("/")[2] == file), None)
        return None if path is None else path.removeprefix("./").split("/")[:-1]


class Reading:
    """One request, together with what was said before it, as the source of arguments."""

    def __init__(self, request: str, before: Sequence[str], facts: Facts):
        self.request, self.facts = request, facts
        self.texts = [request, *reversed(before)]

    def call(self, function: Function, made: Sequence[str] = ()) -> str | None:
        """The function with the arguments that the texts suggest; None if one is wanting or there is no new call."""
        firsts = [None] if not function.parameters else list(dict.fromkeys(map(repr, self.first_values(function))))
        for first in firsts or [None]:
            call = self._call(function, first)
            if call is not None and call not in made:
                return call
        return None

    def first_values(self, function: Function) -> list[Any]:
        """What the first argument could be."""
        return list(self.values(function.parameters[0], function.name))

    def _call(self, function: Function, first: str | None) -> str | None:
        said, taken = [], set()
        for number, parameter in enumerate(function.parameters):
            values = (repr(value) for value in self.values(parameter, function.name))
            value = first if number == 0 and first else next((v for v in values if v not in taken), None)
            if value is None and parameter not in function.optional:
                return None
            if value is not None and (parameter not in function.optional or parameter in SAID):
                taken |= {value} if value[0] in "'\"" else set()
                said.append(f"{parameter}={value}")
        return f"{function.name}({', '.join(said)})"

    def values(self, parameter: str, function: str) -> Iterator[Any]:
        """What a parameter could be, the likeliest first."""
        name = parameter.lower()
        yield from self._fixed(name)
        if name in LEARNT or name.endswith("_id"):
            yield from self._learnt(name)
        if "date" in name:
            yield from self._dates()
        elif name in ("file_name", "file_name1", "file_name2", "source") or (name == "name" and function == "find"):
            yield from self._all(FILE)
        elif name in ("folder", "dir_name", "destination", "path"):
            yield from (word for word in self._all(QUOTED) if " " not in word)
        elif name in ("travel_from", "travel_to", "symbol", "stock"):
            yield from self._all(CODE)
        elif name in ("city", "location", "user", "user_name", "first_name", "last_name"):
            yield from self._all(NAME)
        elif name in NUMBERS:
            numbers = (float(number.replace(",", "")) for number in self._all(NUMBER))
            yield from (int(number) if name.endswith("_id") or name in WHOLE else number for number in numbers)
        if name in WORDS:
            yield from sorted(QUOTED.findall(self.request), key=len, reverse=name in LONG)
        yield from self._learnt(name)

    def _fixed(self, name: str) -> Iterator[Any]:
        """What the request says in words of its own."""
        if name in FIXED:
            said = [value for text in self.texts for word, value in FIXED[name] if word and word in text.lower()]
            yield from said + [value for word, value in FIXED[name] if not word]
        if name in ("tags", "mentions"):
            yield (HASHTAG if name == "tags" else MENTION).findall(self.request)
        if name in ("user_id", "receiver_id"):
            yield from USER.findall(self.request)
        if name in ("username", "password", "access_token", "card_id", "booking_id"):
            word = name.replace("_", " ").removesuffix(" id").removeprefix("access ").replace("username", "user ?name")
            yield from re.findall(
                rf"{word}(?: id)?(?: is| as|:| labeled)?,? ['\"]?([\w$!@#%^&*-]*[\d_][\w$!@#%^&*-]*)",
                " ".join(self.texts),
            )

    def _learnt(self, name: str) -> Iterator[Any]:
        """What an answer has told under this name, the newest first."""
        keys = {"citya": ("zipcode",), "cityb": ("zipcode",), "receiver_id": ("user_id",), "ticket_id": ("id",),
                "tweet_id": ("id",), "stocks": ("stock_list",), "liter": ("liter",)}.get(name, (name,))  # fmt: skip
        values = [value for key in keys for value in reversed(self.facts.known.get(key, []))]
        if name == "stocks" and values:
            yield list(reversed(values))
        yield from values

    def _dates(self) -> Iterator[str]:
        yield from self._all(DATE)
        for text in self.texts:
            for month, day, year in DAY.findall(text):
                if month in MONTHS:
                    yield f"{year}-{MONTHS.index(month) + 1:02}-{int(day):02}"

    def _all(self, pattern: re.Pattern[str]) -> Iterator[str]:
        for text in self.texts:
            yield from pattern.findall(text)


STOCKS = (("apple", "AAPL"), ("tesla", "TSLA"), ("microsoft", "MSFT"), ("nvidia", "NVDA"), ("zeta", "ZETA"))
FIXED: dict[str, tuple[tuple[str, Any], ...]] = {
    "ignitionmode": (("", "START"),),
    "unlock": (("unlock", True), ("", False)),
    "door": (("", DOORS),),
    "mode": (("release", "release"), ("brake", "engage"), ("headlight", "on"), ("", "auto")),
    "pedalposition": (("", 1.0),),
    "option": (("fuel", "fuel"), ("batter", "battery"), ("door", "doors"), ("climate", "climate"), ("", "engine")),
    "travel_class": (("business", "business"), ("first", "first"), ("", "economy")),
    "a": (("hidden", True),),
    "order_type": (("sell", "Sell"), ("", "Buy")),
    "sector": (("automobile", "Automobile"), ("", "Technology")),
    "insurance_type": (("comprehensive", "comprehensive"), ("", "travel")),
    "grant_type": (("", "read_write"),),
    "base_currency": (("rmb", "RMB"), ("eur", "EUR"), ("pound", "GBP"), ("", "USD")),
    "target_currency": (("rmb", "RMB"), ("eur", "EUR"), ("pound", "GBP"), ("yen", "JPY"), ("", "USD")),
    "symbol": STOCKS,
    "stock": STOCKS,
}
NUMBERS = frozenset(
    ("price", "amount", "fuelamount", "temperature", "budget_limit", "distance", "value", "liter", "gallon", "speed",
     "insurance_cost", "lines", "fanspeed", "priority", "order_id", "ticket_id", "tweet_id", "number", "precision",
     "card_verification_number", "min_price", "max_price", "threshold", "distancetonextvehicle")
)  # fmt: skip
WHOLE = frozenset(("priority", "lines", "amount", "fanspeed", "precision", "card_verification_number"))
LEARNT = frozenset(("price", "citya", "cityb"))  # better known from an answer than from the request
SAID = frozenset(("file_name", "tags", "mentions", "name", "a", "description", "priority", "booking_id"))
LONG = ("content", "message", "comment_content", "description", "resolution")
WORDS = frozenset(
    (*LONG, "title", "pattern", "keyword", "status", "name", "username_to_follow", "card_number", "user_name")
)
