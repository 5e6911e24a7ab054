"""Plots as small SVG texts that follow the reader's light or dark colours.

matplotlib draws; each colour it wrote is then replaced by a CSS variable with that colour as its fallback,
and the texts keep the reader's own sans-serif font, so that nothing is loaded and every word can be selected.
"""

import re
from collections.abc import Mapping, Sequence
from io import StringIO
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# CSS variable -> its light and its dark colour. Blue, orange and green stay apart for colour-blind readers too.
PALETTE = {
    "ink": ("#1f2430", "#e4e6eb"),
    "muted": ("#667085", "#98a2b3"),
    "grid": ("#dfe3ea", "#343b49"),
    "real": ("#2f6db5", "#74a9ec"),
    "wm": ("#d97a1e", "#f2a65a"),
    "w2r": ("#16897a", "#4cc4b3"),
    "base": ("#b3bac7", "#5b6577"),
    "fourth": ("#8250c4", "#b794f6"),
    "fifth": ("#b83a6b", "#f28ab2"),
    "sixth": ("#7d6a12", "#d6bf55"),
}
INK, MUTED, GRID, REAL, WM, W2R, BASE, *MORE = (light for light, _ in PALETTE.values())
RUNS = (WM, REAL, W2R, *MORE)  # colours of runs beside each other
WORLDS = (("real", "Real", REAL), ("wm", "WM", WM), ("w2r", "W2R", W2R))
BASELINES = {
    "repeat_last": "repeat last",
    "nothing_happens": "nothing happens",
    "majority_reply": "majority reply",
    "retrieval": "nearest transition",
    "nearest_reply": "nearest logged reply",
}
PROMPTED = "few_shot"  # a baseline that is a language model, measured on some of the episodes: in no list of the others
_BESIDE = 4  # groups of bars that leave room for another plot beside them
_LOG_AXIS_FROM = 20  # a loss that falls by this factor is read off a logarithmic axis


