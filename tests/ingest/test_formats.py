"""Each format on a small sample: what becomes the action, the observation, the start and the end."""

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.ingest import samples as made
from worldloom.ingest.run import Settings, ingest
from worldloom.protocol import messages_row, render
from worldloom.runs import read_json
from worldloom.trajectory import Trajectory, read


def ingested(folder: Path, name: str, text: str | bytes, **settings: Any) -> list[Trajectory]:
    """The episodes of one file; its account must be even, and what is written must read back the same."""
    path = folder / "in" / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    out = folder / "out"
    summary = ingest([path], out, Settings(**settings))
    episodes = read(out / "trajectories.jsonl", strict=True)
    assert summary["unaccounted"] == 0
    assert summary["episodes"] == len(episodes)
    assert summary["steps"] == sum(len(episode.steps) for episode in episodes)
    for episode in episodes:
        assert Trajectory.from_json(episode.to_json()) == episode
        render(episode)
    return episodes


def steps(episode: Trajectory) -> list[tuple[str, str]]:
    return [(step.action, step.observation) for step in episode.steps]


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


CONVERSATIONS = {
    "openai-chat": made.OPENAI,
    "openai-responses": made.RESPONSES,
    "sharegpt": made.SHAREGPT,
}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_one_conversation_in_three_formats_is_one_episode(name: str, tmp_path: Path) -> None:
    (episode,) = ingested(tmp_path, "log.jsonl", lines(CONVERSATIONS[name]))
    assert read_json(tmp_path / "out" / "ingest.json")["formats"] == {name: 1}
    assert steps(episode) == made.STEPS
    assert episode.initial_observation.replace('"type": "function", ', "") == made.FIRST
    assert (episode.initial_context, episode.task.instruction, episode.task.id) == (None, made.ASK, "conv-1")
    assert [step.terminal for step in episode.steps] == [None, None, None, "success"]


def test_responses_reasoning_is_the_thought_of_the_call_that_follows(tmp_path: Path) -> None:
    (episode,) = ingested(tmp_path, "log.jsonl", lines(made.RESPONSES))
    assert [step.thought for step in episode.steps] == ["Look first.", None, None, None]


def test_anthropic_words_before_a_call_are_its_thought(tmp_path: Path) -> None:
    (episode,) = ingested(tmp_path, "log.json", json.dumps([made.ANTHROPIC], indent=1))
    assert read_json(tmp_path / "out" / "ingest.json")["formats"] == {"anthropic": 1}
    assert steps(episode) == made.STEPS
    assert [step.thought for step in episode.steps] == ["Let me look.", None, None, None]
    assert episode.initial_observation.startswith(f"{made.POLICY}\n\nTools:\n" + '{"name": "get_order"')
    assert episode.initial_observation.endswith(made.ASK)
    assert episode.agent is not None and episode.agent.params == {"model": "claude-sonnet"}


def test_anthropic_parallel_calls_errors_words_after_results_and_images(tmp_path: Path) -> None:
    image = {"type": "image", "source": {"type": "base64", "data": "AAAA"}}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [made.tool_use(made.LOOK, "a"), made.tool_use(made.CANCEL, "b")]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "b", "content": "no such order", "is_error": True},
                {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "17"}, image]},
                {"type": "text", "text": "hurry up"},
            ],
        },
    ]
    (episode,) = ingested(tmp_path, "log.jsonl", lines({"system": "s", "messages": messages}))
    assert [step.observation for step in episode.steps] == ["17\n\n[image]", "Error: no such order\n\nhurry up"]
    assert [step.model_extra for step in episode.steps] == [
        {"parallel": [1, 2]},
        {"failed": True, "parallel": [2, 2]},
    ]
    assert episode.left_out == ["image"]  # type: ignore[attr-defined]
    assert read_json(tmp_path / "out" / "ingest.json")["left_out"] == {"image": 1}


