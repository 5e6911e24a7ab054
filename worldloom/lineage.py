"""Where a model comes from: what it was before its training, what that had been trained on, and on which tasks."""

import logging
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from worldloom.agents import AgentSpec
from worldloom.errors import DataError
from worldloom.naming import IMAGINED
from worldloom.runs import fingerprint, read_json
from worldloom.trajectory import Trajectory, numbered_lines

logger = logging.getLogger(__name__)

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


class Task(NamedTuple):
    """What makes two tasks the same one; whether an episode of it was imagined makes no difference."""

    env: str
    split: str
    id: str

    @classmethod
    def of(cls, env: str, split: str | None, task_id: str) -> "Task":
        """Of an episode that names no split, the split is ``all``."""
        return cls(env.removeprefix(IMAGINED), split or "all", task_id)


class _Env(BaseModel):
    name: str


class _TaskRef(BaseModel):
    id: str
    split: str | None = None


class _Line(BaseModel):
    """What is read of a trajectory here."""

    env: _Env
    task: _TaskRef


def tasks_of(episodes: Iterable[Trajectory | _Line]) -> set[Task]:
    """The tasks of some episodes."""
    return {Task.of(episode.env.name, episode.task.split, episode.task.id) for episode in episodes}


def overlaps(
    model: str, agents: Iterable[AgentSpec], tasks: Iterable[Task], use: str = "measured"
) -> dict[str, dict[str, Any]]:
    """What metrics say of tasks that were learnt before they were used; each model that learnt some is warned of.

    Args:
        model, tasks, use: see ``overlap``.
        agents: who acts; those with a model of their own are looked at, too.

    Returns:
        ``overlap`` of the world model, and ``overlap_agents`` of the agents' models by their names. What is not known
        is absent.
    """
    tasks = {*tasks}
    own = {str(agent.params["model"]) for agent in agents if agent.params.get("model")}
    found = {
        "overlap": overlap(model, tasks, use),
        "overlap_agents": {name: told for name in sorted(own) if (told := overlap(name, tasks, use))},
    }
    return {key: told for key, told in found.items() if told}


def overlap(model: str, tasks: Iterable[Task], use: str = "measured") -> dict[str, int] | None:
    """How many of some tasks stand in the files that a model was trained on, itself and what it was before.

    Args:
        model: see ``worldloom.lm.base.open_lm``. The examples of a ``few-shot`` prompt do not count.
        use: what the model is on these tasks, for the warning that is logged if it learnt one of them.

    Returns:
        ``tasks``, of how many (``of``), and ``unread``: files that are gone or hold no task, and trainings that noted
        none; absent if there are none. None if nothing could be read.
    """
    files = list(_sources(model))
    read = {file: learnt for file in {*files} if file and (learnt := _tasks_in(file))}
    if not read:
        return None
    tasks, unread = {*tasks}, sum(file not in read for file in files)
    shared = tasks.intersection(chain.from_iterable(read.values()))
    if shared:
        text = "%s was trained on %d of the %d tasks that it is %s on, such as %r: it may know them by heart"
        logger.warning(text, model, len(shared), len(tasks), use, min(shared).id)
    return {"tasks": len(shared), "of": len(tasks), **({"unread": unread} if unread else {})}


def _sources(model: str) -> Iterator[Path | None]:
    """The files that a model learnt from; None for a training that noted none."""
    kind, _, rest = model.rpartition(":")
    if kind in ("retrieval", "nearest") and Path(rest).is_file():
        yield Path(rest)
    for name in dict.fromkeys((model, rest)):
        try:
            last = training_of(name)
        except DataError:
            yield None
            continue
        for training in [*last.get("before", []), last] if last else []:
            yield from map(Path, training["data"]) if training.get("data") else [None]


def _tasks_in(path: Path) -> set[Task] | None:
    """The tasks of a trajectories file; None if none can be read."""
    try:
        return tasks_of(line for _, raw in numbered_lines(path) if (line := _line(raw))) or None
    except DataError:
        return None


def _line(raw: bytes) -> Trajectory | _Line | None:
    try:
        return _Line.model_validate_json(raw)
    except ValidationError:
        pass
    try:  # what JSON may hold and that reader refuses
        return Trajectory.from_json(raw)
    except DataError:
        return None
