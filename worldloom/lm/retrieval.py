"""A world model without a language model: the likeliest logged reply, with this episode's things put in.

It says what ``worldloom.lm.draft`` would guess first. A baseline that costs nothing, and usable as a world:
``retrieval:FILE`` with a trajectories file, or with the folder of a trained model.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from worldloom.errors import ModelError
from worldloom.lm.base import MAX_NEW_TOKENS, check_rewind
from worldloom.lm.draft import Drafter, Memory
from worldloom.lm.guess import remembering
from worldloom.lm.replies import END, Replies
from worldloom.trajectory import Trajectory, read


class RetrievalLM:
    """Answers from logged transitions.

    Args:
        replies: what was logged.
        remember: whether it heeds the episode; without, it gives the majority reply to each form of action.
    """

    def __init__(self, replies: Replies, remember: bool = True):
        self.replies, self.remember = replies, remember
        self.name = "retrieval" if remember else "majority reply"

    @classmethod
    def open(cls, path: str) -> "RetrievalLM":
        """From a trajectories file, or the ``replies.json`` of a model folder.

        Raises:
            ModelError: there is neither.
        """
        place = Path(path)
        folder = place / "model" if (place / "model").is_dir() else place
        replies = Replies.load(folder) if folder.is_dir() else Replies()
        if place.is_file():
            replies.learn(read(place))
        if not replies.forms:
            raise ModelError(f"retrieval:{path}: give a trajectories file, or a trained model that has replies.json")
        return cls(replies)

    def session(
        self, initial_context: str | None, initial_observation: str, env: str | None = None
    ) -> "RetrievalSession":
        """Begin an episode; it has no system message that could name the environment."""
        return RetrievalSession(self, remembering(initial_context, initial_observation))

    def answers(self, trajectory: Trajectory) -> Iterator[str]:
        """What it would answer at each step, after the real history."""
        memory = remembering(trajectory.initial_context, trajectory.initial_observation)
        for step in trajectory.steps:
            yield self.answer(memory, step.action)
            memory.hear(step.observation)

    def answer(self, memory: Memory, action: str) -> str:
        """The likeliest reply; nothing if no such action was ever logged."""
        guesses = Drafter(self.replies, memory if self.remember else Memory(), action).guesses("")
        return "".join(part for part in guesses[0] if part != END) if guesses else ""


class RetrievalSession:
    """One episode."""

    def __init__(self, lm: RetrievalLM, memory: Memory):
        self.lm, self.memory = lm, memory
        self.lengths: list[int] = []
        self.confidence = None

    @property
    def taken(self) -> int:
        """How many steps it has."""
        return len(self.lengths)

    def step(self, action: str, max_new_tokens: int = MAX_NEW_TOKENS, sampling: Any = None) -> str:
        """What was usually replied to such an action; nothing is drawn."""
        text = self.lm.answer(self.memory, action)
        self.hear(action, text)
        return text

    def hear(self, action: str, text: str) -> None:
        """Take a step whose answer is known."""
        self.lengths.append(len(self.memory.parts))
        self.memory.hear(text)

    def fork(self) -> "RetrievalSession":
        """The same episode so far, to go on by itself."""
        twin = RetrievalSession(self.lm, self.memory.copy())
        twin.lengths = list(self.lengths)
        return twin

    def rewind(self, steps: int = 1) -> None:
        """Take the last steps back.

        Raises:
            ValueError: there were not as many.
        """
        check_rewind(steps, self.taken)
        if steps:
            self.memory.forget(self.lengths[-steps])
            del self.lengths[-steps:]
