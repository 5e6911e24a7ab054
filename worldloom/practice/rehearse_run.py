"""``worldloom rehearse``: an agent in a world model, controls beside it, and a verdict against limits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from worldloom.agents import AgentSpec
from worldloom.collect import imagine, job_key, key, label_of, play
from worldloom.envs import EnvSpec
from worldloom.envs.worker import Job
from worldloom.errors import ConfigError
from worldloom.evaluate.cells import RATE_HEAD, facts, interval, number, rate_row, value
from worldloom.evaluate.consistency import replay_job
from worldloom.evaluate.page import Headline, Section, Table, write_page
from worldloom.evaluate.plots import Rate
from worldloom.lineage import files_of, training_of, weights_of
from worldloom.lm.base import open_lm
from worldloom.naming import UNKNOWN
from worldloom.origin import Origin
from worldloom.practice.limits import Limits, Verdict, judged
from worldloom.practice.rehearse import Record, Rehearsed, measured, riskiest, seen_kinds, swap
from worldloom.rollout import MAX_STEPS, rollout
from worldloom.runs import fingerprint, open_run, write_json
from worldloom.trajectory import Trajectory, read
from worldloom.world import Start, WorldModelEnv, starts_of

AGENT, IDLE, SWAPPED, REPLAYED = "agent.jsonl", "idle.jsonl", "swapped.jsonl", "replayed.jsonl"
REPORT = "rehearsal.json"


@dataclass(frozen=True)
class World:
    """A world to rehearse in: a model (see ``worldloom.lm.base.open_lm``), and how its tasks begin.

    Args:
        data: episodes whose beginnings are taken; the first ``tasks`` different ones in the order of their ids.
        seen: episodes that the model was trained on, to tell what it was never shown. If not given, those that its
            training noted, where they still are; else what it was shown is not known.
        env: the real environment in which imagined successes are replayed, where there is one.
    """

    model: str
    data: Path
    seen: Path | None = None
    env: EnvSpec | None = None


def rehearse(
    out: Path,
    agent: AgentSpec,
    world: World,
    limits: Limits,
    *,
    tasks: int | None = None,
    seed: int = 0,
    max_steps: int = MAX_STEPS,
    workers: int = 2,
    at_once: int = 8,
    name: str | None = None,
) -> Record:
    """Rehearse, and write ``out/rehearsal.json`` and ``out/report.html``. Started again it goes on.

    Returns:
        What was written; ``passed`` says whether every limit is met.

    Raises:
        ConfigError: ``data`` has no beginning of a task, or ``out`` holds a run with other settings.
        ModelError: the world, or an agent's model, cannot be loaded or asked.
    """
    starts = _starts(world.data, tasks)
    open_run(out, {
        "stage": "rehearse", "agent": {"name": agent.name, "params": dict(agent.params)}, "model": world.model,
        "data": world.data.as_posix(), "env": world.env.name if world.env else None, "options": _options(world),
        "tasks": tasks, "seed": seed, "max_steps": max_steps,
        "fingerprint": fingerprint(files_of(world.model, world.data)), **weights_of([agent]),
    })  # fmt: skip
    origin = Origin(out)
    found = _played(out, agent, world, starts, _Plays(seed, max_steps, workers, at_once))
    seen = _seen(world)
    figures = measured(found, seen, limits.unsure_below)
    verdicts = judged(limits, _values(figures))
    report = {
        "name": name or out.name, "agent": label_of(agent.build().ref), "world": world.model, "n_tasks": len(starts),
        "passed": all(verdict.met for verdict in verdicts), "limits": [verdict._asdict() for verdict in verdicts],
        "measured": figures, "riskiest": riskiest(found.episodes, seen, limits.unsure_below),
        "provenance": origin.told(),
    }  # fmt: skip
    write_json(out / REPORT, report)
    _write_page(out / "report.html", report)
    return report


def _options(world: World) -> Record:
    """Of the real environment, without the folder of its data, which differs between machines."""
    return {key: value for key, value in world.env.options.items() if key != "data"} if world.env else {}


def _starts(data: Path, tasks: int | None) -> dict[str, Start]:
    starts = dict(sorted(starts_of(read(data)).items())[:tasks])
    if len(starts) < (tasks or 1):
        raise ConfigError(f"{data} has the beginnings of {len(starts)} tasks, {tasks or 1} are needed")
    return starts


class _Plays(NamedTuple):
    """How episodes are played."""

    seed: int
    max_steps: int
    workers: int
    at_once: int


def _played(out: Path, agent: AgentSpec, world: World, starts: Mapping[str, Start], how: _Plays) -> Rehearsed:
    lm, env = open_lm(world.model), _env_name(world, starts)

    def play_one(job: Job) -> Trajectory:
        played = WorldModelEnv(lm, starts, env), job.agent.build()
        return rollout(*played, job.task_id, seed=job.seed, split=job.split, max_steps=job.max_steps)

    def all_of(file: str, jobs: Sequence[Job]) -> list[Trajectory]:
        imagine(out / file, jobs, play_one, how.at_once)
        found = {key(t): t for t in read(out / file)}
        return [found[job_key(job)] for job in jobs]

    def job(task: str, spec: AgentSpec, steps: int = how.max_steps) -> Job:
        return Job(task, spec, how.seed, starts[task].split, steps)

    episodes = all_of(AGENT, [job(task, agent) for task in starts])
    idle = all_of(IDLE, [job(task, AgentSpec("idle")) for task in starts])
    others = [job(task, AgentSpec("replay", {"actions": of}), len(of)) for task, of in swap(episodes).items() if of]
    return Rehearsed(episodes, idle, all_of(SWAPPED, others), _replayed(out, world, episodes, how.workers))


def _env_name(world: World, starts: Mapping[str, Start]) -> str:
    """What the world is said to imagine; only a model of several environments needs to know."""
    if world.env is None:
        return next((start.env for start in starts.values() if start.env), UNKNOWN)
    with world.env.build() as real:
        return real.name


def _replayed(out: Path, world: World, episodes: Sequence[Trajectory], workers: int) -> dict[str, Trajectory] | None:
    """The imagined successes in the real environment, by task."""
    if world.env is None:
        return None
    jobs = {
        t.task.id: replay_job(Job(t.task.id, AgentSpec("replay", {"actions": []}), t.task.seed or 0, t.task.split), t)
        for t in episodes
        if t.outcome == "success"
    }
    play(out / REPLAYED, world.env, jobs.values(), workers)
    found = {key(t): t for t in read(out / REPLAYED)}
    return {task: found[job_key(job)] for task, job in jobs.items()}


def _seen(world: World) -> set[str] | None:
    """The kinds of actions that the world was shown; None if that is not known."""
    noted = [Path(path) for path in (training_of(world.model) or {}).get("data", ())]
    files = [world.seen] if world.seen else noted
    if not files or not all(file.is_file() for file in files):
        return None
    return seen_kinds(t for file in files for t in read(file))


def _values(figures: Record) -> dict[str, float | None]:
    values: dict[str, float | None] = {name: figure["value"] for name, figure in figures.items()}
    return values | {"success_low": figures["success"]["low"] if "success" in figures else None}


def _write_page(path: Path, report: Record) -> None:
    success = Rate(**report["measured"]["success"])
    verdict = Headline("rehearsal", "passed" if report["passed"] else "failed", "", f"{report['n_tasks']} tasks")
    rated = Headline("imagined success", f"{value(success)} %", interval(success), f"n = {success.n}")
    write_page(
        path, title=report["name"], subtitle=f"{report['agent']} in {report['world']}", headlines=[verdict, rated],
        sections=list(_sections(report)),
    )  # fmt: skip


def _sections(report: Record) -> Iterator[Section]:
    limits = [Verdict(**verdict) for verdict in report["limits"]]
    rows = [[v.limit.replace("_", " "), number(v.bound), _measured(v), "met" if v.met else "NOT MET"] for v in limits]
    yield Section("Limits", tables=(Table("limits", ["limit", "bound", "measured", "verdict"], rows),))
    rates = [rate_row(name.replace("_", " "), Rate(**rate)) for name, rate in report["measured"].items()]
    note = "Idle and swapped are controls: what they win, the world gives away. Unsure, new: where not to trust it."
    yield Section("Measured", note, tables=(Table("rates", RATE_HEAD, rates),))
    head = ["action", "steps", "failures", "in_lost", "unsure", "new", "example"]
    risks = [[_cell(row.get(column)) for column in head] for row in report["riskiest"]]
    yield Section("Riskiest actions", tables=(Table("actions", [name.replace("_", " ") for name in head], risks),))
    yield Section("Where this is from", tables=(facts("provenance", report["provenance"]),))


def _measured(verdict: Verdict) -> str:
    return "not measured" if verdict.measured is None else f"{verdict.measured:.3f}"


def _cell(found: Any) -> str:
    return ("yes" if found else "no") if isinstance(found, bool) else number(found)


def told(report: Record) -> str:
    """The verdict in a few lines of text."""
    success = Rate(**report["measured"]["success"])
    rows = [f"imagined success {value(success)} % {interval(success)} on {report['n_tasks']} tasks"]
    for verdict in (Verdict(**found) for found in report["limits"]):
        rows.append(f"{'ok  ' if verdict.met else 'FAIL'} {verdict.limit} {verdict.bound:g}: {_measured(verdict)}")
    risky = [row["action"] for row in report["riskiest"][:5]]
    rows += [f"riskiest actions: {'; '.join(risky) or '-'}", "passed" if report["passed"] else "failed"]
    return "\n".join(rows)
