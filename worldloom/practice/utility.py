"""What a run of arms writes down: ``metrics.json`` and a page."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from worldloom.evaluate.cells import ABSENT, facts, interval, number, value
from worldloom.evaluate.page import Headline, Section, Table, write_page
from worldloom.evaluate.plots import Rate
from worldloom.lineage import training_of
from worldloom.runs import write_json
from worldloom.trajectory import EnvRef

Record = dict[str, Any]


def about(name: str, model: str, env: EnvRef, split: str) -> Record:
    """What was measured, and how the model was trained where that is known."""
    found = {"name": name, "environment": env.name, "environment_version": env.version, "split": split, "model": model}
    return {key: told for key, told in {**found, "train": training_of(model)}.items() if told is not None}


def publish(out: Path, metrics: Record) -> Record:
    """Write ``metrics.json`` and ``report.html``."""
    write_json(out / "metrics.json", metrics)
    subtitle = f"{metrics['environment']}, {metrics['split']}; world model {metrics['model']}"
    write_page(
        out / "report.html", title=metrics["name"], subtitle=subtitle, headlines=list(_headlines(metrics)),
        sections=list(_sections(metrics)),
    )  # fmt: skip
    return metrics


def _headlines(metrics: Record) -> Iterator[Headline]:
    gain = metrics["utility"].get("gain")
    if rate := Rate.of(gain):
        yield Headline("gain in real success", f"{value(rate)} points", interval(rate), f"{_whose(gain)}, n = {rate.n}")


def _whose(gain: Mapping[str, Any]) -> str:
    whose = [str(told) if key == "agent" else f"{key} {told}" for key, told in gain.items() if key in WHOSE]
    return ", ".join([*whose, *([f"the best of {gain['best_of']}"] if gain.get("best_of", 1) > 1 else [])])


WHOSE = ("agent", "budget", "arm")  # keys of a gain that say what it is a gain of


def _sections(metrics: Record) -> Iterator[Section]:
    note = "Real success of each arm on the same tasks with the same seeds; intervals are over tasks."
    utility = metrics["utility"]
    yield Section("Arms", note, tables=(_arms(utility["arms"]), *_gains(utility)))
    for part in ("verification", "planning"):
        if part in metrics:
            yield Section(part.capitalize(), tables=(facts("figures", metrics[part]),))
    known: Record = {key: metrics[key] for key in ("overlap", "overlap_agents") if key in metrics}
    if known:
        note = "How many of the tasks the world model, or an agent's own model, was trained on."
        yield Section("Tasks that were learnt", note, tables=(facts("overlap", known),))
    yield Section("Where this is from", tables=(facts("provenance", metrics["provenance"]),))


def _arms(arms: Mapping[str, Record]) -> Table:
    known = dict.fromkeys(key for arm in arms.values() for key in arm)
    costs = [key for key in known if key not in ("real_success", "kinds")]
    rows = []
    for name, arm in arms.items():
        rate = Rate(**arm["real_success"])
        rows.append([name, value(rate), interval(rate), *(cell(arm.get(key)) for key in costs)])
    return Table("arms", ["arm", "real success, %", "interval, %", *(key.replace("_", " ") for key in costs)], rows)


def cell(found: Any) -> str:
    """A number, a rate in percent, or several numbers with their names."""
    if isinstance(found, Mapping) and "value" in found:
        return value(Rate(found["value"]))
    if isinstance(found, Mapping):
        return ", ".join(f"{key} {number(told)}" for key, told in found.items())
    return number(found)


def _gains(utility: Record) -> Iterator[Table]:
    rows = []
    for agent, gains in utility.get("gains", {}).items():
        for against, gain in gains.items():
            rate = Rate(gain["value"], gain["low"], gain["high"], gain["n"])
            rows.append([agent, against, value(rate), interval(rate), number(rate.n)])
    if rows:
        yield Table("gain in real success, points", ["agent", "with", "gain", "interval", "n"], rows)


def summary(metrics: Record) -> str:
    """A few lines of text: each arm, then the gain."""
    utility = metrics["utility"]
    rows = [f"{name:<44} {_rate(arm['real_success'])}  {_costs(arm)}" for name, arm in utility["arms"].items()]
    if gain := utility.get("gain"):
        rows.append(f"{'gain':<44} {_rate(gain)}  {_whose(gain)}")
    return "\n".join(rows)


def _rate(found: Any) -> str:
    rate = Rate.of(found)
    return f"{value(rate)} % {interval(rate)}" if rate else ABSENT


def _costs(arm: Record) -> str:
    told = [f"{arm['real_steps']} real steps", f"{arm['imagined_steps']} imagined"]
    if "refusals" in arm:
        told.append(f"refusals: {cell(arm['refusals'])}")
    return ", ".join(told)
