"""Teacher-forced scoring: one forward pass says at which steps greedy decoding gives the gold text.

Greedy decoding equals the gold tokens exactly when each gold token is the argmax given the gold prefix, so no
generation is needed. Where it differs, the engine lets the model say what it would have said, from the pass's own
keys and values: two tokenisations can spell one text.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import torch

from worldloom.lm.base import MAX_NEW_TOKENS, Confidence
from worldloom.lm.engine import PASS_TOKENS, Request, logprobs
from worldloom.lm.guess import remembering
from worldloom.lm.packed import Chunk, forward, new_cache
from worldloom.lm.session import LocalLM
from worldloom.protocol import said
from worldloom.tokens import Encoded, Span
from worldloom.trajectory import Trajectory

SLACK_TOKENS = 32


class Scored(NamedTuple):
    """One step: what greedy decoding says (None: the gold tokens), the gold tokens' summed log-probability, and how
    sure the model is of what it says."""

    step: int
    said: str | None
    logprob: float
    confidence: Confidence | None


class Answer(NamedTuple):
    """What is being generated: its tokens, and their log-probabilities once they are there."""

    tokens: Future[list[int]]
    logprobs: list[float]


def batches(sizes: Sequence[int], limit: int = PASS_TOKENS) -> list[list[int]]:
    """Indices of episodes that share a pass: those of like length, together at most ``limit`` tokens."""
    found: list[list[int]] = []
    for index in sorted(range(len(sizes)), key=lambda i: sizes[i]):
        if found and sum(sizes[i] for i in found[-1]) + sizes[index] <= limit:
            found[-1].append(index)
        else:
            found.append([index])
    return found


def score(
    lm: LocalLM, episodes: Sequence[tuple[Trajectory, Encoded]], full_answers: bool = False
) -> list[list[Scored]]:
    """Score every encoded step of some episodes, in one pass for all of them.

    A wrong answer is written out up to twice the gold answer's tokens and a few more, enough to know that it is
    wrong; ``full_answers`` writes it to its end (at most 512 tokens, as Word2World).
    """
    chunks = [Chunk(new_cache(lm.model), e.input_ids, keep=_places(e)) for _, e in episodes]
    asked = []
    for (trajectory, encoded), chunk, logits in zip(episodes, chunks, forward(lm.model, chunks), strict=True):
        exact, gold = _compared(logits, encoded)
        answers = {
            span.step: Answer(lm.engine.submit(request), request.logprobs)
            for span, request in _requests(lm, trajectory, encoded, chunk, exact, full_answers)
        }
        asked.append((encoded, gold, answers))
    return [list(_collected(lm, *found)) for found in asked]


def _places(encoded: Encoded) -> list[int]:
    """Where each gold token is predicted."""
    return [place - 1 for start, stop, _ in encoded.spans for place in range(start, stop)]


def _compared(logits: torch.Tensor, encoded: Encoded) -> tuple[list[bool], list[Sequence[float]]]:
    """For each span: whether all its tokens are the argmax, and the log-probability of each."""
    gold = [encoded.input_ids[place + 1] for place in _places(encoded)]
    hits = (logits.argmax(-1) == torch.tensor(gold, device=logits.device)).tolist()
    sizes = [span.stop - span.start for span in encoded.spans]
    return [all(part) for part in _cut(hits, sizes)], list(_cut(logprobs(logits, gold), sizes))


def _cut(values: Sequence[Any], sizes: Sequence[int]) -> Iterator[Sequence[Any]]:
    at = 0
    for size in sizes:
        yield values[at : at + size]
        at += size


def _requests(
    lm: LocalLM, trajectory: Trajectory, encoded: Encoded, chunk: Chunk, exact: Sequence[bool], full: bool
) -> Iterator[tuple[Span, Request]]:
    """What is to be generated: the wrong steps, each from its own beginning."""
    memory = remembering(trajectory.initial_context, trajectory.initial_observation)
    for span, right in zip(encoded.spans, exact, strict=True):
        step = trajectory.steps[span.step]
        if not right:
            limit = MAX_NEW_TOKENS if full else 2 * (span.stop - span.start) + SLACK_TOKENS
            cache = chunk.cache.fork()
            cache.length = span.start - 1
            guess = lm.guess(memory.copy(), step.action)
            yield span, Request(encoded.input_ids[: span.start], 0, cache, min(limit, lm.window - span.start), guess)
        memory.hear(said(step.observation, step.terminal))


def _collected(
    lm: LocalLM, encoded: Encoded, gold: Sequence[Sequence[float]], answers: Mapping[int, Answer]
) -> Iterator[Scored]:
    for span, right in zip(encoded.spans, gold, strict=True):
        answer = answers.get(span.step)
        text = lm.chat.decode(answer.tokens.result()) if answer else None
        yield Scored(span.step, text, sum(right), Confidence.of(answer.logprobs if answer else right))
