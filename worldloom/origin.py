"""Where a result comes from: the code, the command, the time it took, the machine and the versions."""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from worldloom.runs import LOCK, Log, now, read_records

PACKAGES = ("worldloom", "torch", "transformers", "peft", "accelerate", "alfworld", "textworld")
BEGUN = "begun.jsonl"

_hidden: set[str] = set()


class Origin:
    """Where a run's result comes from, over all the times that it was started; make it when the run is open.

    Each start leaves a line in the folder's ``begun.jsonl``. A start that was ended, however it was, counts until the
    last thing that it wrote. Where the run is ``finished`` and only looked at, nothing is noted.
    """

    def __init__(self, folder: Path, finished: bool = False):
        before = [*read_records(folder / BEGUN)]
        self.clock, self.begun, self.spent = time.monotonic(), begin(), 0.0
        self.first = before[0]["started"] if before else self.begun["started"]
        self.others = sorted({str(start["git_commit"]) for start in before} - {str(self.begun["git_commit"])})
        if before:
            self.spent = before[-1]["spent"] + max(0.0, _last_written(folder) - before[-1]["at"])
        if not finished:
            with Log(folder / BEGUN) as log:
                log.append(json.dumps({**self.begun, "at": time.time(), "spent": self.spent}, ensure_ascii=False))

    def told(self) -> dict[str, Any]:
        """As ``provenance``; ``seconds`` are those of all starts, and ``earlier_commits`` names other code that was at
        work."""
        earlier = {"earlier_commits": self.others} if self.others else {}
        seconds = self.spent + time.monotonic() - self.clock
        return {**provenance({**self.begun, "started": self.first}, seconds), **earlier}


def _last_written(folder: Path) -> float:
    files = (path for path in folder.rglob("*") if path.name != LOCK and path.is_file())
    return max((path.stat().st_mtime for path in files), default=0.0)


def versions() -> dict[str, str]:
    """The versions of what a result depends on; what is not installed is absent."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def hide(texts: Iterable[str]) -> None:
    """Leave some texts, such as names that are to be redacted, out of every command that this process notes."""
    _hidden.update(texts)


def _shown(word: str) -> str:
    """A word of a command, or an option with its value as one word, without what is hidden."""
    option, between, value = word.partition("=")
    return "..." if word in _hidden else f"{option}{between}..." if value in _hidden else word


def begin(command: str | None = None) -> dict[str, Any]:
    """Where a result will come from: the commit of the code that runs, the command, the time. Call it at the start."""
    return {
        "git_commit": git_commit(),
        "command": command or " ".join(["worldloom", *map(_shown, sys.argv[1:])]),
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
