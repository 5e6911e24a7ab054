"""Word2World / LLaMA-Factory rows for world models: ``user`` is the action, ``assistant`` the observation.

The reading is ``worldloom.protocol``'s; rows in ShareGPT form are taken too.
"""

from collections.abc import Mapping
from typing import Any

from worldloom.errors import ProtocolError
from worldloom.ingest import sharegpt
from worldloom.ingest.openai_chat import is_chat
from worldloom.protocol import MARKERS, from_row
from worldloom.trajectory import Trajectory


def matches(record: Any) -> bool:
    """Rows that end on an observation with a terminal suffix."""
    if not isinstance(record, Mapping):
        return False
    if sharegpt.matches(record):
        last, role = record["conversations"][-1].get("value"), record["conversations"][-1].get("from")
        return role == "gpt" and str(last).endswith(tuple(MARKERS.values()))
    if not is_chat(record):
        return False
    last = record["messages"][-1]
    return last["role"] == "assistant" and str(last.get("content")).endswith(tuple(MARKERS.values()))


def read(record: Any) -> Trajectory:
    """One episode."""
    if isinstance(record, Mapping) and "conversations" in record:
        rest = {key: value for key, value in record.items() if key != "conversations"}
        record = {**rest, "messages": sharegpt.as_messages(record["conversations"])}
    try:
        return from_row(record)
    except ProtocolError as error:  # its reasons quote the text, which nobody has redacted yet
        raise ProtocolError(str(error).partition(": ")[0]) from error
