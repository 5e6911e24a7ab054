"""An environment in a process of its own, stepped from here: for threads, which many engines do not bear."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, Self

from worldloom.envs import EnvSpec
from worldloom.envs.base import Environment, Observation, StepResult
from worldloom.envs.worker import ONE_THREAD, follow_parent
from worldloom.errors import EnvError

SECONDS = 180.0  # for one answer, building and starting a task included

_env: Environment | None = None  # of this process


class RemoteEnv(Environment):
    """Builds ``spec`` in a new process and passes everything on to it. After an error of its engine, make a new one.

    Raises:
        EnvError: the environment cannot be built; later: its process died, or was silent for ``seconds``.
        ConfigError: the environment has no such name or option.
    """

    def __init__(self, spec: EnvSpec, seconds: float = SECONDS):
        self._spec, self._seconds, self.closed = spec, seconds, False
        self._process = ProcessPoolExecutor(1, get_context("spawn"), initializer=_settle)
        try:
            self.name, self.version, self._options, self._splits = self._ask(_build, spec)
        except BaseException:
            self._process.shutdown(wait=False, cancel_futures=True)
            raise

    @property
    def options(self) -> dict[str, Any]:
        return dict(self._options)

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self._splits)

    def task_ids(self, split: str) -> Sequence[str]:
        return self._ask(_call, "task_ids", split)  # type: ignore[no-any-return]

    def reset(self, task_id: str, seed: int = 0) -> Observation:
        return self._ask(_call, "reset", task_id, seed)  # type: ignore[no-any-return]

    def step(self, action: str) -> StepResult:
        return self._ask(_call, "step", action)  # type: ignore[no-any-return]

    def _ask(self, what: Callable[..., Any], *arguments: Any) -> Any:
        gone = f"the process of {self._spec.name} is gone"
        try:
            answer = self._process.submit(what, *arguments)
        except RuntimeError as error:  # it died before, or was closed
            self.closed = True
            raise EnvError(f"{gone}: {error}") from error
        try:
            return answer.result(self._seconds)
        except TimeoutError as error:
            self._end()
            raise EnvError(f"{self._spec.name} was silent for {self._seconds:g} s") from error
        except BrokenProcessPool as error:
            self.closed = True  # so that it is not lent again
            raise EnvError(f"{gone}: {error}") from error

    def _end(self) -> None:
        self.closed = True
        for process in list((self._process._processes or {}).values()):
            process.kill()
        self._process.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        self.closed = True
        try:
            self._ask(_call, "close")
        except EnvError:  # it is gone already
            pass
        finally:
            self._process.shutdown(wait=True, cancel_futures=True)


class RemoteEnvs:
    """Remote environments that threads take turns with; there are as many as are needed at once."""

    def __init__(self, spec: EnvSpec):
        self._spec, self._lock = spec, threading.Lock()
        self._idle: list[RemoteEnv] = []
        self._all: list[RemoteEnv] = []

    @contextmanager
    def one(self) -> Iterator[RemoteEnv]:
        """An environment that nobody else uses meanwhile. One that was closed, since its engine broke, or in which
        something was raised is not given again."""
        with self._lock:
            env = self._idle.pop() if self._idle else None
        env = env or self._new()
        try:
            yield env
        except BaseException:
            env.close()
            raise
        finally:
            if not env.closed:
                with self._lock:
                    self._idle.append(env)

    def _new(self) -> RemoteEnv:
        env = RemoteEnv(self._spec)
        with self._lock:
            self._all.append(env)
        return env

    def close(self) -> None:
        """End all processes. May be called twice."""
        with self._lock:
            left, self._all, self._idle = self._all, [], []
        for env in left:
            env.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _settle() -> None:
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, who closes this
    threading.Thread(target=follow_parent, name="follow-parent", daemon=True).start()


def _build(spec: EnvSpec) -> tuple[str, str, dict[str, Any], tuple[str, ...]]:
    global _env
    _env = spec.build()
    return _env.name, _env.version, _env.options, _env.splits


def _call(method: str, *arguments: Any) -> Any:
    return getattr(_env, method)(*arguments)
