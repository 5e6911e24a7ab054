"""Episodes -> train, valid and test files that share no task, no customer and no episode.

A hash decides which split a group of episodes goes to, so the same data are split the same everywhere.
"""

import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from worldloom.errors import ConfigError, DataError
from worldloom.lint.between import content_of, start_of, task_of
from worldloom.redact.replace import TASK
from worldloom.redact.rules import PLACEHOLDER
from worldloom.runs import open_run, write_json
from worldloom.trajectory import Trajectory, read, write

LEFT_OUT = "left_out"
Leaks = Literal["refuse", "leave_out"]


@dataclass(frozen=True)
class SplitConfig:
    """How to split.

    Args:
        by: Keys whose values no two splits may share: ``task``, or the path of a field, unknown ones included
            (``customer``, ``task.seed``, ``agent.name``). Episodes that share any of them stay together.
        time: The path of a field with a time (ISO 8601, or seconds). The earliest episodes train, whatever their keys.
        fractions: The splits and how much of the groups (by ``time``: of the episodes) each gets, in order.
        seed: Draws other splits.
        stable: Let a group's hash alone decide, so that no group moves when others are added; shares are then only
            approximate. Else groups are put in the order of their hashes and cut where the fractions say.
        leaks: What to do where episodes of different splits share a task, an initial state with its context, a value
            of ``by``, or everything: refuse, or leave out the episode of the earlier split (written to its own file).
        placeholders: Whether the file was redacted with ``scope`` ``episode``, so that a placeholder names nobody in
            the next episode, or ``file``.

    Raises:
        ConfigError: fractions that do not add up to 1, or no key.
    """

    by: tuple[str, ...] = ("task",)
    time: str | None = None
    fractions: tuple[tuple[str, float], ...] = (("train", 0.8), ("valid", 0.1), ("test", 0.1))
    seed: int = 0
    stable: bool = False
    leaks: Leaks = "refuse"
    placeholders: Literal["episode", "file"] = "episode"

    def __post_init__(self) -> None:
        shares = [share for _, share in self.fractions]
        if not math.isclose(sum(shares), 1) or min(shares, default=0) <= 0:
            raise ConfigError(f"fractions are {shares}; each must be above 0, and they must add up to 1")
        if len(dict(self.fractions)) < len(shares) or not all(re.fullmatch(r"\w+", n) for n, _ in self.fractions):
            raise ConfigError("names of splits must be different single words, as in train=0.8")
        if LEFT_OUT in dict(self.fractions):
            raise ConfigError(f"{LEFT_OUT!r} is where episodes go that leak; give the split another name")
        if not self.by:
            raise ConfigError("name at least one key to split by, such as task")


def split(source: Path, out: Path, config: SplitConfig) -> dict[str, Any]:
    """Split a file of trajectories into ``out/<split>.jsonl`` and record how in ``out/config.json`` and
    ``out/splits.json``.

    Returns:
        What ``splits.json`` holds: of each split its file, ``episodes``, ``groups``, outcomes and SHA-256, and
        ``left_out``.

    Raises:
        ConfigError: a split would be empty, or ``out`` holds another split.
        DataError: there is no episode, a line is bad, a key is missing or redacted, or splits leak; says what to do.
    """
    rows = read(source, strict=True)
    if not rows:
        raise DataError("holds no episode to split", source)
    groups = grouped(rows, config.by, config.placeholders)
    names = by_time(rows, config) if config.time else by_hash(groups, config)
    names = without_leaks(rows, names, config)
    if empty := [name for name, _ in config.fractions if name not in names]:
        told = f"{len(rows)} episodes in {len(set(groups))} groups"
        raise ConfigError(
            f"nothing falls to {', '.join(empty)} ({told}); take larger fractions, fewer splits or a seed"
        )
    open_run(out, {"stage": "split", "source": digest(source), **_plain(config)})
    splits = {name: _write(out, name, rows, names, groups) for name in (*dict(config.fractions), LEFT_OUT)}
    record: dict[str, Any] = {
        "source": {"file": source.name, "sha256": digest(source)},
        **_plain(config),
        "splits": {name: found for name, found in splits.items() if found["episodes"] or name != LEFT_OUT},
    }
    write_json(out / "splits.json", record)
    return record


def _plain(config: SplitConfig) -> dict[str, Any]:
    return {"by": list(config.by), "time": config.time, "fractions": dict(config.fractions), "seed": config.seed,
            "stable": config.stable, "leaks": config.leaks,
            **({"placeholders": "file"} if config.placeholders == "file" else {})}  # fmt: skip


def _write(
    out: Path, name: str, rows: Sequence[Trajectory], names: Sequence[str], groups: Sequence[str]
) -> dict[str, Any]:
    chosen = [n for n, own in enumerate(names) if own == name]
    path = out / f"{name}.jsonl"
    if not chosen:
        path.unlink(missing_ok=True)
        return {"episodes": 0}
    write(path, (rows[n].model_copy(update={"task": rows[n].task.model_copy(update={"split": name})}) for n in chosen))
    outcomes = Counter(rows[n].outcome or "unknown" for n in chosen)
    return {
        "file": path.name,
        "episodes": len(chosen),
        "groups": len({groups[n] for n in chosen}),
        "outcomes": dict(outcomes.most_common()),
        "sha256": digest(path),
    }


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def value_at(trajectory: Trajectory, key: str, placeholders: str = "episode") -> Any:
    """What a trajectory has at a path such as ``customer.id``; ``task`` is the environment's name and the task's id.

    Raises:
        DataError: it has nothing there, or what redaction left that means something else in each episode.
    """
    value = trajectory.task.id if key == "task" else _field(trajectory, key)
    if value is None:
        raise DataError(f"task {trajectory.task.id!r} has no {key!r}; name a field that every episode has")
    if placeholders == "episode" and isinstance(value, str) and _names_nobody(value):
        raise DataError(
            f"{key!r} was redacted, and another episode's same placeholder is another value; split first, then redact, "
            "or redact with --scope file and split with --placeholders file"
        )
    return task_of(trajectory) if key == "task" else value


