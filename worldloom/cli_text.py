"""What the command line is given and gives: KEY=VALUE texts, environments and agents, results as JSON."""

import json
from typing import Any

import typer

from worldloom.texts import pairs

__all__ = ["agent_specs", "env_spec", "pairs", "show"]


def env_spec(name: str, options: list[str] | None) -> Any:
    """An environment as the command line names it."""
    from worldloom.envs import EnvSpec

    return EnvSpec(name, pairs(options))


def agent_specs(texts: list[str] | None) -> list[Any]:
    """Agents as the command line names them; see ``AgentSpec.parse``."""
    from worldloom.agents import AgentSpec

    return [AgentSpec.parse(text) for text in texts or []]


def show(result: Any) -> None:
    """Print a result as JSON on standard output."""
    typer.echo(json.dumps(result, indent=1, ensure_ascii=False))
