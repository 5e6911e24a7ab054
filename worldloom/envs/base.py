"""The contract that every world obeys, real or imagined."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, NamedTuple, TypedDict

from worldloom.errors import ConfigError, MissingDependency, suggest
from worldloom.trajectory import EnvRef, Terminal


class Observation(NamedTuple):
    """What ``reset`` gives.

    ``text`` and ``instruction`` are for the agent; ``initial_context`` is what a world model may know of the
    initial state and the agent may not; ``gold_actions`` is a winning plan, where the environment has one.
    """

    text: str
    instruction: str | None = None
    initial_context: str | None = None
    gold_actions: tuple[str, ...] | None = None


class StepInfo(TypedDict, total=False):
    """What a step may say besides the contract's five values. Absent means unknown."""

    terminal: Terminal | None
    admissible_actions: list[str]
    changed: bool
    """Whether the action left the engine in another state (a counter of moves, or what was looked at, is no state)."""
    refused: bool
    """Whether the engine answered that the action cannot be done; such an action is not ``changed``."""
    not_recorded: bool
    """The observation only says that a recorded world does not know the answer: no metric may count this step."""
    confidence: dict[str, Any]
    """How sure a world model was of this step; see ``worldloom.lm.base.Confidence``."""
    anchored: bool
    """The real environment answered this step of an imagined episode."""
    reason: Literal["window", "unsure"]
    """Why a world model broke off: the history outgrew its window, or it was too unsure of what follows."""


class StepResult(NamedTuple):
    """What ``step`` gives, in Gymnasium's order and meaning; ``reward`` is None where unknown."""

    observation: str
    reward: float | None
    terminated: bool
    truncated: bool
    info: StepInfo


class Environment(ABC):
    """A world of text: ``reset``, ``step``, ``close``.

    Same task id, same seed, same actions: same observations, in every process. A malformed or impossible
    action is an ordinary observation, never an exception. After the end, ``step`` raises ``EnvError``.
    """

    name: str
    version: str

    @property
    def options(self) -> dict[str, Any]:
        """What ``worldloom.make(name, **options)`` needs to build this environment again."""
        return {}

    @property
    def ref(self) -> EnvRef:
        """How trajectories name this environment."""
        return EnvRef(name=self.name, version=self.version, options=self.options)

    @property
    @abstractmethod
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, training first."""

    @abstractmethod
    def task_ids(self, split: str) -> Sequence[str]:
        """The task ids of a split, in a fixed order; no id is in two splits.

        Raises:
            ConfigError: there is no such split.
        """

    def check_split(self, split: str) -> None:
        """Refuse a split that there is not, with the nearest name.

        Raises:
            ConfigError: there is no such split.
        """
        if split not in self.splits:
            raise ConfigError(f"{self.name} has no split {split!r}{suggest(split, self.splits)}")

    @abstractmethod
    def reset(self, task_id: str, seed: int = 0) -> Observation:
        """Start a task. Whatever was going on is given up.

        Raises:
            EnvError: there is no such task, or it cannot be started.
        """

    @abstractmethod
    def step(self, action: str) -> StepResult:
        """Take one action."""

    @abstractmethod
    def close(self) -> None:
        """Free the engine. May be called twice."""

    def __enter__(self) -> "Environment":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def installed_version(package: str, needed: str) -> str:
    """The version of a package that an environment plays with.

    Args:
        package: its name on PyPI.
        needed: what to tell somebody who lacks it.

    Raises:
        MissingDependency: it is not installed.
    """
    try:
        return version(package)
    except PackageNotFoundError as error:
        raise MissingDependency(needed) from error
