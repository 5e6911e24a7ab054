"""Exchanges -> conversations: which goes on from which, and what the rows say."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from benchmarks.upstream import completion, events, words
from worldloom.errors import DataError
from worldloom.ingest.run import ingest
from worldloom.recording.body import Body
from worldloom.recording.conversations import conversations, write_conversations
from worldloom.recording.exchange import Exchange
from worldloom.recording.exchange_log import ExchangeLog
from worldloom.trajectory import Failure, read


class Recording:
    """Writes exchanges as the proxy does."""

    def __init__(self, path: Path):
        self.path, self.ids = path, list[str]()

    def add(
        self, path: str, request: Any, answer: bytes | None, status: int = 200, method: str = "POST", **headers: str
    ) -> None:
        asked, answered = Body({}), Body({})
        asked.add(request if isinstance(request, bytes) else json.dumps(request).encode())
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        exchange = Exchange(method, path, "", named, asked)
        if answer is None:
            exchange.error = Failure(kind="ReadError", message="gone")
        else:
            answered.add(answer)
            exchange.response, exchange.status = answered, status
        log = ExchangeLog(self.path)
        asyncio.run(log.add(exchange))
        log.close()
        self.ids.append(exchange.id)

    def chat(self, messages: list[Any], reply: str | dict[str, Any] | None, **headers: str) -> None:
        said = {"content": reply} if isinstance(reply, str) else reply
        answer = completion(said) if said is not None else None
        self.add("/v1/chat/completions", {"model": "m", "messages": messages}, answer, **headers)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return list(conversations(self.path))

    @property
    def texts(self) -> list[list[str]]:
        """Of each conversation the contents of its messages."""
        return [[message["content"] for message in row["messages"]] for row in self.rows]


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording(tmp_path / "exchanges.jsonl")


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


CALL = {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"order": 7, "cents": 300}'}}
TOOL = {"type": "function", "function": {"name": "refund", "parameters": {}}}


def test_calls_that_repeat_what_was_said_are_one_conversation(recording: Recording) -> None:
    start = [{"role": "system", "content": "Be kind."}, user("I want my money back.")]
    called = {"content": None, "tool_calls": [CALL], "refusal": None, "annotations": []}
    recording.chat(start, called, x_worldloom_task="t7", x_worldloom_agent="bot")
    recording.chat([user("Something else.")], "Yes?")
    # sent back without what was empty, and with its arguments written anew
    again = {"role": "assistant", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"cents":300,"order":7}'}}
    ]}  # fmt: skip
    result = {"role": "tool", "tool_call_id": "c1", "content": "done"}
    request = {"model": "m2", "messages": [*start, again, result], "tools": [TOOL], "stream": True}
    recording.add("/v1/chat/completions", request, b"".join(events("bye", 3)))
    first, other = recording.rows
    assert first == {
        "id": recording.ids[0], "task_id": "t7", "agent": "bot", "model": "m2", "tools": [TOOL],
        "messages": [*start, again, result, {"role": "assistant", "content": words("bye", 3)}],
        "recorded": {"started": first["recorded"]["started"], "exchanges": [recording.ids[0], recording.ids[2]]},
    }  # fmt: skip
    assert [message["content"] for message in other["messages"]] == ["Something else.", "Yes?"]


def test_a_streamed_tool_call_is_put_together(recording: Recording) -> None:
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": None},
        {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "refund", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"order": 7, '}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"cents": 300}'}}]},
        {"tool_calls": [{"index": 1, "id": "c2", "type": "function", "function": {"name": "b", "arguments": "{}"}}]},
    ]
    choices = [[{"index": 0, "delta": delta}] for delta in deltas] + [
        [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}], [],
    ]  # fmt: skip
    stream = "".join(f"data: {json.dumps({'choices': choice})}\r\n\r\n" for choice in choices) + "data: [DONE]\r\n\r\n"
    recording.add("/v1/chat/completions", {"messages": [user("go")]}, b": hello\r\n\r\n" + stream.encode())
    (row,) = recording.rows
    second = {"id": "c2", "type": "function", "function": {"name": "b", "arguments": "{}"}}
    assert row["messages"][-1] == {"role": "assistant", "content": None, "tool_calls": [CALL, second]}


def test_the_same_start_again_is_another_conversation(recording: Recording) -> None:
    for _ in range(2):  # two agents, in step, on the same task
        recording.chat([user("go")], "north")
    for _ in range(2):
        recording.chat([user("go"), said("north"), user("a wall")], "south")
    assert recording.texts == [["go", "north", "a wall", "south"]] * 2
    assert [row["recorded"]["exchanges"] for row in recording.rows] == [
        [recording.ids[0], recording.ids[2]], [recording.ids[1], recording.ids[3]],
    ]  # fmt: skip


def test_a_fork_is_two_conversations_and_nothing_is_lost(recording: Recording) -> None:
    recording.chat([user("go")], "north")
    recording.chat([user("go"), said("north"), user("a wall")], "south")
    recording.chat([user("go"), said("north"), user("a door")], "open")
    assert recording.texts == [["go", "north", "a wall", "south"], ["go", "north", "a door", "open"]]
    assert [row["id"] for row in recording.rows] == [recording.ids[0], f"{recording.ids[0]}/2"]


def test_a_retry_takes_the_place_of_what_failed(recording: Recording) -> None:
    recording.chat([user("go")], None)
    recording.chat([user("go")], "north")
    more = [user("go"), said("north"), user("a wall")]
    recording.add("/v1/chat/completions", {"messages": more}, b'{"error": {"message": "busy"}}', status=429)
    recording.chat(more, "south")  # its answer was lost with the proxy, so its client asked once more
    recording.chat(more, "west", x_stainless_retry_count="1")
    assert recording.texts == [["go", "north", "a wall", "west"]]
    counts = write_conversations(recording.path, recording.path.with_name("rows"))
    assert counts == {"exchanges": 5, "conversations": 1, "failed": 2, "replaced": 3, "other": 0}


def test_a_conversation_that_a_failure_ended_keeps_what_was_sent(recording: Recording) -> None:
    recording.chat([user("go")], "north")
    more = [user("go"), said("north"), user("a wall")]
    recording.add("/v1/chat/completions", {"messages": more}, b'{"error": {"message": "busy"}}', status=429)
    (row,) = recording.rows
    assert row["messages"] == more
    assert row["error"] == {"kind": "HTTP 429", "message": '{"error": {"message": "busy"}}'}
    recording.chat([*more, said("?")], None)
    assert recording.rows[-1]["error"] == {"kind": "ReadError", "message": "gone"}


def test_a_stream_without_its_end_is_no_answer(recording: Recording) -> None:
    whole = list(events("t", 3))
    recording.add("/v1/chat/completions", {"messages": [user("go")]}, b"".join(whole[:3]))
    assert "error" in recording.rows[0]


def test_labelled_episodes_may_shorten_their_history_and_ask_others(recording: Recording) -> None:
    one: dict[str, str] = {"x_worldloom_episode": "one"}
    recording.chat([user("go")], "north", **one)
    recording.chat([user("go")], "north", x_worldloom_episode="two")
    recording.chat([user("A summary, please.")], "Walls.", **one)  # a helper of the same episode
    recording.chat([user("(forgotten)"), said("north"), user("a wall")], "south", **one)
    recording.chat([said("south"), user("a door")], "open", **one)
    assert recording.texts == [
        ["go", "north", "a wall", "south", "a door", "open"], ["go", "north"], ["A summary, please.", "Walls."],
    ]  # fmt: skip
    assert [row["id"] for row in recording.rows] == ["one", "two", "one/2"]


def output(text: str) -> list[dict[str, Any]]:
    parts = [{"type": "output_text", "text": text, "annotations": []}]
    return [
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "message", "id": f"msg_{text}", "status": "completed", "role": "assistant", "content": parts},
    ]


def test_the_responses_api_goes_on_by_id_or_by_its_items(recording: Recording) -> None:
    def ask(request: dict[str, Any], number: int, text: str) -> None:
        response = {"id": f"resp_{number}", "object": "response", "status": "completed", "output": output(text)}
        stream = f"event: response.completed\ndata: {json.dumps({'type': 'x', 'response': response})}\n\n"
        whole = json.dumps(response)
        recording.add("/v1/responses", {"model": "m", **request}, (stream if number % 2 else whole).encode())

    ask({"input": "go", "instructions": "Be brief."}, 1, "north")
    ask({"input": [{"type": "message", **user("start")}]}, 2, "up")
    ask({"input": "a wall", "instructions": "Be brief.", "previous_response_id": "resp_1"}, 3, "south")
    ask({"input": [user("start"), said("up"), user("a lamp")]}, 4, "take it")  # without the reasoning
    ask({"input": "a door", "previous_response_id": "resp_3"}, 5, "open")
    one, other = recording.rows
    assert one["input"] == [user("go"), *output("north"), user("a wall"), *output("south"), user("a door")]
    assert (one["output"], "messages" in one) == (output("open"), False)
    assert other["input"] == [user("start"), said("up"), user("a lamp")]
    assert other["output"] == output("take it")
    recording.chat([user("go")], "north")
    out = recording.path.with_name("rows")
    write_conversations(recording.path, out)
    assert {path.name: path.read_bytes().count(b"\n") for path in out.iterdir()} == {
        "chat.jsonl": 1, "responses.jsonl": 2,
    }  # fmt: skip


def test_what_the_server_keeps_is_found_by_its_name_or_told(recording: Recording) -> None:
    def ask(number: int, **request: Any) -> None:
        response = {"id": f"resp_{number}", "status": "completed", "output": output(str(number))}
        recording.add("/v1/responses", request, json.dumps(response).encode())

    ask(1, input="go", conversation="conv_a")
    ask(2, input="go", conversation={"id": "conv_b"})
    ask(3, input="on", conversation="conv_a")
    ask(4, input="on", previous_response_id="resp_of_yesterday")
    one, other, later = recording.rows
    assert one["input"] == [user("go"), *output("1"), user("on")]
    assert (other["input"], other["output"]) == ([user("go")], output("2"))
    assert later["previous_response_id"] == "resp_of_yesterday"
    assert "previous_response_id" not in one


def test_what_is_no_conversation_is_counted_and_what_is_no_exchange_named(
    recording: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    recording.chat([user("go")], "north")
    recording.add("/v1/models", b"", b"{}", method="GET")
    recording.add("/v1/embeddings", {"input": "x"}, b"{}")
    recording.add("/v1/chat/completions", b"{not json", b"{}", status=400)
    with recording.path.open("ab") as file:
        file.write(b'{"messages": []}\n\n[1]\n' + b"[" * 100_000 + b"\n")
    out = recording.path.with_name("rows")
    with caplog.at_level(logging.WARNING):
        counts = write_conversations(recording.path, out)
    assert counts == {
        "exchanges": 7, "conversations": 1, "failed": 0, "replaced": 0, "other": 2, "unreadable": 4,
    }  # fmt: skip
    assert f"left out: {recording.path}:5: is no exchange of schema worldloom-exchange/1" in caplog.text
    assert [path.name for path in out.iterdir()] == ["chat.jsonl"]
    (row,) = (out / "chat.jsonl").read_text().splitlines()
    assert json.loads(row)["messages"] == [user("go"), said("north")]
    with pytest.raises(DataError, match=r"none\.jsonl: cannot be read"):
        write_conversations(recording.path.with_name("none.jsonl"), out)


@pytest.mark.parametrize(
    "answer",
    [b"", b"null", b"[]", b'{"choices": 3}', b'{"choices": [null]}', b"data: {broken\n\n", b"data: 1\n\n"],
)
def test_an_odd_answer_is_a_failed_one(recording: Recording, answer: bytes) -> None:
    recording.add("/v1/chat/completions", {"messages": [user("go")]}, answer)
    recording.add("/v1/responses", {"input": "go"}, answer)
    assert ["error" in row for row in recording.rows] == [True, True]


def test_conversations_of_both_apis_become_episodes(recording: Recording, tmp_path: Path) -> None:
    """Whole ones that begin alike stay two, a broken one says so, one without its history is counted."""

    def ask(request: dict[str, Any], items: list[Any] | None, **headers: str) -> None:
        answer = None if items is None else json.dumps({"id": f"r{len(recording.ids)}", "output": items}).encode()
        recording.add("/v1/responses", {"model": "m", **request}, answer, **headers)

    call = {"type": "function_call", "id": "f", "call_id": "c1", "name": "refund", "arguments": '{"order": 7}'}
    result = {"type": "function_call_output", "call_id": "c1", "output": '{"paid": true}'}
    begin = [user("Refund order 7.")]
    told = {"instructions": "Be kind."}
    ask(
        {"input": begin, **told}, output("Which card?"), x_worldloom_episode="a"
    )  # one that ends where the other goes on
    ask({"input": begin, **told}, [call], x_worldloom_episode="b")
    ask({"input": [*begin, call, result], **told}, output("Done."), x_worldloom_episode="b")
    ask({"input": [*begin, call, result, *output("Done."), user("Thanks.")], **told}, None, x_worldloom_episode="b")
    ask({"input": "on", "previous_response_id": "resp_of_yesterday"}, output("up"))
    recording.chat([user("go")], "north")
    recording.chat([user("go"), said("north"), user("a wall")], "south")
    write_conversations(recording.path, tmp_path / "rows")
    account = ingest([tmp_path / "rows"], tmp_path / "out")
    assert account["formats"] == {"openai-chat": 1, "openai-responses": 1}
    assert (account["records"], account["episodes"], account["merged"], account["unaccounted"]) == (4, 2, {}, 0)
    assert account["skipped"] == {
        "nothing came back to anything that the agent did": 1,  # a: the only reply is unanswered
        "goes on from an earlier response (previous_response_id), whose history it does not hold": 1,
    }
    chat, broken = read(tmp_path / "out" / "trajectories.jsonl")
    assert [(s.action, s.observation) for s in chat.steps] == [("north", "a wall")]
    assert broken.task.id == "b" and broken.initial_observation == "Be kind.\n\nRefund order 7."
    assert [(s.action, s.observation) for s in broken.steps] == [
        ('{"name": "refund", "arguments": {"order": 7}}', '{"paid": true}'), ("Done.", "Thanks."),
    ]  # fmt: skip
    assert broken.error is not None and (broken.outcome, broken.error.kind) == ("error", "ReadError")
