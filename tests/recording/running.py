"""The upstream that a recording proxy stands for in these tests, and what the proxy stored."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.upstream import Upstream


def stored(path: Path) -> list[dict[str, Any]]:
    """The exchanges of a file; a line that is none fails the test."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@contextlib.contextmanager
def upstream() -> Iterator[Upstream]:
    """The test's own server, in a thread."""
    loop, server = asyncio.new_event_loop(), Upstream()
    loop.run_until_complete(server.start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
