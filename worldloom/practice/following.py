"""A world model's session that follows a real episode, to be asked what would come next."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from worldloom.agents.base import Agent, Decision, Finished
from worldloom.agents.base import Start as AgentStart
from worldloom.agents.gold import Replay
from worldloom.errors import ContextOverflow, ProtocolError
from worldloom.lm.base import Confidence, WorldLM, WorldSession
from worldloom.lm.replies import Action
from worldloom.protocol import MARKERS, heard, said
from worldloom.trajectory import Terminal
from worldloom.world import Start


class Foreseen(NamedTuple):
    """What a world model says would come of an action.

    ``chance`` is that of success, None if the model cannot say; ``steps`` were imagined for it; ``observation`` and
    ``terminal`` are the last of them.
    """

    chance: float | None
    observation: str = ""
    terminal: Terminal | None = None
    steps: int = 0
    confidence: Confidence | None = None


Memo = dict[tuple[str | None, ...], Foreseen]


class Recorded(Replay):
    """Takes given actions, and says when there are no more."""

    def act(self, observation: str) -> Decision:
        if self.at == len(self.actions):
            raise Finished("no more was recorded")
        return super().act(observation)


def _saying(action: str) -> Recorded:
    agent = Recorded([action])
    agent.begin(AgentStart("", "", None, 0))
    return agent


class Follower:
    """Hears what really happens, and imagines from there.

    Args:
        lm: the world model.
        starts: how tasks begin, for the initial contexts that a world model is told; see ``worldloom.world.starts_of``.
            A task that is not there begins with what the agent sees.
        env: the environment that a model of several is to imagine.
        samples: draw so many answers (at temperature 1) to tell the chance of success; 0 asks for probabilities where
            the model is here, and takes the greedy answer where it is not.
        memo: what was foreseen before, by history, action and closing action; shared by followers, none of it is
            imagined again. What is foreseen with a horizon is not kept there, since it depends on the agent.
    """

    def __init__(
        self,
        lm: WorldLM,
        starts: Mapping[str, Start] | None = None,
        env: str | None = None,
        samples: int = 0,
        memo: Memo | None = None,
    ):
        self.lm, self.starts, self.env, self.samples = lm, starts if starts is not None else {}, env, samples
        self.memo: Memo = memo if memo is not None else {}
        self.session: WorldSession | None = None
        self._history: list[str | None] = []

    def begin(self, start: AgentStart) -> None:
        """Follow an episode from its beginning."""
        known = self.starts.get(start.task_id)
        context = known.observation.initial_context if known else None
        self.session = self.lm.session(context, start.text, (known.env if known else None) or self.env)
        self._history = [context, start.text]

    def hear(self, action: str, observation: str) -> None:
        """Take a step that went on; one that cannot be said, or does not fit the window, makes the world blind."""
        self._history += [action, observation]
        try:
            if self.session is not None:
                self.session.hear(action, said(observation, None))
        except ProtocolError:
            self.session = None

    def foresee(self, action: str, agent: Agent, horizon: int = 0, closing: str | None = None) -> Foreseen:
        """Imagine an action, and up to ``horizon`` more that a copy of the agent takes after it, or else ``closing``.

        What the model reads of the history stays read. Without a horizon, what was foreseen here before is told again.
        """
        if self.session is None:
            return Foreseen(None)
        place = (*self._history, action, closing)
        if not horizon and place in self.memo:
            return self.memo[place]
        walker, steps = (agent, horizon) if closing is None else (_saying(closing), 1)
        try:
            found = self._foresee(self.session, action, walker, steps)
        except ContextOverflow:
            found = Foreseen(None)
        if not horizon:
            self.memo[place] = found
        return found

    def _foresee(self, session: WorldSession, action: str, agent: Agent, horizon: int) -> Foreseen:
        text, sure = session.step(action), session.confidence
        ahead = session.fork() if horizon else session
        session.rewind()
        walker, steps = agent.fork() if horizon else agent, 1
        while steps <= horizon and heard(text)[1] is None:
            try:
                action = walker.act(heard(text)[0]).action
            except Finished:  # in what is imagined; the real episode goes on
                break
            text, sure = ahead.step(action), ahead.confidence
            steps += 1
        if horizon:
            ahead.rewind()
        observation, terminal = heard(text)
        return Foreseen(self._chance(ahead, action, text), observation, terminal, steps + self.samples, sure)

    def _chance(self, session: WorldSession, action: str, text: str) -> float:
        """The chance that the action succeeds, where ``text`` is the greedy answer to it."""
        if self.samples:
            return self._drawn(session, action)
        chances = getattr(session, "chances", None)
        if chances is None:
            return float(heard(text)[1] == "success")
        won = [answer for answer in self._answers(action, text) if heard(answer)[1] == "success"]
        return min(1.0, sum(map(math.exp, chances(action, won))))

    def _answers(self, action: str, text: str) -> list[str]:
        """Answers that may be given: the likeliest text with every end, and the ends that were logged."""
        observation, _ = heard(text)
        logged = self.lm.replies.endings(Action(action)) if self.lm.replies else []
        return list(dict.fromkeys([*(observation + marker for marker in MARKERS.values()), *logged]))

    def _drawn(self, session: WorldSession, action: str) -> float:
        from worldloom.lm.engine import Sampling

        sampling, won = Sampling(1.0, seed=session.taken), 0
        for _ in range(self.samples):
            won += heard(session.step(action, sampling=sampling))[1] == "success"
            session.rewind()
        return won / self.samples


def record(foreseen: Foreseen) -> dict[str, Any]:
    """As a log keeps it; what is not known is absent."""
    found: dict[str, Any] = {
        "chance": foreseen.chance, "imagined": foreseen.observation[:200], "terminal": foreseen.terminal,
        "steps": foreseen.steps, "confidence": foreseen.confidence.record() if foreseen.confidence else None,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}
