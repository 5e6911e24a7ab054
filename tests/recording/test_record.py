"""``worldloom.record`` around functions and environments: what it writes, and that it changes nothing."""

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import worldloom
from tests.envs.corridor import Corridor
from tests.test_readme import ROOT, blocks
from worldloom.envs.gym import GymEnv
from worldloom.errors import ConfigError, EnvError
from worldloom.recording.journal import folder_of
from worldloom.rollout import rollout
from worldloom.trajectory import Trajectory, read


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "episodes.jsonl"


def one(path: Path) -> Trajectory:
    (found,) = read(path, strict=True)
    assert list(folder_of(path).iterdir()) == []  # its journal is gone
    return found


def test_a_recorded_environment_gives_the_trajectory_that_a_rollout_would(path: Path) -> None:
    plan = Corridor().reset("train-7", 3).gold_actions
    plain = GymEnv(Corridor())
    env = worldloom.record(path, env="corridor", version="1", agent="planner")(GymEnv(Corridor()))
    where: dict[str, Any] = {"seed": 3, "options": {"task_id": "train-7"}}
    assert env.reset(**where) == plain.reset(**where)
    assert [env.step(action) for action in plan] == [plain.step(action) for action in plan]

    from worldloom.agents import AgentSpec

    expected = rollout(Corridor(), AgentSpec("gold").build(), "train-7", seed=3)
    found = one(path)
    assert found.outcome == "success"
    assert (found.env.name, found.agent.name) == ("corridor", "planner")
    assert found.task == expected.task.model_copy(update={"gold_actions": None})  # nor has it a plan
    assert found.initial_observation == expected.initial_observation
    assert found.initial_context is None  # an agent may not know it, so Gymnasium's info has none
    assert [step.model_copy(update={"thought": None}) for step in expected.steps] == found.steps


def test_truncated_terminated_and_given_up_are_kept_apart(path: Path) -> None:
    env = worldloom.record(path)(GymEnv(Corridor()))
    env.reset(seed=0)
    for _ in range(40):
        env.step("look")
    env.reset(seed=1)
    env.step("look")
    env.reset(seed=2)
    env.close()
    late, given_up, unplayed = read(path, strict=True)
    assert [step.terminal for step in late.steps] == [None] * 39 + ["truncated"]
    assert (given_up.outcome, len(given_up.steps)) == (None, 1)
    assert (unplayed.outcome, unplayed.steps) == (None, [])
    assert [t.task.id for t in (late, given_up, unplayed)] == ["train-0", "train-1", "train-2"]


def test_a_built_in_environment_that_speaks_no_text_is_said_as_json(path: Path) -> None:
    env = worldloom.record(path, agent="reader")(gymnasium.make("Blackjack-v1"))
    (mine, dealers, ace), _ = env.reset(seed=4)
    _, reward, terminated, truncated, _ = env.step(0)
    found = one(path)
    assert (terminated, truncated) == (True, False)
    assert found.env.name == "Blackjack-v1"
    assert found.task.id == "seed-4"
    assert found.initial_observation == f"[{mine}, {dealers}, {ace}]"
    (step,) = found.steps
    assert (step.action, step.reward, step.terminal) == ("0", reward, None)  # nobody says whether it was a success
    assert step.model_extra == {"terminated": True}


