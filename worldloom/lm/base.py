"""The small interface that whatever imagines a world has: a language model here, or one behind a server."""

from collections.abc import Iterable
from typing import Any, Protocol

from worldloom.lm.replies import Replies
from worldloom.trajectory import Trajectory

MAX_NEW_TOKENS = 512  # Word2World's limit


class WorldSession(Protocol):
    """One imagined episode."""

    @property
    def taken(self) -> int:
        """How many steps it has."""
        ...

    def step(self, action: str, max_new_tokens: int = MAX_NEW_TOKENS, sampling: Any = None) -> str:
        """What is answered to an action: an observation with its terminal suffix.

        Raises:
            ContextOverflow: the episode has outgrown the model's window.
        """
        ...

    def fork(self) -> "WorldSession":
        """The same episode so far, to go on by itself."""
        ...

    def rewind(self, steps: int = 1) -> None:
        """Take the last steps back."""
        ...


def check_rewind(steps: int, taken: int) -> None:
    """Refuse to take back more steps than there are.

    Raises:
        ValueError: there were not as many.
    """
    if not 0 <= steps <= taken:
        raise ValueError(f"cannot take back {steps} steps of {taken}")


class WorldLM(Protocol):
    """A language model that can be asked what comes next. ``replies`` are the logged ones that it knows, if any."""

    name: str

    @property
    def replies(self) -> Replies | None:
        """See above."""
        ...

    def session(self, initial_context: str | None, initial_observation: str, env: str | None = None) -> WorldSession:
        """Begin an episode, in the environment ``env``.

        Raises:
            ConfigError: the model names the environment in its system message, and ``env`` says none.
        """
        ...


class AnsweringLM(WorldLM, Protocol):
    """One that can only be asked, and not be scored in one pass."""

    def answers(self, trajectory: Trajectory) -> Iterable[str]:
        """What it answers at each step after the real history; it may end early, where its window does."""
        ...


def open_lm(model: str) -> WorldLM:
    """``NAME@http://HOST:PORT/v1`` is a model behind an OpenAI-compatible server, ``retrieval:PATH`` a world made of
    logged replies only; all else is loaded here.

    Raises:
        ModelError: it cannot be loaded.
    """
    name, _, address = model.partition("@")
    if address.startswith(("http://", "https://")):
        from worldloom.lm.server import ServerLM

        return ServerLM(base_url=address, model=name)
    if model.startswith("retrieval:"):
        from worldloom.lm.retrieval import RetrievalLM

        return RetrievalLM.open(model.removeprefix("retrieval:"))
    from worldloom.lm.session import LocalLM

    return LocalLM(model)
