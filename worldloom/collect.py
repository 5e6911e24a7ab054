"""Stage 1: environments x agents -> trajectories, in parallel and resumable."""

import json
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any

from worldloom.agents import AgentSpec, defaults
from worldloom.coverage.steps import kind_of
from worldloom.envs import EnvSpec
from worldloom.envs.pool import EnvPool
from worldloom.envs.versions import check_version, refs_of
from worldloom.envs.worker import Job
from worldloom.errors import ConfigError, EnvError
from worldloom.lineage import weights_of
from worldloom.progress import progress
from worldloom.rollout import MAX_STEPS
from worldloom.rollouts import AT_ONCE, Engines, Play, asked, play_at_once
from worldloom.runs import Log, open_run, write_json
from worldloom.trajectory import AgentRef, EnvRef, Trajectory, read

logger = logging.getLogger(__name__)

TRAJECTORIES = "trajectories.jsonl"


def collect(
    out: Path,
    env: EnvSpec,
    agents: Sequence[AgentSpec],
    split: str = "train",
    *,
    tasks: int | None = None,
    agents_per_task: int = 1,
    seed: int = 0,
    max_steps: int = MAX_STEPS,
    workers: int = 2,
) -> dict[str, Any]:
    """Let agents play tasks of a split and write ``out/trajectories.jsonl`` and ``out/summary.json``.

    Tasks are drawn from the split by ``seed``; agents take turns, ``agents_per_task`` on each. Started again with
    the same settings it plays what is missing. A rollout that breaks is recorded with its error.

    Returns:
        The summary (see ``summarize``).

    Raises:
        ConfigError: settings out of range, or ``out`` holds a run with others, or of another version of the engine.
        EnvError: the environment cannot be started.
    """
    config = {
        "stage": "collect",
        "env": env.name,
        "options": {k: v for k, v in env.options.items() if k != "data"},
        "split": split,
        "agents": [{"name": agent.name, "params": dict(agent.params)} for agent in agents],
        "tasks": tasks,
        "agents_per_task": agents_per_task,
        "seed": seed,
        "max_steps": max_steps,
        **weights_of(agents),
    }
    _check(agents, max_steps, workers)
    jobs = plan(choose_tasks(env, split, tasks, seed), agents, split, agents_per_task, seed, max_steps)
    open_run(out, config)
    play(out / TRAJECTORIES, env, jobs, workers)
    summary = summarize(read(out / TRAJECTORIES))
    write_json(out / "summary.json", summary)
    return summary


def _check(agents: Sequence[AgentSpec], max_steps: int, workers: int) -> None:
    """Refuse what could not play a single step, before anything is written."""
    for name, value in (("max_steps", max_steps), ("workers", workers)):
        if value < 1:
            raise ConfigError(f"{name} is {value}; it must be at least 1")
    for agent in agents:
        agent.build()


def choose_tasks(env: EnvSpec, split: str, count: int | None, seed: int) -> list[str]:
    """``count`` task ids of a split, drawn by ``seed`` (all of them, in order, if None).

    Raises:
        ConfigError: the split has not as many.
    """
    with env.build() as world:
        ids = list(world.task_ids(split))
    if count is None:
        logger.warning("no number of tasks was given: all %d of split %r are played", len(ids), split)
        return ids
    if not 1 <= count <= len(ids):
        raise ConfigError(f"{count} tasks asked of split {split!r} of {env.name}, which has {len(ids)}")
    return random.Random(f"tasks {seed}").sample(ids, count)


def plan(
    tasks: Sequence[str], agents: Sequence[AgentSpec], split: str, agents_per_task: int, seed: int, max_steps: int
) -> list[Job]:
    """Who plays what: agents take turns over the tasks.

    Raises:
        ConfigError: no agents, or more per task than there are.
    """
    if not 1 <= agents_per_task <= len(agents):
        raise ConfigError(f"agents_per_task is {agents_per_task}, with {len(agents)} agents")
    turns = [(task, index * agents_per_task + n) for index, task in enumerate(tasks) for n in range(agents_per_task)]
    return [Job(task, agents[turn % len(agents)], seed, split, max_steps) for task, turn in turns]


def play(path: Path, env: EnvSpec, jobs: Iterable[Job], workers: int, like: Iterable[Trajectory] = ()) -> None:
    """Play the jobs that a trajectories file lacks and append them to it as they end.

    Raises:
        ConfigError: the file, or the episodes ``like`` which it is to be, are of another version of the engine.
    """
    with Log(path) as log:
        before = read(path)
        done = {key(t) for t in before}
        all_jobs = list(jobs)
        missing = [job for job in all_jobs if job_key(job) not in done]
        earlier = refs_of([*before, *like])
        with progress("collect", len(all_jobs), "episodes", len(all_jobs) - len(missing)) as advance:
            outcomes: Counter[str] = Counter()
            for trajectory in _played(env, missing, workers, lambda ref: check_version(earlier, ref, str(path.parent))):
                log.append(trajectory.to_json())
                outcomes[trajectory.outcome or "unknown"] += 1
                advance(1, ", ".join(f"{n} {outcome}" for outcome, n in outcomes.most_common()))