def _field(trajectory: Trajectory, path: str) -> Any:
    value: Any = trajectory.model_dump(by_alias=True)
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _names_nobody(value: str) -> bool:
    """Whether redaction left a placeholder that means something else in each episode."""
    return any(name != TASK for name, _ in PLACEHOLDER.findall(value))


def grouped(rows: Sequence[Trajectory], keys: Iterable[str], placeholders: str = "episode") -> list[str]:
    """The name of each episode's group: episodes that share a value of any of the keys are one group, and its name
    is the first in order of all their keys and values, so that it depends on nothing but them.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    named = [(n, f"{key}={value_at(row, key, placeholders)!r}") for key in keys for n, row in enumerate(rows)]
    first: dict[str, int] = {}
    ends = [[n for n, _ in named], [first.setdefault(name, n) for n, name in named]]
    graph = coo_array(([1] * len(named), ends), shape=(len(rows), len(rows)))
    _, labels = connected_components(graph, directed=False)
    least: dict[int, str] = {}
    for n, name in named:
        least[labels[n]] = min(name, least.get(labels[n], name))
    return [least[label] for label in labels]


def by_hash(groups: Sequence[str], config: SplitConfig) -> list[str]:
    """The split of each episode, by a hash of its group's name and the seed."""

    def place(group: str) -> float:
        return int.from_bytes(hashlib.sha256(f"{config.seed} {group}".encode()).digest()[:8]) / 2**64

    places = {group: place(group) for group in groups}
    if not config.stable:
        ordered = sorted(places, key=lambda group: (places[group], group))
        places = {group: (rank + 0.5) / len(ordered) for rank, group in enumerate(ordered)}
    return [_named(config, sum(places[group] >= edge for edge in _edges(config)[:-1])) for group in groups]


def by_time(rows: Sequence[Trajectory], config: SplitConfig) -> list[str]:
    """The split of each episode, the earliest first; episodes of one time stay together.

    Raises:
        DataError: an episode has no time, or what it has is none.
    """
    times = [_time(row, config.time or "") for row in rows]
    ordered, edges = sorted(times), []
    for place in _edges(config):
        edges.append(ordered[min(len(ordered) - 1, round(place * len(ordered)))] if ordered else 0.0)
    return [_named(config, sum(time >= edge for edge in edges[:-1])) for time in times]


def _edges(config: SplitConfig) -> list[float]:
    shares = [share for _, share in config.fractions]
    return [sum(shares[: n + 1]) for n in range(len(shares))]


def _named(config: SplitConfig, number: int) -> str:
    return config.fractions[number][0]


def _time(trajectory: Trajectory, key: str) -> float:
    value = value_at(trajectory, key)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError:
        raise DataError(f"task {trajectory.task.id!r}: {key!r} is no time; give ISO 8601 or seconds") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def without_leaks(rows: Sequence[Trajectory], names: Sequence[str], config: SplitConfig) -> list[str]:
    """The splits, with what leaks left out if the configuration says so.

    Raises:
        DataError: splits leak, and leaks are refused; says how many episodes share what.
    """
    order = {name: n for n, (name, _) in enumerate(config.fractions)}
    leaking: dict[str, set[int]] = {}
    for what, key in _ties(rows, config):
        places: dict[Any, list[int]] = defaultdict(list)
        for n, row in enumerate(rows):
            if (value := key(row)) is not None:
                places[value].append(n)
        for shared in places.values():
            last = max(order[names[n]] for n in shared)
            if early := [n for n in shared if order[names[n]] < last]:
                leaking.setdefault(what, set()).update(early)
    if leaking and config.leaks == "refuse":
        told = "; ".join(f"{len(found)} share {what}" for what, found in leaking.items())
        raise DataError(
            f"episodes of an earlier split share with a later one: {told}; split --by what they share too, or give "
            "--leaks leave_out"
        )
    gone = set().union(*leaking.values())
    return [LEFT_OUT if n in gone else name for n, name in enumerate(names)]


def _said_at(key: str, placeholders: str, trajectory: Trajectory) -> str:
    return repr(value_at(trajectory, key, placeholders))


def _ties(rows: Sequence[Trajectory], config: SplitConfig) -> list[tuple[str, Callable[[Trajectory], Any]]]:
    """What no two splits may share: the keys' values, the task, the initial state with its context, all of it.

    A context that all episodes have, such as a system prompt, tells no state.
    """
    telling = len({row.initial_context for row in rows}) > 1

    def start(trajectory: Trajectory) -> Any:
        return start_of(trajectory) if telling and trajectory.initial_context is not None else None

    named: list[tuple[str, Callable[[Trajectory], Any]]] = [
        (f"their {key}", partial(_said_at, key, config.placeholders)) for key in dict.fromkeys((*config.by, "task"))
    ]
    return [*named, ("their initial state", start), ("all that was said", content_of)]
