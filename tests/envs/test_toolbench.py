"""ToolBench: answers by the record, matching, the end, what is not recorded, splits, and ToolBench's own files."""

import gzip
import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import worldloom.envs
from worldloom.agents.gold import GoldFollower, Replay
from worldloom.collect import summarize
from worldloom.envs import EnvSpec, toolbench_pack
from worldloom.envs.check import check_env
from worldloom.envs.toolbench import NOT_JSON, NOT_RECORDED, ToolBench
from worldloom.envs.toolbench_call import parse_call
from worldloom.envs.toolbench_record import Query, Run, record
from worldloom.errors import ConfigError, DataError, EnvError, MissingDependency
from worldloom.rollout import rollout
from worldloom.trajectory import Trajectory

CITY = "Which city has the id 7? And which one is the capital?"
CITY_ID = "cbc7a2b8c5"  # printf '%s' "$CITY" | sha256sum | cut -c1-10
PERU, CHILE = "Name the capital of Peru.", "Name the capital of Chile."
ULM = '{"error": "", "response": "{\'city\': \'Ulm\'}"}'
BONN = '{"error": "", "response": "{\'city\': \'Bonn\'}"}'
SHUT = '{"error": "Unauthorized error...", "response": "{\'statusCode\': 401}"}'
DONE = '{"response":"successfully giving the final answer."}'
GONE = '{"response":"chose to give up and restart"}'
FUNCTIONS = [
    {
        "name": "get_city_for_geo",
        "description": 'This is the subfunction for tool "geo", you can use this tool.The description of this function '
        'is: "One city,\nby its id"',
        "parameters": {
            "type": "object",
            "properties": {
                "id": {"type": "integer", "description": "of the city", "example_value": "1"},
                "lang": {"type": "string", "description": "", "enum": ["de", "en"]},
            },
            "required": ["id"],
            "optional": ["lang"],
        },
    },
    {
        "name": "capital_for_geo",
        "description": 'This is the subfunction for tool "geo", you can use this tool.',
        "parameters": {"type": "object", "properties": {}, "required": [], "optional": []},
    },
    {
        "name": "Finish",
        "description": "End the task",
        "parameters": {
            "type": "object",
            "properties": {"return_type": {"type": "string", "enum": ["give_answer", "give_up_and_restart"]}},
            "required": ["return_type"],
        },
    },
]
TEXT = """Functions:
- get_city_for_geo: One city, by its id
    id: integer, required, for example "1". of the city
    lang: string, optional, one of "de" or "en"
- capital_for_geo"""
FORMAT = 'An action is one call, as JSON: {"name": FUNCTION, "arguments": {PARAMETER: VALUE, ...}}'


def step(action: str, said: str, observation: str, code: int = 0) -> dict[str, Any]:
    return {"thought": None, "action": action, "input": said, "observation": observation, "code": code}


def row(query: str, win: bool, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"query": query, "functions": FUNCTIONS, "win": win, "steps": steps}


ANSWER = step("Finish", '{"return_type": "give_answer", "final_answer": "Ulm"}', DONE, 3)
GIVE_UP = step("Finish", '{"return_type": "give_up_and_restart"}', GONE, 4)
ROWS = [
    row(
        CITY,
        True,
        step("get_city_for_geo", '{"id": 7, "lang": "de"}', ULM),
        step("capital_for_geo", "{}", BONN),
        ANSWER,
    ),
    # ToolBench lets a function answer whose name ends in what was said.
    row(
        CITY,
        False,
        step("city_for_geo", '{\n "lang": "de",\n "id": 7.0\n}', SHUT, 7),
        step("get_city_for_geo", '{"id": 7, "lang": "de"}', BONN),
        step("town_for_geo", '{"id": 7}', '{"error": "No such function name: town_for_geo", "response": ""}', 1),
        step("capital_for_geo", '{"id": ', NOT_JSON),
        GIVE_UP,
    ),
    row(PERU, False, step("capital_for_geo", "", SHUT, 7)),
    row(CHILE, True, ANSWER),
]


def call(name: str, **arguments: Any) -> str:
    return json.dumps({"name": name, "arguments": arguments})


CITY_7 = call("get_city_for_geo", id=7, lang="de")
CAPITAL = call("capital_for_geo")
FINISH = call("Finish", return_type="give_answer", final_answer="Ulm")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = "".join(json.dumps(made) + "\n" for made in ROWS)
    (tmp_path / "toolbench_runs.jsonl").write_text(lines, encoding="utf-8")
    return tmp_path


