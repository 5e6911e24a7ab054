import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.envs.corridor import Corridor
from tests.killing import kill_when
from worldloom.agents import AgentSpec
from worldloom.agents.base import Agent, Decision, Start
from worldloom.collect import choose_tasks, collect, job_key, key, plan, summarize
from worldloom.envs import EnvSpec
from worldloom.errors import ConfigError
from worldloom.runs import read_json
from worldloom.trajectory import AgentRef, EnvRef, Failure, Step, TaskRef, Trajectory, read

ROOT = Path(__file__).parents[1]
CORRIDOR = EnvSpec("tests.envs.corridor:Corridor")


class Slow(Corridor):
    """The corridor with time to be killed in."""

    def step(self, action):
        time.sleep(0.03)
        return super().step(action)


class Wanderer(Agent):
    """Does one of the corridor's deeds at random."""

    name = "wanderer"

    def __init__(self, hurry: float = 0.5, note: str | None = None):
        self.hurry, self.note = hurry, note

    @property
    def params(self) -> dict[str, Any]:
        return {"hurry": self.hurry, "note": self.note}

    def begin(self, start: Start) -> None:
        self.random = self.rng(start)

    def act(self, observation: str) -> Decision:
        if self.random.random() < self.hurry:
            return Decision("go east")
        return Decision(self.random.choice(["take key", "unlock door", "look", "go west", "sing"]))


AGENTS = [AgentSpec("tests.test_collect:Wanderer", {"hurry": h}) for h in (0.2, 0.6)] + [
    AgentSpec("tests.envs.corridor:Walker")
]


def start_run(out: Path) -> subprocess.Popen[bytes]:
    code = (
        "import sys; from pathlib import Path; from tests.test_collect import AGENTS\n"
        "from worldloom.collect import collect; from worldloom.envs import EnvSpec\n"
        "collect(Path(sys.argv[1]), EnvSpec('tests.test_collect:Slow'), AGENTS, 'train', tasks=6, agents_per_task=2,\n"
        "        seed=3, max_steps=12, workers=2)"
    )
    return subprocess.Popen([sys.executable, "-c", code, out], cwd=ROOT, stderr=subprocess.DEVNULL)


def kill_at(process: subprocess.Popen[bytes], log: Path, lines: int) -> bytes:
    """Kill a run when its log has some lines; what was whole in it then."""
    kill_when(process, lambda: log.exists() and log.read_bytes().count(b"\n") >= lines)
    content = log.read_bytes()
    return content[: content.rfind(b"\n") + 1]


def test_two_kills_lose_nothing_and_end_as_an_undisturbed_run(tmp_path: Path) -> None:
    disturbed, undisturbed = tmp_path / "disturbed", tmp_path / "undisturbed"
    log = disturbed / "trajectories.jsonl"
    first = kill_at(start_run(disturbed), log, 2)
    with log.open("ab") as file:
        file.write(b'{"schema": "worldloom/1", "env": {"na')  # as a kill within a write would leave it
    second = kill_at(start_run(disturbed), log, 6)
    assert second.startswith(first)
    assert start_run(disturbed).wait(60) == 0
    assert log.read_bytes().startswith(second)
    assert start_run(undisturbed).wait(60) == 0
    whole = (undisturbed / "trajectories.jsonl").read_bytes().splitlines()
    assert len(whole) == 12
    assert sorted(log.read_bytes().splitlines()) == sorted(whole)
    kept = [read_json(folder / "summary.json") for folder in (disturbed, undisturbed)]
    assert kept[0].pop("action_kinds").items() == kept[1].pop("action_kinds").items()
    assert kept[0] == kept[1]
    assert kept[0]["episodes"] == 12


def test_a_finished_collection_is_left_alone_and_others_settings_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = collect(out, CORRIDOR, AGENTS[:1], "train", tasks=2, seed=1, workers=1)
    before = (out / "trajectories.jsonl").read_bytes()
    started = time.monotonic()
    assert collect(out, CORRIDOR, AGENTS[:1], "train", tasks=2, seed=1, workers=2) == first
    assert time.monotonic() - started < 0.5  # no engine was started
    assert (out / "trajectories.jsonl").read_bytes() == before
    with pytest.raises(ConfigError, match=r"other settings \(tasks: 2 there, 3 now\)"):
        collect(out, CORRIDOR, AGENTS[:1], "train", tasks=3, seed=1)


def test_an_engine_that_dies_is_recorded_once_and_the_rest_is_played(tmp_path: Path) -> None:
    env = EnvSpec("tests.envs.corridor:Unsafe", {"die": "test-1"})
    for _ in range(2):
        summary = collect(tmp_path, env, AGENTS[2:], "test", workers=2)
        assert summary["outcomes"] == {"success": 4, "error": 1}
    (broken,) = [t for t in read(tmp_path / "trajectories.jsonl") if t.error]
    assert (broken.task.id, broken.error.kind, broken.agent.name) == ("test-1", "WorkerDied", "walker")


