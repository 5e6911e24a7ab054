"""What it cost to make a policy: the steps of the run that made it, and of all runs that it goes back to."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from worldloom.lineage import training_of
from worldloom.naming import UNKNOWN
from worldloom.runs import read_json

Record = dict[str, Any]
RECORDS = {"collect": "summary.json", "imagine": "summary.json", "improve": "improve.json", "grpo": "train.json"}


def cost_of(model: str | Path) -> dict[str, int | str]:
    """The steps that were played to make a policy; a run that it goes back to in several ways counts once.

    A pretrained model costs nothing, and neither does an agent that is no policy. What a guard replayed is left out,
    since nothing is learnt from it.

    Args:
        model: a run's folder, or a model folder.

    Returns:
        {"real_steps", "imagined_steps"}; both are "unknown" where one of the runs, or its record, is not here.

    Raises:
        DataError: a record is damaged.
    """
    found: dict[Path, Record | None] = {}
    waiting = [_run(model)]
    while waiting:
        folder = waiting.pop()
        if folder not in found:
            found[folder] = record = record_of(folder)
            waiting += map(_run, _before(_settings(folder), record or {}))
    if None in found.values():
        return {"real_steps": UNKNOWN, "imagined_steps": UNKNOWN}
    steps = [_steps(_settings(folder), record or {}) for folder, record in found.items()]
    return {"real_steps": sum(real for real, _ in steps), "imagined_steps": sum(imagined for _, imagined in steps)}


def record_of(folder: Path) -> Record | None:
    """What a finished stage of a recipe told, or a training of its model folder alone; None if neither is here."""
    stage = _settings(folder).get("stage", "train")
    if stage == "train":
        training = training_of(folder)
        return training if training and "data" in training else None
    path = folder / RECORDS.get(stage, "none")
    return read_json(path) if path.is_file() else None


def _settings(folder: Path) -> Record:
    """A run's; a model's own ``config.json`` is something else."""
    found = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    return found if "stage" in found else {}


def _run(place: str | Path) -> Path:
    """The folder of the run to which a model, or a file of trajectories, belongs."""
    path = Path(place).resolve()
    within = ".jsonl" in path.name or (path.name == "model" and _settings(path.parent))
    return path.parent if within else path


def _steps(settings: Record, record: Record) -> tuple[int, int]:
    """A run's own, real and imagined; those of a training are no steps of an environment."""
    if settings.get("stage") == "collect":
        return record["steps"], 0
    return record.get("real_steps", 0), record.get("imagined_steps", 0)


def _before(settings: Record, record: Record) -> Iterator[str]:
    """The models and files that a run began with."""
    agents = [*settings.get("agents", ()), *([settings["agent"]] if "agent" in settings else ())]
    models = [settings.get("world"), settings.get("policy"), _base(settings, record)]
    models += [agent["params"]["model"] for agent in agents if agent["name"] == "policy"]
    yield from (model for model in models if model)
    yield from settings.get("data") or record.get("data") or ()


def _base(settings: Record, record: Record) -> str | None:
    """What a training began from, if that had been trained, too."""
    if "train" in settings:  # improvement, whose policy may begin from another model than its first agent's
        base: str = settings["train"]["model"]
        return base if training_of(base) else None
    return record["base"] if "before" in record else None
