"""All metrics of a run, from its records alone: no model, no environment, no episode file is asked again."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from worldloom.errors import DataError
from worldloom.evaluate.anchoring import anchoring_metrics
from worldloom.evaluate.compare import folder_of, opened
from worldloom.evaluate.confidence import TARGET, confidence_metrics
from worldloom.evaluate.consistency import consistency_metrics
from worldloom.evaluate.one_step import one_step_metrics
from worldloom.evaluate.report import write_report
from worldloom.evaluate.rollouts import KIND
from worldloom.evaluate.transfer import can_tell, transfer_metrics
from worldloom.evaluate.verdicts import rollout_metrics
from worldloom.origin import begin, provenance
from worldloom.runs import read_json, read_records, write_json

Record = dict[str, Any]
PARTS = ("one_step", "consistency", "confidence", "anchoring", "transfer", "rollouts")
RECORDS, METRICS, REPORT = "records.jsonl", "metrics.json", "report.html"


def measured(records: Iterable[Record], risk: float = TARGET) -> Record:
    """What the records of a run say, in whatever order they stand.

    Args:
        records: of the kinds ``one_step``, ``consistency``, ``anchored`` and ``rollout``.
        risk: the share of accepted steps that may be wrong; see ``evaluate.confidence``.

    Raises:
        ConfigError: episodes that cannot be compared, see ``consistency_metrics``.
    """
    ordered = sorted(records, key=lambda record: str(record["key"]))  # resampling draws rows by their place
    kinds: dict[str, list[Record]] = {}
    for record in ordered:
        kinds.setdefault(record["kind"], []).append(record)
    one_step, consistency, anchored = (kinds.get(kind, []) for kind in ("one_step", "consistency", "anchored"))
    found = {
        "one_step": one_step_metrics(one_step) if one_step else None,
        "consistency": consistency_metrics(consistency) if consistency else None,
        "confidence": confidence_metrics(one_step, consistency, risk),
        "anchoring": anchoring_metrics(anchored, consistency) if anchored else None,
        "transfer": transfer_metrics(consistency) if can_tell(consistency) else None,
        "rollouts": rollout_metrics(kinds[KIND]) if KIND in kinds else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def publish(run: Path, metrics: Record, records: Iterable[Record]) -> Record:
    """Write ``metrics.json`` and ``report.html`` of a run."""
    write_json(run / METRICS, metrics)
    _report(run / REPORT, metrics, records)
    return metrics


def report(run: Path, out: Path | None = None) -> Path:
    """Write the report of a finished evaluation anew from what its folder holds, and return its path.

    Args:
        run: the folder, or its ``metrics.json``; without ``records.jsonl`` the report shows no episode.
        out: default ``report.html`` in the folder.

    Raises:
        DataError: the folder holds no finished evaluation.
    """
    metrics, records = opened(run)
    return _report(out or folder_of(run) / REPORT, metrics, records)


def _report(path: Path, metrics: Record, records: Iterable[Record]) -> Path:
    model = Path(str(metrics.get("model")))
    curve = [(step, loss) for step, loss in read_json(model / "loss.json")] if (model / "loss.json").exists() else []
    return write_report(path, title=metrics["name"], metrics=metrics, records=records, loss_curve=curve)


def rescore(run: Path, risk: float | None = None) -> Record:
    """Compute every metric of a run anew from its ``records.jsonl`` and write its metrics and report again.

    What the records do not tell (name, model, training) is kept from its ``metrics.json``, and ``provenance`` too,
    with ``rescored`` added: when and by which version.

    Args:
        run: the folder.
        risk: the share of accepted steps that may be wrong; None keeps the one that it was evaluated with.

    Returns:
        The metrics.

    Raises:
        DataError: the folder holds no finished run, or no record.
    """
    clock, begun = time.monotonic(), begin()
    before, records = read_json(run / METRICS), list(read_records(run / RECORDS))
    if not records:
        raise DataError("there is no record to score; evaluate a model into this folder first", run / RECORDS)
    found = measured(records, _risk(before) if risk is None else risk)
    if "one_step" in found and "baselines" in before.get("one_step", {}):  # older records lack them
        found["one_step"].setdefault("baselines", before["one_step"]["baselines"])
    kept = {name: value for name, value in before.items() if name not in PARTS}
    origin = {**before["provenance"], "rescored": provenance(begun, time.monotonic() - clock)}
    return publish(run, {**kept, **found, "provenance": origin}, records)


def _risk(metrics: Record) -> float:
    """The risk that a run was evaluated with."""
    return float(metrics.get("confidence", {}).get("risk_bound", {}).get("target", TARGET))
