"""Trajectories -> the files that other trainers load: JSON Lines, or Parquet, which Hugging Face ``datasets`` reads.

``messages`` is LLaMA-Factory's and TRL's conversational form, ``sharegpt`` LLaMA-Factory's ``conversations``, and
``steps`` TRL's prompt and completion: one row a step, so that only that step's answer is learnt. ``trajectories`` is
worldloom's own line beside a few columns to filter by.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from worldloom.errors import ConfigError, suggest
from worldloom.protocol import messages_row, render
from worldloom.trajectory import ESCAPED, Trajectory

Row = dict[str, Any]
SHAREGPT: Final = {"system": "system", "user": "human", "assistant": "gpt"}
ROWS_AT_ONCE: Final = 1_000


def messages(trajectory: Trajectory) -> Iterator[Row]:
    """``{"messages": [{"role", "content"}]}``; rows and messages keep the other keys they were read with."""
    yield messages_row(trajectory)


def sharegpt(trajectory: Trajectory) -> Iterator[Row]:
    """``{"conversations": [{"from", "value"}]}``: human acts, gpt is the world."""
    yield {"conversations": [{"from": SHAREGPT[m["role"]], "value": m["content"]} for m in render(trajectory)]}


def steps(trajectory: Trajectory) -> Iterator[Row]:
    """``{"prompt": [messages up to an action], "completion": [its answer]}`` for each step whose answer is known."""
    told = render(trajectory)
    start = len(told) - 2 * len(trajectory.steps)
    for number, step in enumerate(trajectory.steps):
        answer = start + 2 * number + 1
        if not step.not_recorded:
            yield {"prompt": told[:answer], "completion": [told[answer]]}


def trajectories(trajectory: Trajectory) -> Iterator[Row]:
    """The line itself (``trajectory``, JSON text), and what one filters by."""
    yield {
        "environment": trajectory.env.name,
        "task": trajectory.task.id,
        "split": trajectory.task.split,
        "agent": trajectory.agent.name if trajectory.agent else None,
        "outcome": trajectory.outcome,
        "steps": len(trajectory.steps),
        "trajectory": trajectory.to_json(),
    }


FORMS: Final[dict[str, Callable[[Trajectory], Iterator[Row]]]] = {
    "messages": messages, "sharegpt": sharegpt, "steps": steps, "trajectories": trajectories,
}  # fmt: skip


def export(episodes: Iterable[Trajectory], out: Path, form: str = "messages") -> dict[str, int]:
    """Write episodes in a form to ``out``, in one move: Parquet if it is named so, else JSON Lines.

    Half a surrogate pair, which UTF-8 does not have, is written as its JSON escape.

    Returns:
        How many ``episodes`` and ``rows``, ``without_steps`` (episodes that give no row in a form for trainers),
        ``not_recorded`` (steps whose answer nobody knows: a form of whole episodes cannot mask them), and of Parquet,
        where there are any, ``escaped``: texts that now hold an escape as six characters.

    Raises:
        ConfigError: there is no such form, the name ends in neither .jsonl nor .parquet, or pyarrow is missing.
        ProtocolError: an observation ends in a terminal suffix by itself.
    """
    if form not in FORMS:
        raise ConfigError(f"there is no form {form!r}{suggest(form, FORMS)}")
    if out.suffix not in (".jsonl", ".parquet"):
        raise ConfigError(f"{out} must end in .jsonl or .parquet")
    counts: Counter[str] = Counter(episodes=0, rows=0, without_steps=0, not_recorded=0)
    rows = _rows(episodes, form, counts)
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_name(out.name + ".part")
    if out.suffix == ".parquet":
        _write_parquet(draft, (_encodable(row, counts) for row in rows))
    else:
        _write_lines(draft, rows)
    draft.replace(out)
    return dict(counts)


def _rows(episodes: Iterable[Trajectory], form: str, counts: Counter[str]) -> Iterator[Row]:
    for trajectory in episodes:
        counts["episodes"] += 1
        counts["not_recorded"] += sum(bool(step.not_recorded) for step in trajectory.steps)
        if not trajectory.steps and form != "trajectories":
            counts["without_steps"] += 1
            continue
        for row in FORMS[form](trajectory):
            counts["rows"] += 1
            yield row


def _write_lines(path: Path, rows: Iterable[Row]) -> None:
    with path.open("w", encoding="utf-8", errors=ESCAPED) as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _encodable(value: Any, counts: Counter[str]) -> Any:
    """A row whose texts are all in UTF-8."""
    if isinstance(value, str):
        told = value.encode("utf-8", ESCAPED).decode()
        if told != value:
            counts["escaped"] += 1
        return told
    if isinstance(value, dict):
        return {key: _encodable(each, counts) for key, each in value.items()}
    return [_encodable(each, counts) for each in value] if isinstance(value, list) else value


def _write_parquet(path: Path, rows: Iterator[Row]) -> None:
    """Rows in groups; only the form's own columns, as keys that some rows have and others lack make no table."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ConfigError("Parquet needs pyarrow: pip install 'worldloom[parquet]'") from error
    first = next(rows, None)
    if first is None:
        raise ConfigError("there is no row to write, and an empty table has no columns; give episodes with steps")
    schema = pa.schema([(name, _kind(name, pa)) for name in first if name in COLUMNS])
    with pq.ParquetWriter(path, schema) as file:
        group = [first]
        for row in rows:
            group.append(row)
            if len(group) == ROWS_AT_ONCE:
                file.write_table(pa.Table.from_pylist(group, schema=schema))
                group = []
        if group:
            file.write_table(pa.Table.from_pylist(group, schema=schema))


COLUMNS: Final = {
    "messages": ("role", "content"), "prompt": ("role", "content"), "completion": ("role", "content"),
    "conversations": ("from", "value"), "environment": (), "task": (), "split": (), "agent": (), "outcome": (),
    "steps": (), "trajectory": (),
}  # fmt: skip


def _kind(name: str, pa: Any) -> Any:
    """The type of a column: a list of texts by name, a count, or a text."""
    if fields := COLUMNS[name]:
        return pa.list_(pa.struct([(field, pa.string()) for field in fields]))
    return pa.int64() if name == "steps" else pa.string()
