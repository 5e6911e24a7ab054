import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from worldloom.errors import DataError, ProtocolError
from worldloom.protocol import (
    MARKERS,
    Row,
    heard,
    messages_row,
    parse,
    read_messages,
    render,
    said,
    scan_messages,
    system_text,
    write_messages,
)
from worldloom.trajectory import BadLine, EnvRef, Step, TaskRef, Trajectory, read, write

PIECES = ["On the shelf 1, you see nothing.", " [SUCCESS]", " [FAILURE]", "\n\n", "[SUCCESS] ", "é", ""]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=15) | st.lists(st.sampled_from(PIECES)).map("".join)
OBSERVATION = TEXT.filter(lambda text: not text.endswith(tuple(MARKERS.values())))
STEPS = st.lists(
    st.builds(Step, action=TEXT, observation=OBSERVATION, terminal=st.sampled_from([None, "success", "failure"])),
    min_size=1,
    max_size=4,
)


def episode(steps: list[Step], observation: str = "You see a shelf 1.", context: str | None = None) -> Trajectory:
    env, task = EnvRef(name="e"), TaskRef(id="t")
    return Trajectory(env=env, task=task, initial_observation=observation, initial_context=context, steps=steps)


@given(STEPS, TEXT)
def test_rendered_then_parsed_is_the_same_trajectory(steps: list[Step], observation: str) -> None:
    told = episode(steps, observation)
    assert parse(render(told), "e", "t") == told


@given(STEPS, TEXT, TEXT)
def test_a_context_comes_back_as_the_beginning_of_the_system_text(steps: list[Step], first: str, context: str) -> None:
    told = episode(steps, first, context)
    back = parse(render(told), "e", "t")
    assert back.steps == steps
    assert back.initial_observation == f"{context}\n\n{first}" == system_text(context, first)
    assert render(back) == render(told)


def test_the_protocol_word_for_word() -> None:
    steps = [
        Step(action="go to shelf 1", observation="On the shelf 1, you see a book 2."),
        Step(action="take book 2 from shelf 1", observation="You pick up the book 2.", terminal="success"),
    ]
    assert render(episode(steps, "You are in a room.", "On the shelf 1, you see a book 2.")) == [
        {"role": "system", "content": "On the shelf 1, you see a book 2.\n\nYou are in a room."},
        {"role": "user", "content": "go to shelf 1"},
        {"role": "assistant", "content": "On the shelf 1, you see a book 2."},
        {"role": "user", "content": "take book 2 from shelf 1"},
        {"role": "assistant", "content": "You pick up the book 2. [SUCCESS]"},
    ]


@pytest.mark.parametrize(
    ("observation", "terminal", "text"),
    [
        ("Done.", "success", "Done. [SUCCESS]"),
        ("Done.", "failure", "Done. [FAILURE]"),
        ("Done.", None, "Done."),
        ("", "success", " [SUCCESS]"),
        ("Use [SUCCESS] with care.", None, "Use [SUCCESS] with care."),
        ("Done.[SUCCESS]", None, "Done.[SUCCESS]"),
    ],
)
def test_what_is_said_is_heard(observation: str, terminal: Any, text: str) -> None:
    assert said(observation, terminal) == text
    assert heard(text) == (observation, terminal)


def test_a_truncated_end_has_no_suffix() -> None:
    assert said("Nothing happens.", "truncated") == "Nothing happens."


@pytest.mark.parametrize("terminal", [None, "success", "truncated"])
@pytest.mark.parametrize("marker", MARKERS.values())
def test_an_observation_that_ends_in_a_suffix_by_itself_is_refused(marker: str, terminal: Any) -> None:
    with pytest.raises(ProtocolError, match=re.escape(f"by itself: {marker.strip()!r}")):
        said(f"It prints{marker}", terminal)


SYSTEM, ACT, ANSWER = ({"role": role, "content": role} for role in ("system", "user", "assistant"))
BROKEN = {
    "two actions": ([SYSTEM, ACT, ACT, ANSWER], "message 3 is from 'user'; 'assistant' was to follow"),
    "an answer first": ([SYSTEM, ANSWER, ACT], "message 2 is from 'assistant'; 'user' was to follow"),
    "a late system message": ([ACT, ANSWER, SYSTEM, ACT, ANSWER], "message 3 is from 'system'; 'user' was to follow"),
    "another role": ([SYSTEM, {"role": "tool", "content": ""}], "message 2 is from 'tool'; 'user' was to follow"),
    "no answer at the end": ([SYSTEM, ACT], "at least one action and end on an assistant message"),
    "nothing but a system message": ([SYSTEM], "at least one action"),
    "no message": ([], "at least one action"),
    "two suffixes": ([SYSTEM, ACT, {**ANSWER, "content": "Done. [SUCCESS] [FAILURE]"}], "ends in a terminal suffix"),
    "no role": ([SYSTEM, {"content": "look"}], "message 2 has no role"),
    "no object": ([SYSTEM, "look"], "message 2 has no role"),
    "no text": ([SYSTEM, {"role": "user", "content": None}], r"message 2 \(user\) has no text in 'content'"),
}


