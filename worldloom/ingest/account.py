"""What became of the records of a log: every one is part of an episode, skipped, or merged into another."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from worldloom.ingest.records import Record, Skip
from worldloom.trajectory import Trajectory

MOST_REASONS = 100
COUNTS = ("records", "episodes", "steps", "unaccounted")
TALLIES = ("outcomes", "skipped", "merged", "left_out")


def file_name(path: Path) -> str:
    """A path as text, which on some systems it need not be."""
    return str(path).encode("utf-8", "replace").decode()


@dataclass
class Tally:
    """What became of a file's records."""

    records: int = 0
    used: int = 0
    episodes: int = 0
    steps: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    merged: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)

    def counted(self, items: Iterator[Record | Skip]) -> Iterator[Record | Skip]:
        """Count records as they are read."""
        for item in items:
            self.records += item.records if isinstance(item, Skip) else 1
            yield item

    def skip(self, skip: Skip) -> None:
        """Count what made no episode, by its reason without numbers and names."""
        kind = re.sub(r"'[^']*'|\d+", "#", skip.reason)
        into = self.skipped if skip.lost else self.merged
        into[kind if kind in into or len(into) < MOST_REASONS else "other reasons"] += skip.records

    def found(self, episode: Trajectory, used: int) -> None:
        """Count an episode and the records that it is made of."""
        self.used += used
        self.episodes += 1
        self.steps += len(episode.steps)
        self.outcomes[episode.outcome or "unknown"] += 1
        self.left_out.update(getattr(episode, "left_out", []))

    def report(self, path: Path, name: str | None) -> dict[str, Any]:
        """The account of a file of a format."""
        gone = self.skipped.total() + self.merged.total()
        tallies = {key: dict(getattr(self, key).most_common()) for key in TALLIES}
        return {
            "file": file_name(path), "format": name, "bytes": path.stat().st_size, "records": self.records,
            "episodes": self.episodes, "steps": self.steps, **tallies, "unaccounted": self.records - self.used - gone,
        }  # fmt: skip


def summarize(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The sum of the accounts of files."""
    tallies = {key: sum((Counter(report[key]) for report in reports), Counter[str]()) for key in TALLIES}
    return {
        "files": len(reports),
        "formats": dict(Counter(report["format"] or "none" for report in reports).most_common()),
        "bytes": sum(report["bytes"] for report in reports),
        **{key: sum(report[key] for report in reports) for key in COUNTS},
        **{key: dict(tally.most_common()) for key, tally in tallies.items()},
    }
