"""The rooms that the ``alfworld`` package carries: floor plans, and what may lie where.

Read from its ``gen/layouts`` (120 ALFRED floor plans), ``gen/constants.py`` and ``data``; nothing is downloaded. Kinds
are ALFRED's names (``Cabinet``, ``SinkBasin``), positions are metres.
"""

import json
import random
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from worldloom.errors import MissingDependency

__all__ = [
    "HOLDS_ONE",
    "STANDING",
    "FloorPlan",
    "Knowledge",
    "Place",
    "floor_plan",
    "knowledge",
    "position_name",
    "problem_pddl",
]

HOLDS_ONE = ("CoffeeMachine", "HandTowelHolder", "StoveBurner", "ToiletPaperHanger", "TowelHolder")
# Things that the official games show where one may not put them, and the usual places.
STANDING = {
    "DeskLamp": ("Desk", "SideTable", "Dresser", "Shelf", "CoffeeTable"),
    "HousePlant": ("CounterTop", "SideTable", "DiningTable", "CoffeeTable", "Desk", "Dresser"),
    "PaperTowelRoll": ("CounterTop", "DiningTable", "GarbageCan", "Toilet"),
    "TeddyBear": ("Bed",),
    "Television": ("TVStand", "Dresser", "CoffeeTable"),
}
# What lies on a TV stand in the official games, though one may put only a tissue box there.
_LIES_ON_TV_STAND = ("Bowl", "Box", "CreditCard", "KeyChain", "Laptop", "Newspaper", "RemoteControl", "Statue", "Vase",
                     "Watch")  # fmt: skip
# In the official games these are on the floor, where no action reaches them.
_ON_THE_FLOOR = ("BaseballBat", "BasketBall", "Plunger", "TennisRacket")
_STUCK = ("DeskLamp", "HousePlant", "Television")
_PROPERTIES = ("Cleanable", "Heatable", "Coolable", "Toggleable", "Sliceable")
# Receptacles that a floor plan names without saying where: their height in metres, and how many there are.
_UNPOSITIONED = {
    "CoffeeMachine": (0.92, 1),
    "HandTowelHolder": (1.64, 1),
    "StoveBurner": (0.94, 4),
    "Toaster": (0.92, 1),
    "ToiletPaperHanger": (0.87, 1),
    "TowelHolder": (1.30, 1),
}


class Place(NamedTuple):
    """A thing or receptacle with a position, named as ALFRED does: ``Cabinet|+00.68|+00.50|-02.20``."""

    name: str
    kind: str

    @property
    def symbol(self) -> str:
        """The name as a PDDL symbol: ``Cabinet_bar__plus_00_dot_68_bar_...``."""
        symbol = self.name
        for sign, word in (("|", "_bar_"), ("+", "_plus_"), ("-", "_minus_"), (".", "_dot_")):
            symbol = symbol.replace(sign, word)
        return symbol


class Knowledge(NamedTuple):
    """What the ``alfworld`` package says about every room."""

    holds: dict[str, frozenset[str]]
    """Receptacle kind -> the kinds of things that may be put there."""
    actions: dict[str, frozenset[str]]
    """``Cleanable``, ``Heatable``, ``Coolable``, ``Sliceable``, ``Toggleable`` -> kinds of things."""
    openable: frozenset[str]
    vessels: frozenset[str]
    """Things that are receptacles themselves, such as bowls."""
    goals: dict[str, Any]
    """Task type -> its goal in ``pddl`` and its wordings in ``templates``."""
    domain: str
    grammar: str
    layouts: Path


@dataclass(frozen=True)
class FloorPlan:
    """One room, empty."""

    number: int
    kinds: tuple[str, ...]
    """All that is in the room, in the file's order."""
    locations: dict[Place, str]
    """Receptacle -> the place where one stands before it."""
    free: tuple[str, ...]
    """Other places to stand."""

    def receptacles(self, kind: str) -> list[Place]:
        """Where a thing of this kind may lie at the start."""
        return [place for place in self.locations if place.kind in _lies_on(kind)]

    def has(self, kind: str) -> bool:
        """Whether the room has a receptacle of this kind."""
        return any(place.kind == kind for place in self.locations)

    @property
    def movables(self) -> list[str]:
        """The kinds of things here that can be taken from one receptacle and put into another."""
        return [kind for kind in self.kinds if kind not in STANDING and self.receptacles(kind)]


@cache
def _lies_on(kind: str) -> Collection[str]:
    if kind in STANDING:
        return STANDING[kind]
    if kind in _ON_THE_FLOOR:
        return ()
    places = [receptacle for receptacle, held in knowledge().holds.items() if kind in held]
    return [*places, "TVStand"] if kind in _LIES_ON_TV_STAND else places


@cache
def knowledge() -> Knowledge:
    """Read the package's rules once.

    Raises:
        MissingDependency: the ``alfworld`` package is not installed.
    """
    try:
        constants = import_module("alfworld.gen.constants")
        goals = import_module("alfworld.gen.goal_library").gdict
    except ImportError as error:
        message = f"composed ALFWorld games need the alfworld package: pip install 'alfworld>=0.4.2' ({error})"
        raise MissingDependency(message) from error
    package = Path(str(constants.__file__)).parent.parent
    vessels = frozenset(constants.MOVABLE_RECEPTACLES)
    holds = sorted(constants.VAL_RECEPTACLE_OBJECTS.items())
    return Knowledge(
        holds={receptacle: frozenset(held) for receptacle, held in holds if receptacle not in vessels},
        actions={action: frozenset(kinds) for action, kinds in constants.VAL_ACTION_OBJECTS.items()},
        openable=frozenset(constants.OPENABLE_CLASS_LIST) - vessels,
        vessels=vessels,
        goals=goals,
        domain=(package / "data" / "alfred.pddl").read_text(encoding="utf-8"),
        grammar=(package / "data" / "alfred.twl2").read_text(encoding="utf-8"),
        layouts=package / "gen" / "layouts",
    )


