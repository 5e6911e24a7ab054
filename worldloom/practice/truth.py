"""What would really have come of an action: the history is played again in the real environment, then the action."""

import json
from collections.abc import Sequence

from worldloom.envs.base import Environment, Observation, StepResult
from worldloom.errors import EnvError


def truth_of(env: Environment, task_id: str, seed: int, history: Sequence[str], action: str) -> bool | None:
    """Whether an action was right, after some others; the environment is left in the middle of it.

    An action that ends the episode is right if it ends in success. Another one is right if the task can still be won
    after it, and wrong if it could be before and cannot any more: by what is left of the environment's own winning
    plan. None where that cannot be told: there is no such plan, or it would not have won before either.
    """
    first = _again(env, task_id, seed, history)
    result = env.step(action)
    if result.terminated:
        return result.info.get("terminal") == "success" if result.info.get("terminal") else None
    if result.truncated or not first.gold_actions:
        return None
    if _wins(env, _left(first.gold_actions, [*history, action]), result):
        return True
    _again(env, task_id, seed, history)
    return False if _wins(env, _left(first.gold_actions, history)) else None


def _again(env: Environment, task_id: str, seed: int, history: Sequence[str]) -> Observation:
    first = env.reset(task_id, seed)
    for action in history:
        if (result := env.step(action)).terminated or result.truncated:
            raise EnvError(f"task {task_id!r} ended at {action!r}, which it had not before; is the engine another one?")
    return first


def _left(plan: Sequence[str], taken: Sequence[str]) -> list[str]:
    """The steps of a plan that were not taken yet, each as often as it is in it."""
    done, left = [_plain(action) for action in taken], []
    for action in plan:
        if _plain(action) in done:
            done.remove(_plain(action))
        else:
            left.append(action)
    return left


def _plain(action: str) -> str:
    """An action without what makes no difference: in a tool call, the order of keys and the spaces."""
    try:
        return json.dumps(json.loads(action), sort_keys=True)
    except (ValueError, RecursionError):
        return action


def _wins(env: Environment, actions: Sequence[str], result: StepResult | None = None) -> bool:
    for action in actions:
        result = env.step(action)
        if result.terminated or result.truncated:
            break
    return result is not None and result.info.get("terminal") == "success"
