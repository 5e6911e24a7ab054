"""Runs a study: plays, trains and measures what its plan says, each in a folder of its own, and puts it together."""

import gc
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from worldloom.collect import TRAJECTORIES, check_played, collect
from worldloom.evaluate.metrics import METRICS, RECORDS, REPORT
from worldloom.origin import Origin
from worldloom.runs import as_json, open_run, read_json, read_records, write_json
from worldloom.study.fit import fitted
from worldloom.study.metrics import arm_metrics, difference
from worldloom.study.page import write_study
from worldloom.study.plan import Arm, Plan, Played, Trained, plan
from worldloom.study.settings import Settings

Record = dict[str, Any]
Tell = Callable[[str], None]


class Stage(NamedTuple):
    """A piece of the work: what it is called, the file that is there once it is done, and how it is done, which does
    nothing twice."""

    label: str
    done: Path
    run: Callable[[], Any]


def study(
    out: Path, settings: Settings, *, name: str | None = None, workers: int = 2, tell: Tell = lambda text: None
) -> Record:
    """Run a study.

    Every set of episodes, model and arm has a folder under ``out`` (``episodes``, ``models``, ``arms``), which is a run
    of its own. Started again with the same settings it goes on where it was stopped.

    Args:
        name: in ``metrics.json``; by default that of the study and its worlds.
        workers: processes that play real environments.
        tell: gets a line at the beginning of each stage.

    Returns:
        The metrics, also in ``out/metrics.json``; ``out/report.html`` shows them.

    Raises:
        ConfigError: a setting is wrong, or ``out`` holds a study with others.
        EnvError: an environment cannot be started, or breaks in every episode.
    """
    planned = fitted(plan(settings))
    open_run(out, {"stage": "study", **_plain(settings)})
    before = out / METRICS
    origin = Origin(out, finished=before.exists())
    stages = list(_stages(out, planned, settings, workers))
    for number, stage in enumerate(stages, 1):
        tell(f"{number}/{len(stages)} {stage.label}{' (done)' if stage.done.exists() else ''}")
        stage.run()
        gc.collect()  # a model that is held in circles would stand beside the next one
    made = read_json(before)["provenance"] if before.exists() else origin.told()
    metrics = {**_told(out, planned, settings, name), "provenance": made}
    write_json(out / METRICS, metrics)
    write_study(out / REPORT, metrics)
    return metrics


def _plain(settings: Settings) -> Record:
    """Settings as they are saved, with what the worlds are."""
    worlds = {name: asdict(world) for name, world in settings.places.items()}
    for world in worlds.values():
        world["options"].pop("data", None)  # where games lie differs between machines
    return as_json({**asdict(settings), "define": worlds}, "a study")


def _stages(out: Path, planned: Plan, settings: Settings, workers: int) -> Iterator[Stage]:
    for name, played in planned.played.items():
        yield _playing(out / "episodes" / name, played, workers)
    for name, trained in planned.trained.items():
        yield _training(out / "models" / name, trained, out / "episodes")
    for name, arm in planned.arms.items():
        yield _measuring(out, name, arm, planned, settings, workers)


def _playing(folder: Path, played: Played, workers: int) -> Stage:
    done = folder / "summary.json"

    def run() -> None:
        summary = read_json(done) if done.exists() else collect(
            folder, played.env, played.agents, played.split, tasks=math.ceil(played.episodes / played.per_task),
            agents_per_task=played.per_task, seed=played.seed, max_steps=played.max_steps, workers=workers,
        )  # fmt: skip
        check_played(summary, folder)

    return Stage(f"play {played.episodes} episodes: {folder.name}", done, run)


def _training(folder: Path, trained: Trained, episodes: Path) -> Stage:
    done = folder / "train.json"

    def run() -> None:
        from worldloom.train import train

        train([episodes / name / TRAJECTORIES for name in trained.data], folder, trained.config)

    return Stage(f"train: {folder.name}", done, run)


def _measuring(out: Path, name: str, arm: Arm, planned: Plan, settings: Settings, workers: int) -> Stage:
    folder, test = out / "arms" / name, planned.played[arm.test]
    done = folder / REPORT

    def run() -> None:
        from worldloom.evaluate.run import evaluate

        consistency: Record = {"env": test.env, "agents": arm.players, "tasks": arm.tasks} if arm.tasks else {}
        if not done.exists():  # else the model would be loaded for nothing
            evaluate(
                folder, str(model_of(out, arm)), name=name, data=out / "episodes" / arm.test / TRAJECTORIES,
                split=test.split, seed=settings.seed, max_steps=test.max_steps, workers=workers, **consistency,
            )  # fmt: skip

    return Stage(f"measure: {name}", done, run)


def model_of(out: Path, arm: Arm) -> Path:
    """The folder of the model that an arm measures."""
    if arm.trained:
        return Path(arm.trained)
    return out / "models" / arm.model / ("model" if arm.at is None else f"model-at-{arm.at}")


def _told(out: Path, planned: Plan, settings: Settings, name: str | None) -> Record:
    """The study's metrics, from its arms' own metrics and records."""
    arms = {arm: read_json(out / "arms" / arm / METRICS) for arm in planned.arms}
    compared = {}
    for one, other in planned.compared:
        found = difference(*(list(read_records(out / "arms" / arm / RECORDS)) for arm in (one, other)))
        if found is not None:
            compared[f"{one} - {other}"] = found
    told = {arm: arm_metrics(found, planned.arms[arm].world) for arm, found in arms.items()}
    return {
        "name": name or "-".join(["study", settings.study, *settings.worlds]),
        **{key: ", ".join(dict.fromkeys(arm[key] for arm in told.values())) for key in ("environment", "split")},
        "model": settings.training.model,
        "study": {
            "kind": settings.study,
            "settings": as_json(asdict(settings.sized()) | {"define": {}, "scale": settings.scale}, "a study"),
            "arms": told,
            "differences": compared,
        },
    }  # fmt: skip
