"""A trained policy as the agent: a language model that learnt to act (``worldloom train -s learns=policy``)."""

import copy
import threading
from pathlib import Path

from worldloom.agents.base import Agent, Decision, Start
from worldloom.agents.llm import parse_react
from worldloom.errors import ConfigError
from worldloom.lm.base import PolicyLM, WorldSession, open_policy
from worldloom.lm.hf import resolve
from worldloom.role import Role
from worldloom.trajectory import Step

KEPT = 2  # models in memory at once
MAX_NEW_TOKENS = {"actions": 64, "react": 256}


class PolicyAgent(Agent):
    """Says what its model says. Agents of one model share it, and are answered together when they act at once.

    Args:
        model: a run of ``worldloom train``, a model folder, or ``NAME@http://HOST:PORT/v1`` for one behind a server.
        temperature: 0 is greedy; above it, task, seed and ``sample`` decide what is drawn.
        max_new_tokens: of one answer; by default 64 for an action alone, 256 for thought and action.
        env: the environment's name, for a policy of several.
        sample: the number of this draw, where a task is played several times.

    Raises:
        ConfigError: a value is out of range.
    """

    name = "policy"
    together = True

    def __init__(
        self,
        model: str,
        temperature: float = 0.0,
        max_new_tokens: int | None = None,
        env: str | None = None,
        sample: int = 0,
    ):
        if temperature < 0 or (max_new_tokens is not None and max_new_tokens < 1):
            raise ConfigError("temperature must be 0 or more, and max_new_tokens 1 or more")
        self.model, self.temperature, self.max_new_tokens = model, temperature, max_new_tokens
        self.env, self.sample = env, sample
        self.lm: PolicyLM | None = None
        self.session: WorldSession | None = None

    @classmethod
    def of(cls, lm: PolicyLM, temperature: float = 0.0, sample: int = 0, env: str | None = None) -> "PolicyAgent":
        """An agent of a model that is loaded already."""
        made = cls(lm.name, temperature, env=env, sample=sample)
        made.lm = lm
        return made

    def begin(self, start: Start) -> None:
        """Start a session.

        Raises:
            ModelError: the model cannot be loaded, or is no policy.
        """
        self.lm = self.lm or shared(self.model)
        self._newest = start.text
        self._sampling = self._draw_by(self.rng(start).getrandbits(31)) if self.temperature else None
        self.session = self.lm.policy(start.instruction, start.text, self.env)

    def _draw_by(self, seed: int) -> object:
        from worldloom.lm.engine import Sampling

        return Sampling(self.temperature, seed)

    def act(self, observation: str) -> Decision:
        """Ask for the next action.

        Raises:
            ContextOverflow: the episode has outgrown the model's window.
        """
        assert self.lm is not None and self.session is not None, "begin comes first"
        self._newest = observation
        limit = self.max_new_tokens or MAX_NEW_TOKENS[self.lm.role.says]
        return decision(self.session.step(observation, limit, self._sampling), self.lm.role)

    def did(self, action: str) -> None:
        """Hear that another action than the one just said was taken; the history then has that one."""
        assert self.session is not None, "begin comes first"
        self.session.rewind()
        self.session.hear(self._newest, self._answered(action))

    def _answered(self, action: str) -> str:
        assert self.lm is not None, "begin comes first"
        return self.lm.role.answer(Step(action=action, observation=""))

    def fork(self, seed: int | None = None) -> "PolicyAgent":
        """The same agent at the same moment, to go on by itself; the weights are shared. With a ``seed``, what it draws
        from here on depends on that."""
        assert self.session is not None, "begin comes first"
        twin = type(self)(**self.params)
        twin.lm, twin.session, twin._newest = self.lm, self.session.fork(), self._newest
        drawn = self.temperature and seed is not None
        twin._sampling = self._draw_by(seed or 0) if drawn else copy.deepcopy(self._sampling)
        return twin


def decision(text: str, role: Role) -> Decision:
    """What a policy's answer means."""
    return parse_react(text) if role.says == "react" else Decision(text)


_opened: dict[tuple[str, int], PolicyLM] = {}
_opening = threading.Lock()


def shared(model: str) -> PolicyLM:
    """The one copy of a policy in this process; read anew where its files have changed.

    Raises:
        ModelError: it cannot be loaded, or is no policy.
    """
    with _opening:
        key = (model, _stamp(model))
        if key not in _opened:
            _opened[key] = open_policy(model)
            while len(_opened) > KEPT:
                del _opened[next(iter(_opened))]
        return _opened[key]


def _stamp(model: str) -> int:
    """When a model's weights were written; 0 if they do not lie here."""
    if "@" in model:
        return 0
    weights = sorted(Path(resolve(model)).glob("*.safetensors"))
    return max((path.stat().st_mtime_ns for path in weights), default=0)
