"""The command that makes a world of logs: build."""

from pathlib import Path
from typing import Annotated

import typer

from worldloom.cli_data import Keep, NameKeys, Names, Patterns, Region, rules
from worldloom.cli_text import pairs

app = typer.Typer()
PANEL = "From logs"


@app.command(rich_help_panel=PANEL)
def build(
    logs: Annotated[list[Path], typer.Argument(help="Log files, or folders of them; .gz and .zst as they are.")],
    out: Annotated[Path, typer.Option(help="Folder of the world; started again it goes on.")],
    minutes: Annotated[
        float | None, typer.Option(help="For training (two thirds) and measuring; as long as it takes if not given.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model to train: smollm2-135m, a folder or a hub id.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="KEY=VALUE for training; see `worldloom train --help`.")
    ] = None,
    format_: Annotated[
        str | None, typer.Option("--format", help="Format of the logs; detected for each if not given.")
    ] = None,
    by: Annotated[
        list[str] | None, typer.Option(help="What no two splits may share: task, or a field's path; repeatable.")
    ] = None,
    time: Annotated[str | None, typer.Option(help="A field with a time: the earliest episodes are learnt.")] = None,
    test: Annotated[float, typer.Option(help="Share of the tasks that is held out.")] = 0.2,
    few_shot: Annotated[
        int, typer.Option(min=0, help="Held-out episodes on which the base model is measured beside; takes long.")
    ] = 0,
    title: Annotated[str | None, typer.Option(help="Name of the world; that of its folder if not given.")] = None,
    system: Annotated[
        str, typer.Option(help="Where instructions and tools go: observation, context (the agent sees none), none.")
    ] = "observation",
    column: Annotated[
        list[str] | None, typer.Option("--column", "-c", help="NAME=COLUMN of a table; repeatable.")
    ] = None,
    encoding: Annotated[str | None, typer.Option(help="Of logs that are not UTF-8 and have no mark.")] = None,
    max_mb: Annotated[float, typer.Option(help="The most megabytes of one record; bounds the memory.")] = 16.0,
    name: Names = None,
    name_key: NameKeys = None,
    pattern: Patterns = None,
    keep: Keep = None,
    region: Region = "US",
    seed: Annotated[int, typer.Option(help="Of splits, training and measuring.")] = 0,
    strict: Annotated[bool, typer.Option(help="Stop at the first record that would be lost.")] = False,
    record: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Also write the metrics there (results/NAME/metrics.json).")
    ] = None,
) -> None:
    """Make a world of logs: read, redact, split, check, train, measure, and pack it."""
    from worldloom.building.config import BuildConfig
    from worldloom.building.run import build as run_build
    from worldloom.evaluate.summary import table
    from worldloom.ingest.run import Settings
    from worldloom.runs import write_json

    columns = {key: str(value) for key, value in pairs(column).items()}
    config = BuildConfig(
        title or out.resolve().name, minutes, {**({"model": model} if model else {}), **pairs(set_)},
        Settings(format_, system=system, columns=columns, encoding=encoding, max_mb=max_mb),  # type: ignore[arg-type]
        rules(name, name_key, pattern, keep, region), tuple(by or ("task",)), time, test, seed, few_shot, strict,
    )  # fmt: skip
    metrics = run_build(logs, out, config, tell=lambda line: typer.echo(line, err=True))
    if record:
        write_json(record, {**metrics, "name": record.resolve().parent.name})
    typer.echo(table(metrics))
    ingest = metrics["ingest"]
    became = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in ingest["became"].items())
    typer.echo(f"{ingest['episodes']} episodes: {became}; unaccounted for: {ingest['unaccounted']}")
    typer.echo(f"world: {out / 'WORLD.md'}, {out / 'report.html'}; play it: worldloom play {out}")
