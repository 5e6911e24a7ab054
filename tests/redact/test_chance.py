"""Letters drawn by chance are told from words, with and without digits."""

import random
import string

import pytest

from worldloom.redact.chance import drawn, drawn_letters, words
from worldloom.redact.find import find
from worldloom.redact.rules import Rules

LETTERS, ALNUM = string.ascii_letters, string.ascii_letters + string.digits
URLSAFE = ALNUM + "-_"


@pytest.mark.parametrize(
    ("text", "is_words"),
    [
        ("sk-learn-documentation-v1-2", True),
        ("MyAccessTokenProviderFactory", True),
        ("YOUR_ACCESS_TOKEN_HERE", True),
        ("getUser", True),
        ("hf_kQzRBtxWNv", False),
        ("aBcDeFgHiJ", False),
        ("glpat-ab3defgh", False),
    ],
)
def test_words(text: str, is_words: bool) -> None:
    assert words(text) is is_words


def test_letters_are_drawn_if_they_are_many_in_both_cases() -> None:
    assert drawn_letters("kQzRBtxWNvmLpSdFGhJc")
    assert not drawn_letters("kQzRBtxWNvmLpSdFGhJ")  # 19
    assert not drawn_letters("kzrbtxwnvmlpsdfghjcq")
    assert not drawn_letters("KqzrbtxWnvmlpsdfghjc")  # 2 capitals in 20
    assert not drawn_letters("AuthorizationHeaderFactory")
    assert not drawn_letters("-" * 20)


def test_what_stands_after_a_key_is_drawn_if_it_has_letters_and_digits_or_is_long() -> None:
    assert drawn("abcd1234") and drawn("kQzRB-txWNv_mLpSdFGh") and drawn("KQZRBTXWNVMLPSDFGHJC")
    assert (
        not drawn("abc1234") and not drawn("12345678") and not drawn("two words 12") and not drawn("tokenizer.next()")
    )


@pytest.mark.parametrize(
    ("before", "letters", "length"),
    [
        ("HF_TOKEN=hf_", LETTERS, 34),
        ("npm_", ALNUM, 36),
        ("glpat-", URLSAFE, 20),
        ("sk_live_", ALNUM, 24),
        ("AKIA", string.ascii_uppercase, 16),
        ("Authorization: Bearer ", URLSAFE, 32),
        ("Authorization: Bearer ", LETTERS, 32),
        ("api_key: ", URLSAFE, 20),
    ],
)
def test_drawn_tokens_are_found_whatever_is_drawn(before: str, letters: str, length: int) -> None:
    rng = random.Random(7)
    texts = [before + "".join(rng.choices(letters, k=length)) for _ in range(500)]
    assert sum(not find(text, Rules()) for text in texts) <= 5  # one in a hundred
