"""Scripted TextWorld agents that explore: they walk by the ways that the texts name until they find a thing."""

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator

from worldloom.agents.base import Agent, Decision, Start, chances
from worldloom.agents.textworld import DIRECTIONS, OPPOSITE, Scene, nonsense, parse_plan, stray

TRIES = 2  # of one deed in one room, before it is given up

# What TextWorld's grammars call a container.
_CONTAINER = re.compile(
    r"\b(?:basket|box|bureau|cabinet|case|chest|coffer|crate|display|drawer|dresser|freezer|fridge|locker|portmanteau|"
    r"refrigerator|safe|suitcase|toolbox|trunk)\b"
)

_WAYS = "|".join(DIRECTIONS)
_HEADER = re.compile(r"-= .+? =-")
_DOOR = re.compile(rf"\b(open|closed|locked) ([\w' -]+?) leading ({_WAYS})\b")
_SHUT = re.compile(
    r"\ban? (?:closed|locked) (?![\w' -]* leading)([\w' -]+?)"
    r"(?=[.,!?;]|$| (?:right|close|nearby|here|there|in|on|is|which)\b)",
    re.IGNORECASE | re.MULTILINE,
)
_BARRED = re.compile(r"You have to open the ([\w' -]+?) first\.")
_LOCKED = re.compile(r"You have to unlock the ([\w' -]+?) with the ([\w' -]+?) first\.")
_OPENED = re.compile(r"^You open (?:the )?([\w' -]+?)(?:, revealing .*)?\.", re.MULTILINE)
_SETTLED = re.compile(r"open (.+)\n(?:That's already open|.* is welded shut|It isn't something you can open)")
_CARRIED = re.compile(r"You are carrying(?: nothing|: (.+?))\.")
_THING = re.compile(
    r"(?:an?|some) (?:(?:raw|burned|fried|roasted|grilled|chopped|sliced|diced) )*([\w' -]+?)(?=,| and |$)"
)
_UNLOCKED = re.compile(r"^You unlock (?:the )?([\w' -]+?)\.", re.MULTILINE)


class House(Scene):
    """A scene with a map: what was told of each room, which ways lead where, and what is shut."""

    def __init__(self) -> None:
        super().__init__()
        self.told: dict[str | None, str] = {}
        self.leads: dict[str | None, dict[str, str | None]] = {}
        self.doors: dict[tuple[str | None, str], str] = {}
        self.keys: dict[str, str] = {}
        self.settled: set[str] = set()
        self.counted = False
        self.tried: dict[tuple[str | None, str], int] = {}

    def learn(self, action: str | None, text: str) -> None:
        """Take in what an action (None at first) was answered."""
        before = self.room
        self.hear(text)
        self._tell(text)
        way = (action or "").removeprefix("go ")
        if before and self.room != before and way in OPPOSITE:
            self.leads.setdefault(before, {})[way] = self.room
            self.leads.setdefault(self.room, {})[OPPOSITE[way]] = before
        if action and "can't see any such thing" in text:
            self._forget(action.partition(" ")[2].partition(" from ")[0])
        self._hear_of_doors(way, text)
        self._hear_of_openings(action or "", text)

    def _tell(self, text: str) -> None:
        headers = list(_HEADER.finditer(text))
        if len(headers) > 1:  # a room's description; the last header is the status line
            self.told[self.room] = text[headers[-2].end() : headers[-1].start()]
        elif "revealing" in text or text.startswith(("You drop", "You put")):
            self.told[self.room] = self.told.get(self.room, "") + text[: headers[0].start() if headers else None]

    def _forget(self, thing: str) -> None:
        self.told[self.room] = self.told.get(self.room, "").replace(thing, "")

    def _hear_of_doors(self, way: str, text: str) -> None:
        for state, door, leading in _DOOR.findall(text):
            self._set_door(leading, None if state == "open" else door)
        if barred := _BARRED.search(text):
            self._set_door(way, barred[1])

    def _hear_of_openings(self, action: str, text: str) -> None:
        if locked := _LOCKED.search(text):
            self.keys[locked[1]] = locked[2]
        if unlocked := _UNLOCKED.search(text):
            self.keys.pop(unlocked[1], None)
        if opened := _OPENED.search(text):
            self.doors = {where: door for where, door in self.doors.items() if door != opened[1]}
            self.settled.add(opened[1])
        if settled := _SETTLED.match(f"{action}\n{text}"):
            self.settled.add(settled[1])
        if carried := _CARRIED.match(text):
            self.counted = True
            self.held = dict.fromkeys(_THING.findall(carried[1] or ""))

    def _set_door(self, way: str, door: str | None) -> None:
        self.doors.pop((self.room, way), None)
        if door is not None:
            self.doors[self.room, way] = door

    def tells_of(self, room: str | None, thing: str) -> bool:
        """Whether a thing was named where ``room`` was described."""
        return re.search(rf"\b{re.escape(thing)}\b", self.told.get(room, "")) is not None

    def go(self, room: str | None, way: str) -> str:
        """The command that leads on in a room: to go, or first to unlock or open the door."""
        door = self.doors.get((room, way))
        return f"go {way}" if door is None else self.open(door)

    def open(self, thing: str) -> str:
        """The command that opens a thing: to open it, or first to unlock it if its key is held."""
        key = self.keys.get(thing)
        return f"unlock {thing} with {key}" if key in self.held else f"open {thing}"

    def fetch(self) -> str | None:
        """The command towards a key that a lock asked for: seen somewhere, or perhaps carried all along; else None."""
        for key in [key for key in self.keys.values() if key not in self.held]:
            if self.tells_of(self.room, key):
                return f"take {key}"
            if way := self.way_to_thing(key):
                return way
            if not self.counted:
                return "inventory"
        return None

    def unseen(self, room: str | None) -> Iterator[str]:
        """What a room still has to be explored: containers and things said to be closed, then ways not taken."""
        told = self.told.get(room, "")
        shut = [thing for thing in _SHUT.findall(told) if not _CONTAINER.search(thing)]
        closed = dict.fromkeys([*_CONTAINER.findall(told), *shut])
        ways = [way for way in self.ways.get(room, []) if way not in self.leads.get(room, {})]
        yield from self._untried(room, [self.open(thing) for thing in closed if thing not in self.settled])
        yield from self._untried(room, [self.go(room, way) for way in ways], TRIES + 1)

    def unopened(self, room: str | None) -> Iterator[str]:
        """All other things of a room that might open."""
        no_things = {"thing", (room or "").lower()}
        things = [thing for thing in self.seen.get(room, {}) if thing not in self.settled | no_things]
        yield from self._untried(room, [self.open(thing) for thing in things if not thing.startswith("exit")], 1)

    def _untried(self, room: str | None, commands: list[str], tries: int = TRIES) -> Iterator[str]:
        yield from (command for command in commands if self.tried.get((room, command), 0) < tries)

    def way_to(self, wanted: Callable[[str | None], bool]) -> str | None:
        """The command towards the nearest other room that is wanted, by known ways; None if there is none."""
        first: dict[str | None, str] = {}
        queue, seen = [self.room], {self.room}
        for room in queue:
            if room != self.room and wanted(room):
                return self.go(self.room, first[room])
            for way, beyond in self.leads.get(room, {}).items():
                if beyond not in seen:
                    seen.add(beyond)
                    first[beyond] = first.get(room, way)
                    queue.append(beyond)
        return None

    def way_to_thing(self, thing: str) -> str | None:
        """The command towards the nearest other room where a thing was seen; None if there is none."""
        return self.way_to(lambda room: self.tells_of(room, thing))

    def explore(self) -> str | None:
        """The command that tells most of what is not known yet; None if everything was tried."""
        if key := self.fetch():
            return key
        command = self._nearest(self.unseen) or self._nearest(self.unopened)
        if command is None:
            self.tried.clear()
            return None
        self.tried[self.room, command] = self.tried.get((self.room, command), 0) + 1
        return command

    def _nearest(self, left: Callable[[str | None], Iterator[str]]) -> str | None:
        """The first thing left to do here, else the command towards the nearest room with something left."""
        return next(left(self.room), None) or self.way_to(lambda room: next(left(room), None) is not None)


