"""``worldloom ingest``: files in, ``trajectories.jsonl`` out, and an account of everything that was read.

The folder also gets ``skipped.jsonl`` (what made no episode: file, place, reason), ``files.jsonl`` (the account of each
file that is done) and ``ingest.json`` (their sum). All are appended to or replaced whole: after a kill the same command
goes on.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from worldloom.errors import ConfigError, DataError, ProtocolError
from worldloom.ingest import table
from worldloom.ingest.account import Tally, file_name, summarize
from worldloom.ingest.detect import MALFORMED, SAMPLE, Format, Placed, detect, named, refusal
from worldloom.ingest.records import MAX_MB, Kind, Skip, kind_of, records, stem_of
from worldloom.ingest.row import kept_fields
from worldloom.ingest.source import BROKEN, opened
from worldloom.ingest.spill import Spill
from worldloom.ingest.turns import System, trajectory
from worldloom.progress import Advance, progress
from worldloom.redact.replace import Redactor
from worldloom.redact.rules import Rules
from worldloom.redact.run import placeholders
from worldloom.runs import Log, open_run, read_records, write_json
from worldloom.trajectory import EnvRef, TaskRef, Trajectory

TRAJECTORIES, SKIPPED, FILES, SUMMARY = "trajectories.jsonl", "skipped.jsonl", "files.jsonl", "ingest.json"
MEGABYTE = 1e6
TOLD_EVERY = 1 << 18  # bytes between two steps of the progress bar

Change = Callable[[Trajectory], Trajectory]


@dataclass(frozen=True)
class Settings:
    """How files are read; see ``ingest``."""

    format: str | None = None
    env: str = "logs"
    system: System = "observation"
    columns: Mapping[str, str] = field(default_factory=dict)
    encoding: str | None = None
    max_mb: float = MAX_MB
    keep: tuple[str, ...] = ()  # paths of a record's fields that its episode is to have, too

    def __post_init__(self) -> None:
        table.check_columns(self.columns)
        if self.max_mb <= 0:
            raise ConfigError(f"max_mb is {self.max_mb}; it must be above 0")
        if self.system not in ("observation", "context", "none"):
            raise ConfigError(f"system is {self.system!r}; known: observation, context, none")
        if self.format:
            named(self.format, self.columns)
        if taken := {path.partition(".")[0] for path in self.keep} & {*Trajectory.model_fields, "schema"}:
            raise ConfigError(f"keep names {', '.join(sorted(taken))}, which every episode has of its own")

    @property
    def limit(self) -> int:
        """The most bytes of one record."""
        return int(self.max_mb * MEGABYTE)


def ingest(
    paths: Sequence[Path],
    out: Path,
    settings: Settings | None = None,
    *,
    strict: bool = False,
    change: Change | None = None,
    redact: Rules | None = None,
) -> dict[str, Any]:
    """Read logs into ``out/trajectories.jsonl``; started again it goes on where it was.

    Args:
        paths: files, and folders that are searched for files.
        out: folder of the run.
        settings: how to read them.
        strict: stop at the first record that is lost, or part that is left out.
        change: applied to each trajectory before anything of it is written.
        redact: instead of ``change``, what to redact by. As placeholders go on from episode to episode, a run that was
            stopped begins anew.

    Returns:
        The account: files, formats, bytes, records, episodes, steps, outcomes, skipped, merged, left_out, unaccounted;
        with ``redact`` also ``redaction``, see ``worldloom.redact.run.placeholders``.

    Raises:
        DataError: a path is missing, or ``strict`` and a record is lost; names file and place.
        ConfigError: settings out of range, both ``change`` and ``redact``, or ``out`` holds a run with others.
    """
    settings = settings or Settings()
    if change and redact:
        raise ConfigError("give change or redact; a change may call a Redactor")
    files = find_files(paths, out)
    _begin(out, _config(files, settings, change), redact)
    root = Path(os.path.commonpath([path.absolute().parent for path in files]))
    with Log(out / FILES) as account:
        done = {report["file"]: report for report in read_records(out / FILES)}
        waiting = [path for path in files if file_name(path) not in done]
        total = sum(path.stat().st_size for path in files) / MEGABYTE
        before = total - sum(path.stat().st_size for path in waiting) / MEGABYTE
        told = Redactor(redact) if redact else change
        with _Output(out, list(done.values()), strict, told) as output, progress("ingest", total, "MB", before) as on:
            for path in waiting:
                report = _ingest_file(path, root, settings, output, on)
                account.append(json.dumps(report, ensure_ascii=False))
                done[report["file"]] = report
    summary = summarize(list(done.values()))
    if redact:
        summary["redaction"] = placeholders(out / TRAJECTORIES, redact.scope)
    write_json(out / SUMMARY, summary)
    return summary


def _begin(out: Path, config: Mapping[str, Any], redact: Rules | None) -> None:
    """Open the run; what a stopped one has redacted goes, since its placeholders' values are known no more."""
    open_run(out, {**config, **({"redact": redact.digest} if redact else {})})
    if redact and not (out / SUMMARY).exists():
        for name in (TRAJECTORIES, SKIPPED, FILES):
            (out / name).unlink(missing_ok=True)


