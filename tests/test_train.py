"""Training's mechanics on a tiny model: budgets, kills, processes, and the loss itself."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.envs.corridor import Corridor
from tests.killing import kill_when
from worldloom.agents.gold import GoldFollower
from worldloom.errors import ConfigError, DataError, ModelError
from worldloom.lm.hf import load_model, load_tokenizer
from worldloom.rollout import rollout
from worldloom.runs import read_json
from worldloom.tokens import ChatFormat
from worldloom.train import TrainConfig, last_checkpoint, load_all, prepare, train
from worldloom.trainer import WorldTrainer, pad
from worldloom.trajectory import EnvRef, Step, TaskRef, Trajectory, write

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def episodes() -> list[Trajectory]:
    return [rollout(Corridor(), GoldFollower(0.3), f"train-{n}", split="train", max_steps=8) for n in range(12)]


@pytest.fixture(scope="module")
def data(episodes: list[Trajectory], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "trajectories.jsonl"
    write(path, episodes)
    return path


@pytest.fixture(scope="module")
def config(tiny_lm_folder: Path) -> TrainConfig:
    return TrainConfig(
        model=str(tiny_lm_folder), steps=8, epochs=100, learning_rate=5e-3, warmup_steps=2, precision="float32"
    )


def command(data: Path, out: Path, config: TrainConfig, **changes: Any) -> list[str]:
    told = {"model": config.model, "steps": config.steps, "epochs": config.epochs, "warmup_steps": config.warmup_steps,
            "learning_rate": config.learning_rate, "precision": config.precision, **changes}  # fmt: skip
    return ["train", str(data), "--out", str(out), *(part for k, v in told.items() for part in ("--set", f"{k}={v}"))]


def weights(out: Path) -> dict[str, torch.Tensor]:
    return dict(load_model(out).state_dict())


@pytest.fixture(scope="module")
def undisturbed(data: Path, config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed")
    train([data], out, config)
    return out


def assert_same(out: Path, other: Path) -> None:
    """The same loss curve and the same weights."""
    curve, expected = read_json(out / "loss.json"), read_json(other / "loss.json")
    assert [step for step, _ in curve] == [step for step, _ in expected]
    assert [loss for _, loss in curve] == pytest.approx([loss for _, loss in expected], abs=2e-4)
    ours, theirs = weights(out), weights(other)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-3, atol=1e-4)


def test_loss_falls_and_the_run_folder_is_a_model(
    undisturbed: Path, data: Path, config: TrainConfig, episodes: list[Trajectory]
) -> None:
    metrics = read_json(undisturbed / "train.json")
    curve = read_json(undisturbed / "loss.json")
    assert [step for step, _ in curve] == list(range(1, 9))
    assert curve[0][1] == pytest.approx(10.8, abs=0.2)  # ln 49152: it knows nothing yet
    assert curve[-1][1] < 0.85 * curve[0][1]
    chat = ChatFormat(load_tokenizer(undisturbed))
    encoded = [chat.encode(t, 512) for t in episodes]
    assert metrics["trajectories"] == 12
    assert metrics["tokens"] == sum(len(e.input_ids) for e in encoded)
    assert metrics["loss_tokens"] == sum(label != -100 for e in encoded for label in e.labels)
    assert (metrics["steps"], metrics["too_long"], metrics["steps_left_out"]) == (8, 0, 0)
    assert metrics["epochs"] == pytest.approx(8 * 4 / 12, abs=0.01)
    assert metrics["precision"] == "float32"
    assert metrics["loss_first"] == curve[0][1]
    assert not (undisturbed / "checkpoints").exists()
    before = (undisturbed / "model" / "model.safetensors").stat().st_mtime_ns
    assert train([data], undisturbed, config) == metrics  # a finished run is left alone
    assert (undisturbed / "model" / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(ConfigError, match=r"other settings \(steps: 8 there, 9 now\)"):
        train([data], undisturbed, replace(config, steps=9))


def test_the_learning_rate_follows_warmup_and_schedule(data: Path, config: TrainConfig, tmp_path: Path) -> None:
    """Schedules share the full rate of the first step and part afterwards."""
    curves = {}
    for schedule in ("constant", "cosine", "linear"):
        train([data], tmp_path / schedule, replace(config, steps=4, schedule=schedule, warmup_steps=1))
        curves[schedule] = [loss for _, loss in read_json(tmp_path / schedule / "loss.json")]
    assert all(curve[0] == curves["constant"][0] for curve in curves.values())
    assert curves["constant"][1] == curves["cosine"][1]  # the first step is at the full rate in all
    assert curves["constant"][3] < curves["cosine"][3]
    assert curves["linear"][3] != curves["cosine"][3]


def test_a_kill_in_mid_run_ends_in_the_same_model(
    data: Path, config: TrainConfig, undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "killed"
    code = "from worldloom.cli import main; main()"
    arguments = command(data, out, config, save_minutes=1e-9)
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=ROOT, stderr=subprocess.DEVNULL)
    kill_when(process, (out / "checkpoints" / "checkpoint-3" / "trainer_state.json").exists)
    assert not (out / "train.json").exists()
    half = out / "checkpoints" / "checkpoint-7"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")  # as a kill within a save would leave it
    done = train([data], out, replace(config, save_minutes=1e-9))
    assert done["steps"] == 8
    assert_same(out, undisturbed)
    assert done["seconds"] > 0


def test_a_half_written_checkpoint_is_passed_over(tmp_path: Path) -> None:
    for number, state in ((2, "{}"), (10, '{"step": 1'), (9, None)):
        path = tmp_path / f"checkpoint-{number}"
        path.mkdir()
        if state is not None:
            (path / "trainer_state.json").write_text(state)
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-2")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-2"]
    assert last_checkpoint(tmp_path / "none") is None


def test_two_processes_give_the_same_curve_as_one(
    data: Path, config: TrainConfig, undisturbed: Path, tmp_path: Path
) -> None:
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2"]
    launch += ["--main_process_port", "0", "-m", "worldloom"]
    done = subprocess.run(
        [*launch, *command(data, tmp_path / "two", config, minutes=30)],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert_same(tmp_path / "two", undisturbed)
    ours, alone = read_json(tmp_path / "two" / "train.json"), read_json(undisturbed / "train.json")
    assert {k: ours[k] for k in ("trajectories", "tokens", "loss_tokens", "steps", "epochs")} == {
        k: alone[k] for k in ("trajectories", "tokens", "loss_tokens", "steps", "epochs")
    }


def test_micro_batches_of_two_learn_the_same(data: Path, config: TrainConfig, tmp_path: Path) -> None:
    """All twelve episodes in one step: how they are cut into micro-batches does not matter."""
    losses = []
    for size in (1, 2, 4):
        out = tmp_path / str(size)
        train([data], out, replace(config, steps=2, batch=12, micro_batch=size))
        losses.append([loss for _, loss in read_json(out / "loss.json")])
    assert losses[1] == pytest.approx(losses[0], abs=2e-4)
    assert losses[2] == pytest.approx(losses[0], abs=2e-4)


def test_the_loss_is_the_models_own_over_answer_tokens(
    episodes: list[Trajectory], config: TrainConfig, tmp_path: Path
) -> None:
    """Logits are computed at answers only; value and gradients are those of transformers' own loss."""
    chat = ChatFormat(load_tokenizer(config.model))
    model = load_model(config.model)
    encoded, _ = prepare(episodes[:3], chat, 512, "cut")
    batch = pad([{"input_ids": e.input_ids, "labels": e.labels} for e in encoded])
    assert (batch["attention_mask"] == 0).any()
    trainer = WorldTrainer.of(model, encoded, tmp_path, config)
    model.eval()
    heads = []
    handle = model.lm_head.register_forward_hook(lambda module, given, logits: heads.append(logits.shape))
    ours = trainer.compute_loss(model, batch, num_items_in_batch=(batch["labels"] != -100).sum())
    handle.remove()
    ours.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    plain = model(**batch).loss
    plain.backward()
    assert ours.item() == pytest.approx(plain.item(), rel=1e-5)
    for name, p in model.named_parameters():
        torch.testing.assert_close(gradients[name], p.grad, rtol=1e-3, atol=1e-6)
    assert heads == [((batch["labels"] != -100).sum(), model.config.vocab_size)]
    assert model(input_ids=batch["input_ids"]).logits.shape[:2] == batch["input_ids"].shape  # the hook is gone


