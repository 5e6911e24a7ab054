"""Recorded exchanges -> whole conversations, one a line, in the shape of the API that they were held in.

``worldloom ingest`` makes trajectories of both shapes: rows of ``messages`` (Chat Completions), and rows of
``instructions``, ``input`` and ``output`` (Responses). It takes a file to be of one shape, so each has its own.
"""

import contextlib
import json
import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from worldloom.errors import DataError
from worldloom.recording.appending import PRIVATE
from worldloom.recording.asked import Asked, asked_of
from worldloom.recording.chains import Chains, Link
from worldloom.recording.exchange import SCHEMA
from worldloom.trajectory import BadLine

logger = logging.getLogger(__name__)

SHAPES = ("chat", "responses")
KEPT = ("model", "tools", "instructions")  # of the last request


def write_conversations(exchanges: Path, out: Path) -> dict[str, Any]:
    """Write the conversations of a file of exchanges to ``out/chat.jsonl`` and ``out/responses.jsonl``.

    Each is replaced in one move; a shape that there is none of has no file.

    Returns:
        Counts: ``exchanges``; ``conversations``; of the exchanges, ``failed`` (no whole answer), ``replaced`` (by a
        retry of the same), ``other`` (no call of a model), ``unreadable`` (warned of by file and line).

    Raises:
        DataError: the file cannot be read.
        OSError: ``out`` cannot be written.
    """
    counts: Counter[str] = Counter(dict.fromkeys(("exchanges", "conversations", "failed", "replaced", "other"), 0))
    out.mkdir(parents=True, exist_ok=True)
    drafts = {kind: out / f"{kind}.jsonl.part" for kind in SHAPES}
    with contextlib.ExitStack() as stack:
        files = {kind: stack.enter_context(_private(draft)) for kind, draft in drafts.items()}
        for row in conversations(exchanges, counts):
            file = files["chat" if "messages" in row else "responses"]
            file.write(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
            counts["conversations"] += 1
    for draft in drafts.values():
        draft.replace(draft.with_suffix(""))
        if not draft.with_suffix("").stat().st_size:
            draft.with_suffix("").unlink()
    return dict(counts)


def _private(path: Path) -> BinaryIO:
    return open(path, "wb", opener=lambda name, flags: os.open(name, flags, PRIVATE))


def conversations(exchanges: Path, counts: Counter[str] | None = None) -> Iterator[dict[str, Any]]:
    """The conversations of a file of exchanges, in the order in which they began; see ``chains`` for what is one.

    ``id`` is the episode's label, else the id of its first exchange; further conversations of one are numbered. Labels
    ``task`` and ``agent`` become ``task_id`` and ``agent``. One whose last call failed ends with what was sent, and
    has its ``error``; one that goes on from a response that was not recorded has its ``previous_response_id``.
    ``recorded`` lists the exchanges.

    Raises:
        DataError: the file cannot be read.
    """
    counts = Counter() if counts is None else counts
    chains, names = Chains(), Counter[str]()
    with _opened(exchanges) as file:
        for offset, exchange, asked in _calls(exchanges, file, counts):
            chains.add(offset, exchange, asked)
        counts["failed"] += sum(link.failed for link in chains.links)
        counts["replaced"] += sum(link.replaced for link in chains.links)
        for links in chains.leaves():
            row = _row(file, links)
            names[row["id"]] += 1
            if (count := names[row["id"]]) > 1:
                row["id"] = f"{row['id']}/{count}"
            yield row


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", path) from error


def _calls(path: Path, file: BinaryIO, counts: Counter[str]) -> Iterator[tuple[int, dict[str, Any], Asked]]:
    """The calls of a model in a file, each with its offset; the rest is counted."""
    offset = 0
    for number, raw in enumerate(file, 1):
        here, offset = offset, offset + len(raw)
        if not raw.strip():
            continue
        counts["exchanges"] += 1
        try:
            exchange = _exchange(raw)
            asked = asked_of(exchange)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            logger.warning("left out: %s", BadLine(path, number, str(error) or type(error).__name__))
            counts["unreadable"] += 1
            continue
        if asked is None:
            counts["other"] += 1
        else:
            yield here, exchange, asked


def _exchange(raw: bytes) -> dict[str, Any]:
    found = json.loads(raw)
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise ValueError(f"is no exchange of schema {SCHEMA}")
    return found


def _row(file: BinaryIO, links: Sequence[Link]) -> dict[str, Any]:
    """A conversation: its last call whole, and before it what that call no longer sent."""
    begin = max(number for number, link in enumerate(links) if link.cut is None)
    items: list[Any] = []
    reply: Sequence[Any] = []
    for link in links[begin:]:
        exchange, asked = _read(file, link)
        items = [*items, *reply, *asked.given[link.cut :]] if link.cut is not None else list(asked.given)
        reply = asked.replies[0] if asked.replies else []
    first, opening = _read(file, links[0])
    return {
        **_about(links[0], first, exchange),
        **{key: asked.request[key] for key in KEPT if asked.request.get(key)},
        **({"messages": [*items, *reply]} if asked.kind == "chat" else {"input": items, "output": reply}),
        **({"previous_response_id": opening.previous} if opening.previous else {}),
        **({} if asked.replies else {"error": exchange.get("error") or _refusal(exchange)}),
        "recorded": {"started": first["started"], "exchanges": [_read(file, link)[0]["id"] for link in links]},
    }


def _read(file: BinaryIO, link: Link) -> tuple[dict[str, Any], Asked]:
    file.seek(link.offset)
    exchange = json.loads(file.readline())
    asked = asked_of(exchange)
    if asked is None:
        raise DataError("changed while it was read", file.name)
    return exchange, asked


def _about(link: Link, first: Mapping[str, Any], last: Mapping[str, Any]) -> dict[str, Any]:
    labels = {**(first.get("labels") or {}), **(last.get("labels") or {})}
    named = {"id": link.episode or first["id"], "task_id": labels.get("task"), "agent": labels.get("agent")}
    return {key: value for key, value in named.items() if value}


def _refusal(exchange: Mapping[str, Any]) -> dict[str, Any]:
    """What the server said instead of an answer."""
    status = (exchange.get("response") or {}).get("status")
    return {"kind": f"HTTP {status}", "message": str(exchange.get("response_body", ""))[:2000]}
