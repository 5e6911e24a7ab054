"""A scripted ALFWorld agent that acts from text alone, with a skill knob."""

import random
import re
from collections.abc import Iterator
from typing import NamedTuple

from worldloom.agents.base import Agent, Decision, Start, chances

ROOM = re.compile(r"Looking quickly around you, you see (.+?)\.(?:\n|$)")
ARRIVE = re.compile(r"You arrive at ([a-z]+ \d+)\.")
CONTENTS = re.compile(r"(?:On the ([a-z]+ \d+)|The ([a-z]+ \d+) is open\. In it), you see (.+?)\.(?:\n|$)")
CLOSED = re.compile(r"The ([a-z]+ \d+) is closed\.")
CLOSE = re.compile(r"You close the ([a-z]+ \d+)\.")
TAKEN = re.compile(r"You pick up the ([a-z]+ \d+) from the ([a-z]+ \d+)\.")
MOVED = re.compile(r"You move the ([a-z]+ \d+) to the ([a-z]+ \d+)\.")
TREATED = re.compile(r"You (heat|cool|clean) the ([a-z]+ \d+) using")
THING = re.compile(r"an? ([a-z]+ \d+)")
TREATMENTS = {"clean": ("clean", "sinkbasin"), "hot": ("heat", "microwave"), "cool": ("cool", "fridge")}
GOALS = (
    re.compile(r"(?:examine the|look at) (?P<thing>\w+) (?:with|under) the (?P<lamp>\w+)"),
    re.compile(r"(?P<treat>clean|heat|cool) some (?P<thing>\w+) and put it in (?P<place>\w+)"),
    re.compile(r"(?:put|find) (?P<two>two) (?P<thing>\w+)(?: and put them)? in (?P<place>\w+)"),
    re.compile(r"put an? (?P<treat>clean|hot|cool) (?P<thing>\w+) in (?P<place>\w+)"),
    re.compile(r"put (?:an?|some) (?P<thing>\w+) (?:in|on) (?P<place>\w+)"),
)


class Goal(NamedTuple):
    """What an instruction asks for."""

    thing: str
    place: str | None = None
    treatment: str | None = None
    number: int = 1
    lamp: str | None = None

    @classmethod
    def parse(cls, instruction: str) -> "Goal | None":
        """Read an instruction in the wording of ALFWorld's goal library; None if it is in another wording."""
        for pattern in GOALS:
            if match := pattern.search(instruction):
                said = match.groupdict()
                treat = said.get("treat")
                treat = {"heat": "hot"}.get(treat, treat) if treat else None
                return cls(said["thing"], said.get("place"), treat, 2 if said.get("two") else 1, said.get("lamp"))
        return None


def kind(thing: str) -> str:
    """The kind of a numbered thing: "shelf 2" is a shelf."""
    return thing.split()[0]


