"""The small interface that whatever imagines a world has: a language model here, or one behind a server."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from worldloom.errors import ConfigError
from worldloom.lm.replies import Replies
from worldloom.role import Role
from worldloom.trajectory import Trajectory

MAX_NEW_TOKENS = 512  # Word2World's limit


class Confidence(NamedTuple):
    """How sure a model is of an answer, told by the log-probabilities of the answer's tokens, its end included.

    They are natural logarithms of the model's own probabilities (temperature 1), whatever it was sampled at.
    ``logprob`` is their sum, so that ``exp(logprob)`` is the probability of the whole answer; ``lowest`` is the
    least of the ``tokens`` there are. ``agrees`` says whether logged replies alone would have told the same; None
    where there are none.
    """

    logprob: float
    lowest: float
    tokens: int
    agrees: bool | None = None

    @classmethod
    def of(cls, logprobs: Sequence[float], agrees: bool | None = None) -> "Confidence | None":
        """From the log-probability of each token; None without any."""
        return cls(sum(logprobs), min(logprobs), len(logprobs), agrees) if logprobs else None

    @property
    def probability(self) -> float:
        """Of the whole answer, from 0 to 1."""
        return math.exp(min(self.logprob, 0.0))

    def record(self) -> dict[str, Any]:
        """As records keep it; what is not known is absent."""
        return {name: value for name, value in self._asdict().items() if value is not None}


class WorldSession(Protocol):
    """One imagined episode."""

    @property
    def confidence(self) -> Confidence | None:
        """Of the last answer; None if that is not known, or if there is none."""
        ...

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

    def hear(self, action: str, text: str) -> None:
        """Take a step whose answer is known, with its terminal suffix; nothing is generated.

        Raises:
            ContextOverflow: the episode has outgrown the model's window; it stays as it was.
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


class PolicyLM(Protocol):
    """A language model that says what to do next. ``role`` tells how it says it."""

    name: str

    @property
    def role(self) -> Role:
        """See above."""
        ...

    def policy(self, instruction: str | None, first: str, env: str | None = None) -> WorldSession:
        """Begin to act in an episode whose first observation is ``first``: the session's ``step`` takes an observation
        (the first one again, at first) and gives an action.

        Raises:
            ConfigError: the model names the environment in its system message, and ``env`` says none.
        """
        ...


def open_policy(model: str) -> PolicyLM:
    """A policy: ``NAME@http://HOST:PORT/v1`` behind a server, all else loaded here.

    Raises:
        ModelError: it cannot be loaded, or is a world model.
    """
    name, _, address = model.partition("@")
    if address.startswith(("http://", "https://")):
        from worldloom.lm.server import ServerLM

        return ServerLM(base_url=address, model=name, learns="policy")
    from worldloom.lm.session import LocalLM

    return LocalLM(model, learns="policy")


def open_lm(model: str) -> WorldLM:
    """``NAME@http://HOST:PORT/v1`` is a model behind an OpenAI-compatible server, ``retrieval:PATH`` a world made of
    logged replies only, ``nearest:FILE`` one of whole logged replies; all else is loaded here. ``zero-shot:MODEL`` and
    ``few-shot:FILE:MODEL`` tell a model that was not trained for it in words what to do, the latter with three episodes
    of a trajectories file.

    Raises:
        ModelError: it cannot be loaded.
        ConfigError, DataError: examples are missing.
    """
    from worldloom.lm.prompt import split_prompt

    prompt, model = split_prompt(model)
    name, _, address = model.partition("@")
    if address.startswith(("http://", "https://")):
        from worldloom.lm.server import ServerLM

        return ServerLM(base_url=address, model=name, prompt=prompt)
    if prompt is not None and model.startswith(("retrieval:", "nearest:")):
        raise ConfigError(f"{model} is no language model, so it cannot be prompted")
    if model.startswith("retrieval:"):
        from worldloom.lm.retrieval import RetrievalLM

        return RetrievalLM.open(model.removeprefix("retrieval:"))
    if model.startswith("nearest:"):
        from worldloom.lm.nearest import NearestLM

        return NearestLM.open(model.removeprefix("nearest:"))
    from worldloom.lm.session import LocalLM

    return LocalLM(model, prompt=prompt)
