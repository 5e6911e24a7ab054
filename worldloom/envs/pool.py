"""Many engines, one per process: submit a job, get a recorded trajectory.

Engines leak, crash and hang. Here a crash or a hang costs one process and becomes one trajectory with an
``error``; the other jobs never notice. The shape is that of ``concurrent.futures``.
"""

import logging
import multiprocessing
import re
import signal
import tempfile
import threading
import time
from collections import deque
from concurrent.futures import CancelledError, Future, InvalidStateError, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pebble import ProcessExpired, ProcessPool

from worldloom.agents import AgentSpec
from worldloom.envs import EnvSpec, worker
from worldloom.envs.worker import GRACE_SECONDS, Job, Limits
from worldloom.errors import ConfigError, EnvError, WorldloomError
from worldloom.rollout import broken
from worldloom.trajectory import AgentRef, EnvRef, Failure, TaskRef, Trajectory

__all__ = ["EnvPool", "Job"]

logger = logging.getLogger(__name__)

BIRTH_SECONDS = 60.0  # for a new process to import what it needs, on top of the environment's own start
NEVER_BEGAN = "WorkerNotStarted"
MISSES = 5  # workers that may die before they take a given job, until it is recorded
NO_WORKERS = (
    "the worker processes died before they took a job; their output on stderr says why "
    "(a script must make the pool below `if __name__ == '__main__':`)"
)


