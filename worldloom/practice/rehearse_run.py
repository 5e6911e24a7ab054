"""``worldloom rehearse``: an agent in a world model, controls beside it, and a verdict against limits."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from worldloom.agents import AgentSpec
from worldloom.building.config import TEST
from worldloom.collect import imagine, job_key, key, label_of, play
from worldloom.envs import EnvSpec
from worldloom.envs.worker import Job
from worldloom.errors import ConfigError
from worldloom.evaluate.cells import RATE_HEAD, facts, interval, number, rate_row, value
from worldloom.evaluate.consistency import replay_job
from worldloom.evaluate.page import Headline, Section, Table, write_page
from worldloom.evaluate.plots import Rate
from worldloom.lineage import Task, files_of, overlaps, training_of, weights_of
from worldloom.lm.base import open_lm
from worldloom.naming import UNKNOWN
from worldloom.origin import Origin
from worldloom.package import STARTS, PackagedWorld, checked, is_package, load_world
from worldloom.practice.limits import Limits, Verdict, judged
from worldloom.practice.rehearse import Record, Rehearsed, measured, replays_of, riskiest, seen_kinds, swap
from worldloom.rollout import MAX_STEPS, rollout
from worldloom.runs import fingerprint, open_run, write_json
from worldloom.trajectory import Trajectory, read
from worldloom.world import Start, WorldModelEnv, starts_of

AGENT, IDLE, SWAPPED, REPLAYED = "agent.jsonl", "idle.jsonl", "swapped.jsonl", "replayed.jsonl"
REPORT = "rehearsal.json"


@dataclass(frozen=True)
class World:
    """A world to rehearse in: a model (see ``worldloom.lm.base.open_lm``) or a package (``worldloom build``), and how
    its tasks begin.

    Args:
        data: episodes whose beginnings are taken; the first ``tasks`` different ones in the order of their ids. A
            package has beginnings of its own: if none are given, those of the tasks that were held out from its
            training, or of all if none were.
        seen: episodes that the model was trained on, to tell what it was never shown. If not given, those that its
            training noted, where they still are; else what it was shown is not known.
        env: the real environment in which imagined successes are replayed, where there is one.
    """

    model: str
    data: Path | None = None
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
        What was written; ``passed`` says whether every limit is met. With a real environment, ``replays`` counts how
        many imagined successes it ``confirmed`` and ``refuted``, and of how many the replay is ``broken``, which says
        nothing of them. ``overlap`` says how many of the tasks the world was trained on, as far as that is known;
        where it is some, a warning does too.

    Raises:
        ConfigError: there is no beginning of a task, or ``out`` holds a run with other settings.
        DataError: a world package is not whole.
        ModelError: the world, or an agent's model, cannot be loaded or asked.
    """
    starts = _starts(world, tasks)
    open_run(out, {
        "stage": "rehearse", "agent": {"name": agent.name, "params": dict(agent.params)}, "model": world.model,
        "data": world.data.as_posix() if world.data else None,
        "env": world.env.name if world.env else None, "options": _options(world),
        "tasks": tasks, "seed": seed, "max_steps": max_steps,
        "fingerprint": fingerprint(files_of(world.model, _beginnings(world))), **weights_of([agent]),
    })  # fmt: skip
    origin = Origin(out)
    played = [Task.of(start.env or UNKNOWN, start.split, task) for task, start in starts.items()]
    known = overlaps(world.model, [agent], played, "rehearsed")
    found = _played(out, agent, world, starts, _Plays(seed, max_steps, workers, at_once))
    seen = _seen(world)
    figures = measured(found, seen, limits.unsure_below)
    verdicts = judged(limits, _values(figures))
    report = {
        "name": name or out.name, "agent": label_of(agent.build().ref), "world": world.model, "n_tasks": len(starts),
        "passed": all(verdict.met for verdict in verdicts), "limits": [verdict._asdict() for verdict in verdicts],
        "measured": figures, **_replays(found), "riskiest": riskiest(found.episodes, seen, limits.unsure_below),
        **known, "provenance": origin.told(),
    }  # fmt: skip
    write_json(out / REPORT, report)
    _write_page(out / "report.html", report)
    return report


def _options(world: World) -> Record:
    """Of the real environment, without the folder of its data, which differs between machines."""
    return {key: value for key, value in world.env.options.items() if key != "data"} if world.env else {}


def _beginnings(world: World) -> Path:
    """The file with the beginnings of the tasks."""
    if world.data is None and not is_package(world.model):
        raise ConfigError(f"{world.model} is no world package, which would say how tasks begin: give episodes (--data)")
    return world.data or Path(world.model) / STARTS


def _starts(world: World, tasks: int | None) -> dict[str, Start]:
    file = _beginnings(world)
    found = starts_of(read(file))
    if world.data is None:
        found = {task: start for task, start in found.items() if start.split == TEST} or found
    if is_package(world.model):
        found = _shortened(found, checked(Path(world.model)).beginning)
    starts = dict(sorted(found.items())[:tasks])
    if len(starts) < (tasks or 1):
        raise ConfigError(f"{file} has the beginnings of {len(starts)} tasks, {tasks or 1} are needed")
    return starts


def _shortened(starts: Mapping[str, Start], beginning: str) -> dict[str, Start]:
    """Without what all episodes began with, which a package's own environment tells again."""
    return {
        task: start._replace(
            observation=start.observation._replace(text=start.observation.text.removeprefix(beginning))
        )
        for task, start in starts.items()
    }


class _Plays(NamedTuple):
    """How episodes are played."""

    seed: int
    max_steps: int
    workers: int
    at_once: int


def _played(out: Path, agent: AgentSpec, world: World, starts: Mapping[str, Start], how: _Plays) -> Rehearsed:
    new_world = _worlds(world, starts)

    def play_one(job: Job) -> Trajectory:
        played = new_world(), job.agent.build()
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


def _worlds(world: World, starts: Mapping[str, Start]) -> Callable[[], WorldModelEnv]:
    """Makes an environment for each episode, all over one model; that of a package tells what was left out there."""
    if is_package(world.model):
        packaged = load_world(world.model)
        return lambda: PackagedWorld(packaged.folder, packaged.manifest, packaged.lm, starts)
    lm, env = open_lm(world.model), _env_name(world, starts)
    return lambda: WorldModelEnv(lm, starts, env)


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


def _replays(found: Rehearsed) -> Record:
    if found.real is None:
        return {}
    replays = replays_of(found)
    broken, won = (sum(t.outcome == outcome for t in replays) for outcome in ("error", "success"))
    return {"replays": {"confirmed": won, "refuted": len(replays) - won - broken, "broken": broken}}


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
    measures = [(name.replace("_", " "), Rate.of(found)) for name, found in report["measured"].items()]
    rates = [rate_row(name, rate) for name, rate in measures if rate]
    note = "Idle and swapped are controls: what they win, the world gives away. Unsure, new: where not to trust it."
    tables = [Table("rates", RATE_HEAD, rates)]
    told: Record = {key: report[key] for key in ("replays", "overlap", "overlap_agents") if key in report}
    if told:
        tables.append(facts("imagined successes in reality; tasks that a model was trained on", told))
    yield Section("Measured", note, tables=tuple(tables))
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
    if replays := report.get("replays"):
        rows.append(f"imagined successes in reality: {', '.join(f'{n} {name}' for name, n in replays.items())}")
    risky = [row["action"] for row in report["riskiest"][:5]]
    rows += [f"riskiest actions: {'; '.join(risky) or '-'}", "passed" if report["passed"] else "failed"]
    return "\n".join(rows)
