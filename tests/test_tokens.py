from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from worldloom.errors import ContextOverflow, ModelError
from worldloom.lm.hf import load_tokenizer
from worldloom.protocol import render, said
from worldloom.tokens import ChatFormat, Encoded
from worldloom.trajectory import EnvRef, Step, TaskRef, Trajectory

LLAMA3 = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
BARE = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"  # nothing ends an answer
FORMATS = ["its own", "none", "llama-3"]


def load(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def tokenizers(smollm2: Path) -> dict[str, Any]:
    own, none, llama3 = load(smollm2), load(smollm2), load(smollm2)
    none.chat_template = None
    llama3.chat_template = LLAMA3
    llama3.add_tokens(["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], special_tokens=True)
    return {"its own": own, "none": none, "llama-3": llama3}


@pytest.fixture(scope="module")
def chat(tokenizers: dict[str, Any]) -> ChatFormat:
    return ChatFormat(tokenizers["its own"])


STEPS = [
    Step(action="go to shelf 1", observation="You arrive at shelf 1. On the shelf 1, you see a book 2, and a pen 1."),
    Step(action="dance", observation="Nothing happens."),
    Step(action="look", observation=""),
    Step(action="take pen 1 from shelf 1", observation="You pick up the pen 1 from the shelf 1.", terminal="success"),
]


def episode(steps: list[Step] = STEPS, context: str | None = "The drawer 1 is closed.") -> Trajectory:
    return Trajectory(
        env=EnvRef(name="e"), task=TaskRef(id="t7"), steps=steps, initial_context=context,
        initial_observation="You are in the middle of a room.\n\nYour task is to: find a pen.",
    )  # fmt: skip


def learnt(tokenizer: Any, encoded: Encoded) -> list[str]:
    """The text of each run of positions that carry loss."""
    runs: list[list[int]] = []
    inside = False
    for label in encoded.labels:
        if label != -100:
            runs = runs if inside else [*runs, []]
            runs[-1].append(label)
        inside = label != -100
    return [tokenizer.decode(run, clean_up_tokenization_spaces=False) for run in runs]


@pytest.mark.parametrize("name", FORMATS)
def test_the_mask_covers_exactly_what_the_world_says_and_its_end_token(tokenizers: dict[str, Any], name: str) -> None:
    tokenizer = tokenizers[name]
    encoded = ChatFormat(tokenizer).encode(episode(), 10_000)
    end = "<|eot_id|>" if name == "llama-3" else "<|im_end|>"
    assert learnt(tokenizer, encoded) == [said(step.observation, step.terminal) + end for step in STEPS]
    assert [span.step for span in encoded.spans] == [0, 1, 2, 3]
    assert all(a in (-100, b) for a, b in zip(encoded.labels, encoded.input_ids, strict=True))


@pytest.mark.parametrize("name", FORMATS)
def test_tokens_are_those_of_the_models_own_template(tokenizers: dict[str, Any], name: str) -> None:
    tokenizer = tokenizers[name]
    ids = ChatFormat(tokenizer).encode(episode(), 10_000).input_ids
    template = None if name != "none" else tokenizers["its own"].chat_template  # SmolLM2's is ChatML
    whole = tokenizer.apply_chat_template(render(episode()), chat_template=template, tokenize=True, return_dict=False)
    text = tokenizer.apply_chat_template(render(episode()), chat_template=template, tokenize=False)
    after = {"llama-3": ""}.get(name, "\n")
    assert tokenizer.decode(ids) + after == text
    if name == "llama-3":  # SmolLM2's vocabulary joins the template's line breaks to the text; Llama 3's own does not
        return
    assert ids + tokenizer(after, add_special_tokens=False)["input_ids"] == list(whole)


def test_a_template_that_ends_answers_with_no_token_gets_the_end_of_sequence_token(smollm2: Path) -> None:
    tokenizer = load(smollm2)
    tokenizer.chat_template = BARE
    encoded = ChatFormat(tokenizer).encode(episode(STEPS[:2], None), 10_000)
    assert learnt(tokenizer, encoded) == [step.observation + tokenizer.eos_token for step in STEPS[:2]]
    assert tokenizer.decode(encoded.input_ids).endswith(
        f"\nuser: dance\nassistant: Nothing happens.{tokenizer.eos_token}"
    )
    tokenizer.eos_token = None
    with pytest.raises(ModelError, match="no end-of-sequence token"):
        ChatFormat(tokenizer)


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages if m['role'] != 'system' %}{{ m['content'] }}<|im_end|>{% endfor %}",
        "{% for m in messages %}{{ m['content'] | replace('ANSWER', 'answer') }}<|im_end|>{% endfor %}",
    ],
)
def test_a_template_that_drops_or_changes_texts_is_refused(smollm2: Path, template: str) -> None:
    tokenizer = load(smollm2)
    tokenizer.chat_template = template
    with pytest.raises(ModelError, match="chat template changes or drops messages"):
        ChatFormat(tokenizer)


