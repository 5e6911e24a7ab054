"""The scripted back-office agent: what it reads from texts, and that it is repeatable and plays on."""

from importlib.util import find_spec

import pytest

from worldloom.agents.backoffice import BackOfficeAgent
from worldloom.agents.backoffice_words import Facts, Function, Reading
from worldloom.agents.base import Start
from worldloom.envs.backoffice import BackOffice
from worldloom.rollout import rollout

needs_bfcl = pytest.mark.skipif(find_spec("bfcl_eval") is None, reason="needs bfcl-eval")
TEXT = (
    "You do back-office work. Functions:\nFiles: cat(file_name), cd(folder), find(path='.', name=None), "
    "mkdir(dir_name), post(content, tags=[], mentions=[])\nAct by one call: done().\nRequests, in order:\n"
)


def function(listed: str) -> Function:
    return Function.all_in(listed)[0]


def test_the_first_text_lists_functions() -> None:
    assert Function.all_in("A: ls(a=False), post(content, tags=[], mentions=[]), pwd()") == [
        Function("ls", ("a",), frozenset({"a"})),
        Function("post", ("content", "tags", "mentions"), frozenset({"tags", "mentions"})),
        Function("pwd", (), frozenset()),
    ]


@pytest.mark.parametrize(
    ("listed", "request_", "call"),
    [
        ("cat(file_name)", "Show me 'notes.txt', please.", "cat(file_name='notes.txt')"),
        ("mkdir(dir_name)", "Make a folder 'new'.", "mkdir(dir_name='new')"),
        (
            "post_tweet(content, tags=[], mentions=[])",
            "Tweet 'It's done, all of it!' with #Done and tag @boss",
            "post_tweet(content=\"It's done, all of it!\", tags=['#Done'], mentions=['@boss'])",
        ),
        (
            "get_flight_cost(travel_from, travel_to, travel_date, travel_class)",
            "Fly from LAX to JFK in business class on November 5th, 2026",
            "get_flight_cost(travel_from='LAX', travel_to='JFK', travel_date='2026-11-05', travel_class='business')",
        ),
        (
            "set_budget_limit(access_token, budget_limit)",
            "Limit $1,500, access token 'abc1'",
            "set_budget_limit(access_token='abc1', budget_limit=1500.0)",
        ),
        ("cancel_order(order_id)", "Cancel it", None),
    ],
)
def test_arguments_come_from_the_request(listed: str, request_: str, call: str | None) -> None:
    assert Reading(request_, [], Facts()).call(function(listed)) == call


def test_arguments_come_from_answers_too() -> None:
    facts = Facts()
    facts.hear('{"order_id": 17, "price": 2.5}')
    facts.hear("no JSON")
    assert Reading("Cancel it", [], facts).call(function("cancel_order(order_id)")) == "cancel_order(order_id=17)"


def test_it_goes_to_the_file_first_and_then_to_the_next_request() -> None:
    agent = BackOfficeAgent(skill=1, invalid=0)
    requests = "1. Show the contents of 'a.txt'.\n2. Create the directory folder 'new'."
    agent.begin(Start("t", TEXT + requests, requests, 0))
    assert agent.act(TEXT).action == "find(path='.')"
    assert agent.act('{"matches": ["./x", "./x/y", "./x/y/a.txt"]}').action == "cd(folder='x')"
    assert agent.act('{"current_working_directory": "x"}').action == "cd(folder='y')"
    assert agent.act('{"current_working_directory": "y"}').action == "cat(file_name='a.txt')"
    actions = []
    while not actions or actions[-1] != "done()":
        actions.append(agent.act('{"file_content": "hello"}').action)
    assert "mkdir(dir_name='new')" in actions


def test_it_does_first_what_an_error_asks_for() -> None:
    agent = BackOfficeAgent(skill=1, invalid=0)
    text = "Functions:\nCar: startEngine(ignitionMode), pressBrakePedal(pedalPosition)\nAct by one call"
    agent.begin(Start("t", text, "1. Start the engine.", 0))
    said = [agent.act("").action]
    while not said[-1].startswith("startEngine"):
        said.append(agent.act("{}").action)
    refused = '{"error": "Brake pedal needs to be pressed when starting the engine."}'
    assert agent.act(refused).action == "pressBrakePedal(pedalPosition=1.0)"
    assert agent.act("{}").action == "startEngine(ignitionMode='START')"


def test_randomness_depends_on_task_agent_and_seed_only() -> None:
    def actions(task: str, seed: int) -> list[str]:
        agent = BackOfficeAgent(skill=0.3)
        agent.begin(Start(task, TEXT + "1. Show 'a.txt'.", "1. Show 'a.txt'.", seed))
        return [agent.act("None").action for _ in range(30)]

    assert actions("a", 1) == actions("a", 1)
    assert len({tuple(actions(task, seed)) for task in "ab" for seed in (1, 2)}) == 4


@needs_bfcl
def test_it_plays_every_kind_of_task_and_lack_of_skill_errs_more() -> None:
    with BackOffice() as env:
        tasks = [f"base/{number}" for number in range(0, 200, 10)]
        plays = {skill: [rollout(env, BackOfficeAgent(skill), task) for task in tasks] for skill in (0.0, 1.0)}
    assert not any(play.error for found in plays.values() for play in found)
    share = {}
    for skill, found in plays.items():
        said = [step.observation for play in found for step in play.steps]
        share[skill] = sum("error" in text.lower()[:20] for text in said) / len(said)
    assert share[1.0] < share[0.0] < 0.8
    assert sum(play.outcome == "success" for play in plays[1.0]) >= 1
