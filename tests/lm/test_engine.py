"""The engine against plain greedy decoding of whole histories, on a small model with random weights: its text means
nothing, but every token of it depends on all before, so a wrong cache, mask or position shows."""

import math
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, LlamaForCausalLM

from worldloom.lm.base import Confidence
from worldloom.lm.cache import BLOCK, KVCache
from worldloom.lm.engine import CIRCLING, Request, Sampling, circles, greedy_choice
from worldloom.lm.packed import Chunk, forward, new_cache
from worldloom.lm.score import SLACK_TOKENS, exact, score
from worldloom.lm.session import LocalLM
from worldloom.tokens import Encoded, Span
from worldloom.trajectory import EnvRef, Step, TaskRef, Trajectory

LENGTH = 12


@pytest.fixture(scope="module")
def lively(tiny_lm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with larger weights and a head of its own: it does not just repeat the last token."""
    folder = shutil.copytree(tiny_lm_folder, tmp_path_factory.mktemp("lively") / "lm")
    config = AutoConfig.from_pretrained(folder, initializer_range=0.2, tie_word_embeddings=False)
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def lm(lively: Path) -> LocalLM:
    return LocalLM(str(lively), torch.float32)


@torch.inference_mode()
def plain(lm: LocalLM, history: Sequence[int], count: int = LENGTH) -> list[int]:
    """Greedy decoding, the whole history read anew for each token; ended like an answer."""
    ids = list(history)
    for _ in range(count):
        ids.append(int(lm.model(torch.tensor([ids])).logits[0, -1].argmax()))
        if ids[-1] == lm.chat.end:
            return ids[len(history) :]
    return [*ids[len(history) :], lm.chat.end]


def request(lm: LocalLM, ids: list[int], guesses: Sequence[Sequence[int]] = ()) -> Request:
    def guess(said: list[int]) -> list[list[int]]:
        return [list(g) for g in guesses] if not said else []

    return Request(ids, len(ids), new_cache(lm.model), LENGTH, guess)


def history(seed: int, length: int = 30) -> list[int]:
    return torch.randint(0, 40_000, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def drafts(truth: list[int]) -> Iterator[tuple[list[list[int]], int]]:
    """Guesses, and in how many passes the answer is there: the first settles what it can, then a token a pass."""
    wrong = [11, 12, 13]
    yield [], LENGTH
    yield [truth], 1
    yield [truth[:5] + wrong], LENGTH - 5
    yield [wrong], LENGTH
    yield [wrong, truth[:4]], LENGTH - 4
    yield [wrong, truth[:2] + wrong, truth[:7]], LENGTH - 7
    yield [truth[:7], wrong, truth[:2]], LENGTH - 7


def test_whatever_is_guessed_the_answer_is_greedy_decodings(lm: LocalLM) -> None:
    ids = history(0)
    truth = plain(lm, ids)[:-1]
    assert len(truth) == LENGTH
    for guesses, passes in drafts(truth):
        asked = request(lm, ids, guesses)
        assert lm.engine.submit(asked).result() == [*truth, lm.chat.end]
        assert asked.passes == passes
        # What was accepted stands in the cache as if it had been read: the next answer shows it.
        more = asked.ids + asked.answer + history(1, 5)
        following = Request(more, 0, asked.cache, LENGTH, lambda said: [])
        assert 30 <= asked.cache.length < len(more)
        assert lm.engine.submit(following).result() == plain(lm, more)


def test_an_answer_in_circles_is_ended(tiny_lm_folder: Path) -> None:
    """The tiny model as it is says one token over and over."""
    lm = LocalLM(str(tiny_lm_folder), torch.float32)
    ids = history(0)
    token, *others, end = lm.engine.submit(replace(request(lm, ids), limit=512)).result()
    assert (set(others), len(others), end) == ({token}, CIRCLING - 1, lm.chat.end)
    drawn = replace(request(lm, ids), limit=160, sampling=Sampling(1e-6))  # as good as greedy, but by chance
    assert lm.engine.submit(drawn).result() == [token] * 160 + [end]


def test_what_a_circle_is() -> None:
    row = list(range(32))
    assert circles([9] + row * 4)  # 32 tokens, four times
    assert not circles((row * 4)[:-1])  # not for long enough
    assert not circles([*range(33)] * 4)  # what comes again is too long
    assert not circles(row * 3 + [*range(31), 99])
    assert circles([7] * 128)
    assert not circles([1] + [7] * 127)


@torch.inference_mode()
def plain_logprobs(lm: LocalLM, ids: list[int], answer: list[int]) -> list[float]:
    """What transformers' own pass over history and answer says of the answer's tokens."""
    logits = lm.model(torch.tensor([ids + answer])).logits[0, len(ids) - 1 : -1]
    return logits.log_softmax(-1).gather(-1, torch.tensor(answer)[:, None])[:, 0].tolist()


def test_each_token_is_told_with_its_log_probability(lm: LocalLM) -> None:
    ids = history(0)
    truth = plain(lm, ids)[:-1]
    for guesses, _ in drafts(truth):
        asked = request(lm, ids, guesses)
        lm.engine.submit(asked).result()
        assert asked.logprobs == pytest.approx(plain_logprobs(lm, ids, truth), abs=1e-4)  # the end was forced


def test_a_drawn_answers_log_probabilities_are_those_at_temperature_1(lm: LocalLM) -> None:
    asked = request(lm, history(0), [history(7, 3)])
    asked.sampling = Sampling(temperature=3.0, seed=2)
    answer = lm.engine.submit(asked).result()
    told = plain_logprobs(lm, asked.ids, answer)[: len(asked.logprobs)]
    assert asked.logprobs == pytest.approx(told, abs=1e-4)


def test_many_at_once_answer_as_one_by_one(lm: LocalLM) -> None:
    histories = [history(seed, 5 + 9 * seed) for seed in range(8)]
    truths = [plain(lm, ids) for ids in histories]
    asked = [request(lm, ids, [t[: 2 * n]]) for n, (ids, t) in enumerate(zip(histories, truths, strict=True))]
    futures = [lm.engine.submit(one) for one in asked]
    assert [future.result() for future in futures] == truths
    assert lm.engine.counts.answers == 8
    report = lm.engine.counts.report()
    assert report["passes_per_answer"] == sum(one.passes for one in asked) / 8
    assert report["tokens_per_pass"] == sum(map(len, truths)) / sum(one.passes for one in asked)


def test_sessions_in_many_threads_do_not_disturb_each_other(lm: LocalLM) -> None:
    def play(number: int) -> list[str]:
        session = lm.session(f"Context {number % 3}.", "A room.")
        return [session.step(f"do {number} {turn}", LENGTH) for turn in range(4)]

    alone = [play(number) for number in range(6)]
    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(play, range(6))) == alone


def test_a_beginning_that_sessions_share_is_read_once(lm: LocalLM) -> None:
    context = "a long context " * 40
    sessions = [lm.session(context, "A room.") for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        said = list(threads.map(lambda s: s.step("look", 4), sessions))
    assert len(set(said)) == 1
    beginning = len(lm.chat.start(context, "A room."))
    assert beginning < lm.engine.counts.read < 1.6 * beginning


def test_when_memory_is_short_caches_are_dropped_and_computed_again(lively: Path, lm: LocalLM) -> None:
    need = lm.session(None, "A room.").cache.bytes_for(BLOCK)
    small = LocalLM(str(lively), torch.float32, cache_bytes=2 * need)
    sessions = [(lm.session(f"{n}", "A room."), small.session(f"{n}", "A room.")) for n in range(4)]
    for turn in range(3):
        for roomy, tight in sessions:
            assert tight.step(f"do {turn}", LENGTH) == roomy.step(f"do {turn}", LENGTH)
            assert small.engine.cached_bytes() <= 2 * need
    assert sum(tight.cache.length == 0 for _, tight in sessions) == 2
    assert small.engine.counts.read > lm.engine.counts.read
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda pair: pair[1].step("all", LENGTH), sessions)) == [
            roomy.step("all", LENGTH) for roomy, _ in sessions
        ]


def test_those_beyond_the_number_at_once_wait(lively: Path) -> None:
    lm = LocalLM(str(lively), torch.float32, sessions=2)
    futures = [lm.engine.submit(request(lm, history(seed))) for seed in range(5)]
    assert [future.result() for future in futures] == [plain(lm, history(seed)) for seed in range(5)]


def test_an_error_reaches_those_who_wait_and_the_engine_goes_on(lm: LocalLM) -> None:
    def broken(said: list[int]) -> list[list[int]]:
        raise RuntimeError("no guess")

    asked = Request(history(0), 0, new_cache(lm.model), LENGTH, broken)
    with pytest.raises(RuntimeError, match="no guess"):
        lm.engine.submit(asked).result()
    assert lm.engine.submit(request(lm, history(0))).result() == plain(lm, history(0))


def test_steps_can_be_taken_back_and_gone_another_way(lm: LocalLM) -> None:
    session = lm.session("A context.", "A room.")
    first = session.step("one", LENGTH)
    ids = list(session.ids)
    second = session.step("two", LENGTH)
    twin = session.fork()
    session.rewind()
    assert session.ids == ids
    assert session.step("two", LENGTH) == second
    session.rewind(2)
    assert session.step("one", LENGTH) == first
    assert session.ids == ids
    straight = lm.session("A context.", "A room.")
    straight.step("one", LENGTH)
    straight.step("two", LENGTH)
    assert twin.step("three", LENGTH) == straight.step("three", LENGTH)
    with pytest.raises(ValueError, match="cannot take back 2 steps of 1"):
        session.rewind(2)


def test_what_was_heard_stands_in_the_history_like_what_was_said(lm: LocalLM) -> None:
    told, hearing = (lm.session("A context.", "A room.") for _ in range(2))
    first, second = told.step("one", LENGTH), told.step("two", LENGTH)
    assert lm.chat.decode(lm.chat.answer(first)) == first  # so that both histories are spelt alike below
    hearing.hear("one", first)
    assert hearing.confidence is None
    assert hearing.step("two", LENGTH) == plain_text(lm, "A context.", "A room.", [("one", first)], "two")
    hearing.rewind()  # unsure, say
    hearing.hear("two", "You see a lamp 1.")
    told_after = [("one", first), ("two", "You see a lamp 1.")]
    assert hearing.step("three", LENGTH) == plain_text(lm, "A context.", "A room.", told_after, "three")
    twin = hearing.fork()
    assert twin.confidence == hearing.confidence
    hearing.rewind(3)
    assert (hearing.taken, hearing.confidence) == (0, None)
    assert hearing.step("one", LENGTH) == first
    assert twin.step("four", LENGTH) != second


def plain_text(lm: LocalLM, context: str, text: str, turns: list[tuple[str, str]], action: str) -> str:
    """What greedy decoding says after a history whose answers were written down, not generated."""
    ids = lm.chat.start(context, text)
    for number, (did, answer) in enumerate(turns):
        ids = ids + (lm.chat.after_answer if number else []) + lm.chat.action(did) + lm.chat.answer(answer)
    return lm.chat.decode(plain(lm, ids + lm.chat.after_answer + lm.chat.action(action)))


def test_how_sure_a_session_is(lm: LocalLM) -> None:
    session = lm.session(None, "A room.")
    prompt = session.ids + lm.chat.action("look")
    session.step("look", LENGTH)
    told = plain_logprobs(lm, prompt, session.ids[len(prompt) : len(prompt) + LENGTH])
    assert session.confidence == Confidence(
        pytest.approx(sum(told), abs=1e-3), pytest.approx(min(told), abs=1e-4), LENGTH, None
    )  # fmt: skip
    assert session.confidence.probability == pytest.approx(math.exp(sum(told)), rel=1e-3)
    assert session.confidence.record() == {
        "logprob": session.confidence.logprob, "lowest": session.confidence.lowest, "tokens": LENGTH,
    }  # fmt: skip


def test_scoring_tells_how_sure_the_model_is_of_what_it_says_instead(lm: LocalLM) -> None:
    steps = [Step(action="one", observation="A hall."), Step(action="two", observation="A cave.")]
    real = Trajectory(env=EnvRef(name="e"), task=TaskRef(id="t"), initial_observation="A room.", steps=steps)
    encoded = lm.encode(real)
    session = lm.session(None, "A room.")
    for found, span, step in zip(score(lm, [(real, encoded)])[0], encoded.spans, steps, strict=True):
        assert session.step(step.action, 2 * (span.stop - span.start) + SLACK_TOKENS) == found.said
        assert found.confidence[:3] == pytest.approx(session.confidence[:3], abs=1e-3)
        session.rewind()
        session.hear(step.action, step.observation)


def test_exact_match_alone_is_told_without_writing_wrong_answers_out(lm: LocalLM) -> None:
    steps = [Step(action="one", observation="A hall."), Step(action="two", observation="A cave.")]
    real = Trajectory(env=EnvRef(name="e"), task=TaskRef(id="t"), initial_observation="A room.", steps=steps)
    encoded = lm.encode(real)
    full = score(lm, [(real, encoded)])[0]
    before = lm.engine.counts.answers
    verdicts = exact(lm, [(real, encoded)])[0]
    assert [(v.step, v.right) for v in verdicts] == [(0, False), (1, False)]
    assert [v.logprob for v in verdicts] == pytest.approx([s.logprob for s in full], abs=1e-3)
    assert lm.engine.counts.answers == before


def test_an_answer_that_spells_the_text_in_other_tokens_is_right(lm: LocalLM) -> None:
    prompt = lm.session(None, "A room.").ids + lm.chat.action("one")
    truth = plain(lm, prompt)
    size = next(n for n in range(3, LENGTH) if truth[n] not in truth[:n])
    lm.chat.end = lm.engine.end = truth[size]  # what the model says there now ends its answer
    text = lm.chat.decode(truth[:size])
    for gold, right in ((text, True), (text + "!", False)):
        step = Step(action="one", observation=gold)
        real = Trajectory(env=EnvRef(name="e"), task=TaskRef(id="t"), initial_observation="A room.", steps=[step])
        letters = [token for letter in gold for token in lm.chat.answer(letter)[:-1]]
        assert letters != truth[:size]
        ids = [*prompt, *letters, lm.chat.end]
        verdicts = exact(lm, [(real, Encoded(ids, [Span(len(prompt), len(ids), 0)]))])
        assert [v.right for v in verdicts[0]] == [right]


def test_drafts_are_blind_to_each_other(lm: LocalLM) -> None:
    ids = history(3)
    branches = [history(4, 5), history(5, 7), history(6, 1)]
    cache = new_cache(lm.model)
    forward(lm.model, [Chunk(cache, ids[:20])])
    [logits] = forward(lm.model, [Chunk(cache, ids[20:], branches)])
    at = 1
    for branch in branches:
        with torch.inference_mode():
            alone = lm.model(torch.tensor([ids + branch])).logits[0, len(ids) :]
        torch.testing.assert_close(logits[at : at + len(branch)], alone, atol=1e-4, rtol=1e-4)
        at += len(branch)


def test_a_cache_is_shared_until_one_writes() -> None:
    cache = KVCache(layers=2, heads=1, size=4, dtype=torch.float32)
    cache.reserve(3)
    for layer in range(2):
        cache.write(layer, 0, torch.full((1, 3, 4), 1.0), torch.full((1, 3, 4), 2.0))
    cache.length = 3
    twin = cache.fork()
    assert twin.buffer is cache.buffer
    assert twin.bytes_for(4) == 2 * 2 * 4 * 4 * BLOCK
    twin.reserve(4)
    keys, values = twin.write(1, 3, torch.zeros(1, 1, 4), torch.zeros(1, 1, 4))
    assert keys[0, :, 0].tolist() == [1, 1, 1, 0]
    assert values[0, :, 0].tolist() == [2, 2, 2, 0]
    assert cache.bytes_for(BLOCK) == 0  # alone again
    assert cache.bytes_for(BLOCK + 1) == 2 * 2 * 4 * 4 * BLOCK
    cache.drop()
    assert (cache.length, twin.length, twin.buffer.tensor[0, 0, 0, 0, 0].item()) == (0, 3, 1.0)


def test_what_a_pass_wrote_can_be_moved_after_it_by_the_last_who_holds_it() -> None:
    """Rooms that are made in a pass are torch's inference tensors; a scored episode's last fork is alone with its."""
    cache = KVCache(layers=1, heads=1, size=2, dtype=torch.float32)
    with torch.inference_mode():
        cache.reserve(4)
        cache.write(0, 0, torch.arange(8.0).reshape(1, 4, 2), torch.zeros(1, 4, 2))
    cache.length = 1
    twin = cache.fork()
    del cache
    twin.reserve(4)
    twin.move(2, 2)
    assert (twin.length, twin.buffer.tensor[0, 0, 0, :3].tolist()) == (3, [[0, 1], [4, 5], [6, 7]])


@pytest.mark.parametrize("draft", [[], [0], [2, 1]])
def test_drawn_tokens_come_as_often_as_their_chances_say(draft: list[int]) -> None:
    chances = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6], [0.5, 0.25, 0.25]])
    draws, sampling = 4000, Sampling(temperature=0.5, seed=1)
    logits = chances.log() * 0.5  # at this temperature they are the chances again
    said = [sampling.choice(logits[: len(draft) + 1], draft) for _ in range(draws)]
    for token in range(3):
        share = sum(s[0] == token for s in said) / draws
        assert share == pytest.approx(chances[0, token].item(), abs=0.03)
    if followed := [s[1] for s in said if len(s) > 1]:
        for token in range(3):
            assert followed.count(token) / len(followed) == pytest.approx(chances[1, token].item(), abs=0.08)


def test_greedy_choice_is_the_agreed_beginning_and_one_more() -> None:
    rows = torch.eye(4)[[2, 0, 3]]
    assert greedy_choice(rows[:1], []) == [2]
    assert greedy_choice(rows, [2, 0]) == [2, 0, 3]
    assert greedy_choice(rows, [2, 1]) == [2, 0]
    assert greedy_choice(rows, [1, 0]) == [2]


def test_drawing_is_repeatable_by_seed_and_differs_from_greedy(lm: LocalLM) -> None:
    def told(seed: int) -> str:
        return lm.session(None, "A room.").step("look", LENGTH, Sampling(1.0, seed))

    assert told(1) == told(1)
    assert told(1) != told(2)


def test_before_python_ends_the_engines_thread_does(lively: Path) -> None:
    """One that Python stops within torch's own code would take the process down."""
    lm = LocalLM(str(lively))
    session = lm.session(None, "a room")
    session.step("look", 4)
    thread = lm.engine._thread
    assert thread is not None
    lm.engine.close()
    assert not thread.is_alive()
    assert session.step("look", 4)  # asked again, it begins anew
