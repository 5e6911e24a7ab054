"""A scripted TextWorld agent that acts from text alone, with a skill knob."""

import random
import re
from typing import NamedTuple

from worldloom.agents.base import Agent, Decision, Start, chances

DIRECTIONS = ("north", "east", "south", "west")
OPPOSITE = dict(zip(DIRECTIONS, ("south", "west", "north", "east"), strict=True))
_ROOM = r"(?: (?:in|within|inside) the [\w' -]+?)?"
_KEY = r"(?: with the (?P<y>[\w' -]+))?"
_X, _Y = r"(?:the )?(?P<x>[\w' -]+?)", r"the (?P<y>[\w' -]+?)"
_TAKE = rf"(?:take|retrieve|recover|pick up|pick-up|lift) {_X}"

# How TextWorld's grammar words an instruction, and the command it means; the first that fits counts.
RULES = tuple(
    (re.compile(pattern + "$", re.IGNORECASE), command)
    for pattern, command in (
        (
            rf"\b(?:go|head|venture|travel|move|trip)(?: to the| through the)? (?P<x>{'|'.join(DIRECTIONS)})\b.*",
            "go {x}",
        ),
        (rf"\w+ the (?P<y>[\w' -]+) into the (?P<x>[\w' -]+?){_ROOM}(?:'s lock)? to unlock it", "unlock {x} with {y}"),
        (rf"\w+ the (?P<y>[\w' -]+) into the (?P<x>[\w' -]+?){_ROOM}(?:'s lock)? to lock it", "lock {x} with {y}"),
        (rf"\bunlock {_X}{_ROOM}{_KEY}", "unlock {x} with {y}"),
        (rf"(?:that )?the (?P<x>[\w' -]+?){_ROOM} is unlocked{_KEY}", "unlock {x} with {y}"),
        (rf"\block {_X}{_ROOM}{_KEY}", "lock {x} with {y}"),
        (rf"(?:that )?the (?P<x>[\w' -]+?){_ROOM} is locked{_KEY}", "lock {x} with {y}"),
        (rf"\bopen {_X}{_ROOM}", "open {x}"),
        (rf"that the (?P<x>[\w' -]+?){_ROOM} is (?:opened|open|wide open|ajar)", "open {x}"),
        (rf"\bclose {_X}{_ROOM}", "close {x}"),
        (rf"that the (?P<x>[\w' -]+?){_ROOM} is (?:closed|shut)", "close {x}"),
        (rf"{_TAKE} from the floor of the [\w' -]+", "take {x}"),
        (rf"{_TAKE} from {_Y}{_ROOM}", "take {x} from {y}"),
        (rf"{_TAKE} (?:in|that's in) the [\w' -]+", "take {x}"),
        (rf"(?:place|drop|ditch|throw|toss|deposit) {_X} on the floor of the [\w' -]+", "drop {x}"),
        (rf"(?:put|place|sit|rest) {_X} on {_Y}{_ROOM}", "put {x} on {y}"),
        (rf"(?:insert|put|place|deposit) {_X} (?:into|inside) {_Y}{_ROOM}", "insert {x} into {y}"),
        (rf"\beat {_X}", "eat {x}"),
    )
)

_HEADER = re.compile(r"-= (.+?) =-")
_NOUN = re.compile(
    r"\b(?:an?|the|another) (?:(?:open|closed|locked) )?([a-z][\w-]*(?: [\w-]+){0,5}?)"
    r"(?=[.,!?;:]|$| (?:is|are|on|in|by|and|has|with|from|that|here|like|you|leading|contains|hasn't|isn't)\b)",
    re.MULTILINE,
)
_WAY = re.compile(r"\b(north|east|south|west)\b")
_DONE = re.compile(
    r"^You (?!have to|need|can't|already|don't)(\w+)(?: up)? (?:the )?([\w' -]+?)(?: (?:from|on|into) .*)?\.", re.M
)
_FIRST = re.compile(r"You (?:have to|need to) (open|take|unlock) (?:the )?([\w' -]+?) first\.")
_GAINS, _LOSES = {"take", "pick"}, {"drop", "put", "eat"}


