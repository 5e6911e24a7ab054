"""Personal data by its form: e-mail addresses, phone, card, account and social-security numbers.

``phonenumbers`` and ``python-stdnum`` decide whether a number is one; the patterns here only propose.
"""

import re
from collections.abc import Iterator

import phonenumbers
from phonenumbers import NumberParseException
from stdnum import iban, luhn
from stdnum.us import ssn

from worldloom.redact.rules import Found

# A pattern that begins with a set of characters is searched for fast; so what may not stand before it is asked of its
# second character, by a look behind that spans the first.
EMAIL = re.compile(r"(?<![\w.%+'-])[\w.%+'-]{1,200}(?:@|%40)(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?![\w-])")
SSH_REMOTE = re.compile(r":[\w~./-]")
CARD = re.compile(
    r"[2-6](?<![\d.+-]\d)(?:\d{3}([ -]?)\d{4}\1\d{4}\1\d{4,7}|(?<=3)\d{3}([ -]?)\d{6}\2\d{4,5})(?![\d-]|\.\d)"
)
DIGEST = re.compile(r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))[0-9a-fA-F]{32,128}(?![A-Za-z0-9])")
IBAN = re.compile(r"[A-Z](?<![A-Za-z0-9][A-Z])[A-Z]\d{2}(?:[ -]?[A-Z0-9]{2,4}){3,9}(?:[ -]?[A-Z0-9])?(?![A-Za-z0-9])")
IBAN_GROUP = re.compile(r"[ -]?[A-Z0-9]{1,4}$")
SSN = re.compile(r"\d(?<![\w.-]\d)\d{2}-\d{2}-\d{4}(?![\w-])")
SSN_BARE = re.compile(r"(?i)(?:\bssn|social[_ -]security)[^\d\n]{0,24}(?P<value>\d{3}[ -]?\d{2}[ -]?\d{4})(?!\d)")
ACCOUNT = re.compile(
    r"(?i)(?<![a-z])(?:account|acct|routing|sort[_ -]?code|a/c)(?:[_ -]?(?:number|num|no|nr))?"
    r"[\s\"'\\:=#.]{1,8}(?:(?:is|ends? in)\s)?[\"'\\]{0,4}(?P<value>\d[\d -]{4,20}\d)(?![\d.]\d|\d)"
)
DIGITS = re.compile(r"\d\D{0,3}\d\D{0,3}\d\D{0,3}\d\D{0,3}\d\D{0,3}\d")
DATE = re.compile(r"\d{4}-\d{2}-\d{2}|\d{2}-\d{2}-\d{4}")
LAST_GROUP = re.compile(r"[ ().\-/]*\d+\W*$")
INTERNATIONAL = re.compile(r"(?<![\w+])\+\(?\d(?:[ ().\-/]{0,3}\d){6,16}")
NATIONAL = re.compile(
    r"[(2-9](?<![\d./-].)(?:(?<=\()[2-9]\d{2}\) ?|(?<=[2-9])\d{2}[ .-])\d{3}[ .-]\d{4}(?![\d-]|\.\d)"
    r"|1(?<![\d./-]1)[ .-]\(?[2-9]\d{2}\)?[ .-]\d{3}[ .-]\d{4}(?![\d-]|\.\d)"
)
NAMED_PHONE = re.compile(
    r"(?i)(?<![a-z])(?:phone|tel|telephone|mobile|cell|fax|whatsapp|sms|call|text|reached? at|dial)(?![a-z])"
    r"(?:[_ -]?(?:number|num|no|nr))?[^\d\n+(]{0,20}(?P<value>[+(]?\d[\d ().\-/]{5,22}\d)"
)


def personal(text: str, region: str) -> Iterator[Found]:
    """Personal data in a text, the surest kinds first; findings may overlap."""
    if "@" in text or "%40" in text:
        yield from _emails(text)
    if DIGITS.search(text):
        yield from _numbers(text, region)


def _numbers(text: str, region: str) -> Iterator[Found]:
    small = text.lower()
    yield from _ibans(text)
    yield from (Found(*m.span(), "CARD") for m in CARD.finditer(text) if _is_card(m))
    yield from (Found(*m.span(), "SSN") for m in SSN.finditer(text) if ssn.is_valid(m[0]))
    if "ssn" in small or "security" in small:
        yield from (Found(*m.span("value"), "SSN") for m in SSN_BARE.finditer(text))
    if any(word in small for word in ("account", "acct", "routing", "sort", "a/c")):
        yield from (Found(*m.span("value"), "ACCOUNT") for m in ACCOUNT.finditer(text) if not DATE.match(m["value"]))
    yield from _phones(text, region)


def _is_card(match: re.Match[str]) -> bool:
    return luhn.is_valid(re.sub(r"\D", "", match[0])) and not _in_digest(match)


def _in_digest(match: re.Match[str]) -> bool:
    """Whether digits stand inside a hash, such as a commit's."""
    near = DIGEST.finditer(match.string, max(0, match.start() - 128), match.end() + 128)
    return any(digest.start() <= match.start() and match.end() <= digest.end() for digest in near)


def _emails(text: str) -> Iterator[Found]:
    for match in EMAIL.finditer(text):
        start, stop = match.span()
        if match[0].startswith("git@") and SSH_REMOTE.match(text, stop):
            continue
        # in text that is JSON inside JSON, "\nann@x.org" is a line break and ann@x.org
        yield Found(start + _escaped_letter(text, start), stop, "EMAIL")


def _escaped_letter(text: str, start: int) -> int:
    return int(start > 0 and text[start - 1] == "\\" and text[start] in "nrt")


def _ibans(text: str) -> Iterator[Found]:
    for match in IBAN.finditer(text):
        value = match[0]
        while len(value) >= 15 and not iban.is_valid(value, check_country=False):
            value = IBAN_GROUP.sub("", value)  # words in capitals may follow
        if len(value) >= 15:
            yield Found(match.start(), match.start() + len(value), "IBAN")


def _phones(text: str, region: str) -> Iterator[Found]:
    if "+" in text:
        for match in INTERNATIONAL.finditer(text):
            yield from _matched(text, match.start(), match.end(), None)
    yield from (Found(*m.span(), "PHONE") for m in NATIONAL.finditer(text) if region in ("US", "CA"))
    for match in NAMED_PHONE.finditer(text):
        start, stop = match.span("value")
        if not DATE.match(match["value"]):
            yield from _matched(text, start, stop, region)


def _matched(text: str, start: int, stop: int, region: str | None) -> Iterator[Found]:
    """The phone number that a piece of a text begins with: the longest that a numbering plan has room for."""
    piece = text[start:stop]
    while len(piece) >= 7:
        # bare digits could be any number, so they must be one that is given out
        fits = phonenumbers.is_valid_number if piece.isdigit() else phonenumbers.is_possible_number
        try:
            if fits(phonenumbers.parse(piece, region)):
                yield Found(start, start + len(piece), "PHONE")
                return
        except NumberParseException:
            pass
        piece = LAST_GROUP.sub("", piece)  # another number may follow
