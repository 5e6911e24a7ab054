"""Tables and pictures with a column, a dot or a curve for each of several runs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from worldloom.evaluate.cells import ABSENT, RATIOS, counted, rates
from worldloom.evaluate.compare import Run
from worldloom.evaluate.curves import curves_plot, dots_plot
from worldloom.evaluate.page import Section, Table
from worldloom.evaluate.plots import Rate

Rows = Mapping[str, Sequence[Rate | None]]  # what it is -> its rate in each run
Told = Mapping[str, Mapping[str, str]]  # the name of each run -> what it is -> what stands in the cell


def parts_of(runs: Sequence[Run], *keys: str) -> list[Mapping[str, Any]]:
    """What each run has under these keys, one within the other; empty where it has nothing."""
    found: list[Any] = [run.metrics for run in runs]
    for key in keys:
        found = [each.get(key) or {} for each in found]
    return found


def rows_of(parts: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> Rows:
    """The rates of ``names`` (key -> what it is called) that any of the runs has."""
    read = [dict(rates(part, names)) for part in parts]
    return {name: found for name in names.values() if any(found := [each.get(name) for each in read])}


def columns(caption: str, told: Told, corner: str = "", *, folded: bool = False, texts: bool = False) -> Table:
    """A column a run, a row for whatever any of them tells."""
    names = dict.fromkeys(name for cells in told.values() for name in cells)
    rows = [[name, *(cells.get(name, ABSENT) for cells in told.values())] for name in names]
    return Table(caption, [corner, *told], rows, folded, texts)


def rate_columns(caption: str, runs: Sequence[Run], rows: Rows, *, folded: bool = False) -> Table:
    """Rates in percent with their intervals and of how many they are; those of ``RATIOS`` as they are."""
    told = {
        run.name: {name: counted(found[place], name in RATIOS) for name, found in rows.items()}
        for place, run in enumerate(runs)
    }
    return columns(caption, told, folded=folded)


def dots(rows: Rows, runs: Sequence[Run], label: str, salt: str) -> Markup:
    """The rates as a picture; nothing if there is none."""
    return Markup(dots_plot(rows, [run.name for run in runs], label, salt) if rows else "")


def curves_section(
    heading: str, curves: Mapping[str, Mapping[float, Rate]], labels: tuple[str, str], salt: str,
    diagonal: bool = False,
) -> Iterator[Section]:  # fmt: skip
    """A curve a run and the data of the plot; nothing where there is none."""
    if places := sorted({x for points in curves.values() for x in points}):
        points = {name: sorted(found.items()) for name, found in curves.items()}
        rows = [[f"{x:.4g}", *(counted(found.get(x)) for found in curves.values())] for x in places]
        data = Table("data of the plot", [labels[0], *curves], rows, folded=True)
        yield Section(heading, plot=Markup(curves_plot(points, labels, salt, diagonal=diagonal)), tables=(data,))
