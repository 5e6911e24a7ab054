"""The trained world on held-out episodes, beside baselines on the same, all in one ``metrics.json``."""

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from worldloom.building.config import BuildConfig, Work
from worldloom.building.episodes import account, reached
from worldloom.evaluate.metrics import RECORDS
from worldloom.evaluate.one_step import one_step_metrics
from worldloom.evaluate.rollouts import name_of
from worldloom.evaluate.run import evaluate
from worldloom.runs import read_json, read_records
from worldloom.trajectory import read, write

Metrics = dict[str, Any]
TOLD = ("em", "word_f1", "tool_answers", "n_episodes", "n_steps")  # of a baseline


def measure(work: Work, config: BuildConfig) -> Metrics:
    """Measure what was trained; without where it comes from, which is the build's to say."""
    metrics = evaluate(
        work / "evaluate", str(work / "train"), name=config.name, data=work.test, seed=config.seed, rollouts=True,
        logs=work.train, minutes=config.measuring_minutes,
    )  # fmt: skip
    scored, ours = _scored(work), _steps(work / "evaluate")
    beside = {"nearest_reply": _baseline(work / "nearest", f"nearest:{work.train}", scored, ours, config)}
    if config.few_shot:
        model = f"few-shot:{work.train}:{config.training(1).model}"
        beside["few_shot"] = _baseline(work / "few-shot", model, scored, ours, config, config.few_shot)
        beside["few_shot"]["world_model"] = _told(work / "evaluate", _steps(work / "few-shot"))
    one_step = metrics["one_step"]
    one_step["baselines"] = {**one_step.get("baselines", {}), **beside}
    test = len(read(work.test))
    ingest = {**account(work), "measured": reached(test, one_step, metrics.get("rollouts", {}))}
    train = {**metrics["train"], "data": [work.train.relative_to(work.out).as_posix()]}  # the package may be moved
    return {**metrics, "model": "model", "train": train, "ingest": ingest}


def _scored(work: Work) -> Path:
    """A file of the held-out episodes that were scored, so that baselines are measured on the same."""
    keys = {r["key"] for r in read_records(work / "evaluate" / RECORDS) if r["kind"] == "one_step"}
    path = work / "scored.jsonl"
    write(path, (episode for episode in read(work.test) if name_of(episode) in keys))
    return path


def _baseline(
    out: Path, model: str, data: Path, ours: Mapping[str, Set[int]], config: BuildConfig, episodes: int | None = None
) -> Metrics:
    evaluate(out, model, name=out.name, data=data, episodes=episodes, seed=config.seed)
    return _told(out, ours)


def _steps(run: Path) -> dict[str, Set[int]]:
    """Which steps of each episode a run scored: those that fit its model's window."""
    records = (record for record in read_records(run / RECORDS) if record["kind"] == "one_step")
    return {record["key"]: {step["index"] for step in record["steps"]} for record in records}


def _told(run: Path, of: Mapping[str, Set[int]]) -> Metrics:
    """What a run found on some steps alone, those that another one scored, so that the two can be compared."""
    records = [
        record | {"steps": [step for step in record["steps"] if step["index"] in of[record["key"]]]}
        for record in read_records(run / RECORDS)
        if record["kind"] == "one_step" and record["key"] in of
    ]
    found = one_step_metrics(sorted(records, key=lambda record: str(record["key"])))
    return {name: found[name] for name in TOLD if found.get(name) is not None}


def loss_curve(work: Work) -> list[tuple[int, float]]:
    """(training step, loss per token)."""
    return [(step, loss) for step, loss in read_json(work / "train" / "loss.json")]
