"""ToolBench's recorded runs: queries, the functions given for them, and what the live APIs answered.

A run is one agent's attempt at a query (Qin et al. 2023, "ToolLLM", arXiv 2307.16789). The data are read from
``toolbench_runs*.jsonl`` (or ``.jsonl.gz``), one run a line; ``worldloom.envs.toolbench_pack`` makes such a file from
the folder of answers that ToolBench releases.
"""

import gzip
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from worldloom.cache import cache_dir
from worldloom.envs.toolbench_call import Call, arguments_of
from worldloom.errors import DataError, MissingDependency

FILES = "toolbench_runs*.jsonl*"
FINISH = "Finish"
NO_ERROR = '{"error": "", "response": '  # how an answer without an error begins
NO_SUCH = '{"error": "No such function name: '  # and one to a call that reached no API
SPLITS = ("train", "valid", "test")
TENTHS = {7: "valid", 8: "test", 9: "test"}  # of the queries, by their hash; the others are for training

Function = Mapping[str, Any]


class Answered(NamedTuple):
    """A call and what it was answered."""

    call: Call
    answer: str

    @property
    def fine(self) -> bool:
        """An API was called and reported no error."""
        return self.call.name != FINISH and self.answer.startswith(NO_ERROR)


@dataclass(frozen=True)
class Run:
    """One agent's attempt; ``win`` is ToolBench's flag: it ended with an answer, right or wrong."""

    win: bool
    steps: tuple[Answered, ...]

    @cached_property
    def obtained(self) -> frozenset[str]:
        """The keys of the calls that were answered without an error."""
        return frozenset(step.call.key for step in self.steps if step.fine)


@dataclass(frozen=True)
class Query:
    """What a user asks, the functions there are for it, and all recorded attempts."""

    text: str
    functions: tuple[Function, ...]
    runs: tuple[Run, ...]

    @cached_property
    def id(self) -> str:
        """A hash of the text."""
        return digest(self.text)

    @property
    def split(self) -> str:
        """Decided by the text alone, so that no other query, run or file moves it."""
        return TENTHS.get(int(self.id, 16) % 10, "train")

    @cached_property
    def names(self) -> frozenset[str]:
        """The functions that can be called, ``Finish`` left out."""
        return frozenset(function["name"] for function in self.functions) - {FINISH}

    @cached_property
    def calls(self) -> dict[str, Call]:
        """The recorded calls of functions that exist, with arguments that are an object, each once, by a hash."""
        steps = (step for run in self.runs for step in run.steps)
        known = (step.call for step in steps if step.call.name in self.names)
        return {digest(call.key): call for call in known if not isinstance(call.arguments, str)}

    def turned(self, seed: int) -> tuple[Run, ...]:
        """The runs, that of the seed first."""
        first = seed % len(self.runs)
        return self.runs[first:] + self.runs[:first]


class Answers:
    """What a query's record answers in one episode.

    The n-th time that a call is made it gets the n-th answer recorded for it (the last one from then on), the runs in
    the order of ``Query.turned``: so the run of the seed gets its own answers again, word for word.
    """

    def __init__(self, query: Query, seed: int):
        self._told: dict[str, list[str]] = {}
        for step in (step for run in query.turned(seed) for step in run.steps):
            self._told.setdefault(step.call.key, []).append(step.answer)
        self._asked: Counter[str] = Counter()

    def answer(self, call: Call) -> str | None:
        """The recorded answer, None if no run of this query made the call."""
        told = self._told.get(call.key)
        if told is None:
            return None
        self._asked[call.key] += 1
        return told[min(self._asked[call.key], len(told)) - 1]


def digest(text: str) -> str:
    """Ten hexadecimal digits that stand for a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]


def record(folder: str | None = None) -> Mapping[str, Query]:
    """All queries of a data folder by id; default ``$TOOLBENCH_DATA``, else worldloom's cache.

    Raises:
        MissingDependency: no runs are there.
        DataError: a line is no run.
    """
    return _recorded(Path(folder or os.environ.get("TOOLBENCH_DATA") or cache_dir() / "toolbench").expanduser())


@cache
def _recorded(place: Path) -> Mapping[str, Query]:
    files = sorted(place.glob(FILES))
    if not files:
        raise MissingDependency(
            f"no recorded ToolBench runs ({FILES}) at {place}: set TOOLBENCH_DATA to the folder that holds them, or "
            "unpack ToolBench's data release (data.zip, see github.com/OpenBMB/ToolBench) and run `python -m "
            "worldloom.envs.toolbench_pack data/answer`"
        )
    return pooled(attempt for path in files for attempt in _attempts(path))


class Attempt(NamedTuple):
    """A run with its query and functions: one line of a data file."""

    query: str
    functions: Sequence[Function]
    run: Run


def _attempts(path: Path) -> Iterator[Attempt]:
    opener: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                yield _attempt(line, path, number)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read: {error}", path) from error


def _attempt(line: str, path: Path, number: int) -> Attempt:
    try:
        return attempt_of(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"is no recorded run ({error!r})", path, number) from error


def attempt_of(row: Mapping[str, Any]) -> Attempt:
    """Read a row of ``query``, ``functions``, ``win`` and ``steps`` (``action``, ``input``, ``observation``).

    Raises:
        KeyError, TypeError, AttributeError: it is no such row.
    """
    names = [function["name"] for function in row["functions"]]
    run = Run(bool(row["win"]), tuple(_step(names, step) for step in row["steps"]))
    return Attempt(row["query"], row["functions"], run)


def _step(names: Sequence[str], step: Mapping[str, Any]) -> Answered:
    """A recorded step, under the name of the function that answered it.

    ToolBench lets the first function answer whose name ends in what was said; unless a name is exact, that is the one.
    A call that it refused keeps the name that was said.
    """
    said, answer = step["action"], step["observation"]
    completed = [name for name in names if name.endswith(said) and name != FINISH]
    exact = said in names or not completed or answer.startswith(NO_SUCH)
    return Answered(Call(said if exact else completed[0], arguments_of(step["input"])), answer)


def pooled(attempts: Iterable[Attempt]) -> dict[str, Query]:
    """Queries by id, in the order of their first run, each with all of its runs."""
    functions: dict[str, Sequence[Function]] = {}
    runs: dict[str, list[Run]] = {}
    for attempt in attempts:
        functions.setdefault(attempt.query, attempt.functions)
        runs.setdefault(attempt.query, []).append(attempt.run)
    found = [Query(text, tuple(functions[text]), tuple(made)) for text, made in runs.items()]
    return {query.id: query for query in found}
