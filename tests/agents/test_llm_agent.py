from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.envs.corridor import Corridor
from tests.lm.serving import Answer, Served, completion, recorded, serve
from worldloom.agents import make
from worldloom.agents.base import Decision, Start
from worldloom.agents.llm import PROMPTS, LLMAgent, parse_react
from worldloom.errors import ConfigError
from worldloom.lm.openai import ChatServer
from worldloom.rollout import rollout
from worldloom.trajectory import Trajectory

START = Start("train-3", "You stand in room 1 of 4.", "Get into room 4.", seed=7)


@pytest.mark.parametrize(
    ("reply", "action", "thought"),
    [
        ("Thought: I am hungry.\nAction: eat apple", "eat apple", "I am hungry."),
        ("Thought: one line Action: look", "look", "one line"),
        ("Action:  go to shelf 1 \n", "go to shelf 1", None),
        ("Action: look\nObservation: a room\nAction: open door", "open door", "Action: look\nObservation: a room"),
        ("Thought: a\nAction: look\nThought: b\nAction: wait", "wait", "a\nAction: look\nThought: b"),
        ("Thought: hm\nAction:\n\n  take key\nand then go", "take key", "hm"),
        ("Action: take key\nThen I will leave.", "take key", None),
        ("Thought: I give up.\nAction:", "", "I give up."),
        ("Thought: the door\ngo east\n\n", "go east", "the door"),
        ("I would open the fridge.", "I would open the fridge.", None),
        ("look\r\n", "look", None),
        ("  \n", "", None),
        ("", "", None),
        ("<think>Action: no</think>\nAction: search[red shoes]", "search[red shoes]", "<think>Action: no</think>"),
    ],
)
def test_parse_react(reply: str, action: str, thought: str | None) -> None:
    assert parse_react(reply) == Decision(action, thought)


LINE = st.text(st.characters(exclude_categories=["Cs"])).map(lambda text: " ".join(text.split()))


@given(st.text(), LINE.filter(lambda line: line and "Action:" not in line), st.sampled_from(["\n", " ", ""]))
def test_the_action_is_what_follows_the_last_mark(before: str, action: str, gap: str) -> None:
    assert parse_react(f"{before}{gap}Action: {action}\n").action == action


@given(LINE.filter(lambda line: line and "Action:" not in line), LINE.filter(lambda line: "Action:" not in line))
def test_a_well_formed_reply_is_read_back(thought: str, action: str) -> None:
    if thought.startswith("Thought:"):
        thought = thought.removeprefix("Thought:").strip() or "I think"
    assert parse_react(f"Thought: {thought}\nAction: {action}") == Decision(action, thought)


@given(st.text())
def test_any_reply_gives_one_trimmed_line(reply: str) -> None:
    action, thought = parse_react(reply)
    assert action == action.strip() and len(action.splitlines()) <= 1 and action in reply
    assert thought is None or thought == thought.strip() != ""


def agent_at(base_url: str, **settings: Any) -> LLMAgent:
    return LLMAgent(**{"model": "m", "base_url": base_url, "prompt": "Say one action.", "timeout_s": 60.0, **settings})


def test_opening_has_the_shape_of_word2world() -> None:
    agent = agent_at("http://127.0.0.1:1/v1")
    agent.begin(START)
    assert agent.messages() == [
        {"role": "user", "content": "Say one action."},
        {"role": "assistant", "content": "OK."},
        {"role": "user", "content": "You stand in room 1 of 4.\n\nYour task: Get into room 4."},
    ]