def _played(env: EnvSpec, jobs: Sequence[Job], workers: int, check: Callable[[EnvRef], None]) -> Iterator[Trajectory]:
    """Agents that keep a model act here, and many at once; the others beside their engines."""
    here: list[Job] = []
    there: list[Job] = []
    for job in jobs:
        (here if job.agent.build().together else there).append(job)
    if there:
        with EnvPool(env, workers=min(workers, len(there))) as pool:
            check(pool.env_ref)
            waiting: set[Future[Trajectory]] = {pool.submit(job) for job in there}
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
    if here:
        with Engines(env) as engines:
            check(engines.ref)
            yield from play_at_once(here, engines.play, max(workers, AT_ONCE))


def imagine(path: Path, jobs: Sequence[Job], play_one: Play, at_once: int = AT_ONCE) -> None:
    """Play the jobs that a file lacks inside a world model, many at once, and append them to it as they end.

    Where it is stopped, the episodes in flight are played to their end and kept; the others are not begun.

    Raises:
        ModelError: the model could not be asked (its server is gone, say); that is no episode's fault, so none of
            them is recorded as failed for it.
    """
    with Log(path) as log:
        done = {key(t) for t in read(path)}
        missing = [job for job in jobs if job_key(job) not in done]

        def keep(job: Job) -> Trajectory:
            played = asked(play_one(job))
            log.append(played.to_json())
            return played

        with progress("imagine", len(jobs), "episodes", len(jobs) - len(missing)) as advance:
            for played in play_at_once(missing, keep, at_once):
                advance(1, f"{len(played.steps)} steps, {played.outcome}")


def key(trajectory: Trajectory) -> tuple[str, str, str, int | None]:
    """What makes an episode one of its kind: task, agent, seed."""
    agent = trajectory.agent
    return trajectory.task.id, agent.name if agent else "", _said(agent.params if agent else {}), trajectory.task.seed


def job_key(job: Job) -> tuple[str, str, str, int | None]:
    """The ``key`` that a job's trajectory will have."""
    agent = job.agent.build().ref
    return job.task_id, agent.name, _said(agent.params), job.seed


def _said(params: dict[str, Any]) -> str:
    return str(sorted(json.loads(json.dumps(params)).items()))  # as a file gives them back


def summarize(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    """What was collected: episodes, outcomes, steps, and what kinds of steps.

    ``invalid`` is the share of actions that the environment refused, ``no_change`` the share of the others that
    changed nothing; both over the steps where that is known (see ``Trajectory.effect``).
    ``errors`` (only where there are any) are the five commonest, with their numbers.
    ``not_recorded`` (only where there are any) counts the steps that a recorded world could not answer.
    """
    outcomes = Counter(t.outcome or "unknown" for t in trajectories)
    errors = Counter(f"{t.error.kind}: {t.error.message}" for t in trajectories if t.error)
    kinds = Counter(kind_of(step.action).name for t in trajectories for step in t.steps)
    checked = [effect for t in trajectories for n in range(len(t.steps)) if (effect := t.effect(n))]
    invalid = checked.count("invalid")
    not_recorded = sum(step.not_recorded is True for t in trajectories for step in t.steps)
    return (
        {
            "episodes": len(trajectories),
            "outcomes": dict(outcomes.most_common()),
            "steps": sum(kinds.values()),
            "success_rate": outcomes["success"] / len(trajectories) if trajectories else None,
            "action_kinds": dict(kinds.most_common(20)),
            "invalid": invalid / len(checked) if checked else None,
            "no_change": checked.count("no_change") / (len(checked) - invalid) if len(checked) > invalid else None,
            "by_agent": {name: dict(found.most_common()) for name, found in sorted(_by_agent(trajectories).items())},
        }
        | ({"errors": dict(errors.most_common(5))} if errors else {})
        | ({"not_recorded": not_recorded} if not_recorded else {})
    )


def check_played(summary: dict[str, Any], out: Path) -> None:
    """Refuse to go on with episodes of which none was played.

    Raises:
        EnvError: every one ended in an error.
    """
    if 0 < summary["episodes"] == summary["outcomes"].get("error"):
        told, count = next(iter(summary["errors"].items()))
        raise EnvError(
            f"every one of {summary['episodes']} episodes ended in an error, {count} of them in {told!r}; they are "
            f"recorded in {out / TRAJECTORIES}; put it right and choose another folder"
        )


def _by_agent(trajectories: Iterable[Trajectory]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for trajectory in trajectories:
        found.setdefault(label(trajectory), Counter())[trajectory.outcome or "unknown"] += 1
    return found


def label(trajectory: Trajectory) -> str:
    """A short name of who acted; see ``label_of``."""
    return label_of(trajectory.agent) if trajectory.agent else "unknown"


def label_of(agent: AgentRef) -> str:
    """A short name of an agent: its name and those of its parameters that are not its defaults."""
    usual = defaults(agent.name)
    told = {k: v for k, v in sorted(agent.params.items()) if k not in usual or usual[k] != v}
    params = ",".join(f"{k}={v}" for k, v in told.items())
    return f"{agent.name}({params})" if params else agent.name
