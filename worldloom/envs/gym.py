"""Any environment, real or imagined, as a ``gymnasium.Env``."""

import math
import string
from typing import Any

import gymnasium
from gymnasium import spaces

from worldloom.envs.base import Environment
from worldloom.errors import ConfigError
from worldloom.rollout import terminal_of

__all__ = ["AnyText", "GymEnv"]

LONGEST_OBSERVATION = 100_000  # characters
LONGEST_ACTION = 10_000  # characters


class AnyText(spaces.Text):
    """Every text of at most ``max_length`` characters.

    ``spaces.Text`` lists its characters one by one, and worlds speak all of Unicode. So membership here does not
    ask for the characters; what ``sample`` draws, and what ``flatten`` can encode, is printable ASCII.
    """

    def __init__(self, max_length: int):
        super().__init__(max_length, min_length=0, charset=string.printable)

    def contains(self, x: Any) -> bool:
        """``x`` is a text that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length


class GymEnv(gymnasium.Env[str, str]):
    """A thin adapter: text observations, text actions, Gymnasium's ``reset`` and ``step``.

    * ``reset(options={"task_id": ...})`` starts that task; without it, the tasks of ``split`` follow each other in
      their order, round and round. ``reset(seed=s)`` goes to task number ``s`` (modulo their count), so that the
      members of a vector environment, seeded s, s + 1, ..., start on different tasks.
    * The seed of an episode is ``s``, or drawn from ``np_random`` where none is given; ``info["seed"]`` tells.
    * Gymnasium wants a number as reward. An unknown reward is NaN, never 0: a learner must not take it for a zero.
    * ``info`` has ``task_id``, ``split`` (None for a task given by id), ``seed``, ``instruction``, ``terminal``
      (success, failure, truncated, or None) and, where the environment says them, ``admissible_actions``.

    The initial context and the winning plan are not passed on: an agent may not know them.

    Args:
        env: what to adapt; it is closed with this one.
        split: whose tasks are played; the environment's first if not given.

    Raises:
        ConfigError: there is no such split, or it has no tasks.
    """

    def __init__(self, env: Environment, split: str | None = None):
        self.env = env
        self.split = split if split is not None else env.splits[0]
        self._task_ids = tuple(env.task_ids(self.split))
        if not self._task_ids:
            raise ConfigError(f"split {self.split!r} of {env.name} has no tasks")
        self._next = 0
        self._about: dict[str, Any] = {}
        self.observation_space = AnyText(LONGEST_OBSERVATION)
        self.action_space = AnyText(LONGEST_ACTION)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start a task; see the class.

        Raises:
            ConfigError: ``options`` has another key than ``task_id``.
            EnvError: there is no such task, or it cannot be started.
        """
        super().reset(seed=seed)
        if unknown := set(options or {}) - {"task_id"}:
            raise ConfigError(f"reset has no options {sorted(unknown)}; known: ['task_id']")
        task_id = (options or {}).get("task_id")
        split = None if task_id is not None else self.split
        if task_id is None:
            task_id = self._take_next(seed)
        episode_seed = seed if seed is not None else int(self.np_random.integers(2**31))
        first = self.env.reset(task_id, episode_seed)
        self._about = {"task_id": task_id, "split": split, "seed": episode_seed, "instruction": first.instruction}
        return first.text, {**self._about, "terminal": None}

    def _take_next(self, seed: int | None) -> str:
        number = self._next if seed is None else seed % len(self._task_ids)
        self._next = (number + 1) % len(self._task_ids)
        return self._task_ids[number]

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take one action; an unknown reward is NaN.

        Raises:
            EnvError: the episode is over.
        """
        result = self.env.step(action)
        info = {**self._about, "terminal": terminal_of(result)}
        if "admissible_actions" in result.info:
            info["admissible_actions"] = list(result.info["admissible_actions"])
        reward = math.nan if result.reward is None else float(result.reward)
        return result.observation, reward, result.terminated, result.truncated, info

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