def parse_plan(objective: str) -> list[str]:
    """The commands that a detailed objective spells out, in order; empty for an objective that spells none.

    A key that is not named is the thing that was taken last, else it is left to the game to find.
    """
    plan: list[str] = []
    taken = None
    for sentence in re.split(r"(?<=[.!?])\s+", objective):
        command = _command(sentence.rstrip(".!? ").rpartition(", ")[2], taken)
        if command is not None:
            plan.append(command)
        if command is not None and command.startswith("take "):
            taken = command.removeprefix("take ").partition(" from ")[0]
    return plan


def _command(clause: str, key: str | None) -> str | None:
    for pattern, command in RULES:
        if match := pattern.search(clause):
            said = {name: words for name, words in match.groupdict().items() if words}
            return command.format_map({"y": key or ""} | said).removesuffix(" with ")
    return None


def undoing(action: str) -> str | None:
    """The command that takes back what ``action`` did; None if nothing need be taken back."""
    verb, _, rest = action.partition(" ")
    thing = re.split(r" (?:on|into|with) ", rest)[0]
    if verb == "go" and rest in OPPOSITE:
        return f"go {OPPOSITE[rest]}"
    if verb in ("put", "insert"):
        return f"take {thing} from {re.split(r' (?:on|into) ', rest)[-1]}"
    again = {"close": f"open {thing}", "drop": f"take {thing}", "lock": "unlock " + rest}
    return again.get(verb)


class Scene:
    """What the texts of one episode have told: the room, what is seen where, what is carried."""

    def __init__(self) -> None:
        self.room: str | None = None
        self.seen: dict[str | None, dict[str, None]] = {}
        self.ways: dict[str | None, list[str]] = {}
        self.held: dict[str, None] = {}

    def hear(self, text: str) -> None:
        """Take in an observation; text that says nothing new changes nothing."""
        headers = _HEADER.findall(text)
        self.room = headers[-1] if headers else self.room
        if len(headers) > 1:  # a room's description has one header, the status line is the other
            self.ways[self.room] = list(dict.fromkeys(_WAY.findall(text.rpartition("\n\n-= ")[0].rpartition("-= ")[2])))
        if len(headers) > 1 or "revealing" in text:
            told = text.rpartition("-= ")[0] if len(headers) < 2 else text[text.find("-= ") :]
            self.seen.setdefault(self.room, {}).update(dict.fromkeys(_NOUN.findall(told)))
        if done := _DONE.search(text):
            self._carry(done[1], done[2])

    def doubt(self, action: str) -> None:
        """Forget the things that ``action`` names and the world does not see here."""
        told = self.seen.get(self.room, {})
        for thing in [thing for thing in told if thing in action]:
            del told[thing]

    def _carry(self, verb: str, thing: str) -> None:
        if verb in _GAINS:
            self.held[thing] = None
        elif verb in _LOSES:
            self.held.pop(thing, None)

    @property
    def here(self) -> list[str]:
        """The things named where the agent stands."""
        return list(self.seen.get(self.room, {}))


class Doing(NamedTuple):
    """The last action, and why: ``plan``, ``back`` (getting back to the plan) or ``detour``."""

    action: str
    why: str


