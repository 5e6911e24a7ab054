"""What a model was after some numbers of episodes: the model of a shorter training, whatever kills come between."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.envs.corridor import Corridor
from tests.killing import kill_when
from tests.test_train import assert_same, command, weights
from worldloom.agents.gold import GoldFollower
from worldloom.config import TrainConfig, described, train_config
from worldloom.errors import ConfigError
from worldloom.lineage import training_of
from worldloom.lm.replies import Replies
from worldloom.mixture import MixedOrder
from worldloom.rollout import rollout
from worldloom.runs import read_json
from worldloom.train import load_all, train
from worldloom.trajectory import write

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "trajectories.jsonl"
    write(path, [rollout(Corridor(), GoldFollower(0.3), f"train-{n}", split="train", max_steps=8) for n in range(12)])
    return path


@pytest.fixture(scope="module")
def config(tiny_lm_folder: Path) -> TrainConfig:
    """Five updates of four episodes: twice through the twelve, but for four."""
    return TrainConfig(
        model=str(tiny_lm_folder), steps=5, epochs=100, learning_rate=5e-3, warmup_steps=2, precision="float32",
        schedule="constant", snapshots=(7, 12, 20),
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(data: Path, config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    train([data], out, config)
    return out


def same_weights(one: Path, other: Path) -> bool:
    ours, theirs = weights(one), weights(other)
    return all(value.allclose(theirs[name], rtol=1e-3, atol=1e-4) for name, value in ours.items())


def test_a_snapshot_is_the_model_of_a_shorter_training(
    run: Path, data: Path, config: TrainConfig, tmp_path: Path
) -> None:
    train([data], tmp_path, replace(config, steps=3, snapshots=(12,)))
    assert same_weights(run / "model-at-12", tmp_path / "model")
    assert not same_weights(run / "model-at-12", run / "model")
    assert same_weights(run / "model-at-20", run / "model")  # the last one is the end
    assert sorted(path.name for path in run.glob("model*")) == ["model", "model-at-12", "model-at-20", "model-at-7"]


def test_it_says_what_it_has_seen(run: Path, data: Path, config: TrainConfig) -> None:
    trajectories = load_all([data])
    order = list(MixedOrder({"corridor": 12}, None, config.seed))
    assert sorted(order) == list(range(12))
    told = {count: training_of(run / f"model-at-{count}") for count in (7, 12, 20)}
    # Seven are had with the second update of four, and the twenty are all twelve and eight of them again.
    assert {n: (t["steps"], t["trajectories_seen"]) for n, t in told.items() if t} == {
        7: (2, 8),
        12: (3, 12),
        20: (5, 12),
    }
    assert told[12] and told[12]["tokens_seen"] == told[12]["tokens"] == read_json(run / "train.json")["tokens"]
    assert told[12]["environments"]["corridor"]["episodes_seen"] == 12
    seen = Replies().learn(trajectories[place] for place in order[:8])
    assert Replies.load(run / "model-at-7").forms == Replies.load(_saved(seen, run)).forms
    assert Replies.load(run / "model-at-7").forms != Replies.load(run / "model").forms


def _saved(replies: Replies, run: Path) -> Path:
    folder = run / "hand"
    folder.mkdir(exist_ok=True)
    replies.save(folder)
    return folder


def test_a_kill_after_a_snapshot_changes_none(run: Path, data: Path, config: TrainConfig, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    told = command(data, out, config, schedule="constant", snapshots="[7,12,20]", save_minutes=1e-9)
    process = subprocess.Popen(
        [sys.executable, "-c", "from worldloom.cli import main; main()", *told], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    kill_when(process, (out / "model-at-12").exists, seconds=500)
    assert not (out / "train.json").exists()
    kept = (out / "model-at-7" / "model.safetensors").stat().st_mtime_ns
    half = out / "model-at-20.part"  # as a kill within a save would leave it
    half.mkdir(exist_ok=True)
    (half / "half").write_text("")
    train([data], out, replace(config, save_minutes=1e-9))
    assert_same(out, run)
    assert (out / "model-at-7" / "model.safetensors").stat().st_mtime_ns == kept
    for count in (7, 12, 20):
        assert same_weights(out / f"model-at-{count}", run / f"model-at-{count}")
    assert not (out / "model-at-20" / "half").exists()


def test_a_snapshot_of_an_adapter_is_a_whole_model_and_training_goes_on(
    data: Path, config: TrainConfig, tmp_path: Path
) -> None:
    train([data], tmp_path / "a", replace(config, lora_rank=4, snapshots=(8, 20)))
    train([data], tmp_path / "b", replace(config, lora_rank=4, steps=2, snapshots=(8,)))
    assert same_weights(tmp_path / "a" / "model-at-8", tmp_path / "b" / "model")
    assert same_weights(tmp_path / "a" / "model-at-20", tmp_path / "a" / "model")
    assert not same_weights(tmp_path / "a" / "model-at-8", tmp_path / "a" / "model")


def test_more_episodes_than_there_are_are_refused(data: Path, config: TrainConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a snapshot after 30 episodes, but training has 24; collect more"):
        train([data], tmp_path / "run", replace(config, epochs=2, snapshots=(3, 30)))
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="snapshots has 0; it must be numbers of episodes"):
        replace(config, snapshots=(0, 3))


def test_the_setting_is_read_and_described() -> None:
    assert train_config(None, {"snapshots": [25, 50]}).snapshots == (25, 50)
    assert "snapshots=null (NUMBER, ... or null)" in described()