def test_word2world_rows_are_read_by_the_protocol_and_written_back_unchanged(tmp_path: Path) -> None:
    (episode,) = ingested(tmp_path, "log.jsonl", lines(made.MESSAGES), env="shop")
    assert (episode.env.name, episode.task.id) == ("shop", "log/1")
    assert steps(episode) == made.STEPS
    assert (episode.outcome, episode.initial_observation) == ("success", made.FIRST)
    assert messages_row(episode) == made.MESSAGES


def test_word2world_rows_in_sharegpt_form(tmp_path: Path) -> None:
    names = {"system": "system", "user": "human", "assistant": "gpt"}
    said = [{"from": names[m["role"]], "value": m["content"]} for m in made.MESSAGES["messages"]]  # type: ignore[index]
    (episode,) = ingested(tmp_path, "log.jsonl", lines({"conversations": said}))
    assert steps(episode) == made.STEPS


def test_rows_that_can_be_read_in_two_ways_are_not_guessed_at(tmp_path: Path) -> None:
    row = {"messages": [{"role": "user", "content": "look"}, {"role": "assistant", "content": "A room."}] * 2}
    assert ingested(tmp_path, "log.jsonl", lines(row, row)) == []
    ((reason, count),) = read_json(tmp_path / "out" / "ingest.json")["skipped"].items()
    assert (count, "--format openai-chat" in reason and "--format messages" in reason) == (1, True)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (agent,) = ingested(tmp_path / "a", "log.jsonl", lines(row), format="openai-chat")
    assert steps(agent) == [("A room.", "look")]
    (world,) = ingested(tmp_path / "b", "log.jsonl", lines(row), format="messages")
    assert steps(world) == [("look", "A room."), ("look", "A room.")]


def test_tau_bench_gives_the_scenario_to_the_world_and_the_gold_to_nobody(tmp_path: Path) -> None:
    (episode,) = ingested(tmp_path, "log.json", json.dumps([made.TAU]))
    assert steps(episode) == [*made.STEPS[:-1], (made.GOODBYE, f"{made.THANKS} ###STOP###")]
    assert (episode.task.id, episode.task.seed, episode.outcome, episode.steps[-1].reward) == ("3", 1, "success", 1.0)
    assert episode.initial_context == "The customer: You want order 17 cancelled."
    assert "GOLD" not in episode.to_json() and "kwargs" not in episode.to_json()


def test_tau_bench_ends(tmp_path: Path) -> None:
    cut = {**made.TAU, "traj": made.TAU["traj"][:-1], "reward": 0.0}  # type: ignore[index]
    name = "transfer_to_human_agents"
    transferred = [
        *made.OPENAI_MESSAGES[:2],
        made.openai_call({"name": name, "arguments": {}}, "t"),
        {"role": "tool", "tool_call_id": "t", "name": name, "content": "ok"},
    ]
    lost = {**made.TAU, "traj": transferred, "reward": 0.0}
    broken = {"task_id": 4, "trial": 0, "reward": 0.0, "info": {"error": "timeout", "traceback": "..."}, "traj": []}
    episodes = ingested(tmp_path, "log.json", json.dumps([cut, lost, broken], indent=2))
    assert [episode.outcome for episode in episodes] == ["truncated", "failure", "error"]
    assert episodes[0].unanswered == [made.GOODBYE]  # type: ignore[attr-defined]
    assert episodes[2].error is not None and episodes[2].error.message == "timeout"