class Rate(NamedTuple):
    """A measured rate as a fraction, its interval, how many episodes or tasks it is over, and its denominator where
    that is another number; None where not measured."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    total: int | None = None

    @classmethod
    def of(cls, found: Any) -> "Rate | None":
        """Read a number or ``{"value", "low", "high", "n", "of"}``; None if there is no value in it."""
        if isinstance(found, Mapping):
            value, *more = (found.get(key) for key in ("value", "low", "high", "n", "of"))
            return None if value is None else cls(value, *more)
        return None if found is None else cls(float(found))


class Bars(NamedTuple):
    """One colour of a grouped bar chart: a rate, or None, for each group."""

    label: str
    colour: str
    rates: Sequence[Rate | None]


def loss_plot(curve: Sequence[tuple[int, float]]) -> str:
    """The training loss per token over optimizer steps."""
    figure, (axes,) = new_figure(6.6, 2.7)
    steps, losses = zip(*curve, strict=True)
    axes.plot(steps, losses, color=WM, linewidth=1.4)
    if min(losses) > 0 and max(losses) / min(losses) > _LOG_AXIS_FROM:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
    axes.set(xlabel="training step", ylabel="loss")
    return as_svg(figure, "loss")


def step_plot(by_step: Sequence[Mapping[str, Any]]) -> str:
    """EM in percent by the step's place in its episode; how many steps there are, beneath.

    Args:
        by_step: At least one ``{"step", "n", "em"}``; every ``em`` has a value.
    """
    figure, (axes, counts) = new_figure(6.6, 3.4, nrows=2, height_ratios=(4, 1), sharex=True)
    steps, rates = [row["step"] for row in by_step], [rate for row in by_step if (rate := Rate.of(row["em"]))]
    axes.plot(steps, [100 * rate.value for rate in rates], color=WM, marker="o", markersize=3, linewidth=1.4)
    bounds = [bounds_of(rate) for rate in rates]
    axes.fill_between(
        steps, [low for low, _ in bounds], [high for _, high in bounds], color=WM, alpha=0.18, linewidth=0
    )
    axes.set(ylabel="exact match, %", ylim=(min(80, *(low for low, _ in bounds)) - 1, 101))
    counts.bar(steps, [row["n"] for row in by_step], color=BASE)
    counts.set(xlabel="step of the episode", ylabel="n")
    return as_svg(figure, "steps")


def agents_plot(agents: Mapping[str, Mapping[str, Any]]) -> str:
    """Real, WM and W2R success in percent for each agent, with intervals."""
    figure, (axes,) = new_figure(6.6, 2.9)
    _draw_worlds(axes, agents)
    return as_svg(figure, "agents")


def novelty_plot(over_time: Sequence[Mapping[str, Any]]) -> str:
    """The share of steps, in percent, that were new when they came, over the episodes recorded so far.

    Args:
        over_time: At least one ``{"episodes", "new"}``.
    """
    figure, (axes,) = new_figure(6.6, 2.7)
    axes.plot([row["episodes"] for row in over_time], [100 * row["new"] for row in over_time], color=WM, marker="o",
              markersize=3, linewidth=1.4)  # fmt: skip
    axes.set(xlabel="episodes", ylabel="new steps, %", ylim=(0, 102), xlim=(0, None))
    return as_svg(figure, "novelty")


def kinds_plot(kinds: Mapping[str, Mapping[str, Any]]) -> str:
    """How often each kind of action was seen, and how often it failed.

    Args:
        kinds: At least one name -> ``{"steps", "failed"}``.
    """
    figure, (axes,) = new_figure(6.6, 0.8 + 0.26 * len(kinds))
    names, failed = list(kinds), [found["failed"] for found in kinds.values()]
    worked = [found["steps"] - found["failed"] for found in kinds.values()]
    places = range(len(names))
    axes.barh(places, worked, color=REAL, label="worked")
    axes.barh(places, failed, left=worked, color=WM, label="failed")
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("steps")
    axes.legend(loc="lower right", frameon=False, labelcolor=INK)
    return as_svg(figure, "kinds")


def calibration_plot(curve: Sequence[Mapping[str, Any]]) -> str:
    """The share that is right by the probability given to an answer, in percent; how many there are, beneath.

    Args:
        curve: At least one ``{"low", "high", "n", "probability", "right"}``.
    """
    figure, (axes, counts) = new_figure(4.6, 4.2, nrows=2, height_ratios=(4, 1), sharex=True)
    axes.plot([0, 100], [0, 100], color=BASE, linewidth=1)
    places = [100 * row["probability"] for row in curve]
    for place, row in zip(places, curve, strict=True):
        if rate := Rate.of(row["right"]):
            axes.plot([place, place], bounds_of(rate), color=INK, linewidth=1)
    axes.plot(places, [100 * row["right"]["value"] for row in curve], color=WM, marker="o", markersize=4, linewidth=1.4)
    axes.set(ylabel="right, %", ylim=(-2, 102))
    middles, widths = zip(
        *((50 * (row["low"] + row["high"]), 90 * (row["high"] - row["low"])) for row in curve), strict=True
    )
    counts.bar(middles, [row["n"] for row in curve], widths, color=BASE)
    counts.set(xlabel="probability of the answer, %", ylabel="n", xlim=(-2, 102))
    return as_svg(figure, "calibration")


def anchoring_plot(anchors: Mapping[str, Mapping[str, Any]]) -> str:
    """CR against the share of steps that the real environment answered, with intervals; one point an anchor."""
    figure, (axes,) = new_figure(6.6, 3.2)
    points = [(name, Rate.of(of.get("share_real")), Rate.of(of.get("cr"))) for name, of in anchors.items()]
    for name, share, cr in points:
        if share and cr:
            low, high = bounds_of(cr)
            axes.plot([100 * share.value] * 2, [low / 100, high / 100], color=INK, linewidth=1)
            axes.plot([100 * share.value], [cr.value], color=W2R, marker="o", markersize=5)
            axes.annotate(
                name, (100 * share.value, cr.value), (5, 5), textcoords="offset points", color=INK, fontsize=8
            )
    axes.axhline(1.0, color=BASE, linewidth=1)
    axes.set(xlabel="steps answered by the real environment, %", ylabel="CR", xlim=(-3, 108))
    axes.margins(y=0.15)
    axes.set_ylim(bottom=0)
    return as_svg(figure, "anchoring")


def write_readme_plot(path: Path, metrics_by_env: Mapping[str, Mapping[str, Any]]) -> Path:
    """Write the README's picture from recorded results: EM beside its baselines, and Real/WM/W2R.

    Args:
        path: The SVG file to write.
        metrics_by_env: The label under a group of bars -> the metrics of that run (DESIGN 6.5). A run without
            ``one_step`` or ``consistency`` is left out of that half; a half without runs is left out.

    Raises:
        ValueError: nothing was measured that could be drawn.
    """
    exact = {name: run["one_step"] for name, run in metrics_by_env.items() if run.get("one_step")}
    worlds = {name: run["consistency"]["overall"] for name, run in metrics_by_env.items() if run.get("consistency")}
    halves = [
        (_draw_exact, exact, "The next observation"),
        (_draw_worlds, worlds, "The same agents, real and imagined"),
    ]
    halves = [half for half in halves if half[1]]  # what nobody measured is not drawn
    if not halves:
        raise ValueError("no one_step and no consistency in any of the metrics: evaluate first, then draw")
    if max(len(runs) for _, runs, _ in halves) > _BESIDE:
        figure, axes = new_figure(8.8, 2.9 * len(halves), nrows=len(halves))
    else:
        figure, axes = new_figure(4.4 * len(halves), 2.9, ncols=len(halves))
    for place, (draw, runs, title) in zip(axes, halves, strict=True):
        draw(place, runs)
        place.set_title(title, color=INK, fontsize=10, loc="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(standalone(as_svg(figure, "readme")), encoding="utf-8")
    return path


def colours(scheme: int) -> str:
    """The palette as CSS declarations: 0 is the light scheme, 1 the dark one."""
    return " ".join(f"--{name}: {pair[scheme]};" for name, pair in PALETTE.items())


def _draw_exact(axes: "Axes", runs: Mapping[str, Mapping[str, Any]]) -> None:
    baselines = [run.get("baselines") or {} for run in runs.values()]
    rated = [
        [rate for name, each in found.items() if name != PROMPTED and (rate := Rate.of(each.get("em")))]
        for found in baselines
    ]
    best = [max(rates, key=attrgetter("value"), default=None) for rates in rated]
    series = [Bars("world model", WM, [Rate.of(run["em"]) for run in runs.values()])]
    if any(best):
        series.append(Bars("best trivial baseline", BASE, best))
    draw_bars(axes, list(runs), series)
    axes.set_ylabel("exact match, %")


def _draw_worlds(axes: "Axes", runs: Mapping[str, Mapping[str, Any]]) -> None:
    series = [Bars(label, colour, [Rate.of(run.get(key)) for run in runs.values()]) for key, label, colour in WORLDS]
    draw_bars(axes, list(runs), series)
    axes.set_ylabel("success, %")


def draw_bars(axes: "Axes", groups: Sequence[str], series: Sequence[Bars]) -> None:
    """Grouped bars in percent with their intervals."""
    width = 0.8 / len(series)
    for place, bars in enumerate(series):
        shown = [(x, rate) for x, rate in enumerate(bars.rates) if rate]
        xs = [x + (place - (len(series) - 1) / 2) * width for x, _ in shown]
        axes.bar(xs, [100 * rate.value for _, rate in shown], width * 0.9, color=bars.colour, label=bars.label)
        for x, (_, rate) in zip(xs, shown, strict=True):
            low, high = bounds_of(rate)
            axes.plot([x, x], [low, high], color=INK, linewidth=1)
            axes.text(x, high + 2, f"{100 * rate.value:.0f}", ha="center", fontsize=8, color=INK)
    axes.set_xticks(range(len(groups)), groups)
    axes.tick_params(axis="x", length=0)
    axes.set(ylim=(0, 112), yticks=range(0, 101, 25), xlim=(-0.6, len(groups) - 0.4))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=len(series), frameon=False, labelcolor=INK)


def bounds_of(rate: Rate) -> tuple[float, float]:
    """The interval in percent; the value itself where no interval was measured."""
    low, high = (rate.value if bound is None else bound for bound in (rate.low, rate.high))
    return 100 * low, 100 * high


def new_figure(width: float, height: float, **grid: Any) -> "tuple[Figure, list[Axes]]":
    """A figure and its axes, as all plots here look; sizes in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_visible(False)
    found = list(figure.subplots(squeeze=False, **grid).flat)
    for axes in found:
        _plain(axes)
    return figure, found


