"""What runs inside a process of the pool: one environment, many episodes, and a clock that ends the process.

The clock is ``faulthandler``'s: it works even while C code holds the interpreter's lock, and it leaves a
traceback in the process's own file, from which the parent tells a hang from any other death.
"""

import faulthandler
import itertools
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import NamedTuple

from worldloom.agents import AgentSpec
from worldloom.envs import Environment, EnvSpec
from worldloom.errors import EnvError, WorldloomError
from worldloom.rollout import MAX_STEPS, rollout
from worldloom.trajectory import EnvRef, Failure, Trajectory

logger = logging.getLogger(__name__)

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
GRACE_SECONDS = 10.0  # between being asked to end and being ended; a busy machine needs some to close an engine


class Job(NamedTuple):
    """One episode to play."""

    task_id: str
    agent: AgentSpec
    seed: int = 0
    split: str | None = None
    max_steps: int = MAX_STEPS


class Limits(NamedTuple):
    """Seconds of silence after which a worker is ended."""

    step: float
    start: float


class Worker:
    """The environment of this process, built when it is first needed and again after it broke."""

    def __init__(self, spec: EnvSpec, limits: Limits, folder: Path):
        self._spec, self._limits = spec, limits
        self._env: Environment | None = None
        self._diary = (folder / str(os.getpid())).open("w", encoding="utf-8")
        faulthandler.enable(self._diary)

    @contextmanager
    def clock(self, seconds: float) -> Iterator[None]:
        """End this process if the body, or what re-arms the clock inside it, is silent for ``seconds``."""
        self._arm(seconds)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _arm(self, seconds: float) -> None:
        faulthandler.dump_traceback_later(seconds, exit=True, file=self._diary)

    def environment(self) -> Environment:
        """The environment; building it may take ``limits.start`` seconds."""
        if self._env is None:
            with self.clock(self._limits.start):
                self._env = self._spec.build()
        return self._env

    def play(self, job: Job) -> Trajectory:
        """Play one episode; an environment that broke in it is not used again."""
        env, agent = self.environment(), job.agent.build()
        seconds = itertools.chain([self._limits.start], itertools.repeat(self._limits.step))
        with self.clock(self._limits.start):
            record = rollout(
                env,
                agent,
                job.task_id,
                seed=job.seed,
                split=job.split,
                max_steps=job.max_steps,
                on_step=lambda: self._arm(next(seconds)),
            )
        if record.error is not None:
            self.drop()
        return record

    def drop(self) -> None:
        """Close the environment; one that cannot be closed is logged and given up."""
        env, self._env = self._env, None
        if env is None:
            return
        try:
            with self.clock(self._limits.step):
                env.close()
        except Exception:
            logger.exception("%s could not be closed", self._spec.name)

    def leave(self) -> None:
        """The last thing this process does."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second request to end must not cut off the first
        self.drop()
        Path(self._diary.name).unlink(missing_ok=True)


def serve(pipe: connection.Connection, spec: EnvSpec, limits: Limits, folder: Path) -> None:
    """The life of a process of the pool: answer what comes through the pipe until it is closed or a signal ends it."""
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, who ends its workers
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    threading.Thread(target=follow_parent, name="follow-parent", daemon=True).start()
    mine = Worker(spec, limits, folder)
    try:
        while True:
            job: Job | None = pipe.recv()
            pipe.send(_probe(mine) if job is None else _play(mine, job))
    except (EOFError, OSError):  # the parent closed the pipe, or is gone
        pass
    finally:
        mine.leave()


def follow_parent() -> None:
    """End this process when its parent has gone, however that came."""
    parent = parent_process()
    if parent is None:
        return
    connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(1)


def _probe(mine: Worker) -> EnvRef | WorldloomError:
    """Build the environment and say what it is, or why it cannot be built."""
    try:
        return mine.environment().ref
    except WorldloomError as error:
        return error
    except Exception as error:  # may be of a class that the parent cannot unpickle
        return EnvError(f"{type(error).__name__}: {error}")


def _play(mine: Worker, job: Job) -> Trajectory | Failure:
    """Play a job, or say why it could not even begin."""
    try:
        return mine.play(job)
    except Exception as error:
        return Failure(kind=type(error).__name__, message=str(error))
