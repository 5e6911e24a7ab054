"""Our guesses inside vLLM: a proposer for its speculative decoding, which verifies them as it does its own.

    vllm serve runs/model/model --speculative-config
        '{"method": "custom_class", "model": "worldloom.lm.vllm_drafts.Proposer", "num_speculative_tokens": 32}'

vLLM (0.32) calls this interface experimental. It asks for guesses only after an answer's first token.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from worldloom.lm.guess import Guess, Guesser
from worldloom.lm.hf import load_tokenizer
from worldloom.lm.replies import Replies
from worldloom.tokens import ChatFormat


class Proposer:
    """Made by vLLM with its configuration; the model's folder holds the tokenizer and ``replies.json``."""

    def __init__(self, vllm_config: Any):
        folder = vllm_config.model_config.model
        self.guesser = Guesser(ChatFormat(load_tokenizer(folder)), Replies.load(Path(folder)))
        self.window = int(vllm_config.model_config.max_model_len)
        self.guesses: dict[str, Guess] = {}

    def propose(
        self,
        num_speculative_tokens: int,
        input_batch: Any,
        sampled_token_ids: Sequence[Sequence[int]],
        *_: Any,
        **__: Any,
    ) -> list[list[int]]:
        """For each request of the batch, the tokens that may come next; none for one that has not begun to answer."""
        self.guesses = {name: guess for name, guess in self.guesses.items() if name in input_batch.req_id_to_index}
        return [
            self._next(input_batch, place, num_speculative_tokens) if len(sampled) else []
            for place, sampled in enumerate(sampled_token_ids)
        ]

    def _next(self, batch: Any, place: int, count: int) -> list[int]:
        name, length = batch.req_ids[place], int(batch.num_tokens_no_spec[place])
        prompt = int(batch.num_prompt_tokens[place])
        ids = batch.token_ids_cpu[place, :length].tolist()
        if name not in self.guesses:
            self.guesses[name] = self.guesser.resume(ids[:prompt])
        drafts = self.guesses[name](ids[prompt:])
        return drafts[0][: min(count, self.window - length - 1)] if drafts else []

    def load_model(self, *_: Any, **__: Any) -> None:
        """There is nothing to load."""
