"""ALFWorld games composed from what the ``alfworld`` package itself carries: no download, any number of games.

A task id picks a floor plan, a goal and an arrangement of things; the result is a PDDL problem of the same form as the
official games (ALFWorld 2.1.2), for the same engine, domain and grammar. How many things of a kind there are and where
they tend to lie follows counts over the 4,027 official games.

Splits: ``valid_seen`` has the floor plans of ``train`` but its own arrangements; ``valid_unseen`` has floor plans that
``train`` never shows; ``ood`` has a whole kind of room, bathrooms, that no other split shows.

The engine loads a game with ``PddlEnv.load(game)`` (``textworld.start`` takes only paths). The numbers in
``walkthrough`` ("drawer 2") are those that ``AlfredDemangler`` gives without shuffling.
"""

import hashlib
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple, TypedDict, overload

from worldloom.envs.alfworld_rooms import (
    HOLDS_ONE,
    STANDING,
    FloorPlan,
    Place,
    floor_plan,
    knowledge,
    position_name,
    problem_pddl,
)
from worldloom.errors import ConfigError, EnvError, UnsolvableGame, suggest

__all__ = ["COMPOSER_VERSION", "SIZES", "SPLITS", "TASK_TYPES", "ComposedGame", "compose", "floor_plans", "task_ids"]

COMPOSER_VERSION = "1"
SPLITS = ("train", "valid_seen", "valid_unseen", "ood")
SIZES = {"train": 10_000, "valid_seen": 500, "valid_unseen": 500, "ood": 500}
TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)

# What a transforming goal needs: the verb, the property of the thing, and the receptacle that does it.
_TRANSFORMS = {
    "pick_clean_then_place_in_recep": ("clean", "Cleanable", "SinkBasin"),
    "pick_heat_then_place_in_recep": ("heat", "Heatable", "Microwave"),
    "pick_cool_then_place_in_recep": ("cool", "Coolable", "Fridge"),
}
_LAMP = "DeskLamp"
_NEVER_A_GOAL = ("BathtubBasin", "SinkBasin")
# How readily a thing comes to lie on or in a receptacle of a kind; fitted to the official games' mean counts.
_WEIGHTS = {
    "ArmChair": 1.8, "BathtubBasin": 7.5, "Bed": 27, "Cabinet": 1.4, "Cart": 4.5, "CoffeeMachine": 23,
    "CoffeeTable": 8.3, "CounterTop": 6.5, "Desk": 6.0, "DiningTable": 11.5, "Drawer": 0.97, "Dresser": 6.4,
    "Fridge": 10, "GarbageCan": 1.7, "HandTowelHolder": 80, "LaundryHamper": 0.1, "Microwave": 2.7, "Ottoman": 2.1,
    "Safe": 3.6, "Shelf": 1.8, "SideTable": 3.2, "SinkBasin": 2.3, "Sofa": 5.4, "StoveBurner": 58, "Toilet": 3.4,
    "ToiletPaperHanger": 3.1, "TowelHolder": 1.3, "TVStand": 8.8,
}  # fmt: skip
_BULKY = ("Box", "Bread", "HandTowel", "Laptop", "Pan", "Pillow", "Pot", "Towel", "WateringCan")


class ComposedGame(TypedDict):
    """A game as TextWorld's PDDL engine loads it, and what it is about."""

    pddl_domain: str
    grammar: str
    pddl_problem: str
    walkthrough: list[str]
    """Commands that win."""
    task_type: str
    floor_plan: str
    instruction: str
    """The goal in words, as in the first observation after "Your task is to: ", without the full stop."""


class _Goal(NamedTuple):
    task_type: str
    obj: str
    recep: str

    @property
    def needed(self) -> int:
        return 2 if self.task_type == "pick_two_obj_and_place" else 1

    @property
    def starts_elsewhere(self) -> bool:
        """Whether a target that lay in the goal receptacle would solve the game, or half of it."""
        return self.task_type in ("pick_and_place_simple", "pick_two_obj_and_place")


class _TaskIds(Sequence[str]):
    """The ids ``composed/<split>/00000`` onwards, made when asked for."""

    def __init__(self, split: str, numbers: range):
        self._split, self._numbers = split, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return _TaskIds(self._split, self._numbers[index])
        return f"composed/{self._split}/{self._numbers[index]:05d}"

    def __iter__(self) -> Iterator[str]:
        return (f"composed/{self._split}/{number:05d}" for number in self._numbers)


