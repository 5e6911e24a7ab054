"""The report of a run: one HTML file that needs nothing else, not even a network.

What was not measured is absent from it; a cell that has no value says "-", never 0.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from worldloom.evaluate.cells import (
    ABSENT,
    EXACT,
    RATE_HEAD,
    RATIOS,
    TERMINAL,
    TOOL_ANSWERS,
    WORLDS,
    baselines,
    facts,
    interval,
    kind,
    number,
    rate_row,
    rates,
    size,
    value,
)
from worldloom.evaluate.consistency_sections import consistency_section, divergence_section
from worldloom.evaluate.curves import dots_plot
from worldloom.evaluate.logged import baseline_models, ingest_section, rollouts_section
from worldloom.evaluate.page import Headline, Section, Table, write_page
from worldloom.evaluate.plots import Rate, loss_plot, step_plot
from worldloom.evaluate.trust import anchoring_section, confidence_section, transfer_section
from worldloom.evaluate.viewer import select

_TOLD = ("environment", "environment_version", "split", "model")
_OWN_SECTION = {
    "name", *_TOLD, "provenance", "train", "one_step", "consistency", "confidence", "anchoring", "transfer",
    "rollouts", "ingest",
}  # fmt: skip


def write_report(
    path: Path,
    *,
    title: str,
    metrics: Mapping[str, Any],
    records: Iterable[Mapping[str, Any]],
    loss_curve: Sequence[tuple[int, float]] = (),
) -> Path:
    """Write the report, replacing the file in one move, and return its path.

    Args:
        path: The HTML file to write; its folder is made.
        title: The heading.
        metrics: What ``metrics.json`` holds (DESIGN 6.5); rates are fractions, and any part may be missing.
        records: The lines of ``records.jsonl``, of kind ``one_step`` and ``consistency``.
        loss_curve: (training step, loss per token), in order.
    """
    shown = select(records)
    return write_page(
        path,
        title=title,
        subtitle=" · ".join(str(metrics[key]) for key in _TOLD if metrics.get(key)),
        headlines=list(_headlines(metrics)),
        sections=list(_sections(metrics, loss_curve)),
        episodes=shown.episodes,
        left_out=shown.left_out,
    )


def _headlines(metrics: Mapping[str, Any]) -> Iterator[Headline]:
    one_step, consistency = metrics.get("one_step") or {}, metrics.get("consistency") or {}
    if rate := Rate.of(one_step.get("em")):
        yield _headline("exact match", rate, _size(one_step))
    if found := list(baselines(one_step)):
        name, rate = max(found, key=lambda baseline: baseline[1].value)
        yield _headline("best baseline", rate, name)
    if rate := Rate.of(((metrics.get("rollouts") or {}).get("verdicts") or {}).get("accuracy")):
        yield _headline("verdict as logged", rate)
    for name, rate in rates(one_step.get("terminal"), TERMINAL):
        if name != "terminal F1":
            yield _headline(name, rate)
    overall = consistency.get("overall") or {}
    of = [(overall.get("n"), "episodes"), (consistency.get("n_tasks"), "tasks")]
    for name, rate in rates(overall, WORLDS):
        if name != "paired CR":
            wins = [(rate.total, "real wins")] if name in RATIOS else []
            yield _headline(name, rate, _counted([*of, *wins]))


def _headline(name: str, rate: Rate, of: str = "") -> Headline:
    ratio = name in RATIOS
    told = value(rate, ratio) if ratio else f"{value(rate)} %"
    return Headline(name, told, interval(rate, ratio), of or ("" if rate.n is None else f"n = {size(rate)}"))


def _size(one_step: Mapping[str, Any]) -> str:
    return _counted([(one_step.get("n_steps"), "steps"), (one_step.get("n_episodes"), "episodes")])


def _counted(things: Iterable[tuple[int | None, str]]) -> str:
    return ", ".join(f"{number(n)} {what}" for n, what in things if n is not None)


def _sections(metrics: Mapping[str, Any], loss_curve: Sequence[tuple[int, float]]) -> Iterator[Section]:
    if one_step := metrics.get("one_step"):
        yield _one_step(one_step)
        if strata := one_step.get("strata"):
            yield from _strata(strata)
        if by_step := [row for row in one_step.get("by_step_index") or () if Rate.of(row.get("em"))]:
            yield _by_step(by_step)
    if consistency := metrics.get("consistency"):
        yield consistency_section(consistency)
        if divergence := consistency.get("divergence"):
            yield divergence_section(divergence)
    if rollouts := metrics.get("rollouts"):
        yield rollouts_section(rollouts, alone=not consistency)
    if confidence := metrics.get("confidence"):
        yield confidence_section(confidence)
    if anchoring := metrics.get("anchoring"):
        yield anchoring_section(anchoring)
    if transfer := metrics.get("transfer"):
        yield transfer_section(transfer)
    if ingest := metrics.get("ingest"):
        yield ingest_section(ingest)
    if loss_curve or metrics.get("train"):
        yield _training(metrics.get("train") or {}, loss_curve)
    if rest := {key: value for key, value in metrics.items() if key not in _OWN_SECTION}:
        yield Section("Other measurements", tables=(facts("as metrics.json has them", rest),))
    if provenance := metrics.get("provenance"):
        yield Section("Where these numbers come from", tables=(facts("provenance", provenance),))


def _one_step(one_step: Mapping[str, Any]) -> Section:
    steps = one_step.get("n_steps")
    rows = [rate_row(name, rate, steps) for name, rate in rates(one_step, EXACT)]
    rows += [rate_row(name, rate) for name, rate in rates(one_step.get("terminal"), TERMINAL)]
    tables = [Table("world model", RATE_HEAD, rows)]
    if answers := one_step.get("tool_answers"):
        rows = [rate_row(name, rate, answers["n"]) for name, rate in rates(answers, TOOL_ANSWERS)]
        tables.append(Table("where a tool answers with JSON", RATE_HEAD, rows))
    if found := list(baselines(one_step)):
        rows = [rate_row(name, rate, steps) for name, rate in found]
        tables.append(Table("baselines without a language model, exact match", RATE_HEAD, rows))
    if by_agent := one_step.get("by_agent"):
        rows = [rate_row(name, rate) for name, rate in rates(by_agent, {agent: agent for agent in by_agent})]
        tables.append(Table("by who acted, exact match", RATE_HEAD, rows))
    if models := baseline_models(one_step.get("baselines") or {}):
        tables.append(models)
    note = f"Each step is predicted from the real history before it. {_size(one_step)}. n: steps in how many episodes."
    if left_out := one_step.get("left_out"):
        note += f" {number(left_out)} more are left out: they do not fit the model's window, or got no answer."
    return Section("One step ahead", note, tables=tuple(tables))


def _strata(strata: Mapping[str, Any]) -> Iterator[Section]:
    """Nothing if no kind of step has a rate."""
    read = [(kind(name), Rate.of(of.get("em")), of.get("n")) for name, of in strata.items()]
    if found := [(name, rate, n) for name, rate, n in read if rate]:
        plot = dots_plot({name: [rate] for name, rate, _ in found}, [""], "exact match, %", "strata")
        rows = [[name, value(rate), interval(rate) or ABSENT, number(n)] for name, rate, n in found]
        table = Table("by kind of step, exact match", [*RATE_HEAD[:3], "steps"], rows)
        note = "Where the model knows its world, and where not. A step is of several kinds."
        yield Section("Exact match by kind of step", note, Markup(plot), (table,))


def _by_step(by_step: Sequence[Mapping[str, Any]]) -> Section:
    rated = [(row, Rate.of(row.get("em"))) for row in by_step]
    rows = [rate_row(str(row["step"]), rate, row["n"]) for row, rate in rated if rate]
    data = Table("data of the plot", ["step", *RATE_HEAD[1:]], rows, folded=True)
    note = "The band is the interval; the bars beneath say how many episodes have such a step."
    return Section("Exact match by step of the episode", note, Markup(step_plot(by_step)), (data,))


def _training(train: Mapping[str, Any], loss_curve: Sequence[tuple[int, float]]) -> Section:
    tables = [facts("training", train)] if train else []
    if not loss_curve:
        return Section("Training", tables=tuple(tables))
    rows = [[str(step), f"{loss:.4g}"] for step, loss in loss_curve]
    tables.append(Table("data of the plot", ["training step", "loss"], rows, folded=True))
    return Section("Training", "Loss per token.", Markup(loss_plot(loss_curve)), tuple(tables))
