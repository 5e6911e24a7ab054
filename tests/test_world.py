import math
from pathlib import Path

import pytest
import torch

from tests.envs.corridor import Corridor, Walker
from worldloom.envs.base import Observation, StepResult
from worldloom.envs.check import check_env
from worldloom.errors import ConfigError, EnvError, ModelError
from worldloom.lm.base import Confidence
from worldloom.lm.session import LocalLM
from worldloom.rollout import rollout
from worldloom.trajectory import Trajectory
from worldloom.world import Start, WorldModelEnv, starts_of


@pytest.fixture(scope="module")
def real() -> list[Trajectory]:
    tasks = [("train-0", "train"), ("train-1", "train"), ("test-0", "test")]
    return [rollout(Corridor(), Walker(), task, split=split) for task, split in tasks]


@pytest.fixture(scope="module")
def tiny(tiny_lm_folder: Path) -> LocalLM:
    return LocalLM(str(tiny_lm_folder), torch.float32)


@pytest.fixture
def world(tiny: LocalLM, real: list[Trajectory]) -> WorldModelEnv:
    return WorldModelEnv(tiny, starts_of(real), "corridor", max_new_tokens=6)


class Told:
    """A session that ends as it is told, to see what the environment makes of it."""

    confidence = None

    def __init__(self, answer: str):
        self.answer = answer

    def step(self, action: str, max_new_tokens: int, sampling: object) -> str:
        return self.answer


def test_tasks_begin_as_they_really_did(world: WorldModelEnv, real: list[Trajectory]) -> None:
    assert world.splits == ("train", "test")
    assert list(world.task_ids("train")) == ["train-0", "train-1"]
    first = Corridor().reset("train-1")
    assert world.reset("train-1") == first
    broken = real[0].model_copy(update={"initial_observation": ""})
    assert starts_of([broken]) == {}
    unsplit = real[0].model_copy(update={"task": real[0].task.model_copy(update={"split": None})})
    assert starts_of([unsplit])["train-0"].split == "all"


def test_unknown_tasks_and_splits_are_named(world: WorldModelEnv) -> None:
    with pytest.raises(EnvError, match="no start for task 'train-9'; give one from a real episode"):
        world.reset("train-9")
    with pytest.raises(ConfigError, match="no split 'tset' here; there is train, test"):
        world.task_ids("tset")


def test_nothing_can_be_done_before_a_reset_or_after_the_end(world: WorldModelEnv) -> None:
    for act in (lambda: world.step("look"), world.fork):
        with pytest.raises(EnvError, match="call reset"):
            act()
    world.reset("train-0")
    world.close()
    world.close()
    with pytest.raises(EnvError, match="call reset"):
        world.step("look")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("You win. [SUCCESS]", ("You win.", 1.0, True, False, {"terminal": "success"})),
        ("You fall. [FAILURE]", ("You fall.", 0.0, True, False, {"terminal": "failure"})),
        ("A room.", ("A room.", None, False, False, {"terminal": None})),
    ],
)
def test_what_the_model_says_is_taken_apart(world: WorldModelEnv, answer: str, expected: tuple) -> None:
    world.reset("train-0")
    world._session = Told(answer)
    assert tuple(world.step("go east")) == expected
    if expected[2]:
        with pytest.raises(EnvError, match="the episode has ended"):
            world.step("go east")


def test_an_episode_that_outgrows_the_window_is_truncated(tiny: LocalLM) -> None:
    world = WorldModelEnv(tiny, {"long": Start("all", Observation("word " * 490))}, max_new_tokens=6)
    world.reset("long")
    told = [world.step("look")]
    while not told[-1].truncated:
        told.append(world.step("look"))
    assert tuple(told[-1]) == ("", None, False, True, {"terminal": "truncated", "reason": "window"})
    with pytest.raises(EnvError, match="call reset"):
        world.step("look")


class Unsure(Told):
    """A session that is as sure as it is told, and keeps what it hears."""

    def __init__(self, answer: str, *probabilities: float):
        super().__init__(answer)
        self.left, self.turns = list(probabilities), []

    @property
    def taken(self) -> int:
        return len(self.turns)

    def step(self, action: str, max_new_tokens: int, sampling: object) -> str:
        self.confidence = Confidence(math.log(self.left.pop(0)), -1.0, 3, True)
        self.turns.append((action, self.answer))
        return self.answer

    def hear(self, action: str, text: str) -> None:
        self.turns.append((action, text))

    def rewind(self, steps: int = 1) -> None:
        del self.turns[-steps:]


