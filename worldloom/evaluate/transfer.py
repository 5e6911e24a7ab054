"""Transfer: what choosing the best of several agents inside the world model gains in the real environment.

Agents are chosen on one half of the tasks and measured on the other, and the other way round, over many halvings: an
agent that was lucky on the tasks that it was chosen by gains nothing by that. So the figures are those of a choice by
half as many tasks as there are, and the choice in reality, which the model's is compared with, is made by the same
tasks and measured on the same others.

Intervals resample tasks with all that was played on them; each resample chooses anew, and a task that is drawn twice
stays in its half, so that no task is ever on both sides.
"""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from worldloom.errors import ConfigError, DataError
from worldloom.evaluate.agreement import outcome
from worldloom.evaluate.consistency import same_tasks
from worldloom.evaluate.stats import interval_of_sums, widened
from worldloom.origin import begin, provenance
from worldloom.runs import read_json, read_records

Record = dict[str, Any]
HALVINGS = 20
LEAST_AGENTS, LEAST_TASKS = 2, 4
PUBLISHED_FROM = 3  # agents, for an evaluation to tell it by itself
WORLDS = ("wm", "real")
ABOUT = ("name", "environment", "environment_version", "split", "model", "train")


def transfer_metrics(records: Sequence[Record]) -> Record:
    """The ``transfer`` part of ``metrics.json``, from the records of kind ``consistency``.

    Returns:
        ``n_tasks``; ``agents`` (name -> success in the model ``wm`` and in reality ``real``, and ``chosen_in_model``,
        ``chosen_in_reality``: the share of choices that fell on it); ``success``: in reality, of the agent
        ``chosen_in_model``, ``chosen_in_reality`` and ``at_random``; ``gain_over_random`` and ``regret_to_best``,
        their differences.

    Raises:
        ConfigError: fewer than two agents or four tasks, or the agents played different tasks.
    """
    wins, agents = won(records)
    if len(agents) < LEAST_AGENTS or len(wins) < LEAST_TASKS:
        raise ConfigError(
            f"{len(agents)} agents on {len(wins)} tasks: a choice that is made on some tasks and measured on others "
            f"needs {LEAST_AGENTS} agents and {LEAST_TASKS} tasks; evaluate with more"
        )
    table = halved(wins)
    told = {
        name: widened(
            interval_of_sums(partial(how, n=len(wins), k=len(agents)), [table]), len(wins), LEAST.get(name, 0.0)
        )
        for name, how in MEASURES.items()
    }
    chosen = {world: _choices(table.sum(0), len(agents), world) for world in WORLDS}
    return {
        "n_tasks": len(wins),
        "agents": {
            agent: {
                "real": float(wins[:, 1, place].mean()), "wm": float(wins[:, 0, place].mean()),
                "chosen_in_model": float(chosen["wm"][place]), "chosen_in_reality": float(chosen["real"][place]),
            }
            for place, agent in enumerate(agents)
        },
        "success": {name: told[name] for name in ("chosen_in_model", "chosen_in_reality", "at_random")},
        "gain_over_random": told["gain_over_random"],
        "regret_to_best": told["regret_to_best"],
    }  # fmt: skip


def can_tell(records: Sequence[Record]) -> bool:
    """Whether an evaluation of these records says something about transfer by itself."""
    agents, tasks = {r["agent"] for r in records}, {r["task_id"] for r in records}
    return len(agents) >= PUBLISHED_FROM and len(tasks) >= LEAST_TASKS


def won(records: Sequence[Record]) -> tuple[Any, list[str]]:
    """Successes, shape (tasks, 2, agents), the model's before reality's, and the agents' names; the mean over seeds
    where a task was played with several.

    Raises:
        ConfigError: the agents played different tasks.
    """
    same_tasks(records)
    agents = sorted({r["agent"] for r in records})
    tasks = {task: place for place, task in enumerate(sorted({r["task_id"] for r in records}))}
    wins, played = np.zeros((len(tasks), len(WORLDS), len(agents))), np.zeros((len(tasks), 1, len(agents)))
    for record in records:
        task, agent = tasks[record["task_id"]], agents.index(record["agent"])
        played[task, 0, agent] += 1
        wins[task, :, agent] += [outcome(record[world]) == "success" for world in WORLDS]
    return wins / played, agents


def halved(wins: Any, seed: int = 0) -> Any:
    """Successes put into halves of the tasks: a row a task, the sum of whose columns, shaped (halvings, half, world,
    agent), are the successes in each half of each halving."""
    draw, tasks = np.random.default_rng(seed), len(wins)
    halves = np.array([draw.permutation(np.arange(tasks) % 2) for _ in range(HALVINGS)]).T
    here = halves[:, :, None] == np.arange(2)  # shape (tasks, halvings, half)
    return (here[..., None, None] * wins[:, None, None]).reshape(tasks, -1)


def shares(wins: Any) -> Any:
    """How often each agent is chosen by its successes: the best one, each of those that tie with the same chance."""
    best = wins == wins.max(-1, keepdims=True)
    return best / best.sum(-1, keepdims=True)


def _choices(sums: Any, k: int, world: str) -> Any:
    return shares(sums.reshape(HALVINGS, 2, len(WORLDS), k)[:, :, WORLDS.index(world)]).mean((0, 1))


def _success(sums: Any, n: int, k: int, by: str | None) -> Any:
    """Real success on one half of the agent chosen on the other by ``wm`` or ``real`` (None: at random)."""
    shaped = sums.reshape(*sums.shape[:-1], HALVINGS, 2, len(WORLDS), k)
    measured = shaped[..., ::-1, WORLDS.index("real"), :]
    choice = shares(shaped[..., WORLDS.index(by), :]) if by else np.full(k, 1 / k)
    return (choice * measured).sum((-1, -2)).mean(-1) / n


def _difference(sums: Any, n: int, k: int, of: str | None, over: str | None) -> Any:
    return _success(sums, n, k, of) - _success(sums, n, k, over)


MEASURES = {
    "chosen_in_model": partial(_success, by="wm"),
    "chosen_in_reality": partial(_success, by="real"),
    "at_random": partial(_success, by=None),
    "gain_over_random": partial(_difference, of="wm", over=None),
    "regret_to_best": partial(_difference, of="real", over="wm"),
}
LEAST = {"gain_over_random": -1.0, "regret_to_best": -1.0}  # of what can be; of the others 0


def transfer_of(run: Path) -> Record:
    """The transfer of an evaluation, from its records and its ``metrics.json``; nothing is written.

    Returns:
        What was measured (name, environment, split, model, training), ``transfer``, and ``provenance``.

    Raises:
        DataError: the folder holds no finished evaluation, or none of agents.
        ConfigError: see ``transfer_metrics``.
    """
    begun, clock = begin(), time.monotonic()
    before = read_json(run / "metrics.json")
    records = [record for record in read_records(run / "records.jsonl") if record["kind"] == "consistency"]
    if not records:
        raise DataError(
            "there is no record of an agent; evaluate with --env, --split and --agent", run / "records.jsonl"
        )
    kept = {name: before[name] for name in ABOUT if name in before}
    return {**kept, "transfer": transfer_metrics(records), "provenance": provenance(begun, time.monotonic() - clock)}
