"""The commands that look at recorded episodes and make them ready: redact, lint, stats, split, export."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from worldloom.cli_text import show
from worldloom.errors import ConfigError

app = typer.Typer()
PANEL = "From logs"

File = Annotated[Path, typer.Argument(help="Trajectory file (JSON Lines).")]
Names = Annotated[list[str] | None, typer.Option("--name", help="A name to look for; repeatable.")]
NameKeys = Annotated[
    list[str] | None, typer.Option("--name-key", help="A key whose values are names, as first_name; repeatable.")
]
Patterns = Annotated[
    list[str] | None, typer.Option("--pattern", help="KIND=REGEX for identifiers of your own; repeatable.")
]
Keep = Annotated[list[str] | None, typer.Option("--keep", help="A kind to leave as it is, as PHONE; repeatable.")]
Region = Annotated[str, typer.Option(help="Country whose phone numbers need no '+'.")]
Scope = Annotated[str, typer.Option(help="Where a value keeps its placeholder: episode, or file.")]


def rules(
    names: list[str] | None, name_keys: list[str] | None, patterns: list[str] | None, keep: list[str] | None,
    region: str, scope: str = "episode",
) -> Any:  # fmt: skip
    """What to look for, as the command line says it.

    Raises:
        ConfigError: a pattern has no "=", or a rule makes no sense.
    """
    from worldloom.redact.rules import Rules

    if wrong := next((text for text in patterns or [] if "=" not in text), None):
        raise ConfigError(f"{wrong!r} is not KIND=REGEX")
    own = tuple((kind, pattern) for kind, _, pattern in (text.partition("=") for text in patterns or []))
    return Rules(tuple(names or ()), tuple(name_keys or ()), own, frozenset(keep or ()), region.upper(), scope)  # type: ignore[arg-type]


@app.command(rich_help_panel=PANEL)
def redact(
    file: File,
    out: Annotated[Path, typer.Option(help="The redacted file.")],
    report: Annotated[Path | None, typer.Option(help="Also write the report there.")] = None,
    originals: Annotated[
        Path | None, typer.Option(help="Write the way back there: a new file, in a folder elsewhere, yours alone.")
    ] = None,
    restore: Annotated[
        Path | None, typer.Option(help="Go back instead: put the values of this way back into FILE.")
    ] = None,
    name: Names = None,
    name_key: NameKeys = None,
    pattern: Patterns = None,
    keep: Keep = None,
    region: Region = "US",
    scope: Scope = "episode",
    strict: Annotated[bool, typer.Option(help="Stop at the first line that is no trajectory.")] = False,
) -> None:
    """Replace secrets and personal data by placeholders, the same for the same value."""
    from worldloom.redact import run
    from worldloom.runs import write_json

    chosen = rules(name, name_key, pattern, keep, region, scope)
    if restore is not None:
        show({"episodes": run.put_back(file, restore, out)})
        return
    found = run.redact(file, out, chosen, originals=originals, strict=strict)
    if report:
        write_json(report, found)
    show(found)


@app.command(rich_help_panel=PANEL)
def lint(
    files: Annotated[list[Path], typer.Argument(help="Files of trajectories or of `messages` rows.")],
    model: Annotated[str | None, typer.Option(help="Check lengths against this model's window.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="A narrower window.")] = None,
    near: Annotated[float, typer.Option(min=0.05, max=1, help="Similarity of near-duplicates; 1 compares none.")] = 0.9,
    secrets: Annotated[bool, typer.Option(help="Look for secrets and personal data.")] = True,
    name: Names = None,
    name_key: NameKeys = None,
    pattern: Patterns = None,
    keep: Keep = None,
    region: Region = "US",
    as_json: Annotated[bool, typer.Option("--json", help="Tell all as one JSON object.")] = False,
    strict: Annotated[bool, typer.Option(help="Fail on warnings, too.")] = False,
) -> None:
    """Say what is wrong with episodes, line by line; exit with 1 if anything is."""
    from worldloom.lint import run

    if max_tokens is not None and model is None:
        raise ConfigError("--max-tokens needs --model, whose tokens are counted")
    window = run.model_window(model, max_tokens) if model else None
    looked_for = rules(name, name_key, pattern, keep, region) if secrets else None
    problems = []
    for problem in run.lint(files, rules=looked_for, window=window, near=near if near < 1 else None):
        problems.append(problem)
        if not as_json:
            typer.echo(str(problem))
    found = run.summary(problems)
    if as_json:
        show(found)
    else:
        typer.echo(f"{found['errors']} errors, {found['warnings']} warnings", err=True)
    if found["errors"] or (strict and found["warnings"]):
        raise typer.Exit(1)


@app.command(rich_help_panel=PANEL)
def stats(
    file: File,
    out: Annotated[Path | None, typer.Option(help="Write report.html and stats.json to this folder.")] = None,
) -> None:
    """Tell what the episodes cover and what is missing for a usable model."""
    from worldloom.coverage.run import stats as run_stats

    show(run_stats(file, out))


@app.command(rich_help_panel=PANEL)
def split(
    file: File,
    out: Annotated[Path, typer.Option(help="Folder for a file of each split, and splits.json.")],
    by: Annotated[
        list[str] | None, typer.Option(help="What no two splits may share: task, or a field's path; repeatable.")
    ] = None,
    time: Annotated[str | None, typer.Option(help="A field with a time: the earliest episodes train.")] = None,
    fraction: Annotated[list[str] | None, typer.Option(help="NAME=SHARE, in order; repeatable.")] = None,
    seed: Annotated[int, typer.Option(help="Draws other splits.")] = 0,
    stable: Annotated[bool, typer.Option(help="No group moves when others are added; shares are approximate.")] = False,
    leaks: Annotated[str, typer.Option(help="Where splits would leak: refuse, or leave_out.")] = "refuse",
    placeholders: Annotated[
        str, typer.Option(help="The --scope that the file was redacted with: episode, or file.")
    ] = "episode",
) -> None:
    """Make splits that share no task, no customer and no episode."""
    from worldloom.split import Leaks, SplitConfig
    from worldloom.split import split as run_split

    if leaks not in ("refuse", "leave_out"):
        raise ConfigError(f"leaks {leaks!r} must be refuse or leave_out")
    if placeholders not in ("episode", "file"):
        raise ConfigError(f"placeholders {placeholders!r} must be episode or file")
    scope: Literal["episode", "file"] = "file" if placeholders == "file" else "episode"
    fractions = {"fractions": tuple(map(share, fraction))} if fraction else {}
    told: Leaks = "leave_out" if leaks == "leave_out" else "refuse"
    keys = tuple(by or ("task",))
    config = SplitConfig(keys, time, seed=seed, stable=stable, leaks=told, placeholders=scope, **fractions)
    show(run_split(file, out, config))


def share(text: str) -> tuple[str, float]:
    """NAME=SHARE as a pair.

    Raises:
        ConfigError: it is none.
    """
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise ConfigError(f"{text!r} is not NAME=SHARE, such as train=0.8") from None


@app.command(rich_help_panel=PANEL)
def export(
    file: File,
    out: Annotated[Path, typer.Option(help="The file to write: .jsonl or .parquet.")],
    form: Annotated[str, typer.Option(help="messages, sharegpt, steps, or trajectories.")] = "messages",
) -> None:
    """Write episodes as other trainers read them."""
    from worldloom.errors import DataError
    from worldloom.export import export as run_export
    from worldloom.trajectory import BadLine, scan

    def episodes() -> Any:
        for item in scan(file):
            if isinstance(item, BadLine):
                raise DataError(item.reason, item.path, item.line)
            yield item

    show(run_export(episodes(), out, form))
