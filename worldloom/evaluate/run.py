"""One evaluation: a folder with config, append-only records, ``metrics.json`` and ``report.html``."""

import json
import logging
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

from worldloom.agents import AgentSpec
from worldloom.anchoring import Anchor
from worldloom.collect import choose_tasks, job_key, key, label, plan
from worldloom.envs import EnvSpec
from worldloom.envs.versions import check_version, refs_in, refs_of, version_of
from worldloom.envs.worker import Job
from worldloom.errors import ConfigError, ProtocolError
from worldloom.evaluate.anchoring import check_anchors, run_anchored
from worldloom.evaluate.budget import Budget
from worldloom.evaluate.confidence import TARGET
from worldloom.evaluate.consistency import REAL, W2R, Realities, play_real, run_imagined
from worldloom.evaluate.metrics import RECORDS, measured, publish
from worldloom.evaluate.one_step import answer_episode, recorded, score_episodes, verify_episodes
from worldloom.evaluate.rollouts import KIND, name_of, score_rollouts, steady_kinds
from worldloom.lineage import Task, files_of, overlaps, tasks_of, training_of, weights_of
from worldloom.origin import Origin
from worldloom.progress import progress
from worldloom.rollout import MAX_STEPS
from worldloom.rollouts import AT_ONCE
from worldloom.runs import Log, fingerprint, open_run, read_records
from worldloom.trajectory import EnvRef, Trajectory, read

logger = logging.getLogger(__name__)

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
    anchors: Sequence[Anchor] = (),
    risk: float = TARGET,
    exact_only: bool = False,
    rollouts: bool = False,
    logs: Path | None = None,
    minutes: float | None = None,
) -> Record:
    """Measure a world model: one-step fidelity on ``data``, consistency on ``tasks`` of ``env`` if agents are given.

    Started again with the same settings it goes on where it was stopped.

    Args:
        model: a run of ``worldloom train``, a model folder, a hub id, ``NAME@http://HOST:PORT/v1`` for a server, or
            ``retrieval:PATH`` for logged replies without a language model; see ``worldloom.lm.base.open_lm``.
        data: real episodes (a trajectories file); ``episodes`` of them drawn by ``seed``, all if None.
        env, split, tasks, agents: for consistency; tasks are drawn by ``seed``.
        anchors: consistency once more with each: the real environment answers some steps (``worldloom.anchoring``).
        exact_only: one-step fidelity tells whether steps are right and not what the model says instead, which is
            quicker; only exact match and what is made of it are measured then.
        risk: the share of steps that may be wrong among those accepted; see ``evaluate.confidence``.
        rollouts: also play the episodes of ``data`` again inside the model; see ``evaluate.rollouts``.
        logs: more logged episodes, which show what is answered alike when it is repeated (with ``rollouts``).
        minutes: for one-step fidelity and rollouts, half of them each: as many episodes as these allow, in an order
            drawn by ``seed``, some at a time, so that the last ones may take longer. None takes all.

    Returns:
        What was written to ``out/metrics.json``.

    Raises:
        ConfigError: nothing to measure, ``out`` holds a run with other settings, or episodes of another version of
            the engine would be compared with those of the one installed.
        ModelError: the model cannot be loaded.
    """
    from worldloom.lm.base import open_lm

    _check(data, env, split, agents, anchors)
    _check_free(data, rollouts, logs, minutes)
    if data is None and (exact_only or episodes is not None):
        raise ConfigError("exact_only and episodes are for real episodes: give their file (data), too")
    lm = open_lm(model)
    check_anchors(anchors, lm)
    if exact_only and not hasattr(lm, "engine"):
        raise ConfigError(f"{lm.name} cannot be asked for exact match only; leave exact_only out, or use a local model")
    real = _chosen(data, episodes, seed, shuffled=minutes is not None) if data else []
    more = read(logs) if logs else []
    version_of(refs_of(real), str(data))
    installed, jobs = None, []
    if agents and env and split:
        installed = _check_engine(env, real, data, out)
        jobs = _planned(agents, choose_tasks(env, split, tasks, seed), split, seed, max_steps)
    asked = {
        "model": str(model), "data": data.as_posix() if data else None, "episodes": episodes, "env": env,
        "split": split, "tasks": tasks if agents else None, "agents": agents, "seed": seed, "max_steps": max_steps,
        "anchors": [str(anchor) for anchor in anchors] or None,
        "fingerprint": fingerprint(files_of(model, data, logs)),
        "exact_only": exact_only or None,
        **weights_of(agents),
    }  # fmt: skip
    open_run(out, {"stage": "evaluate", **_plain(asked), **_free(rollouts, logs, minutes)})
    origin = Origin(out)
    played = {Task.of(installed.name, split, job.task_id) for job in jobs} if installed else ()
    known = overlaps(model, agents, [*tasks_of(real), *played])
    each = minutes / (1 + rollouts) if minutes is not None else None
    records = score_all(out / RECORDS, lm, real, Budget(out / RECORDS, "one_step", each), exact_only)
    if rollouts:
        steady = steady_kinds([*real, *more])
        records += score_rollouts(out / RECORDS, lm, real, steady, Budget(out / RECORDS, KIND, each))
    if env and jobs:
        records = [*records, *_played(out, lm, play_real(out, env, jobs, workers), anchors)]
    about = {"name": name or out.name, **_about(model, installed, split, real), **_prompt(lm), **known}
    return publish(out, {**about, **measured(records, risk), "provenance": origin.told()}, records)


