"""The command ``worldloom``; stages are imported where they are used, so that ``--help`` is quick."""

import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from worldloom.cli_build import app as build_app
from worldloom.cli_data import app as data_app
from worldloom.cli_foresight import app as foresight_app
from worldloom.cli_logs import app as logs_app
from worldloom.cli_practice import app as practice_app
from worldloom.cli_report import app as report_app
from worldloom.cli_study import app as study_app
from worldloom.cli_text import agent_specs, env_spec, pairs, show
from worldloom.errors import ConfigError, WorldloomError

ABOUT = "Turn an agent's interaction logs into an LLM world model, and measure how far it can be trusted."
app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=ABOUT)
envs_app = typer.Typer(help="List the environments, or check some.")
app.add_typer(envs_app, name="envs", rich_help_panel="Play and train")
app.add_typer(logs_app)
app.add_typer(data_app)
app.add_typer(report_app)
app.add_typer(study_app)
app.add_typer(build_app)
app.add_typer(practice_app)
app.add_typer(foresight_app)
STOPPED = 130

Env = Annotated[str, typer.Option("--env", help="Environment; `worldloom envs` lists them.")]
Option = Annotated[list[str] | None, typer.Option("--option", "-o", help="KEY=VALUE for the environment; repeatable.")]
AgentList = Annotated[
    list[str] | None, typer.Option("--agent", "-a", help="NAME or NAME:KEY=VALUE,KEY=VALUE; repeatable.")
]
Seed = Annotated[int, typer.Option(help="Draws tasks and drives agents.")]
Workers = Annotated[int, typer.Option(min=1, help="Processes that play real environments.")]
Risk = Annotated[
    float, typer.Option(min=0.001, max=0.999, help="Share of accepted steps that may be wrong (confidence).")
]
MaxSteps = Annotated[int, typer.Option(min=1, help="Steps after which an episode is truncated.")]


@app.command(rich_help_panel="Play and train")
def demo(
    out: Annotated[Path, typer.Option(help="Folder of the run; started again it goes on.")] = Path("demo"),
    minutes: Annotated[float, typer.Option(min=0.5, help="How long it may take on two cores.")] = 25,
    workers: Workers = 2,
) -> None:
    """Play ALFWorld, train a world model on it and measure it, with one command."""
    from worldloom.demo import demo as run_demo
    from worldloom.evaluate.summary import table

    metrics = run_demo(out, minutes, workers)
    typer.echo(table(metrics))
    typer.echo(f"report: {out / 'evaluate' / 'report.html'}")


@app.command(rich_help_panel="Play and train")
def collect(
    out: Annotated[Path, typer.Option(help="Folder for trajectories.jsonl; started again it goes on.")],
    env: Env = "alfworld",
    option: Option = None,
    agent: AgentList = None,
    split: Annotated[str, typer.Option(help="Split to take tasks from.")] = "train",
    tasks: Annotated[
        int | None, typer.Option(help="How many tasks; if not given all of them, which may be thousands.")
    ] = None,
    agents_per_task: Annotated[int, typer.Option(help="How many of the agents play each task.")] = 1,
    seed: Seed = 0,
    max_steps: MaxSteps = 50,
    workers: Workers = 2,
) -> None:
    """Let agents play an environment and record every episode."""
    from worldloom import collect as stage

    agents = agent_specs(agent) or default_agents(env)
    spec = env_spec(env, option)
    summary = stage.collect(
        out, spec, agents, split, tasks=tasks, agents_per_task=agents_per_task, seed=seed, max_steps=max_steps,
        workers=workers,
    )  # fmt: skip
    show(summary)
    stage.check_played(summary, out)


def default_agents(env: str) -> list[Any]:
    """Scripted agents of several skills."""
    from worldloom.agents import AGENTS, AgentSpec
    from worldloom.demo import mixed_agents

    if env == "alfworld":
        return mixed_agents()
    if f"scripted-{env}" not in AGENTS:
        raise ConfigError(
            f"no scripted agent plays {env!r}; name one with --agent, such as {', '.join(sorted(AGENTS))}"
        )
    return [AgentSpec(f"scripted-{env}", {"skill": skill}) for skill in (1.0, 0.85, 0.7, 0.5, 0.25, 0.0)]


