"""The reply that was logged to the most similar action, whole: the baseline for tools, whose answers are long.

``worldloom.lm.retrieval`` puts an answer together from what was usual and what the episode said; this takes one answer
as it was, so that its form is right, and puts in the words in which the two actions differ.
"""

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from worldloom.coverage.steps import TEXT, kind_of
from worldloom.errors import ModelError, ProtocolError
from worldloom.lm.draft import Memory
from worldloom.lm.replies import Replies
from worldloom.lm.retrieval import RetrievalLM
from worldloom.protocol import said
from worldloom.trajectory import Step, Trajectory, read

WORD = re.compile(r"\w+")


class Logged(NamedTuple):
    """An action's words, and what was replied, with its terminal suffix."""

    words: tuple[str, ...]
    known: frozenset[str]
    reply: str


class NearestLM(RetrievalLM):
    """Answers with the reply to the logged action that shares the most words (Jaccard index), the first of several.

    A call's is a call of the same tool; one of a tool that was never called, and an action of a world that logged none,
    is answered by nothing.
    """

    def __init__(self, logged: Iterable[Trajectory]):
        super().__init__(Replies())
        self.name = "nearest"
        self._logged: dict[str, list[Logged]] = defaultdict(list)
        for trajectory in logged:
            for step in trajectory.steps:
                if not step.not_recorded:
                    with contextlib.suppress(ProtocolError):  # of what the text protocol cannot say
                        self._add(step)

    def _add(self, step: Step) -> None:
        words = tuple(WORD.findall(step.action))
        reply = said(step.observation, step.terminal)
        self._logged[_kind(step.action)].append(Logged(words, frozenset(words), reply))

    @classmethod
    def open(cls, path: str) -> "NearestLM":
        """From a trajectories file.

        Raises:
            ModelError: it holds no step.
            DataError: it cannot be read.
        """
        found = cls(read(Path(path)))
        if not found._logged:
            raise ModelError(f"nearest:{path}: the file holds no step; give a trajectories file")
        return found

    def answer(self, memory: Memory, action: str) -> str:
        """The reply; the episode so far does not count."""
        words = tuple(WORD.findall(action))
        known = frozenset(words)
        best = max(self._logged.get(_kind(action), ()), key=lambda logged: _shared(known, logged.known), default=None)
        return "" if best is None else _filled(best, words)


def _kind(action: str) -> str:
    kind = kind_of(action)
    return kind.name if kind.call else TEXT


def _shared(some: frozenset[str], others: frozenset[str]) -> float:
    return len(some & others) / (len(some | others) or 1)


def _filled(logged: Logged, words: tuple[str, ...]) -> str:
    """The reply with the words in which two actions of as many words differ exchanged."""
    if len(words) != len(logged.words):
        return logged.reply
    other = {old: new for old, new in zip(logged.words, words, strict=True) if old != new}
    return WORD.sub(lambda match: other.get(match[0], match[0]), logged.reply) if other else logged.reply