def _check(
    data: Path | None,
    env: EnvSpec | None,
    split: str | None,
    agents: Sequence[AgentSpec],
    anchors: Sequence[Anchor],
) -> None:
    if data is None and not agents:
        raise ConfigError("nothing to evaluate: give real episodes (data), or an environment and agents, or both")
    if anchors and not agents:
        raise ConfigError("an anchor is for consistency: give agents, an environment and a split, too")
    if env is not None and not agents:
        raise ConfigError(f"environment {env.name!r} is for consistency: give agents, too, or leave it out")
    if agents and (env is None or split is None):
        raise ConfigError("consistency needs an environment and a split beside the agents")


def _check_free(data: Path | None, rollouts: bool, logs: Path | None, minutes: float | None) -> None:
    if data is None and (rollouts or minutes is not None):
        raise ConfigError("rollouts and minutes are for real episodes: give their file (data), too")
    if logs is not None and not rollouts:
        raise ConfigError("logs are for rollouts: ask for these, too, or leave the logs out")
    if minutes is not None and not 0 < minutes < math.inf:
        raise ConfigError(f"minutes is {minutes}; it must be above 0, or left out")


def _free(rollouts: bool, logs: Path | None, minutes: float | None) -> Record:
    """Settings that folders from before there were any do not have."""
    asked = {"rollouts": rollouts or None, "logs": logs.as_posix() if logs else None, "minutes": minutes}
    return {name: value for name, value in asked.items() if value is not None}


def _planned(agents: Sequence[AgentSpec], tasks: Sequence[str], split: str, seed: int, max_steps: int) -> list[Job]:
    """Every agent on every task; an agent that cannot be built, or is there twice, is refused."""
    jobs = plan(tasks, agents, split, len(agents), seed, max_steps)
    for (_, agent, params, _), count in Counter(job_key(job) for job in jobs).items():
        if count > 1:
            raise ConfigError(f"two of the agents are the same: {agent} with {params}; give each once")
    return jobs


def _played(out: Path, lm: Any, realities: Realities, anchors: Sequence[Anchor]) -> Sequence[Record]:
    """Records of imagining and replaying what was really played, without an anchor and with each."""
    played = run_imagined(out, lm, realities)
    for anchor in anchors:
        played += run_anchored(out, lm, anchor, realities)
    return keep_records(out / RECORDS, played)


def _plain(asked: Record) -> Record:
    """Settings as they are saved: without the folder of the games, which differs between machines."""
    env, agents = asked["env"], asked["agents"]
    return {
        **asked,
        "env": env.name if env else None,
        "options": {k: v for k, v in env.options.items() if k != "data"} if env else None,
        "agents": [{"name": agent.name, "params": dict(agent.params)} for agent in agents],
    }


def _check_engine(env: EnvSpec, real: Sequence[Trajectory], data: Path | None, out: Path) -> EnvRef:
    """The engine that consistency will be measured in, if the real episodes at hand are of its version."""
    with env.build() as world:
        installed = world.ref
    if real and (others := {t.env.name for t in real} - {installed.name}):
        raise ConfigError(f"{data} has episodes of {', '.join(sorted(others))}, but consistency is of {installed.name}")
    check_version(refs_of(real), installed, str(data))
    check_version(refs_in(out / REAL, out / W2R), installed, str(out))
    return installed


