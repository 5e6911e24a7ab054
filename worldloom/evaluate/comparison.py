"""The page that shows several evaluations side by side. The first run is the one that others are compared with."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from worldloom.errors import ConfigError
from worldloom.evaluate.beside import columns, curves_section, dots, parts_of, rate_columns, rows_of
from worldloom.evaluate.cells import EXACT, TERMINAL, TOOL_ANSWERS, baselines, kind, number, signed
from worldloom.evaluate.compare import Run, open_runs, step_differences
from worldloom.evaluate.compared_rollouts import anchorings, confidences, partings, worlds
from worldloom.evaluate.page import Section, write_page
from worldloom.evaluate.plots import RUNS, Rate

PLOTTED = ("exact match", "exact match of the observation alone", "word F1")
_TOLD = ("model", "environment_version", "split")
_SIZES = {
    "train": {
        "trainable_parameters": "parameters trained", "trajectories_seen": "episodes learnt from",
        "tokens_seen": "tokens learnt from",
    },
    "one_step": {"n_episodes": "episodes scored", "n_steps": "steps scored", "left_out": "steps left out"},
    "consistency": {"n_tasks": "tasks played"},
}  # fmt: skip
_ORIGIN = ("command", "git_commit", "started", "seconds", "machine")
_DIFFERENCES = {"em": "exact match", "em_observation": "observation alone", "word_f1": "word F1"}
_COUNTS = {"both": "both right", "first_only": "the first alone", "other_only": "this run alone", "neither": "neither"}


def compare(paths: Sequence[Path], out: Path) -> Path:
    """Write a page that shows several evaluations side by side, and return its path.

    Raises:
        ConfigError: fewer than two runs or more than can be told apart, or runs that cannot be compared.
        DataError: a folder holds no finished evaluation.
    """
    if not 2 <= len(paths) <= len(RUNS):
        raise ConfigError(f"{len(paths)} runs: a comparison is of 2 to {len(RUNS)}")
    runs = open_runs(paths)
    environment = next((run.metrics["environment"] for run in runs if run.metrics.get("environment")), "unknown")
    note = f"Differences are to the first run, {runs[0].name}. In brackets: 95 % intervals."
    return write_page(out, title=f"{environment}: {len(runs)} runs", subtitle=note, sections=list(_sections(runs)))


def _sections(runs: Sequence[Run]) -> Iterator[Section]:
    about = columns("what was measured", {run.name: _about(run) for run in runs}, texts=True)
    yield Section("The runs", tables=(about,))
    for part in (_one_step, _differences, _by_kind, _by_step, worlds, partings, confidences, anchorings):
        yield from part(runs)
    origins = zip(runs, parts_of(runs, "provenance"), strict=True)
    told = {run.name: {kind(key): number(origin[key]) for key in _ORIGIN if key in origin} for run, origin in origins}
    yield Section("Where these numbers come from", tables=(columns("provenance", told, texts=True),))


def _about(run: Run) -> Mapping[str, str]:
    found: dict[str, Any] = {kind(key): run.metrics[key] for key in _TOLD if run.metrics.get(key)}
    for part, names in _SIZES.items():
        of = run.metrics.get(part) or {}
        found |= {name: of[key] for key, name in names.items() if key in of}
    return {name: number(value) for name, value in found.items()}


def _one_step(runs: Sequence[Run]) -> Iterator[Section]:
    parts = parts_of(runs, "one_step")
    if not any(parts):
        return
    exact, usual = rows_of(parts, EXACT), [dict(baselines(part)) for part in parts]
    names = dict.fromkeys(name for each in usual for name in each)
    base = {f"baseline: {name}": [each.get(name) for each in usual] for name in names}
    plotted = {name: found for name, found in exact.items() if name in PLOTTED} | base
    ends = rows_of(parts_of(runs, "one_step", "terminal"), TERMINAL)
    tools = rows_of(parts_of(runs, "one_step", "tool_answers"), TOOL_ANSWERS)
    note = "Each step is predicted from the real history before it. Baselines need no language model."
    yield Section("One step ahead", note, dots(plotted, runs, "%", "exact"), (
        rate_columns("exact match, its kinder forms, and baselines, %", runs, {**exact, **base}),
        rate_columns("the end, %", runs, ends), rate_columns("where a tool answers with JSON, %", runs, tools),
    ))  # fmt: skip


def _differences(runs: Sequence[Run]) -> Iterator[Section]:
    if not any(parts_of(runs, "one_step")):
        return
    found = {run.name: step_differences(runs[0], run) for run in runs[1:]}
    refused = "".join(f" Not for {name}: {why}." for name, why in found.items() if isinstance(why, str))
    paired = {name: each for name, each in found.items() if not isinstance(each, str)}
    rates = {
        name: {label: signed(Rate.of(each[key])) for key, label in _DIFFERENCES.items() if key in each}
        | {kind(stratum): signed(Rate.of(rate)) for stratum, rate in each["strata"].items()}
        for name, each in paired.items()
    }
    counts = {
        name: {label: number(each["steps"][key]) for key, label in _COUNTS.items()}
        | {"scored by one of them": number(each["left_out"])}
        for name, each in paired.items()
    }
    note = f"What is right, less that of {runs[0].name}, in percentage points, on the same episodes.{refused}"
    tables = (columns("paired differences, points", rates), columns("steps", counts))
    yield Section("How much they differ", note, tables=tables)


def _by_kind(runs: Sequence[Run]) -> Iterator[Section]:
    parts = parts_of(runs, "one_step", "strata")
    names = {name: kind(name) for part in parts for name in sorted(part)}
    rows = rows_of([{name: of.get("em") for name, of in part.items()} for part in parts], names)
    if rows:
        plotted = {name: found for name, found in rows.items() if not name.startswith("verb ")}
        told = zip(runs, parts, strict=True)
        steps = {run.name: {kind(name): number(of.get("n")) for name, of in part.items()} for run, part in told}
        yield Section("Exact match by kind of step", "A step is of several kinds.", dots(plotted, runs, "%", "kinds"), (
            rate_columns("exact match, %", runs, rows), columns("steps of each kind", steps, folded=True),
        ))  # fmt: skip


def _by_step(runs: Sequence[Run]) -> Iterator[Section]:
    curves = {
        run.name: {row["step"]: rate for row in part.get("by_step_index") or () if (rate := Rate.of(row.get("em")))}
        for run, part in zip(runs, parts_of(runs, "one_step"), strict=True)
    }
    labels = ("step of the episode", "exact match, %")
    yield from curves_section("Exact match by step of the episode", curves, labels, "steps")
