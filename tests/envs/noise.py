"""Agents that say anything at all, and one whose process is killed in the midst of a step."""

import json
import os
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import psutil

from worldloom.agents.base import Agent, Decision, Start

KNOWN = ("look", "inventory", "go north", "search[shoes]", "click[back to search]", '{"name": "x", "arguments": {}}')
BROKEN = (
    *("", " \t ", "\n", "look\nlook", "search[", "click[]", '{"name": ', "[]", "null", "x("),
    *("\x07\x1b[31m\x00", "[SUCCESS]"),
)
TICK = 0.0005  # seconds between looks at where the engine is
QUICK = 30  # steps that the clock may miss


def anything(rng: random.Random, listed: Sequence[str] = ()) -> str:
    """An action that is known, or broken, or of letters of any alphabet; short, or of 10,000 characters."""
    known = rng.choice(listed or KNOWN)
    ranges = ((32, 126), (0x80, 0x2FFF), (0x4E00, 0x9FFF), (0x1F300, 0x1F5FF))
    letters = "".join(chr(rng.randint(*rng.choice(ranges))) for _ in range(rng.randint(1, 30)))
    words = known.split()
    rng.shuffle(words)
    return rng.choice(
        [
            *(known, known, known[: rng.randrange(len(known) + 1)], f"{known} {known}", known.upper(), known[::-1]),
            *(" ".join(words), letters, f"{known} {letters}", rng.choice(BROKEN), rng.choice(BROKEN)),
            (known + letters + " ")[: rng.randint(1, 40)].ljust(40, "x") * 250,
        ]
    )


class Babbler(Agent):
    """Says anything."""

    name = "babbler"

    def begin(self, start: Start) -> None:
        self.random = self.rng(start)

    def act(self, observation: str) -> Decision:
        return Decision(anything(self.random))


class Doomed(Agent):
    """Looks around. While ``marks`` holds less than ``deaths`` files, its process is killed in its fourth step.

    The file is named after the process, and says which children the process had.
    """

    name = "doomed"

    def __init__(self, marks: str, deaths: int):
        self.marks, self.deaths = marks, deaths

    def begin(self, start: Start) -> None:
        self.at, self.doomed = 0, False

    def act(self, observation: str) -> Decision:
        self.at += 1
        marks = Path(self.marks)
        if self.at == QUICK and self.doomed:
            sys.setprofile(_kill_in_a_call)
        if self.at == 4 and len(list(marks.iterdir())) < self.deaths:
            self.doomed = True
            children = [child.pid for child in psutil.Process().children(recursive=True)]
            (marks / str(os.getpid())).write_text(json.dumps(children))
            signal.signal(signal.SIGALRM, _kill_in_a_step)
            signal.setitimer(signal.ITIMER_REAL, TICK, TICK)
        return Decision("look")


def _kill_in_a_call(frame: FrameType, event: str, argument: object) -> None:
    """The same for an engine whose steps are too short for a clock to fall into one."""
    if event in ("call", "c_call"):
        _kill_in_a_step(signal.SIGALRM, frame.f_back)


def _kill_in_a_step(signum: int, frame: FrameType | None) -> None:
    """SIGKILL, as the system sends it when memory runs out, once the engine is at work."""
    while frame is not None:
        if frame.f_code.co_name == "step" and "envs" in Path(frame.f_code.co_filename).parts:
            os.kill(os.getpid(), signal.SIGKILL)
        frame = frame.f_back
