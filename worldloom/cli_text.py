"""What the command line is given and gives: KEY=VALUE texts, environments and agents, results as JSON."""

import json
from typing import Any

import typer

from worldloom.errors import ConfigError


def value_of(text: str) -> Any:
    """A value given on the command line: JSON where it is JSON, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def pairs(texts: list[str] | None) -> dict[str, Any]:
    """KEY=VALUE texts as a dictionary.

    Raises:
        ConfigError: one has no "=".
    """
    for text in texts or []:
        if "=" not in text:
            raise ConfigError(f"{text!r} is not KEY=VALUE")
    return {key: value_of(value) for key, _, value in (text.partition("=") for text in texts or [])}


def env_spec(name: str, options: list[str] | None) -> Any:
    """An environment as the command line names it."""
    from worldloom.envs import EnvSpec

    return EnvSpec(name, pairs(options))


def agent_specs(texts: list[str] | None) -> list[Any]:
    """Agents as the command line names them: NAME or NAME:KEY=VALUE,KEY=VALUE; NAME may be MODULE:CLASS."""
    from worldloom.agents import AgentSpec

    found = []
    for text in texts or []:
        name, _, params = text.partition(":")
        if params and "=" not in params.partition(":")[0]:
            own_class, _, params = params.partition(":")
            name = f"{name}:{own_class}"
        found.append(AgentSpec(name, pairs(params.split(",") if params else [])))
    return found


def show(result: Any) -> None:
    """Print a result as JSON on standard output."""
    typer.echo(json.dumps(result, indent=1, ensure_ascii=False))
