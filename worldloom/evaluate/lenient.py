"""Two kinder comparisons of what a model said, reported beside exact match: without counters, and without order."""

import re

COUNTER = re.compile(
    r"(?<![\w.])-?\d+/-?\d+(?![\w.])"  # score and moves, as in 1/2
    r"|\b\d{1,2}:\d\d(?::\d\d)?\b"  # a clock
    r"|(?<=\bscore )\d+|\b\d+(?= (?:moves?|turns?|points?)\b)"
)
PARTS = re.compile(r"[.!?:]\s+|\n+")
ITEMS = re.compile(r", and | and |, |; ")


def masked(text: str) -> str:
    """A text whose counters (moves and score as in ``1/2``, clocks, "3 points") are all the same."""
    return COUNTER.sub("#", text)


def unordered(text: str) -> tuple[tuple[str, ...], ...]:
    """A text's sentences in order, each as its listed items in no order: what a list says, however it is sorted."""
    return tuple(_items(part) for part in PARTS.split(text.strip()))


def _items(sentence: str) -> tuple[str, ...]:
    head, see, listed = sentence.rstrip(". ").partition(" see ")
    items = ITEMS.split(listed if see else head)
    return tuple(sorted(items)) if not see else (head, *sorted(items))
