"""What a comparison says of whole episodes: success, where replays part, confidence, and real answers in between."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from worldloom.evaluate.beside import columns, curves_section, dots, parts_of, rate_columns, rows_of
from worldloom.evaluate.cells import RATIOS, WORLDS, kind, number, rated, signed
from worldloom.evaluate.compare import Run, world_differences
from worldloom.evaluate.consistency_sections import OTHERS, share, survival_plot
from worldloom.evaluate.curves import curves_plot
from worldloom.evaluate.page import Section
from worldloom.evaluate.plots import Rate
from worldloom.evaluate.trust import ANCHORED, anchored_table, aurocs, bound_rows

_AGREEMENT = {
    "Cohen's kappa, {} and Real": ("overall", "agreement", "{}", "kappa"),
    "Kendall's tau, {} and Real": ("rank_agreement", "kendall_{}"),
}


def worlds(runs: Sequence[Run]) -> Iterator[Section]:
    """Success in reality, in each model, and replayed."""
    overall = parts_of(runs, "consistency", "overall")
    if not any(overall):
        return
    rows = rows_of(overall, WORLDS)
    told, refused = _differences(runs)
    tables = (
        rate_columns("all agents together: rates in %, and their ratios", runs, rows),
        columns("of how many", {run.name: _sizes(run) for run in runs}),
        columns("agreement with reality", {run.name: _agreements(run) for run in runs}),
        columns("CR by agent", {run.name: _by_agent(run) for run in runs}),
        columns(f"success less that of {runs[0].name}, same agents, tasks and seeds, points", told),
    )
    plotted = {name: found for name, found in rows.items() if name not in RATIOS}
    note = f"Success in reality, in the model, and of the model's actions replayed. CR = W2R / Real.{refused}"
    yield Section("Real, imagined, replayed", note, dots(plotted, runs, "success, %", "worlds"), tables)


def _sizes(run: Run) -> Mapping[str, str]:
    found = run.metrics.get("consistency") or {}
    return {"tasks": number(found.get("n_tasks")), "episodes": number((found.get("overall") or {}).get("n"))}


def _agreements(run: Run) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for world, label in OTHERS.items():
        for what, (*keys, last) in _AGREEMENT.items():
            (part,) = parts_of([run], "consistency", *(key.format(world) for key in keys))
            if rate := Rate.of(part.get(last.format(world))):
                found[what.format(label)] = rated(rate, ratio=True)
    return found


def _by_agent(run: Run) -> Mapping[str, str]:
    (agents,) = parts_of([run], "consistency", "agents")
    return {agent: rated(Rate.of(of.get("cr")), ratio=True) for agent, of in agents.items()}


def _differences(runs: Sequence[Run]) -> tuple[dict[str, dict[str, str]], str]:
    """What stands in each run's column, and why not for others."""
    found = {run.name: world_differences(runs[0], run) for run in runs[1:]}
    refused = "".join(f" Not paired with {name}: {why}." for name, why in found.items() if isinstance(why, str))
    told = {
        name: {label: signed(Rate.of(each[key])) for key, label in OTHERS.items()}
        for name, each in found.items()
        if not isinstance(each, str)
    }
    return told, refused


def partings(runs: Sequence[Run]) -> Iterator[Section]:
    """Where replays leave what was imagined, and why they fail."""
    parts = dict(zip((run.name for run in runs), parts_of(runs, "consistency", "divergence"), strict=True))
    known = {name: part for name, part in parts.items() if part}
    if not known:
        return
    failed = {name: _causes(part["failed"]["causes"]) for name, part in known.items() if part.get("failed")}
    agree = {name: {f"{row['step']}": _agreeing(row) for row in part["survival"]} for name, part in known.items()}
    tables = (
        columns("causes of the first difference, episodes (%)", {n: _causes(p["causes"]) for n, p in known.items()}),
        columns("why replays fail, episodes (%)", failed),
        columns("data of the plot", agree, "agreeing after step, % (of)", folded=True),
    )
    note = "Each imagined episode's actions in the real environment: the first step that says something else, and why."
    plot = (
        survival_plot({name: part or {"survival": []} for name, part in parts.items()}) if any(agree.values()) else ""
    )
    yield Section("Where replays leave what was imagined", note, Markup(plot), tables)


def _agreeing(row: Mapping[str, Any]) -> str:
    return f"{100 * row['agree']:.1f} ({row['n']})"


def _causes(causes: Mapping[str, int]) -> Mapping[str, str]:
    of = sum(causes.values())
    return {"all": number(of)} | {kind(cause): f"{n} ({share(n, of)})" for cause, n in causes.items()}


def confidences(runs: Sequence[Run]) -> Iterator[Section]:
    """Whether each model knows when it is wrong."""
    parts = dict(zip((run.name for run in runs), parts_of(runs, "confidence"), strict=True))
    if not any(parts.values()):
        return
    areas = {name: {what: rated(rate, ratio=True) for what, rate in aurocs(part)} for name, part in parts.items()}
    errors = {name: {"expected calibration error, %": rated(Rate.of(of.get("ece")))} for name, of in parts.items()}
    bounds = {name: dict(bound_rows(of["risk_bound"]) if "risk_bound" in of else ()) for name, of in parts.items()}
    yield Section("Do they know when they are wrong", tables=(
        columns("area under the ROC curve (0.5 is chance, 1 is perfect)", areas), columns("calibration", errors),
        columns("a threshold for accepting a step", bounds),
    ))  # fmt: skip
    curves = {
        name: {100 * row["probability"]: r for row in part.get("calibration") or () if (r := Rate.of(row["right"]))}
        for name, part in parts.items()
    }
    labels = ("probability of the answer, %", "right, %")
    yield from curves_section("Calibration", curves, labels, "calibrations", diagonal=True)


def anchorings(runs: Sequence[Run]) -> Iterator[Section]:
    """What real answers in between buy each model."""
    parts = dict(zip((run.name for run in runs), parts_of(runs, "anchoring"), strict=True))
    if not any(parts.values()):
        return
    rows = {f"{name}: {anchor}": of for name, part in parts.items() for anchor, of in part.items()}
    curves = {name: _bought(part) for name, part in parts.items()}
    labels = ("steps answered by the real environment, %", "CR")
    plot = Markup(curves_plot(curves, labels, "anchorings", percent=False) if any(curves.values()) else "")
    yield Section("What real answers buy", ANCHORED, plot, (anchored_table(rows),))


def _bought(part: Mapping[str, Any]) -> list[tuple[float, Rate]]:
    pairs = [(Rate.of(of.get("share_real")), Rate.of(of.get("cr"))) for of in part.values()]
    return sorted((100 * answered.value, cr) for answered, cr in pairs if answered and cr)
