"""Turn an agent's interaction logs into an LLM world model, and measure how far to trust it.

The names below are the public Python interface, with the stages' own functions: ``worldloom.collect.collect``,
``worldloom.train.train``, ``worldloom.evaluate.run.evaluate`` and ``worldloom.rollout.rollout``. They are imported
when first used, so that ``import worldloom`` is quick.
"""

import importlib
from typing import Any

_HOMES = {
    "AgentSpec": "worldloom.agents",
    "EnvSpec": "worldloom.envs",
    "Environment": "worldloom.envs",
    "LocalLM": "worldloom.lm.session",
    "TrainConfig": "worldloom.config",
    "Trajectory": "worldloom.trajectory",
    "WorldModelEnv": "worldloom.world",
    "WorldloomError": "worldloom.errors",
    "check_env": "worldloom.envs.check",
    "load_world": "worldloom.package",
    "make": "worldloom.envs",
    "read": "worldloom.trajectory",
    "record": "worldloom.recording.recorder",
    "starts_of": "worldloom.world",
    "write": "worldloom.trajectory",
}

__all__ = [
    "AgentSpec",
    "EnvSpec",
    "Environment",
    "LocalLM",
    "TrainConfig",
    "Trajectory",
    "WorldModelEnv",
    "WorldloomError",
    "check_env",
    "load_world",
    "make",
    "read",
    "record",
    "starts_of",
    "write",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'worldloom' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
