"""Records set aside on disk until all of a group are there: spans of a trace, rows of an episode, calls in a log.

A log may mix its groups in any order, and be larger than memory: the records go through a temporary SQLite file.
"""

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from worldloom.ingest.records import Record

CACHE_KB = 32_000


class Group(NamedTuple):
    """One group: its records in the order of the file (None if together they are over the limit) and their number."""

    key: str
    place: int
    size: int
    records: list[Record] | None


class Row(NamedTuple):
    """A record with its number among those set aside."""

    number: int
    record: Record


class Spill:
    """A temporary file of records. The groups come back in the order of their first record."""

    def __init__(self, folder: Path, limit: int):
        handle, self._path = tempfile.mkstemp(dir=folder, prefix="ingest-", suffix=".part")
        os.close(handle)
        self._limit = limit
        self._db = sqlite3.connect(self._path, isolation_level=None)
        self._db.execute("PRAGMA user_version")  # opens the file, whose name can then go: a kill leaves nothing behind
        with suppress(OSError):  # where an open file keeps its name it goes at the end
            Path(self._path).unlink()
        for line in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{CACHE_KB}"):
            self._db.execute(f"PRAGMA {line}")
        self._db.execute("CREATE TABLE groups (id INTEGER PRIMARY KEY, key TEXT UNIQUE)")
        self._db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, part INTEGER, place INTEGER, value, mark BLOB)")
        self._db.execute("BEGIN")

    def add(self, key: str, record: Record, mark: bytes = b"") -> None:
        """Set a record aside; ``mark`` is for ``longest_marks``."""
        self._db.execute("INSERT OR IGNORE INTO groups (key) VALUES (?)", (key,))
        self._db.execute(
            "INSERT INTO rows (part, place, value, mark) SELECT id, ?, ?, ? FROM groups WHERE key = ?",
            (record.place, to_json(record.value, inf_nan_mode="constants"), mark, key),
        )

    def groups(self) -> Iterator[Group]:
        """All groups."""
        self._db.execute("CREATE INDEX by_part ON rows (part)")
        found = self._db.execute(
            "SELECT part, key, MIN(place), COUNT(*), SUM(LENGTH(value)) FROM rows JOIN groups ON part = groups.id "
            "GROUP BY part ORDER BY part"
        )
        for part, key, place, count, size in found:
            yield Group(key, place, count, None if size > self._limit else self._records(part))

    def _records(self, part: int) -> list[Record]:
        rows = self._db.execute("SELECT place, value FROM rows WHERE part = ? ORDER BY id", (part,))
        return [Record(place, from_json(value)) for place, value in rows]

    def longest_marks(self) -> Iterator[tuple[int, bytes]]:
        """Numbers and marks, the longest mark first, of equal ones the last record first."""
        yield from self._db.execute("SELECT id, mark FROM rows ORDER BY LENGTH(mark) DESC, id DESC")

    def rows(self) -> Iterator[Row]:
        """All records in the order of the file."""
        for number, place, value in self._db.execute("SELECT id, place, value FROM rows ORDER BY id"):
            yield Row(number, Record(place, from_json(value)))

    def __enter__(self) -> "Spill":
        return self

    def __exit__(self, *exc: Any) -> None:
        self._db.close()
        Path(self._path).unlink(missing_ok=True)
