"""The command that shows what evaluations found."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()
PANEL = "Measure"


@app.command(rich_help_panel=PANEL)
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of evaluations, or of recorded results.")],
    out: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="The page; default report.html in the run, comparison.html for several."),
    ] = None,
) -> None:
    """Write the page of an evaluation anew, or one page that compares several."""
    from worldloom.evaluate.comparison import compare
    from worldloom.evaluate.metrics import report as one_run

    page = one_run(runs[0], out) if len(runs) == 1 else compare(runs, out or Path("comparison.html"))
    typer.echo(f"report: {page}")
