"""A model behind an OpenAI-compatible server: vLLM, SGLang, llama.cpp, ``transformers serve``, a vendor's."""

import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from worldloom.errors import ContextOverflow
from worldloom.lm.base import MAX_NEW_TOKENS, check_rewind
from worldloom.lm.openai import ChatServer, Message
from worldloom.lm.prompt import Prompt, prompted
from worldloom.naming import Naming
from worldloom.protocol import render, system_text
from worldloom.role import Learns, Role, policy_system
from worldloom.trajectory import Trajectory

logger = logging.getLogger(__name__)


class ServerLM:
    """Asks a server; see ``ChatServer`` for its settings and errors.

    Args:
        at_once: how many requests are sent at the same time; more wait.
        naming: whether system messages name the environment; by default as the model's folder says, if ``model`` is
            one (what servers call a model of this machine unless told otherwise).
        prompt: what the model is told first, if it was not trained for this.
        learns: whether it is a world or a policy; refused where the model's folder says otherwise.
        settings: of ``ChatServer``; decoding is greedy unless ``temperature`` is given.
    """

    def __init__(
        self,
        at_once: int = 16,
        naming: Naming | None = None,
        prompt: Prompt | None = None,
        learns: Learns = "world",
        **settings: Any,
    ):
        self.prompt = prompt
        self.server = ChatServer(**{"temperature": 0.0, "max_tokens": MAX_NEW_TOKENS, **settings})
        self.name = self.server.model
        self.naming = naming or Naming.load(Path(self.name))
        self.role = Role.opened(Path(self.name), learns)
        self.replies = None
        self._turns = threading.Semaphore(at_once)

    def session(self, initial_context: str | None, initial_observation: str, env: str | None = None) -> "ServerSession":
        """Begin an episode; see ``worldloom.lm.base.WorldLM``."""
        context = self.prompt.before(initial_context) if self.prompt else initial_context
        text = system_text(context, initial_observation, self.naming.of(env))
        return ServerSession(self, [Message(role="system", content=text)])

    def policy(self, instruction: str | None, first: str, env: str | None = None) -> "ServerSession":
        """Begin to act in an episode; see ``worldloom.lm.base.PolicyLM``."""
        system = policy_system(instruction, first, self.naming.of(env))
        return ServerSession(self, [Message(role="system", content=system)])

    def answers(self, trajectory: Trajectory) -> Iterator[str]:
        """What it answers at each step after the real history, up to where that outgrows the model's window."""
        messages = render(prompted(trajectory, self.prompt), self.naming.of(trajectory.env.name))
        for number in range(len(trajectory.steps)):
            try:
                yield self.reply(messages[: 2 * number + 2])
            except ContextOverflow as error:
                logger.warning("%s: %s", trajectory.task.id, error)
                return

    def reply(self, messages: Sequence[Message], max_new_tokens: int = MAX_NEW_TOKENS, sampling: Any = None) -> str:
        """What the model says next.

        Raises:
            ContextOverflow: the conversation does not fit the model's window.
            ModelError: the server is absent, slow, refuses or fails.
        """
        server = replace(self.server, max_tokens=max_new_tokens)
        if sampling is not None:
            server = replace(server, temperature=sampling.temperature)
        with self._turns:
            return server.chat(messages, seed=sampling.draw() if sampling is not None else None)


class ServerSession:
    """One episode as messages; the server keeps what it computed, if it caches prefixes."""

    def __init__(self, lm: ServerLM, messages: Sequence[Message]):
        self.lm, self.messages, self.confidence = lm, list(messages), None

    @property
    def taken(self) -> int:
        """How many steps it has."""
        return len(self.messages) // 2

    def step(self, action: str, max_new_tokens: int = MAX_NEW_TOKENS, sampling: Any = None) -> str:
        """What the model answers to an action (a policy: to an observation); see ``ServerLM.reply`` for errors, which
        change nothing."""
        asked = [*self.messages, Message(role="user", content=action)]
        text = self.lm.reply(asked, max_new_tokens, sampling)
        self.hear(action, text)
        return text

    def hear(self, action: str, text: str) -> None:
        """Take a step whose answer is known."""
        self.messages += [Message(role="user", content=action), Message(role="assistant", content=text)]

    def fork(self) -> "ServerSession":
        """The same episode so far, to go on by itself."""
        return ServerSession(self.lm, self.messages)

    def rewind(self, steps: int = 1) -> None:
        """Take the last steps back.

        Raises:
            ValueError: there were not as many.
        """
        check_rewind(steps, self.taken)
        if steps:
            del self.messages[-2 * steps :]
