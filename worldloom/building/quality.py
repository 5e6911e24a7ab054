"""What is wrong with the episodes, what they cover, and how long they are."""

import statistics
from collections.abc import Sequence
from typing import Any

from worldloom.building.config import BuildConfig, Work
from worldloom.coverage.run import stats
from worldloom.lint.run import NEAR, lint, model_window, summary
from worldloom.runs import read_json, write_json
from worldloom.trajectory import read

LINT, LENGTHS, COVERAGE = "lint.json", "lengths.json", "coverage"


def inspect(work: Work, config: BuildConfig) -> dict[str, Any]:
    """Lint both splits, measure lengths in the model's tokens, and what the learnt episodes cover.

    Nothing of this stops a build: what is wrong is told, by ``lint.json`` and on the world's card.
    """
    window = model_window(config.training(1).model)
    sizes = [window.count(episode) for path in (work.train, work.test) for episode in read(path, strict=True)]
    write_json(work / LENGTHS, lengths(sizes, window.tokens))
    stats(work.train, work / COVERAGE)
    found = summary(lint([work.train, work.test], rules=config.redaction, window=window, near=NEAR))
    write_json(work / LINT, found)
    return found


def lengths(sizes: Sequence[int], window: int) -> dict[str, float]:
    """Tokens of an episode: mean, median, the most, how many are over the window."""
    return {
        "mean": round(statistics.fmean(sizes), 1),
        "median": statistics.median(sizes),
        "most": max(sizes),
        "window": window,
        "over_window": sum(size > window for size in sizes),
    }


def mean_tokens(work: Work) -> float:
    """The mean length of an episode, in tokens."""
    return float(read_json(work / LENGTHS)["mean"])