def task_ids(split: str) -> Sequence[str]:
    """The ids of a split, in order: 10,000 for ``train``, 500 for each of the others.

    Raises:
        ConfigError: there is no such split.
    """
    _check_split(split)
    return _TaskIds(split, range(SIZES[split]))


def floor_plans(split: str) -> tuple[int, ...]:
    """The numbers of the floor plans that a split's games take place in.

    Raises:
        ConfigError: there is no such split.
    """
    _check_split(split)
    if split == "ood":
        return tuple(range(401, 431))
    held_out = split == "valid_unseen"
    return tuple(n for base in (0, 200, 300) for n in range(base + 1, base + 31) if (n % 5 == 0) == held_out)


def _check_split(split: str) -> None:
    if split not in SPLITS:
        raise ConfigError(f"no split {split!r} of composed ALFWorld games{suggest(split, SPLITS)}")


def compose(task_id: str) -> ComposedGame:
    """The game of a task id; it depends on the id and ``COMPOSER_VERSION`` alone.

    Raises:
        EnvError: there is no such task.
        MissingDependency: the ``alfworld`` package is not installed.
        UnsolvableGame: the arrangement has too few targets (not seen in any split; checked all the same).
    """
    split, number = _parse(task_id)
    rng = random.Random(hashlib.sha256(f"{COMPOSER_VERSION}:{task_id}".encode()).digest())
    plan, goal = _choose(split, number, rng)
    placed = _arrange(plan, goal, rng)
    if sum(thing.kind == goal.obj for thing in placed) < goal.needed:
        raise UnsolvableGame(f"{task_id}: fewer than {goal.needed} {goal.obj} in FloorPlan{plan.number}")
    goal_pddl, instruction = _goal_in_words(goal, rng)
    return ComposedGame(
        pddl_domain=knowledge().domain,
        grammar=knowledge().grammar.replace("UNKNOWN GOAL", instruction),
        pddl_problem=problem_pddl(task_id.replace("/", "_"), plan, placed, rng.choice(plan.free), goal_pddl),
        walkthrough=_walkthrough(plan, goal, placed),
        task_type=goal.task_type,
        floor_plan=f"FloorPlan{plan.number}",
        instruction=instruction,
    )


def _parse(task_id: str) -> tuple[str, int]:
    match = re.fullmatch(r"composed/(\w+)/([0-9]{5})", task_id)
    if not match or match[1] not in SPLITS or int(match[2]) >= SIZES[match[1]]:
        raise EnvError(f"no composed ALFWorld game {task_id!r}; ids look like 'composed/train/00042', see task_ids()")
    return match[1], int(match[2])


# What to do where: goals.


def _choose(split: str, number: int, rng: random.Random) -> tuple[FloorPlan, _Goal]:
    """A type of goal by turns, then a floor plan that allows it, then its target, then where it goes."""
    by_type = _possible(split)
    types = [task_type for task_type in TASK_TYPES if by_type[task_type]]
    task_type = types[number % len(types)]
    plan = floor_plan(rng.choice(by_type[task_type]))
    goals = _goals(plan.number)[task_type]
    obj = rng.choice(list(dict.fromkeys(goal.obj for goal in goals)))
    return plan, rng.choice([goal for goal in goals if goal.obj == obj])


@cache
def _possible(split: str) -> dict[str, list[int]]:
    return {task_type: [n for n in floor_plans(split) if _goals(n)[task_type]] for task_type in TASK_TYPES}


@cache
def _goals(number: int) -> dict[str, list[_Goal]]:
    """Every goal that a floor plan allows, by type."""
    plan = floor_plan(number)
    recep_kinds = list(dict.fromkeys(place.kind for place in plan.locations))
    lamps = [_LAMP] if _LAMP in plan.kinds and plan.receptacles(_LAMP) else []
    pairs = [(obj, recep) for obj in plan.movables for recep in recep_kinds + lamps]
    return {kind: [_Goal(kind, *pair) for pair in pairs if _allows(plan, kind, *pair)] for kind in TASK_TYPES}


def _allows(plan: FloorPlan, task_type: str, obj: str, recep: str) -> bool:
    """Whether a thing of this kind can start elsewhere, become what it should, and end where it should."""
    if not any(place.kind not in (recep, *HOLDS_ONE) for place in plan.receptacles(obj)):
        return False
    if task_type == "look_at_obj_in_light":
        return recep == _LAMP
    if obj not in knowledge().holds.get(recep, ()) or recep in _NEVER_A_GOAL:
        return False
    if task_type in _TRANSFORMS:
        _, action, tool = _TRANSFORMS[task_type]
        return plan.has(tool) and recep != tool and obj in knowledge().actions[action]
    return task_type != "pick_two_obj_and_place" or recep not in HOLDS_ONE


