"""One evaluation: a folder with config, append-only records, ``metrics.json`` and ``report.html``."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from worldloom.agents import AgentSpec
from worldloom.collect import choose_tasks, key
from worldloom.envs import EnvSpec
from worldloom.errors import ConfigError, ContextOverflow
from worldloom.evaluate.consistency import consistency_metrics, run_consistency
from worldloom.evaluate.one_step import one_step_metrics, score_episode
from worldloom.evaluate.report import write_report
from worldloom.progress import progress
from worldloom.rollout import MAX_STEPS
from worldloom.runs import Log, now, open_run, provenance, read_json, read_records, write_json
from worldloom.trajectory import Trajectory, read

Record = dict[str, Any]


def evaluate(
    out: Path,
    model: str,
    *,
    name: str | None = None,
    data: Path | None = None,
    episodes: int | None = None,
    env: EnvSpec | None = None,
    split: str | None = None,
    tasks: int = 12,
    agents: Sequence[AgentSpec] = (),
    seed: int = 0,
    max_steps: int = MAX_STEPS,
    workers: int = 2,
) -> Record:
    """Measure a world model: one-step fidelity on ``data``, consistency on ``tasks`` of ``env`` if agents are given.

    Started again with the same settings it goes on where it was stopped.

    Args:
        model: a run of ``worldloom train``, a model folder, or a hub id.
        data: real episodes (a trajectories file); the first ``episodes`` of them in the order of their keys.
        env, split, tasks, agents: for consistency; tasks are drawn by ``seed``.

    Returns:
        What was written to ``out/metrics.json``.

    Raises:
        ConfigError: nothing to measure, or ``out`` holds a run with other settings.
        ModelError: the model cannot be loaded.
    """
    from worldloom.lm.hf import resolve
    from worldloom.lm.session import LocalLM

    if data is None and not agents:
        raise ConfigError("nothing to evaluate: give real episodes (data), or an environment and agents, or both")
    if agents and (env is None or split is None):
        raise ConfigError("consistency needs an environment and a split beside the agents")
    config = {
        "stage": "evaluate", "model": str(model), "data": data.as_posix() if data else None, "episodes": episodes,
        "env": env.name if env else None, "split": split, "tasks": tasks if agents else None, "seed": seed,
        "options": {k: v for k, v in env.options.items() if k != "data"} if env else None,
        "agents": [{"name": a.name, "params": dict(a.params)} for a in agents], "max_steps": max_steps,
    }  # fmt: skip
    real = _chosen(data, episodes) if data else []
    resolve(model)
    open_run(out, config)
    started, clock = now(), time.monotonic()
    lm = LocalLM(model)
    metrics: Record = {
        "name": name or out.name,
        "environment": env.name if env else _env_of(real),
        "split": split or _split_of(real),
    }
    metrics["model"] = str(model)
    trained = Path(model) / "train.json"
    if trained.exists():
        metrics["train"] = read_json(trained)
    records = score_all(out / "one_step.jsonl", lm, real)
    if records:
        metrics["one_step"] = one_step_metrics(records, real)
    if agents and env and split:
        chosen = choose_tasks(env, split, tasks, seed)
        consistency = run_consistency(out, env, lm, agents, split, chosen, seed, max_steps, workers)
        metrics["consistency"] = consistency_metrics(consistency)
        records = records + consistency
    metrics["provenance"] = provenance(started, time.monotonic() - clock)
    write_json(out / "metrics.json", metrics)
    write_report(out / "report.html", title=metrics["name"], metrics=metrics, records=records, loss_curve=_curve(model))
    return metrics


def score_all(path: Path, lm: Any, real: Sequence[Trajectory]) -> list[Record]:
    """One record for each real episode, scoring those that the file lacks."""
    import json

    keys = ["|".join(map(str, key(t))) for t in real]
    done = {record["key"] for record in read_records(path)}
    with Log(path) as log, progress("score", len(real), "episodes", len(done)) as advance:
        for name, trajectory in zip(keys, real, strict=True):
            if name not in done:
                log.append(json.dumps(_scored(lm, trajectory, name), ensure_ascii=False))
                advance(1, "")
    found = {record["key"]: record for record in read_records(path)}
    return [found[name] for name in keys]


def _scored(lm: Any, trajectory: Trajectory, name: str) -> Record:
    try:
        return score_episode(lm, trajectory, name)
    except ContextOverflow as error:
        return {"kind": "one_step", "key": name, "task_id": trajectory.task.id, "agent": "", "steps": [],
                "left_out": len(trajectory.steps), "error": str(error)}  # fmt: skip


def _chosen(data: Path, episodes: int | None) -> list[Trajectory]:
    usable = sorted({key(t): t for t in read(data) if t.steps}.items(), key=lambda item: str(item[0]))
    if not usable:
        raise ConfigError(f"{data} holds no episode with a step")
    return [trajectory for _, trajectory in usable[:episodes]]


def _env_of(real: Sequence[Trajectory]) -> str:
    return real[0].env.name


def _split_of(real: Sequence[Trajectory]) -> str | None:
    return real[0].task.split


def _curve(model: str) -> list[tuple[int, float]]:
    path = Path(model) / "loss.json"
    return [(step, loss) for step, loss in read_json(path)] if path.exists() else []