@pytest.fixture
def env(folder: Path) -> Iterator[ToolBench]:
    with ToolBench(str(folder)) as made:
        yield made


TASK = f"sessions/{CITY_ID}"


def said(env: ToolBench, *actions: str) -> list[str]:
    return [env.step(action).observation for action in actions]


class TestSessions:
    def test_beginning(self, env: ToolBench) -> None:
        first = env.reset(TASK)
        finish = (
            '- Finish: End the task\n    return_type: string, required, one of "give_answer" or "give_up_and_restart"'
        )
        assert first.text == f"Task: {CITY}\n\n{TEXT}\n{finish}\n\n{FORMAT}"
        assert (first.instruction, first.initial_context) == (CITY, None)
        assert first.gold_actions == (CITY_7, CAPITAL, FINISH)

    def test_the_run_of_the_seed_answers_first_then_the_others(self, env: ToolBench) -> None:
        env.reset(TASK, seed=0)
        assert said(env, CITY_7, CITY_7, CITY_7, CITY_7) == [ULM, SHUT, BONN, BONN]
        env.reset(TASK, seed=1)
        assert said(env, CITY_7, CITY_7, CITY_7, CITY_7) == [SHUT, BONN, ULM, ULM]
        env.reset(TASK, seed=2)  # two runs, so this is the first again
        assert said(env, CITY_7) == [ULM]

    @pytest.mark.parametrize(
        ("action", "answered"),
        [
            ('{"arguments":{"lang":"de","id":7},"name":"get_city_for_geo"}', True),
            ('  {"name": "get_city_for_geo", "arguments": {"id": 7.0, "lang": "de"}}\n', True),
            ('{"name": "get_city_for_geo", "arguments": {"id": 0.7e1, "lang": "de"}}', True),
            ('{"name": "get_city_for_geo", "arguments": "{\\"id\\": 7, \\"lang\\": \\"de\\"}"}', True),
            ('{"name": "capital_for_geo"}', True),
            ('{"name": "capital_for_geo", "arguments": ""}', True),
            ('{"name": "get_city_for_geo", "arguments": {"id": "7", "lang": "de"}}', False),
            ('{"name": "get_city_for_geo", "arguments": {"id": 7.5, "lang": "de"}}', False),
            ('{"name": "get_city_for_geo", "arguments": {"id": 7}}', False),
            ('{"name": "capital_for_geo", "arguments": {"id": true}}', False),
        ],
    )
    def test_matching(self, env: ToolBench, action: str, answered: bool) -> None:
        env.reset(TASK)
        result = env.step(action)
        assert (result.observation in (ULM, BONN)) is answered
        assert (result.observation == NOT_RECORDED) is not answered
        assert result.info == ({"terminal": None} if answered else {"terminal": None, "not_recorded": True})
        assert (result.reward, result.terminated, result.truncated) == (0.0, False, False)

    @pytest.mark.parametrize(
        ("action", "answer"),
        [
            (call("city_for_geo", id=7), '{"error": "No such function name: city_for_geo", "response": ""}'),
            (call("Stadt ü"), '{"error": "No such function name: Stadt \\u00fc", "response": ""}'),
            ('{"name": "capital_for_geo", "arguments": "{\\"id\\": "}', NOT_JSON),
            ('{"name": "capital_for_geo", "arguments": [7]}', NOT_JSON),
            ('{"name": 7}', NOT_JSON),
            ('["capital_for_geo"]', NOT_JSON),
            ("capital_for_geo", NOT_JSON),
            ("[" * 10_000, NOT_JSON),
            ('{"name": "capital_for_geo", "arguments": {"id": ' + "9" * 5_000 + "}}", NOT_JSON),
            ("", NOT_JSON),
            (call("Finish"), '{error:"must have "return_type""}'),
            (call("Finish", return_type="give_answer"), '{error:"must have "final_answer""}'),
            (call("Finish", return_type="stop"), '{error:""return_type" is not a valid choice"}'),
        ],
    )
    def test_what_reaches_no_api_is_refused_as_toolbench_does(self, env: ToolBench, action: str, answer: str) -> None:
        env.reset(TASK)
        result = env.step(action)
        assert (result.observation, result.terminated, result.info) == (answer, False, {"terminal": None})

    def test_a_finish_that_is_no_json_counts_as_toolbench_reads_it(self, env: ToolBench) -> None:
        env.reset(TASK)
        text = '{"return_type": "give_up_and_restart", "final_answer": "it said "no""}'
        result = env.step(json.dumps({"name": "Finish", "arguments": text}))
        assert (result.observation, result.info["terminal"]) == (GONE, "failure")

    @pytest.mark.parametrize(
        ("seed", "actions", "terminal", "reward"),
        [
            (0, [CITY_7, CAPITAL, FINISH], "success", 1.0),
            (0, [CAPITAL, "nonsense", CITY_7, FINISH], "success", 1.0),
            (0, [CITY_7, FINISH], None, None),  # no recorded winner knew so little
            (1, [CITY_7, CAPITAL, FINISH], None, None),  # an error was answered, so the city was not learnt
            (1, [CITY_7, CITY_7, CAPITAL, FINISH], "success", 1.0),
            (0, [CITY_7, CAPITAL, call("Finish", return_type="give_up_and_restart")], "failure", 0.0),
        ],
    )
    def test_end(self, env: ToolBench, seed: int, actions: list[str], terminal: str | None, reward: float) -> None:
        env.reset(TASK, seed)
        results = [env.step(action) for action in actions]
        assert [result.terminated for result in results] == [False] * (len(actions) - 1) + [True]
        assert (results[-1].info, results[-1].reward) == ({"terminal": terminal}, reward)
        with pytest.raises(EnvError, match="call reset"):
            env.step(CITY_7)

    def test_nobody_won(self, env: ToolBench) -> None:
        [task] = [f"sessions/{query.id}" for query in env.queries.values() if query.text == PERU]
        assert env.reset(task).gold_actions is None
        assert env.step(CAPITAL).observation == SHUT
        assert env.step(FINISH).info == {"terminal": None}

    def test_the_plan_can_be_what_was_recorded_whatever_came_of_it(self, folder: Path) -> None:
        with ToolBench(str(folder), plan="recorded") as env:
            for seed in (0, 1):
                assert env.reset(TASK, seed).gold_actions == env.recorded_actions(TASK, seed)
            [task] = [f"sessions/{query.id}" for query in env.queries.values() if query.text == PERU]
            assert env.reset(task).gold_actions == env.recorded_actions(task)

    def test_a_winner_who_learnt_nothing_makes_any_answer_a_success(self, env: ToolBench) -> None:
        [task] = [f"sessions/{query.id}" for query in env.queries.values() if query.text == CHILE]
        env.reset(task)
        assert env.step(FINISH).info == {"terminal": "success"}

    def test_what_is_not_recorded_is_marked_in_the_trajectory_and_counted(self, env: ToolBench) -> None:
        played = rollout(env, Replay([CITY_7, call("get_city_for_geo", id=8), FINISH]), TASK, max_steps=3)
        again = Trajectory.from_json(played.to_json())
        assert [step.not_recorded for step in again.steps] == [None, True, None]
        assert '"not_recorded": null' not in played.to_json()
        assert summarize([again, again])["not_recorded"] == 2
        assert "not_recorded" not in summarize([rollout(env, GoldFollower(), TASK)])

    def test_long_answers_are_cut_as_toolbench_cuts_them(self, folder: Path) -> None:
        env = ToolBench(str(folder), max_chars=20)
        env.reset(TASK)
        assert said(env, CITY_7, call("x" * 40)) == ['{"error": "", "respo...', '{"error": "No such f...']
        assert env.step("x").observation == NOT_JSON[:20] + "..."
        wide = ToolBench(str(folder), max_chars=len(ULM) - len("..."))  # cutting it would save nothing
        wide.reset(TASK)
        assert said(wide, CITY_7) == [ULM]

    def test_recorded_actions(self, env: ToolBench) -> None:
        assert env.recorded_actions(TASK, 1) == (
            call("get_city_for_geo", lang="de", id=7),
            CITY_7,
            call("town_for_geo", id=7),
            '{"name": "capital_for_geo", "arguments": "{\\"id\\": "}',
            call("Finish", return_type="give_up_and_restart"),
        )
        played = rollout(env, Replay(env.recorded_actions(TASK, 1)), TASK, seed=1)
        assert [step.observation for step in played.steps] == [step["observation"] for step in ROWS[1]["steps"]]
        assert played.outcome == "failure"


