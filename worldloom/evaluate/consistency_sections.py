"""The report's sections on whole episodes: in reality, in the model, replayed; and where these part."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from worldloom.evaluate.cells import (
    ABSENT,
    RATIOS,
    WORLDS,
    interval,
    kind,
    number,
    rated,
    signed,
    value,
)  # fmt: skip
from worldloom.evaluate.curves import Point, curves_plot
from worldloom.evaluate.page import Section, Table
from worldloom.evaluate.plots import Rate, agents_plot

OTHERS = {"wm": "WM", "w2r": "W2R"}


def consistency_section(consistency: Mapping[str, Any]) -> Section:
    """Success of each agent in the three worlds, task by task, and its rank among the others."""
    agents = dict(consistency.get("agents") or {})
    if len(agents) != 1 and consistency.get("overall"):
        agents["overall"] = consistency["overall"]
    head = ["agent", "n", "Real, %", "WM, %", "W2R, %", "CR", "paired CR", "real wins", "errors: Real", "WM", "W2R"]
    tables = [Table("success rates with their intervals", head, [_agent_row(*agent) for agent in agents.items()])]
    tables += [_agreement(agents, name) for name in OTHERS if any(_agreed(agent, name) for agent in agents.values())]
    if ranks := _ranks(consistency.get("rank_agreement") or {}):
        tables.append(ranks)
    same = "on the same task ids" if consistency.get("same_task_ids") else "(NOT known to be on the same task ids)"
    note = (
        f"The same agents {same} in the real environment (Real), inside the world model (WM), and the actions chosen "
        "there replayed in the real environment (W2R). CR = W2R / Real; paired CR = share of the Real successes "
        "that W2R repeats; both are of the real wins." + _unjudged(consistency.get("overall") or {})
    )
    return Section("Real, imagined, replayed", note, Markup(agents_plot(agents) if agents else ""), tuple(tables))


def _unjudged(overall: Mapping[str, Any]) -> str:
    counts = {OTHERS.get(world, "Real"): n for world, n in (overall.get("unknown") or {}).items() if n}
    told = ", ".join(f"{n} in {world}" for world, n in counts.items())
    return f" Ends that nobody can judge count as no success: {told} of {overall['n']} episodes." if told else ""


def _agent_row(name: str, found: Mapping[str, Any]) -> list[str]:
    cells = [rated(Rate.of(found.get(key)), label in RATIOS) for key, label in WORLDS.items()]
    errors = found.get("errors") or {}
    counts = [(found.get("cr") or {}).get("of"), *(errors.get(world) for world in ("real", "wm", "w2r"))]
    return [name, number(found.get("n")), *cells, *map(number, counts)]


def _agreed(agent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (agent.get("agreement") or {}).get(name) or {}
    return found


def _agreement(agents: Mapping[str, Mapping[str, Any]], name: str) -> Table:
    """The 2x2 table of each agent's successes in one world and in reality, and what follows from it."""
    other = OTHERS[name]
    head = ["agent", "both", "Real only", f"{other} only", "neither", f"{other} less Real, points", "Cohen's kappa",
            "McNemar's p", "p of flipped signs"]  # fmt: skip
    rows = []
    for agent, found in ((agent, _agreed(of, name)) for agent, of in agents.items()):
        counts = [number(found.get(key)) for key in ("both", "real_only", "other_only", "neither")]
        kappa = rated(Rate.of(found.get("kappa")), ratio=True)
        tests = [number(found.get(key)) for key in ("mcnemar_p", "sign_flip_p")]
        rows.append([agent, *counts, signed(Rate.of(found.get("difference"))), kappa, *tests])
    return Table(f"successes task by task, Real and {other}", head, rows)


def _ranks(found: Mapping[str, Any]) -> Table | None:
    """Kendall's tau of the agents' successes, unless there is none."""
    rows = [
        [f"in {name} as in reality", rated(rate, ratio=True), number(found.get("n_agents"))]
        for key, name in OTHERS.items()
        if (rate := Rate.of(found.get(f"kendall_{key}")))
    ]
    head = ["agents ranked by success", "Kendall's tau", "agents"]
    return Table("whether the better agent is the better one here, too", head, rows) if rows else None


def divergence_section(found: Mapping[str, Any]) -> Section:
    """At which step replays leave what was imagined, and why; and why replays fail."""
    tables = [_causes("causes of the first difference", found["causes"])]
    if failed := found.get("failed"):
        caption = f"why replays fail: {number(failed['n'])} did, of which the model had promised {failed['promised']}"
        tables.append(_causes(caption, failed["causes"]))
    survival = [[str(step), value(agree), interval(agree) or ABSENT, number(agree.n)] for step, agree in _curve(found)]
    tables.append(Table("data of the plot", ["step", "agreeing, %", "interval, %", "episodes"], survival, folded=True))
    never = Rate.of(found.get("never"))
    note = "Each imagined episode's actions in the real environment: the first step that says something else, and why."
    note += f" {value(never)} % never part {interval(never)}." if never else ""
    plot = survival_plot({"": found}) if survival else ""
    return Section("Where replays leave what was imagined", note, Markup(plot), tuple(tables))


def survival_plot(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """The share of episodes that still agree after each step, a curve a run."""
    curves = {name: _curve(of) for name, of in runs.items()}
    return curves_plot(curves, ("step of the episode", "still agreeing, %"), "survival")


def _curve(found: Mapping[str, Any]) -> list[Point]:
    """The share of episodes that still agree after each step; older results have no bounds."""
    return [(row["step"], Rate(row["agree"], row.get("low"), row.get("high"), row["n"])) for row in found["survival"]]


def _causes(caption: str, causes: Mapping[str, int]) -> Table:
    of = sum(causes.values())
    return Table(caption, ["cause", "episodes", "%"], [[kind(c), number(n), share(n, of)] for c, n in causes.items()])


def share(n: int, of: int) -> str:
    """A count in percent of a whole."""
    return f"{100 * n / of:.1f}" if of else ABSENT
