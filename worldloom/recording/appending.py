"""Lines added to one file by many threads and processes at once: whole ones only, on disk when it returns."""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from worldloom.runs import set_torn_line_aside

PRIVATE = 0o600  # what was recorded may be anybody's business


def append(path: Path, line: str) -> None:
    """Add one line (without its line break).

    Raises:
        OSError: it cannot be written, for instance on a full disk; the file is as it was.
    """
    with locked(path) as file:
        write_whole(file, [line.encode("utf-8", "replace") + b"\n"])


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """A file open for adding to, by nobody else meanwhile; at the end what was added is on disk.

    The lock is the kernel's (``flock``), so it goes with a killed process. The line that such a process left torn is
    set aside first, to ``NAME.torn``.
    """
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, PRIVATE)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        if torn(file):
            set_torn_line_aside(path)
        yield file
        os.fsync(file)
    finally:
        os.close(file)


def torn(file: int) -> bool:
    """Whether the last line of a file lacks its end."""
    size = os.fstat(file).st_size
    return size > 0 and os.pread(file, 1, size - 1) != b"\n"


def write_whole(file: int, pieces: Iterable[bytes]) -> None:
    """Write all pieces at the end of a file, or, if that fails, none.

    Raises:
        OSError: they cannot be written.
    """
    before = os.fstat(file).st_size
    try:
        for piece in pieces:
            left = memoryview(piece)
            while left:
                left = left[os.write(file, left) :]
    except BaseException:
        os.ftruncate(file, before)
        raise
