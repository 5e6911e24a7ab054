"""The report's sections on worlds made from logs: what was read, and whole episodes where there is nothing to replay
them in."""

from collections.abc import Iterator, Mapping
from typing import Any

from worldloom.evaluate.cells import ABSENT, RATE_HEAD, facts, interval, number, rate_row, value
from worldloom.evaluate.page import Section, Table
from worldloom.evaluate.plots import Rate
from worldloom.evaluate.verdicts import VERDICTS

NO_REAL = (
    "There is no environment to replay these logs in, so there is no Real and no W2R: nobody knows whether what "
    "succeeds in this world would succeed in reality. What logs can tell: each held-out episode's actions were taken "
    "again inside the model, on nothing but its own imagined history."
)
_SELF = {
    "asked_again": "the same action twice in a row, answered alike",
    "repeated": "the same action again later in the episode, answered alike",
    "logged": "... by the logs, at the same steps",
}


def rollouts_section(found: Mapping[str, Any], alone: bool) -> Section:
    """Logged actions inside the model. ``alone``: no real environment was measured beside it."""
    rows = [
        rate_row(name, rate, found["n_steps"])
        for key, name in (("em", "exact match, imagined history"), ("word_f1", "word F1, imagined history"))
        if (rate := Rate.of(found.get(key)))
    ]
    if rate := Rate.of(found.get("ended_early")):
        rows.append(rate_row("episodes that the model ends before the log does", rate))
    tables = [Table("observations", RATE_HEAD, rows), *_verdicts(found.get("verdicts"))]
    if consistent := found.get("self_consistency"):
        rated = [(_SELF[key], of) for key, of in consistent.items()]
        rows = [rate_row(name, rate, of["steps"]) for name, of in rated if (rate := Rate.of(of))]
        tables.append(Table("does it contradict itself (n: steps in episodes)", RATE_HEAD, rows))
    tables.append(_by_step(found["by_step"]))
    told = f"{number(found['n_steps'])} steps of {number(found['n_episodes'])} episodes"
    if found.get("outgrew_window"):
        told += f"; {number(found['outgrew_window'])} outgrew the model's window"
    if found.get("left_out"):
        told += f"; {number(found['left_out'])} more are left out: they hold what the text protocol cannot say"
    note = f"{NO_REAL} {told}." if alone else f"{told}."
    return Section("Logged actions, imagined answers", note, tables=tuple(tables))


def _verdicts(found: Mapping[str, Any] | None) -> Iterator[Table]:
    if not found:
        return
    rated = [("verdict as logged", found.get("accuracy"))]
    rated.append((f"... by always saying {found['always']['verdict']}", found["always"].get("accuracy")))
    rated += [(f"{end}: {name}", of) for end in VERDICTS[:2] for name, of in (found.get(end) or {}).items()]
    rows = [rate_row(name, rate) for name, of in rated if (rate := Rate.of(of))]
    if rate := Rate.of(found.get("kappa")):
        rows.append(
            ["Cohen's kappa (a number, not %)", value(rate, True), interval(rate, True) or ABSENT, number(rate.n)]
        )
    yield Table("the model's verdict and the log's", RATE_HEAD, rows)
    cells = [[end, *(number(found["table"][end][verdict]) for verdict in VERDICTS)] for end in VERDICTS[:2]]
    yield Table("episodes by logged end and verdict", ["logged", *VERDICTS], cells)


def _by_step(rows: list[Mapping[str, Any]]) -> Table:
    def cell(row: Mapping[str, Any], key: str) -> str:
        rate = Rate.of(row.get(key))
        return f"{value(rate)} {interval(rate)}" if rate else ABSENT

    return Table(
        "by step of the episode", ["step", "exact match, %", "word F1, %", "all the same so far, %", "episodes"],
        [[str(r["step"]), cell(r, "em"), cell(r, "word_f1"), cell(r, "agree"), number(r["n"])] for r in rows],
        folded=True,
    )  # fmt: skip


def ingest_section(found: Mapping[str, Any]) -> Section:
    """What was read, and what became of it."""
    return Section("From which logs", "Every record that was read is accounted for.", tables=(facts("account", found),))


def baseline_models(baselines: Mapping[str, Any]) -> Table | None:
    """Baselines of which more than exact match was measured, beside the world model on the same episodes."""
    rows = []
    for name, found in baselines.items():
        if "word_f1" not in found:
            continue
        for who, of in ((name, found), ("world model, same episodes", found.get("world_model"))):
            if of:
                answers = of.get("tool_answers") or {}
                rates = [Rate.of(of.get("em")), Rate.of(of.get("word_f1")), Rate.of(answers.get("schema_agreement"))]
                cells = [f"{value(rate)} {interval(rate)}" if rate else ABSENT for rate in rates]
                rows.append([who, *cells, number(of.get("n_episodes"))])
    head = ["what", "exact match, %", "word F1, %", "keys and types in common, %", "episodes"]
    return Table("baselines that answer each step", head, rows) if rows else None