def test_a_world_abstains_below_the_least_confidence(tiny: LocalLM, real: list[Trajectory]) -> None:
    world = WorldModelEnv(tiny, starts_of(real), least_confidence=0.8)
    assert world.options["least_confidence"] == 0.8
    world.reset("train-0")
    world._session = session = Unsure("You win. [SUCCESS]", 0.5)
    told = world.step("go east")
    assert tuple(told)[:4] == ("", None, False, True)
    assert (told.info["terminal"], told.info["reason"]) == ("truncated", "unsure")
    assert told.info["confidence"] == {"logprob": math.log(0.5), "lowest": -1.0, "tokens": 3, "agrees": True}
    for act in (lambda: world.step("look"), world.fork, world.rewind):
        with pytest.raises(EnvError, match=r"has ended|no episode to fork"):
            act()
    assert session.turns == []


def test_a_step_that_the_real_environment_answered_goes_into_the_history(tiny: LocalLM, real: list[Trajectory]) -> None:
    world = WorldModelEnv(tiny, starts_of(real), least_confidence=0.8)
    world.reset("train-0")
    world._session = session = Unsure("A hall.", 0.9, 0.5)
    assert world.step("look").observation == "A hall."
    assert world.step("go east").info["reason"] == "unsure"
    said = StepResult("A door.", 0.25, False, False, {"terminal": None, "admissible_actions": ["look"]})
    told = world.hear("go east", said)
    assert told == said._replace(info={"terminal": None, "admissible_actions": ["look"], "anchored": True})
    assert session.turns == [("look", "A hall."), ("go east", "A door.")]
    won = StepResult("You win.", 1.0, True, False, {"terminal": "success"})
    assert world.hear("go east", won).terminated
    assert session.turns[-1] == ("go east", "You win. [SUCCESS]")
    with pytest.raises(EnvError, match="has ended"):
        world.hear("go east", won)


def test_a_model_that_does_not_tell_how_sure_it_is_cannot_abstain(tiny: LocalLM, real: list[Trajectory]) -> None:
    world = WorldModelEnv(tiny, starts_of(real), least_confidence=0.8)
    world.reset("train-0")
    world._session = Told("A hall.")
    with pytest.raises(ModelError, match="does not tell how sure it is"):
        world.step("look")


def test_a_fork_goes_its_own_way(world: WorldModelEnv) -> None:
    world.reset("train-0")
    world.step("look")
    twin, other = world.fork(), world.fork()
    assert (twin.name, twin.ref) == ("world-model:corridor", world.ref)
    away = twin.step("go east")
    assert other.step("look").observation == world.step("look").observation
    assert other.step("go east").observation == world.step("go east").observation
    assert isinstance(away.observation, str)


def test_steps_can_be_taken_back(world: WorldModelEnv) -> None:
    world.reset("train-0")
    first, second = world.step("look").observation, world.step("go east").observation
    world.rewind(2)
    assert (world.step("look").observation, world.step("go east").observation) == (first, second)
    with pytest.raises(EnvError, match="cannot take back 3 steps: the episode has ended, or had not as many"):
        world.rewind(3)


def test_above_temperature_0_the_seed_drives_what_is_drawn(tiny: LocalLM, real: list[Trajectory]) -> None:
    world = WorldModelEnv(tiny, starts_of(real), "corridor", max_new_tokens=6, temperature=1.0)

    def played(seed: int) -> list[str]:
        world.reset("train-0", seed)
        return [world.step("look").observation for _ in range(3)]

    assert played(1) == played(1)
    assert played(1) != played(2)
    world.reset("train-0", 1)
    twin = world.fork()
    assert [twin.step("look").observation for _ in range(3)] == played(1)


def test_the_contract_holds_on_a_tiny_model(world: WorldModelEnv) -> None:
    assert check_env(world, ["train-0", "test-0"], max_steps=4).ok


@pytest.mark.model
def test_the_contract_holds_on_the_real_model(smollm2: Path, real: list[Trajectory]) -> None:
    lm = LocalLM(str(smollm2))
    lm.window = 768  # so that the action of 10,000 characters outgrows it
    report = check_env(WorldModelEnv(lm, starts_of(real), "corridor", max_new_tokens=4), ["train-0"], max_steps=3)
    assert report.ok
    assert report.env == "world-model:corridor"
    assert "determinism" in report.rules
