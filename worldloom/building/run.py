"""``worldloom build``: logs in, a world package out, in stages that each go on where they were stopped."""

import logging
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from worldloom.building.card import write_card
from worldloom.building.config import BuildConfig, Work
from worldloom.building.episodes import PREPARED, prepare, read_logs, split_episodes
from worldloom.building.measure import loss_curve, measure
from worldloom.building.quality import COVERAGE, LINT, inspect, mean_tokens
from worldloom.envs import MANIFEST
from worldloom.errors import ConfigError
from worldloom.evaluate.metrics import METRICS, RECORDS, REPORT
from worldloom.evaluate.report import write_report
from worldloom.ingest.account import file_name
from worldloom.ingest.run import find_files
from worldloom.lm.hf import resolve
from worldloom.lm.prompt import few_shot
from worldloom.origin import Origin, hide
from worldloom.package import MODEL, STARTS, write_manifest
from worldloom.runs import open_run, read_json, read_records, write_json
from worldloom.train import train
from worldloom.trajectory import Trajectory, read, write

logger = logging.getLogger(__name__)

MEASURED = "measured.json"
Tell = Callable[[str], None]


class Stage(NamedTuple):
    """What is done, by what, and the file that says that it was."""

    name: str
    do: Callable[[], Any]
    done: Path


def build(logs: Sequence[Path], out: Path, config: BuildConfig, *, tell: Tell = logger.info) -> dict[str, Any]:
    """Make a world package of logs: ingest and redact, split, lint, train, measure, and write it all down.

    Stopped at any instant, the same call goes on; a finished package is left alone. Nothing of the logs is written
    before it is redacted.

    Args:
        logs: files, and folders that are searched for files.
        out: the package; ``out/work`` holds what is needed to go on, and the episodes.
        tell: gets a line for each stage.

    Returns:
        The metrics, as ``out/metrics.json`` has them.

    Raises:
        ConfigError: a setting is out of range or the episodes do not suffice for it, or ``out`` holds a build with
            other settings.
        DataError: a log is missing, or holds no episode; with ``strict``, a record would be lost.
        ModelError: the model cannot be loaded.
    """
    hide(config.rules.names)
    work = Work(out)
    files = find_files(logs, out)
    if (out / MANIFEST).exists() and not (work / "config.json").exists():
        raise ConfigError(f"{out} is a finished world without its {work.folder.name} folder; choose another folder")
    resolve(config.training(1).model)  # no sooner than this is anything written
    open_run(work.folder, {"stage": "build", "logs": _sizes(files), **config.plain()})
    stages = _stages(files, work, config, Origin(work.folder, (out / MANIFEST).exists()))
    for number, stage in enumerate(stages, 1):
        if stage.done.exists():
            tell(f"{number}/{len(stages)} {stage.name}: done before")
            continue
        tell(f"{number}/{len(stages)} {stage.name}")
        stage.do()
    found: dict[str, Any] = read_json(out / METRICS)
    return found


def _sizes(files: Sequence[Path]) -> dict[str, int]:
    return {file_name(path): path.stat().st_size for path in files}


def _stages(files: Sequence[Path], work: Work, config: BuildConfig, origin: Origin) -> list[Stage]:
    return [
        Stage("ingest and redact", lambda: read_logs(files, work, config), work / "ingest" / "ingest.json"),
        Stage("prepare episodes", lambda: prepare(work), work / PREPARED),
        Stage("split", lambda: _split(work, config), work / "data" / "splits.json"),
        Stage("lint and count", lambda: inspect(work, config), work / LINT),
        Stage("train", lambda: _train(work, config), work / "train" / "train.json"),
        Stage("measure", lambda: _measure(work, config, origin), work / MEASURED),
        Stage("pack", lambda: _pack(work, config), work.out / MANIFEST),
    ]


def _split(work: Work, config: BuildConfig) -> None:
    split_episodes(work, config)
    if config.few_shot:
        few_shot(work.train)  # so that what cannot be measured is told before training


def _train(work: Work, config: BuildConfig) -> None:
    train([work.train], work / "train", config.training(mean_tokens(work)))


def _measure(work: Work, config: BuildConfig, origin: Origin) -> None:
    write_json(work / MEASURED, {**measure(work, config), "provenance": origin.told()})


def _pack(work: Work, config: BuildConfig) -> None:
    """Put together what the package is; ``world.json`` comes last, and says that it is whole."""
    out, metrics = work.out, read_json(work / MEASURED)
    for name in (MODEL, "adapter"):
        if (work / "train" / name).is_dir():
            shutil.rmtree(out / name, ignore_errors=True)
            os.replace(work / "train" / name, out / name)
    episodes = [*read(work.train, strict=True), *read(work.test, strict=True)]
    write(out / STARTS, starts(episodes))
    write_json(out / METRICS, metrics)
    records = read_records(work / "evaluate" / RECORDS)
    write_report(out / REPORT, title=config.name, metrics=metrics, records=records, loss_curve=loss_curve(work))
    shutil.copyfile(work / COVERAGE / REPORT, out / "coverage.html")
    prepared = read_json(work / PREPARED)
    write_card(work, config, metrics)
    write_manifest(out, config.name, metrics["environment"], prepared["beginning"])


def starts(episodes: Sequence[Trajectory]) -> list[Trajectory]:
    """How each task begins: the first episode of each without its steps, in the order of the files."""
    first: dict[str, Trajectory] = {}
    for episode in episodes:
        if episode.initial_observation:
            first.setdefault(episode.task.id, episode)
    return [
        Trajectory(env=t.env, task=t.task, initial_observation=t.initial_observation, initial_context=t.initial_context)
        for t in first.values()
    ]