def _about(model: str, installed: EnvRef | None, split: str | None, real: Sequence[Trajectory]) -> Record:
    """What was measured: environment and its version, split, model, and how that was trained where it is known."""
    envs = [installed] if installed else [t.env for t in real]
    about = {
        "environment": ", ".join(sorted({env.name for env in envs})),
        "environment_version": ", ".join(sorted({env.version for env in envs if env.version})) or None,
        "split": split or real[0].task.split,
        "model": str(model),
    }
    trained = training_of(model)
    return {key: value for key, value in {**about, "train": trained}.items() if value is not None}


def _prompt(lm: Any) -> Record:
    """How a model was told what to do that was not trained for it, and from which chance on its episodes end where that
    was calibrated."""
    prompt, ending = getattr(lm, "prompt", None), getattr(getattr(lm, "engine", None), "ending", None)
    return {**({"prompt": asdict(prompt)} if prompt else {}), **({"ends_from": ending.least} if ending else {})}


def score_all(
    path: Path, lm: Any, real: Sequence[Trajectory], budget: Budget, exact_only: bool = False
) -> list[Record]:
    """One record for each real episode, scoring those that the file lacks; fewer where the budget ends first."""
    named = {name_of(t): t for t in real}
    done = {record["key"] for record in read_records(path) if record["kind"] == "one_step"} & set(named)
    missing = [name for name in named if name not in done]
    with Log(path) as log, progress("score", len(real), "episodes", len(done)) as advance:
        for part in budget.parts(missing, log):
            for records in _scored(lm, {name: named[name] for name in part}, exact_only):
                for record in records:
                    log.append(json.dumps(record, ensure_ascii=False))
                    advance(1, "")
    found = {record["key"]: record for record in read_records(path) if record["kind"] == "one_step"}
    return [found[name] for name in named if name in found]


def _scored(lm: Any, missing: Mapping[str, Trajectory], exact_only: bool) -> Iterator[list[Record]]:
    """Records of episodes, several at a time; first of those that cannot be shown to the model."""
    from worldloom.lm.score import batches
    from worldloom.lm.session import LocalLM

    if not isinstance(lm, LocalLM):
        yield from _generated(lm, missing)
        return
    fitting = []
    for name, trajectory in missing.items():
        try:
            fitting.append((trajectory, name, lm.encode(trajectory)))
        except ProtocolError as error:  # too long, or of a text that the protocol cannot say
            logger.warning("task %r is left out: %s", trajectory.task.id, error)
            yield [{"kind": "one_step", "key": name, "task_id": trajectory.task.id, "agent": label(trajectory),
                    "steps": [], "left_out": recorded(trajectory), "error": str(error)}]  # fmt: skip
    for batch in batches([len(encoded.input_ids) for _, _, encoded in fitting]):
        yield (verify_episodes if exact_only else score_episodes)(lm, [fitting[index] for index in batch])


def _generated(lm: Any, missing: Mapping[str, Trajectory]) -> Iterator[list[Record]]:
    threads = ThreadPoolExecutor(AT_ONCE)
    try:
        asked = [threads.submit(answer_episode, lm, trajectory, name) for name, trajectory in missing.items()]
        yield from ([future.result()] for future in as_completed(asked))
    finally:  # also where it is stopped: those that wait are not begun
        threads.shutdown(cancel_futures=True)


def keep_records(path: Path, records: Sequence[Record]) -> Sequence[Record]:
    """Append those records of imagined episodes that the file lacks; give all of them back."""
    done = {(record["kind"], record["key"]) for record in read_records(path)}  # an episode's kinds share its key
    with Log(path) as log:
        for record in records:
            if (record["kind"], record["key"]) not in done:
                log.append(json.dumps(record, ensure_ascii=False))
    return records


def _chosen(data: Path, episodes: int | None, seed: int, shuffled: bool = False) -> list[Trajectory]:
    """Episodes with a step, each once, in an order that does not depend on the file's; some of them if so asked."""
    usable = [t for _, t in sorted({str(key(t)): t for t in read(data) if t.steps}.items())]
    if not usable:
        raise ConfigError(f"{data} holds no episode with a step")
    if episodes is not None and episodes < 1:
        raise ConfigError(f"episodes is {episodes}; it must be 1 or more")
    if episodes is None or episodes >= len(usable):
        return random.Random(f"order {seed}").sample(usable, len(usable)) if shuffled else usable
    return random.Random(f"episodes {seed}").sample(usable, episodes)
