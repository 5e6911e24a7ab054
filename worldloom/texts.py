"""KEY=VALUE texts, as the command line and recipes give them."""

import json
from collections.abc import Iterable
from typing import Any

from worldloom.errors import ConfigError


def value_of(text: str) -> Any:
    """A value: JSON where it is JSON, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def pairs(texts: Iterable[str] | None) -> dict[str, Any]:
    """KEY=VALUE texts as a dictionary.

    Raises:
        ConfigError: one has no "=".
    """
    told = list(texts or [])
    if wrong := next((text for text in told if "=" not in text), None):
        raise ConfigError(f"{wrong!r} is not KEY=VALUE")
    return {key: value_of(value) for key, _, value in (text.partition("=") for text in told)}