class Memory:
    """What the texts of one episode have told so far."""

    def __init__(self) -> None:
        self.places: list[str] = []
        self.contents: dict[str, list[str]] = {}
        self.closed: set[str] = set()
        self.openable: set[str] = set()
        self.at: str | None = None
        self.held: str | None = None
        self.treated: set[tuple[str, str]] = set()

    def hear(self, text: str) -> None:
        """Take in an observation; text that says nothing new changes nothing."""
        if not self.places and (room := ROOM.search(text)):
            self.places = THING.findall(room[1])
        if arrived := ARRIVE.search(text):
            self.at = arrived[1]
        for on, inside, listing in CONTENTS.findall(text):
            self.contents[on or inside] = THING.findall(listing)
            self.closed.discard(on or inside)
            self.openable |= {inside} - {""}
        for shut in CLOSED.findall(text) + CLOSE.findall(text):
            self.closed.add(shut)
            self.openable.add(shut)
        self._hear_deed(text)

    def _hear_deed(self, text: str) -> None:
        if taken := TAKEN.search(text):
            self.held = taken[1]
            self._drop_from(taken[2], taken[1])
        if moved := MOVED.search(text):
            self.held = None
            self.contents.setdefault(moved[2], []).append(moved[1])
        if treated := TREATED.search(text):
            self.treated.add(({"heat": "hot"}.get(treated[1], treated[1]), treated[2]))

    def _drop_from(self, place: str, thing: str) -> None:
        listing = self.contents.get(place, [])
        if thing in listing:
            listing.remove(thing)

    @property
    def here(self) -> list[str]:
        """The things that can be seen where the agent stands."""
        return [] if self.at is None or self.at in self.closed else self.contents.get(self.at, [])

    def where(self, thing_kind: str, unless_in: str | None = None) -> Iterator[tuple[str, str]]:
        """All known (place, thing) of a kind, leaving out one kind of place."""
        for place, things in self.contents.items():
            if kind(place) != unless_in:
                yield from ((place, thing) for thing in things if kind(thing) == thing_kind)

    def unseen(self) -> list[str]:
        """Places whose contents are not known."""
        return [place for place in self.places if place not in self.contents]


class ALFWorldAgent(Agent):
    """Goes for the goal with probability ``skill`` at each step, else does something valid-looking at random.

    Args:
        skill: 0 acts at random, 1 goes straight for the goal.
        invalid: share of the random steps that name things or deeds that cannot be.
        curious: share of the goal-directed steps spent on looking around first (examine, look, inventory).
    """

    name = "scripted-alfworld"

    def __init__(self, skill: float = 1.0, invalid: float = 0.12, curious: float = 0.0):
        self.skill, self.invalid, self.curious = chances(skill=skill, invalid=invalid, curious=curious)

    def begin(self, start: Start) -> None:
        self.random, self.memory = self.rng(start), Memory()
        self.goal = Goal.parse(start.instruction or start.text)
        self.order: list[str] | None = None
        self.stuck = 0

    def act(self, observation: str) -> Decision:
        self.stuck = self.stuck + 1 if observation == "Nothing happens." else 0
        self.memory.hear(observation)
        if self.goal and self.random.random() < self.skill and self.stuck < 2:
            if self.random.random() < self.curious:
                return Decision(self.random.choice(["look", "inventory", *self._examinations()]))
            return Decision(self._towards_goal(self.goal))
        return Decision(Wandering(self.memory, self.random, self.invalid).action())

    def _examinations(self) -> list[str]:
        return [f"examine {thing}" for thing in [*self.memory.here, self.memory.held, self.memory.at] if thing]

    def _towards_goal(self, goal: Goal) -> str:
        memory = self.memory
        if memory.held and kind(memory.held) == goal.thing:
            return self._use_lamp(goal.lamp) if goal.lamp else self._deliver(goal, memory.held)
        if memory.held:
            return self._put_down(memory.held)
        place, thing = next(memory.where(goal.thing, unless_in=self._done_place(goal)), (None, None))
        if place is None or thing is None:
            return self._explore()
        return self._reach(place) or f"take {thing} from {place}"

    def _done_place(self, goal: Goal) -> str | None:
        treated = goal.treatment is None or any(t == goal.treatment for t, _ in self.memory.treated)
        return goal.place if treated else None

    def _reach(self, place: str) -> str | None:
        if self.memory.at != place:
            return f"go to {place}"
        return f"open {place}" if place in self.memory.closed else None

    def _deliver(self, goal: Goal, thing: str) -> str:
        if goal.treatment and (goal.treatment, thing) not in self.memory.treated:
            verb, machine = TREATMENTS[goal.treatment]
            machine = f"{machine} 1"
            return f"{verb} {thing} with {machine}" if self.memory.at == machine else f"go to {machine}"
        place = self._destination(goal)
        if place is None:
            return self._explore()
        return self._reach(place) or f"move {thing} to {place}"

    def _destination(self, goal: Goal) -> str | None:
        fit = [place for place in self.memory.places if kind(place) == goal.place]
        half_done = [place for place, _ in self.memory.where(goal.thing) if place in fit]
        return next(iter(half_done if goal.number == 2 and half_done else fit), None)

    def _use_lamp(self, lamp: str | None) -> str:
        place, thing = next(self.memory.where(lamp or "desklamp"), (None, None))
        if place is None:
            return self._explore()
        return f"use {thing}" if self.memory.at == place else f"go to {place}"

    def _put_down(self, thing: str) -> str:
        """Get rid of a thing that is not wanted: here if it may lie here, else somewhere else."""
        at = self.memory.at
        if at and at not in self.memory.closed and not self.stuck:
            return f"move {thing} to {at}"
        return f"go to {self.random.choice(self.memory.places or ['shelf 1'])}"

    def _explore(self) -> str:
        at = self.memory.at
        if at in self.memory.closed and at not in self.memory.contents:
            return f"open {at}"
        if self.order is None:
            self.order = self.random.sample(self.memory.places, len(self.memory.places))
        unseen = [place for place in self.order if place not in self.memory.contents and place != at]
        return f"go to {unseen[0]}" if unseen else f"go to {self.random.choice(self.memory.places or ['shelf 1'])}"