def test_prompt_as_a_system_message_and_a_task_that_the_text_says_already() -> None:
    agent = agent_at("http://127.0.0.1:1/v1", prompt=None, family="alfworld", system_role="system")
    agent.begin(Start("t", "A room. Your task is to: heat an egg.", "heat an egg", seed=0))
    assert agent.messages() == [
        {"role": "system", "content": PROMPTS["alfworld"]},
        {"role": "user", "content": "A room. Your task is to: heat an egg."},
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"family": "alfword"}, "family is 'alfword'; did you mean 'alfworld'"),
        ({"system_role": "assistant"}, "system_role is 'assistant'; known: system, user"),
        ({"overflow": "ignore"}, "overflow is 'ignore'; known: drop_oldest, error"),
        ({"base_url": "localhost"}, "must begin with http"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make("llm", model="m", **settings)


def test_the_record_names_the_agent_but_neither_server_nor_key() -> None:
    agent = make("llm", model="m", base_url="http://10.0.0.7:8000/v1", api_key="sk-secret", family="textworld")
    recorded_as = agent.ref.model_dump_json()
    assert agent.ref.params["temperature"] == 1.0 and agent.ref.params["family"] == "textworld"
    assert "secret" not in recorded_as and "10.0.0.7" not in recorded_as


def seeds_sent(task: str, seed: int, **settings: Any) -> list[int]:
    with recorded(lambda where, body: Answer(completion("Action: look"))) as server:
        agent = agent_at(server.base_url, **settings)
        agent.begin(Start(task, "a", None, seed))
        for text in ("a", "b", "c"):
            agent.act(text)
        return [chat["seed"] for chat in server.chats]


def test_seeds_depend_on_task_agent_and_seed_alone() -> None:
    first = seeds_sent("t", 1)
    assert len(set(first)) == 3 and all(0 <= seed < 2**31 for seed in first)
    assert seeds_sent("t", 1) == first  # another port, the same seeds
    others = [seeds_sent("u", 1), seeds_sent("t", 2), seeds_sent("t", 1, temperature=0.5)]
    assert all(other != first for other in others)


def refuse_long(turns: int) -> Any:
    """A server whose window holds so many turns, answering with their number; the refusal is vLLM's."""

    def answer(where: str, body: Any) -> Answer:
        count = len(body["messages"])
        if count <= turns:
            return Answer(completion(f"Thought: {count} turns\nAction: look"))
        return Answer({"message": f"This model's maximum context length is {turns} tokens.", "code": 400}, 400)

    return answer


def test_overflow_leaves_out_the_oldest_exchanges_only(caplog: pytest.LogCaptureFixture) -> None:
    with recorded(refuse_long(7)) as server:
        agent = agent_at(server.base_url)
        agent.begin(START)
        for number in range(6):
            agent.act(f"seen {number}")
    accepted = [chat["messages"] for chat in server.chats if len(chat["messages"]) <= 7]
    opening = ["Say one action.", "OK.", "You stand in room 1 of 4.\n\nYour task: Get into room 4."]
    seven = "Thought: 7 turns\nAction: look"
    assert [[turn["content"] for turn in sent] for sent in accepted] == [
        opening,
        [*opening, "Thought: 3 turns\nAction: look", "seen 1"],
        [*opening, "Thought: 3 turns\nAction: look", "seen 1", "Thought: 5 turns\nAction: look", "seen 2"],
        [*opening, "Thought: 5 turns\nAction: look", "seen 2", seven, "seen 3"],
        [*opening, seven, "seen 3", seven, "seen 4"],
        [*opening, seven, "seen 4", seven, "seen 5"],
    ]
    assert all([turn["role"] for turn in sent[::2]] == ["user"] * (len(sent) // 2 + 1) for sent in accepted)
    assert sum("dropped the oldest exchange" in record.getMessage() for record in caplog.records) == 3


def test_what_was_left_out_is_in_the_trajectory() -> None:
    with recorded(refuse_long(7)) as server, Corridor() as env:
        trajectory = rollout(env, agent_at(server.base_url), "train-0", max_steps=6)
    assert trajectory.error is None and len(trajectory.steps) == 6
    assert [step.thought for step in trajectory.steps] == [f"{n} turns" for n in (3, 5, 7, 7, 7, 7)]
    assert trajectory.agent is not None and trajectory.agent.model_dump()["dropped_exchanges"] == 3
    assert Trajectory.from_json(trajectory.to_json()) == trajectory


@pytest.mark.parametrize(("turns", "settings", "steps"), [(2, {}, 0), (4, {}, 1), (5, {"overflow": "error"}, 2)])
def test_what_cannot_be_shortened_is_an_error_of_the_episode(turns: int, settings: dict[str, Any], steps: int) -> None:
    with recorded(refuse_long(turns)) as server, Corridor() as env:
        trajectory = rollout(env, agent_at(server.base_url, **settings), "train-0", max_steps=6)
    assert trajectory.error is not None and trajectory.error.kind == "ContextOverflow"
    assert f"maximum context length is {turns}" in trajectory.error.message
    assert len(trajectory.steps) == steps


def test_the_count_starts_anew_with_each_episode() -> None:
    with recorded(refuse_long(5)) as server, Corridor() as env:
        agent = agent_at(server.base_url)
        counts = [rollout(env, agent, "train-0", max_steps=n).agent for n in (4, 1)]
    assert [ref.model_dump()["dropped_exchanges"] for ref in counts if ref] == [2, 0]


def test_absent_server_is_recorded_and_no_step_is_lost_before() -> None:
    with recorded(lambda where, body: Answer({})) as gone:
        pass
    with Corridor() as env:
        trajectory = rollout(env, agent_at(gone.base_url, retries=0), "train-0")
    assert trajectory.outcome == "error" and trajectory.steps == []
    assert trajectory.error is not None and trajectory.error.kind == "ModelError"
    assert gone.base_url in trajectory.error.message and "vllm serve" in trajectory.error.message


@pytest.fixture(scope="module")
def served(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(smollm2, tmp_path_factory.mktemp("serve") / "log.txt") as server:
        yield server


def real_agent(served: Served, **settings: Any) -> LLMAgent:
    return agent_at(served.base_url, **{"model": served.model, "temperature": 0, "max_tokens": 8, **settings})


@pytest.mark.model
def test_a_real_model_plays_and_plays_the_same_again(served: Served) -> None:
    with Corridor() as env:
        agent = real_agent(served)
        trajectory = rollout(env, agent, "train-0", max_steps=2, seed=5)
        assert rollout(env, real_agent(served), "train-0", max_steps=2, seed=5) == trajectory
    assert trajectory.outcome == "truncated" and len(trajectory.steps) == 2

    talk = agent.messages()  # prompt, OK, first observation; then reply and observation in turn
    server = ChatServer(base_url=served.base_url, model=served.model, temperature=0, max_tokens=8)
    assert talk[3]["content"] == server.chat(talk[:3])
    assert [turn["content"] for turn in talk[4::2]] == [step.observation for step in trajectory.steps[:1]]
    for step, reply in zip(trajectory.steps, (turn["content"] for turn in talk[3::2]), strict=False):
        assert step.action and step.action in reply
        assert step.thought is None or step.thought in reply


@pytest.mark.model
def test_a_real_model_outgrows_its_window(served: Served) -> None:
    with Corridor() as env:
        trajectory = rollout(env, real_agent(served, window=110), "train-0", max_steps=3)
    assert trajectory.error is None and len(trajectory.steps) == 3
    assert trajectory.agent is not None and trajectory.agent.model_dump()["dropped_exchanges"] >= 1


@pytest.mark.model
def test_a_server_that_dies_in_mid_run_leaves_the_steps_so_far(served: Served) -> None:
    """Last in this file: it ends the server."""
    signs_of_life = 0

    def kill_after_two_actions() -> None:
        nonlocal signs_of_life
        signs_of_life += 1  # one before the reset, one before each step
        if signs_of_life == 3:
            served.kill()

    with Corridor() as env:
        trajectory = rollout(env, real_agent(served, retries=1), "train-0", on_step=kill_after_two_actions)
    assert trajectory.outcome == "error" and len(trajectory.steps) == 2
    assert trajectory.error is not None and trajectory.error.kind == "ModelError"
    assert "no server answers" in trajectory.error.message
