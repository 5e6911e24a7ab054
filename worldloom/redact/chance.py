"""Whether characters look drawn by chance, as those of secrets do, or are words of a language or of code."""

import re

WORD = re.compile(r"[A-Z]*|[a-z]*(?:[A-Z][a-z]+)*|[A-Za-z0-9]{1,4}")  # SECRET, secret, mySecretName, v1


def mixed(value: str) -> bool:
    """Whether a text has letters and digits."""
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def words(value: str) -> bool:
    """Whether a text is nothing but words and short numbers, with marks between them."""
    return all(map(_is_word, re.split(r"[\W_]+", value)))


def _is_word(piece: str) -> bool:
    """In ``aBcDeF`` each capital begins a word, but words are longer."""
    long = len(piece) > 4 and not piece.isupper()
    return bool(WORD.fullmatch(piece)) and not (long and sum(map(str.isupper, piece)) > 0.3 * len(piece))


def drawn_letters(value: str) -> bool:
    """Whether a text without digits looks drawn: 20 characters or more, a fair share in both cases, and no words."""
    letters = [each for each in value if each.isalpha()]
    capitals = sum(map(str.isupper, letters))
    return len(value) >= 20 and 0.25 * len(letters) <= capitals <= 0.75 * len(letters) and not words(value)


def drawn(value: str) -> bool:
    """Whether what stands alone after its key looks drawn: letters and digits, or long and of letters in both cases."""
    if len(value) < 8 or " " in value:
        return False
    capitals = len(value) >= 20 and value.isalpha() and value.isupper()
    return mixed(value) or capitals or drawn_letters(value)
