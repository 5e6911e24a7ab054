"""Arms of a comparison: agents on the same real tasks with the same seeds, whatever helps them."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from worldloom.agents import Agent, AgentSpec
from worldloom.collect import label_of
from worldloom.envs import Environment, EnvSpec
from worldloom.envs.remote import RemoteEnvs
from worldloom.errors import ConfigError, ModelError
from worldloom.evaluate.stats import difference, rate
from worldloom.practice.plan import Watched
from worldloom.progress import progress
from worldloom.rollout import rollout
from worldloom.runs import Log, read_records
from worldloom.trajectory import Trajectory
from worldloom.world import Start

Record = dict[str, Any]


class Arm(NamedTuple):
    """One way to play: ``agent`` makes an agent for one episode, told how its task begins and where it will play."""

    name: str
    agent: Callable[[Mapping[str, Start], Watched], Agent]


class Tasks(NamedTuple):
    """What all arms play."""

    env: EnvSpec
    split: str
    ids: Sequence[str]
    seed: int
    max_steps: int

    def record(self) -> Record:
        """As a run's settings keep it: without the folder of an environment's data, which differs between machines."""
        options = {key: value for key, value in self.env.options.items() if key != "data"}
        settings = {"split": self.split, "tasks": len(self.ids), "seed": self.seed, "max_steps": self.max_steps}
        return {"env": self.env.name, "options": options, **settings}


def labels(agents: Sequence[AgentSpec]) -> dict[str, AgentSpec]:
    """Agents by their short names.

    Raises:
        ConfigError: there is none, or one is there twice.
    """
    named = [(label_of(agent.build().ref), agent) for agent in agents]
    if not named or len(dict(named)) < len(named):
        raise ConfigError(f"give one or more agents, each once; not {', '.join(name for name, _ in named) or 'none'}")
    return dict(named)


After = Callable[[Environment, Trajectory], Record]
"""What else is to be recorded of a played episode; the environment may be used for it."""


def play_arms(
    path: Path, arms: Sequence[Arm], tasks: Tasks, workers: int, after: After = lambda env, played: {}
) -> list[Record]:
    """Play what ``path`` lacks and append it, one record an episode: ``key``, ``arm``, ``task_id``, the ``episode``.

    Stopped at any moment it goes on where it was.

    Raises:
        ModelError: the model could not be asked; that is no episode's fault, so it is not recorded.
        EnvError: the real environment cannot be started.
    """
    named = {f"{arm.name}|{task_id}": (arm, task_id) for task_id in tasks.ids for arm in arms}
    done = {record["key"] for record in read_records(path)}
    missing = [name for name in named if name not in done]
    with ExitStack() as stack:
        log = stack.enter_context(Log(path))
        envs = stack.enter_context(RemoteEnvs(tasks.env))
        threads = ThreadPoolExecutor(workers)
        stack.callback(threads.shutdown, cancel_futures=True)
        advance = stack.enter_context(progress("play", len(named), "episodes", len(named) - len(missing)))

        def play(name: str) -> Record:
            record = _one(envs, *named[name], tasks, after)
            log.append(json.dumps(record, ensure_ascii=False))  # here, so that what ends after a stop is kept, too
            return record

        for played in as_completed([threads.submit(play, name) for name in missing]):
            record = played.result()
            advance(1, f"{record['arm']}: {outcome_of(record)}")
    found = {record["key"]: record for record in read_records(path)}
    return [found[name] for name in named]


def _one(envs: RemoteEnvs, arm: Arm, task_id: str, tasks: Tasks, after: After) -> Record:
    with envs.one() as env:
        watched = Watched(env, tasks.split)
        agent = arm.agent(watched.starts, watched)
        played = rollout(watched, agent, task_id, seed=tasks.seed, split=tasks.split, max_steps=tasks.max_steps)
        if played.error and played.error.kind == ModelError.__name__:
            raise ModelError(played.error.message)
        more = {} if played.error else after(env, played)
        if played.error:
            env.close()  # an engine that broke is not used again
    return {
        "key": f"{arm.name}|{task_id}", "arm": arm.name, "task_id": task_id,
        "episode": played.model_dump(by_alias=True), **more,
    }  # fmt: skip


def outcome_of(record: Record) -> str:
    """How a recorded episode ended."""
    return Trajectory.model_validate(record["episode"]).outcome or "unknown"


def by_arm(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records of each arm, in the order of its tasks."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record["arm"], []).append(record)
    return {name: sorted(of, key=lambda record: str(record["task_id"])) for name, of in found.items()}


def wins(records: Sequence[Record]) -> list[float]:
    """1 for each success, 0 for all else, errors included."""
    return [float(outcome_of(record) == "success") for record in records]


def share(hits: Sequence[float]) -> Record | None:
    """How many of these (1 or 0 each) are hits, with an interval that has a width even where all are alike; None if
    there are none."""
    return rate(hits, [1.0] * len(hits))


def apart(left: Sequence[float], right: Sequence[float]) -> Record | None:
    """The difference of two shares of the same rows, with the interval of a paired bootstrap; see ``share``."""
    return difference(left, right, [1.0] * len(left))


def rates(records: Sequence[Record], imagined: int) -> Record:
    """What every arm reports: ``real_success`` with its interval over tasks, and its costs.

    Args:
        records: of one arm.
        imagined: how many steps were imagined for it.
    """
    return {
        "real_success": share(wins(records)),
        "n_tasks": len(records),
        "real_steps": sum(len(record["episode"]["steps"]) for record in records),
        "imagined_steps": imagined,
        "errors": sum(outcome_of(record) == "error" for record in records),
    }


def gain(with_it: Sequence[Record], without: Sequence[Record]) -> Record | None:
    """The difference in real success between two arms on the same tasks, with the interval of a paired bootstrap."""
    return apart(wins(with_it), wins(without))


def notes(records: Sequence[Record], name: str) -> Iterator[Record]:
    """What an agent noted of its episodes (``verdicts``, ``plans``), each with its task."""
    for record in records:
        for note in (record["episode"].get("agent") or {}).get(name, ()):
            yield {**note, "task_id": record["task_id"]}
