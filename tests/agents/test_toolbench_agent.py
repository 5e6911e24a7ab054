"""The scripted ToolBench agent: reads documents, fills parameters, learns from answers, and is repeatable."""

import json
from pathlib import Path
from typing import Any

import pytest

from worldloom.agents.base import Start
from worldloom.agents.toolbench import Function, Heard, Parameter, ToolBenchAgent, functions_in
from worldloom.envs.toolbench import ToolBench
from worldloom.envs.toolbench_call import parse_call
from worldloom.rollout import rollout

QUERY = (
    "I want to track the package AB123456789. Which carrier brings it to Paris? "
    "Read chapter 40, verse 31 on https://example.org/book too."
)
TEXT = f"""Task: {QUERY}

Functions:
- list_moons_for_space: All moons of a planet
- track_package_for_parcels: Track a package: carrier and status
    number: string, required, for example "XX1". Tracking number, for example of a letter
    lang: string, optional, one of "en" or "fr"
- carrier_for_parcels
    carrier_code: string, required, for example "dhl"
- verse_for_book
    chapter: integer, required
    verse: integer, required, for example 1
- Finish: End the task
    return_type: string, required, one of "give_answer" or "give_up_and_restart"
"""
FINE = '{"error": "", "response": "%s"}'
ERROR = '{"error": "Unauthorized error...", "response": ""}'


def started(skill: float = 1.0, invalid: float = 0.25, seed: int = 0, text: str = TEXT) -> ToolBenchAgent:
    agent = ToolBenchAgent(skill, invalid)
    agent.begin(Start("t", text, QUERY, seed))
    return agent


def said(agent: ToolBenchAgent, observation: str) -> tuple[str, dict[str, Any]]:
    call = json.loads(agent.act(observation).action)
    return call["name"], call["arguments"]


def test_documents_are_read() -> None:
    assert functions_in(TEXT) == [
        Function("list_moons_for_space", "All moons of a planet", ()),
        Function(
            "track_package_for_parcels",
            "Track a package: carrier and status",
            (Parameter("number", "string", True, (), "XX1"), Parameter("lang", "string", False, ("en", "fr"), None)),
        ),
        Function("carrier_for_parcels", "", (Parameter("carrier_code", "string", True, (), "dhl"),)),
        Function(
            "verse_for_book", "", (Parameter("chapter", "integer", True), Parameter("verse", "integer", True, (), 1))
        ),
    ]


@pytest.mark.parametrize(
    ("parameter", "first"),
    [
        (Parameter("chapter", "integer", True), 40),
        (Parameter("verse", "integer", True, (), 1), 31),
        (Parameter("url", "string", True, (), "https://x.y"), "https://example.org/book"),
        (Parameter("city", "string", True, (), "Rome"), "AB123456789"),
        (Parameter("color", "string", True, (), "red"), "red"),
        (Parameter("size", "string", True, ("s", "m"), "m"), "s"),
        (Parameter("carrier_code", "string", True, (), "dhl"), "ups"),
        (Parameter("is_id", "string", True), 17),
    ],
)
def test_values(parameter: Parameter, first: Any) -> None:
    heard = Heard(QUERY)
    heard.hear(FINE % "{'name': 'UPS', 'code': 'ups', 'id': 17}")
    assert heard.candidates(parameter)[0] == first


def test_there_is_always_a_value() -> None:
    assert Heard("").candidates(Parameter("x", "string", True)) == ["example"]
    assert Heard("").candidates(Parameter("x", "integer", True)) == [1]


def test_what_fits_best_comes_first_and_answers_are_used() -> None:
    agent = started()
    assert said(agent, TEXT) == ("track_package_for_parcels", {"number": "AB123456789"})
    assert said(agent, FINE % "{'carrier': {'code': 'ups'}}") == ("verse_for_book", {"chapter": 40, "verse": 31})
    assert said(agent, FINE % "{}") == ("carrier_for_parcels", {"carrier_code": "ups"})


def test_an_error_is_tried_again_with_other_values_and_the_unrecorded_is_left() -> None:
    agent = started()
    assert said(agent, TEXT) == ("track_package_for_parcels", {"number": "AB123456789"})
    tried = [said(agent, ERROR) for _ in range(12)]
    numbers = [arguments["number"] for name, arguments in tried if name == "track_package_for_parcels"]
    assert numbers == ["Paris", "XX1"]
    assert tried[-1] == ("Finish", {"return_type": "give_up_and_restart"})
    agent = started()
    names = [said(agent, "[NOT RECORDED] Nobody asked.")[0] for _ in range(5)]
    assert names == [*(f.name for f in agent.functions), "Finish"]


def test_the_answer_is_made_of_what_was_heard() -> None:
    agent = started(text="- moons_for_space: All moons")
    assert said(agent, "") == ("moons_for_space", {})
    name, arguments = said(agent, FINE % "['Io', 'Europa']")
    assert (name, arguments["return_type"]) == ("Finish", "give_answer")
    assert "['Io', 'Europa']" in arguments["final_answer"]


def test_invalid_actions_are_of_many_kinds() -> None:
    agent = started(skill=0, invalid=1)
    names = {f.name for f in agent.functions}
    calls = [parse_call(agent.act(ERROR).action) for _ in range(300)]
    assert any(call is None for call in calls)
    assert any(call and call.name not in {*names, "Finish"} for call in calls)
    assert any(call and call.name == "Finish" and "return_type" not in call.arguments for call in calls)
    assert any(call and call.name == "verse_for_book" and "chapter" not in call.arguments for call in calls)
    assert any(call and isinstance(call.arguments, str) for call in calls)


@pytest.mark.parametrize("text", ["", "A dark room.", "- \n    x", "- f\n    p: string, required, for example {oops"])
def test_any_text_is_acted_on(text: str) -> None:
    for skill in (0.0, 1.0):
        agent = started(skill=skill, text=text)
        assert all(agent.act(text).action for _ in range(50))


def test_actions_depend_on_task_agent_and_seed_only() -> None:
    def actions(skill: float, seed: int) -> list[str]:
        agent = started(skill, seed=seed)
        return [agent.act(ERROR).action for _ in range(20)]

    assert actions(0, 1) == actions(0, 1)
    assert len({tuple(actions(0, seed)) for seed in range(4)}) == 4
    assert actions(1, 1) == actions(1, 2)  # with full skill there is no chance in it


@pytest.mark.engine
def test_skill_helps_on_the_real_record(toolbench_data: Path) -> None:
    won: dict[float, int] = {}
    with ToolBench(str(toolbench_data)) as env:
        for skill in (0.0, 1.0):
            played = [rollout(env, ToolBenchAgent(skill), task) for task in env.task_ids("train")]
            assert not any(trajectory.error for trajectory in played)
            won[skill] = sum(trajectory.outcome == "success" for trajectory in played)
    assert 0 < won[0.0] < won[1.0]
