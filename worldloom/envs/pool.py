"""Many engines, one per process: submit a job, get a recorded trajectory.

Engines leak, crash and hang. Here a crash or a hang costs one process and becomes one trajectory with an
``error``; the other jobs never notice. The shape is that of ``concurrent.futures``: each thread of an executor
owns one process at a time and waits for its answer or its death, so neither can be missed.
"""

import logging
import multiprocessing
import re
import signal
import tempfile
import threading
import time
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from multiprocessing import connection
from pathlib import Path
from typing import Any

from worldloom.agents import AgentSpec
from worldloom.envs import EnvSpec, worker
from worldloom.envs.worker import GRACE_SECONDS, Job, Limits
from worldloom.errors import ConfigError, EnvError, WorldloomError
from worldloom.rollout import broken
from worldloom.trajectory import AgentRef, EnvRef, Failure, TaskRef, Trajectory

__all__ = ["EnvPool", "Job"]

logger = logging.getLogger(__name__)

BIRTH_SECONDS = 60.0  # for a new process to import what it needs, on top of the environment's own start


class _Died(Exception):
    """A worker ended before it answered."""


class _Worker:
    """One process and the pipe to it; used by one thread at a time."""

    def __init__(self, spec: EnvSpec, limits: Limits, folder: Path):
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=worker.serve, args=(theirs, spec, limits, folder), daemon=True)
        self._process.start()
        theirs.close()
        self.asked = 0

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    @property
    def diary(self) -> str:
        return str(self._process.pid)

    @property
    def exitcode(self) -> int | None:
        return self._process.exitcode

    def ask(self, job: Job | None, timeout: float | None = None) -> Any:
        """Let it play a job (None: say what the environment is).

        Raises:
            _Died: it ended instead.
            TimeoutError: no answer in ``timeout`` seconds.
        """
        self.asked += 1
        try:
            self._pipe.send(job)
            if not connection.wait([self._pipe, self._process.sentinel], timeout):
                raise TimeoutError
            return self._pipe.recv()  # what it sent before it died is still there
        except (EOFError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            self._process.join()
            raise _Died from error

    def terminate(self) -> None:
        """Ask it to end; its thread, if one waits, learns of its death."""
        if self.alive:
            self._process.terminate()

    def end(self, deadline: float) -> None:
        """End it, by force where it does not listen until ``deadline`` (monotonic seconds)."""
        self.terminate()
        self._process.join(max(0.0, deadline - time.monotonic()))
        if self.alive:
            self._process.kill()
        self._process.join()
        self._pipe.close()


class EnvPool:
    """Plays jobs on ``workers`` processes, each with an environment of its own.

    A worker that is silent for ``step_timeout`` seconds (from one action to the next, so an agent's thinking
    counts) or for ``start_timeout`` seconds (building the environment, resetting a task) is ended and replaced,
    and its job recorded with the error kind ``StepTimeout``. A worker that dies is replaced and its job tried
    ``retries`` more times, then recorded as ``WorkerDied``. A hang is not tried again. After ``max_tasks``
    episodes a worker is replaced as well, for engines that leak.

    Raises:
        ConfigError: a setting is out of range, or the environment has no such name or option.
        EnvError: the environment cannot be built; the message is the worker's own.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        workers: int = 2,
        step_timeout: float = 60.0,
        start_timeout: float = 180.0,
        *,
        max_tasks: int = 100,
        retries: int = 1,
    ):
        if workers < 1 or max_tasks < 1 or retries < 0 or min(step_timeout, start_timeout) <= 0:
            raise ConfigError("workers and max_tasks must be 1 or more, retries 0 or more, time limits above 0")
        self._spec, self._limits, self._max_tasks, self._retries = (
            env_spec,
            Limits(step_timeout, start_timeout),
            max_tasks,
            retries,
        )
        self._folder = tempfile.TemporaryDirectory(prefix="worldloom-pool-")
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._closed = self._stopping = False
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="env-pool")
        try:
            self.env_ref: EnvRef = self._start_up()
            self._idle += [self._new_worker() for _ in range(workers - 1)]
        except BaseException:
            self.close(cancel=True)
            raise

    def _new_worker(self) -> _Worker:
        made = _Worker(self._spec, self._limits, Path(self._folder.name))
        with self._lock:
            self._all.add(made)
        return made

    def _start_up(self) -> EnvRef:
        """Build the environment once, so that what cannot work fails here and not in every job."""
        what, first = f"environment {self._spec.name!r} cannot be built: ", self._new_worker()
        seconds = self._limits.start + BIRTH_SECONDS
        try:
            found = first.ask(None, seconds)
        except _Died as error:
            raise EnvError(what + self._post_mortem(first).message) from error
        except TimeoutError as error:
            raise EnvError(what + f"no worker answered in {seconds:g} s") from error
        if isinstance(found, WorldloomError):
            raise type(found)(what + str(found)) from found
        self._idle.append(first)
        return found  # type: ignore[no-any-return]

    def submit(self, job: Job) -> Future[Trajectory]:
        """Queue a job. The result is a trajectory, with an ``error`` if the rollout broke; it never raises,
        except ``CancelledError`` where the pool was closed before the job was done.

        Raises:
            EnvError: the pool is closed.
        """
        if self._closed:
            raise EnvError("the pool is closed; make a new EnvPool")
        return self._executor.submit(self._play, job)

    def _play(self, job: Job) -> Trajectory:
        tried = 1
        while isinstance(outcome := self._try(job), Failure):
            if outcome.kind != "WorkerDied" or tried > self._retries:
                return self._record(job, outcome, tried)
            tried += 1
        return outcome

    def _try(self, job: Job) -> Trajectory | Failure:
        try:
            used = self._take()
        except OSError as error:  # no process can be started
            return Failure(kind="WorkerNotStarted", message=f"no worker: {error}")
        try:
            outcome: Trajectory | Failure = used.ask(job)
        except _Died:
            if self._stopping:
                raise CancelledError from None
            outcome = self._post_mortem(used)
        self._give_back(used)
        return outcome

    def _take(self) -> _Worker:
        """An idle worker that lives, else a new one; there are never more than threads."""
        if self._stopping:
            raise CancelledError
        with self._lock:
            while self._idle:
                found = self._idle.pop()
                if found.alive:
                    return found
                self._all.discard(found)
        return self._new_worker()

    def _give_back(self, used: _Worker) -> None:
        if used.alive and used.asked < self._max_tasks:
            with self._lock:
                self._idle.append(used)
            return
        used.end(time.monotonic() + self._limits.step)
        with self._lock:
            self._all.discard(used)

    def _record(self, job: Job, failure: Failure, tried: int) -> Trajectory:
        if tried > 1:
            failure = Failure(kind=failure.kind, message=f"{failure.message}; tried {tried} times")
        logger.warning("%s: %s: %s", job.task_id, failure.kind, failure.message)
        task = TaskRef(id=job.task_id, split=job.split, seed=job.seed)
        return broken(self.env_ref, task, _agent_ref(job.agent), failure)

    def _post_mortem(self, dead: _Worker) -> Failure:
        """Why a worker died: what its file and its exit code say."""
        diary = Path(self._folder.name) / dead.diary
        text = diary.read_text(encoding="utf-8", errors="replace") if diary.exists() else ""
        diary.unlink(missing_ok=True)
        place = _last_frame(text)
        if "Timeout (" in text:
            limits = f"step_timeout {self._limits.step:g} s, start_timeout {self._limits.start:g} s"
            return Failure(kind="StepTimeout", message=f"the worker was silent for too long ({limits}){place}")
        return Failure(kind="WorkerDied", message=f"the worker died of {_cause(dead.exitcode)}{place}")

    def close(self, cancel: bool = False) -> None:
        """Finish what was submitted, then end every worker. May be called twice.

        With ``cancel``, nothing is waited for: what has not finished raises ``CancelledError``.
        """
        self._closed = True
        if not cancel:
            self._executor.shutdown(wait=True)
        self._stopping = True
        self._executor.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            left = list(self._all)
            self._all.clear()
        self._end_all(left)
        self._executor.shutdown(wait=True)
        self._idle.clear()  # a process object holds files open for as long as it is there
        self._folder.cleanup()

    def _end_all(self, left: list[_Worker]) -> None:
        """Ask all workers at once, then end those that do not listen."""
        for each in left:
            each.terminate()
        deadline = time.monotonic() + GRACE_SECONDS
        for each in left:
            each.end(deadline)

    def __enter__(self) -> "EnvPool":
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.close(cancel=kind is not None)


def _agent_ref(spec: AgentSpec) -> AgentRef:
    """As the agent itself would say it, so that broken and whole records name it alike."""
    try:
        return spec.build().ref
    except Exception as error:
        logger.warning("agent %s cannot be built: %s", spec.name, error)
        return AgentRef(name=spec.name, params=dict(spec.params))


def _cause(exitcode: int | None) -> str:
    if exitcode is None or exitcode >= 0:
        return f"exit code {exitcode}"
    hint = " (out of memory?)" if exitcode == -signal.SIGKILL else ""
    return f"{signal.Signals(-exitcode).name}{hint}"


def _last_frame(dump: str) -> str:
    """Where a traceback of ``faulthandler`` says that the work was; the main thread stands last in it."""
    section = dump.partition("Current thread")[2] or dump.rpartition("Thread 0x")[2]
    frame = re.search(r'File "(.+)", line (\d+) in (\S+)', section)
    return f" in {frame[3]} ({frame[1]}:{frame[2]})" if frame else ""
