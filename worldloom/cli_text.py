"""What the command line is given and gives: KEY=VALUE texts, results as JSON."""

import json
from typing import Any

import typer

from worldloom.texts import pairs

__all__ = ["pairs", "show"]


def show(result: Any) -> None:
    """Print a result as JSON on standard output."""
    typer.echo(json.dumps(result, indent=1, ensure_ascii=False))