class Foreign(gymnasium.Env[int, int]):
    """An environment whose info uses our names for something else."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return 0, {"task_id": 7, "seed": "abc", "split": 3, "instruction": None}

    def step(self, action: int) -> Any:
        info = {"terminal": True, "admissible_actions": (0, 1), "not_recorded": "no"}
        return action, 1, action == 1, False, info


def test_what_another_environment_says_in_its_info_breaks_nothing(path: Path) -> None:
    env = worldloom.record(path)(Foreign())
    env.reset()
    env.step(0)
    env.step(1)
    found = one(path)
    assert found.task.model_dump() == {"id": "7"}
    assert [step.model_dump() for step in found.steps] == [
        {"action": "0", "observation": "0", "reward": 1.0, "admissible_actions": ["0", "1"]},
        {
            "action": "1", "observation": "1", "reward": 1.0, "admissible_actions": ["0", "1"], "terminated": True,
        },
    ]  # fmt: skip


class Breaks(Corridor):
    def step(self, action: str) -> Any:
        if action == "kick":
            raise OSError("the door fell on the engine")
        return super().step(action)

    def reset(self, task_id: str, seed: int = 0) -> Any:
        if task_id == "train-9":
            raise EnvError("room 9 is flooded")
        return super().reset(task_id, seed)


def test_an_exception_of_the_environment_is_the_error_of_its_episode_and_still_raised(path: Path) -> None:
    env = worldloom.record(path)(GymEnv(Breaks()))
    env.reset(seed=0)
    env.step("look")
    with pytest.raises(OSError, match="fell on the engine"):
        env.step("kick")
    with pytest.raises(EnvError, match="flooded"):
        env.reset(options={"task_id": "train-9"})
    broken, unstarted = read(path, strict=True)
    assert [step.action for step in broken.steps] == ["look"]
    assert broken.outcome == unstarted.outcome == "error"
    assert broken.error.model_dump() == {
        "action": "kick", "kind": "OSError", "message": "the door fell on the engine",
    }  # fmt: skip
    assert unstarted.error.message == "room 9 is flooded"


def test_a_step_function_in_a_block_is_an_episode(path: Path) -> None:
    world = Corridor()
    first = world.reset("train-7", 3)
    recorder = worldloom.record(path, env="corridor", agent="planner")
    step = recorder(world.step)
    with recorder.episode(task="train-7", seed=3, observation=first.text, initial_context=first.initial_context):
        results = [step(action) for action in first.gold_actions]
    found = one(path)
    assert found.initial_context == first.initial_context
    assert [(s.action, s.observation, s.reward) for s in found.steps] == [
        (action, result.observation, result.reward) for action, result in zip(first.gold_actions, results, strict=True)
    ]
    assert found.outcome == "success"


def test_tools_of_one_episode_are_told_apart_by_their_calls(path: Path) -> None:
    shop = worldloom.record(path, env="shop")

    @shop
    def refund(order: str, cents: int = 0) -> dict[str, Any]:
        """Give money back."""
        if order == "8":
            raise LookupError("no order 8")
        return {"refunded": cents, "name": "Zoë"}

    with shop.episode(task="ticket-17", observation="I want my money back.", instruction="Help."):
        assert refund("7", cents=300) == {"refunded": 300, "name": "Zoë"}
        with pytest.raises(LookupError):
            refund("8")
        with pytest.raises(TypeError):
            refund(amount=3)
        refund("9")
    found = one(path)
    assert (refund.__name__, refund.__doc__) == ("refund", "Give money back.")
    assert [(s.action, s.observation) for s in found.steps] == [
        ('{"name": "refund", "arguments": {"order": "7", "cents": 300}}', '{"refunded": 300, "name": "Zoë"}'),
        ('{"name": "refund", "arguments": {"order": "8"}}', "LookupError: no order 8"),
        ('{"name": "refund", "arguments": {"amount": 3}}', found.steps[2].observation),
        ('{"name": "refund", "arguments": {"order": "9"}}', '{"refunded": 0, "name": "Zoë"}'),
    ]
    assert found.steps[2].observation.startswith("TypeError: ")
    assert found.steps[1].model_extra == {"raised": True}
    assert found.outcome is None  # the agent went on after it, so it is no error of the episode
    assert found.task.instruction == "Help."


def test_an_exception_that_leaves_the_block_is_the_error(path: Path) -> None:
    shop = worldloom.record(path, env="shop")

    @shop
    def step(action: str) -> str:
        raise TimeoutError("the shop is shut")

    with pytest.raises(TimeoutError), shop.episode(task="a"):
        step("buy")
    with pytest.raises(ZeroDivisionError), shop.episode(task="b"):
        1 / 0  # noqa: B018
    with pytest.raises(TimeoutError):
        step("sell")  # outside of a block: an episode of its own
    in_step, outside_step, alone = read(path, strict=True)
    assert in_step.error.model_dump() == {"action": "buy", "kind": "TimeoutError", "message": "the shop is shut"}
    assert outside_step.error.model_dump() == {"kind": "ZeroDivisionError", "message": "division by zero"}
    assert (alone.error.model_extra, alone.steps) == ({"action": "sell"}, [])
    assert alone.task.id == alone.model_extra["recorded"]["id"]


def test_step_by_step_in_a_block_of_its_own(path: Path) -> None:
    with worldloom.record(path, env="terminal", task="t", observation="$") as episode:
        episode.step("ls", "a b", thought="what is there?", reward=float("nan"), seconds=0.5)
        episode.step("rm a", "", terminal="failure")
    found = one(path)
    assert [s.model_dump() for s in found.steps] == [
        {"action": "ls", "observation": "a b", "thought": "what is there?", "seconds": 0.5},
        {"action": "rm a", "observation": "", "terminal": "failure"},
    ]
    with pytest.raises(EnvError, match="over"):
        episode.step("ls", "b")
    episode.end("success")  # too late, and no second line
    assert one(path) == found


def test_the_end_may_be_told_when_it_is_known(path: Path) -> None:
    episode = worldloom.record(path, env="desk").episode(task="t")
    episode.step("close ticket", "Closed.")
    episode.end("success")
    assert one(path).outcome == "success"


def test_an_episode_that_is_dropped_is_written_without_an_end(path: Path) -> None:
    episode = worldloom.record(path, env="desk").episode(task="t")
    episode.step("look", "A desk.")
    del episode
    assert (one(path).outcome, len(one(path).steps)) == (None, 1)


def test_tasks_and_threads_each_have_their_own_episode(path: Path) -> None:
    shop = worldloom.record(path, env="shop")

    @shop
    async def step(action: str) -> str:
        await asyncio.sleep(0.001)
        return action.upper()

    async def talk(number: int) -> None:
        with shop.episode(task=f"task-{number}"):
            for turn in range(5):
                await step(f"say {number} {turn}")

    async def all_talk() -> None:
        await asyncio.gather(*(talk(number) for number in range(10)))

    asyncio.run(all_talk())
    together = threading.Barrier(4)

    def in_a_thread(number: int) -> None:
        together.wait(10)
        asyncio.run(talk(number))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(in_a_thread, range(10, 14)))
    found = {t.task.id: t for t in read(path, strict=True)}
    assert sorted(found) == sorted(f"task-{n}" for n in range(14))
    for number in range(14):
        episode = found[f"task-{number}"]
        assert [(s.action, s.observation) for s in episode.steps] == [
            (f"say {number} {turn}", f"SAY {number} {turn}") for turn in range(5)
        ]


def test_texts_of_any_kind_survive(path: Path) -> None:
    odd = ["", "two\nlines\r\n\u2028", "\x00\x1b[31m", "клю🔑", "a lone \udc80 half", "x" * 300_000]
    with worldloom.record(path) as episode:
        for text in odd:
            episode.step(text, text)
    found = one(path)
    assert [s.observation for s in found.steps] == [t.replace("\udc80", "?") for t in odd]
    assert path.read_bytes().count(b"\n") == 1


def test_what_cannot_be_recorded_is_refused(path: Path) -> None:
    recorder = worldloom.record(path)
    with pytest.raises(ConfigError, match=r"Corridor is no gymnasium.Env; wrap .*GymEnv"):
        recorder(Corridor())
    with pytest.raises(ConfigError, match="42 cannot be recorded"):
        recorder(42)
    with pytest.raises(ConfigError, match="an episode has no taks; it has agent, env, "):
        recorder.episode(taks="t")


def test_the_page_s_python_runs(tmp_path: Path) -> None:
    (code,) = blocks(ROOT / "docs" / "recording.md", "python")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout == '{"name": "refund", "arguments": {"order": "7", "cents": 300}}\n', done.stderr