class _Ticket:
    """A job on its way: its future, and how often it may still be tried."""

    def __init__(self, job: Job, tries: int):
        self.job, self.tries, self.tried, self.missed = job, tries, 0, 0
        self.future: Future[Trajectory] = Future()

    def may_try_again(self, failure: Failure) -> bool:
        """A job that killed its worker has ``tries``; one whose worker died before it began has a few more."""
        if failure.kind == NEVER_BEGAN:
            self.tried, self.missed = self.tried - 1, self.missed + 1
            return self.missed <= MISSES
        return failure.kind == "WorkerDied" and self.tried < self.tries

    def give_up(self) -> None:
        """End a future for which no trajectory will come."""
        if self.future.cancel():
            self.future.set_running_or_notify_cancel()
        else:
            with suppress(InvalidStateError):
                self.future.set_exception(CancelledError())


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
        self._spec, self._workers, self._max_tasks, self._retries = env_spec, workers, max_tasks, retries
        self._limits = Limits(step_timeout, start_timeout)
        self._folder = tempfile.TemporaryDirectory(prefix="worldloom-pool-")
        self._lock = threading.RLock()
        self._waiting: deque[_Ticket] = deque()
        self._playing: set[_Ticket] = set()
        self._closed = self._stopping = False
        self._retired: list[threading.Thread] = []
        self._pool: Any = self._new_pool()  # pebble's methods are not all typed
        try:
            self.env_ref: EnvRef = self._start_up()
        except BaseException:
            self.close(cancel=True)
            raise

    def _new_pool(self) -> ProcessPool:
        return ProcessPool(
            self._workers,
            self._max_tasks,
            initializer=worker.start,
            initargs=(self._spec, self._limits, Path(self._folder.name)),
            context=multiprocessing.get_context("spawn"),
        )

    def _start_up(self) -> EnvRef:
        """Build the environment once, so that what cannot work fails here and not in every job."""
        what = f"environment {self._spec.name!r} cannot be built: "
        try:
            found: EnvRef = self._pool.schedule(worker.probe).result(self._limits.start + BIRTH_SECONDS)
            return found
        except ProcessExpired as error:
            raise EnvError(what + self._post_mortem(error).message) from error
        except BrokenProcessPool as error:
            raise EnvError(what + NO_WORKERS) from error
        except TimeoutError as error:
            raise EnvError(what + f"no worker answered in {self._limits.start + BIRTH_SECONDS:g} s") from error
        except WorldloomError as error:
            raise type(error)(what + str(error)) from error

    def submit(self, job: Job) -> Future[Trajectory]:
        """Queue a job. The result is a trajectory, with an ``error`` if the rollout broke; it never raises,
        except ``CancelledError`` where the pool was closed before the job was done.

        Raises:
            EnvError: the pool is closed.
        """
        ticket = _Ticket(job, 1 + self._retries)
        with self._lock:
            if self._closed:
                raise EnvError("the pool is closed; make a new EnvPool")
            self._waiting.append(ticket)
        self._fill()
        return ticket.future

    def _fill(self) -> None:
        """Give waiting jobs to idle workers; no more than that, so that a death concerns one job."""
        with self._lock:
            while self._waiting and len(self._playing) < self._workers and not self._stopping:
                ticket = self._waiting.popleft()
                if ticket.future.running() or ticket.future.set_running_or_notify_cancel():
                    self._play(ticket)

    def _play(self, ticket: _Ticket) -> None:
        ticket.tried += 1
        self._playing.add(ticket)
        try:
            done = self._schedule(ticket.job)
        except (OSError, RuntimeError) as error:  # no process can be started
            self._playing.discard(ticket)
            ticket.future.set_result(self._record(ticket, Failure(kind=NEVER_BEGAN, message=f"no worker: {error}")))
        else:
            done.add_done_callback(partial(self._settle, ticket))

    def _schedule(self, job: Job) -> "Future[Any]":
        done: Future[Any]
        try:
            done = self._pool.schedule(worker.play, (job,))
        except RuntimeError:  # pebble gives up a pool whose worker dies while all are idle
            logger.warning("the process pool broke; starting a new one")
            self._retire(self._pool)
            self._pool = self._new_pool()
            done = self._pool.schedule(worker.play, (job,))
        return done

    def _retire(self, pool: Any) -> None:
        """End a broken pool, in a thread of its own: this may be one of the pool's threads."""
        pool.stop()
        thread = threading.Thread(target=pool.join, name="retire-pool", daemon=True)
        thread.start()
        self._retired.append(thread)

    def _settle(self, ticket: _Ticket, done: "Future[Any]") -> None:
        """Called when a worker finished, or died in, a job."""
        outcome = self._outcome(done)
        with self._lock:
            self._playing.discard(ticket)
            again = isinstance(outcome, Failure) and ticket.may_try_again(outcome)
            if again and not self._stopping:
                self._waiting.appendleft(ticket)
        if self._stopping and not isinstance(outcome, Trajectory):
            ticket.give_up()
        elif not again:
            with suppress(InvalidStateError):
                ticket.future.set_result(self._record(ticket, outcome))
        self._fill()

    def _outcome(self, done: "Future[Any]") -> Trajectory | Failure:
        if done.cancelled():
            return Failure(kind="WorkerDied", message="the worker was ended")
        error = done.exception()
        if error is None:
            found: Trajectory | Failure = done.result()
            return found
        if isinstance(error, ProcessExpired):
            return self._post_mortem(error)
        if isinstance(error, BrokenProcessPool):
            return Failure(kind=NEVER_BEGAN, message=NO_WORKERS)
        return Failure(kind=type(error).__name__, message=str(error))

    def _record(self, ticket: _Ticket, outcome: Trajectory | Failure) -> Trajectory:
        if isinstance(outcome, Trajectory):
            return outcome
        job, failure = ticket.job, outcome
        if ticket.tried > 1:
            failure = Failure(kind=failure.kind, message=f"{failure.message}; tried {ticket.tried} times")
        logger.warning("%s: %s: %s", job.task_id, failure.kind, failure.message)
        task = TaskRef(id=job.task_id, split=job.split, seed=job.seed)
        return broken(self.env_ref, task, _agent_ref(job.agent), failure)

    def _post_mortem(self, death: ProcessExpired) -> Failure:
        """Why a worker died: what its file and its exit code say."""
        diary = Path(self._folder.name) / str(death.pid)
        text = diary.read_text(encoding="utf-8", errors="replace") if diary.exists() else ""
        diary.unlink(missing_ok=True)
        place = _last_frame(text)
        if "Timeout (" in text:
            limits = f"step_timeout {self._limits.step:g} s, start_timeout {self._limits.start:g} s"
            return Failure(kind="StepTimeout", message=f"the worker was silent for too long ({limits}){place}")
        return Failure(kind="WorkerDied", message=f"the worker died of {_cause(death.exitcode)}{place}")

    def close(self, cancel: bool = False) -> None:
        """Finish what was submitted, then end every worker. May be called twice.

        With ``cancel``, nothing is waited for: what has not finished raises ``CancelledError``.
        """
        with self._lock:
            self._closed = True
            open_tickets = [*self._waiting, *self._playing]
        try:
            if not cancel:
                wait([ticket.future for ticket in open_tickets])
        finally:
            self._stop()

    def _stop(self) -> None:
        with self._lock:
            if self._stopping:
                return
            self._stopping = True
            left = [*self._waiting, *self._playing]
            self._waiting.clear()
        self._pool.stop()
        self._end_workers()
        self._pool.join()
        for thread in self._retired:
            thread.join()
        for ticket in left:
            ticket.give_up()
        self._folder.cleanup()

    def _end_workers(self) -> None:
        """Ask all workers at once, then end those that do not listen."""
        mine = [p for p in multiprocessing.active_children() if (Path(self._folder.name) / str(p.pid)).exists()]
        for process in mine:
            process.terminate()
        deadline = time.monotonic() + GRACE_SECONDS
        for process in mine:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()

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