def test_lora_trains_an_adapter_and_gives_a_merged_model(data: Path, config: TrainConfig, tmp_path: Path) -> None:
    from peft import PeftModel

    metrics = train([data], tmp_path, replace(config, steps=3, lora_rank=4))
    # Rank 4 on q, k, v, o, gate, up and down of two layers: 4 x (inputs + outputs) of each.
    a_layer = (64 + 64) + (64 + 32) * 2 + (64 + 64) + (64 + 128) * 3
    assert metrics["trainable_parameters"] == 2 * 4 * a_layer
    base, merged = load_model(config.model), load_model(tmp_path)
    ids = torch.arange(1, 40)[None]
    adapted = PeftModel.from_pretrained(load_model(config.model), tmp_path / "adapter")
    with torch.inference_mode():
        told = merged(ids).logits
        torch.testing.assert_close(adapted(ids).logits, told, rtol=1e-3, atol=1e-3)
        assert not torch.allclose(base(ids).logits, told, atol=1e-3)
    assert load_tokenizer(tmp_path).chat_template


def test_a_budget_of_time_ends_it_and_the_rate_goes_to_zero(data: Path, config: TrainConfig, tmp_path: Path) -> None:
    started = time.monotonic()
    metrics = train([data], tmp_path, replace(config, steps=None, epochs=10_000, minutes=0.03))
    assert 1.8 <= metrics["seconds"] < 10
    assert time.monotonic() - started < 40
    assert 1 <= metrics["steps"] < 30_000


