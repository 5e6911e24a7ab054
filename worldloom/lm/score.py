"""Teacher-forced scoring: one forward pass over an episode says at which steps greedy decoding gives the gold text.

Greedy decoding equals the gold tokens exactly when each gold token is the argmax given the gold prefix, so no
generation is needed. Where it differs, the pass's own KV cache, cut back to that step, lets the model say what it
would have said: two tokenisations can spell one text.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from transformers import DynamicCache

from worldloom.lm.session import MAX_NEW_TOKENS, LocalLM, greedy, keep
from worldloom.tokens import Encoded, Span

SLACK_TOKENS = 32


class Scored(NamedTuple):
    """One step: what greedy decoding says (None: the gold tokens), and the gold tokens' summed log-probability."""

    step: int
    said: str | None
    logprob: float


def score(lm: LocalLM, encoded: Encoded, full_answers: bool = False) -> list[Scored]:
    """Score every step of an encoded episode.

    A wrong answer is written out up to twice the gold answer's tokens and a few more, enough to know that it is
    wrong; ``full_answers`` writes it to its end (at most 512 tokens, as Word2World).
    """
    cache = DynamicCache(config=lm.model.config)
    exact, logprobs = _one_pass(lm, encoded, cache)
    said: dict[int, str] = {}
    for span, right in reversed(list(zip(encoded.spans, exact, strict=True))):
        if not right:
            room = lm.window - span.start
            limit = MAX_NEW_TOKENS if full_answers else 2 * (span.stop - span.start) + SLACK_TOKENS
            keep(cache, span.start - 1)
            said[span.step] = lm.chat.decode(greedy(lm, encoded.input_ids[: span.start], cache, min(limit, room)))
    return [Scored(s.step, said.get(s.step), p) for s, p in zip(encoded.spans, logprobs, strict=True)]


@torch.inference_mode()
def _one_pass(lm: LocalLM, encoded: Encoded, cache: Any) -> tuple[list[bool], list[float]]:
    places = torch.tensor([p - 1 for start, stop, _ in encoded.spans for p in range(start, stop)])
    ids: Any = torch.tensor([encoded.input_ids], device=lm.model.device)
    logits = lm.model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=places).logits[0].float()
    gold = ids[0, places + 1]
    hits = (logits.argmax(-1) == gold).tolist()
    logprobs = (logits.gather(-1, gold[:, None])[:, 0] - logits.logsumexp(-1)).tolist()
    return [all(part) for part in _cut(hits, encoded.spans)], [sum(part) for part in _cut(logprobs, encoded.spans)]


def _cut(values: Sequence[Any], spans: Sequence[Span]) -> Iterator[Sequence[Any]]:
    """The values that belong to each span."""
    at = 0
    for start, stop, _ in spans:
        yield values[at : at + stop - start]
        at += stop - start
