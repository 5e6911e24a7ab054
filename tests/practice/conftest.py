"""A tiny policy of the corridor, and a broken world: a real, tiny language model that learnt to say that all is won."""

from pathlib import Path

import pytest

from tests.envs.corridor import Corridor
from worldloom.agents.gold import GoldFollower
from worldloom.config import TrainConfig
from worldloom.rollout import rollout
from worldloom.train import train
from worldloom.trajectory import EnvRef, Step, TaskRef, Trajectory, write

TASKS = ("train-0", "train-1", "train-2", "train-3")


@pytest.fixture(scope="session")
def demonstrations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demonstrations") / "trajectories.jsonl"
    write(path, [rollout(Corridor(3), GoldFollower(), task, split="train") for task in TASKS])
    return path


@pytest.fixture(scope="session")
def policy(demonstrations: Path, tiny_lm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It wins some of the short corridors: four of its tasks it has seen."""
    out = tmp_path_factory.mktemp("policy")
    train([demonstrations], out, settings(tiny_lm_folder, learns="policy", steps=50))
    return out


@pytest.fixture(scope="session")
def liar(tiny_lm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A world in which the first action always wins."""
    folder = tmp_path_factory.mktemp("liar")
    write(folder / "lies.jsonl", [lie(action) for action in ("go east", "take key", "look", "unlock door")])
    train([folder / "lies.jsonl"], folder / "model-run", settings(tiny_lm_folder, steps=40))
    return folder / "model-run"


def lie(action: str) -> Trajectory:
    first = Corridor(3).reset("train-0")
    return Trajectory(
        env=EnvRef(name="corridor", version="1"), task=TaskRef(id="train-0", split="train", seed=0),
        initial_context=first.initial_context, initial_observation=first.text,
        steps=[Step(action=action, observation="You are through.", terminal="success")],
    )  # fmt: skip


def settings(model: Path, **changes: object) -> TrainConfig:
    usual = TrainConfig(
        model=str(model), epochs=1000, learning_rate=1e-2, warmup_steps=2, schedule="constant", precision="float32"
    )
    return TrainConfig(**{**usual.recorded(), **changes})  # type: ignore[arg-type]