class _WithSettings(TyperCommand):
    """Help that ends on what ``--set`` takes; looked up only when it is asked for."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from rich.markup import escape

        from worldloom.config import described

        self.epilog = "\n\n".join(["Settings of --set and --config:", *map(escape, described())])
        super().format_help(ctx, formatter)


@app.command(cls=_WithSettings, rich_help_panel="Play and train")
def train(
    data: Annotated[list[Path], typer.Argument(help="Trajectory files (JSON Lines).")],
    out: Annotated[Path, typer.Option(help="Folder for the model; started again it goes on.")],
    config: Annotated[Path | None, typer.Option(help="YAML file with settings; see configs/.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="KEY=VALUE over the config; repeatable; see below.")
    ] = None,
) -> None:
    """Fine-tune a language model into a world model, or a policy (`-s learns=policy`)."""
    from worldloom.config import train_config
    from worldloom.train import train as run_train

    show(run_train(data, out, train_config(config, pairs(set_))))


@app.command(rich_help_panel="Measure")
def evaluate(
    model: Annotated[
        str,
        typer.Argument(
            help="A train run's or model's folder, a hub id, NAME@http://HOST/v1 or retrieval:PATH; for a model not "
            "trained for this zero-shot:MODEL or few-shot:FILE:MODEL."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the evaluation; started again it goes on.")],
    data: Annotated[Path | None, typer.Option(help="Real episodes for one-step fidelity.")] = None,
    episodes: Annotated[int | None, typer.Option(help="How many of them; all if not given.")] = None,
    env: Annotated[str | None, typer.Option("--env", help="Environment for consistency.")] = None,
    option: Option = None,
    split: Annotated[str | None, typer.Option(help="Split for consistency.")] = None,
    tasks: Annotated[int, typer.Option(help="How many tasks for consistency.")] = 12,
    agent: AgentList = None,
    seed: Seed = 0,
    max_steps: MaxSteps = 50,
    workers: Workers = 2,
    anchor: Annotated[
        list[str] | None,
        typer.Option(help="Let reality answer steps: first=3, every=5, action=search[*], unsure=0.9; repeatable."),
    ] = None,
    risk: Risk = 0.05,
    exact_only: Annotated[
        bool, typer.Option("--exact-only", help="Only whether steps are right, not what is said instead: quicker.")
    ] = False,
    rollouts: Annotated[bool, typer.Option(help="Also play the real episodes' actions inside the model.")] = False,
    logs: Annotated[Path | None, typer.Option(help="More logged episodes, to know what repeats alike.")] = None,
    minutes: Annotated[float | None, typer.Option(help="For real episodes: as many as fit; all if not given.")] = None,
    name: Annotated[str | None, typer.Option(help="Name in metrics.json.")] = None,
    record: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Also write the metrics there (results/NAME/metrics.json).")
    ] = None,
) -> None:
    """Measure a world model: one-step fidelity, confidence and consistency, with a report."""
    from worldloom.anchoring import Anchor
    from worldloom.evaluate.run import evaluate as run_evaluate
    from worldloom.evaluate.summary import table
    from worldloom.runs import write_json

    metrics = run_evaluate(
        out, model, name=name, data=data, episodes=episodes, env=env_spec(env, option) if env else None, split=split,
        tasks=tasks, agents=agent_specs(agent), seed=seed, max_steps=max_steps, workers=workers,
        anchors=[Anchor.parse(text) for text in anchor or []], risk=risk, rollouts=rollouts, logs=logs, minutes=minutes,
        exact_only=exact_only,
    )  # fmt: skip
    if record:
        write_json(record, metrics)
    typer.echo(table(metrics))
    typer.echo(f"report: {out / 'report.html'}")


@app.command(rich_help_panel="Measure")
def rescore(
    run: Annotated[Path, typer.Argument(help="Folder of an evaluation.")],
    risk: Annotated[
        float | None,
        typer.Option(min=0.001, max=0.999, help="Share of accepted steps that may be wrong; default: as evaluated."),
    ] = None,
) -> None:
    """Compute an evaluation's metrics and report anew from its records, without the model."""
    from worldloom.evaluate.metrics import rescore as run_rescore
    from worldloom.evaluate.summary import table

    typer.echo(table(run_rescore(run, risk)))
    typer.echo(f"report: {run / 'report.html'}")


