"""The back office: BFCL's answers and judgement, what a call may be, determinism, odd actions, and clear errors."""

import importlib.metadata
import importlib.util
import json
import time
from typing import Any

import pytest

import worldloom.envs
from worldloom.envs import EnvSpec
from worldloom.envs.backoffice import CLOSED, BackOffice, _tasks, is_error
from worldloom.envs.backoffice_apis import MALFORMED, SOURCES, Call, Office, api_class, version
from worldloom.envs.check import check_env
from worldloom.errors import ConfigError, EnvError, MissingDependency

needs_bfcl = pytest.mark.skipif(
    importlib.util.find_spec("bfcl_eval") is None or importlib.util.find_spec("mpmath") is None,
    reason="needs bfcl-eval: see docs/environments/backoffice.md",
)


@pytest.mark.parametrize(
    ("action", "read"),
    [
        ("done()", Call("done", [], {})),
        (" mv(source='a', destination='b') ", Call("mv", [], {"source": "a", "destination": "b"})),
        ("mean([1, -2.5, 3])", Call("mean", [[1, -2.5, 3]], {})),
        ("lockDoors(True, door=['driver'])", Call("lockDoors", [True], {"door": ["driver"]})),
        ("cd(folder=name)", None),
        ("cd(folder=__import__('os').name)", None),
        ("cd(folder='a' + str(1))", None),
        ("cd(*['a'])", None),
        ("cd(**{'folder': 'a'})", None),
        ("self.cd('a')", None),
        ("cd('a'); cd('b')", None),
        ("cd", None),
        ("cd('a'", None),
        ("", None),
        ("cd('\0')", None),
        ("cd(" + "[" * 3_000 + "]" * 3_000 + ")", None),
        ("power(2, " + "-" * 9_000 + "1)", None),
        ("cd('" + "a" * 10_000 + "')", None),
    ],
)
def test_an_action_is_one_call_with_literals(action: str, read: Call | None) -> None:
    assert Call.parse(action) == read


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("worldloom.envs.base.version", absent)
    with pytest.raises(MissingDependency, match=r"pip install --no-deps bfcl-eval==2026\.3\.23"):
        worldloom.envs.make("backoffice")


@needs_bfcl
class TestTasks:
    def test_a_split_has_its_own_worlds(self) -> None:
        env = BackOffice()
        train, test = env.task_ids("train"), env.task_ids("test")
        assert (len(train), len(test)) == (336, 64)
        numbers = [{name.partition("/")[2] for name in names} for names in (train, test)]
        assert not numbers[0] & numbers[1]
        # Two pairs of BFCL's 200 tasks share an initial state.
        worlds: dict[str, set[str]] = {}
        for task_id, row in _tasks().items():
            if task_id.startswith("base/"):
                state = {name: row["initial_config"].get(name) for name in row["involved_classes"]}
                worlds.setdefault(json.dumps(state, sort_keys=True), set()).add(row["split"])
        assert len(worlds) == 198
        assert all(len(splits) == 1 for splits in worlds.values())
        with pytest.raises(ConfigError, match="did you mean 'train'"):
            env.task_ids("trian")

    @pytest.mark.parametrize("task", ["base/200", "base/", "miss_func/1", "long_context/1", ""])
    def test_unknown_task(self, task: str) -> None:
        with pytest.raises(EnvError, match="has no task"):
            BackOffice().reset(task)

    def test_every_gold_plan_wins_and_few_win_by_doing_nothing(self) -> None:
        with BackOffice() as env:
            ended = {"gold": 0, "nothing": 0}
            for task in (*env.task_ids("train"), *env.task_ids("test")):
                for action in env.reset(task).gold_actions or ():
                    result = env.step(action)
                ended["gold"] += result.info["terminal"] == "success"
                env.reset(task)
                ended["nothing"] += env.step("done()").info["terminal"] == "success"
        assert ended == {"gold": 400, "nothing": 22}

    def test_bfcls_own_executor_answers_alike(self) -> None:
        """Answers of all gold calls of ``base``, and the state that they leave, by BFCL's own code."""
        from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call

        for task_id, row in _tasks().items():
            if not task_id.startswith("base/"):
                continue
            office = Office(row["involved_classes"], row["initial_config"])
            calls = [call for turn in row["ground_truth"] for call in turn]
            ours = [office.call(parsed) for call in calls if (parsed := Call.parse(call))]
            theirs, apis = execute_multi_turn_func_call(
                calls, row["initial_config"], row["involved_classes"], "nobody", task_id
            )
            assert ours == theirs
            for name, api in apis.items():
                for key, value in vars(api).items():
                    if key[0] != "_" and key != "root":  # folders equal only folders of the same module
                        assert office.state()[name][key] == value


