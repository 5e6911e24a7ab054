"""Pictures of one or several runs: rates as dots with intervals, and curves. Each run keeps its colour and mark."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from worldloom.evaluate.plots import BASE, INK, RUNS, Rate, as_svg, bounds_of, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS = "osD^vP"
Point = tuple[float, Rate]


class Look(NamedTuple):
    """The colour and the mark of a run, for those too who see no colours."""

    colour: str
    mark: str


def look(place: int) -> Look:
    """Of the run at this place; the seventh looks like the first."""
    return Look(RUNS[place % len(RUNS)], MARKS[place % len(MARKS)])


def dots_plot(groups: Mapping[str, Sequence[Rate | None]], runs: Sequence[str], label: str, salt: str) -> str:
    """Rates in percent with their intervals, from top to bottom: a group of dots a name, a dot a run.

    Args:
        groups: at least one name -> its rate in each run, None where it was not measured.
        runs: their names, in the same order; a single one is not named.
        label: under the axis.
    """
    figure, (axes,) = new_figure(6.6, 0.75 + len(groups) * (0.14 + 0.16 * len(runs)))
    for place, name in enumerate(runs):
        offset = (place - (len(runs) - 1) / 2) * 0.8 / max(2, len(runs))
        found = [(row + offset, rate[place]) for row, rate in enumerate(groups.values())]
        _draw_dots(axes, [(y, rate) for y, rate in found if rate], look(place), name)
    axes.set_yticks(range(len(groups)), list(groups))
    axes.set(ylim=(len(groups) - 0.45, -0.55), xlim=(-2, 102), xlabel=label)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=BASE, linewidth=0.5, alpha=0.5)
    axes.tick_params(axis="y", length=0)
    _name(figure, runs)
    return as_svg(figure, salt)


def _draw_dots(axes: "Axes", rates: Sequence[tuple[float, Rate]], seen: Look, name: str) -> None:
    for y, rate in rates:
        axes.plot(bounds_of(rate), [y, y], color=seen.colour, linewidth=1.4)
    values, places = [100 * rate.value for _, rate in rates], [y for y, _ in rates]
    axes.plot(values, places, color=seen.colour, marker=seen.mark, markersize=5, linestyle="none", label=name)


def curves_plot(
    curves: Mapping[str, Sequence[Point]], labels: tuple[str, str], salt: str, *, percent: bool = True,
    diagonal: bool = False,
) -> str:  # fmt: skip
    """Rates over some number, a curve a run.

    Args:
        curves: the run's name -> its points, in order; a run without any keeps its colour and is not drawn.
        labels: of the two axes.
        percent: the rates, in percent up to 100; quotients are drawn as they are over a share, with a line at 1.
        diagonal: both axes are shares, and where they are equal is drawn.
    """
    from matplotlib.ticker import MaxNLocator

    figure, (axes,) = new_figure(6.6, 3.4)
    if diagonal:
        axes.plot([0, 100], [0, 100], color=BASE, linewidth=1)
    if not percent:
        axes.axhline(1.0, color=BASE, linewidth=1)
    for place, (name, points) in enumerate(curves.items()):
        if points:
            _draw_curve(axes, points, look(place), name, 100 if percent else 1, len(curves) == 1)
    axes.set(xlabel=labels[0], ylabel=labels[1], **({"ylim": (-2, 102)} if percent else {}))
    if not percent:
        axes.set_ylim(bottom=0)
    if diagonal or not percent:
        axes.set_xlim(-3, 103)
    if all(x == int(x) for points in curves.values() for x, _ in points):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    _name(figure, list(curves))
    return as_svg(figure, salt)


def _draw_curve(axes: "Axes", points: Sequence[Point], seen: Look, name: str, scale: int, banded: bool) -> None:
    """With a band for the intervals where it is alone, with lines up and down where there are others."""
    xs, rates = [x for x, _ in points], [rate for _, rate in points]
    lows, highs = zip(*((low * scale / 100, high * scale / 100) for low, high in map(bounds_of, rates)), strict=True)
    axes.plot(xs, [scale * rate.value for rate in rates], color=seen.colour, marker=seen.mark, markersize=3.5,
              linewidth=1.4, label=name)  # fmt: skip
    if banded:
        axes.fill_between(xs, lows, highs, color=seen.colour, alpha=0.18, linewidth=0)
    elif len(points) <= 2 * len(MARKS):  # more of them would hide the curves
        axes.vlines(xs, lows, highs, color=seen.colour, linewidth=0.8, alpha=0.6)


def _name(figure: "Figure", runs: Sequence[str]) -> None:
    if len(runs) > 1:
        columns = max(1, min(len(runs), 75 // max(map(len, runs))))  # as many as fit
        figure.legend(loc="outside upper left", ncols=columns, frameon=False, labelcolor=INK, fontsize=9)
