"""A run is a folder: ``config.json``, append-only JSON Lines, ``metrics.json``. Stopping it loses nothing written."""

import datetime
import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO

from worldloom.errors import ConfigError, DataError

PACKAGES = ("worldloom", "torch", "transformers", "peft", "accelerate", "alfworld", "textworld")
BLOCK = 1 << 20  # bytes read at once


def write_json(path: Path, data: Any) -> None:
    """Write a JSON file in one move, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")  # processes launched together write the same file
    draft.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
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
        os.write(self._file, line.encode() + b"\n")

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

    Raises:
        ConfigError: the folder holds a run with other settings; names the settings that differ.
    """
    path, config = folder / "config.json", json.loads(json.dumps(config))
    if path.exists():
        before = read_json(path)
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


def versions() -> dict[str, str]:
    """The versions of what a result depends on; what is not installed is absent."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def begin(command: str | None = None) -> dict[str, Any]:
    """Where a result will come from: the commit of the code that runs, the command, the time. Call it at the start."""
    return {
        "git_commit": git_commit(),
        "command": command or " ".join(["worldloom", *sys.argv[1:]]),
        "started": now().isoformat(timespec="seconds"),
    }


def provenance(begun: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Where a result comes from: what ``begin`` gave, and how long it took, on which machine, with which versions."""
    return {
        **begun,
        "seconds": round(seconds, 1),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "versions": versions(),
    }


def git_commit() -> str | None:
    """The commit of the checkout that this package runs from, "+changes" if its code is not clean; None elsewhere."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None

    def ask(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False).stdout.strip()

    return ask("rev-parse", "HEAD") + ("+changes" if ask("status", "--porcelain", "--", ".", ":!results") else "")


def now() -> datetime.datetime:
    """The time, with its zone."""
    return datetime.datetime.now(datetime.UTC)