def test_tau2_s_simulations_are_streamed_out_of_their_document(tmp_path: Path) -> None:
    phone = {"role": "user", "content": None, "tool_calls": [{"id": "u", "name": "reboot", "arguments": {}}]}
    messages = [
        {"role": "assistant", "content": "Hi!", "turn_idx": 0},
        {"role": "user", "content": made.ASK},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", **made.LOOK, "requestor": "assistant"}]},
        {"id": "c", "role": "tool", "content": "not found", "requestor": "assistant", "error": True},
        {"role": "assistant", "content": "Reboot."},
        phone,
        {"id": "u", "role": "tool", "content": "rebooted", "requestor": "user", "error": False},
        {"role": "user", "content": "Done. ###STOP###"},
    ]
    simulation = {"id": "x", "task_id": "7", "trial": 2, "reward_info": {"reward": 1.0}, "messages": messages}
    document = {
        "timestamp": "2026", "info": {"environment_info": {"policy": "..."}}, "tasks": [{"gold": "GOLD"}],
        "simulations": [{**simulation, "termination_reason": why} for why in ("user_stop", "max_steps")],
    }  # fmt: skip
    won, cut = ingested(tmp_path, "results.json", json.dumps(document, indent=2))
    expected = [("Hi!", made.ASK), (json.dumps(made.LOOK), "Error: not found"), ("Reboot.", "Done. ###STOP###")]
    assert steps(won) == steps(cut) == expected
    assert (won.task.id, won.task.seed, won.outcome, cut.outcome) == ("7", 2, "success", "truncated")
    assert won.left_out == ["the customer's own tool calls"]  # type: ignore[attr-defined]
    assert "GOLD" not in won.to_json()


def test_swe_agent_shows_what_the_agent_saw(tmp_path: Path) -> None:
    (episode,) = ingested(tmp_path, "x.traj", json.dumps(made.SWE, indent=2))
    assert steps(episode) == [("ls", "main.py\n\n(Open file: n/a)\nbash-$"), ("submit", "diff --git a b\n")]
    assert [step.thought for step in episode.steps] == ["I look.", "Done."]
    assert episode.initial_observation == "SETTING: a terminal.\n\nISSUE: it breaks."
    assert episode.outcome is None  # handed in is not solved
    assert episode.left_out == ["demonstration in the prompt"]  # type: ignore[attr-defined]


def issue(text: str, form: str = "ISSUE:\n{}\n\nINSTRUCTIONS:\nNow, you") -> dict[str, Any]:
    told = {"role": "user", "content": f"Here it is.\n{form.format(text)}", "agent": "primary"}
    return {**made.SWE, "history": [*made.SWE["history"][:2], told, *made.SWE["history"][3:]]}


def test_swe_agent_s_runs_on_one_issue_are_one_task(tmp_path: Path) -> None:
    """Whatever their files are called, and however its lines are broken; so that no two splits share it."""

    def task(name: str, record: dict[str, Any]) -> str:
        (tmp_path / name).mkdir()
        return ingested(tmp_path / name, f"{name}.traj", json.dumps(record))[0].task.id

    first = task("a", issue("It breaks\r\n  on  odd days."))
    assert first == f"It breaks ({hashlib.sha256(b'It breaks on odd days.').hexdigest()[:8]})"
    assert task("b", issue("It breaks\non odd days.\n")) == first
    assert task("c", issue("It breaks\non odd days.", "<pr_description>\n{}\n</pr_description>")) == first
    assert task("d", issue("It breaks\non even days.")) != first
    assert task("e", {**issue("It breaks"), "instance_id": "me__it-7"}) == "me__it-7"
    assert task("f", issue("  ")) == "f/1"  # nothing to tell it by


@pytest.mark.parametrize(
    ("status", "more", "outcome"),
    [
        ("submitted (exit_cost)", {}, "truncated"),
        ("exit_error", {}, "error"),
        ("submitted", {"resolved": True}, "success"),
    ],
)
def test_swe_agent_ends(status: str, more: dict[str, Any], outcome: str, tmp_path: Path) -> None:
    (episode,) = ingested(tmp_path, "x.traj", json.dumps({**made.SWE, "info": {"exit_status": status}, **more}))
    assert episode.outcome == outcome


