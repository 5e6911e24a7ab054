"""The report of a study: one HTML file that needs nothing else, and its pictures as files of their own."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from worldloom.evaluate.cells import ABSENT, RATE_HEAD, facts, interval, number, rate_row, value
from worldloom.evaluate.page import Section, Table, write_page
from worldloom.evaluate.plots import Rate, agents_plot, standalone
from worldloom.study.plots import arms_plot, data_plot

Record = Mapping[str, Any]
TITLES = {
    "data": "How much data a world model needs",
    "mixture": "One model of several environments against one of each",
    "coverage": "Data of one agent against data of several",
    "ood": "Rooms and layouts seen and not seen in training",
    "context": "With and without being told the initial state",
}
NOTES = {
    "data": "One pass over the episodes at a constant learning rate; the model is kept after each number of them, so "
    "each point is the model that a pass over the first so many would give.",
    "mixture": "The mixture learns as many episodes of each environment as the model of that environment alone.",
    "coverage": "As many episodes in both; what is measured is an agent that neither model has seen.",
    "ood": "One model. The splits are of different tasks, so their intervals are to be compared, not their steps.",
    "context": "The same tasks and agents; only what stands before the first observation differs.",
}
HEAD = ["arm", "trajectories", "tokens", "minutes", "exact match, %", "steps", "nearest transition, %"]
PLAYED_HEAD = ["arm and agent", "tasks", "Real, %", "WM, %", "W2R, %", "CR"]


def write_study(path: Path, metrics: Record) -> Path:
    """Write the report of a study, and beside it each picture as an SVG file, and return its path.

    Args:
        path: the HTML file.
        metrics: what ``metrics.json`` holds.
    """
    found = metrics["study"]
    sections = list(_sections(metrics, found))
    for place, section in enumerate((section for section in sections if section.plot), 1):
        (path.parent / f"plot-{place}.svg").write_text(standalone(str(section.plot)), encoding="utf-8")
    about = " · ".join(str(metrics[key]) for key in ("environment", "split", "model"))
    return write_page(path, title=TITLES[found["kind"]], subtitle=about, sections=sections)


def _sections(metrics: Record, found: Record) -> Iterator[Section]:
    arms = found["arms"]
    table = Table("arms", HEAD, [arm_row(name, arm) for name, arm in arms.items()])
    if found["kind"] == "data":
        yield from _curves(arms, table)
    else:
        yield Section("The next observation", NOTES[found["kind"]], Markup(arms_plot(arms)), (table,))
    if found["differences"]:
        rows = [rate_row(name, rate) for name, of in found["differences"].items() if (rate := Rate.of(of))]
        note = "Exact match of one arm less that of the other, on the same episodes."
        yield Section("How far arms are apart", note, tables=(Table("differences, in points", RATE_HEAD, rows),))
    if played := {name: arm for name, arm in arms.items() if arm.get("real")}:
        yield Section("Real, imagined, replayed", _PLAYED, Markup(agents_plot(played)), (_players(played),))
    yield Section("How it was made", tables=(facts("settings", found["settings"]),))
    yield Section("Where these numbers come from", tables=(facts("provenance", metrics["provenance"]),))


_PLAYED = (
    "The same agents on the same tasks in the real environment (Real), inside the world model (WM), and the actions "
    "chosen there replayed in the real environment (W2R). CR = W2R / Real."
)


def _curves(arms: Mapping[str, Record], table: Table) -> Iterator[Section]:
    for place, world in enumerate(dict.fromkeys(arm["world"] for arm in arms.values())):
        own = [arm for arm in arms.values() if arm["world"] == world]
        note, tables = (NOTES["data"], (table,)) if place == 0 else ("", ())
        yield Section(f"Exact match by trajectories: {world}", note, Markup(data_plot(own)), tables)


def arm_row(name: str, arm: Record) -> list[str]:
    """A row under ``HEAD``."""
    cells = [name, number(arm["trajectories"]), number(arm["tokens"]), number(arm["minutes"])]
    return [*cells, _cell(Rate.of(arm["em"])), number(arm["n_steps"]), _cell(Rate.of(arm.get("retrieval")))]


def _players(arms: Mapping[str, Record]) -> Table:
    """Each arm's agents, and all of them together where there are several."""
    rows = []
    for name, arm in arms.items():
        agents = {f"{name}: {agent}": of for agent, of in arm["agents"].items()}
        together = {f"{name}, all": arm} if len(agents) > 1 else {}
        rows += [[told, number(arm["n_tasks"]), *_played(of)] for told, of in {**agents, **together}.items()]
    return Table("by arm and agent", PLAYED_HEAD, rows)


def _played(of: Record) -> list[str]:
    return [_cell(Rate.of(of.get(key)), key == "cr") for key in ("real", "wm", "w2r", "cr")]


def _cell(rate: Rate | None, ratio: bool = False) -> str:
    return f"{value(rate, ratio)} {interval(rate, ratio)}".strip() if rate else ABSENT