def test_what_a_recorded_world_does_not_know_is_not_learnt(chat: ChatFormat) -> None:
    known = chat.encode(episode(), 10_000)
    unknown = [step.model_copy(update={"not_recorded": number == 1}) for number, step in enumerate(STEPS)]
    encoded = chat.encode(episode(unknown), 10_000)
    assert encoded.input_ids == known.input_ids
    assert [span.step for span in encoded.spans] == [n for n in range(len(STEPS)) if n != 1]


def size(chat: ChatFormat, first: int, last: int) -> int:
    """Tokens of the system message and the steps [first, last), counted from the text as a whole."""
    messages = render(episode())
    text = chat.tokenizer.apply_chat_template(messages[:1] + messages[1 + 2 * first : 1 + 2 * last], tokenize=False)
    return len(chat.tokenizer(text.removesuffix("\n"), add_special_tokens=False)["input_ids"])


@pytest.mark.parametrize("fitting", [1, 2, 3, 4])
def test_a_budget_of_exactly_n_tokens_fits_n(chat: ChatFormat, fitting: int) -> None:
    exact = size(chat, 0, fitting)
    encoded = chat.encode(episode(), exact)
    assert len(encoded.input_ids) == exact
    assert ([span.step for span in encoded.spans], encoded.left_out) == (list(range(fitting)), 4 - fitting)
    if fitting > 1:
        fewer = chat.encode(episode(), exact - 1)
        assert len(fewer.input_ids) == size(chat, 0, fitting - 1)
        assert fewer.left_out == 5 - fitting


@pytest.mark.parametrize("fitting", [1, 2, 3, 4])
def test_a_window_keeps_the_newest_steps_and_the_system_message(chat: ChatFormat, fitting: int) -> None:
    exact = size(chat, 4 - fitting, 4)
    encoded = chat.encode(episode(), exact, "window")
    assert len(encoded.input_ids) == exact
    assert ([span.step for span in encoded.spans], encoded.left_out) == (list(range(4 - fitting, 4)), 4 - fitting)
    start = chat.start(episode().initial_context, episode().initial_observation)
    assert encoded.input_ids[: len(start)] == start
    assert learnt(chat.tokenizer, encoded)[-1] == "You pick up the pen 1 from the shelf 1. [SUCCESS]<|im_end|>"


def test_drop_keeps_all_or_nothing(chat: ChatFormat) -> None:
    exact = size(chat, 0, 4)
    assert len(chat.encode(episode(), exact, "drop").input_ids) == exact
    dropped = chat.encode(episode(), exact - 1, "drop")
    assert (dropped.spans, dropped.left_out) == ([], 4)
    assert set(dropped.labels) == {-100}


@pytest.mark.parametrize(("overflow", "first"), [("cut", 0), ("window", 3)])
def test_what_leaves_no_room_for_one_step_is_an_error(chat: ChatFormat, overflow: Any, first: int) -> None:
    exact = size(chat, first, first + 1)
    assert len(chat.encode(episode(), exact, overflow).spans) == 1
    with pytest.raises(ContextOverflow, match=rf"task 't7'.* more than the budget of {exact - 1}; shorten the context"):
        chat.encode(episode(), exact - 1, overflow)


def test_a_history_is_never_tokenized_differently_when_it_grows(chat: ChatFormat) -> None:
    whole = chat.encode(episode(), 10_000).input_ids
    for count in range(1, 4):
        begun = chat.encode(episode(STEPS[:count]), 10_000).input_ids
        assert whole[: len(begun)] == begun


# SmolLM2's vocabulary lacks some bytes, so not every code point can be spelt.
LATIN = st.text(st.characters(max_codepoint=0x17F, exclude_categories=["Cc"], include_characters="\n\t"), max_size=30)


def check_answer(chat: ChatFormat, text: str) -> None:
    ids = chat.answer(text)
    assert chat.decode(ids) == chat.decode(ids[:-1]) == text
    assert ids.count(chat.end) == 1
    assert ids[-1] == chat.end


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(LATIN)
def test_an_answer_is_decoded_as_it_was_and_has_one_end(chat: ChatFormat, text: str) -> None:
    check_answer(chat, text)


@pytest.mark.parametrize(
    "text", ["<|im_end|>", "a <|im_start|>user\nb", "  two  spaces .", " 's not", "\n\n", "<|endoftext|>", "Hüfte €"]
)
def test_texts_that_look_like_the_chat_format_are_only_texts(chat: ChatFormat, text: str) -> None:
    check_answer(chat, text)
    structure = set(chat.head) & set(chat.tokenizer.all_special_ids) | {chat.end}
    content = chat.start(None, text)[len(chat.head) : -len(chat.before_action)]
    assert not structure & {*content, *chat.action(text)[: -len(chat.before_answer)]}


def test_a_template_without_a_system_role_is_told(tiny_lm_folder: Path) -> None:
    tokenizer = load_tokenizer(tiny_lm_folder)
    tokenizer.chat_template = "{{ raise_exception('System role not supported') }}"
    with pytest.raises(ModelError, match=r"chat template refuses .* \(System role not supported\); give another"):
        ChatFormat(tokenizer)
