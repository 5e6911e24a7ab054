"""``check_env``: proof that an environment, real or imagined, keeps the contract of ``worldloom.envs.base``."""

import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from worldloom.envs import EnvSpec, rules
from worldloom.envs.base import Environment
from worldloom.envs.rules import Trial, is_over
from worldloom.errors import EnvError

__all__ = ["GENERIC_ACTIONS", "CheckReport", "Problem", "check_env"]

GENERIC_ACTIONS = ("look", "inventory", "help", "wait", "go north", "open door", "take key", "examine room")
MOST_PROBLEMS = 5  # told per rule and task
CHILD_SECONDS = 600.0
CHILD = "from worldloom.envs.check import replay_in_child; replay_in_child()"


class Problem(NamedTuple):
    """A rule that was broken, on which task (None: on none in particular), and how."""

    rule: str
    task_id: str | None
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: " + (f"task {self.task_id!r}: " if self.task_id is not None else "") + self.what


@dataclass
class CheckReport:
    """What ``check_env`` tried and found; ``reset_seconds`` and ``steps_per_second`` are means, None if not timed."""

    env: str
    version: str
    task_ids: tuple[str, ...] = ()
    rules: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reset_seconds: float | None = None
    steps_per_second: float | None = None

    @property
    def ok(self) -> bool:
        """No rule was broken."""
        return not self.problems

    def __str__(self) -> str:
        broken = {problem.rule for problem in self.problems}
        lines = [f"{self.env} {self.version}: {'ok' if self.ok else f'{len(self.problems)} problem(s)'}"]
        lines += [f"  {'BROKEN' if rule in broken else 'ok':6} {rule}" for rule in self.rules]
        lines += [f"  - {problem}" for problem in self.problems]
        lines += [f"  note: {note}" for note in self.notes]
        if self.reset_seconds is not None and self.steps_per_second is not None:
            lines.append(f"  {self.reset_seconds:.3g} s a reset, {self.steps_per_second:.3g} steps/s")
        return "\n".join(lines)

    def gather(self, rule: str, task_id: str | None, found: Iterable[str]) -> bool:
        """Note that a rule is being tried and what is found; an exception is a problem too. True if none was."""
        before = len(self.problems)
        if rule not in self.rules:
            self.rules.append(rule)
        try:
            for what in islice(found, MOST_PROBLEMS):
                self.problems.append(Problem(rule, task_id, what))
        except Exception as error:
            self.problems.append(Problem(rule, task_id, f"raised {type(error).__name__}: {error}"))
        return len(self.problems) == before


def check_env(
    env: EnvSpec | Callable[[], Environment] | Environment,
    task_ids: Sequence[str] | None = None,
    *,
    actions: Sequence[str] = GENERIC_ACTIONS,
    seed: int = 0,
    max_steps: int = 20,
    processes: int = 2,
    raise_on_problem: bool = True,
) -> CheckReport:
    """Try every rule of the contract on an environment.

    Args:
        env: an ``EnvSpec`` (determinism is tried in separate processes with different ``PYTHONHASHSEED``), or a
            function that builds the environment (tried on two builds in this process), or the environment itself
            (tried twice on it; it is left open, and closing is not tried). The report's notes say which.
        task_ids: the tasks to play; the first of each split if not given.
        actions: what to try where ``info["admissible_actions"]`` says nothing.
        seed: for the environment and for the choice of actions.
        max_steps: how long an episode is played.
        processes: how many processes replay the same actions (with an ``EnvSpec``).
        raise_on_problem: raise instead of only reporting.

    Raises:
        EnvError: rules are broken; the message is the whole report.
        WorldloomError: the environment cannot be built.
    """
    real = env if isinstance(env, Environment) else _builder(env)()
    report = CheckReport(str(getattr(real, "name", None)), str(getattr(real, "version", None)))
    trial = Trial(real, actions, seed, max_steps)
    try:
        _check_rules(report, trial, task_ids)
        _check_determinism(report, trial, env, processes)
    finally:
        if real is not env:
            report.gather("close", None, _closes_twice(real))
    report.notes += dict.fromkeys(trial.notes)
    if trial.reset_seconds and trial.step_seconds:
        report.reset_seconds, report.steps_per_second = fmean(trial.reset_seconds), 1 / fmean(trial.step_seconds)
    if report.problems and raise_on_problem:
        raise EnvError(str(report))
    return report


def _builder(env: EnvSpec | Callable[[], Environment]) -> Callable[[], Environment]:
    return env.build if isinstance(env, EnvSpec) else env


def _check_rules(report: CheckReport, trial: Trial, task_ids: Sequence[str] | None) -> None:
    for rule, test in rules.OF_ALL.items():
        report.gather(rule, None, test(trial))
    if task_ids is None and report.ok:
        task_ids = [trial.env.task_ids(split)[0] for split in trial.env.splits]
    report.task_ids = tuple(task_ids or ())
    if not report.task_ids:
        trial.notes.append("no task was played")
    for task_id in report.task_ids:
        _check_task(report, trial, task_id)


