"""Turns -> steps: calls made at once, calls without a result, words in between, ends."""

import json
from typing import Any

import pytest

from worldloom.errors import ProtocolError
from worldloom.ingest.row import Outcome, outcome_of
from worldloom.ingest.turns import Dialogue, Heard, Said, Told, ToolCall, Turn, trajectory
from worldloom.trajectory import Failure, Trajectory


def call(name: str, id_: str | None = None) -> ToolCall:
    return ToolCall(name, {"x": 1}, id_)


def action(name: str) -> str:
    return json.dumps({"name": name, "arguments": {"x": 1}})


def made(*turns: Turn, **more: Any) -> Trajectory:
    return trajectory(Dialogue(turns, **more), "t/1", "e", {"file": "f", "line": 1})


def steps(episode: Trajectory) -> list[tuple[str, str, bool | None]]:
    return [(step.action, step.observation, step.not_recorded) for step in episode.steps]


def test_results_find_their_calls_by_id_whatever_their_order() -> None:
    episode = made(
        Heard("go"), Said("both", (call("a", "1"), call("b", "2"))),
        Heard("of b", True, "2"), Heard("of a", True, "1"), Heard("and?"),
    )  # fmt: skip
    assert steps(episode) == [(action("a"), "of a", None), (action("b"), "of b\n\nand?", None)]
    assert [step.thought for step in episode.steps] == ["both", None]


def test_results_without_ids_go_to_the_calls_in_order() -> None:
    episode = made(Said(calls=(call("a"), call("b"))), Heard("1", True), Heard("2", True), Heard("3", True))
    assert steps(episode) == [(action("a"), "1", None), (action("b"), "2\n\n3", None)]


def test_a_result_with_the_id_of_no_open_call_is_still_heard() -> None:
    episode = made(Said(calls=(call("a", "1"),)), Heard("late", True, "9"), Said("x"), Heard("y"))
    assert steps(episode) == [(action("a"), "late", None), ("x", "y", None)]


def test_a_retried_call_is_kept_and_marked_as_not_recorded() -> None:
    episode = made(Said(calls=(call("a", "1"),)), Said(calls=(call("a", "2"),)), Heard("ok", True, "2"))
    assert steps(episode) == [(action("a"), "", True), (action("a"), "ok", None)]


def test_words_of_the_user_are_what_comes_back_to_a_call_without_a_result() -> None:
    assert steps(made(Said(calls=(call("done"),)), Heard("bye"))) == [(action("done"), "bye", None)]


def test_an_empty_result_is_an_observation() -> None:
    assert steps(made(Said(calls=(call("a"),)), Heard("", True))) == [(action("a"), "", None)]


def test_neighbouring_words_are_one_action_and_one_observation() -> None:
    assert steps(made(Said("a"), Said("b"), Heard("c"), Told("d"), Heard("e"))) == [("a\n\nb", "c\n\nd\n\ne", None)]


def test_react_replies_are_split_and_other_words_are_not() -> None:
    episode = made(Said("Thought: I see\nAction: go\nnorth"), Heard("x"), Said("The Action: go"), Heard("y"))
    assert [(s.thought, s.action) for s in episode.steps] == [("I see", "go\nnorth"), (None, "The Action: go")]


def test_arguments_that_are_no_object_stay_as_they_were_said() -> None:
    broken = ToolCall("a", '{"x": ')
    assert made(Said(calls=(broken,)), Heard("Error", True)).actions == ['{"name": "a", "arguments": "{\\"x\\": "}']


def test_instructions_and_words_before_the_first_act_are_the_start() -> None:
    episode = made(Told("s"), Heard("hi"), Told("t"), Heard("there"), Said("a"), Heard("b"), hidden="h")
    assert (episode.initial_context, episode.initial_observation) == ("h", "s\n\nt\n\nhi\n\nthere")
    assert episode.task.instruction == "hi"


def test_the_last_words_are_a_step_only_where_the_log_says_how_it_ended() -> None:
    turns = (Said("a"), Heard("b"), Said("bye"))
    unknown = made(*turns)
    assert (steps(unknown), unknown.unanswered) == ([("a", "b", None)], ["bye"])  # type: ignore[attr-defined]
    cut = made(*turns, outcome=Outcome("truncated"))
    assert (cut.outcome, len(cut.steps)) == ("truncated", 1)
    lost = made(*turns, outcome=Outcome("failure", 0.25))
    assert steps(lost)[-1] == ("bye", "", None)
    assert (lost.outcome, lost.steps[-1].reward, lost.steps[0].terminal) == ("failure", 0.25, None)


def test_no_step_is_no_episode_unless_an_error_says_why() -> None:
    with pytest.raises(ProtocolError, match="nothing came back"):
        made(Heard("hi"), Said("hello"))
    with pytest.raises(ProtocolError, match="no agent acts"):
        made(Told("s"), Heard("hi"))
    assert made(error=Failure(kind="k", message="m")).outcome == "error"


@pytest.mark.parametrize(
    ("row", "terminal", "reward"),
    [
        ({"reward": 1}, "success", 1.0), ({"reward": 0.0}, "failure", 0.0), ({"reward": 0.5}, None, 0.5),
        ({"reward": "nan"}, None, None), ({"reward": True}, None, None), ({"reward": [1]}, None, None),
        ({"success": True}, "success", None), ({"success": False, "reward": 0.7}, "failure", 0.7),
        ({"outcome": "Timeout"}, "truncated", None), ({"outcome": "who knows"}, None, None), ({}, None, None),
        ({"resolved": 1.0}, "success", None), ({"reward": 10**400}, None, None),
    ],
)  # fmt: skip
def test_what_a_row_says_of_its_end(row: dict[str, Any], terminal: str | None, reward: float | None) -> None:
    assert outcome_of(row) == Outcome(terminal, reward)  # type: ignore[arg-type]
