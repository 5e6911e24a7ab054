"""The report's sections on confidence, on anchoring and on transfer."""

from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from worldloom.evaluate.cells import ABSENT, RATE_HEAD, interval, number, rate_row, rated, size, value
from worldloom.evaluate.page import Section, Table
from worldloom.evaluate.plots import Rate, anchoring_plot, calibration_plot

_FEATURES = {
    "probability": "wrong step, by the answer's probability",
    "mean_logprob": "wrong step, by the mean log-probability of a token",
    "lowest_logprob": "wrong step, by the least log-probability of a token",
    "agreement": "wrong step, by agreement with logged replies",
    "all": "wrong step, by all of these together (fitted to other tasks)",
}
WITH_SHARE = {"share_real": "answered by reality, %", "real": "Real, %", "wm": "WM, %", "w2r": "W2R, %", "cr": "CR",
              "cr_gain": "CR above that of none"}  # fmt: skip
RATIOS_OF = ("cr", "cr_gain")
ANCHORED = "The real environment answers some steps of the imagined episodes, and the world model goes on from there."
_CHOICES = {
    "chosen_in_model": "success in reality of the agent chosen in the model",
    "chosen_in_reality": "of the agent chosen in reality",
    "at_random": "of an agent taken at random",
    "gain_over_random": "what the choice in the model gains over one at random",
    "regret_to_best": "what the choice in reality gains over that in the model",
}


def confidence_section(found: Mapping[str, Any]) -> Section:
    """Whether the model knows when it is wrong: AUROCs, calibration, and the threshold."""
    rows = [[name, value(rate, True), interval(rate, True), number(rate.n)] for name, rate in aurocs(found)]
    tables = [Table("area under the ROC curve (0.5 is chance, 1 is perfect)", ["what", "AUROC", "interval", "n"], rows)]
    if bound := found.get("risk_bound"):
        rows = [list(row) for row in bound_rows(bound)]
        tables.append(Table("a threshold for accepting a step", ["what", "value"], rows))
    curve = found.get("calibration") or []
    if curve:
        tables.append(Table("data of the plot", ["probability, %", *RATE_HEAD[1:], "steps"], [
            [f"{100 * row['probability']:.1f}", *rate_row("", rate)[1:], number(row["n"])]
            for row in curve
            if (rate := Rate.of(row["right"]))
        ], folded=True))  # fmt: skip
    note = "How far the probability that the model gives to its own answers tells wrong ones from right ones."
    if ece := Rate.of(found.get("ece")):
        note += f" Expected calibration error: {value(ece)} % {interval(ece)}."
    return Section(
        "Does it know when it is wrong", note, Markup(calibration_plot(curve) if curve else ""), tuple(tables)
    )


def aurocs(found: Mapping[str, Any]) -> list[tuple[str, Rate]]:
    """The areas under the curve that there are, by what they are of."""
    told = [(_FEATURES.get(name, name), of) for name, of in (found.get("features") or {}).items()]
    told.append(("imagined episode that reality does not repeat", found.get("auroc_rollout")))
    return [(name, rate) for name, of in told if (rate := Rate.of(of))]


def bound_rows(bound: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The threshold, and what became of it, as texts."""
    threshold = bound.get("threshold")
    yield "wanted: wrong among accepted steps, %, at most", f"{100 * bound['target']:.1f}"
    yield "least probability, chosen on half of the tasks", ABSENT if threshold is None else f"{threshold:.4f}"
    for name, key in (("wrong among accepted steps, %", "observed"), ("accepted steps, %", "accepted")):
        rate = Rate.of(bound.get(key))
        yield f"{name}, other half", f"{rated(rate)}, n = {size(rate)}" if rate else ABSENT
    yield "steps chosen on, checked on", f"{number(bound['n_calibrated'])}, {number(bound['n_checked'])}"


def anchoring_section(found: Mapping[str, Mapping[str, Any]]) -> Section:
    """Consistency against the share of steps that the real environment answered."""
    plot = Markup(anchoring_plot(found))
    return Section("What real answers buy", ANCHORED, plot, (anchored_table(found),))


def anchored_table(found: Mapping[str, Mapping[str, Any]]) -> Table:
    """A row an anchor."""
    rows = [
        [name, *(rated(Rate.of(of.get(key)), key in RATIOS_OF) for key in WITH_SHARE)] for name, of in found.items()
    ]
    return Table("by anchor", ["anchor", *WITH_SHARE.values()], rows)


def transfer_section(found: Mapping[str, Any]) -> Section:
    """Whether the agent that is best in the model is better in reality."""
    told = {**found["success"], **{name: found[name] for name in ("gain_over_random", "regret_to_best")}}
    rows = [rate_row(_CHOICES[name], rate) for name in _CHOICES if (rate := Rate.of(told.get(name)))]
    share = ("real", "wm", "chosen_in_model", "chosen_in_reality")
    agents = [[name, *(f"{100 * of[key]:.1f}" for key in share)] for name, of in found["agents"].items()]
    head = ["agent", "Real, %", "WM, %", "choices in the model, %", "choices in reality, %"]
    note = "The best agent is chosen on half of the tasks and measured in reality on the other half, many times over."
    return Section("Is the best one in the model the best one in reality", note, tables=(
        Table("by how the agent is chosen", RATE_HEAD, rows), Table("the agents", head, agents),
    ))  # fmt: skip
