"""The report of a run: one HTML file that needs nothing else, not even a network.

What was not measured is absent from it; a cell that has no value says "-", never 0.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from worldloom.evaluate.cells import ABSENT, RATE_HEAD, facts, interval, number, rate_row, value
from worldloom.evaluate.logged import baseline_models, ingest_section, rollouts_section
from worldloom.evaluate.page import Headline, Section, Table, write_page
from worldloom.evaluate.plots import BASELINES, Rate, agents_plot, loss_plot, step_plot
from worldloom.evaluate.trust import anchoring_section, confidence_section
from worldloom.evaluate.viewer import select

_EXACT = {
    "em": "exact match",
    "em_macro": "exact match, mean over episodes",
    "em_observation": "exact match of the observation alone",
    "em_without_counters": "exact match, counters set aside",
    "em_without_order": "exact match, order of lists set aside",
    "word_f1": "word F1",
    "reward_error": "reward error, mean",
}
_TERMINAL = {
    "precision": "terminal precision",
    "recall": "terminal recall",
    "f1": "terminal F1",
    "false_success_rate": "false-success rate",
}
_TOOL_ANSWERS = {"json": "answered with JSON, too", "schema_agreement": "keys and types in common"}
_WORLDS = {"real": "Real", "wm": "WM", "w2r": "W2R", "cr": "CR", "cr_paired": "paired CR"}
_RATIOS = {"CR", "paired CR"}  # quotients of two rates: 0.96, not 96 %
_TOLD = ("environment", "environment_version", "split", "model")
_OWN_SECTION = {
    "name", *_TOLD, "provenance", "train", "one_step", "consistency", "confidence", "anchoring", "rollouts", "ingest"
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
    if baselines := list(_baselines(one_step)):
        name, rate = max(baselines, key=lambda baseline: baseline[1].value)
        yield _headline("best baseline", rate, name)
    if rate := Rate.of(((metrics.get("rollouts") or {}).get("verdicts") or {}).get("accuracy")):
        yield _headline("verdict as logged", rate)
    for name, rate in _rates(one_step.get("terminal"), _TERMINAL):
        if name != "terminal F1":
            yield _headline(name, rate)
    overall = consistency.get("overall") or {}
    of = [(overall.get("n"), "episodes"), (consistency.get("n_tasks"), "tasks")]
    for name, rate in _rates(overall, _WORLDS):
        if name != "paired CR":
            yield _headline(name, rate, _counted(of))


def _headline(name: str, rate: Rate, of: str = "") -> Headline:
    ratio = name in _RATIOS
    told = value(rate, ratio) if ratio else f"{value(rate)} %"
    return Headline(name, told, interval(rate, ratio), of if rate.n is None else f"n = {number(rate.n)}")


def _rates(found: Mapping[str, Any] | None, names: Mapping[str, str]) -> list[tuple[str, Rate]]:
    """Those of ``names`` (key -> what it is called) that were measured."""
    rated = ((name, Rate.of((found or {}).get(key))) for key, name in names.items())
    return [(name, rate) for name, rate in rated if rate]


def _baselines(one_step: Mapping[str, Any]) -> Iterator[tuple[str, Rate]]:
    for name, found in (one_step.get("baselines") or {}).items():
        if rate := Rate.of(found.get("em")):
            yield BASELINES.get(name, name), rate


def _size(one_step: Mapping[str, Any]) -> str:
    return _counted([(one_step.get("n_steps"), "steps"), (one_step.get("n_episodes"), "episodes")])


def _counted(things: Iterable[tuple[int | None, str]]) -> str:
    return ", ".join(f"{number(n)} {what}" for n, what in things if n is not None)


def _sections(metrics: Mapping[str, Any], loss_curve: Sequence[tuple[int, float]]) -> Iterator[Section]:
    if one_step := metrics.get("one_step"):
        yield _one_step(one_step)
        if by_step := [row for row in one_step.get("by_step_index") or () if Rate.of(row.get("em"))]:
            yield _by_step(by_step)
    if consistency := metrics.get("consistency"):
        yield _consistency(consistency)
        if divergence := consistency.get("divergence"):
            yield _divergence(divergence)
    if rollouts := metrics.get("rollouts"):
        yield rollouts_section(rollouts, alone=not consistency)
    if confidence := metrics.get("confidence"):
        yield confidence_section(confidence)
    if anchoring := metrics.get("anchoring"):
        yield anchoring_section(anchoring)
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
    rows = [rate_row(name, rate, steps) for name, rate in _rates(one_step, _EXACT)]
    rows += [rate_row(name, rate) for name, rate in _rates(one_step.get("terminal"), _TERMINAL)]
    tables = [Table("world model", RATE_HEAD, rows)]
    if answers := one_step.get("tool_answers"):
        rows = [rate_row(name, rate, answers["n"]) for name, rate in _rates(answers, _TOOL_ANSWERS)]
        tables.append(Table("where a tool answers with JSON", RATE_HEAD, rows))
    if baselines := list(_baselines(one_step)):
        rows = [rate_row(name, rate, steps) for name, rate in baselines]
        tables.append(Table("baselines without a language model, exact match", RATE_HEAD, rows))
    if models := baseline_models(one_step.get("baselines") or {}):
        tables.append(models)
    if strata := one_step.get("strata"):
        rated = [(name.replace("_", " "), Rate.of(of.get("em")), of.get("n")) for name, of in strata.items()]
        rows = [rate_row(name, rate, n) for name, rate, n in rated if rate]
        tables.append(Table("by kind of step, exact match", RATE_HEAD, rows))
    note = f"Each step is predicted from the real history before it. {_size(one_step)}."
    return Section("One step ahead", note, tables=tuple(tables))


def _by_step(by_step: Sequence[Mapping[str, Any]]) -> Section:
    rated = [(row, Rate.of(row.get("em"))) for row in by_step]
    rows = [rate_row(str(row["step"]), rate, row["n"]) for row, rate in rated if rate]
    data = Table("data of the plot", ["step", *RATE_HEAD[1:]], rows, folded=True)
    note = "The band is the interval; the bars beneath say how many episodes have such a step."
    return Section("Exact match by step of the episode", note, Markup(step_plot(by_step)), (data,))


def _consistency(consistency: Mapping[str, Any]) -> Section:
    agents = dict(consistency.get("agents") or {})
    if len(agents) != 1 and consistency.get("overall"):
        agents["overall"] = consistency["overall"]
    head = ["agent", "n", "Real, %", "WM, %", "W2R, %", "CR", "paired CR", "errors: Real", "WM", "W2R"]
    table = Table("success rates with their intervals", head, [_agent_row(*agent) for agent in agents.items()])
    same = "on the same task ids" if consistency.get("same_task_ids") else "(NOT known to be on the same task ids)"
    note = (
        f"The same agents {same} in the real environment (Real), inside the world model (WM), and the actions chosen "
        "there replayed in the real environment (W2R). CR = W2R / Real; paired CR = share of the Real successes "
        "that W2R repeats."
    )
    tables = (table, _agreement(agents)) if any(agent.get("agreement") for agent in agents.values()) else (table,)
    return Section("Real, imagined, replayed", note, Markup(agents_plot(agents) if agents else ""), tables)


def _agreement(agents: Mapping[str, Mapping[str, Any]]) -> Table:
    """The 2x2 table of each agent's replayed and real successes, and what follows from it."""
    head = ["agent", "both", "Real only", "W2R only", "neither", "Cohen's kappa", "McNemar's p"]
    keys = ("both", "real_only", "other_only", "neither", "kappa", "mcnemar_p")
    found = {name: (agent.get("agreement") or {}).get("w2r") or {} for name, agent in agents.items()}
    return Table(
        "successes task by task, Real and W2R",
        head,
        [[n, *(number(f.get(k)) for k in keys)] for n, f in found.items()],
    )


