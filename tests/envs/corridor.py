"""A small real environment in pure Python: a corridor of rooms, a key, and a locked door before the exit."""

import ctypes
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from worldloom.agents.base import Agent, Decision, Start
from worldloom.envs.base import Environment, Observation, StepResult
from worldloom.errors import ConfigError, EnvError

SPLITS = {"train": 20, "test": 5}
PATIENCE = 40  # steps until the corridor closes for the night


class Corridor(Environment):
    """Rooms 1..n in a row. The last is behind a locked door; the key lies in one of the others."""

    name = "corridor"
    version = "1"

    def __init__(self, longest: int = 6):
        self.longest = longest
        self._open = False
        self._steps = 0

    @property
    def options(self) -> dict[str, Any]:
        return {"longest": self.longest}

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(SPLITS)

    def task_ids(self, split: str) -> Sequence[str]:
        if split not in SPLITS:
            raise ConfigError(f"no split {split!r}; known: {', '.join(SPLITS)}")
        return [f"{split}-{n}" for n in range(SPLITS[split])]

    def reset(self, task_id: str, seed: int = 0) -> Observation:
        if not any(task_id in self.task_ids(split) for split in SPLITS):
            raise EnvError(f"no task {task_id!r}")
        rng = random.Random(f"{task_id} {seed}")
        self.rooms = rng.randint(3, self.longest)
        self.key = rng.randint(1, self.rooms - 1)
        self.here, self.has_key, self.unlocked, self._steps, self._open = 1, False, False, 0, True
        return Observation(
            f"You stand in room 1 of {self.rooms}. {self._sight()}",
            instruction=f"Get into room {self.rooms}.",
            initial_context=f"The key is in room {self.key}. The door to room {self.rooms} is locked.",
            gold_actions=self._plan(),
        )

    def _plan(self) -> tuple[str, ...]:
        to_key = ["go east"] * (self.key - 1)
        to_door = ["go east"] * (self.rooms - 1 - self.key)
        return (*to_key, "take key", *to_door, "unlock door", "go east")

    def _sight(self) -> str:
        key = "There is a key here." if self.key == self.here and not self.has_key else "There is nothing here."
        return key + (" East is a door." if self.here == self.rooms - 1 else "")

    def admissible(self) -> list[str]:
        return ["go east", "go west", "look", *(["take key"] if self.key == self.here else ["unlock door"])]

    def step(self, action: str) -> StepResult:
        if not self._open:
            raise EnvError("the episode is over; call reset")
        self._steps += 1
        text = self._act(action)
        won = self.here == self.rooms
        late = not won and self._steps >= PATIENCE
        self._open = not (won or late)
        return StepResult(
            text,
            1.0 if won else 0.0,
            won,
            late,
            {
                "terminal": "success" if won else "truncated" if late else None,
                "admissible_actions": self.admissible(),
            },
        )

    def _act(self, action: str) -> str:
        if action == "look":
            return self._sight()
        if action == "take key" and self.here == self.key and not self.has_key:
            self.has_key = True
            return "You take the key."
        if action == "unlock door" and self.has_key and self.here == self.rooms - 1:
            self.unlocked = True
            return "The door is open now."
        if action in ("go east", "go west"):
            return self._walk(1 if action == "go east" else -1)
        return "Nothing happens."

    def _walk(self, way: int) -> str:
        target = self.here + way
        if target < 1 or (target == self.rooms and not self.unlocked):
            return "You walk into the wall." if target < 1 else "The door is locked."
        self.here = target
        return f"You are in room {target}. {self._sight()}"

    def close(self) -> None:
        self._open = False


class Unsafe(Corridor):
    """The corridor with an engine that fails for real, on the task named, in its second step."""

    def __init__(self, hang: str = "", hold: str = "", die: str = "", once: str = "", slow: float = 0.0, log: str = ""):
        super().__init__()
        self.hang, self.hold, self.die, self.once, self.slow, self.log = hang, hold, die, once, slow, log

    def reset(self, task_id: str, seed: int = 0) -> Observation:
        self._task = task_id
        first = super().reset(task_id, seed)
        return first._replace(text=f"{first.text} {self._process()}")

    def _process(self) -> str:
        return f"pid={os.getpid()} threads={os.environ.get('OMP_NUM_THREADS')} torch={'torch' in sys.modules}"

    def step(self, action: str) -> StepResult:
        if self._steps == 1:
            self._misbehave()
        time.sleep(self.slow)
        return super().step(action)

    def _misbehave(self) -> None:
        if self._task == self.hang:
            time.sleep(3600)
        if self._task == self.hold:
            ctypes.PyDLL(None).sleep(3600)  # C code that keeps the interpreter's lock
        if self._task == self.die and not (self.once and Path(self.once).exists()):
            if self.once:
                Path(self.once).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if self._task == "train-19":
            raise ValueError("the engine tripped")

    def close(self) -> None:
        super().close()
        if self.log:
            with Path(self.log).open("a") as file:
                file.write(f"closed {os.getpid()}\n")


class Versioned(Corridor):
    """The corridor in whatever version is installed."""

    def __init__(self) -> None:
        super().__init__(3)
        self.version = os.environ.get("CORRIDOR_VERSION", "1")

    @property
    def options(self) -> dict[str, Any]:
        return {}


class Unbuildable(Corridor):
    """An engine that does not start: with an error of its own, a crash, or never."""

    def __init__(self, how: str = "error"):
        if how == "error":
            raise FileNotFoundError("corridor.map is missing")
        if how == "config":
            raise ConfigError("there is no map of that size")
        if how == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(3600)


class Walker(Agent):
    """Finds the key and the door from what it reads."""

    name = "walker"

    def begin(self, start: Start) -> None:
        self.has_key = False

    def act(self, observation: str) -> Decision:
        if "There is a key" in observation and not self.has_key:
            self.has_key = True
            return Decision("take key", "a key will be of use")
        if observation == "The door is locked." and self.has_key:
            return Decision("unlock door")
        if observation == "You walk into the wall.":
            return Decision("look")
        return Decision("go east")
