"""Planning by imagining: an agent's possible continuations are played in a world model, and the best is followed.

Best-of-N: ``width`` copies of the agent, which differ in what they do at random, go on side by side. Beam: at each
depth every history that is kept branches, and the ``width`` best are kept. All histories with the same actions are one,
and share what the model has read. A plan is a history that the model says succeeds. It is worth the probability that
the model gives to all answers on its way; of several the most probable is taken, and of those alike the soonest. A
history only becomes less probable as it goes on, so those that are not more probable than a success found are given up.
A plan is followed as long as reality says what was imagined.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from worldloom.agents.base import Agent, Decision, Start
from worldloom.envs.base import Environment, Observation, StepResult
from worldloom.errors import ConfigError, suggest
from worldloom.lm.base import WorldLM
from worldloom.practice.following import Follower
from worldloom.practice.look_ahead import Imagined, Node, expand, imagine, rank
from worldloom.trajectory import AgentRef
from worldloom.world import Start as WorldStart

Admissible = Callable[[], Sequence[str]]


@dataclass(frozen=True)
class Search:
    """How far and how widely is looked ahead.

    Args:
        width: continuations at once.
        depth: imagined steps of each at most.
        branch: 1 is best-of-N; above it, a beam: into how many a kept history branches at each depth.
        cost: imagined steps of an episode at most; then the agent is alone.
        trust: the least probability of all answers on the way with which a foreseen success is believed. A model behind
            a server tells none; its answers count as sure.

    Raises:
        ConfigError: a number is out of range.
    """

    width: int = 4
    depth: int = 12
    branch: int = 1
    cost: int = 200
    trust: float = 0.0

    def __post_init__(self) -> None:
        for name in ("width", "depth", "branch", "cost"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must be a whole number, 1 or more")
        if not isinstance(self.trust, int | float) or not 0 <= self.trust < 1:
            raise ConfigError(f"trust is {self.trust!r}; it must be a probability below 1")

    @classmethod
    def parse(cls, settings: Mapping[str, Any]) -> "Search":
        """From names and values, as the command line gives them.

        Raises:
            ConfigError: a name is unknown, or a number out of range.
        """
        for name in settings:
            if name not in cls.__dataclass_fields__:
                raise ConfigError(f"unknown setting {name!r} of a look-ahead{suggest(name, cls.__dataclass_fields__)}")
        return cls(**settings)

    @property
    def label(self) -> str:
        """A short name."""
        kind = f"best of {self.width}" if self.branch == 1 else f"beam of {self.width} by {self.branch}"
        return f"{kind}, depth {self.depth}, cost {self.cost}" + (f", trust {self.trust:g}" if self.trust else "")


class Planner(Agent):
    """An agent that looks ahead in a world model before it acts.

    Each look-ahead is kept in ``plans`` (and so in the trajectory's ``agent``): ``step`` (how many real ones went
    before), ``steps`` (imagined), ``success`` (whether one was foreseen), its ``trust``, and ``length`` of the plan.

    Args:
        agent: who acts and whose copies propose.
        lm, starts, env: see ``Follower``.
        search: how far and how widely.
        admissible: gives the actions that can be taken now, if they are known; then the first actions are the agent's
            own and ``width`` - 1 of these, drawn by the episode's seed, instead of the copies' own. See ``Watched``.
    """

    def __init__(
        self,
        agent: Agent,
        lm: WorldLM,
        search: Search,
        starts: Mapping[str, WorldStart] | None = None,
        env: str | None = None,
        admissible: Admissible = lambda: (),
    ):
        self.agent, self.search, self.admissible = agent, search, admissible
        self.name = f"planning {agent.name}"
        self.follower = Follower(lm, starts, env)
        self.plans: list[dict[str, Any]] = []

    @property
    def params(self) -> dict[str, Any]:
        return {**self.agent.params, "search": asdict(self.search)}

    @property
    def ref(self) -> AgentRef:
        """The agent, with the plans of the current episode."""
        told = {**self.agent.ref.model_dump(), "name": self.name, "params": self.params, "plans": self.plans}
        return AgentRef.model_validate(told)

    def begin(self, start: Start) -> None:
        self.agent.begin(start)
        self.follower.begin(start)
        self.random = self.rng(start)
        self.plans = []
        self._taken = 0
        self._left: list[Imagined] = []
        self._last: Decision | None = None
        self._expected: str | None = None

    def act(self, observation: str) -> Decision:
        if self._last is not None:
            self.follower.hear(self._last.action, observation)
            self._taken += 1
        if observation != self._expected:
            self._left = []
        if not self._left and self.follower.session is not None and self._room():
            self._left = self._look_ahead(observation)
        if self._left:
            self._last, self._expected, self.agent = self._left.pop(0)
        else:
            self._last, self._expected = self.agent.act(observation), None
        return self._last

    def _room(self) -> int:
        return self.search.cost - sum(int(plan["steps"]) for plan in self.plans)

    def _look_ahead(self, observation: str) -> list[Imagined]:
        """What to do, with what is expected to follow; nothing if all that was tried is foreseen to fail."""
        search, session = self.search, self.follower.session
        assert session is not None
        seeds = [self.random.getrandbits(31) for _ in range(search.width - 1)]
        options = list(self.admissible())
        others = self.random.sample(options, min(len(options), search.width - 1))
        walkers = [self.agent.fork(), *(self.agent.fork(seed) for seed in seeds[: len(others) or None])]
        live, ended, spent = [Node(session, walkers, observation)], [], 0
        with ThreadPoolExecutor(search.width) as threads:
            for depth in range(search.depth):
                asked = expand(live, search.branch if depth else 1, self.random, threads, () if depth else others)
                asked = asked[: max(0, self._room() - spent)]
                if not asked:
                    break
                children = imagine(asked, threads, root=session)
                spent += len(asked)
                if not children:  # nothing more fits the model's window
                    break
                ended += [node for node in children if node.terminal]
                live = self._kept([node for node in children if not node.terminal], self._won(ended))
                if not live:
                    break
        return self._chosen(self._won(ended), [*live, *ended], spent)

    def _won(self, ended: Sequence[Node]) -> Node | None:
        """The foreseen success that is the most probable; of those alike the soonest, which was found first."""
        won = [node for node in ended if node.terminal == "success" and node.trust >= self.search.trust]
        return max(won, key=lambda node: node.logprob, default=None)

    def _kept(self, live: Sequence[Node], won: Node | None) -> list[Node]:
        """The histories that go on; once a success is foreseen, those that may still become a more probable one."""
        if won is None:
            return sorted(live, key=rank, reverse=True)[: self.search.width]
        better = [node for node in live if node.logprob > won.logprob]
        return sorted(better, key=lambda node: node.logprob, reverse=True)[: self.search.width]

    def _chosen(self, won: Node | None, nodes: Sequence[Node], spent: int) -> list[Imagined]:
        best = won or max((node for node in nodes if not node.terminal), key=rank, default=None)
        path = list(best.steps) if best else []
        plan = {"step": self._taken, "steps": spent, "success": won is not None, "length": len(path)}
        self.plans.append(plan | ({"trust": best.trust} if best else {}))
        return path


class Watched(Environment):
    """An environment that remembers how its tasks began (``starts``) and which actions it last said to be possible;
    else it is as it was."""

    def __init__(self, env: Environment, split: str = "all"):
        self.env, self.name, self.version = env, env.name, env.version
        self.starts: dict[str, WorldStart] = {}
        self._split = split
        self._admissible: Sequence[str] = ()

    @property
    def options(self) -> dict[str, Any]:
        return self.env.options

    @property
    def splits(self) -> tuple[str, ...]:
        return self.env.splits

    def task_ids(self, split: str) -> Sequence[str]:
        return self.env.task_ids(split)

    def reset(self, task_id: str, seed: int = 0) -> Observation:
        self._admissible = ()
        first = self.env.reset(task_id, seed)
        self.starts[task_id] = WorldStart(self._split, first)
        return first

    def step(self, action: str) -> StepResult:
        result = self.env.step(action)
        self._admissible = result.info.get("admissible_actions") or ()
        return result

    def admissible(self) -> Sequence[str]:
        """The actions that can be taken now, as far as the environment said so."""
        return self._admissible

    def close(self) -> None:
        self.env.close()
