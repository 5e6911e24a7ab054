"""ToolBench's recorded runs (Qin et al. 2023, arXiv 2307.16789), in the form that ``worldloom.envs`` reads."""

from collections.abc import Mapping
from typing import Any

from worldloom.envs.toolbench_record import Answered, attempt_of
from worldloom.ingest.turns import Dialogue, Heard, Said, ToolCall, Turn


def matches(record: Any) -> bool:
    """Rows have these keys."""
    return isinstance(record, Mapping) and {"query", "functions", "steps", "win"} <= record.keys()


def read(record: Any) -> Dialogue:
    """One run. ``win`` says only that it ended with an answer, right or wrong, so there is no terminal."""
    attempt = attempt_of(record)
    thoughts = [str(step.get("thought") or "") for step in record["steps"]]
    turns = [turn for step, said in zip(attempt.run.steps, thoughts, strict=True) for turn in _step(step, said)]
    return Dialogue([Heard(attempt.query), *turns], tools=attempt.functions, id=_id(record))


def _step(step: Answered, thought: str) -> tuple[Turn, Turn]:
    call = ToolCall(step.call.name, step.call.arguments)
    return Said(calls=(call,), thought=thought), Heard(step.answer, of_tool=True)


def _id(record: Mapping[str, Any]) -> str | None:
    """Runs of one query are one task."""
    return str(record["id"]) if record.get("id") is not None else None
