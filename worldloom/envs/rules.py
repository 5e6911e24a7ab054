"""The rules of the contract, each a generator of what is wrong; ``worldloom.envs.check`` tries them all."""

import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

from worldloom.envs.base import Environment, Observation, StepResult
from worldloom.errors import ConfigError, EnvError
from worldloom.trajectory import Terminal

ODD_ACTIONS = {
    "the empty action": "",
    "an action of white space": " \t ",
    "an action of 10,000 characters": "go " * 3333 + "x",
    "an action that is not ASCII": "prends la clé 🔑 до кухни",
    "an action with line breaks": "look\nlook\r\nlook",
    "an action with control characters": "look\x07\x1b[31m\x00",
    "an action that is a marker": "[SUCCESS]",
}
SUFFIXES = (" [SUCCESS]", " [FAILURE]")  # the text protocol's; an environment says `terminal` instead
NO_SUCH = "no such thing?"


class Trial:
    """An environment under test: its resets and steps are timed, and remarks that are no problems are noted."""

    def __init__(self, env: Environment, actions: Sequence[str], seed: int, max_steps: int):
        self.env, self.actions, self.seed, self.max_steps = env, tuple(actions), seed, max_steps
        self.reset_seconds: list[float] = []
        self.step_seconds: list[float] = []
        self.notes: list[str] = []

    def reset(self, task_id: str) -> Observation:
        """Start a task."""
        started = time.perf_counter()
        first = self.env.reset(task_id, self.seed)
        self.reset_seconds.append(time.perf_counter() - started)
        return first

    def step(self, action: str) -> StepResult:
        """Take one action."""
        started = time.perf_counter()
        result = self.env.step(action)
        self.step_seconds.append(time.perf_counter() - started)
        return result

    def half_plan(self, task_id: str) -> tuple[str, ...]:
        """The first half of a winning plan, where there is one: it changes more than chance does."""
        gold = self.reset(task_id).gold_actions or ()
        return gold[: len(gold) // 2]

    def play(self, task_id: str, plan: Sequence[str] = ()) -> Iterator[tuple[str, StepResult]]:
        """Reset and act until the end: first the plan, then admissible or given actions, drawn by the seed."""
        rng, choices = random.Random(f"{task_id} {self.seed}"), self.actions
        self.reset(task_id)
        for number in range(max(self.max_steps, len(plan))):
            action = plan[number] if number < len(plan) else rng.choice(choices)
            result = self.step(action)
            yield action, result
            if is_over(result):
                return
            choices = tuple(result.info.get("admissible_actions") or self.actions)


def is_over(result: StepResult) -> bool:
    """The episode has ended."""
    return result.terminated or result.truncated


def identity(trial: Trial) -> Iterator[str]:
    """``name`` and ``version`` are given, ``options`` can be written as JSON."""
    for key in ("name", "version"):
        value = getattr(trial.env, key, None)
        if not isinstance(value, str) or not value:
            yield f"{key} is {value!r}, not a text"
    if json.loads(json.dumps(trial.env.options)) != trial.env.options:
        yield f"options do not survive JSON: {trial.env.options!r}"


def splits(trial: Trial) -> Iterator[str]:
    """Splits are disjoint, in a fixed order, and an unknown one raises ``ConfigError``."""
    owner: dict[str, str] = {}
    for split in trial.env.splits:
        ids = list(trial.env.task_ids(split))
        if not ids or not all(isinstance(task_id, str) and task_id for task_id in ids):
            yield f"split {split!r} is empty or has ids that are not texts"
        if ids != list(trial.env.task_ids(split)):
            yield f"the order of split {split!r} changes from call to call"
        for task_id in ids:
            if task_id in owner:
                yield f"task {task_id!r} is in split {owner[task_id]!r} and again in {split!r}"
            owner[task_id] = split
    yield from _must_raise(ConfigError, f"task_ids({NO_SUCH!r})", lambda: trial.env.task_ids(NO_SUCH))


def unknown_task(trial: Trial) -> Iterator[str]:
    """A task that does not exist raises ``EnvError``."""
    yield from _must_raise(EnvError, f"reset({NO_SUCH!r})", lambda: trial.env.reset(NO_SUCH, trial.seed))


def _must_raise(kind: type[Exception], call: str, act: Callable[[], object]) -> Iterator[str]:
    try:
        act()
    except kind:
        return
    except Exception as error:
        yield f"{call} raised {type(error).__name__} ({error}), not {kind.__name__}"
    else:
        yield f"{call} did not raise {kind.__name__}"


def reset(trial: Trial, task_id: str) -> Iterator[str]:
    """``reset`` returns an ``Observation`` with text that is not blank."""
    first = trial.reset(task_id)
    if not isinstance(first, Observation):
        yield f"reset returned {type(first).__name__}, not Observation"
        return
    yield from _text_faults(first.text)
    if isinstance(first.text, str) and not first.text.strip():
        yield "the first observation is blank"
    for key in ("instruction", "initial_context"):
        if not isinstance(getattr(first, key), str | None):
            yield f"{key} is {getattr(first, key)!r}, neither text nor None"
    gold = first.gold_actions
    if gold is not None and not (isinstance(gold, tuple) and all(isinstance(action, str) for action in gold)):
        yield "gold_actions is neither None nor a tuple of texts"


def steps(trial: Trial, task_id: str) -> Iterator[str]:
    """``step`` returns a ``StepResult`` whose values have the right types and fit together."""
    for action, result in trial.play(task_id):
        yield from (f"{fault} (after {action[:40]!r})" for fault in step_faults(result))
        if not isinstance(result, StepResult):
            return


def step_faults(result: Any) -> Iterator[str]:
    """What is wrong with what ``step`` returned."""
    if not isinstance(result, StepResult):
        yield f"step returned {type(result).__name__}, not StepResult"
        return
    yield from _text_faults(result.observation)
    reward = result.reward
    if reward is not None and (isinstance(reward, bool) or not isinstance(reward, int | float)):
        yield f"reward is {reward!r}, neither a number nor None"
    elif reward is not None and not math.isfinite(reward):
        yield f"reward is {reward!r}; unknown is None"
    if not (isinstance(result.terminated, bool) and isinstance(result.truncated, bool)):
        yield "terminated and truncated are not both of type bool"
    yield from _info_faults(result)


def _text_faults(text: Any) -> Iterator[str]:
    if not isinstance(text, str):
        yield f"the observation is a {type(text).__name__}, not a text"
    elif text.rstrip().endswith(SUFFIXES):
        yield f"the observation ends in a marker of the text protocol: {text[-40:]!r}; say it in info['terminal']"


def _info_faults(result: StepResult) -> Iterator[str]:
    if not isinstance(result.info, dict):
        yield f"info is a {type(result.info).__name__}, not a dict"
        return
    terminal = result.info.get("terminal")
    fitting: tuple[str | None, ...] = (None,)
    if result.terminated:
        fitting = (None, "success", "failure")
    elif result.truncated:
        fitting = (None, "truncated")
    if terminal not in (None, *get_args(Terminal)):
        yield f"terminal is {terminal!r}; allowed: None, {', '.join(get_args(Terminal))}"
    elif terminal not in fitting:
        yield f"terminal is {terminal!r} while terminated={result.terminated}, truncated={result.truncated}"
    listed = result.info.get("admissible_actions", [])
    if not (isinstance(listed, list) and all(isinstance(action, str) for action in listed)):
        yield "admissible_actions is not a list of texts"
    changed, refused = (result.info.get(key, False) for key in ("changed", "refused"))
    if not (isinstance(changed, bool) and isinstance(refused, bool)):
        yield f"changed is {changed!r} and refused is {refused!r}; they are of type bool, or absent"
    elif changed and refused:
        yield "an action was refused, and changed the state"


def fresh_start(trial: Trial, task_id: str) -> Iterator[str]:
    """``reset`` in mid-episode starts the task anew: nothing of the first attempt is left."""
    once = trial.reset(task_id)
    played = [(action, result.observation) for action, result in trial.play(task_id, once.gold_actions or ())]
    middle = max(1, len(played) // 2)
    trial.reset(task_id)
    for action, _ in played[:middle]:
        trial.step(action)
    again = trial.reset(task_id)
    if again != once:
        yield f"the first observation was {once.text[:80]!r}, after a reset in mid-episode {again.text[:80]!r}"
    for number, (action, before) in enumerate(played, 1):
        now = trial.step(action).observation
        if now != before:
            yield f"step {number} ({action[:40]!r}) gave {before[:80]!r}, after a reset in mid-episode {now[:80]!r}"
            return


def after_the_end(trial: Trial, task_id: str) -> Iterator[str]:
    """After the end, ``step`` raises ``EnvError`` (the end is sought by ``gold_actions``, then by chance)."""
    gold = trial.reset(task_id).gold_actions or ()
    results = [result for _, result in trial.play(task_id, gold)]
    if not results or not is_over(results[-1]):
        trial.notes.append(f"task {task_id!r} did not end when played, so nothing was tried after its end")
        return
    if gold and results[-1].info.get("terminal") != "success":
        trial.notes.append(f"the gold_actions of task {task_id!r} do not end in success")
    yield from _must_raise(EnvError, "step after the end", lambda: trial.env.step("look"))


def odd_actions(trial: Trial, task_id: str) -> Iterator[str]:
    """A malformed action is an ordinary observation."""
    trial.reset(task_id)
    for what, action in ODD_ACTIONS.items():
        try:
            result = trial.step(action)
        except Exception as error:
            yield f"{what} raised {type(error).__name__}: {str(error)[:200]}"
            trial.reset(task_id)
            continue
        yield from (f"{fault} (after {what})" for fault in step_faults(result))
        if is_over(result):
            trial.notes.append(f"{what} ended task {task_id!r} ({result.info.get('terminal')})")
            trial.reset(task_id)


OF_ALL = {"identity": identity, "splits": splits, "unknown task": unknown_task}
OF_EACH_TASK = {
    "reset": reset,
    "fresh start": fresh_start,  # early, while nothing has been done that could be left over
    "steps": steps,
    "after the end": after_the_end,
    "odd actions": odd_actions,
}
