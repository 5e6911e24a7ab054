"""What is wrong between episodes: duplicates, and what two splits share.

Near-duplicates are pairs whose word shingles' Jaccard similarity, estimated by MinHash (Broder 1997), reaches a
threshold; candidates come from locality-sensitive hashing, so the work does not grow with the square of the episodes.
"""

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from worldloom.lint.episode import Said
from worldloom.trajectory import Trajectory

SHINGLE = 5  # words
PERMUTATIONS = 128


class Place(NamedTuple):
    """Where an episode stands, and in which split."""

    path: Path
    line: int
    split: str

    def __str__(self) -> str:
        return f"{self.path.name}:{self.line}" + (f" ({self.split})" if self.split else "")


def task_of(trajectory: Trajectory) -> tuple[str, str]:
    """What names a task: the environment and its id."""
    return trajectory.env.name, trajectory.task.id


def start_of(trajectory: Trajectory) -> bytes:
    """A digest of an episode's initial state: environment, instruction, context and first observation."""
    task = trajectory.task
    return _digest([trajectory.env.name, task.instruction, trajectory.initial_context, trajectory.initial_observation])


def content_of(trajectory: Trajectory) -> bytes:
    """A digest of all that was said in an episode, whoever acted."""
    said = [(step.action, step.observation, step.terminal) for step in trajectory.steps]
    return _digest([trajectory.env.name, trajectory.initial_context, trajectory.initial_observation, said])


def contexts_differ(episodes: Iterable[Trajectory]) -> bool:
    """Whether contexts tell states apart; one that all episodes have, such as a system prompt, does not."""
    contexts = (trajectory.initial_context for trajectory in episodes)
    first = next(contexts, None)
    return any(context != first for context in contexts)


def _digest(data: Any) -> bytes:
    return hashlib.sha256(json.dumps(data).encode()).digest()[:16]


@dataclass
class Seen:
    """The episodes so far. ``near`` is the similarity from which two are near-duplicates; None does not look.

    ``telling`` is whether the episodes' contexts differ (see ``contexts_differ``). Memory grows with each episode by a
    few digests, and with ``near`` by its MinHash, too.
    """

    near: float | None = None
    telling: bool = False
    tasks: dict[tuple[str, str], Place] = field(default_factory=dict)
    starts: dict[bytes, Place] = field(default_factory=dict)
    contents: dict[bytes, Place] = field(default_factory=dict)
    _index: Any = None
    _hashes: dict[Place, Any] = field(default_factory=dict)

    def problems(self, trajectory: Trajectory, place: Place) -> Iterator[Said]:
        """What an episode shares with those before it; then it is one of them."""
        first = self.tasks.setdefault(task_of(trajectory), place)
        if first.split != place.split:
            yield "leak-task", f"its task is also at {first}"
        first = self.starts.setdefault(start_of(trajectory), place)
        if first.split != place.split:
            rule = "leak-state" if trajectory.initial_context is not None and self.telling else "same-start"
            yield rule, f"it starts like {first}"
        first = self.contents.setdefault(content_of(trajectory), place)
        if first is not place:
            rule = "duplicate" if first.split == place.split else "leak-duplicate"
            yield rule, f"the same as {first}"
        elif self.near is not None and trajectory.steps:
            yield from self._near(trajectory, place)

    def _near(self, trajectory: Trajectory, place: Place) -> Iterator[Said]:
        from datasketch import MinHash, MinHashLSH

        if self._index is None:
            self._index = MinHashLSH(threshold=self.near, num_perm=PERMUTATIONS)
        own = MinHash(num_perm=PERMUTATIONS, hashfunc=zlib.crc32)
        own.update_batch(list(shingles(trajectory)))
        rated = [(own.jaccard(self._hashes[other]), other) for other in self._index.query(own)]
        alike = [(rating, other) for rating, other in rated if rating >= (self.near or 0)]
        # a pair in two splits is what matters, so it is told before a closer pair in one
        for rating, other in sorted(alike, key=lambda pair: (pair[1].split == place.split, -pair[0]))[:1]:
            rule = "near-duplicate" if other.split == place.split else "leak-near-duplicate"
            yield rule, f"{rating:.0%} the same as {other}"
        self._index.insert(place, own)
        self._hashes[place] = own


def shingles(trajectory: Trajectory) -> set[bytes]:
    """The runs of five words of an episode's steps, actions and observations in order; all of it if it is shorter."""
    words = [word for step in trajectory.steps for text in (step.action, step.observation) for word in text.split()]
    return {" ".join(words[at : at + SHINGLE]).encode() for at in range(max(1, len(words) - SHINGLE + 1))}