class TestCalls:
    def test_one_call_is_a_task(self, folder: Path) -> None:
        env = ToolBench(str(folder), kind="calls")
        task, other = [task for task in env.task_ids("train") if CITY_ID in task]
        first = env.reset(task)
        assert first.text == "\n".join(TEXT.splitlines()[:-1]) + f"\n\n{FORMAT}"
        assert (first.instruction, first.gold_actions) == (CITY, (CITY_7,))
        assert env.step(CITY_7) == (ULM, None, True, False, {"terminal": None})
        with pytest.raises(EnvError, match="call reset"):
            env.step(CITY_7)
        assert env.reset(other).text == f"Functions:\n- capital_for_geo\n\n{FORMAT}"
        assert env.step(call("capital_for_geo", id=1)).info == {"terminal": None, "not_recorded": True}

    def test_only_the_documented_function_is_there(self, folder: Path) -> None:
        env = ToolBench(str(folder), kind="calls")
        env.reset(next(task for task in env.task_ids("train") if CITY_ID in task))
        assert env.step(CAPITAL).observation == '{"error": "No such function name: capital_for_geo", "response": ""}'

    def test_seed(self, folder: Path) -> None:
        env = ToolBench(str(folder), kind="calls")
        task = next(task for task in env.task_ids("train") if CITY_ID in task)
        env.reset(task, seed=1)
        assert env.step(CITY_7).observation == SHUT


