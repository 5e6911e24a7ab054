"""``worldloom.record``: what is done to a function or an environment, and what came of it, as trajectories."""

import contextlib
import functools
import inspect
import json
import math
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, get_args

from worldloom.envs.base import StepResult
from worldloom.errors import ConfigError
from worldloom.recording.journal import Journal, recover
from worldloom.rollout import terminal_of
from worldloom.trajectory import AgentRef, EnvRef, Failure, Step, TaskRef, Terminal, Trajectory

__all__ = ["Episode", "Recorder", "record"]


def as_text(value: Any) -> str:
    """A text as it is; anything else as JSON, and what JSON has no form for as ``str`` says it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def record(
    path: Path | str,
    *,
    env: str | None = None,
    version: str | None = None,
    agent: str | None = None,
    task: str | None = None,
    split: str | None = None,
    observation: str = "",
    instruction: str | None = None,
    text: Callable[[Any], str] = as_text,
) -> "Recorder":
    """Record episodes into a trajectories file, to which any number of threads and processes may add at once.

    What it gives is a decorator and a context manager::

        shop = worldloom.record("shop.jsonl", env="shop", agent="bot-3")

        @shop                                # a function: the call is the action, what it gives the observation
        def refund(order: str, cents: int) -> str: ...

        with shop.episode(task="ticket-17", observation="I want my money back."):
            run_the_agent()                  # whatever it calls of what is decorated is a step of this episode

        env = shop(gymnasium.make(...))      # an environment: each reset begins an episode

        with worldloom.record("shop.jsonl", env="shop", task="ticket-18") as episode:
            episode.step("refund 7", "Done.", terminal="success")    # or step by step

    A call is said as ``{"name": ..., "arguments": {...}}``; that of a function named ``step``, or whose only argument
    is named ``action``, as this argument alone. A function may give a text, any value (said as JSON), or Gymnasium's
    five values. A call outside of an episode is an episode of one step. An ``async`` function is recorded alike. Which
    episode a call belongs to follows ``contextvars``: the thread's or asyncio task's own, and what that starts with
    ``asyncio.to_thread`` or as a task.

    Each step is with the operating system before the call returns, each ended episode on disk as one line; a killed
    process loses at most the step in flight, and its open episodes become lines with an ``error`` when the file is
    next recorded to, or by ``worldloom.recording.journal.recover`` (which says how).

    Args:
        path: the trajectories file (JSON Lines); it and its folder are made where missing.
        env: the environment's name; a Gymnasium environment's own id if not given.
        version: the version of its engine.
        agent: who acts.
        task: the task's id; if not given, the environment's ``info["task_id"]``, its seed, or the episode's own id.
        split: which split the task is of.
        observation: what the agent sees before its first action.
        instruction: what it is asked to do.
        text: makes texts of actions and observations.

    Raises:
        OSError: nothing can be written there.
    """
    return Recorder(Path(path), text, env=env, version=version, agent=agent, task=task, split=split,
                    observation=observation, instruction=instruction)  # fmt: skip


class Recorder:
    """What ``record`` gives; ``about`` holds its settings, which each episode may replace."""

    def __init__(self, path: Path, text: Callable[[Any], str] = as_text, **about: Any):
        self.path, self.text, self.about = path, text, about
        self.current: ContextVar[tuple[Episode, ...]] = ContextVar("episodes", default=())
        path.parent.mkdir(parents=True, exist_ok=True)
        recover(path)

    def episode(self, **about: Any) -> "Episode":
        """Begin an episode; use it as a context manager.

        Args:
            about: ``task``, ``observation``, ``instruction``, ``split``, ``seed``, ``agent``, ``env``, ``version`` or
                ``initial_context`` (what a world model may know of the start, and the agent may not).

        Raises:
            ConfigError: another name.
            OSError: its journal cannot be written.
        """
        return Episode(self, {**self.about, **{key: value for key, value in about.items() if value is not None}})

    def __enter__(self) -> "Episode":
        return self.episode().__enter__()

    def __exit__(self, *exc: Any) -> None:
        self.current.get()[-1].__exit__(*exc)

    def __call__(self, target: Any) -> Any:
        """Record a function, or an environment of Gymnasium.

        Raises:
            ConfigError: it is neither.
        """
        if callable(getattr(target, "reset", None)) and callable(getattr(target, "step", None)):
            from worldloom.recording.gym import recorded_env

            return recorded_env(target, self)
        if not callable(target):
            raise ConfigError(f"{target!r} cannot be recorded; give a function or a gymnasium.Env")
        return self._recorded_async(target) if inspect.iscoroutinefunction(target) else self._recorded(target)

    def _recorded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def step(*args: Any, **kwargs: Any) -> Any:
            with self._call(function, args, kwargs) as came:
                came.append(function(*args, **kwargs))
            return came[0]

        return step

    def _recorded_async(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def step(*args: Any, **kwargs: Any) -> Any:
            with self._call(function, args, kwargs) as came:
                came.append(await function(*args, **kwargs))
            return came[0]

        return step

    @contextlib.contextmanager
    def _call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Iterator[list[Any]]:
        """One call; what it gives is put into the list."""
        action = _action(function, args, kwargs, self.text)
        open_ones, came = self.current.get(), list[Any]()
        with contextlib.nullcontext(open_ones[-1]) if open_ones else self.episode() as episode:
            with episode.taking(action):
                yield came
            episode.result(action, came[0])


class Episode:
    """One episode that is being recorded; ``with`` ends it, an exception that leaves the block being its ``error``.

    Steps may come from several threads; they stand in the order in which they ended.
    """

    def __init__(self, recorder: Recorder, about: Mapping[str, Any]):
        self.id = uuid.uuid4().hex
        self._recorder, self._journal = recorder, Journal(recorder.path, self.id, _head(self.id, about))
        weakref.finalize(self, self._journal.end, {})  # dropped, or open when the program ends: the end is unknown

    def step(
        self,
        action: Any,
        observation: Any,
        *,
        reward: float | None = None,
        terminal: Terminal | None = None,
        thought: str | None = None,
        **more: Any,
    ) -> None:
        """Record a step; further names become further fields of it.

        Raises:
            EnvError: the episode is over.
            OSError: it cannot be written.
        """
        text = self._recorder.text
        taken = {"action": text(action), "observation": text(observation), "thought": thought, **more}
        self._journal.write("step", Step(**taken, reward=_known(reward), terminal=terminal).model_dump())

    def result(self, action: str, result: Any) -> None:
        """Record a step from what a function gave: Gymnasium's five values, or an observation.

        Where the episode terminated and ``info`` has no ``terminal``, nobody knows whether in success: the step has
        ``terminated`` instead. An unknown reward (None, NaN) is absent.
        """
        if not (isinstance(result, tuple) and len(result) == 5 and isinstance(result[4], Mapping)):
            return self.step(action, result)
        observation, reward, terminated, truncated, info = result
        terminal = terminal_of(StepResult(observation, None, bool(terminated), bool(truncated), info))
        known: dict[str, Any] = {"not_recorded": True} if info.get("not_recorded") is True else {}
        if isinstance(possible := info.get("admissible_actions"), Sequence):
            known["admissible_actions"] = [str(action) for action in possible]
        if terminal not in get_args(Terminal):  # what another environment may mean by it
            terminal = None
        if terminated and terminal is None:
            known["terminated"] = True
        self.step(action, observation, reward=reward, terminal=terminal, **known)

    @contextlib.contextmanager
    def taking(self, action: str) -> Iterator[None]:
        """What happens inside is the step; an exception in it is recorded, and goes on."""
        try:
            yield
        except BaseException as error:
            self._journal.write("raised", {"action": action, **_failure(error)})
            raise

    def end(self, terminal: Terminal | None = None, error: BaseException | None = None) -> None:
        """End the episode; a ``terminal`` given here is that of its last step. A second time this does nothing.

        Raises:
            OSError: its line cannot be written; it stays in its journal.
        """
        self._journal.end({"terminal": terminal, "error": _failure(error) if error is not None else None})

    def __enter__(self) -> "Episode":
        self._token = self._recorder.current.set((*self._recorder.current.get(), self))
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            self._recorder.current.reset(self._token)
        finally:
            self.end(error=error)


def _failure(error: BaseException) -> dict[str, Any]:
    return Failure(kind=type(error).__name__, message=str(error)).model_dump()


def _known(reward: Any) -> float | None:
    return None if reward is None or not math.isfinite(reward) else float(reward)


def _head(name: str, about: Mapping[str, Any]) -> Trajectory:
    """The episode before its first step."""
    known = dict.fromkeys(("version", "agent", "task", "split", "instruction", "seed", "initial_context"))
    known |= {"env": None, "observation": ""}
    if unknown := set(about) - set(known):
        raise ConfigError(f"an episode has no {', '.join(sorted(unknown))}; it has {', '.join(sorted(known))}")
    said = {**known, **about}
    return Trajectory(
        env=EnvRef(name=said["env"] or "recorded", version=said["version"]),
        task=TaskRef(
            id=str(said["task"] or name), split=said["split"], seed=said["seed"], instruction=said["instruction"]
        ),
        initial_context=said["initial_context"],
        initial_observation=said["observation"],
        agent=AgentRef(name=said["agent"]) if said["agent"] else None,
    )


def _action(function: Callable[..., Any], args: Any, kwargs: Any, text: Callable[[Any], str]) -> str:
    """A call as an action: the action that a step function is given, else ``{"name": ..., "arguments": {...}}``."""
    name = getattr(function, "__name__", type(function).__name__)
    try:
        given = dict(inspect.signature(function).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):  # arguments that it does not take, or nothing says which it takes
        given = {**{str(number): value for number, value in enumerate(args)}, **kwargs}
    given.pop("self", None)
    if len(given) == 1 and (name == "step" or "action" in given):
        return text(next(iter(given.values())))
    return text({"name": name, "arguments": given})
