"""A scripted ScienceWorld agent that acts from text alone, with a skill knob."""

import random
import re

from worldloom.agents.base import Agent, Decision, Start, chances
from worldloom.agents.scienceworld_notes import HOUSE, Notes
from worldloom.agents.scienceworld_plans import plan_for

CHOICE = re.compile(r"^(\d+):\t", re.MULTILINE)
REFUSED = re.compile(
    r"^(?:No known action|Unknown action|Ambiguous request|It'?s not clear|The door is not open)|isn't open"
)
TRIES = 3  # of a step that is refused, before it is given up
FOCUS = 0.01  # share of random steps that focus on something, which nearly always fails the task


class ScienceWorldAgent(Agent):
    """Follows a plan for the task with probability ``skill`` at each step, else does something that looks valid.

    There are plans for the tasks that the texts alone show a way to: finding things, life spans, life stages, measuring
    a temperature, circuits, paint, changes of state. For the others it tours the house without focusing on anything.

    Args:
        skill: 0 acts at random, 1 only by the plan.
        invalid: share of the random steps that cannot be done or that nothing understands.
    """

    name = "scripted-scienceworld"

    def __init__(self, skill: float = 1.0, invalid: float = 0.12):
        self.skill, self.invalid = chances(skill=skill, invalid=invalid)

    def begin(self, start: Start) -> None:
        self.random, self.notes = self.rng(start), Notes()
        self.plan = plan_for(start.instruction or start.text, self.notes, self.random)
        self.step = next(self.plan, None)
        self.refused, self.said, self.planned = 0, "", False

    def act(self, observation: str) -> Decision:
        self.notes.hear(observation, self.said)
        if self.planned:
            self._judge(observation)
        self.said = self._next(observation)
        return Decision(self.said)

    def _judge(self, observation: str) -> None:
        """See whether the plan's step was done; one that is refused is tried again after a look around."""
        if REFUSED.search(observation) and self.refused < TRIES:
            self.refused += 1
            if not observation.startswith("Ambiguous") and self.notes.room:
                self.notes.seen.pop(self.notes.room, None)
        else:
            self.refused = 0
            self.step = next(self.plan, None)

    def _next(self, observation: str) -> str:
        choices = CHOICE.findall(observation) if observation.startswith("Ambiguous") else []
        purposeful = self.step is not None and self.random.random() < self.skill
        if choices:
            return str(choices[0] if purposeful else self.random.choice([*choices, *choices, "", "the first one"]))
        self.planned = False
        if self.step is None or not purposeful:
            return Wandering(self.notes, self.random, self.invalid).action()
        way = self.notes.reach(self.step.room)
        if self.step.action == "look around" and self.notes.room == self.step.room:
            way = None
        self.planned = way is None
        return way or self.step.action


class Wandering:
    """Random actions: mostly valid by what is known, some of them impossible."""

    def __init__(self, notes: Notes, rng: random.Random, invalid: float):
        self.notes, self.random, self.invalid = notes, rng, invalid
        self.room = notes.room or "hallway"
        self.things = notes.things(self.room) or ["table"]
        self.held = list(notes.held)

    def action(self) -> str:
        """One action."""
        if self.random.random() < self.invalid:
            return self.random.choice(self._impossible())
        if self.random.random() < FOCUS:
            return f"focus on {self.random.choice(self.things)}"
        kinds = {self._move(): 8.0, self._look(): 5.0, self._door(): 1.5, self._carry(): 6.0, self._use(): 4.0}
        kinds |= {self.random.choice(["wait", "wait1", "wait1"]): 1.0, "inventory": 1.0}
        return self.random.choices(list(kinds), list(kinds.values()))[0]

    def _move(self) -> str:
        beyond = self.random.choice(HOUSE.get(self.room) or ("hallway",))
        return f"go to {beyond}" if self.notes.is_open(beyond) else f"open door to {beyond}"

    def _door(self) -> str:
        beyond = self.random.choice(HOUSE.get(self.room) or ("hallway",))
        return f"{self.random.choice(['open', 'close'])} door to {beyond}"

    def _look(self) -> str:
        thing = self.random.choice([*self.things, *self.held])
        verb = self.random.choices(["look at", "examine", "look in", "read"], [3, 3, 3, 0.5])[0]
        return self.random.choice(["look around", f"{verb} {thing}", f"{verb} {thing}"])

    def _carry(self) -> str:
        thing, place = self.random.choice(self.things), self.random.choice(self.things)
        options = [f"pick up {thing}", f"pick up {thing}", f"move {thing} to {place}", f"pour {thing} in {place}"]
        if self.held:
            mine = self.random.choice(self.held)
            options += [f"drop {mine}", f"move {mine} to {place}", f"move {mine} to {place}", f"dunk {mine} in {place}"]
        return self.random.choice(options)

    def _use(self) -> str:
        boxes, devices = self.notes.boxes(self.room), self.notes.devices(self.room)
        thing = self.random.choice(self.things)
        options = [f"mix {thing}", f"use {self.random.choice(self.held or ['thermometer'])} on {thing}"]
        options += [f"{verb} {box}" for box in boxes for verb in ("open", "open", "close", "look in")]
        options += [f"{verb} {device}" for device in devices for verb in ("activate", "activate", "deactivate")]
        return self.random.choice(options)

    def _impossible(self) -> list[str]:
        thing, other = self.random.choice(self.things), self.random.choice(self.things)
        far = self.random.choice(list(HOUSE))
        nothing = ("pick up", "focus", "go", "look at", "hello", "north", "help me", "look up", "door")
        absent = ("unicorn", "microscope", "letter", "window")
        return [
            *(f"{verb} {thing}" for verb in ("take", "open", "eat", "activate", "wear", "read")),
            *(f"{verb} {thing} {word} {other}" for verb, word in (("connect", "to"), ("use", "with"), ("put", "on"))),
            *(f"{verb} {far}" for verb in ("go to", "open door to")),
            f"examine {self.random.choice(absent)}", self.random.choice(nothing), "look at door", "open drawer",
        ]  # fmt: skip