def _check_task(report: CheckReport, trial: Trial, task_id: str) -> None:
    for rule, test in rules.OF_EACH_TASK.items():
        fine = report.gather(rule, task_id, test(trial, task_id))
        if rule == "reset" and not fine:
            trial.notes.append(f"task {task_id!r} does not start as it should, so nothing else was tried on it")
            return


def _closes_twice(env: Environment) -> Iterator[str]:
    env.close()
    env.close()
    yield from ()


class Script(NamedTuple):
    """What to do again: a task, a seed, the actions."""

    task_id: str
    seed: int
    actions: list[str]


def _check_determinism(
    report: CheckReport, trial: Trial, env: EnvSpec | Callable[[], Environment] | Environment, processes: int
) -> None:
    if not report.ok:
        trial.notes.append("determinism was not tried: the other rules come first")
        return
    report.gather("determinism", None, _differences(trial, report.task_ids, env, processes))


def _differences(
    trial: Trial, task_ids: Sequence[str], env: EnvSpec | Callable[[], Environment] | Environment, processes: int
) -> Iterator[str]:
    scripts = [_script(trial, task_id) for task_id in task_ids]
    here = [replay(trial.env, script) for script in scripts]
    for where, there in _replays(trial, scripts, env, processes):
        for script, one, other in zip(scripts, here, there, strict=True):
            yield from _first_difference(script, one, other, where)


def _script(trial: Trial, task_id: str) -> Script:
    return Script(task_id, trial.seed, [action for action, _ in trial.play(task_id, trial.half_plan(task_id))])


def _replays(
    trial: Trial, scripts: list[Script], env: EnvSpec | Callable[[], Environment] | Environment, processes: int
) -> Iterator[tuple[str, list[Any]]]:
    """The same scripts played elsewhere: where, and one transcript a script."""
    if isinstance(env, EnvSpec):
        trial.notes.append(f"determinism: tried in {processes} more processes with different PYTHONHASHSEED")
        seeds = range(1, processes + 1)
        with ThreadPoolExecutor() as pool:
            told = list(pool.map(partial(_replay_in_process, env, scripts), seeds))
        yield from zip([f"a process with PYTHONHASHSEED={seed}" for seed in seeds], told, strict=True)
    elif isinstance(env, Environment):
        trial.notes.append("determinism: tried twice on one environment in one process; it was left open")
        yield "a second run", [replay(env, script) for script in scripts]
    else:
        trial.notes.append("determinism: tried on two builds in one process")
        with closing(env()) as second:
            yield "a second build", [replay(second, script) for script in scripts]


def replay(env: Environment, script: Script) -> list[Any]:
    """What an environment says to a script, as JSON has it: the first observation, then each step's five values.

    How sure a world model was is left out: it is told to the last bit, which sums in another order change.
    """
    told: list[Any] = [env.reset(script.task_id, script.seed)]
    for action in script.actions:
        result = env.step(action)
        told.append([*result[:4], {key: value for key, value in result.info.items() if key != "confidence"}])
        if is_over(result):
            break
    plain: list[Any] = json.loads(json.dumps(told))
    return plain


def _first_difference(script: Script, one: list[Any], other: list[Any], where: str) -> Iterator[str]:
    for number, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            did = f"step {number}, {script.actions[number - 1][:40]!r}" if number else "reset"
            left, right = next((a, b) for a, b in zip(left, right, strict=True) if a != b)
            yield f"task {script.task_id!r}, {did}: {str(left)[:200]!r} here, {str(right)[:200]!r} in {where}"
            return


def _replay_in_process(env: EnvSpec, scripts: list[Script], hash_seed: int) -> list[Any]:
    with tempfile.TemporaryDirectory(prefix="worldloom-check-") as folder:
        answer = Path(folder) / "answer.json"
        child = subprocess.run(
            [sys.executable, "-c", CHILD],
            input=pickle.dumps((env, scripts, answer)),
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            timeout=CHILD_SECONDS,
            check=False,
        )
        if child.returncode != 0:
            last = child.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise EnvError(f"a process with PYTHONHASHSEED={hash_seed} failed: {' '.join(last)}")
        found: list[Any] = json.loads(answer.read_text(encoding="utf-8"))
        return found


def replay_in_child() -> None:
    """The other side of a determinism check: read scripts from standard input, write transcripts to a file."""
    spec, scripts, answer = pickle.load(sys.stdin.buffer)
    with closing(spec.build()) as env:
        answer.write_text(json.dumps([replay(env, script) for script in scripts]), encoding="utf-8")
