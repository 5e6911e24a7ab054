"""Training on several environments at once, and one after another, on a tiny model."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.envs.corridor import Corridor
from tests.killing import kill_when
from tests.test_train import assert_same, weights
from worldloom.agents.gold import GoldFollower
from worldloom.config import TrainConfig, train_config
from worldloom.errors import ConfigError, DataError
from worldloom.evaluate.report import write_report
from worldloom.evaluate.run import evaluate
from worldloom.lineage import training_of
from worldloom.lm.hf import load_tokenizer
from worldloom.lm.replies import Action, Replies
from worldloom.lm.session import LocalLM
from worldloom.naming import Naming
from worldloom.rollout import rollout
from worldloom.runs import read_json, read_records, write_json
from worldloom.train import train
from worldloom.trajectory import EnvRef, Step, TaskRef, Trajectory, write

ROOT = Path(__file__).parents[1]
SHARES = {"corridor": 1, "shaft": 3}


class Shaft(Corridor):
    """The corridor under another name and version."""

    name, version = "shaft", "7"


def played(env: type[Corridor], count: int) -> list[Trajectory]:
    return [rollout(env(), GoldFollower(0.3), f"train-{n}", split="train", max_steps=8) for n in range(count)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Eight episodes of the corridor and four of the shaft."""
    folder = tmp_path_factory.mktemp("data")
    write(folder / "corridor.jsonl", played(Corridor, 8))
    write(folder / "shaft.jsonl", played(Shaft, 4))
    return [folder / "corridor.jsonl", folder / "shaft.jsonl"]


@pytest.fixture(scope="module")
def config(tiny_lm_folder: Path) -> TrainConfig:
    return TrainConfig(
        model=str(tiny_lm_folder), steps=6, epochs=100, warmup_steps=2, precision="float32", mixture=SHARES
    )


