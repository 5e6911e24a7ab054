"""The commands that ask more than one evaluation does: studies, and what a choice made in the model gains."""

from pathlib import Path
from typing import Annotated

import typer

from worldloom.cli_text import pairs, show

app = typer.Typer()
PANEL = "Measure"


@app.command(rich_help_panel=PANEL)
def study(
    name: Annotated[str, typer.Argument(help="data, mixture, coverage, ood, context, or a YAML file of your own.")],
    out: Annotated[Path, typer.Option(help="Folder of the study; started again it goes on.")],
    scale: Annotated[float | None, typer.Option(help="Multiplies trajectories, test episodes, tasks, minutes.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", help="KEY=VALUE over the study's or its training's settings; repeatable."),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that play real environments.")] = 2,
    label: Annotated[str | None, typer.Option("--name", help="Name in metrics.json.")] = None,
    record: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Also write the metrics there (results/NAME/metrics.json).")
    ] = None,
) -> None:
    """Measure what a world model's fidelity depends on: data, mixture, agents, layouts, context."""
    from worldloom.runs import write_json
    from worldloom.study.metrics import told
    from worldloom.study.run import study as run_study
    from worldloom.study.settings import study_settings

    settings = study_settings(name, {**pairs(set_), **({} if scale is None else {"scale": scale})})
    metrics = run_study(out, settings, name=label, workers=workers, tell=lambda text: typer.echo(text, err=True))
    if record:
        write_json(record, metrics)
    typer.echo(told(metrics["study"]))
    typer.echo(f"report: {out / 'report.html'}")


@app.command(rich_help_panel=PANEL)
def calibrate(
    model: Annotated[str, typer.Argument(help="Run of `worldloom train`, or a model's folder.")],
    data: Annotated[Path, typer.Option(dir_okay=False, help="Real episodes of other tasks than it is measured on.")],
    episodes: Annotated[int | None, typer.Option(min=1, help="How many of them; default all.")] = None,
    seed: Annotated[int, typer.Option(help="Draws them.")] = 0,
) -> None:
    """Choose from real episodes how likely an end must be for an imagined episode to end; the model keeps to it."""
    from worldloom.ends import calibrate as choose

    show(choose(model, data, episodes, seed))


@app.command(rich_help_panel=PANEL)
def transfer(
    run: Annotated[Path, typer.Argument(help="Folder of an evaluation of two or more agents.")],
    record: Annotated[Path | None, typer.Option(dir_okay=False, help="Also write it there, as JSON.")] = None,
) -> None:
    """Say what choosing the best agent inside the world model gains in reality, from an evaluation's records."""
    from worldloom.evaluate.transfer import transfer_of
    from worldloom.runs import write_json

    metrics = transfer_of(run)
    if record:
        write_json(record, metrics)
    show(metrics["transfer"])
