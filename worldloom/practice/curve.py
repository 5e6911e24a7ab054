"""The picture of a run of improvement: reward, and the share of imagined successes that are false in reality."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

SERIES = (("reward", "reward where it practises", "#d97a1e"), ("false_success", "false successes", "#b42318"))


def draw(path: Path, checks: Sequence[dict[str, Any]]) -> None:
    """Draw the checks of a guard, or whatever has ``at`` and rates under the names of ``SERIES``, as SVG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    for name, label, colour in SERIES:
        points = [(check["at"], check[name]) for check in checks if name in check]
        if points:
            at = [place for place, _ in points]
            axes.plot(at, [rate["value"] for _, rate in points], marker="o", color=colour, label=label)
            axes.fill_between(
                at, [rate["low"] for _, rate in points], [rate["high"] for _, rate in points], color=colour, alpha=0.15
            )
    axes.set(ylim=(-0.02, 1.02), xlabel="round or update", ylabel="share")
    axes.legend(frameon=False)
    figure.savefig(path, format="svg", metadata={"Date": None})


def false_successes(checks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a guard's checks add to the reward's curve."""
    return [
        {"at": check["at"], "false_success": check["false_success"]} for check in checks if "false_success" in check
    ]
