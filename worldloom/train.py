"""Stage 2: trajectories -> world model, by supervised fine-tuning on transformers' own Trainer."""

import json
import logging
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from worldloom.collect import key
from worldloom.config import TrainConfig
from worldloom.errors import ContextOverflow, DataError, ProtocolError
from worldloom.lm.hf import load_model, load_tokenizer, window
from worldloom.lm.replies import Replies
from worldloom.runs import open_run, read_json, write_json
from worldloom.tokens import ChatFormat, Encoded, Overflow
from worldloom.trainer import WorldTrainer
from worldloom.trajectory import Trajectory, read

logger = logging.getLogger(__name__)


def train(data: Sequence[Path], out: Path, config: TrainConfig | None = None) -> dict[str, Any]:
    """Fine-tune a language model on the trajectories of some files, and write it to ``out/model``.

    What the environment usually replied goes with it (``replies.json``), for drafting answers.

    Started again with the same settings it goes on from its last whole checkpoint; a finished run is left alone.
    Runs on one device as it is, on several under ``accelerate launch``.

    Returns:
        The ``train`` part of ``metrics.json``; also written to ``out/train.json``, the loss curve to
        ``out/loss.json`` as [step, loss per token].

    Raises:
        DataError: no usable trajectory.
        ConfigError: a setting is out of range, or ``out`` holds a run with others.
        ModelError: the model cannot be loaded.
    """
    config = config or TrainConfig()
    trajectories = load_all(data)
    open_run(out, {"stage": "train", "data": [path.as_posix() for path in data], **asdict(config)})
    if (out / "train.json").exists():
        found: dict[str, Any] = read_json(out / "train.json")
        return found
    tokenizer = load_tokenizer(config.model)
    model = load_model(config.model)
    episodes, counts = prepare(trajectories, ChatFormat(tokenizer), config.max_tokens or window(model), config.overflow)
    trainer = WorldTrainer.of(_with_lora(model, config), episodes, out / "checkpoints", config)
    trainer.train(resume_from_checkpoint=last_checkpoint(out / "checkpoints"))
    return _finish(trainer, tokenizer, out, counts, trajectories)


def load_all(data: Sequence[Path]) -> list[Trajectory]:
    """All trajectories of some files, in an order that does not depend on how they were collected.

    Raises:
        DataError: a file cannot be read, or there is none in them.
    """
    found = sorted((t for path in data for t in read(path)), key=lambda t: (t.env.name, *map(str, key(t))))
    usable = [t for t in found if t.steps]
    if not usable:
        raise DataError("holds no trajectory with a step; collect some first", data[0] if data else None)
    return usable


def prepare(
    trajectories: Sequence[Trajectory], chat: ChatFormat, budget: int, overflow: Overflow
) -> tuple[list[Encoded], dict[str, int]]:
    """Tokens of each trajectory that fits, and what was counted on the way.

    Returns:
        The encoded episodes, and {"trajectories", "tokens", "loss_tokens", "too_long", "unsayable", "steps_left_out"};
        ``unsayable`` ones hold an observation that the text protocol cannot say.

    Raises:
        DataError: nothing fits.
    """
    episodes, too_long, unsayable = [], 0, 0
    for trajectory in trajectories:
        try:
            episodes.append(chat.encode(trajectory, budget, overflow))
        except ProtocolError as error:
            too_long += isinstance(error, ContextOverflow)
            unsayable += not isinstance(error, ContextOverflow)
            logger.warning("left out: task %r: %s", trajectory.task.id, error)
    usable = [episode for episode in episodes if episode.spans]
    if not usable:
        raise DataError(f"none of {len(trajectories)} trajectories can be used in {budget} tokens; raise max_tokens")
    return usable, {
        "trajectories": len(usable),
        "tokens": sum(len(e.input_ids) for e in usable),
        "loss_tokens": sum(span.stop - span.start for e in usable for span in e.spans),
        "too_long": too_long + len(episodes) - len(usable),
        "unsayable": unsayable,
        "steps_left_out": sum(e.left_out for e in episodes),
    }


def _with_lora(model: Any, config: TrainConfig) -> Any:
    if config.lora_rank is None:
        return model
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(
        r=config.lora_rank, lora_alpha=config.lora_alpha, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    return get_peft_model(model, lora)


def last_checkpoint(folder: Path) -> str | None:
    """The newest whole checkpoint; one that a kill left half-written is removed."""
    for path in sorted(folder.glob("checkpoint-*"), key=lambda p: int(p.name.rpartition("-")[2]), reverse=True):
        try:
            json.loads((path / "trainer_state.json").read_text())  # written last
            return str(path)
        except (OSError, ValueError):
            logger.warning("%s is not whole (a stop came while it was written); removed", path)
            shutil.rmtree(path)
    return None


def _finish(
    trainer: WorldTrainer, tokenizer: Any, out: Path, counts: dict[str, int], logged: Sequence[Trajectory]
) -> dict[str, Any]:
    history = [entry for entry in trainer.state.log_history if "loss" in entry]
    seconds = trainer.clock.seconds()
    trained = trainer.accelerator.unwrap_model(trainer.model)
    parameters = sum(p.numel() for p in trained.parameters() if p.requires_grad)
    if trainer.config.lora_rank is not None:
        trained.save_pretrained(out / "adapter")
        trainer.model = trained.merge_and_unload()
    trainer.save_model(str(out / "model"))
    share = min(trainer.state.epoch or 0.0, trainer.config.epochs)
    metrics = {
        **counts,
        "trajectories_seen": round(counts["trajectories"] * min(share, 1.0)),
        "tokens_seen": round(counts["tokens"] * share),
        "epochs": round(share, 3),
        "steps": trainer.state.global_step,
        "seconds": round(seconds, 1),
        "tokens_per_second": round(counts["tokens"] * share / seconds, 1),
        "trainable_parameters": parameters,
        "precision": "bfloat16" if trainer.args.bf16 else "float32",
        "loss_first": history[0]["loss"],
        "loss_last": sum(entry["loss"] for entry in history[-10:]) / len(history[-10:]),
    }
    if trainer.is_world_process_zero():
        tokenizer.save_pretrained(out / "model")
        Replies().learn(logged).save(out / "model")
        write_json(out / "loss.json", [[entry["step"], entry["loss"]] for entry in history])
        write_json(out / "train.json", metrics)
        shutil.rmtree(out / "checkpoints", ignore_errors=True)
    return metrics
