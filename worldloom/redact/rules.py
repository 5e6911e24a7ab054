"""What is looked for beside the usual kinds, and how a finding is told."""

import hashlib
import re
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from worldloom.errors import ConfigError

KIND = re.compile(r"[A-Z][A-Z0-9_]*")
PLACEHOLDER = re.compile(r"<([A-Z][A-Z0-9_]*)_(\d+)>")


class Found(NamedTuple):
    """A secret or an identifier in a text: [start, stop) and its kind, such as ``EMAIL``."""

    start: int
    stop: int
    kind: str


@dataclass(frozen=True)
class Rules:
    """What to look for beside the usual kinds.

    Args:
        names: Names of people or firms, found as whole words, as written or in capitals.
        name_keys: Keys whose values are names wherever they stand, as in ``"first_name": "Ann"``.
        patterns: (kind, regular expression) pairs for identifiers of your own; a kind is like ``CUSTOMER_ID``.
        keep: Kinds that are left as they are.
        region: Two letters of the country whose phone numbers need no "+".
        scope: The same value has the same placeholder within an ``episode``, or in all that one ``Redactor`` sees
            (``file``).

    Raises:
        ConfigError: a kind is not in capitals, a pattern is no regular expression or matches the empty text, a name is
            empty, or the scope is unknown.
    """

    names: tuple[str, ...] = ()
    name_keys: tuple[str, ...] = ()
    patterns: tuple[tuple[str, str], ...] = ()
    keep: frozenset[str] = frozenset()
    region: str = "US"
    scope: Literal["episode", "file"] = "episode"

    def __post_init__(self) -> None:
        for kind in (*self.keep, *(kind for kind, _ in self.patterns)):
            if not KIND.fullmatch(kind):
                raise ConfigError(f"kind {kind!r} must be capitals, digits and _, such as CUSTOMER_ID")
        if self.scope not in ("episode", "file"):
            raise ConfigError(f"scope {self.scope!r} must be episode or file")
        if not all(name.strip() for name in (*self.names, *self.name_keys)):
            raise ConfigError("a name or a key of names is empty; leave it out")
        if self.own and any(pattern.match("") for _, pattern in self.own):
            raise ConfigError("a pattern matches the empty text, so it would match everywhere; make it narrower")

    @property
    def digest(self) -> str:
        """These rules as a run's settings may say them: names are not to be read there."""
        told = repr([sorted(value) if isinstance(value, frozenset) else value for value in astuple(self)])
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    @cached_property
    def own(self) -> tuple[tuple[str, re.Pattern[str]], ...]:
        """The patterns of this configuration, compiled: names, values of keys of names, and ``patterns``."""
        found = [(kind, _compiled(kind, pattern)) for kind, pattern in self.patterns]
        if self.name_keys:
            keys = "|".join(map(re.escape, self.name_keys))
            told = rf"(?<![\w-])(?:{keys})\\*[\"']?\s*[:=]\s*(\\*[\"'])(?P<value>[^\"'\\\n<]{{1,80}})(?<!\\)\1"
            found.append(("NAME", re.compile(told)))
        if self.names:
            spelt = sorted({form for name in self.names for form in (name, name.upper())}, key=len, reverse=True)
            found.append(("NAME", re.compile(whole("|".join(map(re.escape, spelt))))))
        return tuple(found)


def whole(pattern: str) -> str:
    """A pattern that may not stand inside a longer word; a line break written as backslash and n ends a word too."""
    return rf"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))(?:{pattern})(?![A-Za-z0-9])"


def _compiled(kind: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"the pattern of {kind} is no regular expression: {error}") from error
