"""Many rollouts at once in the threads of one process, for what shares a language model: imagined worlds, policies.

A real engine then sits in a process of its own for each thread (``RemoteEnv``), and the agent here.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from worldloom.agents.base import Agent
from worldloom.envs import EnvSpec
from worldloom.envs.remote import RemoteEnvs
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


class Engines(RemoteEnvs):
    """Real environments that play whole episodes for threads.

    Raises:
        EnvError: the environment cannot be built.
    """

    def __init__(self, spec: EnvSpec):
        super().__init__(spec)
        with self.one() as env:  # what cannot work fails here and not in every episode
            self.ref: EnvRef = env.ref

    def play(self, job: Job, agent: Agent | None = None) -> Trajectory:
        """Play one episode; an engine that broke in it is replaced."""
        with self.one() as env:
            played = rollout(
                env, agent or job.agent.build(), job.task_id, seed=job.seed, split=job.split, max_steps=job.max_steps
            )
            if played.error:
                env.close()
        return played