class TestRecord:
    def test_parse_call_keeps_what_is_said(self) -> None:
        made = parse_call('{"name": "f", "arguments": {"a": "1", "b": 1.0, "c": "é\nx"}}')
        assert made is not None
        assert (made.name, made.arguments) == ("f", {"a": "1", "b": 1, "c": "é\nx"})
        assert made.text == '{"name": "f", "arguments": {"a": "1", "b": 1, "c": "é\\nx"}}'

    def test_split_depends_on_the_text_alone(self) -> None:
        # printf '%s' TEXT | sha256sum, its first ten digits modulo ten
        splits = {PERU: "test", CITY: "train", "Tell me a joke": "valid"}
        assert {text: Query(text, (), (Run(False, ()),)).split for text in splits} == splits

    def test_missing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TOOLBENCH_DATA", str(tmp_path))
        with pytest.raises(MissingDependency, match=r"TOOLBENCH_DATA.*python -m worldloom\.envs\.toolbench_pack"):
            ToolBench()

    def test_default_folder(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TOOLBENCH_DATA", str(folder))
        assert ToolBench().task_ids("train") == ToolBench(str(folder)).task_ids("train")

    @pytest.mark.parametrize("line", ["{", "[]", '{"query": "x"}', json.dumps(ROWS[0] | {"steps": [{"action": 1}]})])
    def test_a_bad_line_is_named(self, folder: Path, line: str) -> None:
        with (folder / "toolbench_runs.jsonl").open("a") as file:
            file.write(line + "\n")
        with pytest.raises(DataError, match=rf"toolbench_runs.jsonl:{len(ROWS) + 1}: is no recorded run"):
            ToolBench(str(folder))

    def test_a_broken_file_is_named(self, folder: Path) -> None:
        whole = gzip.compress(b"{}" * 1000)
        (folder / "toolbench_runs.jsonl.gz").write_bytes(whole[:-9])
        with pytest.raises(DataError, match=r"toolbench_runs.jsonl.gz: cannot be read"):
            ToolBench(str(folder))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"kind": "call"}, "did you mean 'calls'"),
            ({"plan": "win"}, "did you mean 'won'"),
            ({"max_chars": 0}, "at least 1"),
            ({"kinds": "calls"}, "kinds"),
        ],
    )
    def test_wrong_options(self, folder: Path, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            worldloom.envs.make("toolbench", data=str(folder), **options)

    @pytest.mark.parametrize("task", ["", TASK + "/x", f"calls/{CITY_ID}", CITY_ID, "sessions/0000000000"])
    def test_unknown_task(self, env: ToolBench, task: str) -> None:
        with pytest.raises(EnvError, match="has no task"):
            env.reset(task)

    def test_options_build_the_same_environment(self, folder: Path) -> None:
        env = ToolBench(str(folder), kind="calls", max_chars=99)
        assert ToolBench(str(folder), **env.options).options == {"kind": "calls", "plan": "won", "max_chars": 99}

    def test_close_twice(self, env: ToolBench) -> None:
        env.reset(TASK)
        env.close()
        env.close()
        with pytest.raises(EnvError, match="call reset"):
            env.step(CITY_7)


def node(kind: str, description: str, *children: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"node_type": kind, "description": description, "children": list(children), **more}


def nodes(made: dict[str, Any], *then: dict[str, Any]) -> dict[str, Any]:
    """A recorded step as ToolBench's tree has it: a thought, the name, the input with the observation."""
    seen = {"observation": made["observation"], "observation_code": made["code"]}
    return node("Thought", "hm", node("Action", made["action"], node("Action Input", made["input"], *then, **seen)))


class TestPack:
    def test_chains_and_trees_as_toolbench_writes_them(self, tmp_path: Path) -> None:
        about = {"query": CITY, "function": FUNCTIONS, "final_answer": "", "train_messages": []}
        chain = [
            flat
            for made in ROWS[1]["steps"]
            for flat in (
                node("Action", made["action"]),
                node("Action Input", made["input"], observation=made["observation"], observation_code=made["code"]),
            )
        ]
        first, second, last = ROWS[0]["steps"]
        tree = node("Action Input", "", nodes(first, nodes(second, nodes(last)), nodes(GIVE_UP)))
        folder = tmp_path / "answer" / "G1_answer"
        folder.mkdir(parents=True)
        files = {
            "a": {"win": False, "trys": [{"chain": chain}], "answer_generation": about},
            "b": {"win": True, "tree": {"tree": tree}, "answer_generation": about},
            "c": {"something": "else"},
        }
        for name, content in files.items():
            (folder / f"{name}.json").write_text(json.dumps(content))
        out = tmp_path / "packed" / "toolbench_runs.jsonl.gz"
        assert toolbench_pack.main([str(tmp_path / "answer"), str(out)]) == f"{out}: 3 runs; 1 files passed over"
        [query] = record(str(out.parent)).values()
        [own] = record(str(self._folder(tmp_path / "own", ROWS[1], ROWS[0]))).values()
        assert query.runs[:2] == own.runs
        assert query.runs[2].win is False
        assert [made.answer for made in query.runs[2].steps] == [ULM, GONE]

    def _folder(self, folder: Path, *rows: dict[str, Any]) -> Path:
        folder.mkdir()
        (folder / "toolbench_runs.jsonl").write_text("".join(json.dumps(made) + "\n" for made in rows))
        return folder

    def test_nothing_to_pack(self, tmp_path: Path) -> None:
        (tmp_path / "x.json").write_text("[]")
        with pytest.raises(DataError, match="none of 1 JSON files"):
            toolbench_pack.pack(tmp_path, tmp_path / "out.jsonl.gz")
        assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


@pytest.mark.engine
class TestOnTheRealRecord:
    """800 runs of 200 queries, recorded from live APIs in 2023."""

    def test_every_run_replays_word_for_word(self, toolbench_data: Path) -> None:
        steps = 0
        with ToolBench(str(toolbench_data)) as env:
            for query in env.queries.values():
                for seed, run in enumerate(query.runs):
                    task = f"sessions/{query.id}"
                    agent = Replay(env.recorded_actions(task, seed))
                    played = rollout(env, agent, task, seed=seed, max_steps=len(run.steps))
                    assert [step.observation for step in played.steps] == [step.answer for step in run.steps]
                    assert (played.outcome == "success") is run.win
                    assert not any(step.not_recorded for step in played.steps)
                    steps += len(run.steps)
        assert steps == 4322

    def test_splits(self, toolbench_data: Path) -> None:
        sessions, calls = ToolBench(str(toolbench_data)), ToolBench(str(toolbench_data), kind="calls")
        assert [len(sessions.task_ids(split)) for split in sessions.splits] == [143, 18, 39]
        assert [len(calls.task_ids(split)) for split in calls.splits] == [730, 86, 187]
        for env in (sessions, calls):
            queries = [{task.split("/")[1] for task in env.task_ids(split)} for split in env.splits]
            assert all(not one & other for one, other in combinations(queries, 2))
        texts = [
            {query.text.strip().lower() for query in sessions.queries.values() if query.split == split}
            for split in sessions.splits
        ]
        assert all(not one & other for one, other in combinations(texts, 2))

    def test_every_recorded_call_is_answered(self, toolbench_data: Path) -> None:
        with ToolBench(str(toolbench_data), kind="calls") as env:
            for split in env.splits:
                for task in env.task_ids(split):
                    played = rollout(env, GoldFollower(), task)
                    assert (len(played.steps), played.steps[0].not_recorded) == (1, None)

    def test_every_gold_plan_wins_whatever_the_seed(self, toolbench_data: Path) -> None:
        with ToolBench(str(toolbench_data)) as env:
            tasks = [task for split in env.splits for task in env.task_ids(split)]
            won = [rollout(env, GoldFollower(), task, seed=s).outcome for task in tasks for s in range(4)
                   if env.reset(task).gold_actions]  # fmt: skip
        assert won == ["success"] * 548

    @pytest.mark.parametrize("kind", ["sessions", "calls"])
    def test_contract(self, toolbench_data: Path, kind: str) -> None:
        report = check_env(EnvSpec("toolbench", {"data": str(toolbench_data), "kind": kind}), processes=1)
        assert report.ok, str(report)
