"""A file of trajectories -> its coverage, as JSON and as a page."""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from worldloom.coverage.measure import measured
from worldloom.evaluate.page import Headline, Section, Table, write_page
from worldloom.evaluate.plots import Rate, kinds_plot, novelty_plot
from worldloom.runs import write_json
from worldloom.trajectory import BadLine, Trajectory, scan

logger = logging.getLogger(__name__)

SHOWN = 15  # kinds of actions in the plot


def stats(path: Path, out: Path | None = None) -> dict[str, Any]:
    """What a file of trajectories covers (see ``measured``), read line by line.

    A line that is no trajectory is named in the log and in ``left_out``. With ``out``, ``out/stats.json`` and
    ``out/report.html`` are written.

    Raises:
        DataError: the file cannot be read.
    """
    left_out: list[str] = []

    def episodes() -> Iterator[Trajectory]:
        for item in scan(path):
            if isinstance(item, BadLine):
                logger.warning("left out: %s", item)
                left_out.append(str(item))
            else:
                yield item

    found = {"file": path.name, **measured(episodes()), "left_out": left_out}
    if out is not None:
        write_json(out / "stats.json", found)
        write_page(
            out / "report.html", title=f"What {path.name} covers", headlines=list(_headlines(found)),
            sections=list(_sections(found)),
        )  # fmt: skip
    return found


def _headlines(found: Mapping[str, Any]) -> Iterator[Headline]:
    yield Headline("episodes", f"{found['episodes']:,}", "", f"{found['tasks']['n']:,} tasks")
    yield Headline("steps", f"{found['steps']:,}", "", f"{len(found['kinds'])} kinds of actions")
    for name, rate in (("failed steps", found["failed_steps"]), ("new in the next step", found["novelty"]["next"])):
        if rate := Rate.of(rate):
            interval = f"[{100 * (rate.low or 0):.1f}, {100 * (rate.high or 0):.1f}]"
            yield Headline(name, f"{100 * rate.value:.1f} %", interval, f"n = {rate.n:,} steps")
    yield Headline("states visited", f"{found['states']['observations']:,}", "", "different observations")


def _sections(found: Mapping[str, Any]) -> Iterator[Section]:
    missing = Table("missing", ["", "what"], [[str(n), text] for n, text in enumerate(found["missing"], 1)])
    yield Section("What is missing for a usable model", "" if found["missing"] else "Nothing that these checks know.",
                  tables=(missing,))  # fmt: skip
    yield _kinds(found["kinds"])
    if over_time := found["novelty"]["over_time"]:
        rows = [[f"{row['episodes']:,}", f"{row['steps']:,}", f"{100 * row['new']:.1f}"] for row in over_time]
        data = Table("data of the plot", ["episodes so far", "steps", "new, %"], rows, folded=True)
        note = (
            "Steps whose form, action and observation with numbers and quoted values masked, no earlier step had, in "
            "the order of the file. Where the line is flat and low, more of the same log teaches little."
        )
        yield Section("Novelty over time", note, Markup(novelty_plot(over_time)), (data,))
    yield _counts(found)


def _kinds(kinds: Mapping[str, Mapping[str, Any]]) -> Section:
    head = ["kind", "steps", "failed", "failed, %", "episodes", "forms of reply", "new in the next, %"]
    rows = [
        [name, f"{k['steps']:,}", f"{k['failed']:,}", f"{100 * k['failed'] / k['steps']:.1f}", f"{k['episodes']:,}",
         f"{k['reply_forms']:,}", f"{100 * k['new']:.1f}"]
        for name, k in kinds.items()
    ]  # fmt: skip
    plot = Markup(kinds_plot(dict(list(kinds.items())[:SHOWN]))) if kinds else Markup()
    note = "What agents did, and how often the world refused it."
    return Section("Actions and their outcomes", note, plot, (Table("kinds of actions", head, rows),))


def _counts(found: Mapping[str, Any]) -> Section:
    def table(caption: str, counts: Mapping[str, int]) -> Table:
        return Table(caption, ["what", "n"], [[name.replace("_", " "), f"{n:,}"] for name, n in counts.items()])

    tables = (
        table("how episodes end", found["outcomes"]),
        table("tasks", found["tasks"]),
        table("states visited", found["states"]),
        table("what says whether a step failed", found["failures_told_by"]),
        Table(
            "lines left out", ["", "why"], [[str(n), text] for n, text in enumerate(found["left_out"], 1)], folded=True
        ),
    )
    return Section("Counts", tables=tables)
