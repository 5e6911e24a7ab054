"""A part of an evaluation within some minutes, over all its starts: what took time is noted beside the records."""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from worldloom.runs import Log, read_records

CLOCK = "clock"
AT_A_TIME = 8  # items between two looks at the clock
Item = TypeVar("Item")


class Budget:
    """How long a part of a run may take.

    Args:
        path: the run's records, among which the times stand.
        part: which part of the run.
        minutes: None is as long as it takes.
    """

    def __init__(self, path: Path, part: str, minutes: float | None):
        self.path, self.part = path, part
        self.seconds = None if minutes is None else 60 * minutes

    def parts(self, items: Sequence[Item], log: Log) -> Iterator[Sequence[Item]]:
        """The items, some at a time, until the time is used up; a run that has not had any yet gets the first ones.

        Where a run was stopped within some, their time does not count, and what they left in the records stays.
        """
        if self.seconds is None:
            yield from [items] if items else []
            return
        times = [r["seconds"] for r in read_records(self.path) if r["kind"] == CLOCK and r["part"] == self.part]
        for start in range(0, len(items), AT_A_TIME):
            if sum(times) >= self.seconds:
                return
            begun = time.monotonic()
            yield items[start : start + AT_A_TIME]
            times.append(time.monotonic() - begun)
            key = f"{CLOCK}|{self.part}|{len(times)}"
            log.append(json.dumps({"kind": CLOCK, "key": key, "part": self.part, "seconds": times[-1]}))