@envs_app.callback(invoke_without_command=True)
def envs(context: typer.Context) -> None:
    """List the environments and what each still needs, or check some (`envs check`)."""
    from worldloom.envs import ENVIRONMENTS, EnvSpec

    if context.invoked_subcommand is None:
        for name in ENVIRONMENTS:
            typer.echo(f"{name:<26} {_state(EnvSpec(name))}")


def _state(spec: Any) -> str:
    """Whether an environment can be built here, or what to do first."""
    try:
        with spec.build() as env:
            return f"ready: {env.version}, splits {', '.join(env.splits)}"
    except WorldloomError as error:
        return f"missing: {error}"


@envs_app.command("check")
def envs_check(
    names: Annotated[list[str] | None, typer.Argument(help="Environments.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that are installed.")] = False,
    option: Option = None,
) -> None:
    """Prove the contract for environments, and show what a reset and a step take."""
    from worldloom.envs import ENVIRONMENTS, EnvSpec
    from worldloom.envs.check import check_env

    chosen = list(names or [])
    if everything:
        chosen = [name for name in ENVIRONMENTS if _state(EnvSpec(name)).startswith("ready")]
    if not chosen:
        raise ConfigError("name an environment, or give --all")
    reports = [check_env(env_spec(name, option), raise_on_problem=len(chosen) == 1) for name in chosen]
    typer.echo("\n".join(map(str, reports)))
    if not all(report.ok for report in reports):
        raise typer.Exit(1)


@app.command(rich_help_panel="Play and train")
def play(
    env: Annotated[str, typer.Argument(help="Environment; `worldloom envs` lists them.")],
    option: Option = None,
    task: Annotated[str | None, typer.Option(help="Task id; the first one if not given.")] = None,
    model: Annotated[str | None, typer.Option(help="Imagine it in this world model.")] = None,
    seed: Seed = 0,
) -> None:
    """Play an environment yourself, real or imagined."""
    from worldloom.play import play as run_play

    def ask() -> str | None:
        try:
            return input("> ")
        except EOFError:
            return None

    run_play(env_spec(env, option), ask, typer.echo, task_id=task, model=model, seed=seed)


@app.command(rich_help_panel="Play and train")
def fetch(
    name: Annotated[str, typer.Argument(help="Environment whose data to download from its authors: webshop.")],
    to: Annotated[Path | None, typer.Option(help="Folder; default worldloom's cache, where it is looked for.")] = None,
) -> None:
    """Download what an environment plays with."""
    from worldloom.envs import FETCHED, imported, suggest

    if name not in FETCHED:
        raise ConfigError(f"nothing is fetched for {name!r}{suggest(name, FETCHED)}")
    typer.echo(imported(FETCHED[name])(to))


def main() -> None:
    """Run the command; an error raised on purpose is told in one line."""
    # Threads that wait must not spin for long: beside any other process, that slows torch down many times over. GNU's
    # OpenMP can be told how long; not at all would cost speed, since a sleeping thread is slow to wake.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ |= {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", "1000")}
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    warnings.formatwarning = lambda message, *_, **__: f"WARNING: {message}\n"
    try:
        app()
    except WorldloomError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
    except OSError as error:  # a folder that cannot be written, a full disk
        logging.getLogger(__name__).debug("", exc_info=True)
        typer.echo(f"error: {error.filename or type(error).__name__}: {error.strerror or error}", err=True)
        sys.exit(1)
    except SystemExit as end:  # what typer makes of an interrupt, too
        if end.code == STOPPED:
            typer.echo("stopped; start the same command again to go on", err=True)
        raise
