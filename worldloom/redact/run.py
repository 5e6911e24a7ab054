"""A file of trajectories -> the same file without its secrets, a report, and on request the way back."""

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from worldloom.errors import ConfigError, DataError
from worldloom.redact.replace import TASK, Redactor, restore
from worldloom.redact.rules import PLACEHOLDER, Rules
from worldloom.trajectory import BadLine, Trajectory, numbered_lines, scan, write

logger = logging.getLogger(__name__)


def redact(
    source: Path, out: Path, rules: Rules | None = None, *, originals: Path | None = None, strict: bool = False
) -> dict[str, Any]:
    """Redact a file of trajectories, episode by episode, in one move.

    A line that is no trajectory cannot be redacted: it is left out, and the report names it.

    Args:
        originals: where to write what each placeholder stands for, one JSON line an episode, readable by its owner
            alone; nowhere if not given. It must be a new file, in another folder than ``out``.
        strict: raise at the first line that is no trajectory.

    Returns:
        ``episodes``, ``redacted`` (those that held anything), ``kinds`` {kind: {"values", "occurrences"}},
        ``left_out`` (file, line and reason of each), ``seconds`` and ``megabytes_per_second`` of input.

    Raises:
        ConfigError: ``originals`` exists or lies beside ``out``, or ``out`` is ``source``.
        DataError: the source cannot be read, or ``strict`` and a line is bad.
    """
    if out.resolve() == source.resolve():
        raise ConfigError(f"{out} is the file to redact; give another one for the result")
    redactor, counts, left_out = Redactor(rules), Counter[str](), list[BadLine]()
    started = time.monotonic()
    with _Originals(originals, out) as kept:
        write(out, _redacted(source, redactor, kept, counts, left_out, strict))
    seconds = time.monotonic() - started
    return {
        "episodes": counts["episodes"],
        "redacted": counts["redacted"],
        "kinds": {
            kind: {"values": redactor.values[kind], "occurrences": n} for kind, n in redactor.counts.most_common()
        },
        "left_out": [str(line) for line in left_out],
        "seconds": round(seconds, 2),
        "megabytes_per_second": round(source.stat().st_size / 1e6 / max(seconds, 1e-9), 2),
    }


def placeholders(path: Path, scope: Literal["episode", "file"]) -> dict[str, Any]:
    """What a redacted file holds, as ``redact`` reports it.

    Returns:
        ``episodes``, ``redacted`` (those that hold a placeholder), ``kinds`` {kind: {"values", "occurrences"}}. The
        same placeholder in two episodes is two values, unless it names a task or the scope is ``file``.

    Raises:
        DataError: the file cannot be read.
    """
    counts, kinds, values = Counter[str](), Counter[str](), set[tuple[int, str, str]]()
    for number, line in numbered_lines(path):
        found = PLACEHOLDER.findall(line.decode("utf-8"))
        counts["episodes"] += 1
        counts["redacted"] += bool(found)
        kinds.update(kind for kind, _ in found)
        values.update((0 if scope == "file" or kind == TASK else number, kind, n) for kind, n in found)
    different = Counter(kind for _, kind, _ in values)
    told = {kind: {"values": different[kind], "occurrences": n} for kind, n in kinds.most_common()}
    return {"episodes": counts["episodes"], "redacted": counts["redacted"], "kinds": told}


def _redacted(
    source: Path, redactor: Redactor, kept: "_Originals", counts: Counter[str], left_out: list[BadLine], strict: bool
) -> Iterator[Trajectory]:
    for item in scan(source):
        if isinstance(item, BadLine):
            if strict:
                raise DataError(item.reason, item.path, item.line)
            logger.warning("left out: %s", item)
            left_out.append(item)
            continue
        told = redactor(item)
        counts["episodes"] += 1
        counts["redacted"] += bool(redactor.originals)
        kept.append(redactor.originals)
        yield told


class _Originals:
    """The file that leads back, if there is to be one; it goes if the redacted file does not come to be."""

    def __init__(self, path: Path | None, out: Path):
        self._path, self._file = path, None
        if path is None:
            return
        if out.resolve().parent in (path.resolve().parent, *path.resolve().parents):
            raise ConfigError(f"{path} would lie with the redacted file; keep the originals in a folder elsewhere")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            told = f"cannot be written: {error.strerror}"
            if path.exists():
                told = "exists, and may be the only way back from another file; name a new one"
            raise ConfigError(f"{path} {told}") from error

    def append(self, originals: dict[str, list[str]]) -> None:
        if self._file is not None:
            os.write(self._file, json.dumps(originals, ensure_ascii=False).encode() + b"\n")

    def __enter__(self) -> "_Originals":
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if self._file is not None and self._path is not None:
            os.close(self._file)
            if kind is not None:
                self._path.unlink()


def put_back(source: Path, originals: Path, out: Path) -> int:
    """Write a redacted file with its values put back, readable by its owner alone; return how many episodes.

    Raises:
        DataError: a file cannot be read, a line is bad, or the two have not the same number of episodes.
    """
    rows = numbered_lines(originals)
    out.parent.mkdir(parents=True, exist_ok=True)
    made = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    count = 0
    with os.fdopen(made, "w", encoding="utf-8") as file:
        os.fchmod(made, 0o600)
        for count, item in enumerate(scan(source), 1):  # noqa: B007
            if isinstance(item, BadLine):
                raise DataError(item.reason, item.path, item.line)
            number, row = next(rows, (0, b""))
            if not row:
                raise DataError(f"has fewer episodes than {source}; it belongs to another file", originals)
            file.write(restore(item, _read(originals, number, row)).to_json() + "\n")
    if next(rows, None):
        raise DataError(f"has more episodes than {source}; it belongs to another file", originals)
    return count


def _read(path: Path, number: int, row: bytes) -> dict[str, list[str]]:
    try:
        found: dict[str, list[str]] = json.loads(row)
    except ValueError:
        raise DataError("is not JSON", path, number) from None
    return found
