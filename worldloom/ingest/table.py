"""Plain rows of one step each, JSON Lines or CSV: episode, step, action, observation and, where there are, more.

A row whose action is empty holds the first observation. Rows of an episode may lie apart; they are put in the order
of ``step`` where there is one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from worldloom.errors import ConfigError, ProtocolError, suggest
from worldloom.ingest import chat
from worldloom.ingest.records import Record, Skip
from worldloom.ingest.row import Outcome, outcome_of, reward_of
from worldloom.ingest.turns import Dialogue, Heard, Said, Told, Turn
from worldloom.trajectory import AgentRef

COLUMNS = ("episode", "step", "action", "observation", "reward", "terminal", "thought", "instruction", "context",
           "task", "agent")  # fmt: skip
NEEDED = ("episode", "action", "observation")

Columns = Mapping[str, str]


def check_columns(columns: Columns) -> None:
    """Raises ConfigError: a name is none of ``COLUMNS``."""
    for name in columns:
        if name not in COLUMNS:
            raise ConfigError(f"a table has no column {name!r}{suggest(name, COLUMNS)}")


def matches(record: Any, columns: Columns) -> bool:
    """Rows with the columns that are needed."""
    return isinstance(record, Mapping) and all(columns.get(name, name) in record for name in NEEDED)


def key(record: Any, columns: Columns) -> str:
    """The episode that a row belongs to.

    Raises:
        ProtocolError: a column is absent; names it.
    """
    if not isinstance(record, Mapping):
        raise ProtocolError("is no row with named columns")
    for name in NEEDED:
        if columns.get(name, name) not in record:
            raise ProtocolError(f"has no column {columns.get(name, name)!r} (name it with --column {name}=...)")
    return str(record[columns.get("episode", "episode")])


def read_group(records: Sequence[Record], columns: Columns) -> Iterator[Dialogue | Skip]:
    """One episode."""
    rows = sorted((_renamed(record.value, columns) for record in records), key=_step)
    turns = [turn for row in rows for turn in _turns(row)]
    first, last = rows[0], rows[-1]
    task = first["episode"] if first["task"] in (None, "") else first["task"]
    yield Dialogue(
        [*_opening(first), *turns], id=str(task), hidden=_text(first, "context") or None,
        outcome=_outcome(last), agent=AgentRef(name=str(first["agent"])) if first["agent"] else None,
        place=records[0].place, records=len(records),
    )  # fmt: skip


def _renamed(row: Mapping[str, Any], columns: Columns) -> dict[str, Any]:
    return {name: row.get(columns.get(name, name)) for name in COLUMNS}


def _step(row: Mapping[str, Any]) -> float:
    """Where a row stands; rows without a number stay where they are, at the beginning."""
    return reward_of(row["step"]) or 0.0


def _text(row: Mapping[str, Any], name: str) -> str:
    return chat.text_of(row[name], [])


def _opening(row: Mapping[str, Any]) -> list[Turn]:
    return [Told(text)] if (text := _text(row, "instruction")) else []


def _turns(row: Mapping[str, Any]) -> list[Turn]:
    heard = Heard(_text(row, "observation"), reward=reward_of(row["reward"]))
    action = _text(row, "action")
    return [Said(action, thought=_text(row, "thought")), heard] if action else [heard]


def _outcome(last: Mapping[str, Any]) -> Outcome:
    """The last row's ``terminal``; rewards of steps say nothing of the end."""
    told = {"outcome": last["terminal"]} if last["terminal"] not in (None, "") else {}
    return Outcome(outcome_of(told).terminal)
