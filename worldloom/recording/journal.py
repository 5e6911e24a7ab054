"""An episode in progress, in a file of its own, and how it becomes a line of the trajectories.

While an episode goes on, each step is one write to ``FILE.open/ID.jsonl``: it is with the operating system before the
step returns, so that a killed process loses at most the step in flight. At its end the journal becomes one line of
FILE, synced to disk, and only then goes. Whoever records an episode holds a lock (``flock``) on its journal, which the
kernel takes back with the process (and its forks); so ``recover`` knows the journals that nobody will end. A journal
that outlived a kill after its line was written is known by its id. Thus every episode becomes one line, never two.
"""

import fcntl
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from worldloom.errors import EnvError
from worldloom.recording.appending import PRIVATE, append, write_whole
from worldloom.runs import now, read_records
from worldloom.trajectory import Failure, Trajectory

INTERRUPTED = Failure(kind="Interrupted", message="the process that recorded this episode ended in its midst")


def folder_of(path: Path) -> Path:
    """Where the journals of a trajectories file lie."""
    return path.with_name(path.name + ".open")


class Journal:
    """The journal of one episode, held by this process.

    Args:
        path: the trajectories file that the episode goes to in the end.
        name: the episode's id.
        head: the episode before its first step.

    Raises:
        OSError: it cannot be written there.
    """

    def __init__(self, path: Path, name: str, head: Trajectory):
        self.trajectories, self._lock, self._process, self.open = path, threading.Lock(), os.getpid(), True
        self.path = folder_of(path) / f"{name}.jsonl"
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self.path.with_suffix(".part")  # not to be found before it is locked and has its head
        self._file = os.open(draft, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, PRIVATE)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self.write("head", {**head.model_dump(by_alias=True), "recorded": {"id": name, "started": _now()}})
        draft.rename(self.path)

    def write(self, kind: str, what: Mapping[str, Any]) -> None:
        """Add one entry; it outlives this process when this returns.

        Raises:
            EnvError: the episode is over.
            OSError: it cannot be written; the journal is as it was.
        """
        line = json.dumps({kind: what}, ensure_ascii=False, allow_nan=False, default=str)
        with self._lock:
            if not self.open:
                raise EnvError("the recorded episode is over; begin another one")
            write_whole(self._file, [line.encode("utf-8", "replace") + b"\n"])

    def end(self, how: Mapping[str, Any]) -> None:
        """Make it a line of the trajectories. Again, or in a forked copy of its process, this does nothing.

        Raises:
            OSError: that line cannot be written; the journal stays, for ``recover``.
        """
        if not self.open or self._process != os.getpid():
            return
        self.write("end", how)
        with self._lock:
            self.open = False
        try:
            append(self.trajectories, trajectory_of(self.path).to_json())
            self.path.unlink()
        finally:
            os.close(self._file)


def _now() -> str:
    return now().isoformat(timespec="milliseconds")


def recover(path: Path | str) -> int:
    """Make lines of the episodes that killed processes left open; return how many.

    They get the ``error`` Interrupted and keep their steps. Episodes that go on in any process are left alone.
    ``record`` does this whenever it opens a file.
    """
    path = Path(path)
    return sum(_recovered(path, journal) for journal in sorted(folder_of(path).glob("*.jsonl")))


def _recovered(path: Path, journal: Path) -> bool:
    try:
        file = os.open(journal, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(file).st_nlink > 0 and _settled(path, journal)
    except BlockingIOError:  # somebody still records it
        return False
    finally:
        os.close(file)


def _settled(path: Path, journal: Path) -> bool:
    missing = not _has(path, journal.stem)
    if missing:
        append(path, trajectory_of(journal).to_json())
    journal.unlink()
    return missing


def _has(path: Path, name: str) -> bool:
    if not path.exists():
        return False
    with path.open("rb") as file:
        return any(name.encode() in line for line in file)


def trajectory_of(journal: Path) -> Trajectory:
    """The trajectory that a journal tells so far.

    An exception inside a step after which the episode went on was seen by whoever acts: it is a step, its text the
    observation. One that ended the episode is the ``error``, with the action that it came from.

    Raises:
        DataError: a line that is not the last one is broken.
    """
    (_, head), *entries = [next(iter(record.items())) for record in read_records(journal)]
    ended = entries.pop()[1] if entries and entries[-1][0] == "end" else {"error": INTERRUPTED.model_dump()}
    error = ended.get("error")
    if error and entries and entries[-1][0] == "raised":
        error = entries.pop()[1]
    steps = [_step(kind, entry) for kind, entry in entries]
    if steps and ended.get("terminal"):
        steps[-1]["terminal"] = ended["terminal"]
    return Trajectory.model_validate({**head, "steps": steps, "error": error})


def _step(kind: str, entry: dict[str, Any]) -> dict[str, Any]:
    if kind == "step":
        return entry
    return {"action": entry["action"], "observation": f"{entry['kind']}: {entry['message']}", "raised": True}
