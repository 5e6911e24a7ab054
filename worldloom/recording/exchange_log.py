"""The file of exchanges: each is on disk when ``add`` returns; those that come together share one sync."""

import asyncio
import queue
import threading
from concurrent.futures import Future
from pathlib import Path

from worldloom.recording.appending import locked, write_whole
from worldloom.recording.exchange import Exchange

_Waiting = tuple[Exchange, "Future[None]"]


class ExchangeLog:
    """Adds exchanges to a JSON Lines file, from a thread of its own.

    Args:
        path: the file; several processes may add to it.

    Raises:
        OSError: it cannot be written.
    """

    def __init__(self, path: Path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path):
            pass
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, name="exchange-log", daemon=True)
        self._thread.start()

    async def add(self, exchange: Exchange) -> None:
        """Write an exchange and let go of its bodies. It is written even if who waits for it does no longer.

        Raises:
            OSError: it could not be written; the file is as it was.
        """
        written: Future[None] = Future()
        self._queue.put((exchange, written))
        await asyncio.shield(asyncio.wrap_future(written))

    def close(self) -> None:
        """Write what is waiting, and end."""
        self._queue.put(None)
        self._thread.join()

    def _write_all(self) -> None:
        while True:
            waiting = [self._queue.get()]
            while not self._queue.empty():
                waiting.append(self._queue.get())
            self._write([one for one in waiting if one is not None])
            if None in waiting:
                return

    def _write(self, waiting: list[_Waiting]) -> None:
        failed: dict[int, Exception] = {}
        try:
            with locked(self.path) as file:
                for number, (exchange, _) in enumerate(waiting):
                    try:
                        write_whole(file, exchange.line())
                    except Exception as error:  # whoever waits for it raises it
                        failed[number] = error
        except OSError as error:  # the file cannot be opened, or its sync failed: none of them is safe
            failed = dict.fromkeys(range(len(waiting)), error)
        for number, (exchange, written) in enumerate(waiting):
            exchange.close()
            if reason := failed.get(number):
                written.set_exception(reason)
            else:
                written.set_result(None)
