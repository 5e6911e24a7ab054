"""Coverage as counted by hand, and a page that says it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.samples import OPENAI
from worldloom.cli import app
from worldloom.coverage.measure import measured, pooled_rate
from worldloom.coverage.run import stats
from worldloom.coverage.steps import Kind, Outcome, form_of, form_of_action, kind_of, offered, outcomes_of
from worldloom.ingest.run import ingest
from worldloom.redact.run import redact
from worldloom.runs import read_json
from worldloom.trajectory import EnvRef, Step, TaskRef, Trajectory, read, write


def episode(task: str, *steps: Any, **more: Any) -> Trajectory:
    made = [step if isinstance(step, Step) else Step(action=step[0], observation=step[1]) for step in steps]
    return Trajectory(env=EnvRef(name="e"), task=TaskRef(id=task), initial_observation="Hi", steps=made, **more)


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ("refund(order=1)", Kind("refund", True)),
        ('{"name": "get_user", "arguments": {"id": "x"}}', Kind("get_user", True)),
        ('[{"name": "a"}, {"name": "b"}]', Kind("a", True)),
        ("Go to shelf 1", Kind("go", False)),
        ("...", Kind("(nothing)", False)),
    ],
)
def test_the_kind_of_an_action(action: str, kind: Kind) -> None:
    assert kind_of(action) == kind


@pytest.mark.parametrize(
    ("observation", "failed"),
    [
        ("Error: payment not found", True), ("Nothing happens.", True), ("bash: foo: command not found", True),
        ('{"error": "no such order"}', True), ('{"error": "", "response": "ok"}', False), ('{"error": null}', False),
        ('{"status": "failed"}', True), ('{"ok": false}', True), ("You see an error log on the desk.", False),
        ("The order is on its way.", False), ("", False),
    ],
)  # fmt: skip
def test_a_refusal_is_read_off_the_text(observation: str, failed: bool) -> None:
    assert outcomes_of(episode("t", ("do", observation))) == [Outcome(failed, "text")]


def test_a_field_and_the_admissible_actions_go_before_the_text() -> None:
    steps = [
        Step(action="a", observation="Error: x", is_error=False, admissible_actions=["b"]),
        Step(action="b", observation="Nothing happens.", admissible_actions=["c"]),
        Step(action="b", observation="Fine.", admissible_actions=["c"]),
        Step(action="d", observation="Nothing happens.", refused=False, admissible_actions=["c"]),
        Step(action="c", observation="Fine.", refused=True),
    ]
    assert outcomes_of(episode("t", *steps)) == [
        Outcome(False, "field"), Outcome(False, "admissible actions"), Outcome(True, "admissible actions"),
        Outcome(False, "field"), Outcome(True, "field"),
    ]  # fmt: skip


def test_a_form_masks_numbers_and_quoted_values() -> None:
    assert form_of('{"id": "ann_12", "price": 30}') == '{"id": "#", "price": #}'
    assert form_of('{"id":"bob\\n7","price":4.5}') == '{"id": "#", "price": #}'
    assert form_of("You take the mug 1.") == form_of("You take the mug 2.") != form_of("You take the cup 1.")
    assert form_of('He says "Hello there" to 2.') == 'He says "#" to #.'


def test_a_form_keeps_the_names_of_fields() -> None:
    assert form_of('{"status":"ok"}') == '{"status": "#"}' != form_of('{"error":"no"}')
    assert form_of('[{"order_17": [1.5, null, true, "x"]}]') == '[{"order_#": [#, null, true, "#"]}]'
    assert form_of('Error: {"status": "ok", "n": 3}') == 'Error: {"status": "#", "n": #}'  # no JSON as a whole
    assert form_of("[" * 100_000) == "[" * 100_000


def test_the_form_of_an_action_keeps_its_kind() -> None:
    refunds = [form_of_action(f'{{"name": "refund", "arguments": {{"id": {n}}}}}') for n in range(2)]
    assert refunds[0] == refunds[1] != form_of_action('{"name": "cancel", "arguments": {"id": 1}}')
    assert form_of_action("take mug 1") == form_of_action("take mug 2")


def test_what_is_offered() -> None:
    tools = [{"type": "function", "function": {"name": "refund"}}, {"name": "cancel"}, "x"]
    row = episode("t", Step(action="a", observation="b", admissible_actions=["go to x", "look"]), tools=tools)
    assert offered(row) == {"go", "look", "refund", "cancel"}


def test_a_tool_that_a_chat_offers_and_never_calls_is_told(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("get_order", "refund")]
    (tmp_path / "chat.jsonl").write_text(json.dumps({**OPENAI, "tools": [*tools, {"type": "web_search"}]}) + "\n")
    ingest([tmp_path / "chat.jsonl"], tmp_path / "logs")
    redact(tmp_path / "logs" / "trajectories.jsonl", tmp_path / "redacted.jsonl")
    (episode,) = read(tmp_path / "redacted.jsonl")
    assert episode.tools == [{"name": "get_order"}, {"name": "refund"}]  # type: ignore[attr-defined]
    assert "offered, and never tried: refund" in stats(tmp_path / "redacted.jsonl")["missing"]


def test_coverage_as_counted_by_hand() -> None:
    found = measured(
        [
            episode("1", ("go 1", "Hall."), ("take mug 1", "Taken.")),
            episode("1", ("go 2", "Hall."), ("take mug 2", "Error: none."), ("take mug 3", "Taken.")),
            episode("2", ("open", "Open."), outcome_note="x"),
        ]
    )
    assert (found["episodes"], found["steps"], found["outcomes"]) == (3, 6, {"unknown": 3})
    assert found["tasks"] == {"n": 2, "played_more_than_once": 1}
    assert (found["failed_steps"]["value"], found["failed_steps"]["n"]) == (1 / 6, 6)
    assert found["kinds"] == {
        "take": {"steps": 3, "episodes": 2, "failed": 1, "reply_forms": 2, "new": 1 / 3},
        "go": {"steps": 2, "episodes": 2, "failed": 0, "reply_forms": 1, "new": 0.0},
        "open": {"steps": 1, "episodes": 1, "failed": 0, "reply_forms": 1, "new": 1.0},
    }
    # Hi, Hall., Taken., Error: none., Open.; go 1, go 2, take 1, take 2, take 3, open; forms: go, taken, error, open
    assert found["states"] == {"observations": 5, "transitions": 6, "forms": 4}
    assert found["novelty"]["next"]["value"] == 2 / 6  # the error and the opening were seen once
    assert found["novelty"]["over_time"] == [
        {"episodes": 1, "steps": 2, "new": 1.0}, {"episodes": 2, "steps": 3, "new": 1 / 3},
        {"episodes": 3, "steps": 1, "new": 1.0},
    ]  # fmt: skip


def test_texts_are_one_kind_where_tools_are_called() -> None:
    steps = [("Hello there", "Hi"), ("Sure", "Thanks"), ('{"name": "refund", "arguments": {}}', "Done")]
    kinds = measured([episode("1", *steps), episode("2", *steps)])["kinds"]
    assert {name: (found["steps"], found["episodes"]) for name, found in kinds.items()} == {
        "(text)": (4, 2), "refund": (2, 2),
    }  # fmt: skip


def test_what_is_missing_is_said() -> None:
    call = ('{"name": "refund", "arguments": {"id": "7"}}', "Done.")
    rows = [episode(str(n), call, ("fail()", "Error: no"), tools=[{"name": "cancel"}]) for n in range(30)]
    said = measured([*rows, episode("once", ("rare()", "Error: x"))])["missing"]
    assert said == [
        "no episode of 31 ends in success, so a model could not say when a task does",
        "no episode of 31 ends in failure, so a model could not say when a task does",
        "no `fail` that did not fail in 30 of them in 31 episodes",
        "no failed `refund` in 30 of them in 31 episodes",
        "offered, and never tried: cancel",
        "seen fewer than 5 times: rare",
        "every task was played once, so no state shows what another action would have done",
        "of the next 100 steps like these about 1.6 would show a form not seen yet: more of the same teaches little; "
        "record other tasks, other agents, more mistakes",
    ]
    assert measured([])["missing"] == ["there is no step to learn from"]
    fresh = measured([episode(str(n), ("go", "ABCDEFGHIJ"[n % 10] * (n + 1))) for n in range(30)])["missing"]
    assert "of the next 100 steps like these about 100 would show a form not seen yet: record more" in fresh
    assert any(text.startswith("only 0 of 30 steps fail") for text in fresh)


def test_many_episodes_are_pooled_for_the_interval() -> None:
    found = pooled_rate([1, 0] * 1_500, [2] * 3_000)
    assert found is not None
    assert (found["value"], found["n"]) == (0.25, 6_000)
    assert pooled_rate([], []) is None


def test_the_page_and_the_json_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [episode(str(n), (f"go <b>{n}</b>", "Nothing happens."), ("look", "A room.")) for n in range(5)]
    write(tmp_path / "t.jsonl", rows)
    with (tmp_path / "t.jsonl").open("a") as file:
        file.write("{}\n")
    app(["stats", str(tmp_path / "t.jsonl"), "--out", str(tmp_path / "o")], standalone_mode=False)
    found = read_json(tmp_path / "o" / "stats.json")
    assert json.loads(capsys.readouterr().out) == found
    assert found["left_out"][0].startswith(f"{tmp_path}/t.jsonl:6: ")
    page = (tmp_path / "o" / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    assert "What t.jsonl covers" in page and "50.0 %" in page
    assert "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "")


def test_nothing_to_cover_is_a_page_too(tmp_path: Path) -> None:
    write(tmp_path / "t.jsonl", [episode("1")])
    found = stats(tmp_path / "t.jsonl", tmp_path / "o")
    assert (found["steps"], found["failed_steps"], found["kinds"]) == (0, None, {})
    assert "there is no step to learn from" in (tmp_path / "o" / "report.html").read_text(encoding="utf-8")
