"""ScienceWorld (Wang et al. 2022, arXiv 2203.07540): elementary science in a house of ten rooms, on its own engine."""

import importlib.metadata
import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Literal

from worldloom.envs.base import Environment, Observation, StepInfo, StepResult
from worldloom.envs.scienceworld_context import rooms, word2world
from worldloom.envs.scienceworld_engine import Answer, Engine, java, package
from worldloom.errors import ConfigError, EnvError, suggest
from worldloom.trajectory import Terminal

SIMPLIFICATIONS = (
    "easy",
    "noElectricalAction",
    "openContainers",
    "openDoors",
    "selfWateringFlowerPots",
    "teleportAction",
)
CONTEXTS = ("rooms", "word2world", "none")
SPLITS = ("train", "valid", "test")
REFUSALS = ("No known action matches that input.", "Unknown action.", "Ambiguous request:")  # how they begin


class ScienceWorld(Environment):
    """Thirty kinds of tasks, 7,207 variations, played by ScienceWorld's engine in a Java process of one's own.

    A task id is ``<task>/<split>/<variation>``, for instance ``boil/train/00012``, with the engine's own splits and
    variation numbers. The engine's score goes from 0 to 1; ``reward`` is its rise. A score of 1 is a success, a score
    below 0 (the engine's -1, for a wrong focus) a failure, and both end the episode. There is no limit of steps.
    ``changed`` is told by the score, the room and what is carried; ``refused`` means that its parser did not take it.

    Args:
        simplifications: names of the engine's simplifications, joined by commas, or ``"easy"`` for most of them. None
            by default, as the engine and Word2World have it.
        context: what a world model is told besides the first observation: ``"rooms"``: every room and what its closed
            containers hold, in the engine's words; ``"word2world"``: that work's own, with its mistakes; ``"none"``.
        gold: let the engine play each task once to give ``gold_actions`` (as long as an episode).
        admissible: list the engine's valid actions at each step (several times as long as the step).

    Raises:
        ConfigError: an option is unknown.
        MissingDependency: the package ``scienceworld`` or Java is not installed.
    """

    name = "scienceworld"

    def __init__(
        self,
        simplifications: str = "",
        *,
        context: Literal["rooms", "word2world", "none"] = "rooms",
        gold: bool = False,
        admissible: bool = False,
    ):
        _check_simplifications(simplifications)
        if context not in CONTEXTS:
            raise ConfigError(f"scienceworld's context cannot be {context!r}{suggest(context, CONTEXTS)}")
        package()
        java()
        self.version = importlib.metadata.version("scienceworld")
        self.simplifications, self.context, self.gold, self.admissible = simplifications, context, gold, admissible
        self._process: Engine | None = None
        self._variations: dict[str, dict[str, list[int]]] | None = None
        self._score, self._over, self._view = 0.0, True, ""

    @property
    def options(self) -> dict[str, Any]:
        """What ``worldloom.make`` needs to build this environment again."""
        shown = {"context": self.context, "gold": self.gold, "admissible": self.admissible}
        return {"simplifications": self.simplifications, **shown}

    @property
    def splits(self) -> tuple[str, ...]:
        """``train``, ``valid`` (the engine's "dev") and ``test``."""
        return SPLITS

    def task_ids(self, split: str) -> Sequence[str]:
        """The ids of a split: the first variation of each task, then the second of each, and so on.

        Raises:
            ConfigError: there is no such split.
        """
        self.check_split(split)
        ids = [[f"{task}/{split}/{number:05d}" for number in numbers] for task, numbers in self._numbers(split).items()]
        return [task_id for turn in zip_longest(*ids) for task_id in turn if task_id is not None]

    def reset(self, task_id: str, seed: int = 0) -> Observation:
        """Start a game. Its chance (bees, pollen) is drawn by the variation's number, so ``seed`` changes nothing.

        As in ScienceWorld's own ``reset``, the first move is ``look around``.

        Raises:
            EnvError: there is no such task, or the engine failed.
        """
        self._over = True
        task, number = self._parsed(task_id)
        if "noElectricalAction" in self.simplifications and ("power-component" in task or "conductivity" in task):
            raise EnvError(f"{task_id!r} needs electrical actions, which the simplification noElectricalAction forbids")
        engine = self._engine()
        context = word2world(engine, task, number) if self.context == "word2world" else None
        engine.load(task, number, self.simplifications, self.gold)
        if self.context == "rooms":
            context = rooms(engine)
        first, instruction = engine.act("look around"), engine.instruction()
        self._score, self._over, self._view = first.score, first.completed, view(engine)
        gold = engine.gold() if self.gold else None
        return Observation(f"{instruction}\n\n{first.text}", instruction, context, gold)

    def step(self, action: str) -> StepResult:
        """Take one action, whatever it is, as one line.

        Raises:
            EnvError: no episode is going on, or the engine failed.
        """
        if self._over or self._process is None:
            raise EnvError("the episode is over or was never started: call reset first")
        answer = self._process.act(speakable(action))
        reward, self._score = answer.score - self._score, answer.score
        self._over = answer.completed or answer.score < 0
        before, self._view = self._view, "" if self._over else view(self._process)
        refused = answer.text.startswith(REFUSALS)
        changed = not refused and (reward != 0 or self._view != before)
        info = StepInfo(terminal=ending(answer), changed=changed, refused=refused)
        if self.admissible:
            info["admissible_actions"] = [] if self._over else self._process.admissible()
        return StepResult(answer.text.strip(), reward, self._over, False, info)

    def close(self) -> None:
        """End the Java process. May be called twice."""
        if self._process is not None:
            self._process.close()
        self._process, self._over = None, True

    def _engine(self) -> Engine:
        """The Java process, started when it is first needed and again if it has died."""
        if self._process is None or not self._process.alive:
            self.close()
            self._process = Engine()
        return self._process

    def _numbers(self, split: str) -> dict[str, list[int]]:
        if self._variations is None:
            self._variations = self._engine().variations()
        return self._variations[split]

    def _parsed(self, task_id: str) -> tuple[str, int]:
        match = re.fullmatch(r"([a-z0-9-]+)/(train|valid|test)/(\d{5})", task_id)
        if match is None or int(match[3]) not in self._numbers(match[2]).get(match[1], []):
            raise EnvError(f"scienceworld has no task {task_id!r}; ids look like boil/train/00012 (see task_ids)")
        return match[1], int(match[3])


def view(engine: Engine) -> str:
    """What can be seen in the room and is carried, in the engine's words; asking takes no time in the game."""
    with engine.asked():
        return f"{engine.server.freeActionLook()}\n{engine.server.freeActionInventory()}"


def ending(answer: Answer) -> Terminal | None:
    """How an answer ends the episode; None if it does not, or if the engine ends it with a score between 0 and 1."""
    return "failure" if answer.score < 0 else "success" if answer.score >= 1 else None


def speakable(action: str) -> str:
    """What the engine hears: one line of text that can be encoded."""
    return " ".join(action.split()).encode("utf-8", "replace").decode()


def _check_simplifications(given: str) -> None:
    for name in filter(None, given.split(",")):
        if name not in SIMPLIFICATIONS:
            raise ConfigError(f"scienceworld has no simplification {name!r}{suggest(name, SIMPLIFICATIONS)}")