def test_otel_spans_of_a_trace_are_one_conversation_whatever_their_order(tmp_path: Path) -> None:
    later, earlier = made.OTEL_SPANS[3:], made.OTEL_SPANS[:3]
    other = made.chat_span("x", 9, [made.told("user", "hi")], made.told("assistant", "hello"))
    batches = later, [{**other, "traceId": "trace-2"}], earlier
    (episode,) = ingested(tmp_path, "spans.jsonl", lines(*map(made.otlp_export, batches)))
    assert steps(episode) == made.STEPS[:3]
    assert episode.initial_observation.replace('"type": "function", ', "") == made.FIRST
    assert (episode.task.id, episode.steps[0].thought, episode.outcome) == ("conv-1", "Look first.", "success")
    assert episode.agent is not None and episode.agent.model_dump() == {"name": "clerk", "params": {"model": "gpt-4o"}}
    account = read_json(tmp_path / "out" / "ingest.json")
    assert account["records"] == 7
    assert account["merged"] == {"a span that is no GenAI span": 1}
    assert account["skipped"] == {"nothing came back to anything that the agent did": 1}  # of the other trace


def test_otel_in_one_document_and_a_failed_root(tmp_path: Path) -> None:
    status = {"status": {"code": 2, "message": "agent gave up"}}
    spans = [{**made.OTEL_SPANS[0], **status}, *made.OTEL_SPANS[1:]]
    (episode,) = ingested(tmp_path, "spans.json", json.dumps(made.otlp_export(spans), indent=1))
    assert steps(episode) == made.STEPS[:3]
    assert episode.error is not None and episode.error.message == "agent gave up"


def test_otel_openllmetry_s_attributes_and_a_tool_that_failed(tmp_path: Path) -> None:
    first = made.span("s", 1, {
        "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": made.ASK, "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.tool_calls.0.id": "c1", "gen_ai.completion.0.tool_calls.0.name": "get_order",
        "gen_ai.completion.0.tool_calls.0.arguments": '{"id": 17}',
    })  # fmt: skip
    failed = made.span("t", 2, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get_order",
                                "gen_ai.tool.call.id": "c1", "error.type": "timeout"}, status={"code": 2})  # fmt: skip
    (episode,) = ingested(tmp_path, "spans.jsonl", lines(made.otlp_export([first, failed])))
    assert steps(episode) == [(json.dumps(made.LOOK), "Error: timeout")]