class TextWorldAgent(Agent):
    """Follows the plan that the objective spells with probability ``skill`` at each step, else strays.

    A detour is taken back before the plan goes on: ways are walked back, doors opened again, things picked up again.
    It needs a detailed goal; with any other it only strays.

    Args:
        skill: 0 acts at random, 1 goes straight for the goal.
        invalid: share of actions at skill 0 that no world understands or that name absent things; a tenth at skill 1.
    """

    name = "scripted-textworld"

    def __init__(self, skill: float = 1.0, invalid: float = 0.05):
        self.skill, self.invalid = chances(skill=skill, invalid=invalid)

    def begin(self, start: Start) -> None:
        """An episode begins: read the plan."""
        self.random, self.scene = self.rng(start), Scene()
        self.plan, self.place = parse_plan(start.instruction or start.text), 0
        self.back: list[str] = []
        self.last: Doing | None = None
        self.stuck = 0

    def act(self, observation: str) -> Decision:
        """Say the next action."""
        before = self.scene.room
        self.scene.hear(observation)
        if self.last is not None:
            self._learn(self.last, observation, moved=before != self.scene.room)
        self.last = self._choose()
        return Decision(self.last.action)

    def _choose(self) -> Doing:
        if self.random.random() < self.invalid * (1.1 - self.skill):
            return Doing(nonsense(self.scene, self.random), "detour")
        if not self.plan or self.random.random() >= self.skill:
            return Doing(stray(self.scene, self.random), "detour")
        if self.back:
            return Doing(self.back.pop(), "back")
        return Doing(self._planned(), "plan")

    def _planned(self) -> str:
        while self.place < len(self.plan) and self._is_held(self.plan[self.place]):
            self.place += 1
        if self.place == len(self.plan):  # all done and no end: the last deed did not work, so take and do it again
            thing = re.split(r" (?:on|into|with) ", self.plan[-1].partition(" ")[2])[0]
            self.plan += [f"take {thing}", self.plan[-1]]
        return self.plan[self.place]

    def _is_held(self, command: str) -> bool:
        return command.startswith("take ") and command[5:].partition(" from ")[0] in self.scene.held

    def _learn(self, last: Doing, text: str, moved: bool) -> None:
        """See what the last action did and what that asks for."""
        if "can't see any such thing" in text and " from " not in last.action:
            self.scene.doubt(last.action)
        worked = moved if last.action.startswith("go ") else _DONE.search(text) is not None
        undo = undoing(last.action)
        if last.why == "detour" and worked and undo:
            self.back.append(undo)
        first = _FIRST.search(text)
        if last.why != "detour" and first and self.stuck < 3:
            self.stuck += 1
            self.back += [last.action] * (last.why == "back") + [f"{first[1]} {first[2]}"]
        elif last.why == "plan":
            self.stuck = 0
            self.place += 1
            if not worked and " from " in last.action:
                self.back.append(last.action.partition(" from ")[0])


def stray(scene: Scene, rng: random.Random) -> str:
    """A random action that looks valid: made of the ways and the things that the texts have named."""
    things = scene.here or ["floor"]
    thing, other = rng.choice(things), rng.choice(things)
    held = rng.choice(list(scene.held)) if scene.held else None
    kinds = {
        f"go {rng.choice(scene.ways.get(scene.room) or DIRECTIONS)}": 30,
        f"examine {rng.choice([*things, *scene.held])}": 12,
        f"open {thing}": 12,
        f"close {thing}": 8,
        rng.choice([f"take {thing}", f"take {thing} from {other}"]): 14,
        "look": 6,
        "inventory": 6,
    }
    if held:
        kinds |= {f"drop {held}": 4, f"put {held} on {other}": 5, f"insert {held} into {other}": 4, f"eat {held}": 1}
        kinds[f"{rng.choice(['lock', 'unlock'])} {thing} with {held}"] = 4
    return rng.choices(list(kinds), list(kinds.values()))[0]


def nonsense(scene: Scene, rng: random.Random) -> str:
    """A random action that cannot work: an unknown verb, a thing that is not there, a half or misspelt command."""
    thing = rng.choice(scene.here or ["floor"])
    slip = rng.randrange(len(thing))
    return rng.choice(
        [
            f"{rng.choice(['polish', 'teleport to', 'call', 'admire'])} {thing}",
            f"{rng.choice(['take', 'open', 'examine'])} {rng.choice(['golden crown', 'ladder', 'letter', 'lamp'])}",
            f"open {thing[:slip] + thing[slip + 1 :]}x",
            rng.choice(["take", "open", "go", "put", "hello", "what now"]),
            f"go {rng.choice(['up', 'down', 'home', 'nowhere'])}",
        ]
    )
