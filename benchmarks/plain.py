"""The plain way that benchmarks compare with: transformers' ``generate`` over a whole history, with no cache kept."""

from collections.abc import Sequence

import torch

from worldloom.lm.base import MAX_NEW_TOKENS
from worldloom.lm.session import LocalLM


@torch.inference_mode()
def generate(lm: LocalLM, history: Sequence[int]) -> list[int]:
    """The greedy answer to a history, in tokens."""
    given = torch.tensor([list(history)])
    found: list[int] = lm.model.generate(
        given, attention_mask=torch.ones_like(given), do_sample=False, max_new_tokens=MAX_NEW_TOKENS,
        eos_token_id=lm.chat.end, pad_token_id=lm.chat.end,
    )[0, len(history) :].tolist()  # fmt: skip
    return found
