"""All that must not stay in a text, without overlaps."""

from bisect import bisect
from collections.abc import Iterator
from functools import lru_cache

from worldloom.redact.assigned import assigned, kind_of
from worldloom.redact.cookies import cookies
from worldloom.redact.personal import personal
from worldloom.redact.rules import PLACEHOLDER, Found, Rules
from worldloom.redact.secrets import secrets

_KEPT_IN_MIND = 100_000  # characters; longer texts are rarely said twice
_SHORT = 200


def find(text: str, rules: Rules) -> tuple[Found, ...]:
    """What must not stay in a text: spans in order that do not overlap. Placeholders are never found again."""
    return _remembered(text, rules) if len(text) <= _KEPT_IN_MIND else _find(text, rules)


def find_in_field(key: str, text: str, rules: Rules) -> tuple[Found, ...]:
    """The same for the value of a field, whose name may say what the value is (``phone``, ``api_key``)."""
    if not text or (len(text) > _SHORT and "cookie" not in key.lower()):
        return find(text, rules)
    if (kind := kind_of(key, text)) and kind not in rules.keep:
        return (Found(0, len(text), kind),)
    head = f'"{key}": "'
    told = [(f.start - len(head), f.stop - len(head), f.kind) for f in find(f'{head}{text}"', rules)]
    return tuple(Found(start, stop, kind) for start, stop, kind in told if start >= 0 and stop <= len(text))


@lru_cache(maxsize=2048)
def _remembered(text: str, rules: Rules) -> tuple[Found, ...]:
    return _find(text, rules)


def _find(text: str, rules: Rules) -> tuple[Found, ...]:
    taken = [Found(*m.span(), "") for m in PLACEHOLDER.finditer(text)] if "<" in text else []
    for each in _all(text, rules):
        if each.kind not in rules.keep and each.start < each.stop:
            _take(taken, each)
    return tuple(each for each in taken if each.kind)


def _take(taken: list[Found], each: Found) -> None:
    """Put a finding in its place unless it overlaps one that is there."""
    at = bisect(taken, each)
    free_before = at == 0 or taken[at - 1].stop <= each.start
    if free_before and (at == len(taken) or taken[at].start >= each.stop):
        taken.insert(at, each)


def _all(text: str, rules: Rules) -> Iterator[Found]:
    """Findings by how sure they are: of two that overlap, the first counts."""
    for kind, pattern in rules.own:
        group = "value" if "value" in pattern.groupindex else 0
        yield from (Found(*m.span(group), kind) for m in pattern.finditer(text) if m[0])
    yield from secrets(text)
    yield from cookies(text)
    yield from assigned(text)
    yield from personal(text, rules.region)
