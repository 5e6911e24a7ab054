"""The one schema of recorded interaction: a trajectory is one JSON line.

Unknown fields survive a round trip, successes and failures are both kept, and a rollout
that broke is a trajectory with an ``error``, never a missing line.
"""

import json
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, ValidationError, model_serializer

from worldloom.errors import DataError

SCHEMA: Final = "worldloom/1"

Terminal = Literal["success", "failure", "truncated"]
Outcome = Literal["success", "failure", "truncated", "error"]
Effect = Literal["state_changing", "no_change", "invalid"]

ESCAPED: Final = "backslashreplace"  # within JSON, it makes half a surrogate pair the escape that JSON has for it
HALF_PAIR = re.compile(rb"\\ud[89a-f]", re.IGNORECASE)
MESSAGES: Final = (
    "is a row of a `messages` file, not a trajectory; read the file with worldloom.protocol.read_messages and write "
    "its trajectories with worldloom.write"
)


class _Record(BaseModel):
    # a log may hold secrets, so no error quotes what it says
    model_config = ConfigDict(extra="allow", frozen=True, populate_by_name=True, hide_input_in_errors=True)

    @model_serializer(mode="wrap")
    def _without_absent(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out known fields without a value; an unknown field stays as it was read, null included."""
        unknown = self.model_extra or {}
        return {key: value for key, value in plain(self).items() if value is not None or key in unknown}


class EnvRef(_Record):
    """Which environment, in which version of its engine, with which options."""

    name: str
    version: str | None = None
    options: dict[str, Any] = {}


class TaskRef(_Record):
    """Which task of the environment. ``gold_actions`` is a winning plan, where the environment gave one: for agents
    that follow it, never told to a world model."""

    id: str
    split: str | None = None
    seed: int | None = None
    instruction: str | None = None
    gold_actions: list[str] | None = None


class AgentRef(_Record):
    """Who acted."""

    name: str
    params: dict[str, Any] = {}


class Step(_Record):
    """One action and what followed. ``terminal`` is None while the episode goes on or is unknown.

    ``changed`` says whether the real environment was in another state afterwards, and ``refused`` whether it answered
    that the action cannot be done; both are None where the environment does not tell.
    ``not_recorded`` marks a step whose real observation a recorded world does not know; no metric may count it.
    Of an imagined episode: ``confidence`` says how sure the world model was (see ``worldloom.lm.base.Confidence``),
    ``anchored`` marks a step that the real environment answered, and ``reason`` is why the world model broke off, so
    that the observation says nothing.
    """

    action: str
    observation: str
    thought: str | None = None
    reward: float | None = Field(None, allow_inf_nan=False)
    terminal: Terminal | None = None
    admissible_actions: list[str] | None = None
    changed: bool | None = None
    refused: bool | None = None
    not_recorded: bool | None = None
    confidence: dict[str, Any] | None = None
    anchored: bool | None = None
    reason: str | None = None


class Failure(_Record):
    """Why a rollout broke: the kind of error and its message."""

    kind: str
    message: str


class Trajectory(_Record):
    """One episode (DESIGN: one trajectory schema, many doors).

    ``imagined`` marks one that a world model answered; ``env.name`` says so too.
    """

    schema_: Literal["worldloom/1"] = Field(SCHEMA, alias="schema")
    env: EnvRef
    task: TaskRef
    initial_observation: str
    initial_context: str | None = None
    agent: AgentRef | None = None
    steps: list[Step] = []
    error: Failure | None = None
    imagined: bool | None = None

    @property
    def outcome(self) -> Outcome | None:
        """How the episode ended; None if nothing says so."""
        if self.error is not None:
            return "error"
        return self.steps[-1].terminal if self.steps else None

    @property
    def actions(self) -> list[str]:
        """The actions in order."""
        return [step.action for step in self.steps]

    def effect(self, number: int) -> Effect | None:
        """What the action of a step (counted from 0) did to the real environment; None where that is unknown.

        ``refused`` and ``changed`` tell it. Where they are absent, as in older files, the admissible actions do: an
        action that was not among them is taken for invalid, one that left them as they were for one without effect.
        """
        step, before = self.steps[number], self.steps[number - 1].admissible_actions if number else None
        refused, changed = step.refused, step.changed
        if before is not None and not step.not_recorded:
            refused = step.action not in before if refused is None else refused
            changed = step.admissible_actions != before if changed is None else changed
        if refused:
            return "invalid"
        return None if changed is None else "state_changing" if changed else "no_change"

    def to_json(self) -> str:
        """One line of JSON, without a line break; absent values are left out."""
        return json.dumps(self.model_dump(by_alias=True), ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str | bytes) -> "Trajectory":
        """Read one line.

        Raises:
            DataError: the line is not JSON or does not fit the schema; the reason names the key.
        """
        try:
            return cls.model_validate_json(line)
        except ValidationError as error:
            if not HALF_PAIR.search(line if isinstance(line, bytes) else line.encode(errors=ESCAPED)):
                raise DataError(_first_problem(error)) from error
        try:  # pydantic's own reader of JSON refuses half a surrogate pair
            return cls.model_validate(json.loads(line))
        except ValidationError as error:
            raise DataError(_first_problem(error)) from error
        except (ValueError, RecursionError) as error:
            raise DataError(f"is not JSON: {error}") from error


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    if isinstance(first["input"], dict) and "messages" in first["input"]:
        return MESSAGES
    key = ".".join(str(part) for part in first["loc"])
    return f"{key}: {first['msg']}" if key else first["msg"]


class BadLine(NamedTuple):
    """A line that could not be read, and why."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


def scan(path: Path | str) -> Iterator[Trajectory | BadLine]:
    """Yield every trajectory of a JSON Lines file, and a ``BadLine`` for each line that is none.

    Raises:
        DataError: the file is missing or cannot be opened.
    """
    path = Path(path)
    for number, raw in numbered_lines(path):
        try:
            yield Trajectory.from_json(raw)
        except DataError as error:
            yield BadLine(path, number, error.reason)


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, numbered from 1.

    Raises:
        DataError: the file is missing or cannot be opened.
    """
    try:
        with path.open("rb") as file:
            yield from ((n, raw) for n, raw in enumerate(file, 1) if raw.strip())
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", path) from error


def read(path: Path | str, *, strict: bool = False) -> list[Trajectory]:
    """Read all trajectories of a JSON Lines file.

    Bad lines are warned of by file and line number and left out; with ``strict`` the first one raises.

    Raises:
        DataError: the file cannot be read, or ``strict`` and a line is bad.
    """
    found = []
    for item in scan(path):
        if isinstance(item, Trajectory):
            found.append(item)
        elif strict:
            raise DataError(item.reason, item.path, item.line)
        else:
            warnings.warn(f"left out: {item}", stacklevel=2)
    return found


def write(path: Path | str, trajectories: Iterable[Trajectory]) -> int:
    """Write trajectories as JSON Lines, replacing the file in one move; return how many."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".part")
    count = 0
    with draft.open("w", encoding="utf-8", errors=ESCAPED) as file:
        for count, trajectory in enumerate(trajectories, 1):  # noqa: B007
            file.write(trajectory.to_json() + "\n")
    draft.replace(path)
    return count