def _divergence(found: Mapping[str, Any]) -> Section:
    parted = sum(found["causes"].values())
    causes = [[cause.replace("_", " "), number(n), f"{100 * n / parted:.1f}"] for cause, n in found["causes"].items()]
    survival = [[str(row["step"]), f"{100 * row['agree']:.1f}", number(row["n"])] for row in found["survival"]]
    never = Rate.of(found.get("never"))
    note = "Each imagined episode's actions in the real environment: the first step that says something else, and why."
    told = f" {value(never)} % never part {interval(never)}." if never else ""
    tables = (
        Table("causes of the first difference", ["cause", "episodes", "%"], causes),
        Table("still agreeing after a step", ["step", "agreeing, %", "episodes"], survival, folded=True),
    )
    return Section("Where replays leave what was imagined", note + told, tables=tables)


def _agent_row(name: str, found: Mapping[str, Any]) -> list[str]:
    cells = []
    for key, label in _WORLDS.items():
        rate, ratio = Rate.of(found.get(key)), label in _RATIOS
        cells.append(f"{value(rate, ratio)} {interval(rate, ratio)}".strip() if rate else ABSENT)
    errors = found.get("errors") or {}
    return [name, number(found.get("n")), *cells, *(number(errors.get(world)) for world in ("real", "wm", "w2r"))]


def _training(train: Mapping[str, Any], loss_curve: Sequence[tuple[int, float]]) -> Section:
    tables = [facts("training", train)] if train else []
    if not loss_curve:
        return Section("Training", tables=tuple(tables))
    rows = [[str(step), f"{loss:.4g}"] for step, loss in loss_curve]
    tables.append(Table("data of the plot", ["training step", "loss"], rows, folded=True))
    return Section("Training", "Loss per token.", Markup(loss_plot(loss_curve)), tuple(tables))
