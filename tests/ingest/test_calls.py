"""Calls of a model with their histories: which are one conversation."""

from pathlib import Path
from typing import Any

from tests.ingest import samples as made
from tests.ingest.test_formats import ingested, lines, steps
from worldloom.runs import read_json


def calls_log(*lengths: int) -> list[dict[str, Any]]:
    """Calls of one conversation as an API's log has them: each with all messages before it."""
    replies = {n: m for n, m in enumerate(made.OPENAI_MESSAGES) if m["role"] == "assistant"}
    return [
        {"request": {"model": "gpt-4o", "messages": made.OPENAI_MESSAGES[:n], "tools": made.OPENAI_TOOLS},
         "response": {"choices": [{"message": replies[n]}]}}
        for n in lengths
    ]  # fmt: skip


def test_calls_of_a_conversation_become_one_episode(tmp_path: Path) -> None:
    failed = {"request": calls_log(4)[0]["request"], "response": {"error": {"message": "overloaded"}}}
    (episode,) = ingested(tmp_path, "log.jsonl", lines(*calls_log(4, 2), failed, *calls_log(8, 6)))
    assert steps(episode) == made.STEPS[:3]
    assert episode.unanswered == [made.GOODBYE]  # type: ignore[attr-defined]
    assert episode.source == {"file": str(tmp_path / "in" / "log.jsonl"), "line": 4}  # type: ignore[attr-defined]
    account = read_json(tmp_path / "out" / "ingest.json")
    assert (account["records"], account["skipped"]) == (5, {})
    assert account["merged"] == {"an earlier call of a conversation that a later row has in full": 4}


def a_call(*history: str, reply: Any, **more: Any) -> dict[str, Any]:
    """A call with the user's and the agent's words in turn, and what the model said."""
    asked = [{"role": "user" if n % 2 == 0 else "assistant", "content": text} for n, text in enumerate(history)]
    message = {"role": "assistant", "content": reply} if isinstance(reply, str) else reply
    response = {"choices": [{"message": message}]} if message else {"error": {"message": "overloaded"}}
    return {"request": {"messages": asked}, "response": response, **more}


def test_calls_with_the_same_prompt_and_other_replies_are_conversations_of_their_own(tmp_path: Path) -> None:
    good, bad = a_call("2+2?", reply="4", success=True), a_call("2+2?", reply="5", success=False)
    longer = a_call("2+2?", "6", "No.", reply="4", success=True)
    episodes = ingested(tmp_path, "log.jsonl", lines(good, bad, longer, good, a_call("2+2?", reply=None)))
    assert [(steps(episode), episode.outcome) for episode in episodes] == [
        ([("5", "")], "failure"), ([("6", "No."), ("4", "")], "success"), ([("4", "")], "success"),
    ]  # fmt: skip
    assert list(read_json(tmp_path / "out" / "ingest.json")["merged"].values()) == [2]  # the same again, the failed one


def test_a_reply_that_comes_back_in_another_shape_is_the_same(tmp_path: Path) -> None:
    def called(id_: str, arguments: str, content: Any) -> dict[str, Any]:
        function = {"name": "get_order", "arguments": arguments}
        return {"role": "assistant", "content": content, "tool_calls": [{"id": id_, "function": function}]}

    ask, found = {"role": "user", "content": made.ASK}, {"role": "tool", "tool_call_id": "b", "content": made.FOUND}
    said = {**called("a", '{"id": 17, "x": 1.0}', None), "reasoning_content": "Look first."}
    first = {"request": {"messages": [ask]}, "response": {"choices": [{"message": said}]}}
    history = [ask, called("b", '{"x":1,"id":17}', ""), found]
    second = {"request": {"messages": history}, "response": {"role": "assistant", "content": "Open. "}}
    parts = [{"type": "text", "text": "Open."}]
    third = [*history, {"role": "assistant", "content": parts}, {"role": "user", "content": made.THANKS}]
    last = {"request": {"messages": third}, "response": {"role": "assistant", "content": "Bye."}}
    (episode,) = ingested(tmp_path, "log.jsonl", lines(first, second, last))
    assert episode.steps[-1].observation == made.THANKS
    assert list(read_json(tmp_path / "out" / "ingest.json")["merged"].values()) == [2]


def test_an_agent_that_speaks_twice_in_a_row_is_one_conversation(tmp_path: Path) -> None:
    roles = ("user", "assistant", "assistant", "user")

    def asked(*texts: str) -> list[dict[str, str]]:
        return [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]

    rows = [
        {"request": {"messages": asked(*history)}, "response": {"role": "assistant", "content": reply}}
        for history, reply in ((["go"], "One."), (["go", "One."], "Two."), (["go", "One.", "Two.", "on"], "Three."))
    ]
    (episode,) = ingested(tmp_path, "log.jsonl", lines(*rows))
    assert steps(episode) == [("One.\n\nTwo.", "on")]


def test_calls_of_the_other_apis(tmp_path: Path) -> None:
    messages = made.ANTHROPIC["messages"]
    asked = {"system": made.POLICY, "messages": messages[:3]}  # type: ignore[index]
    claude = {"request": asked, "response": {**messages[3], "type": "message"}}  # type: ignore[index]
    items = made.RESPONSES["items"]
    openai = {"instructions": made.POLICY, "input": items[:4], "output": items[4:5], "id": "resp_1"}  # type: ignore[index]
    lost = {**openai, "previous_response_id": "resp_0"}
    episodes = ingested(tmp_path, "log.jsonl", lines(claude, openai, lost))
    assert [steps(episode) for episode in episodes] == [made.STEPS[:1]] * 2
    assert [episode.unanswered for episode in episodes] == [[made.QUESTION]] * 2  # type: ignore[attr-defined]
    ((reason, count),) = read_json(tmp_path / "out" / "ingest.json")["skipped"].items()
    assert (count, reason.startswith("goes on from an earlier response")) == (1, True)
