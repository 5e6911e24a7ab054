"""Teacher-forced scoring: one forward pass over an episode says at which steps greedy decoding gives the gold text.

Greedy decoding equals the gold tokens exactly when each gold token is the argmax given the gold prefix, so no
generation is needed. Two tokenisations can spell one text; generating settles such steps.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from worldloom.lm.session import LocalLM, Session
from worldloom.tokens import Encoded


class Scored(NamedTuple):
    """One step: whether greedy decoding gives the gold tokens, and the gold tokens' summed log-probability."""

    step: int
    exact: bool
    logprob: float


@torch.inference_mode()
def score(lm: LocalLM, encoded: Encoded) -> list[Scored]:
    """Score every step of an encoded episode in one forward pass."""
    places = torch.tensor([p - 1 for start, stop, _ in encoded.spans for p in range(start, stop)])
    ids: Any = torch.tensor([encoded.input_ids], device=lm.model.device)
    logits = lm.model(input_ids=ids, use_cache=False, logits_to_keep=places).logits[0].float()
    gold = ids[0, places + 1]
    hits = (logits.argmax(-1) == gold).tolist()
    logprobs = torch.log_softmax(logits, -1).gather(-1, gold[:, None])[:, 0].tolist()
    return list(_by_step(encoded, hits, logprobs))


def _by_step(encoded: Encoded, hits: Sequence[bool], logprobs: Sequence[float]) -> Iterator[Scored]:
    at = 0
    for start, stop, step in encoded.spans:
        size = stop - start
        yield Scored(step, all(hits[at : at + size]), sum(logprobs[at : at + size]))
        at += size


def generate_after(lm: LocalLM, prefix: Sequence[int], max_new_tokens: int = 512) -> str:
    """The greedy answer after a history in tokens (up to where an answer begins)."""
    session = Session(lm, [])
    return lm.chat.decode(session._generate(list(prefix), min(max_new_tokens, lm.window - len(prefix))))
