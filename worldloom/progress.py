"""Progress of long work: a bar with rate and time left, plain lines where there is no terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

LINE_EVERY_SECONDS = 15.0

Advance = Callable[[float, str], None]


@contextmanager
def progress(label: str, total: float, unit: str, done: float = 0) -> Iterator[Advance]:
    """Show how far a piece of work is; the block gets ``advance(amount, note)``."""
    console = Console(stderr=True)
    meter = _Meter(label, total, unit, done)
    if not console.is_terminal:
        yield meter.lines(console)
        console.print(meter.told(), highlight=False)
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}")
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        yield meter.bar(bar, bar.add_task(label, total=total, completed=int(done), note=""))


class _Meter:
    def __init__(self, label: str, total: float, unit: str, done: float):
        self.label, self.total, self.unit, self.done, self.note = label, total, unit, done, ""
        self.start, self.first, self.said = time.monotonic(), done, time.monotonic()

    def rate(self) -> float:
        return (self.done - self.first) / max(time.monotonic() - self.start, 1e-9)

    def told(self) -> str:
        rate = self.rate()
        left = f", {(self.total - self.done) / rate:.0f} s left" if rate > 0 and self.done < self.total else ""
        return f"{self.label}: {self.done:g}/{self.total:g} {self.unit}, {rate:.2f}/s{left} {self.note}".rstrip()

    def add(self, amount: float, note: str) -> None:
        self.done, self.note = self.done + amount, note

    def lines(self, console: Console) -> Advance:
        def advance(amount: float, note: str = "") -> None:
            self.add(amount, note)
            if time.monotonic() - self.said >= LINE_EVERY_SECONDS:
                self.said = time.monotonic()
                console.print(self.told(), highlight=False)

        return advance

    def bar(self, bar: Progress, task: TaskID) -> Advance:
        def advance(amount: float, note: str = "") -> None:
            self.add(amount, note)
            bar.update(task, advance=amount, note=f"{self.rate():.2f} {self.unit}/s {note}")

        return advance
