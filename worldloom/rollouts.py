"""Many rollouts at once in the threads of one process, for what shares a language model: imagined worlds, policies.

A real engine then sits in a process of its own for each thread (``RemoteEnv``), and the agent here.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from types import TracebackType

from worldloom.agents.base import Agent
from worldloom.envs import Environment, EnvSpec
from worldloom.envs.remote import RemoteEnv
from worldloom.envs.worker import Job
from worldloom.errors import ModelError
from worldloom.rollout import rollout
from worldloom.trajectory import EnvRef, Trajectory

AT_ONCE = 16  # episodes
Play = Callable[[Job], Trajectory]


def play_at_once(jobs: Sequence[Job], play_one: Play, threads: int = AT_ONCE) -> Iterator[Trajectory]:
    """Play jobs, several at the same time, and give each trajectory when its episode ends.

    Where it is left, the episodes in flight are played to their end; the others are not begun.

    Raises:
        ModelError: a model could not be asked (its server is gone, say); that is no episode's fault, so none of
            them is recorded as failed for it.
    """
    pool = ThreadPoolExecutor(threads)
    try:
        for future in as_completed([pool.submit(play_one, job) for job in jobs]):
            yield asked(future.result())
    finally:
        pool.shutdown(cancel_futures=True)


def asked(played: Trajectory) -> Trajectory:
    """The same episode.

    Raises:
        ModelError: it broke since a model could not be asked.
    """
    if played.error and played.error.kind == ModelError.__name__:
        raise ModelError(played.error.message)
    return played


class Engines:
    """Real environments, each in a process of its own, lent to threads; there are as many as are needed at once.

    Raises:
        EnvError: the environment cannot be built.
    """

    def __init__(self, spec: EnvSpec):
        self._spec = spec
        self._lock = threading.Lock()
        self._idle = [RemoteEnv(spec)]  # what cannot work fails here and not in every episode
        self._all: list[RemoteEnv] = list(self._idle)
        self.ref: EnvRef = self._idle[0].ref

    @contextmanager
    def lent(self) -> Iterator[Environment]:
        """An engine that nobody else uses meanwhile; one in which something was raised is not used again."""
        with self._lock:
            found = self._idle.pop() if self._idle else None
        if found is None:
            found = RemoteEnv(self._spec)
            with self._lock:
                self._all.append(found)
        try:
            yield found
        except BaseException:
            found.close()
            raise
        with self._lock:
            self._idle.append(found)

    def play(self, job: Job, agent: Agent | None = None) -> Trajectory:
        """Play one episode; an engine that broke in it is replaced."""
        try:
            with self.lent() as env:
                played = rollout(
                    env, agent or job.agent.build(), job.task_id, seed=job.seed, split=job.split,
                    max_steps=job.max_steps,
                )  # fmt: skip
                if played.error:
                    raise _Broke(played)
                return played
        except _Broke as broke:
            return broke.played

    def close(self) -> None:
        """End all processes. May be called twice."""
        with self._lock:
            left, self._all, self._idle = self._all, [], []
        for env in left:
            env.close()

    def __enter__(self) -> "Engines":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class _Broke(Exception):
    """An episode ended in an error."""

    def __init__(self, played: Trajectory):
        self.played = played
