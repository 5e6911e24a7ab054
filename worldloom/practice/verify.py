"""Verification before irreversible actions: an action is imagined first, and taken only if success is foreseen.

Word2World (arXiv 2512.18832) checks WebShop's purchase so. A refused agent goes on, at most ``budget`` times.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from worldloom.agents.base import Agent, Decision, Start
from worldloom.anchoring import fits
from worldloom.coverage.steps import kind_of
from worldloom.errors import ConfigError
from worldloom.lm.base import WorldLM
from worldloom.practice.following import Follower, Foreseen, Memo, record
from worldloom.trajectory import AgentRef, Terminal, Trajectory
from worldloom.world import Start as WorldStart

Record = dict[str, Any]
Verdict = dict[str, Any]
SHOWN = 200  # characters of what really followed


@dataclass(frozen=True)
class Check:
    """Which actions are checked, and what lets them pass.

    Args:
        actions: patterns, in which ``*`` stands for anything, of the action's text or, if it is a tool call, of the
            tool's name. Capitals and white space around make no difference: a pattern is not evaded by them.
        threshold: the least chance of success, as the world model sees it, with which an action passes. Where the model
            cannot say (the episode has outgrown its window), the action passes.
        budget: how many actions of an episode are held back at most; after that, all pass, and nothing is imagined.
        horizon: how many steps after the action a copy of the agent takes in the imagined world, for actions that do
            not end the task by themselves.
        closing: an action that ends a task, such as a "done" tool; it is imagined after an action that does not, so
            that the model says whether all would be well then. Cheaper than a ``horizon``, and instead of it.
        samples: see ``Follower``.
        dry_run: log the verdicts, and hold nothing back.

    Raises:
        ConfigError: no pattern, or a number out of range.
    """

    actions: Sequence[str]
    threshold: float = 0.5
    budget: int = 4
    horizon: int = 0
    samples: int = 0
    closing: str | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.actions, str) or not self.actions or not all(self.actions):
            raise ConfigError(f"actions is a list of patterns such as ['click[buy now]'], not {self.actions!r}")
        object.__setattr__(self, "actions", tuple(self.actions))
        for name in ("threshold", "budget", "horizon", "samples"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be 0 or more")
        if self.closing is not None and self.horizon:
            raise ConfigError("give either a horizon or a closing action")

    def covers(self, action: str) -> bool:
        """Whether an action is of the declared kinds."""
        text, kind = action.strip().lower(), kind_of(action)
        told = [text, kind.name.lower()] if kind.call else [text]
        return any(fits(pattern.strip().lower(), each) for pattern in self.actions for each in told)

    def record(self) -> dict[str, Any]:
        """As records keep it."""
        return {**asdict(self), "actions": list(self.actions)}


class VerifiedAgent(Agent):
    """An agent whose actions of the declared kinds are imagined before they are taken.

    A held-back action never reaches the environment and is no step. The agent hears of it by ``Agent.held_back``: it
    may react as it likes; by default it is told in words. Every verdict is kept in ``verdicts`` (and so in the
    trajectory's ``agent``): ``step`` (how many real ones went before), ``action``, ``chance``, ``held``, ``low`` (below
    the threshold, also in a dry run), and what was imagined. One that let the action through gets ``followed`` as soon
    as the next observation is known: what it really came to. No agent sees how its episode ends; ``followed`` (the
    function) tells the last one from the played episode.

    Args:
        agent: who acts.
        lm: the world model; one behind a server will do.
        check: what is checked.
        starts, env, memo: see ``Follower``.
        on_verdict: called with each verdict as it is given, for a log of one's own.
    """

    def __init__(
        self,
        agent: Agent,
        lm: WorldLM,
        check: Check,
        starts: Mapping[str, WorldStart] | None = None,
        env: str | None = None,
        on_verdict: Callable[[Verdict], None] = lambda verdict: None,
        memo: Memo | None = None,
    ):
        self.agent, self.check, self.on_verdict = agent, check, on_verdict
        self.name = f"verified {agent.name}"
        self.follower = Follower(lm, starts, env, check.samples, memo)
        self.verdicts: list[Verdict] = []

    @property
    def params(self) -> dict[str, Any]:
        return {**self.agent.params, "check": self.check.record()}

    @property
    def ref(self) -> AgentRef:
        """The agent, with the verdicts of the current episode."""
        told = {**self.agent.ref.model_dump(), "name": self.name, "params": self.params, "verdicts": self.verdicts}
        return AgentRef.model_validate(told)

    def begin(self, start: Start) -> None:
        self.agent.begin(start)
        self.follower.begin(start)
        self.verdicts = []
        self._known: dict[str, Foreseen] = {}
        self._taken = 0
        self._last: str | None = None

    def act(self, observation: str) -> Decision:
        if self._last is not None:
            self.follower.hear(self._last, observation)
            self._note(observation)
            self._taken += 1
            self._known = {}
        decision = self.agent.act(observation)
        while self._holds_back(decision.action):
            decision = self.agent.held_back(decision.action, observation)
        self._last = decision.action
        return decision

    @property
    def refusals(self) -> int:
        """How many actions of this episode were held back."""
        return sum(verdict["held"] for verdict in self.verdicts)

    def _note(self, observation: str) -> None:
        """Of an action that was just let through and did not end the episode."""
        if self.verdicts and self.verdicts[-1]["step"] == self._taken and not self.verdicts[-1]["held"]:
            self.verdicts[-1]["followed"] = _seen(observation, None)

    def _holds_back(self, action: str) -> bool:
        check = self.check
        spent = not check.dry_run and self.refusals >= check.budget
        if spent or not check.covers(action):
            return False
        again = action in self._known
        if not again:
            self._known[action] = self.follower.foresee(action, self.agent, check.horizon, check.closing)
        foreseen = self._known[action]
        low = foreseen.chance is not None and foreseen.chance < check.threshold
        verdict = {
            "step": self._taken,
            "action": action,
            "held": low and not check.dry_run,
            "low": low,
            **record(foreseen),
        }
        if again:  # the same action in the same place needs no second look
            verdict["steps"] = 0
        self.verdicts.append(verdict)
        self.on_verdict(verdict)
        return bool(verdict["held"])


def followed(episode: Trajectory) -> list[Verdict]:
    """The verdicts of a played episode, each with what really followed (``followed``) where the action was let through:
    ``terminal`` (absent where the episode went on) and the first ``SHOWN`` characters of the ``observation``."""
    verdicts: list[Verdict] = getattr(episode.agent, "verdicts", [])
    return [{**verdict, **_after(episode, verdict)} for verdict in verdicts]


def _after(episode: Trajectory, verdict: Verdict) -> Record:
    if verdict["held"] or verdict["step"] >= len(episode.steps):  # where the engine broke, nothing followed
        return {}
    step = episode.steps[verdict["step"]]
    return {"followed": _seen(step.observation, step.terminal)}


def _seen(observation: str, terminal: Terminal | None) -> Record:
    """What is kept of something that followed an action."""
    return {"observation": observation[:SHOWN], **({"terminal": terminal} if terminal else {})}
