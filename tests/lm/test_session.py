"""Kept caches, forks and one-pass scores against plain greedy decoding of the whole history, on the real model."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from worldloom.agents.gold import Replay
from worldloom.errors import ContextOverflow
from worldloom.evaluate.one_step import score_episodes
from worldloom.lm.score import score
from worldloom.lm.session import LocalLM, Session
from worldloom.protocol import said
from worldloom.rollout import rollout
from worldloom.trajectory import Trajectory


@pytest.fixture(scope="module")
def lm(smollm2: Path) -> LocalLM:
    return LocalLM(str(smollm2), torch.float32)


@pytest.fixture(scope="module")
def episode() -> Iterator[Trajectory]:
    """A real ALFWorld episode in which the world repeats itself, so that even an untrained model is right at times."""
    pytest.importorskip("alfworld", reason='the ALFWorld engine is not installed: pip install "worldloom[alfworld]"')
    from worldloom.envs.alfworld import ALFWorld

    actions = ["dance", "inventory", "dance", "inventory", "dance", "inventory"]
    with ALFWorld(context="none") as env:
        yield rollout(env, Replay(actions), "composed/ood/00041", max_steps=len(actions))


@torch.inference_mode()
def plain(lm: LocalLM, history: list[int], max_new_tokens: int) -> str:
    """Transformers' own greedy decoding of a whole history, with no cache kept and nothing drafted."""
    ids = torch.tensor([history])
    found = lm.model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=max_new_tokens,
        eos_token_id=lm.chat.end, pad_token_id=lm.chat.end,
    )[0, len(history) :].tolist()  # fmt: skip
    return lm.chat.decode(found)


@pytest.mark.model
@pytest.mark.engine
def test_one_pass_is_what_generating_and_comparing_gives(lm: LocalLM, episode: Trajectory) -> None:
    encoded = lm.chat.encode(episode, lm.window)
    scored = {found.step: found for found in score(lm, [(episode, encoded)])[0]}
    assert len(scored) == len(episode.steps) == 6
    right = {}
    for start, stop, number in encoded.spans:
        gold = said(episode.steps[number].observation, episode.steps[number].terminal)
        generated = plain(lm, encoded.input_ids[:start], stop - start + 4)
        right[number] = generated == gold
        assert (scored[number].said is None) == right[number]
        if scored[number].said is not None:
            assert scored[number].said.startswith(generated)  # it may go on for longer than this test does
    assert set(right.values()) == {True, False}
    [record] = score_episodes(lm, [(episode, "k", encoded)])
    assert [step["correct"] for step in record["steps"]] == list(right.values())
    with torch.inference_mode():
        whole = lm.model(torch.tensor([encoded.input_ids])).logits[0].log_softmax(-1)
    for (start, stop, _), step in zip(encoded.spans, record["steps"], strict=True):
        gold = [whole[place - 1, encoded.input_ids[place]].item() for place in range(start, stop)]
        assert step["logprob"] == pytest.approx(sum(gold), abs=2e-3)
        if scored[step["index"] - 1].said is None:  # what it says is the gold answer
            sure = {"logprob": pytest.approx(sum(gold), abs=2e-3), "lowest": pytest.approx(min(gold), abs=2e-3)}
            assert step["confidence"] == {**sure, "tokens": stop - start}
        else:  # a greedy token is at least as likely as the gold one where the two first differ
            assert step["confidence"]["lowest"] < 0


@pytest.mark.model
@pytest.mark.engine
def test_a_session_says_what_plain_decoding_of_its_whole_history_says(lm: LocalLM, episode: Trajectory) -> None:
    session = lm.session(episode.initial_context, episode.initial_observation)
    history = list(session.ids)
    for number, action in enumerate(["go to toilet 1", "dance", "look", "dance"]):
        history += (lm.chat.after_answer if number else []) + lm.chat.action(action)
        assert session.step(action, 12) == plain(lm, history, 12)
        assert session.ids[: len(history)] == history
        history = list(session.ids)
        assert session.cache.length < len(history)


@pytest.mark.model
@pytest.mark.engine
def test_a_fork_goes_its_own_way(lm: LocalLM, episode: Trajectory) -> None:
    session = lm.session(None, episode.initial_observation)
    session.step("look", 8)
    before = list(session.ids)
    twin = session.fork()
    told = twin.step("sing the anthem of France", 8)
    assert session.ids == before
    assert told == plain(lm, before + lm.chat.after_answer + lm.chat.action("sing the anthem of France"), 8)
    assert session.step("dance", 8) == plain(lm, before + lm.chat.after_answer + lm.chat.action("dance"), 8)
    assert twin.ids != session.ids


@pytest.fixture(scope="module")
def tiny(tiny_lm_folder: Path) -> LocalLM:
    return LocalLM(str(tiny_lm_folder), torch.float32)


def test_a_history_that_outgrows_the_window_raises_and_changes_nothing(tiny: LocalLM) -> None:
    session = tiny.session(None, "word " * 400)
    session.step("look", 8)
    before, cached = list(session.ids), session.cache.length
    with pytest.raises(ContextOverflow, match=r"the episode is \d+ tokens, more than the model's window 512"):
        session.step("go " * 200)
    assert (session.ids, session.cache.length) == (before, cached)
    assert isinstance(session.step("look", 4), str)


@pytest.mark.parametrize("room", [2, 3, 20])
def test_an_answer_never_outgrows_the_window(tiny: LocalLM, room: int) -> None:
    action = tiny.chat.action("look")
    session = Session(tiny, [5] * (512 - room - len(action)))
    session.step("look")
    assert len(session.ids) <= 512


def test_a_kept_cache_changes_nothing_over_many_steps(tiny: LocalLM) -> None:
    session = tiny.session("A context.", "A room.")
    for number in range(6):
        history = session.ids + (tiny.chat.after_answer if number else []) + tiny.chat.action(f"do {number}")
        assert session.step(f"do {number}", 10) == plain(tiny, history, 10)