def test_tasks_are_drawn_by_seed_without_repetition() -> None:
    drawn = choose_tasks(CORRIDOR, "train", 8, 5)
    assert drawn == choose_tasks(CORRIDOR, "train", 8, 5) != choose_tasks(CORRIDOR, "train", 8, 6)
    assert len(set(drawn)) == 8
    assert choose_tasks(CORRIDOR, "train", None, 5) == [f"train-{n}" for n in range(20)]
    for count in (0, 21):
        with pytest.raises(ConfigError, match=rf"{count} tasks asked of split 'train' of .*Corridor, which has 20"):
            choose_tasks(CORRIDOR, "train", count, 0)
    with pytest.raises(ConfigError, match="no split 'trian'"):
        choose_tasks(CORRIDOR, "trian", 1, 0)


def test_agents_take_turns() -> None:
    jobs = plan(["a", "b", "c"], AGENTS, "train", 2, seed=7, max_steps=12)
    turns = [(job.task_id, AGENTS.index(job.agent)) for job in jobs]
    assert turns == [("a", 0), ("a", 1), ("b", 2), ("b", 0), ("c", 1), ("c", 2)]
    assert {(job.seed, job.split, job.max_steps) for job in jobs} == {(7, "train", 12)}
    for number in (0, 4):
        with pytest.raises(ConfigError, match=f"agents_per_task is {number}, with 3 agents"):
            plan(["a"], AGENTS, "train", number, 0, 1)


def test_a_record_has_the_key_of_its_job(tmp_path: Path) -> None:
    collect(tmp_path, CORRIDOR, AGENTS, "test", agents_per_task=3, workers=1)
    jobs = plan(choose_tasks(CORRIDOR, "test", None, 0), AGENTS, "test", 3, 0, 50)
    assert sorted(map(key, read(tmp_path / "trajectories.jsonl")), key=str) == sorted(map(job_key, jobs), key=str)


def episode(agent: str, steps: list[Step], error: Failure | None = None, **params: Any) -> Trajectory:
    return Trajectory(
        env=EnvRef(name="e"), task=TaskRef(id="t"), initial_observation="x", steps=steps, error=error,
        agent=AgentRef(name=agent, params=params),
    )  # fmt: skip


def step(action: str, admissible: list[str] | None = None, terminal: Any = None) -> Step:
    return Step(action=action, observation="o", admissible_actions=admissible, terminal=terminal)


def test_the_summary_counts_as_by_hand() -> None:
    a, b = ["go to x", "open y"], ["go to x", "take z"]
    told = [
        # What may be done before the first step is not known; then: changes, changes nothing, invalid, changes.
        episode(
            "s",
            [step("go to x", a), step("open y", b), step("take z", b), step("fly", a), step("go to x", b, "success")],
        ),
        episode("s", [step("go to x", a), step("go to x", a, "truncated")], skill=0.5),  # nothing changes
        episode("s", [step("open y"), step("open y")], Failure(kind="E", message="m"), skill=0.5),  # nothing is known
        episode("s", []),
    ]
    assert summarize(told) == {
        "episodes": 4,
        "outcomes": {"success": 1, "truncated": 1, "error": 1, "unknown": 1},
        "steps": 9,
        "success_rate": 0.25,
        "action_kinds": {"go": 4, "open": 3, "take": 1, "fly": 1},
        "invalid": 1 / 5,
        "no_change": 2 / 4,
        "by_agent": {"s": {"success": 1, "unknown": 1}, "s(skill=0.5)": {"truncated": 1, "error": 1}},
        "errors": {"E: m": 1},
    }


def test_the_summary_goes_by_what_the_environment_tells() -> None:
    told = [
        step("go", ["go"]).model_copy(update={"changed": c, "refused": r})
        for c, r in ((True, False), (True, False), (False, False), (False, True))
    ]
    found = summarize([episode("s", told), episode("s", [step("fly")])])  # of the last one, nothing is known
    assert (found["invalid"], found["no_change"]) == (1 / 4, 1 / 3)


def test_an_action_is_of_the_kind_of_its_tool_or_first_word() -> None:
    actions = ["click[buy now]", "click[< prev]", "search[red shoes]", '{"name": "refund", "arguments": {}}', "ls('a')"]
    found = summarize([episode("s", [step(action) for action in actions])])
    assert found["action_kinds"] == {"click": 2, "search": 1, "refund": 1, "ls": 1}


def test_the_summary_of_nothing_has_no_rates() -> None:
    found = summarize([])
    assert (found["episodes"], found["success_rate"], found["invalid"], found["no_change"]) == (0, None, None, None)


