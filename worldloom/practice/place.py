"""Where agents practise: a real environment, or a world model that imagines it. Nothing differs but the name.

``alfworld`` is the real one; ``world-model:alfworld=runs/world`` is the same tasks, imagined by that model. How a task
begins is taken from the real environment, in which no step is made then, or from recorded episodes.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from worldloom.agents import AgentSpec, defaults
from worldloom.agents.base import Agent
from worldloom.collect import choose_tasks, imagine, play
from worldloom.envs import EnvSpec
from worldloom.envs.worker import Job
from worldloom.errors import ConfigError
from worldloom.lineage import files_of
from worldloom.lm.base import WorldLM, open_lm
from worldloom.naming import IMAGINED, UNKNOWN
from worldloom.rollout import rollout
from worldloom.rollouts import Engines
from worldloom.runs import fingerprint
from worldloom.trajectory import Trajectory, read
from worldloom.world import Start, WorldModelEnv, starts_of

STARTS = "starts.jsonl"


@dataclass(frozen=True)
class Place:
    """A real environment, and the world model in which it is imagined, if it is.

    Args:
        env: the real environment, whose tasks these are.
        model: see ``worldloom.lm.base.open_lm``; None is the real environment itself.
        starts: a file of recorded episodes that tells how tasks begin, for a world whose environment is not here.
        workers: processes that play the real environment.
    """

    env: EnvSpec
    model: str | None = None
    starts: Path | None = None
    workers: int = 2

    @classmethod
    def parse(
        cls, text: str, options: Mapping[str, Any] | None = None, starts: Path | None = None, workers: int = 2
    ) -> "Place":
        """Read ``NAME`` or ``world-model:NAME=MODEL``.

        Raises:
            ConfigError: a part is missing.
        """
        if not text.startswith(IMAGINED):
            return cls(EnvSpec(text, dict(options or {})), None, starts, workers)
        name, _, model = text.removeprefix(IMAGINED).partition("=")
        if not name or not model:
            raise ConfigError(f"{text!r}: write {IMAGINED}NAME=MODEL, as in {IMAGINED}alfworld=runs/world")
        return cls(EnvSpec(name, dict(options or {})), model, starts, workers)

    @property
    def imagined(self) -> bool:
        """Whether a world model answers."""
        return self.model is not None

    def record(self) -> dict[str, Any]:
        """As a run's settings keep it."""
        options = {name: value for name, value in self.env.options.items() if name != "data"}
        found = {"env": self.env.name, "options": options, "world": self.model}
        files = [*(files_of(self.model) if self.model else []), *([self.starts] if self.starts else [])]
        starts = self.starts.as_posix() if self.starts else None
        return {**found, "starts": starts, "files": fingerprint(files) if files else None}

    def tasks(self, split: str, count: int | None, seed: int) -> list[str]:
        """Tasks of a split, drawn by ``seed``; of recorded episodes, those that they play.

        Raises:
            ConfigError: there are not as many.
        """
        if self.starts is None:
            return choose_tasks(self.env, split, count, seed)
        import random

        known = starts_of(read(self.starts))
        ids = sorted(task for task, start in known.items() if start.split == split)
        wanted = len(ids) if count is None else count
        if not 1 <= wanted <= len(ids):
            told = "some" if count is None else count
            raise ConfigError(f"{told} tasks asked of split {split!r} of {self.starts}, which has {len(ids)}")
        return random.Random(f"tasks {seed}").sample(ids, wanted)


@dataclass
class Ground:
    """A place that is played in; ``folder`` keeps how its tasks begin. Use it as a context manager."""

    place: Place
    folder: Path
    max_new_tokens: int = 512
    _starts: dict[str, Start] = field(default_factory=dict)
    _opening: threading.Lock = field(default_factory=threading.Lock)
    _engines: Engines | None = None

    def prepare(self, tasks: Iterable[tuple[str, str, int]]) -> None:
        """Learn how tasks (id, split, seed) begin, if a world model is to imagine them.

        Raises:
            EnvError: the real environment cannot be started; give recorded episodes instead (``Place.starts``).
        """
        if not self.place.imagined or all(task in self._starts for task, _, _ in tasks):
            return
        if self.place.starts is not None:
            self._starts = starts_of(read(self.place.starts))
            return
        nobody = AgentSpec("replay", {"actions": []})
        jobs = [Job(task, nobody, seed, split, 0) for task, split, seed in dict.fromkeys(tasks)]
        play(self.folder / STARTS, self.place.env, jobs, self.place.workers)
        self._starts = starts_of(read(self.folder / STARTS))

    def play(self, path: Path, jobs: Sequence[Job]) -> list[Trajectory]:
        """Play the jobs that a file lacks, and give all that it holds."""
        if self.place.imagined:
            self.prepare([(job.task_id, job.split or "all", job.seed) for job in jobs])
            imagine(path, jobs, self.play_one)
        else:
            play(path, self.place.env, jobs, self.place.workers)
        return read(path)

    def play_one(self, job: Job, agent: Agent | None = None) -> Trajectory:
        """Play one job, from any thread. For imagined tasks, ``prepare`` comes first."""
        if not self.place.imagined:
            return self._real().play(job, agent)
        with self._opening:
            lm = self._lm
        world = WorldModelEnv(lm, self._starts, self._env_name, self.max_new_tokens)
        played = rollout(
            world, agent or job.agent.build(), job.task_id, seed=job.seed, split=job.split, max_steps=job.max_steps
        )
        return played.model_copy(update={"imagined": True, "world": self._identity})

    @cached_property
    def _lm(self) -> WorldLM:
        assert self.place.model is not None
        return open_lm(self.place.model)

    @cached_property
    def _env_name(self) -> str:
        """As its trajectories say it."""
        return next((start.env for start in self._starts.values() if start.env), UNKNOWN)

    @cached_property
    def _identity(self) -> dict[str, Any]:
        """Which model imagined."""
        assert self.place.model is not None
        return {"model": self.place.model, "files": fingerprint(files_of(self.place.model))}

    def _real(self) -> Engines:
        with self._opening:
            self._engines = self._engines or Engines(self.place.env)
        return self._engines

    def close(self) -> None:
        """End the engines."""
        if self._engines:
            self._engines.close()

    def __enter__(self) -> "Ground":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def draws(agent: AgentSpec, samples: int) -> list[AgentSpec]:
    """An agent as often as it is to play each task, each time with other luck.

    Raises:
        ConfigError: it would do the same each time.
    """
    if samples == 1:
        return [agent]
    usual = defaults(agent.name)
    if "sample" not in usual or not {**usual, **agent.params}.get("temperature"):
        raise ConfigError(
            f"{samples} draws of {agent.name} would all be the same: give an agent that samples, such as "
            "policy:model=RUN,temperature=1.0"
        )
    return [AgentSpec(agent.name, {**agent.params, "sample": number}) for number in range(samples)]


def steps_of(episodes: Iterable[Trajectory]) -> int:
    """How many steps they have in all."""
    return sum(len(episode.steps) for episode in episodes)