@needs_bfcl
class TestPlay:
    def test_files_as_bfcl_has_them(self) -> None:
        with BackOffice() as env:
            first = env.reset("base/0")
            assert "GorillaFileSystem: cat(file_name), cd(folder), diff(file_name1, file_name2)" in first.text
            assert "cp(source" not in first.text  # BFCL leaves it out in this task
            assert (first.instruction or "").startswith("1. Move 'final_report.pdf' within document directory")
            assert first.text.endswith(first.instruction or "")
            context = json.loads(first.initial_context or "")
            assert set(context["GorillaFileSystem"]["root"]["workspace"]["document"]) == {
                "final_report.pdf",
                "previous_report.pdf",
            }
            assert context["TwitterAPI"]["following_list"] == ["alice", "bob"]  # a default, not in the task's own state
            assert env.step("cd(folder='document')").observation == '{"current_working_directory": "document"}'
            assert env.step("mkdir('temp')").observation == "None"
            assert env.step("mv(source='x', destination='temp')").observation == (
                '{"error": "mv: cannot move \'x\': No such file or directory"}'
            )
            assert env.step("mv(source='final_report.pdf', destination='temp')").reward == 0.0
            env.step("mv(source='previous_report.pdf', destination='temp')")
            info = {"terminal": "success", "changed": False, "refused": False}
            assert env.step("done()") == (CLOSED, 1.0, True, False, info)
            with pytest.raises(EnvError, match="reset"):
                env.step("ls()")

    def test_another_state_fails(self) -> None:
        with BackOffice() as env:
            *plan, done = env.reset("base/0").gold_actions or ()
            for action in [*plan, "touch(file_name='more.txt')"]:
                env.step(action)
            info = {"terminal": "failure", "changed": False, "refused": False}
            assert env.step(done)[1:] == (0.0, True, False, info)

    def test_what_a_call_did(self) -> None:
        done = [
            ("ls()", False, False),
            ("cd(folder='document')", True, False),  # where one stands
            ("cd(folder='document')", False, True),
            ("pwd()", False, False),
            ("mkdir('temp')", True, False),
            ("mkdir('temp')", False, True),
            ("mv(source='x', destination='temp')", False, True),
            ("mv(source='final_report.pdf', destination='temp')", True, False),
            ("nope(1)", False, True),
            ("not a call", False, True),
        ]
        with BackOffice() as env:
            env.reset("base/0")
            infos = [(action, env.step(action).info) for action, _, _ in done]
        assert [(action, info["changed"], info["refused"]) for action, info in infos] == done

    @pytest.mark.parametrize(
        ("answer", "error"),
        [
            ("None", False),
            ("Error during execution: no", True),
            ('Error during execution: no "error" here', True),
            ('{"booking_status": false, "error": "Insufficient funds"}', True),
            ("[{'error': 'User not authenticated.'}]", True),
            ('{"error": null, "id": 3}', False),
            ('{"ticket": {"error": "red lamp"}}', False),
            ('the log says "error"', False),
        ],
    )
    def test_what_says_that_a_call_failed(self, answer: str, error: bool) -> None:
        assert is_error(answer) == error

    @pytest.mark.parametrize(
        ("action", "answer"),
        [
            ("", MALFORMED),
            ("go " * 3333, MALFORMED),
            ("prends la clé 🔑", MALFORMED),
            ("nope(1)", "Error during execution: name 'nope' is not defined"),
            ("_load_scenario({})", "Error during execution: name '_load_scenario' is not defined"),
            ("pwd(1)", "Error during execution: GorillaFileSystem.pwd() takes 1 positional argument but 2 were given"),
            ("done(1)", "Error during execution: name 'done' is not defined"),
            ("cat('\\ud800')", '{"error": "cat: \'\\ud800\': No such file or directory"}'),
            ("tail(5)", '{"error": "tail: 5: No such file or directory"}'),
        ],
    )
    def test_odd_actions_are_answered(self, action: str, answer: str) -> None:
        with BackOffice() as env:
            env.reset("base/0")
            assert env.step(action).observation == answer

    def test_contract(self) -> None:
        check_env(EnvSpec("backoffice"), ["base/0", "base/60", "miss_param/182"], processes=1)


def office(*classes: str, **config: Any) -> Office:
    return Office(classes, config)


def said(place: Office, action: str) -> str:
    call = Call.parse(action)
    assert call is not None
    return place.call(call)


