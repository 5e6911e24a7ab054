"""Every error that worldloom raises on purpose.

WorldloomError
├── DataError          a file or a row is wrong; names the file and the line
├── ProtocolError      a trajectory cannot be said in the text protocol
│   └── ContextOverflow   it does not fit into the model's window
├── ConfigError        a setting is unknown, contradictory or differs from the run's
├── EnvError           an environment broke its contract or its engine failed
│   ├── MissingDependency  an engine, its data or a system program is absent
│   └── UnsolvableGame     a game has no winning plan
└── ModelError         a model cannot be loaded or used

Each message says what was wrong, where, and what to do about it.
"""

import difflib
from pathlib import Path
from typing import Any


class WorldloomError(Exception):
    """Base of all errors raised on purpose."""


class DataError(WorldloomError):
    """A file, or one line of it, is not what it should be."""

    def __init__(self, reason: str, path: Path | str | None = None, line: int | None = None):
        self.reason, self.path, self.line = reason, path, line
        where = f"{path}:{line}: " if line is not None else f"{path}: " if path is not None else ""
        super().__init__(where + reason)


class ProtocolError(WorldloomError):
    """A trajectory cannot be rendered, or messages cannot be parsed."""


class ContextOverflow(ProtocolError):
    """The initial context and one step do not fit into the token budget."""


class ConfigError(WorldloomError):
    """A setting is unknown, out of range, contradictory, or differs from the run's own."""


class EnvError(WorldloomError):
    """An environment broke its contract, or its engine failed."""


class MissingDependency(EnvError):
    """An engine, its data, or a program that it needs is not installed."""


class UnsolvableGame(EnvError):
    """A game has no plan that wins it."""


class ModelError(WorldloomError):
    """A model folder or name cannot be loaded or used."""


def suggest(name: str, known: Any) -> str:
    """The end of an error message: the nearest known name, else all of them."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(known))}"
