"""Several evaluations side by side: which may be compared, and the paired differences of those on the same episodes.

A difference of two rates is paired where both runs scored the same episodes: what makes an episode hard is then the
same for both, and the interval, from resampling episodes, is that of the difference alone. Where episodes differ there
is none, and a reader is told so.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from worldloom.errors import ConfigError, DataError
from worldloom.evaluate.agreement import outcome, wins
from worldloom.evaluate.stats import difference
from worldloom.runs import read_json, read_records

Record = dict[str, Any]
Steps = dict[str, dict[int, Record]]  # of each episode, by their index
Pair = tuple[Record, Record]
MEASURED = ("one_step", "consistency", "confidence", "anchoring")
ABOUT = ("action", "gold", "gold_terminal")  # what a step was, whoever scores it
MEASURES: dict[str, Callable[[Record], float]] = {
    "em": lambda step: step["correct"],
    "em_observation": lambda step: step["correct_observation"],
    "word_f1": lambda step: step["word_f1"],
}
KINDS = ("state_changing", "no_change", "invalid")


class Run(NamedTuple):
    """One evaluation: what it is called on the page, its metrics, and its records as far as they are at hand."""

    name: str
    metrics: Record
    records: Sequence[Record]

    def of(self, kind: str) -> list[Record]:
        """Its records of one kind."""
        return [record for record in self.records if record["kind"] == kind]


def open_runs(paths: Sequence[Path]) -> list[Run]:
    """Finished evaluations that may be compared: folders with ``metrics.json`` and, if they are to be paired,
    ``records.jsonl``.

    Raises:
        DataError: a folder holds no finished evaluation, or one in which nothing was measured.
        ConfigError: they are of different environments or versions, or one is there twice.
    """
    folders = [folder_of(path) for path in paths]
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ConfigError("a run is there twice; give each once")
    found = [opened(folder) for folder in folders]
    names = _names([metrics["name"] for metrics, _ in found], folders)
    runs = [Run(name, *each) for name, each in zip(names, found, strict=True)]
    _check_alike(runs)
    return runs


def folder_of(path: Path) -> Path:
    """The folder of a run that is named by itself or by its ``metrics.json``."""
    return path.parent if path.name == "metrics.json" else path


def opened(run: Path) -> tuple[Record, list[Record]]:
    """The metrics of a finished evaluation, and its records as far as its folder holds them.

    Raises:
        DataError: there is none, or nothing was measured in it.
    """
    folder = folder_of(run)
    path = folder / "metrics.json"
    if not path.exists():
        raise DataError("there is no finished evaluation: start `worldloom evaluate` again until it ends", folder)
    metrics = read_json(path)
    if not isinstance(metrics, dict) or not any(metrics.get(part) for part in MEASURED):
        raise DataError("nothing was measured in it; evaluate a world model into this folder", path)
    return {"name": folder.name, **metrics}, list(read_records(folder / "records.jsonl"))


def _names(names: Sequence[str], folders: Sequence[Path]) -> list[str]:
    """As the runs call themselves; those that call themselves alike by their folders, too."""
    often = Counter(names)
    return [
        name if often[name] == 1 else f"{name} ({folder.as_posix()})"
        for name, folder in zip(names, folders, strict=True)
    ]


def _check_alike(runs: Sequence[Run]) -> None:
    for key, what in (("environment", "environments"), ("environment_version", "versions of an environment")):
        told = {run.name: run.metrics[key] for run in runs if run.metrics.get(key)}
        if len(set(told.values())) > 1:
            listed = "; ".join(f"{name}: {value}" for name, value in told.items())
            raise ConfigError(f"runs of different {what} cannot be compared ({listed}); give a page to each")


def step_differences(first: Run, other: Run) -> Record | str:
    """How much righter one run is than the first, step by step of the same episodes.

    Returns:
        ``n_episodes``, ``n_steps`` (scored by both), ``left_out`` (by one alone), the differences ``em``, where both
        know what the model says ``em_observation`` and ``word_f1``, and, under ``strata``, that of exact match by kind
        of step; and ``steps``: how many are right in ``both``, ``first_only``, ``other_only``, ``neither``. A text that
        says why not, where they cannot be paired.
    """
    ours, theirs = _steps(first), _steps(other)
    if why := _unlike(ours, theirs):
        return why
    pairs = [[(a[index], b[index]) for index in sorted(a.keys() & b.keys())] for a, b in _matched(ours, theirs)]
    if any(a[key] != b[key] for episode in pairs for a, b in episode for key in ABOUT):
        return "the same episodes say different things in the two runs"
    scored = sum(map(len, pairs))
    told = all("word_f1" in step for episode in pairs for pair in episode for step in pair)
    rights = Counter((bool(a["correct"]), bool(b["correct"])) for episode in pairs for a, b in episode)
    return {
        "n_episodes": len(pairs),
        "n_steps": scored,
        "left_out": sum(len(a.keys() | b.keys()) for a, b in _matched(ours, theirs)) - scored,
        **{name: _difference(pairs, value) for name, value in MEASURES.items() if name == "em" or told},
        "strata": _strata(pairs),
        "steps": {
            "both": rights[True, True], "first_only": rights[True, False], "other_only": rights[False, True],
            "neither": rights[False, False],
        },
    }  # fmt: skip


def _steps(run: Run) -> Steps:
    return {record["key"]: {step["index"]: step for step in record["steps"]} for record in run.of("one_step")}


def _matched(ours: Steps, theirs: Steps) -> list[tuple[dict[int, Record], dict[int, Record]]]:
    return [(ours[key], theirs[key]) for key in sorted(ours)]


def _unlike(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Why records by key cannot be paired; nothing if they can."""
    if not ours or not theirs:
        return "there are no such records of both at hand"
    if ours.keys() != theirs.keys():
        shared = len(ours.keys() & theirs.keys())
        return f"their episodes differ: {len(ours)} and {len(theirs)}, of which {shared} are the same"
    return ""


def _difference(pairs: Sequence[Sequence[Pair]], value: Callable[[Record], float]) -> dict[str, float] | None:
    ours, theirs = ([float(sum(value(pair[side]) for pair in episode)) for episode in pairs] for side in (0, 1))
    return difference(theirs, ours, [float(len(episode)) for episode in pairs])


def _strata(pairs: Sequence[Sequence[Pair]]) -> Record:
    found = {}
    for name in KINDS:
        chosen = [[pair for pair in episode if pair[0].get("stratum") == name] for episode in pairs]
        if any(chosen):
            found[name] = _difference(chosen, MEASURES["em"])
    return found


def world_differences(first: Run, other: Run) -> Record | str:
    """How much more often the agents of one run succeed in the model (``wm``) and in its replay (``w2r``) than in the
    first run's, over the same tasks; a text that says why not, where they cannot be paired."""
    ours, theirs = ({record["key"]: record for record in run.of("consistency")} for run in (first, other))
    if why := _unlike(ours, theirs):
        return why
    if any(outcome(ours[key]["real"]) != outcome(theirs[key]["real"]) for key in ours):
        return "the same agents fared differently in reality"
    tasks = sorted({record["task_id"] for record in ours.values()})
    played = [float(sum(record["task_id"] == task for record in ours.values())) for task in tasks]
    found: Record = {"n_tasks": len(tasks), "n": len(ours)}
    for name in ("wm", "w2r"):
        before, after = (wins(side.values(), tasks, [name]) for side in (ours, theirs))
        found[name] = difference(after, before, played)
    return found
