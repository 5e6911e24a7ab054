"""Consistency: the same agents, tasks and seeds in reality (Real), in the world model (WM), and the world model's
actions replayed in reality (W2R); CR = W2R / Real (Word2World, arXiv 2512.18832, section 3).

Every episode ends as success, failure, truncated or error, or in a way that its environment cannot judge (unknown);
errors and unknown ends count in the denominators as no success, and are counted beside the rates.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from worldloom.agents import AgentSpec
from worldloom.collect import imagine, job_key, key, label, play
from worldloom.envs import EnvSpec
from worldloom.envs.versions import version_of
from worldloom.envs.worker import Job
from worldloom.errors import ConfigError
from worldloom.evaluate.agreement import agreement, outcome, rank_agreement, wins
from worldloom.evaluate.divergence import divergence_metrics
from worldloom.evaluate.stats import quotient, rate
from worldloom.rollout import broken, rollout
from worldloom.trajectory import AgentRef, EnvRef, Failure, TaskRef, Trajectory, read
from worldloom.world import Start, WorldModelEnv, starts_of

Record = dict[str, Any]
REAL, WM, W2R = "real.jsonl", "wm.jsonl", "w2r.jsonl"


class Realities(NamedTuple):
    """The real episodes of a comparison: who plays what where, and what came of it, by ``collect.key``."""

    env: EnvSpec
    jobs: Sequence[Job]
    episodes: Mapping[Any, Trajectory]
    workers: int

    @property
    def starts(self) -> dict[str, Start]:
        """How the tasks begin."""
        return starts_of(self.episodes[job_key(job)] for job in self.jobs)


def play_real(out: Path, env: EnvSpec, jobs: Sequence[Job], workers: int = 2) -> Realities:
    """Play what is missing in ``out/real.jsonl``.

    Raises:
        ConfigError: ``out`` holds episodes of another version of the engine.
        EnvError: the real environment cannot be started.
    """
    play(out / REAL, env, jobs, workers)
    return Realities(env, jobs, {key(t): t for t in read(out / REAL)}, workers)


def run_imagined(out: Path, lm: Any, realities: Realities) -> list[Record]:
    """Imagine every episode and replay it, and give one record for each.

    ``out`` gets ``wm.jsonl`` and ``w2r.jsonl`` (trajectories); stopped at any moment, it goes on where it was.
    """
    starts = realities.starts

    def play_one(job: Job) -> Trajectory:
        world, agent = WorldModelEnv(lm, starts, realities.env.name), job.agent.build()
        return rollout(world, agent, job.task_id, seed=job.seed, split=job.split, max_steps=job.max_steps)

    imagine(out / WM, realities.jobs, play_one)
    return triples(realities, out / WM, out / W2R)


def triples(realities: Realities, wm: Path, w2r: Path) -> list[Record]:
    """Replay what was imagined in ``wm``, as far as ``w2r`` lacks it; one record for each job."""
    real, imagined = realities.episodes, {key(t): t for t in read(wm)}
    replays = {job_key(job): replay_job(job, imagined[job_key(job)]) for job in realities.jobs}
    jobs = [replay for replay in replays.values() if replay.max_steps]
    play(w2r, realities.env, jobs, realities.workers, like=real.values())
    replayed = {key(t): t for t in read(w2r)}
    return [record(real[name], imagined[name], _replayed(replay, replayed)) for name, replay in replays.items()]


def replay_job(job: Job, imagined: Trajectory) -> Job:
    """Take an imagined episode's actions in the real environment."""
    actions = imagined.actions
    return Job(job.task_id, AgentSpec("replay", {"actions": actions}), job.seed, job.split, len(actions))


def _replayed(job: Job, found: dict[Any, Trajectory]) -> Trajectory:
    if job.max_steps:
        return found[job_key(job)]
    nothing = Failure(kind="NoActions", message="the imagined episode has no action to replay")
    return broken(EnvRef(name="none"), TaskRef(id=job.task_id, seed=job.seed), AgentRef(name="replay"), nothing)


def record(real: Trajectory, wm: Trajectory, w2r: Trajectory) -> Record:
    """One record of ``records.jsonl``."""
    return {
        "kind": "consistency",
        "key": "|".join(map(str, key(real))),
        "task_id": real.task.id,
        "agent": label(real),
        "seed": real.task.seed,
        "real": real.model_dump(by_alias=True, exclude_none=True),
        "wm": wm.model_dump(by_alias=True, exclude_none=True),
        "w2r": w2r.model_dump(by_alias=True, exclude_none=True),
    }


def consistency_metrics(records: Sequence[Record]) -> Record:
    """The ``consistency`` part of ``metrics.json``.

    Raises:
        ConfigError: agents were not on the same tasks, so that their rates could not be compared; or reality was
            played in two versions of its engine.
    """
    version_of((EnvRef(**r[name]["env"]) for r in records for name in ("real", "w2r")), "this evaluation")
    ids = same_tasks(records)
    agents = sorted({r["agent"] for r in records})
    return {
        "n_tasks": len(ids),
        "same_task_ids": True,
        "agents": {a: rates([r for r in records if r["agent"] == a]) for a in agents},
        "overall": rates(records),
        "rank_agreement": rank_agreement(records),
        "divergence": divergence_metrics(records),
    }


def same_tasks(records: Sequence[Record]) -> list[str]:
    """The ids of the tasks that every agent played, each once.

    Raises:
        ConfigError: agents were not on the same tasks, each as often.
    """
    ids: dict[str, list[str]] = {}
    for record in records:
        ids.setdefault(record["agent"], []).append(record["task_id"])
    if len({tuple(sorted(i)) for i in ids.values()}) > 1:
        raise ConfigError("the agents did not play the same tasks; a consistency ratio over them would mean nothing")
    return sorted({*next(iter(ids.values()), [])})


def rates(records: Sequence[Record]) -> Record:
    """Rates and ratios of some records, resampled by task (all agents of a task together)."""
    tasks = sorted({r["task_id"] for r in records})
    won = {name: wins(records, tasks, [name]) for name in ("real", "wm", "w2r")}
    played = [float(sum(r["task_id"] == task for r in records)) for task in tasks]
    both = wins(records, tasks, ["real", "w2r"])
    found: Record = {"n": len(records)} | {name: rate(won[name], played) for name in won}
    ratios = {"cr": quotient(won["w2r"], won["real"], played), "cr_paired": quotient(both, won["real"])}
    found |= {name: value for name, value in ratios.items() if value is not None}
    found["agreement"] = {name: agreement(records, name) for name in ("wm", "w2r")}
    for told, ending in (("errors", "error"), ("unknown", "unknown")):
        found[told] = {name: sum(outcome(r[name]) == ending for r in records) for name in ("real", "wm", "w2r")}
    return found