class Explorer(Agent):
    """Acts with a purpose with probability ``skill`` at each step, else strays; the purpose is a subclass's.

    Args:
        skill: 0 acts at random, 1 goes for the goal.
        invalid: share of actions at skill 0 that no world understands or that name absent things; a tenth at skill 1.
    """

    def __init__(self, skill: float = 1.0, invalid: float = 0.05):
        self.skill, self.invalid = chances(skill=skill, invalid=invalid)

    def begin(self, start: Start) -> None:
        """An episode begins."""
        self.random, self.house = self.rng(start), House()
        self.last: str | None = None
        self.repeats = 0

    def act(self, observation: str) -> Decision:
        """Say the next action."""
        self.notice(observation)
        action = self._choose()
        self.repeats = self.repeats + 1 if action == self.last and not action.startswith("go ") else 0
        self.last = action
        return Decision(action)

    def notice(self, observation: str) -> None:
        """Take in what the last action was answered."""
        self.house.learn(self.last, observation)

    def _choose(self) -> str:
        if self.random.random() < self.invalid * (1.1 - self.skill):
            return nonsense(self.house, self.random)
        if self.random.random() < self.skill and self.repeats < TRIES and (action := self.purpose()):
            return action
        return self.stray()

    @abstractmethod
    def purpose(self) -> str | None:
        """The next action towards the goal; None where none is known."""

    def stray(self) -> str:
        """An action that looks valid and has no purpose."""
        return stray(self.house, self.random)

    def seek(self, thing: str) -> str | None:
        """The next action towards a thing, or of no purpose where nothing is left to explore; None if it is at hand."""
        house = self.house
        if thing in house.held or house.tells_of(house.room, thing):
            return None
        return house.way_to_thing(thing) or house.explore() or self.stray()


class Finder(Explorer):
    """Explores until it sees the thing that the objective wants taken, and takes it.

    The objective also says the way there; that is left aside, so that the episodes tell of more than the way.
    """

    def begin(self, start: Start) -> None:
        """An episode begins: read what is wanted."""
        super().begin(start)
        self.wanted = wanted(start.instruction or start.text)

    def purpose(self) -> str | None:
        """Go on, or take the thing."""
        if self.wanted is None:
            return self.house.explore()
        return self.seek(self.wanted) or f"take {self.wanted}"


class CoinCollectorAgent(Finder):
    """Finds the coin."""

    name = "scripted-textworld-coin-collector"


class TreasureHunterAgent(Finder):
    """Finds the treasure; it opens and unlocks what is in the way."""

    name = "scripted-textworld-treasure-hunter"


def wanted(objective: str) -> str | None:
    """The thing that an objective wants taken last; None if it names none."""
    taken = [command for command in parse_plan(objective) if command.startswith("take ")]
    return taken[-1].removeprefix("take ").partition(" from ")[0] if taken else None
