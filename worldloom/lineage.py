"""Where a model comes from: what it was before its training, and what that had been trained on."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from worldloom.agents import AgentSpec
from worldloom.runs import fingerprint, read_json

FILE = "train.json"
KEPT = (
    "base", "learns", "says", "data", "environments", "trajectories", "trajectories_seen", "tokens_seen", "epochs",
    "steps", "seconds", "trainable_parameters", "updates",
)  # fmt: skip


def training_of(model: str | Path) -> dict[str, Any] | None:
    """What ``worldloom train`` noted of a model; None if it was trained by something else.

    Args:
        model: a training run's folder, or the model folder within it (or a copy of that).
    """
    place = Path(model)
    for folder in (place, place / "model", *([place.parent] if place.name == "model" else [])):
        if (folder / FILE).is_file():
            found: dict[str, Any] = read_json(folder / FILE)
            return _settings(folder / "config.json") | found
    return None


def _settings(path: Path) -> dict[str, Any]:
    """What a run from before these were noted began from; nothing of a model folder's own configuration."""
    found = read_json(path) if path.is_file() else {}
    return {"base": found["model"], "data": found["data"]} if found.get("stage") == "train" else {}


def lineage(model: str | Path) -> dict[str, Any]:
    """What a training run that begins from ``model`` notes of it.

    Returns:
        ``base``, the model, and ``before`` (absent if it was not trained by worldloom): the trainings that made it, the
        first one first, each with its own base, data, environments and amounts.
    """
    last = training_of(model)
    if last is None:
        return {"base": str(model)}
    return {"base": str(model), "before": [*last.get("before", []), {key: last[key] for key in KEPT if key in last}]}


def files_of(model: str, *data: Path | None) -> list[Path]:
    """What a run depends on: a model's files, as far as they lie here, also those that a name such as
    ``retrieval:PATH`` speaks of; and its data."""
    places = [Path(part) for part in (model, *model.split(":")[1:])]
    folders = [place / "model" if (place / "model").is_dir() else place for place in places]
    found = [file for folder in folders if folder.is_dir() for file in sorted(folder.glob("*")) if file.is_file()]
    return [*found, *(place for place in places if place.is_file()), *(path for path in data if path)]


def weights_of(agents: Iterable[AgentSpec]) -> dict[str, str]:
    """What a run notes of the weights of its agents' own models, as far as they lie here: trained on, an agent is
    another one. Nothing if there are none."""
    files = [file for agent in agents if agent.params.get("model") for file in files_of(str(agent.params["model"]))]
    return {"weights": fingerprint(files)} if files else {}
