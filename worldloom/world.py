"""A world model as an environment: the contract of ``worldloom.envs`` over a language model."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from worldloom.envs.base import Environment, Observation, StepInfo, StepResult
from worldloom.errors import ConfigError, ContextOverflow, EnvError, ModelError
from worldloom.lm.base import MAX_NEW_TOKENS, Confidence, WorldLM, WorldSession
from worldloom.naming import IMAGINED, UNKNOWN
from worldloom.protocol import heard, said
from worldloom.trajectory import Terminal, Trajectory

OVER = "the episode has ended or none was started: call reset first"
REWARDS: dict[Terminal, float] = {"success": 1.0, "failure": 0.0}


class Start(NamedTuple):
    """How a task begins, and in which environment (None: the one that its world is said to imagine)."""

    split: str
    observation: Observation
    env: str | None = None


class WorldModelEnv(Environment):
    """Plays tasks inside a language model.

    Args:
        lm: the model, here or behind a server; see ``worldloom.lm.base.open_lm``.
        starts: how each task begins, by task id; see ``starts_of``.
        env_name: the environment that it imagines; a model of several is told the one that a task's start names.
        max_new_tokens: of one observation.
        temperature: 0 decodes greedily, so that ``seed`` changes nothing; above it, ``seed`` drives what is drawn.
        least_confidence: where the probability of an answer is below it, the world abstains.

    The reward is 1 on predicted success, 0 on predicted failure, else None. An episode that outgrows the model's
    window is truncated, and so is one where the world abstains; ``info["reason"]`` says which. Where that is known,
    ``info["confidence"]`` says how sure the model was. Several worlds may share one ``lm``, each in its own thread:
    they are answered together.
    """

    def __init__(
        self,
        lm: WorldLM,
        starts: Mapping[str, Start],
        env_name: str = UNKNOWN,
        max_new_tokens: int = MAX_NEW_TOKENS,
        temperature: float = 0.0,
        least_confidence: float | None = None,
    ):
        self.lm, self.starts, self.max_new_tokens, self.temperature = lm, dict(starts), max_new_tokens, temperature
        self.least_confidence = least_confidence
        self._sampling: Any = None
        self._abstained = False
        self.name, self.version = IMAGINED + env_name, lm.name
        self._session: WorldSession | None = None

    @property
    def options(self) -> dict[str, Any]:
        options = {"model": self.lm.name, "max_new_tokens": self.max_new_tokens, "temperature": self.temperature}
        least = self.least_confidence
        return options if least is None else {**options, "least_confidence": least}

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(start.split for start in self.starts.values()))

    def task_ids(self, split: str) -> Sequence[str]:
        if split not in self.splits:
            raise ConfigError(f"no split {split!r} here; there is {', '.join(self.splits)}")
        return [task_id for task_id, start in self.starts.items() if start.split == split]

    def reset(self, task_id: str, seed: int = 0) -> Observation:
        if task_id not in self.starts:
            raise EnvError(f"no start for task {task_id!r}; give one from a real episode (worldloom.world.starts_of)")
        _, observation, env = self.starts[task_id]
        self._session = self.lm.session(observation.initial_context, observation.text, env or self._env_name)
        self._sampling = self._draw_by(seed) if self.temperature else None
        self._abstained = False
        return observation

    def _draw_by(self, seed: int) -> Any:
        from worldloom.lm.engine import Sampling

        return Sampling(self.temperature, seed)

    def step(self, action: str) -> StepResult:
        if self._session is None or self._abstained:
            raise EnvError(OVER)
        try:
            observation, terminal = heard(self._session.step(action, self.max_new_tokens, self._sampling))
        except ContextOverflow:
            return self._outgrown()
        info, confidence = StepInfo(terminal=terminal), self._session.confidence
        if confidence:
            info["confidence"] = confidence.record()
        if self._unsure(confidence):
            self._session.rewind()
            self._abstained = True
            return StepResult("", None, False, True, StepInfo(**{**info, "terminal": "truncated", "reason": "unsure"}))
        if terminal:
            self._session = None
        reward = REWARDS[terminal] if terminal else None
        return StepResult(observation, reward, terminal is not None, False, info)

    def _outgrown(self) -> StepResult:
        self._session = None
        return StepResult("", None, False, True, StepInfo(terminal="truncated", reason="window"))

    def _unsure(self, confidence: Confidence | None) -> bool:
        if self.least_confidence is None:
            return False
        if confidence is None:
            raise ModelError(f"{self.lm.name} does not tell how sure it is; leave least_confidence out")
        return confidence.probability < self.least_confidence

    def hear(self, action: str, real: StepResult) -> StepResult:
        """Take a step that the real environment answered, instead of imagining it; the world goes on from there, also
        after it abstained from that step.

        Returns:
            What is to be told to the agent: the real step, marked as ``anchored``.

        Raises:
            EnvError: no episode is going on.
        """
        if self._session is None:
            raise EnvError(OVER)
        try:
            self._session.hear(action, said(real.observation, real.info.get("terminal") if real.terminated else None))
        except ContextOverflow:
            return self._outgrown()
        self._abstained = False
        if real.terminated or real.truncated:
            self._session = None
        return real._replace(info=StepInfo(**{**real.info, "anchored": True}))

    @property
    def _env_name(self) -> str:
        return self.name.removeprefix(IMAGINED)

    def fork(self) -> "WorldModelEnv":
        """The same world at the same moment, to go on by itself; the weights are shared.

        Raises:
            EnvError: no episode is going on.
        """
        if self._session is None or self._abstained:
            raise EnvError("no episode to fork: call reset first")
        twin = WorldModelEnv(
            self.lm, self.starts, self._env_name, self.max_new_tokens, self.temperature, self.least_confidence
        )
        twin.name, twin.version = self.name, self.version
        twin._session, twin._sampling = self._session.fork(), copy.deepcopy(self._sampling)
        return twin

    def rewind(self, steps: int = 1) -> None:
        """Take the last steps back.

        Raises:
            EnvError: no episode is going on, or it had not as many steps.
        """
        if self._session is None or self._abstained or steps > self._session.taken:
            raise EnvError(f"cannot take back {steps} steps: the episode has ended, or had not as many")
        self._session.rewind(steps)

    def close(self) -> None:
        self._session = None


def starts_of(trajectories: Iterable[Trajectory]) -> dict[str, Start]:
    """How the tasks of recorded episodes begin; episodes that never began are passed over."""
    return {
        t.task.id: Start(
            t.task.split or "all",
            Observation(t.initial_observation, t.task.instruction, t.initial_context, _plan(t)),
            None if t.env.name == UNKNOWN else t.env.name,
        )
        for t in trajectories
        if t.initial_observation
    }


def _plan(trajectory: Trajectory) -> tuple[str, ...] | None:
    return tuple(trajectory.task.gold_actions) if trajectory.task.gold_actions else None
