"""Values of cookies that look drawn by chance: ``Cookie: session=8f2k...; theme=dark``, ``Set-Cookie: ...``."""

import re
from collections.abc import Iterator
from urllib.parse import unquote

from worldloom.redact.assigned import NEVER
from worldloom.redact.chance import drawn
from worldloom.redact.rules import PLACEHOLDER, Found

_NAME = r"[\w!#$%&*+.^`|~-]{1,100}+="
_PAIR = (
    rf"(?:expires=[\w-]{{3,10}}(?:,[\w :+-]{{1,40}})?|secure|httponly|partitioned"
    rf"|{_NAME}(?:\"[^\"\n\\]{{0,4000}}\"|[^\s;,\"'\\]{{0,4000}}))"
)
_BETWEEN = r"\s{0,2}\\{0,3}[\"']?\s{0,2}[;,]\s{0,3}\\{0,3}[\"']?"  # of one header, or of a list of them
HEADER = re.compile(
    rf"(?i)cookies?[\"'\\\]]{{0,8}}\s{{0,3}}[:=,]?\s{{0,3}}[\"'\\\[]{{0,8}}(?P<pairs>{_PAIR}(?:{_BETWEEN}{_PAIR})*)"
)
PAIR = re.compile(rf"(?<![^\s;,\"'])(?P<name>{_NAME})\"?(?P<value>[^\s;,\"'\\]{{8,4000}})")
ATTRIBUTES = {"path=", "domain=", "expires=", "max-age=", "samesite=", "priority="}
_CODE = re.compile(r"[(){}\[\]<>]")


def cookies(text: str) -> Iterator[Found]:
    """Values of cookies in headers; plain ones (``theme=dark``), attributes and dates are none."""
    if "cookie" in text.lower():
        for header in HEADER.finditer(text):
            for pair in PAIR.finditer(text, *header.span("pairs")):
                if pair["name"].lower() not in ATTRIBUTES and _secret(pair["value"]):
                    yield Found(*pair.span("value"), "COOKIE")


def _secret(value: str) -> bool:
    said = unquote(value)
    return drawn(said) and not (_CODE.search(value) or NEVER.fullmatch(said) or PLACEHOLDER.search(value))
