"""Guesses in tokens: joined to what was said, and resumed from a history that somebody else tokenized."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.lm.test_draft import logged
from worldloom.lm.guess import Guesser, remembering, split
from worldloom.lm.hf import load_tokenizer
from worldloom.lm.vllm_drafts import Proposer
from worldloom.protocol import render
from worldloom.tokens import ChatFormat
from worldloom.trajectory import Trajectory

REPLIES = logged(("take mug 1 from desk 2", "You pick up the mug 1 from the desk 2."))
STEPS = [
    {"action": "look", "observation": "On the desk 1, you see a pen 3."},
    {"action": "take pen 3 from desk 1", "observation": "You pick up the pen 3 from the desk 1."},
]


@pytest.fixture(scope="module")
def chat(tiny_lm_folder: Path) -> ChatFormat:
    return ChatFormat(load_tokenizer(tiny_lm_folder))


@pytest.fixture
def episode() -> Trajectory:
    start = {
        "initial_context": "The safe 1 is closed.\nOn the bed 1, you see nothing.",
        "initial_observation": "A room.",
    }
    return Trajectory.model_validate({"env": {"name": "e"}, "task": {"id": "t"}, "steps": STEPS, **start})


def test_a_guess_goes_on_after_what_was_said(chat: ChatFormat) -> None:
    guess = Guesser(chat, REPLIES).guess(remembering(None, "A room."), "take pen 3 from desk 1")
    whole = chat.answer("You pick up the pen 3 from the desk 1.")
    assert guess([]) == [whole]
    assert guess(whole[:4]) == [whole[4:]]
    # Tokens that no text would be cut into have nothing to join.
    assert guess([*chat.answer("Yo")[:-1], *chat.answer("u")[:-1]]) == []


def prompts(chat: ChatFormat, episode: Trajectory) -> list[list[int]]:
    """The history up to the second answer, as we say it and as a server does."""
    encoded = chat.encode(episode, 10_000)
    told = [dict(message) for message in render(episode)[:-1]]
    text = chat.tokenizer.apply_chat_template(told, tokenize=False, add_generation_prompt=True)
    return [encoded.input_ids[: encoded.spans[1].start], chat.tokenizer(text, add_special_tokens=False)["input_ids"]]


def test_a_history_in_tokens_is_understood(chat: ChatFormat, episode: Trajectory) -> None:
    for prompt in prompts(chat, episode):
        guesser = Guesser(chat, REPLIES)
        turns = list(guesser._turns(prompt))
        assert [action for _, action in turns] == ["look", "take pen 3 from desk 1"]
        assert turns[0][0].startswith("The safe 1 is closed.\nOn the bed 1")
        assert turns[1][0] == "On the desk 1, you see a pen 3."
        assert guesser.resume(prompt)([]) == [chat.answer("You pick up the pen 3 from the desk 1.")]
    assert Guesser(chat, REPLIES).resume([1, 2, 3])([]) == []


def test_vllm_is_proposed_what_may_come_next(chat: ChatFormat, episode: Trajectory, tiny_lm_folder: Path) -> None:
    """As vLLM 0.32 calls it; that it does is shown by test_vllm."""
    model = SimpleNamespace(model=str(tiny_lm_folder), max_model_len=512)
    speculation = SimpleNamespace(num_speculative_tokens=5)
    proposer = Proposer(SimpleNamespace(model_config=model, speculative_config=speculation))
    proposer.guesser.replies = REPLIES
    prompt, answer = prompts(chat, episode)[0], chat.answer("You pick up the pen 3 from the desk 1.")
    ids, lengths = np.zeros((4, 512), dtype=np.int32), np.array([len(prompt) + 2, 9, 0, 0])
    ids[0, : len(prompt) + 2] = prompt + answer[:2]
    assert proposer.propose([[answer[1]], []], lengths, ids, slot_mappings=None) == [answer[2:7], []]
    assert list(proposer.guesses) == [tuple(prompt)]
    proposer.window = len(prompt) + 5
    assert proposer.propose([[answer[1]], []], lengths, ids, slot_mappings=None) == [answer[2:4], []]
    proposer.propose([[], []], lengths, ids, slot_mappings=None)
    assert proposer.guesses == {}  # of requests that are done, nothing is kept


def test_a_list_is_cut_at_a_mark() -> None:
    assert split([1, 9, 8, 2, 9, 9, 8], [9, 8]) == [[1], [2, 9], []]
    assert split([1], [9, 8]) == [[1]]
