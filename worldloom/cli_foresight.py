"""The commands that look ahead in a world model: verify, plan, rehearse."""

import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from worldloom.cli_text import agent_specs, env_spec, pairs
from worldloom.errors import ConfigError, WorldloomError

app = typer.Typer()
PANEL = "Practise"
FAILED, USAGE = 1, 2  # exit codes of `rehearse`

Model = Annotated[str, typer.Argument(help="The world model; see `worldloom evaluate --help`.")]
Out = Annotated[Path, typer.Option(help="Folder of the run; started again it goes on.")]
Env = Annotated[str, typer.Option("--env", help="The real environment; `worldloom envs` lists them.")]
Option = Annotated[list[str] | None, typer.Option("--option", "-o", help="KEY=VALUE for the environment; repeatable.")]
AgentList = Annotated[list[str], typer.Option("--agent", "-a", help="NAME or NAME:KEY=VALUE,KEY=VALUE; repeatable.")]
Split = Annotated[str, typer.Option(help="Split to take tasks from.")]
Tasks = Annotated[int, typer.Option(min=1, help="How many tasks; every arm plays the same ones.")]
Seed = Annotated[int, typer.Option(help="Draws tasks and drives agents.")]
MaxSteps = Annotated[int, typer.Option(min=1, help="Steps after which an episode is truncated.")]
Workers = Annotated[int, typer.Option(min=1, help="Episodes at once, each with a real environment's process.")]
Name = Annotated[str | None, typer.Option(help="Name in metrics.json.")]
RecordAt = Annotated[
    Path | None, typer.Option(dir_okay=False, help="Also write the metrics there (results/NAME/metrics.json).")
]


@app.command(rich_help_panel=PANEL)
def verify(
    model: Model,
    out: Out,
    env: Env,
    agent: AgentList,
    action: Annotated[
        list[str],
        typer.Option(help="Actions to check: a text or a tool's name, in which * stands for anything; repeatable."),
    ],
    split: Split,
    option: Option = None,
    budget: Annotated[
        list[int] | None, typer.Option(min=0, help="Refusals an episode at most; repeatable; 0 holds nothing back.")
    ] = None,
    calibrate: Annotated[
        Path | None, typer.Option(help="Real episodes of other tasks, to choose the threshold on.")
    ] = None,
    most_wrong: Annotated[
        float | None, typer.Option(help="Hold back at most this share of right actions; else the largest gain.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(min=0, help="The least chance of success that passes, instead of calibrating.")
    ] = None,
    horizon: Annotated[int, typer.Option(min=0, help="Steps imagined after an action that does not end a task.")] = 0,
    closing: Annotated[
        str | None, typer.Option(help="An action that ends a task, imagined after one that does not.")
    ] = None,
    samples: Annotated[
        int, typer.Option(min=0, help="Draw so many answers to tell the chance (for models behind a server).")
    ] = 0,
    tasks: Tasks = 30,
    seed: Seed = 0,
    max_steps: MaxSteps = 50,
    workers: Workers = 2,
    name: Name = None,
    record: RecordAt = None,
) -> None:
    """Imagine actions before they are taken, hold back those foreseen to fail, and measure what that is worth."""
    from worldloom.practice.verify import Check
    from worldloom.practice.verify_run import verify as run

    check = Check(action, horizon=horizon, samples=samples, closing=closing)
    metrics = run(
        out, model, env_spec(env, option), agent_specs(agent), check, budget or [0, 4], split=split, tasks=tasks,
        threshold=threshold, calibrate=calibrate, most_wrong=most_wrong, seed=seed, max_steps=max_steps,
        workers=workers, name=name,
    )  # fmt: skip
    _tell(metrics, out, record)


@app.command(rich_help_panel=PANEL)
def plan(
    model: Model,
    out: Out,
    env: Env,
    agent: AgentList,
    split: Split,
    search: Annotated[
        list[str] | None,
        typer.Option(help="width=4,depth=12,cost=200; with branch=2 a beam, with trust=0.5 a bound; repeatable."),
    ] = None,
    option: Option = None,
    admissible: Annotated[
        bool, typer.Option("--admissible", help="Propose first actions that the environment says to be possible.")
    ] = False,
    tasks: Tasks = 12,
    seed: Seed = 0,
    max_steps: MaxSteps = 50,
    workers: Workers = 2,
    name: Name = None,
    record: RecordAt = None,
) -> None:
    """Let agents look ahead in a world model before they act, and measure what that is worth at which cost."""
    from worldloom.practice.plan import Search
    from worldloom.practice.plan_run import plan as run

    searches = [Search.parse(pairs(text.split(","))) for text in search or ["width=4"]]
    metrics = run(
        out, model, env_spec(env, option), agent_specs(agent), searches, split=split, tasks=tasks,
        admissible=admissible, seed=seed, max_steps=max_steps, workers=workers, name=name,
    )  # fmt: skip
    _tell(metrics, out, record)


def _tell(metrics: dict[str, Any], out: Path, record: Path | None) -> None:
    from worldloom.practice.utility import summary
    from worldloom.runs import write_json

    if record:
        write_json(record, metrics)
    typer.echo(f"{summary(metrics)}\nreport: {out / 'report.html'}")


@app.command(rich_help_panel=PANEL)
def rehearse(
    agent: Annotated[str, typer.Argument(help="The agent: NAME or NAME:KEY=VALUE,KEY=VALUE.")],
    world: Annotated[str, typer.Argument(help="A world package, or a world model; see `worldloom evaluate --help`.")],
    out: Out,
    data: Annotated[
        Path | None, typer.Option(help="Episodes whose beginnings are the tasks; a world package has its own.")
    ] = None,
    limits: Annotated[Path | None, typer.Option(help="YAML file with limits; see docs/rehearse.md.")] = None,
    seen: Annotated[
        Path | None, typer.Option(help="Episodes that the world was trained on; by default those it noted.")
    ] = None,
    env: Annotated[str | None, typer.Option("--env", help="Real environment to replay imagined successes in.")] = None,
    option: Option = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="How many tasks; all if not given.")] = None,
    seed: Seed = 0,
    max_steps: MaxSteps = 50,
    workers: Workers = 2,
    at_once: Annotated[int, typer.Option(min=1, help="Imagined episodes at once.")] = 8,
) -> None:
    """Rehearse an agent in a world model. Exit code 0: all limits are met; 1: one is not; 2: it could not be done."""
    from worldloom.practice.limits import read_limits
    from worldloom.practice.rehearse_run import World, told
    from worldloom.practice.rehearse_run import rehearse as run

    try:
        (spec,) = agent_specs([agent])
        real = env_spec(env, option) if env else None
        if option and not env:
            raise ConfigError("--option is for the real environment: give --env, too")
        report = run(
            out, spec, World(world, data, seen, real), read_limits(limits), tasks=tasks, seed=seed,
            max_steps=max_steps, workers=workers, at_once=at_once,
        )  # fmt: skip
    except Exception as error:  # none is a verdict on the agent: uncaught, it would end with the code of one
        if not isinstance(error, WorldloomError | OSError):
            traceback.print_exc()
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(USAGE) from error
    typer.echo(f"{told(report)}\nreport: {out / 'report.html'}")
    if not report["passed"]:
        raise typer.Exit(FAILED)