def _goal_in_words(goal: _Goal, rng: random.Random) -> tuple[str, str]:
    """The goal in PDDL, and in one of the official wordings."""
    texts = knowledge().goals[goal.task_type]
    words = {"obj": goal.obj, "recep": goal.recep, "toggle": goal.recep}
    wording = rng.choice(texts["templates"]).format(**{slot: word.lower() for slot, word in words.items()})
    return texts["pddl"].format(**words).replace("#", "-"), wording


# What lies where: arrangements.


def _arrange(plan: FloorPlan, goal: _Goal, rng: random.Random) -> dict[Place, Place]:
    """Put things on and in receptacles: thing -> receptacle."""
    placed: dict[Place, Place] = {}
    held: Counter[Place] = Counter()
    for kind in plan.kinds:
        options = plan.receptacles(kind)
        if kind == goal.obj and goal.starts_elsewhere:
            options = [place for place in options if place.kind != goal.recep]
        for _ in range(_count(kind, goal, rng)):
            room = [place for place in options if place.kind not in HOLDS_ONE or not held[place]]
            if room:
                receptacle = rng.choices(room, [_WEIGHTS[place.kind] for place in room])[0]
                placed[_near(receptacle, kind, placed, rng)] = receptacle
                held[receptacle] += 1
    return placed


def _count(kind: str, goal: _Goal, rng: random.Random) -> int:
    """How many things of a kind, as in the official games: 1 to 3, targets up to 4, fewer large things."""
    if kind == goal.obj:
        return rng.randint(goal.needed, 4)
    if kind in STANDING:
        return 1
    return rng.choices((1, 2, 3), (6, 3, 1) if kind in _BULKY else (1, 1, 1))[0]


def _near(receptacle: Place, kind: str, taken: dict[Place, Place], rng: random.Random) -> Place:
    x, y, z = (float(part) for part in receptacle.name.split("|")[1:4])
    while True:
        name = position_name(kind, x + rng.uniform(-0.3, 0.3), y + rng.uniform(0, 0.1), z + rng.uniform(-0.3, 0.3))
        if (thing := Place(name, kind)) not in taken:
            return thing


# How to win.


def _walkthrough(plan: FloorPlan, goal: _Goal, placed: dict[Place, Place]) -> list[str]:
    """Commands that win; by construction, no planner is asked."""
    names = _spoken_names([*plan.locations, *placed])
    route = _Route(names)
    closed = {thing: receptacle.kind in knowledge().openable for thing, receptacle in placed.items()}
    targets = sorted((thing for thing in placed if thing.kind == goal.obj), key=lambda thing: (closed[thing], thing))
    end = next(place for place in [*plan.locations, *placed] if place.kind == goal.recep)
    for thing in targets[: goal.needed]:
        route.visit(placed[thing])
        route.commands.append(f"take {names[thing]} from {names[placed[thing]]}")
        if goal.recep == _LAMP:
            route.visit(placed[end])
            route.commands.append(f"use {names[end]}")
            continue
        if goal.task_type in _TRANSFORMS:
            verb, _, tool_kind = _TRANSFORMS[goal.task_type]
            tool = next(place for place in plan.locations if place.kind == tool_kind)
            route.visit(tool, open_it=False)
            route.commands.append(f"{verb} {names[thing]} with {names[tool]}")
        route.visit(end)
        route.commands.append(f"move {names[thing]} to {names[end]}")
    return route.commands


class _Route:
    """The commands so far, where they lead, and what they have opened."""

    def __init__(self, names: dict[Place, str]):
        self.commands: list[str] = []
        self._names = names
        self._here: Place | None = None
        self._opened: set[Place] = set()

    def visit(self, place: Place, open_it: bool = True) -> None:
        if self._here != place:
            self.commands.append(f"go to {self._names[place]}")
        self._here = place
        if open_it and place.kind in knowledge().openable and place not in self._opened:
            self.commands.append(f"open {self._names[place]}")
            self._opened.add(place)


def _spoken_names(places: list[Place]) -> dict[Place, str]:
    """The names in observations: within a kind, AlfredDemangler numbers the sorted symbols downwards."""
    left = Counter(place.kind for place in places)
    names = {}
    for place in sorted(places, key=lambda place: place.symbol.lower()):
        names[place] = f"{place.kind.lower()} {left[place.kind]}"
        left[place.kind] -= 1
    return names
