"""The adapter under Gymnasium's own checker, and what it promises beyond."""

import math
import warnings

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from tests.envs.corridor import Corridor
from worldloom.envs.gym import AnyText, GymEnv
from worldloom.errors import ConfigError, EnvError


@pytest.fixture
def made():
    gymnasium.register("Corridor-v1", entry_point=lambda: GymEnv(Corridor(), "test"))
    yield gymnasium.make("Corridor-v1")
    gymnasium.registry.pop("Corridor-v1")


def test_it_passes_gymnasiums_checker_without_a_warning(made: gymnasium.Env):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(made.unwrapped)


def test_an_episode_played_by_the_plan_ends_in_success():
    env = GymEnv(Corridor())
    plan = Corridor().reset("train-7", seed=3).gold_actions
    text, info = env.reset(seed=3, options={"task_id": "train-7"})
    assert text == Corridor().reset("train-7", 3).text
    assert {key: info[key] for key in ("task_id", "split", "seed", "terminal")} == {
        "task_id": "train-7",
        "split": None,
        "seed": 3,
        "terminal": None,
    }
    results = [env.step(action) for action in plan]
    assert [r[2] for r in results] == [False] * (len(plan) - 1) + [True]
    assert [r[1] for r in results] == [0.0] * (len(plan) - 1) + [1.0]
    assert results[-1][4]["terminal"] == "success"
    assert results[-1][4]["instruction"] == info["instruction"]
    assert "go west" in results[0][4]["admissible_actions"]
    assert "initial_context" not in info
    with pytest.raises(EnvError, match="over"):
        env.step("look")


def test_tasks_follow_each_other_round_and_round_from_where_the_seed_says():
    env = GymEnv(Corridor(), "test")  # five tasks
    assert [env.reset()[1]["task_id"] for _ in range(6)] == [f"test-{n}" for n in (0, 1, 2, 3, 4, 0)]
    assert env.reset(seed=13)[1]["task_id"] == "test-3"
    assert env.reset()[1]["task_id"] == "test-4"
    assert env.reset(options={"task_id": "train-0"})[1]["split"] is None
    assert env.reset()[1]["task_id"] == "test-0"  # a task given by id does not move the order


def test_one_seed_fixes_all_episodes_that_follow():
    def seeds() -> list[int]:
        env = GymEnv(Corridor())
        env.reset(seed=5)
        return [env.reset()[1]["seed"] for _ in range(3)]

    assert seeds() == seeds()
    assert len(set(seeds())) == 3


def test_patience_is_truncation_not_termination():
    env = GymEnv(Corridor())
    env.reset(seed=0)
    *_, (_, reward, terminated, truncated, info) = [env.step("look") for _ in range(40)]
    assert (reward, terminated, truncated, info["terminal"]) == (0.0, False, True, "truncated")


def test_an_unknown_reward_is_nan_and_not_zero():
    class Rewardless(Corridor):
        def step(self, action):
            return super().step(action)._replace(reward=None)

    env = GymEnv(Rewardless())
    env.reset(seed=0)
    assert math.isnan(env.step("look")[1])


def test_a_vector_of_environments_starts_on_different_tasks():
    vector = gymnasium.vector.SyncVectorEnv([lambda: GymEnv(Corridor(), "test")] * 3)
    texts, info = vector.reset(seed=1)
    assert list(info["task_id"]) == ["test-1", "test-2", "test-3"]
    assert texts == tuple(Corridor().reset(f"test-{n}", n).text for n in (1, 2, 3))
    vector.close()


def test_the_space_has_all_of_unicode_up_to_a_length():
    space = AnyText(5)
    assert "" in space and "клю🔑" in space and "\n\x00" in space
    assert "123456" not in space and 5 not in space
    assert all(space.sample() in space for _ in range(20))


def test_what_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match="no split 'dev'"):
        GymEnv(Corridor(), "dev")
    with pytest.raises(ConfigError, match=r"no options \['task'\]"):
        GymEnv(Corridor()).reset(options={"task": "train-0"})
    with pytest.raises(EnvError, match="no task 'train-99'"):
        GymEnv(Corridor()).reset(options={"task_id": "train-99"})