def find_files(paths: Sequence[Path], out: Path) -> list[Path]:
    """The files, each once, in order; in folders those whose names do not begin with a dot. ``out`` is left out.

    Raises:
        DataError: a path is missing, or there is no file.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if not path.exists():
            raise DataError("does not exist", path)
        inner = sorted(path.rglob("*")) if path.is_dir() else [path]
        for each in inner:
            hidden = path.is_dir() and any(part.startswith(".") for part in each.relative_to(path).parts)
            if each.is_file() and not hidden and out.resolve() not in each.resolve().parents:
                found[each] = None
    if not found:
        raise DataError("holds no files", paths[0] if paths else None)
    return list(found)


def _config(files: Sequence[Path], settings: Settings, change: Change | None) -> dict[str, Any]:
    return {
        "stage": "ingest",
        "files": {file_name(path): path.stat().st_size for path in files},
        "format": settings.format,
        "env": settings.env,
        "system": settings.system,
        "columns": dict(settings.columns),
        "encoding": settings.encoding,
        "max_mb": settings.max_mb,
        **({"keep": list(settings.keep)} if settings.keep else {}),
        "change": getattr(change, "__qualname__", type(change).__name__) if change else None,
    }


class _Output:
    """The two files that grow. What an interrupted run has written of a file is not written again."""

    def __init__(self, out: Path, done: Sequence[Mapping[str, Any]], strict: bool, change: Change | None):
        self.folder, self._strict, self._change = out, strict, change
        self._episodes, self._skips = Log(out / TRAJECTORIES), Log(out / SKIPPED)
        self._written = _lines_in(out / TRAJECTORIES) - sum(report["episodes"] for report in done)
        self._told = _lines_in(out / SKIPPED) - sum(report["lines_skipped"] for report in done)
        self.lines_skipped = 0

    def episode(self, episode: Trajectory, path: Path, place: int) -> None:
        """Write an episode."""
        if self._strict and getattr(episode, "left_out", None):
            raise DataError(f"a part cannot be kept: {', '.join(episode.left_out)}", path, place)  # type: ignore[attr-defined]
        if self._written > 0:
            self._written -= 1
        else:
            self._episodes.append((self._change(episode) if self._change else episode).to_json())

    def skip(self, skip: Skip, path: Path, unit: str) -> None:
        """Write what made no episode, and why."""
        if self._strict and skip.lost:
            raise DataError(f"{skip.reason}{f' ({skip.detail})' if skip.detail else ''}", path, skip.place)
        self.lines_skipped += 1
        if self._told > 0:
            self._told -= 1
            return
        told = {"file": file_name(path), unit: skip.place, "reason": skip.reason, "detail": skip.detail,
                "records": skip.records, "lost": skip.lost}  # fmt: skip
        self._skips.append(json.dumps({k: v for k, v in told.items() if v is not None}, ensure_ascii=False))

    def __enter__(self) -> "_Output":
        return self

    def __exit__(self, *exc: object) -> None:
        self._episodes.close()
        self._skips.close()


def _lines_in(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def _ingest_file(path: Path, root: Path, settings: Settings, output: _Output, advance: Advance) -> dict[str, Any]:
    tally, output.lines_skipped = Tally(), 0
    unit, found = "line", None
    try:
        kind, found = examine(path, settings)
        unit = "item" if kind == "document" else "line"
        for item in _read(path, kind, found, settings, output.folder, tally, advance):
            made = item if isinstance(item, Skip) else _made(item, path, root, unit, settings)
            if isinstance(made, Skip):
                output.skip(made, path, unit)
                tally.skip(made)
            else:
                output.episode(made, path, item.place)
                tally.found(made, getattr(item.read, "records", 1))  # type: ignore[union-attr]
    except (DataError, ProtocolError) as error:
        if isinstance(error, DataError) and error.line is not None:
            raise  # of a strict run
        tally.records += 1
        whole = Skip(1, getattr(error, "reason", str(error)))
        output.skip(whole, path, unit)
        tally.skip(whole)
        advance(path.stat().st_size / MEGABYTE, "")
    return {**tally.report(path, found.name if found else None), "lines_skipped": output.lines_skipped}


def examine(path: Path, settings: Settings) -> tuple[Kind, Format]:
    """What a file is, and in which format.

    Raises:
        DataError: it cannot be read.
        ProtocolError: its format is not recognized.
    """
    try:
        with opened(path, settings.encoding) as stream:
            kind = kind_of(stream.text, path, settings.limit, settings.format == "table")
        if settings.format:
            return kind, named(settings.format, settings.columns)
        with opened(path, settings.encoding) as stream:
            items = islice(records(stream.text, path, kind, settings.limit), SAMPLE)
            return kind, detect(items, settings.columns)
    except BROKEN as error:
        raise DataError(f"cannot be read: {error}", path) from error


def _read(
    path: Path, kind: Kind, found: Format, settings: Settings, folder: Path, tally: Tally, advance: Advance
) -> Iterator[Placed | Skip]:
    with opened(path, settings.encoding) as stream:
        told = 0
        items = tally.counted(records(stream.text, path, kind, settings.limit))
        for item in found.episodes(items, partial(Spill, folder, settings.limit)):
            yield item
            if (now := stream.bytes_read) - told >= TOLD_EVERY:
                advance((now - told) / MEGABYTE, f"{tally.episodes} episodes, {found.name}")
                told = now
        advance((path.stat().st_size - told) / MEGABYTE, f"{tally.episodes} episodes, {found.name}")


def _made(placed: Placed, path: Path, root: Path, unit: str, settings: Settings) -> Trajectory | Skip:
    """The trajectory of an episode, with the fields that are to be kept, or why there is none."""
    found = _told(placed, path, root, unit, settings)
    kept = kept_fields(placed.first, settings.keep)
    return found.model_copy(update=kept) if kept and isinstance(found, Trajectory) else found


def _told(placed: Placed, path: Path, root: Path, unit: str, settings: Settings) -> Trajectory | Skip:
    task_id = f"{file_name(stem_of(path.absolute().relative_to(root)))}/{placed.place}"  # no two files share it
    source = {"file": file_name(path), unit: placed.place}
    if isinstance(placed.read, Trajectory):
        known = placed.read.env.name != "unknown"
        env, task = EnvRef(name=settings.env), TaskRef(id=task_id)
        return placed.read if known else placed.read.model_copy(update={"env": env, "task": task, "source": source})
    try:
        return trajectory(placed.read, task_id, settings.env, source, settings.system)
    except (ProtocolError, *MALFORMED) as error:
        return refusal(placed.place, error, placed.read.records)
