"""Secrets that only their key gives away: ``password: hunter2``, ``"api_key": "..."``, ``--token ...``."""

import re
from collections.abc import Iterator

from worldloom.redact.chance import drawn
from worldloom.redact.rules import PLACEHOLDER, Found

_PASSWORD = r"passw(?:or)?d|passwort|passphrase|passcode|pwd|(?<![a-z])pw(?![a-z])"
_SECRET = (
    r"secret|api[_ -]?key|apikey|access[_-]?key|account[_-]?key|private[_-]?key|auth[_-]?key|encryption[_-]?key"
    r"|token|credential|authorization"
)
_WORD = ("passw", "passphrase", "passcode", "pw", "secret", "key", "token", "credential", "authorization")
KEY = re.compile(rf"(?i)(?:(?P<password>{_PASSWORD})|(?:{_SECRET}))(?P<rest>(?:[_-]?[A-Za-z0-9]){{0,24}})")
ASSIGNED = re.compile(
    KEY.pattern  # then what assigns, then the value
    + r"(?:\\{0,3}[\"'`]?\]?\s{0,3}(?:=>|:=|[:=]|\b(?:is|was)\b:?|\bto\b)\s{0,3}"
    r"|(?:\s[\w'-]{1,20}){1,5}?\s(?:is|was)(?::\s{0,2})?\s|(?<=[a-zA-Z])\s{1,2}(?=\S))"
    r"(?:(?P<quote>\\{0,3}[\"'`])(?P<quoted>[^\n]{3,400}?)(?<!\\)(?P=quote)"
    r"|(?P<bare>(?:[^\s\"'`,;&<>(){}\[\]\\]|&(?![\w.-]+=)){6,400}+)(?![(\[]))"
)
PIN = re.compile(
    r"(?i)(?<![a-z])(?:pin|cvv2?|cvc|otp|security[_ -]code|verification[_ -]code)(?![a-z])(?:[_ -]?(?:code|number))?"
    r"[\s\"'\\:=]{1,6}(?:is\s)?[\"'\\]{0,4}(?P<value>\d{3,8})(?![\d.]\d|\d)"
)
# what stands before "token", or after a key, where no secret follows
_BEFORE = re.compile(
    r"(?i)(?:page|next|prev|continuation|cursor|sync|max|min|num|total|prompt|completion|pad|eos|bos)[_-]?$"
)
_REST = re.compile(
    r"(?i)[_-]?(?:s|count|type|limit|usage|name|polic(?:y|ies)|length|url|uri|ttl|path|file|izer|ized|ization|ary|ion|ly"
    r"|expir\w*|manager|arn|version|hint|field|strength|reset|error)(?![a-z])"
)
_WORDS = re.compile(
    r"(?i)\b(?:required|optional|string|str|int|null|none|true|false|hidden|masked|redacted|undefined|empty|enter|your"
    r"|must|the|invalid|incorrect|wrong|expired|missing|changed|reset|forgot(?:ten)?|example|placeholder|password|token"
    r"|secret|bearer|basic|not|and|was|is|to|for|of)\b"
)
NEVER = re.compile(  # templates, masks, paths, dates, addresses
    r"\$\{.*|\$\(.*|\$[A-Z_][A-Z0-9_]*|\{.*\}|<[^<>]*>|%\w*%|%\(?\w*\)?[sd]"
    r"|[xX*•.]+|\W+|/[a-z]+(?:[./-].*)?|\d{4}-\d\d-\d\d.*|https?:.*"
)
_NAME_IN_CODE = re.compile(r"[A-Za-z_]+(?:[./-][A-Za-z_]+)*")


def assigned(text: str) -> Iterator[Found]:
    """Values that a key in a text says to be secret."""
    small = text.lower()
    if any(word in small for word in _WORD):
        yield from _values(text)
    if any(word in small for word in ("pin", "cvv", "cvc", "otp", "code")):
        yield from (Found(*m.span("value"), "PIN") for m in PIN.finditer(text))


def _values(text: str) -> Iterator[Found]:
    for match in ASSIGNED.finditer(text):
        name = "quoted" if match["quoted"] is not None else "bare"
        value = match[name].rstrip(".!?:") if name == "bare" else match[name]
        if kind := _kind(match, text[max(0, match.start() - 16) : match.start()], value, name == "quoted"):
            yield Found(match.start(name), match.start(name) + len(value), kind)


def kind_of(key: str, value: str) -> str | None:
    """The kind of the secret that a field's value is, by the field's name; None if it is none."""
    for match in KEY.finditer(key):
        if match.end() == len(key):
            return _kind(match, key[: match.start()], value, quoted=True)
    return None


def _kind(key: re.Match[str], before: str, value: str, quoted: bool) -> str | None:
    if PLACEHOLDER.search(value) or NEVER.fullmatch(value) or _REST.match(key["rest"]) or _BEFORE.search(before):
        return None
    if key["password"]:
        return "PASSWORD" if _password(value, quoted) else None
    return "SECRET" if drawn(value) else None


def _password(value: str, quoted: bool) -> bool:
    """In quotes, all but what is said of passwords; else nothing that could be a word or a name in code."""
    if not quoted:
        return not _NAME_IN_CODE.fullmatch(value)
    return len(value) >= 4 and not (_WORDS.search(value) if " " in value else _WORDS.fullmatch(value))
