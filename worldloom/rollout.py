"""One loop: environment x agent -> trajectory. Collecting, evaluation and training by reward all use it."""

import logging
from collections.abc import Callable

from worldloom.agents.base import Agent, Finished, Start
from worldloom.agents.gold import Replay
from worldloom.envs.base import Environment, Observation, StepResult
from worldloom.envs.versions import check_version
from worldloom.trajectory import AgentRef, EnvRef, Failure, Step, TaskRef, Terminal, Trajectory

logger = logging.getLogger(__name__)

MAX_STEPS = 50  # Word2World: at most 50 turns
NOTED = (  # of a step's info, as it is
    "admissible_actions", "changed", "refused", "not_recorded", "confidence", "anchored", "reason",
)  # fmt: skip


def rollout(
    env: Environment,
    agent: Agent,
    task_id: str,
    *,
    seed: int = 0,
    split: str | None = None,
    max_steps: int = MAX_STEPS,
    on_step: Callable[[], None] = lambda: None,
) -> Trajectory:
    """Play one episode. An error of the engine or the agent is recorded in ``error``, not raised; where the agent has
    nothing more to do (``Finished``), the episode is truncated.

    ``on_step`` is called before the reset and before every step (a sign of life for a watchdog).
    """
    first, failure = Observation(""), None
    steps: list[Step] = []
    try:
        on_step()
        first = env.reset(task_id, seed)
        agent.begin(Start(task_id, first.text, first.instruction, seed, first.gold_actions))
        _play(env, agent, first.text, steps, max_steps, on_step)
    except Exception as error:
        logger.warning("%s on %s broke: %r", agent.name, task_id, error)
        failure = Failure(kind=type(error).__name__, message=str(error))
    return Trajectory(
        env=env.ref,
        task=TaskRef(
            id=task_id,
            split=split,
            seed=seed,
            instruction=first.instruction,
            gold_actions=list(first.gold_actions) if first.gold_actions else None,
        ),
        initial_context=first.initial_context,
        initial_observation=first.text,
        agent=agent.ref,
        steps=steps,
        error=failure,
    )


def replay(env: Environment, recorded: Trajectory) -> Trajectory:
    """Take a recorded episode's actions again, from the same beginning.

    Raises:
        ConfigError: it was recorded in another version of the engine.
    """
    task = recorded.task
    check_version([recorded.env], env.ref, f"the episode of task {task.id!r}")
    return rollout(
        env, Replay(recorded.actions), task.id, seed=task.seed or 0, split=task.split, max_steps=len(recorded.actions)
    )


def _play(
    env: Environment, agent: Agent, text: str, steps: list[Step], max_steps: int, on_step: Callable[[], None]
) -> None:
    for number in range(1, max_steps + 1):
        try:
            action, thought = agent.act(text)
        except Finished:
            steps[-1:] = [step.model_copy(update={"terminal": "truncated"}) for step in steps[-1:]]
            return
        on_step()
        result = env.step(action)
        text = result.observation
        cut = number == max_steps and not result.terminated
        steps.append(
            Step(
                thought=thought,
                action=action,
                observation=text,
                reward=result.reward,
                terminal=terminal_of(result) or ("truncated" if cut else None),
                **{name: result.info.get(name) for name in NOTED},
            )
        )
        if result.terminated or result.truncated:
            return


def terminal_of(result: StepResult) -> Terminal | None:
    """How the step ended the episode, None if it did not or if an end's kind is unknown."""
    if result.truncated and not result.terminated:
        return "truncated"
    return result.info.get("terminal") if result.terminated else None


def broken(env_ref: EnvRef, task: TaskRef, agent: AgentRef, failure: Failure) -> Trajectory:
    """The record of a rollout of which nothing else came back (its process died)."""
    return Trajectory(env=env_ref, task=task, agent=agent, initial_observation="", error=failure)
