"""Measures of what a tool answers: is it JSON, and has it the keys and types of another answer.

Word by word, a made-up answer with the right form is as wrong as nonsense; these tell the two apart. They are pure
functions of texts.
"""

import ast
import json
from collections.abc import Iterator
from typing import Any

Schema = frozenset[tuple[str, str]]
"""Pairs of a path and a type: ``("", "object")``, ``(".user", "object")``, ``(".user.tags[]", "string")``."""

MISREAD = (ValueError, SyntaxError, RecursionError, MemoryError)


def is_json(text: str) -> bool:
    """The text is JSON and nothing else (NaN and Infinity are not JSON)."""
    return parsed(text) is not None


def schema(text: str) -> Schema | None:
    """The paths and types in a JSON text; None if it is not JSON.

    An object's key ``k`` adds ``.k`` to the path, a list's items add ``[]`` and are united: a list of a thousand like
    items has the schema of one. Types are object, list, string, number, boolean and null; 1 and 1.0 are both numbers.
    A string that itself spells an object or a list, as JSON or as Python, counts as what it spells: tools pack their
    answers so (``{"error": "", "response": "{'id': 1}"}``).
    """
    found = parsed(text)
    return None if found is None else frozenset(_paths("", found[0]))


def schema_agreement(predicted: str, gold: str) -> float | None:
    """The share of path-type pairs that two JSON texts have in common, of all that either has (Jaccard index).

    1 for the same keys and types whatever the values, 0 if ``predicted`` is not JSON, None if ``gold`` is not (an error
    page, or an answer that was cut): then there is nothing to agree with, and the pair must not count.
    """
    wanted, got = schema(gold), schema(predicted)
    if wanted is None:
        return None
    return len(wanted & got) / len(wanted | got) if got is not None else 0.0


def parsed(text: str) -> tuple[Any] | None:
    """The value of a JSON text, in a tuple of one (as it may be None itself); None if it is not JSON."""
    try:
        return (json.loads(text, parse_constant=_refuse),)
    except MISREAD:
        return None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _paths(path: str, value: Any) -> Iterator[tuple[str, str]]:
    value = _spelt(value) if isinstance(value, str) else value
    yield path, _type(value)
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _paths(f"{path}.{key}", part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _paths(f"{path}[]", part)


def _type(value: Any) -> str:
    kinds = {bool: "boolean", int: "number", float: "number", dict: "object", list: "list", tuple: "list"}
    return "null" if value is None else kinds.get(type(value), "string")


def _spelt(text: str) -> Any:
    """The object or list that a string spells, else the string."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    found = parsed(text)
    if found is None:
        try:
            found = (ast.literal_eval(text.strip()),)
        except MISREAD:
            return text
    return found[0] if isinstance(found[0], dict | list) else text
