"""The records of a log, one by one, in bounded memory: lines of JSON, a JSON document, or lines of CSV.

A record is what a format counts: a row, an element of a JSON array, a span, a run. What cannot be read is a ``Skip``
in its place, so that nothing is lost silently.
"""

import csv
import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import ijson
from pydantic_core import from_json

from worldloom.ingest.source import BROKEN, CHUNK

MAX_MB = 16.0
MAX_LISTS = 2_000_000  # lists and objects in one record: with these, not with bytes, memory grows many times over
MAX_DEPTH = 200  # of them in each other, as pydantic allows in a line
STEPS = {"start_map": 1, "start_array": 1, "end_map": -1, "end_array": -1}
CONTAINERS = ("resourceSpans", "runs", "simulations")
CSV_DELIMITERS = {".csv": ",", ".tsv": "\t"}
JSON_LINES = (".jsonl", ".ndjson")
PACKED = (".gz", ".zst", ".zstd", ".gzip")

Kind = Literal["lines", "document", "csv"]


class Record(NamedTuple):
    """A record and its place: its line or, in a JSON document, its number; both from 1."""

    place: int
    value: Any


class Skip(NamedTuple):
    """Records that are no part of an episode, and why; ``lost`` is False if they say nothing that is not elsewhere."""

    place: int
    reason: str
    detail: str | None = None
    records: int = 1
    lost: bool = True


class TooLarge(ValueError):
    """A record is over the limit."""


def kind_of(text: IO[bytes], path: Path, limit: int, table: bool) -> Kind:
    """What a file is, by its name where that says it, else by its first lines."""
    suffix = plain_suffix(path)
    if suffix in CSV_DELIMITERS:
        return "csv"
    if suffix in JSON_LINES:
        return "lines"
    lines = (line for raw in iter(partial(text.readline, limit + 1), b"") if (line := raw.strip()))
    first = next(lines, b"")
    if first[:1] not in (b"{", b"["):
        return "csv" if table else "lines"
    if len(first) > limit or first in (b"{", b"["):
        return "document"
    found = type(_value(first))
    if found is dict:
        return "lines"
    following = (type(_value(line)) for line in islice(lines, 20))  # one at a time
    if found is list:
        return "lines" if next(following, None) is list else "document"
    return "lines" if dict in following else "document"


def stem_of(path: Path) -> Path:
    """A path without its suffix and that of its compression."""
    path = path.with_suffix("") if path.suffix.lower() in PACKED else path
    return path.with_suffix("")


def plain_suffix(path: Path) -> str:
    """The suffix of a file's name without that of its compression, in lower case."""
    name = Path(path.name.lower())
    return Path(name.stem).suffix if name.suffix in PACKED else name.suffix


def _value(line: bytes) -> Any:
    try:
        return from_json(line)
    except ValueError:
        return None


def records(text: IO[bytes], path: Path, kind: Kind, limit: int) -> Iterator[Record | Skip]:
    """All records of a file. What ends the reading early, damage or an error of form, is the last ``Skip``."""
    read = {"lines": _json_lines, "document": _document, "csv": _csv_rows}[kind]
    place = 0
    try:
        for item in read(text, path, limit):
            place = item.place
            yield from _unpacked(item) if isinstance(item, Record) else [item]
    except TooLarge as error:
        yield Skip(place + 1, "longer than the limit, and where it ends cannot be told; see --max-mb", str(error))
    except (ijson.JSONError, csv.Error) as error:
        yield Skip(place + 1, "not in form from here on", str(error).splitlines()[0][:200])
    except BROKEN as error:
        yield Skip(place + 1, "cannot be read from here on", str(error)[:200] or type(error).__name__)


def _lines(text: IO[bytes], limit: int) -> Iterator[tuple[int, bytes | Skip]]:
    number = 0
    while line := text.readline(limit + 1):
        number += 1
        if len(line) > limit and not line.endswith(b"\n"):
            while (rest := text.readline(CHUNK)) and not rest.endswith(b"\n"):
                pass
            yield number, Skip(number, "longer than the limit; see --max-mb", f"over {limit / 1e6:g} MB")
        elif line.strip():
            yield number, line


def _json_lines(text: IO[bytes], path: Path, limit: int) -> Iterator[Record | Skip]:
    for number, line in _lines(text, limit):
        yield line if isinstance(line, Skip) else _json_line(number, line)


def _json_line(number: int, line: bytes) -> Record | Skip:
    if line.count(b"[") + line.count(b"{") > MAX_LISTS:
        return Skip(number, "holds too many lists and objects", f"over {MAX_LISTS:,}")
    try:
        return Record(number, from_json(line))
    except ValueError as error:
        return Skip(number, "is not JSON in UTF-8", str(error)[:200])


def _document(text: IO[bytes], path: Path, limit: int) -> Iterator[Record | Skip]:
    bounded = _Bounded(text, limit)
    key, level = _whereabouts(bounded.peeked())
    events = ijson.basic_parse(bounded, use_float=True, multiple_values=True, buf_size=CHUNK)
    number = 0
    for number, value in enumerate(_values(events, key, level, bounded), 1):
        yield Record(number, {key: [value]} if key else value)
    if not number:
        yield Skip(1, "holds no records")


