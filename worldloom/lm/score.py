"""Teacher-forced scoring: one forward pass says at which steps greedy decoding gives the gold text.

Greedy decoding equals the gold tokens exactly when each gold token is the argmax given the gold prefix, so no
generation is needed. Where it differs, the engine lets the model say what it would have said, from the pass's own
keys and values: two tokenisations can spell one text.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from worldloom.lm.base import MAX_NEW_TOKENS, Confidence
from worldloom.lm.engine import PASS_TOKENS, Request, greedy, logprobs
from worldloom.lm.guess import remembering
from worldloom.lm.packed import Chunk, forward, new_cache
from worldloom.lm.session import LocalLM
from worldloom.protocol import said
from worldloom.tokens import Encoded, Span
from worldloom.trajectory import Trajectory

SLACK_TOKENS = 32
HALF_CHARACTER = "\N{REPLACEMENT CHARACTER}"  # what decoding makes of a character whose last bytes are to come


class Scored(NamedTuple):
    """One step: what greedy decoding says (None: the gold tokens), the gold tokens' summed log-probability, and how
    sure the model is of what it says."""

    step: int
    said: str | None
    logprob: float
    confidence: Confidence | None


class Verdict(NamedTuple):
    """One step: whether greedy decoding gives the gold text, and the gold tokens' summed log-probability."""

    step: int
    right: bool
    logprob: float


@dataclass
class Passed:
    """An episode that the model has read: of each span, the model's best tokens, whether they are the gold ones, and
    the gold ones' log-probabilities."""

    trajectory: Trajectory
    encoded: Encoded
    chunk: Chunk
    best: list[Sequence[int]]
    right: list[bool]
    logprobs: list[Sequence[float]]

    def gold(self, span: Span) -> Sequence[int]:
        """What was to be said there."""
        return self.encoded.input_ids[span.start : span.stop]


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
    asked = []
    for passed in _passed(lm, episodes):
        answers = {
            span.step: Answer(lm.engine.submit(request), request.logprobs)
            for span, request in _requests(lm, passed, passed.right, full_answers)
        }
        asked.append((passed.encoded, passed.logprobs, answers))
    return [list(_collected(lm, *found)) for found in asked]


def exact(lm: LocalLM, episodes: Sequence[tuple[Trajectory, Encoded]]) -> list[list[Verdict]]:
    """Whether every encoded step of some episodes is right, in one pass for all of them.

    Nothing is written out, but for a step where the model's first token that is not the gold one still leads to the
    gold text: two tokenisations can spell one text.
    """
    passed = list(_passed(lm, episodes))
    asked = [_requests(lm, p, _settled(lm, p)) for p in passed]
    answers = [{span.step: lm.engine.submit(request) for span, request in requests} for requests in asked]
    return [
        [
            Verdict(span.step, right or (span.step in told and _spells(lm, p.gold(span), told[span.step])), sum(part))
            for span, right, part in zip(p.encoded.spans, p.right, p.logprobs, strict=True)
        ]
        for p, told in zip(passed, answers, strict=True)
    ]


def _settled(lm: LocalLM, passed: Passed) -> list[bool]:
    """Of each step, whether the pass alone says if it is right."""
    return [
        right or not _may_spell(lm, passed.gold(span), best)
        for span, right, best in zip(passed.encoded.spans, passed.right, passed.best, strict=True)
    ]


def _may_spell(lm: LocalLM, gold: Sequence[int], best: Sequence[int]) -> bool:
    """Whether an answer can still be the gold text after its first token that is not the gold one."""
    parted = next(n for n, (said, meant) in enumerate(zip(best, gold, strict=True)) if said != meant)
    begun = lm.chat.decode([*gold[:parted], best[parted]]).rstrip(HALF_CHARACTER).strip()
    text = lm.chat.decode(gold).strip()
    return text == begun if best[parted] == lm.chat.end else text.startswith(begun)


def _spells(lm: LocalLM, gold: Sequence[int], answer: Future[list[int]]) -> bool:
    return lm.chat.decode(answer.result()).strip() == lm.chat.decode(gold).strip()


def _passed(lm: LocalLM, episodes: Sequence[tuple[Trajectory, Encoded]]) -> Iterator[Passed]:
    """One forward pass for all."""
    chunks = [Chunk(new_cache(lm.model), e.input_ids, keep=_places(e)) for _, e in episodes]
    for (trajectory, encoded), chunk, logits in zip(episodes, chunks, forward(lm.model, chunks), strict=True):
        sizes = [span.stop - span.start for span in encoded.spans]
        gold = [encoded.input_ids[place + 1] for place in _places(encoded)]
        best = _cut(greedy(logits, lm.engine.ending), sizes)
        right = [list(told) == list(meant) for told, meant in zip(best, _cut(gold, sizes), strict=True)]
        yield Passed(trajectory, encoded, chunk, best, right, _cut(logprobs(logits, gold), sizes))


def _places(encoded: Encoded) -> list[int]:
    """Where each gold token is predicted."""
    return [place - 1 for start, stop, _ in encoded.spans for place in range(start, stop)]


def _cut(values: Sequence[Any], sizes: Sequence[int]) -> list[Sequence[Any]]:
    ends = list(accumulate(sizes))
    return [values[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def _requests(
    lm: LocalLM, passed: Passed, settled: Sequence[bool], full: bool = False
) -> Iterator[tuple[Span, Request]]:
    """What is to be generated: the steps that are not settled, each from its own beginning."""
    trajectory, encoded = passed.trajectory, passed.encoded
    memory = remembering(trajectory.initial_context, trajectory.initial_observation)
    for span, done in zip(encoded.spans, settled, strict=True):
        step = trajectory.steps[span.step]
        if not done:
            limit = MAX_NEW_TOKENS if full else 2 * (span.stop - span.start) + SLACK_TOKENS
            cache = passed.chunk.cache.fork()
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