def _plain(axes: "Axes") -> None:
    axes.patch.set_visible(False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)
    axes.tick_params(colors=MUTED, labelcolor=MUTED, labelsize=9, length=3)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set(color=MUTED, fontsize=9)


def as_svg(figure: "Figure", salt: str) -> str:
    """The figure as an ``<svg>`` element; ``salt`` keeps the ids of two plots on one page apart."""
    import matplotlib
    from matplotlib.text import Text

    for label in figure.findobj(Text):
        label.set_parse_math(False)  # a dollar in an agent's name is a dollar
    nobody = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    text = StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt}):
        figure.savefig(text, format="svg", metadata=nobody)
    svg = text.getvalue()
    svg = re.sub(r'(<g|<svg[^>]*?) id="[^"]*"', r"\1", svg[svg.index("<svg") :])
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: system-ui, sans-serif", svg)
    for name, (light, _) in PALETTE.items():
        svg = svg.replace(light, f"var(--{name}, {light})")
    return svg


def standalone(svg: str) -> str:
    """An ``<svg>`` element as a file of its own, which follows the reader's colours by itself."""
    dark = f"@media (prefers-color-scheme: dark) {{ :root {{ {colours(1)} }} }}"
    head, rest = svg.split(">", 1)
    return f"{head}><style>:root {{ {colours(0)} }} {dark}</style>{rest}"
