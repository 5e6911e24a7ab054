"""A conversation with a local world model that keeps its KV cache between steps."""

import copy
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import DynamicCache

from worldloom.errors import ContextOverflow
from worldloom.lm.hf import fast_bfloat16, load_model, load_tokenizer, window
from worldloom.tokens import ChatFormat

logger = logging.getLogger(__name__)

MAX_NEW_TOKENS = 512  # Word2World's limit
LOOKUP_TOKENS, LOOKUP_NGRAM = 24, 6  # transformers' prompt lookup: drafts that the model then verifies


class LocalLM:
    """A causal language model on this machine, with the chat format that it was trained in.

    Args:
        model: a run of ``worldloom train``, a model folder, ``"smollm2-135m"``, or a hub id.
        dtype: default bfloat16 where that is fast, else float32.

    Raises:
        ModelError: the model or its tokenizer cannot be loaded.
    """

    def __init__(self, model: str, dtype: torch.dtype | None = None):
        self.chat = ChatFormat(load_tokenizer(model))
        self.name = str(model)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        loaded = load_model(model, dtype or (torch.bfloat16 if fast_bfloat16() else torch.float32))
        self.model = loaded.to(device).eval()
        self.model.prepare_inputs_for_generation = _without_cached(self.model.prepare_inputs_for_generation)
        self.window = window(self.model)

    def session(self, initial_context: str | None, initial_observation: str) -> "Session":
        """Begin an episode."""
        return Session(self, self.chat.start(initial_context, initial_observation))


def _without_cached(prepare: Callable[..., Any]) -> Callable[..., Any]:
    """Let a pass compute only what its cache lacks.

    transformers (5.19) gives the first pass of prompt lookup the whole history, even what the cache holds, so that
    the model reads it twice and answers something else.
    """

    @functools.wraps(prepare)
    def prepared(
        input_ids: Any, next_sequence_length: int | None = None, past_key_values: Any = None, **kwargs: Any
    ) -> Any:
        if next_sequence_length is None and past_key_values is not None:
            next_sequence_length = input_ids.shape[1] - past_key_values.get_seq_length()
        return prepare(input_ids, next_sequence_length=next_sequence_length, past_key_values=past_key_values, **kwargs)

    return prepared


class Session:
    """One episode. ``ids`` is the whole history in tokens; the cache holds a prefix of it."""

    def __init__(self, lm: LocalLM, ids: Sequence[int]):
        self.lm, self.ids = lm, list(ids)
        self.cache: Any = DynamicCache(config=lm.model.config)
        self.answered = False

    def fork(self) -> "Session":
        """The same episode so far, to go on by itself."""
        twin = Session(self.lm, self.ids)
        twin.cache, twin.answered = copy.deepcopy(self.cache), self.answered
        return twin

    def step(self, action: str, max_new_tokens: int = MAX_NEW_TOKENS) -> str:
        """What the world model answers to an action, by greedy decoding.

        Raises:
            ContextOverflow: history, action and answer do not fit the model's window; the session stays as it was.
        """
        chat = self.lm.chat
        prompt = self.ids + (chat.after_answer if self.answered else []) + chat.action(action)
        room = self.lm.window - len(prompt)
        if room < 2:
            raise ContextOverflow(f"the episode is {len(prompt)} tokens, more than the model's window {self.lm.window}")
        answer = self._generate(prompt, min(max_new_tokens, room - 1))  # one is the end token's
        self.ids, self.answered = prompt + answer, True
        return chat.decode(answer)

    def _generate(self, prompt: list[int], max_new_tokens: int) -> list[int]:
        answer = greedy(self.lm, prompt, self.cache, max_new_tokens)
        # The cache must hold a prefix of the history, and leave at least one token to compute next time.
        keep(self.cache, min(self.cache.get_seq_length(), len(prompt) + len(answer) - 1))
        return answer


def keep(cache: Any, length: int) -> None:
    """Make a KV cache forget all but its first ``length`` tokens."""
    if (surplus := cache.get_seq_length() - length) > 0:
        cache.crop(-surplus)


@torch.inference_mode()
def greedy(lm: LocalLM, prompt: Sequence[int], cache: Any, max_new_tokens: int) -> list[int]:
    """Greedy answer to a history in tokens, ended by the end token; ``cache`` holds a true prefix of the history.

    Drafts come from transformers' prompt lookup and are verified by the model, so the answer is greedy decoding's.
    """
    end = lm.chat.end
    inputs: Any = torch.tensor([list(prompt)], device=lm.model.device)
    found = lm.model.generate(
        inputs, attention_mask=torch.ones_like(inputs), past_key_values=cache, do_sample=False,
        max_new_tokens=max_new_tokens, eos_token_id=end, pad_token_id=end,
        prompt_lookup_num_tokens=LOOKUP_TOKENS, max_matching_ngram_size=LOOKUP_NGRAM,
    )  # fmt: skip
    answer: list[int] = found[0, len(prompt) :].tolist()
    return answer[: answer.index(end) + 1] if end in answer else [*answer, end]