def test_the_folder_says_how_it_was_made_but_not_where_the_data_lies(tmp_path: Path) -> None:
    env = EnvSpec(CORRIDOR.name, {"longest": 4})
    collect(tmp_path, env, AGENTS[2:], "test", tasks=1, workers=1)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config == {
        "stage": "collect",
        "env": "tests.envs.corridor:Corridor",
        "options": {"longest": 4},
        "split": "test",
        "agents": [{"name": "tests.envs.corridor:Walker", "params": {}}],
        "tasks": 1,
        "agents_per_task": 1,
        "seed": 0,
        "max_steps": 50,
    }
    assert {path.name for path in tmp_path.iterdir()} == {".lock", "config.json", "summary.json", "trajectories.jsonl"}


class Listing(Agent):
    """Takes a tuple, and keeps one."""

    name = "listing"

    def __init__(self, actions: tuple[str, ...] = ()):
        self.actions = tuple(actions)

    def begin(self, start: Start) -> None:
        pass

    def act(self, observation: str) -> Decision:
        return Decision(*self.actions[:1])


class Nameless(Agent):
    """Forgets its name."""

    def begin(self, start: Start) -> None:
        pass

    def act(self, observation: str) -> Decision:
        return Decision("look")


class Raising(Nameless):
    name = "raising"

    def __init__(self) -> None:
        raise KeyError("home")


def test_a_tuple_is_recorded_once_and_known_again(tmp_path: Path) -> None:
    for _ in range(2):
        agent = AgentSpec("tests.test_collect:Listing", {"actions": ("look", "go east")})
        collect(tmp_path, CORRIDOR, [agent], "test", tasks=2, max_steps=1, workers=1)
    assert len(read(tmp_path / "trajectories.jsonl")) == 2


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("tests.test_collect:Nameless", {}, "cannot be built: AttributeError: .* has a `name`"),
        ("tests.test_collect:Raising", {}, "'tests.test_collect:Raising' cannot be built: KeyError: 'home'"),
        ("tests.test_collect:Wanderer", {"note": Path("x")}, "note of agent .*Wanderer' cannot be written down"),
        ("tests.test_collect:Wanderer", {"hurry": float("nan")}, "hurry of agent .* cannot be written down"),
        ("scripted-alfworld", {"skill": "high"}, "skill must be of type float, not 'high'"),
        ("scripted-alfworld", {"skill": True}, "skill must be of type float, not True"),
        ("scripted-alfworld", {"skill": 7}, "skill is a chance between 0 and 1, not 7"),
        ("scripted-alfwrld", {}, "did you mean 'scripted-alfworld'"),
        ("replay", {"actions": "look"}, "a list of actions, not 'look'"),
        ("llm", {"model": "m", "api_key": "sk-SECRET"}, "api_key would be written down .* OPENAI_API_KEY"),
        ("llm", {"model": "m", "temperature": "hot"}, "temperature must be of type float, not 'hot'"),
    ],
)
def test_an_agent_that_cannot_play_is_refused_before_anything_is_written(
    tmp_path: Path, name: str, params: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        collect(tmp_path / "run", CORRIDOR, [AgentSpec(name, params)], "test", tasks=1)
    assert "sk-SECRET" not in str(refused.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("setting", [{"max_steps": 0}, {"max_steps": -1}, {"workers": 0}])
def test_numbers_out_of_range_are_refused_even_if_nothing_is_missing(tmp_path: Path, setting: dict[str, int]) -> None:
    collect(tmp_path, CORRIDOR, AGENTS[2:], "test", tasks=1, workers=1)
    with pytest.raises(ConfigError, match=r"it must be at least 1"):
        collect(tmp_path, CORRIDOR, AGENTS[2:], "test", **{"tasks": 1, "workers": 1, **setting})


def test_it_says_how_many_tasks_all_are(caplog: pytest.LogCaptureFixture) -> None:
    choose_tasks(CORRIDOR, "train", None, 0)
    assert caplog.messages == ["no number of tasks was given: all 20 of split 'train' are played"]


class Odd(Corridor):
    """Says half a surrogate pair, and gives a reward that is no number on one task."""

    def step(self, action: str) -> Any:
        found = super().step(action)
        reward = float("nan") if self.task == "test-1" else found.reward
        return found._replace(observation=found.observation + "\ud800", reward=reward)

    def reset(self, task_id: str, seed: int = 0) -> Any:
        self.task = task_id
        return super().reset(task_id, seed)


def test_half_a_surrogate_pair_is_kept_and_no_number_is_no_reward(tmp_path: Path) -> None:
    env = EnvSpec("tests.test_collect:Odd")
    for _ in range(2):  # a restart finds them again
        summary = collect(tmp_path, env, AGENTS[2:], "test", tasks=5, max_steps=2, workers=1)
        assert summary["outcomes"] == {"truncated": 4, "error": 1}
    found = {t.task.id: t for t in read(tmp_path / "trajectories.jsonl", strict=True)}
    assert len(found) == 5
    assert found["test-0"].steps[0].observation.endswith("\ud800")
    assert "finite number" in found["test-1"].error.message
