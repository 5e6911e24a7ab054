"""The pictures of a study: exact match over the amount of data, and arms beside each other."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from worldloom.evaluate.plots import BASE, INK, WM, Bars, Rate, as_svg, bounds_of, draw_bars, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MANY = 4  # groups of bars that fit beside each other in the usual width


def data_plot(arms: Sequence[Mapping[str, Any]]) -> str:
    """Exact match in percent over the trajectories that were learnt, on a logarithmic axis, with what guessing from
    the same logs gives.

    Args:
        arms: of one world, at least one; see ``study.metrics.arm_metrics``.
    """
    figure, (axes,) = new_figure(6.6, 3.2)
    for key, label, colour in (("em", "world model", WM), ("retrieval", "nearest transition", BASE)):
        rated = [(arm["trajectories"], rate) for arm in arms if (rate := Rate.of(arm.get(key)))]
        if rated:
            _draw_curve(axes, rated, label, colour)
    axes.set_xscale("log")
    axes.set_xticks([arm["trajectories"] for arm in arms], [f"{arm['trajectories']:,}" for arm in arms])
    axes.minorticks_off()
    axes.set(xlabel="trajectories", ylabel="exact match, %", ylim=(0, 102))
    axes.legend(loc="lower right", frameon=False, labelcolor=INK)
    return as_svg(figure, "data")


def arms_plot(arms: Mapping[str, Mapping[str, Any]]) -> str:
    """Exact match of arms in percent, beside what guessing from their logs gives."""
    figure, (axes,) = new_figure(max(6.6, 6.6 * len(arms) / MANY), 2.9)
    series = [Bars("world model", WM, [Rate.of(arm["em"]) for arm in arms.values()])]
    usual = [Rate.of(arm.get("retrieval")) for arm in arms.values()]
    if any(usual):
        series.append(Bars("nearest transition", BASE, usual))
    draw_bars(axes, list(arms), series)
    axes.set_ylabel("exact match, %")
    return as_svg(figure, "arms")


def _draw_curve(axes: "Axes", rated: Sequence[tuple[int, Rate]], label: str, colour: str) -> None:
    counts, bounds = [count for count, _ in rated], [bounds_of(rate) for _, rate in rated]
    axes.plot(counts, [100 * rate.value for _, rate in rated], color=colour, marker="o", linewidth=1.4, label=label)
    low, high = zip(*bounds, strict=True)
    axes.fill_between(counts, low, high, color=colour, alpha=0.18, linewidth=0)
