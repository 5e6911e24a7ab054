"""The commands that get episodes out of an agent at work, or out of its logs: record, conversations, ingest."""

from pathlib import Path
from typing import Annotated

import typer

from worldloom.cli_data import Keep, NameKeys, Names, Patterns, Region, Scope, rules
from worldloom.cli_text import pairs, show
from worldloom.errors import ConfigError

app = typer.Typer()
PANEL = "From logs"


@app.command(rich_help_panel=PANEL)
def ingest(
    paths: Annotated[list[Path], typer.Argument(help="Log files, or folders of them; .gz and .zst as they are.")],
    out: Annotated[Path, typer.Option(help="Folder for trajectories.jsonl; started again it goes on.")],
    format_: Annotated[
        str | None, typer.Option("--format", help="Their format; detected for each if not given.")
    ] = None,
    env: Annotated[str, typer.Option("--env", help="What to call the world that the logs are from.")] = "logs",
    system: Annotated[
        str, typer.Option(help="Where instructions and tools go: observation, context (the agent sees none), none.")
    ] = "observation",
    column: Annotated[
        list[str] | None,
        typer.Option("--column", "-c", help="NAME=COLUMN of a table, as in action=command; repeatable."),
    ] = None,
    encoding: Annotated[str | None, typer.Option(help="Of files that are not UTF-8 and have no mark.")] = None,
    max_mb: Annotated[float, typer.Option(help="The most megabytes of one record; bounds the memory.")] = 16.0,
    keep_field: Annotated[
        list[str] | None,
        typer.Option(help="Field of a record that its episode keeps, as metadata.customer; repeatable."),
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Replace secrets and personal data before anything is written.")
    ] = False,
    name: Names = None,
    name_key: NameKeys = None,
    pattern: Patterns = None,
    keep: Keep = None,
    region: Region = "US",
    scope: Scope = "episode",
    strict: Annotated[bool, typer.Option(help="Stop at the first record that would be lost.")] = False,
) -> None:
    """Read an agent's logs, in the format that they have, as episodes; account for every record."""
    from worldloom.ingest.run import Settings
    from worldloom.ingest.run import ingest as stage

    if not redact and (name or name_key or pattern or keep or (region, scope) != ("US", "episode")):
        raise ConfigError("--name, --name-key, --pattern, --keep, --region and --scope need --redact")
    looked_for = rules(name, name_key, pattern, keep, region, scope) if redact else None
    columns = {name: str(value) for name, value in pairs(column).items()}
    settings = Settings(format_, env, system, columns, encoding, max_mb, tuple(keep_field or ()))  # type: ignore[arg-type]
    show(stage(paths, out, settings, strict=strict, redact=looked_for))


@app.command(rich_help_panel=PANEL)
def record(
    upstream: Annotated[str, typer.Option(help="The OpenAI-compatible server, e.g. https://api.openai.com/v1.")],
    out: Annotated[Path, typer.Option(help="File for the exchanges; more are added to what is there.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8080,
) -> None:
    """Stand between an agent and its model, pass everything on unchanged, and store each exchange."""
    from worldloom.recording.serve import serve

    def ready(address: str) -> None:
        typer.echo(f"base_url {address} passes on to {upstream.rpartition('@')[2]} and records to {out}")

    serve(upstream, out, host=host, port=port, ready=ready)


@app.command(rich_help_panel=PANEL)
def conversations(
    exchanges: Annotated[Path, typer.Argument(help="A file that `worldloom record` wrote.")],
    out: Annotated[Path, typer.Option(help="Folder for chat.jsonl and responses.jsonl, a conversation a line.")],
) -> None:
    """Make whole conversations of recorded exchanges."""
    from worldloom.recording.conversations import write_conversations

    show(write_conversations(exchanges, out))