@pytest.mark.parametrize(("messages", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_row_is_named_by_file_and_line_and_the_others_are_read(
    tmp_path: Path, messages: list[Any], reason: str
) -> None:
    good, path = {"messages": [SYSTEM, ACT, ANSWER]}, tmp_path / "w2w.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in (good, {"messages": messages}, good)))
    with pytest.raises(ProtocolError, match=reason):
        parse(messages)
    first, bad, last = scan_messages(path)
    assert isinstance(first, Row) and isinstance(last, Row)
    assert (first.line, last.line) == (1, 3)
    assert isinstance(bad, BadLine) and (bad.path, bad.line) == (path, 2)
    with pytest.raises(DataError, match=rf"w2w\.jsonl:2: .*{reason}"):
        read_messages(path)
    assert [t.task.id for t in read_messages(path, strict=False)] == ["w2w/1", "w2w/3"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"messages": [{"role": "user", "con', "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b'{"conversations": []}', "has no list 'messages'"),
        (b"[]", "has no list 'messages'"),
    ],
)
def test_a_line_that_is_no_row_is_named(tmp_path: Path, line: bytes, reason: str) -> None:
    path = tmp_path / "w2w.jsonl"
    path.write_bytes(b"\n" + line + b"\n")
    (bad,) = scan_messages(path)
    assert isinstance(bad, BadLine)
    assert bad.line == 2 and reason in bad.reason


ROWS = {
    "plain": {"messages": [SYSTEM, ACT, ANSWER]},
    "with an end": {"messages": [SYSTEM, ACT, {"role": "assistant", "content": "You win. [SUCCESS]"}]},
    "extra keys": {"id": 7, "messages": [SYSTEM, ACT, ANSWER], "source": {"env": "alfworld", "x": None}, "n": None},
    "extra keys of messages": {"messages": [{**SYSTEM, "a": 1}, {**ACT, "name": None}, {**ANSWER, "weight": 0}]},
    "no system": {"messages": [ACT, ANSWER, ACT, ANSWER]},
    "no system, extra keys": {"messages": [{**ACT, "a": 1}, {**ANSWER, "b": 2}]},
    "empty system": {"messages": [{"role": "system", "content": ""}, ACT, ANSWER]},
    "empty system, extra keys": {"messages": [{"role": "system", "content": "", "k": 1}, {**ACT, "a": 1}, ANSWER]},
    "empty first action": {"messages": [{"role": "user", "content": ""}, ANSWER]},
    "a suffix in mid-episode": {
        "messages": [SYSTEM, ACT, {"role": "assistant", "content": "Done. [SUCCESS]"}, ACT, ANSWER]
    },
    "a suffix inside": {"messages": [SYSTEM, ACT, {"role": "assistant", "content": "a [SUCCESS] b [FAILURE]"}]},
    "nothing but white space": {"messages": [{"role": "system", "content": " \n"}, ACT, {**ANSWER, "content": "\n"}]},
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_a_word2world_row_is_written_back_as_it_was(tmp_path: Path, row: dict[str, Any]) -> None:
    path, ours, again = tmp_path / "w2w.jsonl", tmp_path / "t.jsonl", tmp_path / "again.jsonl"
    path.write_text(json.dumps(row) + "\n")
    told = read_messages(path, "alfworld")
    assert messages_row(told[0]) == row
    write(ours, told)  # and by way of our own format
    write_messages(again, read(ours, strict=True))
    assert json.loads(again.read_text()) == row


CONTENT = st.fixed_dictionaries({"content": OBSERVATION}, optional={"name": TEXT, "loss": st.none() | st.booleans()})


@given(st.lists(st.tuples(CONTENT, CONTENT), min_size=1, max_size=3), st.none() | CONTENT, st.booleans())
def test_any_row_is_written_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, turns: list[Any], system: dict[str, Any] | None, ends: bool
) -> None:
    messages = [{"role": "system", **system}] if system is not None else []
    for action, answer in turns:
        messages += [{"role": "user", **action}, {"role": "assistant", **answer}]
    if ends:
        messages[-1]["content"] += " [FAILURE]"
    path = tmp_path_factory.mktemp("row") / "w2w.jsonl"
    path.write_text(json.dumps({"messages": messages}))
    (told,) = read_messages(path)
    assert messages_row(told) == {"messages": messages}


@given(STEPS, TEXT)
def test_trajectories_written_as_messages_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step], observation: str
) -> None:
    assume(observation)
    path = tmp_path_factory.mktemp("rows") / "w2w.jsonl"
    write_messages(path, [episode(steps, observation)] * 2)
    assert [(t.initial_observation, t.steps) for t in read_messages(path)] == [(observation, steps)] * 2


def test_rows_that_are_deep_or_odd_do_not_take_the_rest_with_them(tmp_path: Path) -> None:
    path, again = tmp_path / "rows.jsonl", tmp_path / "again.jsonl"
    odd = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "half \\ud800"}]}'
    path.write_text("\n".join(['{"messages": ' + "[" * 100_000, odd]) + "\n")
    bad, row = scan_messages(path)
    assert isinstance(bad, BadLine) and bad.line == 1 and bad.reason.startswith("is not JSON: maximum recursion")
    assert isinstance(row, Row) and row.trajectory.steps[0].observation == "half \ud800"
    write_messages(again, [row.trajectory])
    assert read_messages(again)[0].steps == row.trajectory.steps
