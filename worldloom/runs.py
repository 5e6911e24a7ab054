"""A run is a folder: ``config.json``, append-only JSON Lines, ``metrics.json``. Stopping it loses nothing written."""

import datetime
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from worldloom.errors import ConfigError, DataError

BLOCK = 1 << 20  # bytes read at once
LOCK = ".lock"
RANKS = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK")  # as torchrun, MPICH and Open MPI tell processes apart

_held: dict[Path, FileLock] = {}  # folders of runs that this process works in


def write_json(path: Path, data: Any) -> None:
    """Write a JSON file in one move, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")  # processes launched together write the same file
    text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    with _named(path):
        draft.write_text(text, encoding="utf-8", errors="backslashreplace")  # see Log.append
        draft.replace(path)


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        DataError: the file is missing or is not JSON; names the file and the line.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", path) from error
    except json.JSONDecodeError as error:
        raise DataError(f"is not JSON: {error.msg}", path, error.lineno) from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"is not JSON: {error}", path) from error


class Log:
    """An append-only JSON Lines file; each record is one write, and a torn last line is set aside on opening."""

    def __init__(self, path: Path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            set_torn_line_aside(path)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def append(self, line: str) -> None:
        """Add one line (without its line break)."""
        rest = line.encode(errors="backslashreplace") + b"\n"  # half a surrogate pair, as JSON escapes it
        with _named(self.path):
            while rest:  # a full disk takes a part, and refuses the next
                rest = rest[os.write(self._file, rest) :]

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def set_torn_line_aside(path: Path) -> None:
    """Move what follows the last line break of a file to ``NAME.torn``; nobody else may write to it meanwhile."""
    with path.open("rb+") as file:
        whole = _end_of_last_line(file)
        file.seek(whole)
        if torn := file.read():
            aside = os.open(path.with_name(path.name + ".torn"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(aside, "ab") as kept:
                kept.write(torn + b"\n")
            file.truncate(whole)


def _end_of_last_line(file: BinaryIO) -> int:
    """The offset after the last line break; reads backwards, since the file may be large."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - BLOCK)
        file.seek(start)
        if found := file.read(end - start).rfind(b"\n") + 1:
            return start + found
        end = start
    return 0


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a log that are whole.

    Raises:
        DataError: a line that is not the last one is broken.
    """
    if not path.exists():
        return
    content = path.read_bytes()
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), 1):
        try:
            yield json.loads(line)
        except ValueError as error:
            raise DataError(f"is not JSON ({error}); restore the file or start a new run", path, number) from error


def open_run(folder: Path, config: Mapping[str, Any]) -> Path:
    """Begin a run in a folder, or go on with the one that is there.

    The folder is this process's own until it ends, however it ends; what is launched together shares it.

    Raises:
        ConfigError: the folder holds a run with other settings (names those that differ), another process is at work
            in it, or a setting cannot be written down.
        DataError: its ``config.json`` is damaged.
    """
    path, config = folder / "config.json", as_json(config, "a run")
    _hold(folder)
    if path.exists():
        before = read_json(path)
        if not isinstance(before, dict):
            raise DataError("does not hold a run's settings; restore the file or choose another folder", path)
        differing = sorted(k for k in {*before, *config} if before.get(k) != config.get(k))
        if differing:
            told = "; ".join(f"{k}: {before.get(k)!r} there, {config.get(k)!r} now" for k in differing)
            raise ConfigError(f"{folder} holds a run with other settings ({told}); choose another folder")
    else:
        write_json(path, config)
    return folder


def fingerprint(files: Iterable[Path]) -> str:
    """Whether files are still what they were: of each its name, its size, and what stands at its beginning and end.

    Weights are too large to be read whole for this; training changes all of them.
    """
    found = hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        found.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            found.update(file.read(BLOCK))
            file.seek(max(0, size - BLOCK))
            found.update(file.read(BLOCK))
    return found.hexdigest()[:16]


def as_json(settings: Mapping[str, Any], whose: str) -> dict[str, Any]:
    """Settings as JSON gives them back: tuples become lists.

    Raises:
        ConfigError: JSON has no form for one; names it.
    """
    for name, value in settings.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{name} of {whose} cannot be written down ({error}); give text, numbers or lists"
            ) from error
    found: dict[str, Any] = json.loads(json.dumps(dict(settings)))
    return found


def _hold(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; give a folder for the run")
    place = folder.resolve()
    if place in _held or any(os.environ.get(rank, "0") != "0" for rank in RANKS):
        return  # of processes that were launched together, the first one holds it
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(place / LOCK)
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise ConfigError(
            f"another process is at work in {folder}; wait until it ends, or choose another folder"
        ) from error
    _held[place] = lock


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Name the file in an error of writing, in which the system does not."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, error.filename or str(path)) from error


def now() -> datetime.datetime:
    """The time, with its zone."""
    return datetime.datetime.now(datetime.UTC)