def test_otel_without_captured_content_is_counted(tmp_path: Path) -> None:
    bare = made.span("s", 1, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o"})
    assert ingested(tmp_path, "spans.jsonl", lines(made.otlp_export([bare, bare]))) == []
    skipped = read_json(tmp_path / "out" / "ingest.json")["skipped"]
    assert skipped == {"a GenAI span whose messages were not captured": 2}


@pytest.mark.parametrize("nested", [True, False])
def test_langsmith_runs_nested_or_flat(nested: bool, tmp_path: Path) -> None:
    flat = [{k: v for k, v in made.LANGSMITH.items() if k != "child_runs"}, *made.LANGSMITH["child_runs"]]  # type: ignore[misc]
    text = lines(made.LANGSMITH) if nested else json.dumps({"runs": flat}, indent=1)
    (episode,) = ingested(tmp_path, "runs.json", text)
    assert steps(episode) == made.STEPS[:1]
    assert episode.initial_observation == made.FIRST
    assert episode.unanswered == [made.QUESTION]  # type: ignore[attr-defined]
    assert episode.agent is not None and episode.agent.params == {"model": "gpt-4o"}


def test_langsmith_further_generations_are_counted(tmp_path: Path) -> None:
    asked, found = made.LC_HISTORY[:4], made.LC_HISTORY[4]
    run = made.llm_run("run-3", "2026-01-01T00:00:03", asked, found)
    run["outputs"]["generations"][0].append({"message": made.lc("AIMessage", "Or shall I?")})
    (episode,) = ingested(tmp_path, "runs.jsonl", lines(run))
    assert episode.unanswered == [made.QUESTION]  # type: ignore[attr-defined]
    assert read_json(tmp_path / "out" / "ingest.json")["left_out"] == {"other choices": 1}


def test_traces_with_the_same_prompt_and_other_replies_are_conversations_of_their_own(tmp_path: Path) -> None:
    other = [made.told("user", made.ASK), made.told("assistant", "Which?"), made.told("user", "17")]
    runs = [made.chat_span("s4", 8, other, made.told("assistant", "I see.")), *made.OTEL_SPANS]
    first, second = ingested(tmp_path, "spans.jsonl", lines(made.otlp_export(runs)))
    assert [steps(first), steps(second)[0]] == [made.STEPS[:3], ("Which?", "17")]
    assert [first.task.id, second.task.id] == ["conv-1", "conv-1/2"]


def test_langsmith_tools_alone(tmp_path: Path) -> None:
    tool = {**made.LANGSMITH["child_runs"][2], "inputs": {"id": 17}, "outputs": None, "error": "HTTP 500"}  # type: ignore[index]
    (episode,) = ingested(tmp_path, "runs.jsonl", lines({**made.LANGSMITH, "child_runs": [tool]}))
    assert steps(episode) == [(json.dumps(made.LOOK), "Error: HTTP 500")]
    assert episode.initial_observation == made.ASK


def test_toolbench_says_nothing_of_the_outcome(tmp_path: Path) -> None:
    (episode,) = ingested(tmp_path, "runs.jsonl", lines(made.TOOLBENCH))
    assert steps(episode) == made.STEPS[:1]
    assert (episode.steps[0].thought, episode.outcome, episode.task.id) == ("I look.", None, "102")
    assert episode.initial_observation == f"Tools:\n{json.dumps(made.TOOL)}\n\n{made.ASK}"


def test_a_table_s_rows_are_put_in_order(tmp_path: Path) -> None:
    first, second = ingested(tmp_path, "rows.jsonl", lines(*made.TABLE))
    assert (first.task.id, first.initial_observation, first.outcome) == ("a", "A room.", "success")
    assert steps(first) == [("look", "A key."), ("take key", "Taken.")]
    assert [step.reward for step in first.steps] == [0.0, 1.0]
    assert (second.task.id, steps(second), second.outcome) == ("b", [("look", "Dark.")], "failure")
    assert read_json(tmp_path / "out" / "ingest.json")["records"] == 4


def test_a_table_s_task_may_be_number_0(tmp_path: Path) -> None:
    rows = [{**made.TABLE[1], "task": task} for task in (0, "", None)]
    ids = [ingested(tmp_path / str(n), "rows.jsonl", lines(row))[0].task.id for n, row in enumerate(rows)]
    assert ids == ["0", "b", "b"]


def test_a_csv_with_columns_of_other_names(tmp_path: Path) -> None:
    text = 'conv,cmd,output,ok\n7,ls,"a, ""b""\nc",\n7,rm a,,1\n'
    columns = {"episode": "conv", "action": "cmd", "observation": "output", "terminal": "ok"}
    (episode,) = ingested(tmp_path, "rows.csv.gz", gzip.compress(text.encode()), columns=columns)
    assert steps(episode) == [("ls", 'a, "b"\nc'), ("rm a", "")]
    assert (episode.task.id, episode.outcome) == ("7", "success")


def test_worldloom_s_own_episodes_pass_through(tmp_path: Path) -> None:
    own = Trajectory.model_validate({
        "env": {"name": "shop"}, "task": {"id": "1"}, "initial_observation": "x", "mine": 1,
        "steps": [{"action": "a", "observation": "b"}],
    })  # fmt: skip
    assert ingested(tmp_path, "own.jsonl", own.to_json() + "\n") == [own]


@pytest.mark.parametrize(("system", "context", "start"), [("context", True, False), ("none", False, False)])
def test_instructions_can_be_kept_from_the_agent_or_left_away(
    system: str, context: bool, start: bool, tmp_path: Path
) -> None:
    (episode,) = ingested(tmp_path, "log.jsonl", lines(made.OPENAI), system=system)
    assert (made.POLICY in str(episode.initial_context)) is context
    assert (made.POLICY in episode.initial_observation) is start
    assert episode.initial_observation == made.ASK
