"""The plain way that benchmarks compare with: transformers' model as it loads, ``generate`` over a whole history."""

from collections.abc import Sequence
from typing import Any

import torch

from worldloom.lm.base import MAX_NEW_TOKENS
from worldloom.lm.hf import load_model
from worldloom.lm.session import LocalLM


class PlainLM:
    """The same weights and precision as a local world model's, without its engine."""

    def __init__(self, lm: LocalLM):
        self.chat = lm.chat
        self.model: Any = load_model(lm.name, lm.model.dtype).to(lm.model.device).eval()

    @torch.inference_mode()
    def generate(self, history: Sequence[int]) -> list[int]:
        """The greedy answer to a history, in tokens."""
        given = torch.tensor([list(history)], device=self.model.device)
        found: list[int] = self.model.generate(
            given, attention_mask=torch.ones_like(given), do_sample=False, max_new_tokens=MAX_NEW_TOKENS,
            eos_token_id=self.chat.end, pad_token_id=self.chat.end,
        )[0, len(history) :].tolist()  # fmt: skip
        return found