class Wandering:
    """Random actions: mostly valid by what is known, some of them impossible."""

    def __init__(self, memory: Memory, rng: random.Random, invalid: float):
        self.memory, self.random, self.invalid = memory, rng, invalid

    def action(self) -> str:
        """One action."""
        if self.random.random() < self.invalid:
            return self.random.choice(list(self._impossible()))
        kinds = [list(options) for options in (self._moves(), self._deeds(), self._looks())]
        weights = [weight if options else 0.0 for weight, options in zip((3.0, 5.0, 1.5), kinds, strict=True)]
        return self.random.choice(self.random.choices(kinds, weights)[0])

    def _moves(self) -> Iterator[str]:
        memory = self.memory
        yield from (f"go to {place}" for place in memory.places)
        # Going back to where something was changed or can be opened is what teaches state.
        yield from (f"go to {place}" for place in sorted(memory.openable | set(memory.contents)) for _ in range(2))

    def _deeds(self) -> Iterator[str]:
        memory = self.memory
        at, held = memory.at, memory.held
        if at is None:
            return
        if at in memory.openable:
            yield from [f"open {at}" if at in memory.closed else f"close {at}"] * 3
        if held:
            yield from [f"move {held} to {at}"] * 2
            yield from (f"{verb} {held} with {at}" for verb, place in TREATMENTS.values() if kind(at) == place)
        else:
            yield from (f"take {thing} from {at}" for thing in memory.here)
        yield from (f"use {thing}" for thing in memory.here if thing.endswith(("lamp 1", "lamp 2", "lamp 3")))

    def _looks(self) -> Iterator[str]:
        memory = self.memory
        yield from ("look", "inventory")
        yield from (f"examine {thing}" for thing in [*memory.here, memory.held, memory.at, memory.at] if thing)

    def _impossible(self) -> Iterator[str]:
        memory, pick = self.memory, self.random.choice
        place = pick(memory.places or ["shelf 1"])
        things = [thing for listing in memory.contents.values() for thing in listing] or ["mug 1"]
        at = memory.at or place
        yield from (f"take {pick(things)} from {at}", f"move {pick(things)} to {at}", f"open {at}", f"close {at}")
        yield from (f"open {place}", f"take {pick(things)} from {place}", f"go to {kind(place)} 99")
        yield from (f"{pick(['heat', 'cool', 'clean'])} {memory.held or pick(things)} with {at}", f"use {pick(things)}")
        yield from (f"examine {pick(things)}", f"go to {at}", f"slice {pick(things)} with knife 1")
        yield pick(["help", "jump", "think", "take", f"put {pick(things)} in {place}", "go to", "look around"])
