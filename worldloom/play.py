"""A person plays an environment in the terminal, real or imagined."""

from collections.abc import Callable

from worldloom.envs import EnvSpec
from worldloom.envs.base import Environment, Observation
from worldloom.errors import ConfigError, EnvError

HELP = "An action, or :actions (what is possible here), :undo (imagined worlds), :quit"
NOT_KNOWN = "not known here"
NOT_YET = "known after the first action, in worlds that say it; try one, such as look"

Ask = Callable[[], str | None]
Tell = Callable[[str], None]


def play(
    spec: EnvSpec, ask: Ask, tell: Tell, *, task_id: str | None = None, model: str | None = None, seed: int = 0
) -> None:
    """Play one episode: ``ask`` gives what the person says (None at the end of input), ``tell`` shows texts.

    Args:
        task_id: default the first of the training split.
        model: imagine the episode in this world model; the real environment only says how it begins.

    Raises:
        ConfigError: the environment has no task.
        EnvError, ModelError, MissingDependency: something cannot be started.
    """
    with spec.build() as real:
        task = task_id or _first_task(real)
        start = real.reset(task, seed)
        world = _imagined(model, real, task, start) if model else real
        tell(f"{world.name} {task}\n{HELP}\n\n{start.text}")
        _go_on(world, ask, tell)


def _first_task(env: Environment) -> str:
    for task in env.task_ids(env.splits[0]):
        return task
    raise ConfigError(f"{env.name} has no task")


def _imagined(model: str, real: Environment, task: str, start: Observation) -> Environment:
    from worldloom.lm.base import open_lm
    from worldloom.world import Start, WorldModelEnv

    world = WorldModelEnv(open_lm(model), {task: Start("all", start)}, real.name)
    world.reset(task)
    return world


def _go_on(world: Environment, ask: Ask, tell: Tell) -> None:
    possible: list[str] | None = None
    moved = False
    while (said := ask()) not in (None, ":quit"):
        if said == ":actions":
            tell("\n".join(possible) if possible else NOT_KNOWN if moved else NOT_YET)
        elif said == ":undo":
            tell(_undone(world))
        elif said and said.startswith(":"):
            tell(f"there is no {said!r}; {HELP}")
        else:
            result, moved = world.step(said or ""), True
            possible = result.info.get("admissible_actions")
            tell(result.observation)
            if result.terminated or result.truncated:
                tell(f"the end: {result.info.get('terminal') or 'truncated'}, reward {result.reward}")
                return


def _undone(world: Environment) -> str:
    rewind = getattr(world, "rewind", None)
    if rewind is None:
        return "a real environment cannot take a step back"
    try:
        rewind()
    except EnvError as error:
        return str(error)
    return "the last step is undone"