@needs_bfcl
class TestDeterminism:
    def test_today_stands_still(self) -> None:
        """The traveller is of age on 2024-09-01, the day of BFCL's trading desk, from the birthday on."""
        desk = office("TravelAPI", TravelAPI={"user_first_name": "A", "user_last_name": "B"})
        check = "verify_traveler_information('A', 'B', '2006-09-{:02}', 'US1')"
        assert said(desk, check.format(1)) == '{"verification_status": true}'
        assert "at least 18" in said(desk, check.format(2))

    def test_the_package_keeps_its_own_clock(self) -> None:
        import datetime
        import importlib

        api_class("TravelAPI")
        assert importlib.import_module(f"{SOURCES}.travel_booking").datetime is datetime.datetime

    def test_a_printed_set_is_sorted(self) -> None:
        card = {"credit_card_list": {"c": {"balance": 9.0}}, "access_token": "t", "token_expires_in": 9}
        travel = office("TravelAPI", TravelAPI=card)
        assert "one of {'business', 'economy', 'first'}" in said(
            travel, "book_flight('t', 'c', '2026-01-01', 'SFO', 'LAX', 'third')"
        )
        tickets = office("TicketAPI", TicketAPI={"ticket_queue": [{"id": 1}]})
        assert said(tickets, "edit_ticket(1, {'zeta': 1, 'alpha': 2, 'mid': 3})") == (
            '{"error": "Invalid fields for update: alpha, mid, zeta"}'
        )

    def test_no_episode_leaves_anything_to_the_next(self) -> None:
        """BFCL's post_tweet keeps its default lists, so that a mention would turn up in every later tweet."""
        for _ in range(2):
            posts = office("TwitterAPI", TwitterAPI={"authenticated": True})
            assert json.loads(said(posts, "post_tweet('one')"))["mentions"] == []
            said(posts, "mention(0, ['@x'])")
            assert json.loads(said(posts, "get_tweet(0)"))["mentions"] == ["@x"]
            assert json.loads(said(posts, "post_tweet('two')"))["mentions"] == []

    def test_chance_is_the_scenarios(self) -> None:
        one, other = (office("VehicleControlAPI", VehicleControlAPI={"random_seed": seed}) for seed in (1, 2))
        speed = said(one, "get_current_speed()")
        assert speed != said(one, "get_current_speed()")
        assert speed != said(other, "get_current_speed()")
        assert speed == said(office("VehicleControlAPI", VehicleControlAPI={"random_seed": 1}), "get_current_speed()")


@needs_bfcl
class TestSums:
    @pytest.mark.parametrize(
        "action",
        [
            "power(10, 1000000000)",
            "power(exponent=1000000000, base=10)",
            "square_root(2, 1000000000)",
            "round_number(5, -1000000000)",
            "logarithm(2, 3, precision=1000000000)",
        ],
    )
    def test_a_sum_without_end_is_refused(self, action: str) -> None:
        started = time.perf_counter()
        assert said(office("MathAPI"), action) == (
            "Error during execution: exponent and precision and decimal_places are at most 1000 here"
        )
        assert time.perf_counter() - started < 5

    def test_an_ordinary_sum_is_not(self) -> None:
        assert said(office("MathAPI"), "power(2, 10)") == '{"result": 1024}'
        assert said(office("MathAPI"), "logarithm(8, 2, 20)").startswith("{'result': mpf('3.0")

    def test_precision_ends_with_the_call(self) -> None:
        import decimal

        import mpmath

        before = (mpmath.mp.dps, decimal.getcontext().prec)
        said(office("MathAPI"), "logarithm(8, 3, 50)")
        said(office("MathAPI"), "square_root(2, 50)")
        assert (mpmath.mp.dps, decimal.getcontext().prec) == before


@needs_bfcl
def test_a_folder_within_itself_harms_nothing() -> None:
    """Copying a folder into itself makes BFCL's file system endless."""
    files = [office("GorillaFileSystem") for _ in range(2)]
    for place in files:
        said(place, "mkdir('a')")
        said(place, "cp('a', 'a')")
        assert said(place, "du()") == "Error during execution: maximum recursion depth exceeded"
    assert not files[0].same_state(files[1])


@needs_bfcl
def test_version_options_and_closing_twice() -> None:
    env = BackOffice()
    assert env.version == version() == importlib.metadata.version("bfcl-eval")
    assert env.options == {}
    env.reset("base/1")
    env.close()
    env.close()
    with pytest.raises(EnvError, match="reset"):
        env.step("ls()")
