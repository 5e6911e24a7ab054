"""The page that shows several evaluations side by side. The first run is the one that others are compared with."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from worldloom.errors import ConfigError
from worldloom.evaluate.cells import (
    ABSENT,
    EXACT,
    RATIOS,
    TERMINAL,
    TOOL_ANSWERS,
    WORLDS,
    baselines,
    kind,
    number,
    rated,
    rates,
    signed,
)  # fmt: skip
from worldloom.evaluate.compare import Run, open_runs, step_differences, world_differences
from worldloom.evaluate.curves import curves_plot, dots_plot
from worldloom.evaluate.page import Section, Table, write_page
from worldloom.evaluate.plots import RUNS, Rate
from worldloom.evaluate.rollouts import OTHERS, share, survival_plot
from worldloom.evaluate.trust import WITH_SHARE, aurocs, bound_rows

Rows = Mapping[str, Sequence[Rate | None]]  # what it is -> its rate in each run
PLOTTED = ("exact match", "exact match of the observation alone", "word F1")
_SIZES = {
    "train": {
        "trainable_parameters": "parameters trained", "trajectories_seen": "episodes learnt from",
        "tokens_seen": "tokens learnt from",
    },
    "one_step": {"n_episodes": "episodes scored", "n_steps": "steps scored", "left_out": "steps left out"},
    "consistency": {"n_tasks": "tasks played"},
}  # fmt: skip
_DIFFERENCES = {"em": "exact match", "em_observation": "observation alone", "word_f1": "word F1"}


def compare(paths: Sequence[Path], out: Path) -> Path:
    """Write a page that shows several evaluations side by side, and return its path.

    Raises:
        ConfigError: fewer than two runs or more than can be told apart, or runs that cannot be compared.
        DataError: a folder holds no finished evaluation.
    """
    if not 2 <= len(paths) <= len(RUNS):
        raise ConfigError(f"{len(paths)} runs: a comparison is of 2 to {len(RUNS)}")
    runs = open_runs(paths)
    title = f"{', '.join(dict.fromkeys(str(run.metrics.get('environment', '')) for run in runs))}: {len(runs)} runs"
    note = f"Differences are to the first run, {runs[0].name}. In brackets: 95 % intervals."
    return write_page(out, title=title.removeprefix(": "), subtitle=note, sections=list(_sections(runs)))


def _sections(runs: Sequence[Run]) -> Iterator[Section]:
    yield _about(runs)
    parts = (_one_step, _differences, _by_kind, _by_step, _worlds, _partings, _confidence, _anchoring)
    for part in parts:
        yield from part(runs)
    yield Section("Where these numbers come from", tables=(_texts("provenance", runs, _origin),))


def _texts(caption: str, runs: Sequence[Run], of: Callable[[Run], Mapping[str, Any]]) -> Table:
    """A column a run, a row for whatever any of them tells."""
    told = [of(run) for run in runs]
    names = dict.fromkeys(name for each in told for name in each)
    rows = [[kind(name), *(number(each.get(name)) for each in told)] for name in names]
    return Table(caption, _head(runs), rows, texts=True)


def _head(runs: Sequence[Run]) -> list[str]:
    return ["", *(run.name for run in runs)]


def _about(runs: Sequence[Run]) -> Section:
    return Section("The runs", tables=(_texts("what was measured", runs, _told),))


def _told(run: Run) -> Mapping[str, Any]:
    found = {key: run.metrics[key] for key in ("model", "environment_version", "split") if run.metrics.get(key)}
    for part, names in _SIZES.items():
        of = run.metrics.get(part) or {}
        found |= {name: of[key] for key, name in names.items() if key in of}
    return found


def _origin(run: Run) -> Mapping[str, Any]:
    origin = run.metrics.get("provenance") or {}
    return {key: origin.get(key) for key in ("command", "git_commit", "started", "seconds", "machine")}


def _part(runs: Sequence[Run], *keys: str) -> list[Mapping[str, Any]]:
    """What each run has under these keys, one within the other."""
    found: list[Any] = [run.metrics for run in runs]
    for key in keys:
        found = [each.get(key) or {} for each in found]
    return found


def _rows(parts: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> Rows:
    read = [dict(rates(part, names)) for part in parts]
    return {name: found for name in names.values() if any(found := [each.get(name) for each in read])}


def _beside(caption: str, runs: Sequence[Run], rows: Rows, *, first: Sequence[Sequence[str]] = ()) -> Table:
    made = [[name, *(rated(rate, name in RATIOS) for rate in found)] for name, found in rows.items()]
    return Table(caption, _head(runs), [*map(list, first), *made])


def _dots(rows: Rows, runs: Sequence[Run], label: str, salt: str) -> Markup:
    return Markup(dots_plot(rows, [run.name for run in runs], label, salt) if rows else "")


def _one_step(runs: Sequence[Run]) -> Iterator[Section]:
    parts = _part(runs, "one_step")
    if not any(parts):
        return
    exact, usual = _rows(parts, EXACT), [dict(baselines(part)) for part in parts]
    names = dict.fromkeys(name for each in usual for name in each)
    base = {f"baseline: {name}": [each.get(name) for each in usual] for name in names}
    shown = {name: found for name, found in exact.items() if name in PLOTTED} | base
    ends = _rows(_part(runs, "one_step", "terminal"), TERMINAL)
    tools = _rows(_part(runs, "one_step", "tool_answers"), TOOL_ANSWERS)
    note = "Each step is predicted from the real history before it. Baselines need no language model."
    yield Section("One step ahead", note, _dots(shown, runs, "%", "exact"), (
        _beside("exact match, its kinder forms, and baselines, %", runs, {**exact, **base}),
        _beside("the end, %", runs, ends), _beside("where a tool answers with JSON, %", runs, tools),
    ))  # fmt: skip


def _differences(runs: Sequence[Run]) -> Iterator[Section]:
    if not any(_part(runs, "one_step")):
        return
    found = {run.name: step_differences(runs[0], run) for run in runs[1:]}
    paired = {name: each for name, each in found.items() if not isinstance(each, str)}
    refused = "".join(f" Not for {name}: {why}." for name, why in found.items() if isinstance(why, str))
    note = f"Exact match less that of {runs[0].name}, in percentage points, on the same episodes.{refused}"
    rows = [[label, *(signed(Rate.of(each[key])) for each in paired.values())] for key, label in _DIFFERENCES.items()]
    for name in dict.fromkeys(name for each in paired.values() for name in each["strata"]):
        rows.append([kind(name), *(signed(Rate.of(each["strata"].get(name))) for each in paired.values())])
    head = ["points", *paired]
    counted = ("both", "first_only", "other_only", "neither")
    counts = [[name, *(number(each["steps"][key]) for key in counted), number(each["left_out"])]
              for name, each in paired.items()]  # fmt: skip
    told = ["run", "both", f"{runs[0].name} alone", "this run alone", "neither", "scored by one run alone"]
    yield Section("How much they differ", note, tables=(
        Table("paired differences", head, rows if paired else []), Table("steps that are right", told, counts),
    ))  # fmt: skip


def _by_kind(runs: Sequence[Run]) -> Iterator[Section]:
    parts = _part(runs, "one_step", "strata")
    names = {name: kind(name) for part in parts for name in sorted(part)}
    rows = _rows([{name: of.get("em") for name, of in part.items()} for part in parts], names)
    if rows:
        plot = {name: found for name, found in rows.items() if not name.startswith("verb ")}
        counts = {kind(name): [number(part.get(name, {}).get("n")) for part in parts] for name in names}
        steps = [[name, *counts[name]] for name in rows]
        yield Section("Exact match by kind of step", "A step is of several kinds.", _dots(plot, runs, "%", "kinds"), (
            _beside("exact match, %", runs, rows),
            Table("steps of each kind", _head(runs), steps, folded=True),
        ))  # fmt: skip


def _by_step(runs: Sequence[Run]) -> Iterator[Section]:
    curves = {
        run.name: {row["step"]: rate for row in part.get("by_step_index") or () if (rate := Rate.of(row.get("em")))}
        for run, part in zip(runs, _part(runs, "one_step"), strict=True)
    }
    yield from _curves("Exact match by step of the episode", curves, ("step of the episode", "exact match, %"), "steps")


def _curves(
    heading: str, curves: Mapping[str, Mapping[Any, Rate]], labels: tuple[str, str], salt: str, diagonal: bool = False
) -> Iterator[Section]:
    """A picture and its data; nothing where there is none."""
    if places := sorted({x for points in curves.values() for x in points}):
        points = {name: sorted(found.items()) for name, found in curves.items()}
        rows = [[f"{x:.4g}", *(rated(found.get(x)) for found in curves.values())] for x in places]
        data = Table("data of the plot", [labels[0], *curves], rows, folded=True)
        yield Section(heading, plot=Markup(curves_plot(points, labels, salt, diagonal=diagonal)), tables=(data,))


def _worlds(runs: Sequence[Run]) -> Iterator[Section]:
    overall = _part(runs, "consistency", "overall")
    if not any(overall):
        return
    rows = _rows(overall, WORLDS)
    sizes = [["episodes", *(number(part.get("n")) for part in overall)],
             ["tasks", *(number(part.get("n_tasks")) for part in _part(runs, "consistency"))]]  # fmt: skip
    plot = {name: found for name, found in rows.items() if name not in RATIOS}
    tables = [
        _beside("all agents together: rates in %, and their ratios", runs, rows, first=sizes),
        _agreements(runs),
        _by_agent(runs),
    ]
    found = {run.name: world_differences(runs[0], run) for run in runs[1:]}
    paired = {name: each for name, each in found.items() if not isinstance(each, str)}
    refused = "".join(f" Not paired with {name}: {why}." for name, why in found.items() if isinstance(why, str))
    if paired:
        apart = [[label, *(signed(Rate.of(each[key])) for each in paired.values())] for key, label in OTHERS.items()]
        caption = f"success less that of {runs[0].name}, same agents, tasks and seeds"
        tables.append(Table(caption, ["points", *paired], apart))
    note = f"Success in reality, in the model, and of the model's actions replayed. CR = W2R / Real.{refused}"
    yield Section("Real, imagined, replayed", note, _dots(plot, runs, "success, %", "worlds"), tuple(tables))


def _agreements(runs: Sequence[Run]) -> Table:
    rows = []
    for world, label in OTHERS.items():
        found = [Rate.of(part.get("kappa")) for part in _part(runs, "consistency", "overall", "agreement", world)]
        ranks = [Rate.of(part.get(f"kendall_{world}")) for part in _part(runs, "consistency", "rank_agreement")]
        for what, each in ((f"Cohen's kappa, {label} and Real", found), (f"Kendall's tau, {label} and Real", ranks)):
            if any(each):
                rows.append([what, *(rated(rate, ratio=True) for rate in each)])
    return Table("agreement with reality", _head(runs), rows)


def _by_agent(runs: Sequence[Run]) -> Table:
    parts = _part(runs, "consistency", "agents")
    agents = dict.fromkeys(agent for part in parts for agent in part)
    rows = [[a, *(rated(Rate.of(part.get(a, {}).get("cr")), ratio=True) for part in parts)] for a in agents]
    return Table("CR by agent", _head(runs), rows)


def _partings(runs: Sequence[Run]) -> Iterator[Section]:
    parts = dict(zip((run.name for run in runs), _part(runs, "consistency", "divergence"), strict=True))
    known = {name: part for name, part in parts.items() if part}
    if not known:
        return
    tables = [_causes("causes of the first difference, episodes (%)", {n: p["causes"] for n, p in known.items()})]
    if failed := {name: part["failed"]["causes"] for name, part in known.items() if part.get("failed")}:
        tables.append(_causes("why replays fail, episodes (%)", failed))
    steps = sorted({row["step"] for part in known.values() for row in part["survival"]})
    agree = {name: {row["step"]: row for row in part["survival"]} for name, part in known.items()}
    data = [[str(step), *(_agreeing(rows.get(step)) for rows in agree.values())] for step in steps]
    tables.append(Table("data of the plot", ["agreeing, % (of)", *known], data, folded=True))
    note = "Each imagined episode's actions in the real environment: the first step that says something else, and why."
    plot = survival_plot({name: part or {"survival": []} for name, part in parts.items()}) if steps else ""
    yield Section("Where replays leave what was imagined", note, Markup(plot), tuple(tables))


def _agreeing(row: Mapping[str, Any] | None) -> str:
    return f"{100 * row['agree']:.1f} ({row['n']})" if row else ABSENT


def _causes(caption: str, runs: Mapping[str, Mapping[str, int]]) -> Table:
    names, total = (
        dict.fromkeys(c for causes in runs.values() for c in causes),
        {n: sum(c.values()) for n, c in runs.items()},
    )
    rows = [
        [
            kind(cause),
            *(f"{causes.get(cause, 0)} ({share(causes.get(cause, 0), total[n])})" for n, causes in runs.items()),
        ]
        for cause in names
    ]
    return Table(caption, ["cause", *runs], [*rows, ["together", *map(number, total.values())]] if rows else [])


def _confidence(runs: Sequence[Run]) -> Iterator[Section]:
    parts = _part(runs, "confidence")
    if not any(parts):
        return
    read = [dict(aurocs(part)) for part in parts]
    rows = [
        [name, *(rated(each.get(name), ratio=True) for each in read)]
        for name in dict.fromkeys(n for e in read for n in e)
    ]
    bounds = [dict(bound_rows(part["risk_bound"]) if part.get("risk_bound") else ()) for part in parts]
    told = [
        [name, *(each.get(name, ABSENT) for each in bounds)] for name in dict.fromkeys(n for b in bounds for n in b)
    ]
    errors = [rated(Rate.of(part.get("ece"))) for part in parts]
    names = _head(runs)
    yield Section("Do they know when they are wrong", tables=(
        Table("area under the ROC curve (0.5 is chance, 1 is perfect)", names, rows),
        Table("calibration", names, [["expected calibration error, %", *errors]]),
        Table("a threshold for accepting a step", names, told),
    ))  # fmt: skip
    curves = {
        run.name: {100 * row["probability"]: Rate(**row["right"]) for row in part.get("calibration") or ()}
        for run, part in zip(runs, parts, strict=True)
    }
    labels = ("probability of the answer, %", "right, %")
    yield from _curves("Calibration", curves, labels, "calibrations", diagonal=True)


def _anchoring(runs: Sequence[Run]) -> Iterator[Section]:
    parts = {run.name: part for run, part in zip(runs, _part(runs, "anchoring"), strict=True)}
    if not any(parts.values()):
        return
    rows = [
        [f"{name}: {anchor}", *(rated(Rate.of(of.get(key)), key == "cr") for key in WITH_SHARE)]
        for name, part in parts.items()
        for anchor, of in part.items()
    ]
    curves = {}
    for name, part in parts.items():
        pairs = [(Rate.of(of.get("share_real")), Rate.of(of.get("cr"))) for of in part.values()]
        curves[name] = sorted((100 * share.value, cr) for share, cr in pairs if share and cr)
    labels = ("steps answered by the real environment, %", "CR")
    plot = Markup(curves_plot(curves, labels, "anchorings", percent=False) if any(curves.values()) else "")
    note = "The real environment answers some steps of the imagined episodes, and the world model goes on from there."
    yield Section("What real answers buy", note, plot, (Table("by anchor", ["anchor", *WITH_SHARE.values()], rows),))