def episode(words: int) -> Trajectory:
    step = Step(action="look", observation="A room.")
    return Trajectory(
        env=EnvRef(name="e"), task=TaskRef(id=f"w{words}"), initial_observation="word " * words, steps=[step]
    )


def test_what_is_longer_than_the_window_is_left_out_and_counted(
    config: TrainConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.jsonl"
    write(path, [episode(10), episode(600), episode(20)])
    metrics = train([path], tmp_path / "run", replace(config, steps=1))  # the tiny model's window is 512 tokens
    assert (metrics["trajectories"], metrics["too_long"]) == (2, 1)
    assert "left out: task 'w600'" in caplog.text and "budget of 512" in caplog.text
    write(path, [episode(600)])
    with pytest.raises(DataError, match="none of 1 trajectories can be used in 512 tokens; take a model with a longer"):
        train([path], tmp_path / "other", replace(config, steps=1, max_tokens=600))
    assert "max_tokens is 600, but the model's window is 512, which counts" in caplog.text
    with pytest.raises(DataError, match="none of 1 trajectories can be used in 64 tokens; raise max_tokens"):
        train([path], tmp_path / "other", replace(config, steps=1, max_tokens=64))
    assert not (tmp_path / "other").exists()  # so that the corrected command is not refused


def test_steps_that_do_not_fit_are_counted(config: TrainConfig) -> None:
    chat = ChatFormat(load_tokenizer(config.model))
    step = Step(action="look", observation="A room.")
    long = episode(10).model_copy(update={"steps": [step] * 40})
    full = len(chat.encode(long, 10_000).input_ids)
    for overflow, expected in (("cut", (1, 0)), ("window", (1, 0)), ("drop", None)):
        if expected is None:
            with pytest.raises(DataError, match="none of 1"):
                prepare([long], chat, full - 1, overflow)
        else:
            usable, counts = prepare([long], chat, full - 1, overflow)
            assert (counts["steps_left_out"], counts["too_long"]) == expected
            assert len(usable[0].spans) == 39


def test_data_without_a_step_and_missing_files_are_named(config: TrainConfig, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write(path, [episode(3).model_copy(update={"steps": []})])
    with pytest.raises(DataError, match=r"t\.jsonl: holds no trajectory with a step; collect some first"):
        train([path], tmp_path / "run", config)
    with pytest.raises(DataError, match=r"none\.jsonl: cannot be read"):
        train([path, tmp_path / "none.jsonl"], tmp_path / "run", config)
    assert not (tmp_path / "run").exists()  # a mistake leaves no run behind


def test_the_order_of_the_data_does_not_depend_on_how_it_was_collected(data: Path, tmp_path: Path) -> None:
    shuffled = tmp_path / "t.jsonl"
    write(shuffled, sorted(load_all([data]), key=lambda t: t.task.id[::-1], reverse=True))
    assert load_all([shuffled]) == load_all([data])


def test_a_model_folder_without_a_tokenizer_is_named(data: Path, config: TrainConfig, tmp_path: Path) -> None:
    load_model(config.model).save_pretrained(tmp_path / "model-only")
    with pytest.raises(ModelError, match=r"model-only has no tokenizer; copy tokenizer\.json"):
        train([data], tmp_path / "run", replace(config, model=str(tmp_path / "model-only")))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": 0}, "batch is 0; it must be above 0"),
        ({"learning_rate": -1.0}, "learning_rate is -1.0"),
        ({"minutes": float("nan")}, "minutes is nan"),
        ({"epochs": float("inf")}, "epochs is inf"),
        ({"warmup_steps": -1}, "warmup_steps is -1; it must be 0 or more"),
        ({"minutes": 0.0}, "minutes is 0.0; it must be above 0, or left out"),
        ({"batch": 4, "micro_batch": 3}, r"batch \(4\) must be a multiple of micro_batch \(3\)"),
    ],
)
def test_settings_out_of_range_are_refused(config: TrainConfig, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train([], Path("never"), replace(config, **changes))


def test_an_episode_that_cannot_be_said_is_counted_and_the_others_are_used(tiny_lm_folder: Path) -> None:
    odd = Step(action="read", observation="It says: [SUCCESS]")
    fine = Step(action="read", observation="It says: push")
    start = {"env": EnvRef(name="sign"), "task": TaskRef(id="1"), "initial_observation": "A sign."}
    found = [Trajectory(**start, steps=[step]) for step in (odd, fine)]
    usable, counts = prepare(found, ChatFormat(load_tokenizer(tiny_lm_folder)), 200, "cut")
    assert (len(usable), counts["unsayable"], counts["too_long"], counts["trajectories"]) == (1, 1, 0, 1)


def test_what_no_tokenizer_can_read_is_counted(tiny_lm_folder: Path) -> None:
    steps = [Step(action="read", observation=text) for text in ("half \ud800", "whole")]
    start = {"env": EnvRef(name="sign"), "task": TaskRef(id="1"), "initial_observation": "A sign."}
    found = [Trajectory(**start, steps=[step]) for step in steps]
    usable, counts = prepare(found, ChatFormat(load_tokenizer(tiny_lm_folder)), 200, "cut")
    assert (len(usable), counts["unsayable"]) == (1, 1)


def test_a_file_given_twice_or_of_another_kind_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"trajectories\.jsonl is given twice"):
        load_all([data, data.parent / "." / data.name])
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"messages": [{"role": "user", "content": "a"}]}\n')
    with pytest.raises(DataError, match=r"rows\.jsonl:1: is a row of a `messages` file.*protocol\.read_messages"):
        load_all([rows])