@pytest.fixture(scope="module")
def mixed(data: list[Path], config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("mixed")
    train(data, out, config)
    return out


def test_what_is_counted_is_what_the_model_got(
    data: list[Path], config: TrainConfig, mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from worldloom import trainer

    got: list[list[int]] = []
    monkeypatch.setattr(
        trainer, "pad", lambda rows, pad=trainer.pad: got.extend(r["input_ids"] for r in rows) or pad(rows)
    )
    metrics = train(data, tmp_path, config)
    got = got[:24]  # the loader fetches one ahead
    texts = load_tokenizer(mixed).batch_decode(got)
    assert [sum("Environment: shaft\n" in t for t in texts[n : n + 4]) for n in range(0, 24, 4)] == [3] * 6
    assert sum("Environment: corridor\n" in t for t in texts) == 6
    assert metrics["tokens_seen"] == sum(map(len, got))
    assert metrics["trajectories_seen"] == len({tuple(ids) for ids in got}) == 6 + 4
    about = metrics["environments"]
    assert {env: (about[env]["trajectories"], about[env]["episodes_seen"]) for env in about} == {
        "corridor": (8, 6), "shaft": (4, 18),
    }  # fmt: skip
    assert (about["corridor"]["versions"], about["shaft"]["versions"]) == (["1"], ["7"])
    assert metrics["tokens"] == about["corridor"]["tokens"] + about["shaft"]["tokens"]
    assert metrics["epochs"] == 2.0  # an epoch is as many episodes as there are: twelve
    assert metrics == read_json(tmp_path / "train.json") == read_json(tmp_path / "model" / "train.json")
    assert_same(tmp_path, mixed)


def test_a_mixture_is_named_and_says_so_to_whoever_loads_it(mixed: Path) -> None:
    assert read_json(mixed / "model" / "protocol.json") == {
        "names_environment": True, "environments": ["corridor", "shaft"], "learns": "world",
    }  # fmt: skip
    lm = LocalLM(str(mixed))
    assert "Environment: shaft\nA room." in lm.chat.tokenizer.decode(lm.session(None, "A room.", "shaft").ids)


def test_evaluation_says_the_name_by_itself(mixed: Path, data: list[Path], tmp_path: Path) -> None:
    """Teacher-forced contexts are as long as the training texts, and imagined episodes begin as they do."""
    metrics = evaluate(tmp_path / "run", str(mixed / "model"), data=data[1])
    assert metrics["train"]["environments"]["shaft"]["episodes_seen"] == 18
    lm = LocalLM(str(mixed))
    lm.chat.naming = Naming()
    unnamed = [lm.chat.encode(t, 512).spans[0].start for t in played(Shaft, 4)]
    told = {r["task_id"]: r["steps"][0]["context_tokens"] for r in read_records(tmp_path / "run" / "records.jsonl")}
    line = len(lm.chat.tokenizer("Environment: shaft\n")["input_ids"])
    assert [told[f"train-{n}"] for n in range(4)] == [start + line for start in unnamed]


def test_a_kill_in_the_second_epoch_ends_in_the_same_model(
    data: list[Path], config: TrainConfig, mixed: Path, tmp_path: Path
) -> None:
    out, settings = tmp_path / "killed", tmp_path / "settings.yaml"
    settings.write_text("".join(f"{k}: {getattr(config, k)}\n" for k in ("model", "steps", "epochs", "warmup_steps")))
    told = ["--set", "precision=float32", "--set", "save_minutes=1e-9", "--set", 'mixture={"corridor": 1, "shaft": 3}']
    arguments = ["train", *map(str, data), "--out", str(out), "--config", str(settings), *told]
    code = "from worldloom.cli import main; main()"
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=ROOT, stderr=subprocess.DEVNULL)
    kill_when(process, (out / "checkpoints" / "checkpoint-4" / "trainer_state.json").exists)
    assert not (out / "train.json").exists()
    done = train(data, out, replace(config, save_minutes=1e-9))
    assert_same(out, mixed)
    whole = read_json(mixed / "train.json")
    assert {k: done[k] for k in ("environments", "tokens_seen", "epochs")} == {
        k: whole[k] for k in ("environments", "tokens_seen", "epochs")
    }


def test_without_weights_all_episodes_count_alike(data: list[Path], config: TrainConfig, tmp_path: Path) -> None:
    plain = replace(config, mixture=None, name_environment=False, steps=3)
    metrics = train(data, tmp_path, plain)
    about = metrics["environments"]
    assert {env: about[env]["episodes_seen"] for env in about} == {"corridor": 8, "shaft": 4}
    assert (metrics["trajectories_seen"], metrics["tokens_seen"]) == (12, metrics["tokens"])
    assert Naming.load(tmp_path / "model") == Naming(False, ("corridor", "shaft"))


def test_weights_that_do_not_fit_leave_no_run_behind(data: list[Path], config: TrainConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'shft', of which the data holds no episode; did you mean 'shaft'"):
        train(data, tmp_path / "run", replace(config, mixture={"corridor": 1, "shft": 1}))
    with pytest.raises(ConfigError, match="no weight for corridor"):
        train(data, tmp_path / "run", replace(config, mixture={"shaft": 1}))
    with pytest.raises(ConfigError, match="mixture gives 'shaft' the weight 0; it must be above 0"):
        replace(config, mixture={"shaft": 0})
    with pytest.raises(ConfigError, match=r"training setting mixture\.shaft: .*number"):
        train_config(values={"mixture": {"shaft": "much"}})
    assert not (tmp_path / "run").exists()


def test_an_environment_of_which_nothing_fits_is_named(data: list[Path], config: TrainConfig, tmp_path: Path) -> None:
    step = Step(action="look", observation="A room.")
    long = Trajectory(env=EnvRef(name="maze"), task=TaskRef(id="m"), initial_observation="word " * 600, steps=[step])
    write(tmp_path / "maze.jsonl", [long])
    with pytest.raises(DataError, match=r"none of 1 .* in 512 tokens; take a model with a longer window \(maze\)"):
        train([*data, tmp_path / "maze.jsonl"], tmp_path / "run", replace(config, mixture=None))


def continued(base: Path, data: list[Path], out: Path, config: TrainConfig) -> dict[str, Any]:
    return train(data, out, replace(config, model=str(base), steps=1, mixture=None))


def test_a_trained_model_is_trained_on_and_its_past_is_kept(
    data: list[Path], config: TrainConfig, tmp_path: Path
) -> None:
    corridor, shaft = data
    first = continued(Path(config.model), [corridor], tmp_path / "1", config)
    second = continued(tmp_path / "1", [shaft], tmp_path / "2", config)
    third = continued(tmp_path / "2" / "model", [corridor], tmp_path / "3", config)
    assert (first["base"], "before" in first) == (config.model, False)
    assert (second["base"], third["base"]) == (str(tmp_path / "1"), str(tmp_path / "2" / "model"))
    assert [past["base"] for past in third["before"]] == [config.model, str(tmp_path / "1")]
    assert [past["data"] for past in third["before"]] == [[str(corridor)], [str(shaft)]]
    assert [list(past["environments"]) for past in third["before"]] == [["corridor"], ["shaft"]]
    assert third["before"][1]["tokens_seen"] == second["tokens_seen"]
    assert third["before"][:1] == second["before"]
    assert training_of(tmp_path / "3") == training_of(tmp_path / "3" / "model") == third
    # What it does not say by itself: each was learnt without a name, and no other was there to be told from.
    assert Naming.load(tmp_path / "3" / "model") == Naming(False, ("corridor", "shaft"))


def test_the_weights_go_on_from_the_trained_ones(data: list[Path], config: TrainConfig, tmp_path: Path) -> None:
    """A second training at hardly any rate leaves what the first one learnt."""
    train(data[:1], tmp_path / "1", replace(config, steps=8, learning_rate=5e-3, mixture=None))
    metrics = train(
        data[:1], tmp_path / "2", replace(config, model=str(tmp_path / "1"), steps=2, learning_rate=1e-9, mixture=None)
    )
    before = read_json(tmp_path / "1" / "train.json")
    assert metrics["loss_first"] < 0.9 * before["loss_first"]
    one, two = weights(tmp_path / "1"), weights(tmp_path / "2")
    assert all((one[name] - two[name]).abs().max() < 1e-6 for name in one)


def test_replies_of_the_older_data_are_kept_and_added_to(data: list[Path], config: TrainConfig, tmp_path: Path) -> None:
    step = Step(action="ring bell", observation="It rings.")
    bell = Trajectory(env=EnvRef(name="bell"), task=TaskRef(id="b"), initial_observation="A bell.", steps=[step] * 3)
    write(tmp_path / "bell.jsonl", [bell])
    continued(Path(config.model), [tmp_path / "bell.jsonl"], tmp_path / "1", config)
    continued(tmp_path / "1", data[:1], tmp_path / "2", config)
    continued(tmp_path / "2", [tmp_path / "bell.jsonl"], tmp_path / "3", config)
    seen = [Replies.load(tmp_path / n / "model").walk(Action("ring bell")).seen for n in "123"]
    assert seen == [3, 3, 6]
    east = [Replies.load(tmp_path / n / "model").walk(Action("go east")).seen for n in "123"]
    assert east[0] == 0 and east[1] == east[2] > 0


def test_a_run_from_before_this_was_noted_is_read_by_its_settings(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", {"stage": "train", "model": "smollm2-135m", "data": ["a.jsonl"]})
    write_json(tmp_path / "train.json", {"steps": 5})
    write_json(tmp_path / "model" / "config.json", {"model_type": "llama"})
    expected = {"base": "smollm2-135m", "data": ["a.jsonl"], "steps": 5}
    assert training_of(tmp_path) == training_of(tmp_path / "model") == expected
    assert training_of(tmp_path / "none") is None


def test_the_report_lists_a_models_past(tmp_path: Path) -> None:
    past = {"base": "smollm2-135m", "data": ["old.jsonl"], "environments": {"corridor": {"versions": ["1", "2"]}}}
    train = {"base": "runs/1", "data": ["a.jsonl", "b.jsonl"], "before": [past]}
    page = write_report(tmp_path / "r.html", title="t", metrics={"train": train}, records=[]).read_text()
    for told in (
        "a.jsonl, b.jsonl",
        "before 1: base",
        "smollm2-135m",
        "before 1: environments: corridor: versions",
        "1, 2",
    ):
        assert told in page