@cache
def floor_plan(number: int) -> FloorPlan:
    """The floor plan of a number: 1-30 kitchens, 201-230 living rooms, 301-330 bedrooms, 401-430 bathrooms.

    Raises:
        MissingDependency: the ``alfworld`` package is not installed.
    """
    stem = knowledge().layouts / f"FloorPlan{number}"
    kinds = tuple(json.loads(Path(f"{stem}-objects.json").read_text(encoding="utf-8")))
    positions = json.loads(Path(f"{stem}-openable.json").read_text(encoding="utf-8"))
    points = [(float(x), float(z)) for x, z in import_module("numpy").load(f"{stem}-layout.npy")]
    locations = {_receptacle(name): _location(*stand) for name, stand in sorted(positions.items())}
    rng = random.Random(number)
    known = {place.kind for place in locations}
    for kind in kinds:
        if kind in knowledge().holds and kind not in known:
            locations |= _unpositioned(kind, rng.choice(points), rng)
    used = set(locations.values())
    free = [_location(x, z, 90 * rng.randrange(4), 30) for x, z in points]
    return FloorPlan(number, kinds, locations, tuple(place for place in free if place not in used))


def _receptacle(name: str) -> Place:
    """``Sink|...|SinkBasin`` is a SinkBasin; the rest are what their first part says."""
    kind = name.split("|")[0]
    return Place(name, f"{kind}Basin" if name.endswith("Basin") else kind)


def _unpositioned(kind: str, stand: tuple[float, float], rng: random.Random) -> dict[Place, str]:
    """Receptacles that the floor plan only names, within reach of a place where one can stand."""
    height, count = _UNPOSITIONED.get(kind, (0.0, 1))
    location = _location(*stand, 90 * rng.randrange(4), 45)
    prefix, suffix = (kind.removesuffix("Basin"), f"|{kind}") if kind.endswith("Basin") else (kind, "")
    offsets = [(0.4 + 0.3 * (i % 2), 0.4 + 0.3 * (i // 2)) for i in range(count)]
    names = [position_name(prefix, stand[0] + dx, height, stand[1] + dz) + suffix for dx, dz in offsets]
    return {Place(name, kind): location for name in names}


def position_name(kind: str, x: float, y: float, z: float) -> str:
    """ALFRED's name of a thing at a position in metres: ``Apple|-01.23|+00.97|+02.11``."""
    return "|".join([kind, *(f"{value:+06.2f}" for value in (x, y, z))])


def _location(x: float, z: float, rotation: float, horizon: float) -> str:
    """ALFRED's name of a place to stand: quarter metres, quarter turns, degrees down."""
    parts = ("loc", int(x * 4), int(z * 4), int(rotation // 90), int(horizon))
    return Place("|".join(map(str, parts)), "loc").symbol


def problem_pddl(name: str, plan: FloorPlan, placed: dict[Place, Place], start: str, goal: str) -> str:
    """The PDDL problem of an arrangement (thing -> receptacle), ending in ``goal``.

    It declares only the kinds and places that the game uses: every other one makes the engine's grounding slower.
    """
    receptacles, things = list(plan.locations), sorted(placed)
    otypes, rtypes = sorted({thing.kind for thing in things}), sorted({place.kind for place in receptacles})
    objects = ["agent1 - agent"]
    objects += [f"{kind}Type - otype" for kind in otypes] + [f"{kind}Type - rtype" for kind in rtypes]
    objects += [f"{thing.symbol} - object" for thing in things]
    objects += [f"{place.symbol} - receptacle" for place in receptacles]
    objects += [f"{location} - location" for location in dict.fromkeys([*plan.locations.values(), start])]
    facts = [*_kind_facts(receptacles, things, otypes, rtypes), f"atLocation agent1 {start}"]
    facts += [f"{name.lower()} {thing.symbol}" for name in _PROPERTIES for thing in things
              if thing.kind in knowledge().actions[name]]  # fmt: skip
    facts += [f"inReceptacle {thing.symbol} {placed[thing].symbol}" for thing in things]
    facts += [f"receptacleAtLocation {place.symbol} {location}" for place, location in plan.locations.items()]
    facts += [f"objectAtLocation {thing.symbol} {plan.locations[placed[thing]]}" for thing in things]
    declared, true = "\n        ".join(objects), "\n        ".join(f"({fact})" for fact in facts)
    head = f"\n(define (problem plan_{name})\n(:domain alfred)\n"
    return f"{head}(:objects\n        {declared}\n        )\n\n(:init\n        {true}\n        )\n{goal}"


def _kind_facts(receptacles: list[Place], things: list[Place], otypes: list[str], rtypes: list[str]) -> list[str]:
    known = knowledge()
    facts = [f"receptacleType {place.symbol} {place.kind}Type" for place in receptacles]
    facts += [f"objectType {thing.symbol} {thing.kind}Type" for thing in things]
    facts += [f"canContain {r}Type {o}Type" for r in rtypes for o in otypes if o in known.holds.get(r, ())]
    facts += [f"pickupable {thing.symbol}" for thing in things if thing.kind not in _STUCK]
    facts += [f"isReceptacleObject {thing.symbol}" for thing in things if thing.kind in known.vessels]
    return facts + [f"openable {place.symbol}" for place in receptacles if place.kind in known.openable]
