"""Our guesses inside vLLM: a proposer for its speculative decoding, which verifies them as it does its own.

    vllm serve runs/model/model --speculative-config
        '{"method": "custom_class", "model": "worldloom.lm.vllm_drafts.Proposer", "num_speculative_tokens": 32}'

vLLM (0.32) calls this interface experimental. It asks for guesses only after an answer's first token.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from worldloom.lm.guess import Guess, Guesser, split
from worldloom.lm.hf import load_tokenizer
from worldloom.lm.replies import Replies
from worldloom.tokens import ChatFormat


class Proposer:
    """Made by vLLM with its configuration; the model's folder holds the tokenizer and ``replies.json``."""

    def __init__(self, vllm_config: Any):
        folder = vllm_config.model_config.model
        self.guesser = Guesser(ChatFormat(load_tokenizer(folder)), Replies.load(Path(folder)))
        self.window = int(vllm_config.model_config.max_model_len)
        self.count = int(vllm_config.speculative_config.num_speculative_tokens)
        self.guesses: dict[tuple[int, ...], Guess] = {}

    def propose(
        self, sampled_token_ids: Sequence[Sequence[int]], lengths: Any, token_ids: Any, **_: Any
    ) -> list[list[int]]:
        """For each request of the batch, the tokens that may come next; none for one that has not begun to answer.

        Args:
            sampled_token_ids: what each request said in this pass.
            lengths: how many tokens each has, shape (requests,).
            token_ids: those tokens, shape (requests, longest).
        """
        before, self.guesses = self.guesses, {}
        rows = (token_ids[place, : int(lengths[place])].tolist() for place in range(len(sampled_token_ids)))
        return [
            self._next(row, before) if len(sampled) else []
            for row, sampled in zip(rows, sampled_token_ids, strict=True)
        ]

    def _next(self, ids: list[int], before: dict[tuple[int, ...], Guess]) -> list[int]:
        """How a text may go on; what is known of its history is kept from pass to pass."""
        said = split(ids, self.guesser.chat.before_answer)[-1]
        prompt = tuple(ids[: len(ids) - len(said)])
        guess = self.guesses[prompt] = before.get(prompt) or self.guesser.resume(prompt)
        drafts = guess(said)
        return drafts[0][: min(self.count, self.window - len(ids) - 1)] if drafts else []

    def load_model(self, *_: Any, **__: Any) -> None:
        """There is nothing to load."""