def _whereabouts(head: bytes) -> tuple[str | None, int]:
    """Where in a document the records are: in the list under which key, and how deep."""
    if head.lstrip().startswith(b"["):
        return None, 1
    first_key = re.match(rb'\s*\{\s*"(\w+)"\s*:\s*\[', head)
    key = first_key.group(1).decode() if first_key else ""
    if re.match(rb'\s*\{\s*"timestamp"', head) and b'"environment_info"' in head:
        key = "simulations"  # tau2's results begin with the run's settings and tasks
    return (key, 2) if key in CONTAINERS else (None, 0)


def _values(events: Iterable[tuple[str, Any]], wanted: str | None, level: int, bounded: "_Bounded") -> Iterator[Any]:
    """The values at a level, built one at a time; the rest of the document is passed over.

    Raises:
        TooLarge: a value holds too many lists, or too many in each other.
    """
    builder: Any = None
    key, depth, lists = None, 0, 0
    for event, value in events:
        step = STEPS.get(event, 0)
        if builder is None and depth == level and step >= 0 and event != "map_key" and (key == wanted or not wanted):
            builder, lists = ijson.ObjectBuilder(), 0
        depth += step
        if builder is None:
            key = value if event == "map_key" and depth == 1 else key
            bounded.begin_record()
            continue
        lists += step > 0
        if lists > MAX_LISTS or depth - level > MAX_DEPTH:
            raise TooLarge(f"over {MAX_LISTS:,} lists and objects, or {MAX_DEPTH:,} in each other")
        builder.event(event, value)
        if depth == level:
            yield builder.value
            builder = None
            bounded.begin_record()


class _Bounded:
    """A stream that refuses to hand out more than ``limit`` bytes for one record."""

    def __init__(self, text: IO[bytes], limit: int):
        self._text, self._limit, self._head, self._bytes = text, limit, b"", 0

    def begin_record(self) -> None:
        """What was handed out before is done with."""
        self._bytes = 0

    def peeked(self) -> bytes:
        """The first bytes."""
        self._head = self._text.read(CHUNK)
        return self._head

    def read(self, size: int = -1) -> bytes:
        """The next bytes.

        Raises:
            TooLarge: a record has more than the limit.
        """
        if not size:
            return b""
        chunk, self._head = self._head or self._text.read(CHUNK), b""
        self._bytes += len(chunk)
        if self._bytes > self._limit + CHUNK:
            raise TooLarge(f"over {self._limit / 1e6:g} MB")
        return chunk


def _csv_rows(text: IO[bytes], path: Path, limit: int) -> Iterator[Record | Skip]:
    """Rows as dictionaries by the header; the place is the line on which a row ends."""
    csv.field_size_limit(limit)
    bad: list[Skip] = []
    reader = csv.reader(_text_lines(text, limit, bad), delimiter=CSV_DELIMITERS.get(plain_suffix(path), ","))
    header: list[str] | None = None
    for row in reader:
        yield from bad
        bad.clear()
        if header is None:
            header = row
        elif row and len(row) != len(header):
            yield Skip(reader.line_num, f"has not as many fields as the header ({len(header)})", f"{len(row)} fields")
        elif row:
            yield Record(reader.line_num, dict(zip(header, row, strict=True)))
    yield from bad


def _text_lines(text: IO[bytes], limit: int, bad: list[Skip]) -> Iterator[str]:
    """Lines as text; a bad one goes to ``bad``, and an empty one takes its place, so that numbers stay right."""
    number = 0
    while line := text.readline(limit + 1):
        number += 1
        if len(line) > limit:
            raise TooLarge(f"line {number} is over {limit / 1e6:g} MB")
        try:
            decoded = line.decode()
        except UnicodeDecodeError as error:
            bad.append(Skip(number, "is not text in UTF-8", str(error)))
            decoded = "\n"
        yield decoded


def _unpacked(record: Record) -> Iterator[Record | Skip]:
    """The records in a record that is a container: OTLP's spans, a list of runs."""
    inner = _inner(record.value)
    if inner is None:
        yield record
    elif not inner:
        yield Skip(record.place, "holds no records", lost=False)
    else:
        yield from (Record(record.place, each) for each in inner)


def _inner(value: Any) -> list[Any] | None:
    key = next((key for key in CONTAINERS if isinstance(value, dict) and isinstance(value.get(key), list)), None)
    if key is None:
        return None
    return list(_spans(value[key])) if key == "resourceSpans" else list(value[key])


def _spans(resources: list[Any]) -> Iterator[Any]:
    """OTLP: resourceSpans > scopeSpans > spans; what has not that form comes out as it is, to be told."""
    for resource in resources:
        scopes = resource.get("scopeSpans") if isinstance(resource, dict) else None
        for scope in scopes if isinstance(scopes, list) else [resource]:
            spans = scope.get("spans") if isinstance(scope, dict) else None
            yield from spans if isinstance(spans, list) else [scope]
