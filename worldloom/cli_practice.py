"""The commands by which agents practise: imagine, improve, grpo, recipe."""

from pathlib import Path
from typing import Annotated, Any

import typer

from worldloom.cli_text import pairs, show

app = typer.Typer()
PANEL = "Practise"

Out = Annotated[Path, typer.Option(help="Folder of the run; started again it goes on.")]
Where = Annotated[
    str, typer.Option("--env", help="Where: NAME is the real environment, world-model:NAME=MODEL imagines it.")
]
Option = Annotated[list[str] | None, typer.Option("--option", "-o", help="KEY=VALUE for the environment; repeatable.")]
Split = Annotated[str, typer.Option(help="Split to take tasks from.")]
Starts = Annotated[
    Path | None, typer.Option(help="Recorded episodes that say how tasks begin, where no real environment is at hand.")
]
Workers = Annotated[int, typer.Option(min=1, help="Processes that play real environments.")]
Settings = Annotated[list[str] | None, typer.Option("--set", "-s", help="KEY=VALUE of the run; repeatable.")]
GuardSettings = Annotated[
    list[str] | None,
    typer.Option("--guard", help="KEY=VALUE of the guard: every, sample, limit, action=stop|warn|off; repeatable."),
]


def _place(env: str, option: list[str] | None, starts: Path | None, workers: int) -> Any:
    from worldloom.practice.place import Place

    return Place.parse(env, pairs(option), starts, workers)


@app.command(rich_help_panel=PANEL)
def imagine(
    out: Out,
    env: Where,
    agent: Annotated[list[str], typer.Option("--agent", "-a", help="NAME or NAME:KEY=VALUE,KEY=VALUE; repeatable.")],
    option: Option = None,
    split: Split = "train",
    tasks: Annotated[int | None, typer.Option(help="How many tasks; all if not given.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="How often each agent plays each task, with other luck.")] = 1,
    keep: Annotated[str, typer.Option(help="success, ended, or all.")] = "success",
    least_confidence: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Least probability of all that the world said in an episode.")
    ] = None,
    starts: Starts = None,
    seed: Annotated[int, typer.Option(help="Draws tasks and drives agents.")] = 0,
    max_steps: Annotated[int, typer.Option(min=1, help="Steps after which an episode is truncated.")] = 50,
    workers: Workers = 2,
) -> None:
    """Let agents play inside a world model, and keep what they won there as training data."""
    from worldloom.agents import AgentSpec
    from worldloom.practice.synthesize import synthesize

    chosen: Any = keep
    show(
        synthesize(
            out, _place(env, option, starts, workers), [AgentSpec.parse(text) for text in agent], split, tasks=tasks,
            samples=samples, seed=seed, max_steps=max_steps, keep=chosen, least_confidence=least_confidence,
        )
    )  # fmt: skip


@app.command(rich_help_panel=PANEL)
def improve(
    out: Out,
    env: Where,
    agent: Annotated[str, typer.Option("--agent", "-a", help="Who plays first: policy:model=RUN, or llm:model=NAME.")],
    option: Option = None,
    split: Split = "train",
    set_: Settings = None,
    train: Annotated[
        list[str] | None, typer.Option("--train", "-t", help="KEY=VALUE of `worldloom train`; repeatable.")
    ] = None,
    guard: GuardSettings = None,
    data: Annotated[list[Path] | None, typer.Option(help="Episodes to learn from in each round, too.")] = None,
    starts: Starts = None,
    workers: Workers = 2,
) -> None:
    """Improve a policy by what it wins (expert iteration), in a real or an imagined environment."""
    from worldloom.agents import AgentSpec
    from worldloom.practice.guard import GuardConfig
    from worldloom.practice.improve import ImproveConfig
    from worldloom.practice.improve import improve as run_improve

    show(
        run_improve(
            out, _place(env, option, starts, workers), AgentSpec.parse(agent), split,
            settings(ImproveConfig, set_), settings(GuardConfig, guard), train=pairs(train), data=data or [],
        )
    )  # fmt: skip


@app.command(rich_help_panel=PANEL)
def grpo(
    policy: Annotated[str, typer.Argument(help="A run of `worldloom train -s learns=policy`.")],
    out: Out,
    env: Where,
    option: Option = None,
    split: Split = "train",
    set_: Settings = None,
    guard: GuardSettings = None,
    starts: Starts = None,
    workers: Workers = 2,
) -> None:
    """Train a policy by the success of its episodes with TRL's GRPO, in a real or an imagined environment."""
    from worldloom.practice.grpo import GrpoConfig
    from worldloom.practice.grpo import grpo as run_grpo
    from worldloom.practice.guard import GuardConfig

    looks = settings(GuardConfig, ["every=5", *(guard or [])])
    show(run_grpo(out, _place(env, option, starts, workers), policy, split, settings(GrpoConfig, set_), looks))


@app.command(rich_help_panel=PANEL)
def recipe(
    file: Annotated[Path, typer.Argument(help="YAML file with stages and arms; see configs/utility/.")],
    out: Out,
    use: Annotated[
        list[str] | None, typer.Option(help="STAGE=FOLDER: take a finished run instead of that stage; repeatable.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Also write the metrics there (results/NAME/metrics.json).")
    ] = None,
    workers: Workers = 2,
) -> None:
    """Run several stages from one file, and measure what agents gained in the real environment."""
    from worldloom.practice.recipe import run
    from worldloom.runs import write_json

    found = run(file, out, use={name: Path(str(folder)) for name, folder in pairs(use).items()}, workers=workers)
    if record:
        write_json(record, found)
    show(found)


def settings(kind: Any, texts: list[str] | None) -> Any:
    """KEY=VALUE texts as the settings of a dataclass.

    Raises:
        ConfigError: a key is unknown, or a value is of the wrong kind.
    """
    from worldloom.config import validated

    return validated(kind, pairs(texts))
