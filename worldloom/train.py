"""Stage 2: trajectories -> world model, by supervised fine-tuning on transformers' own Trainer."""

import json
import logging
import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from worldloom.collect import key
from worldloom.errors import ConfigError, ContextOverflow, DataError
from worldloom.lm.hf import DEFAULT_MODEL, fast_bfloat16, load_model, load_tokenizer, window
from worldloom.lm.memory import keep_freed_memory
from worldloom.progress import progress
from worldloom.runs import open_run, read_json, write_json
from worldloom.tokens import ChatFormat, Encoded, Overflow
from worldloom.trajectory import Trajectory, read

logger = logging.getLogger(__name__)

Schedule = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True)
class TrainConfig:
    """How to train. Budgets: whichever of ``epochs``, ``steps`` and ``minutes`` is used up first ends it.

    The defaults are for SmolLM2-135M on a CPU; ``configs/`` has the paper's recipe (arXiv 2512.18832, appendix).
    """

    model: str = DEFAULT_MODEL
    epochs: float = 1.0
    steps: int | None = None
    minutes: float | None = None
    learning_rate: float = 5e-4
    schedule: Schedule = "cosine"
    warmup_steps: int = 10
    batch: int = 4  # episodes in one optimizer step, over all processes
    micro_batch: int = 1  # episodes in one forward pass of one process
    max_tokens: int | None = None  # an episode's budget; None is the model's window
    overflow: Overflow = "cut"
    max_grad_norm: float = 1.0
    weight_decay: float = 0.0
    precision: Literal["auto", "bfloat16", "float32"] = "auto"
    lora_rank: int | None = None  # None trains all weights
    lora_alpha: int = 32
    gradient_checkpointing: bool = False
    save_minutes: float = 10.0
    seed: int = 0


class Clock:
    """How much of the budget is used: the larger of the shares of steps and of time, in [0, 1]."""

    def __init__(self, minutes: float | None):
        self.budget = minutes * 60 if minutes is not None else None
        self.before = 0.0
        self.started = time.monotonic()
        self.total_steps = 1

    def seconds(self) -> float:
        """Seconds of training so far, those before a restart included."""
        return self.before + time.monotonic() - self.started

    def share(self, step: int) -> float:
        """The share used after ``step`` optimizer steps."""
        time_share = self.seconds() / self.budget if self.budget else 0.0
        return min(1.0, max(step / self.total_steps, time_share))


def train(data: Sequence[Path], out: Path, config: TrainConfig | None = None) -> dict[str, Any]:
    """Fine-tune a language model on the trajectories of some files, and write it to ``out/model``.

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
    _check(config)
    trajectories = load_all(data)
    open_run(out, {"stage": "train", "data": [path.as_posix() for path in data], **asdict(config)})
    if (out / "train.json").exists():
        found: dict[str, Any] = read_json(out / "train.json")
        return found
    keep_freed_memory()
    tokenizer = load_tokenizer(config.model)
    model = load_model(config.model)
    episodes, counts = prepare(trajectories, ChatFormat(tokenizer), config.max_tokens or window(model), config.overflow)
    trainer = _WorldTrainer.of(_with_lora(model, config), episodes, out / "checkpoints", config)
    trainer.train(resume_from_checkpoint=last_checkpoint(out / "checkpoints"))
    return _finish(trainer, tokenizer, out, counts)


def _check(config: TrainConfig) -> None:
    for name in ("epochs", "learning_rate", "batch", "micro_batch", "save_minutes"):
        if getattr(config, name) <= 0:
            raise ConfigError(f"{name} is {getattr(config, name)}; it must be above 0")
    for name in ("steps", "minutes", "max_tokens", "lora_rank"):
        if (value := getattr(config, name)) is not None and value <= 0:
            raise ConfigError(f"{name} is {value}; it must be above 0, or left out")
    if config.batch % config.micro_batch:
        raise ConfigError(f"batch ({config.batch}) must be a multiple of micro_batch ({config.micro_batch})")


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
        The encoded episodes, and {"trajectories", "tokens", "loss_tokens", "too_long", "steps_left_out"}.

    Raises:
        DataError: nothing fits.
    """
    episodes, too_long = [], 0
    for trajectory in trajectories:
        try:
            episodes.append(chat.encode(trajectory, budget, overflow))
        except ContextOverflow as error:
            too_long += 1
            logger.warning("left out: %s", error)
    usable = [episode for episode in episodes if episode.spans]
    if not usable:
        raise DataError(f"none of {len(trajectories)} trajectories fits into {budget} tokens; raise max_tokens")
    return usable, {
        "trajectories": len(usable),
        "tokens": sum(len(e.input_ids) for e in usable),
        "loss_tokens": sum(span.stop - span.start for e in usable for span in e.spans),
        "too_long": too_long + len(episodes) - len(usable),
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


class _WorldTrainer(Trainer):  # type: ignore[misc]
    """The Trainer with logits only where there is loss, and a budget of time as well as of steps."""

    clock: Clock
    config: TrainConfig

    @classmethod
    def of(cls, model: Any, episodes: Sequence[Encoded], folder: Path, config: TrainConfig) -> "_WorldTrainer":
        rows = [{"input_ids": e.input_ids, "labels": e.labels} for e in episodes]
        made = cls(model=model, args=_arguments(folder, config), train_dataset=rows, data_collator=pad)
        made.config, made.clock = config, Clock(config.minutes)
        made.loss_is_scaled_for_ga = True
        made.remove_callback(PrinterCallback)
        made.add_callback(_Budget(made.clock, config))
        return made

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        self.clock.total_steps = num_training_steps
        shape = SHAPES[self.config.schedule]

        def factor(step: int) -> float:
            return min(1.0, (step + 1) / self.config.warmup_steps) * shape(self.clock.share(step))

        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer or self.optimizer, factor)
        return self.lr_scheduler

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Mean cross-entropy per answer token of the whole optimizer step, over all processes."""
        targets = inputs["labels"][:, 1:]
        counts = targets != -100
        with _only_at(self.accelerator.unwrap_model(model), counts):
            logits = model(
                input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], use_cache=False
            ).logits
        loss = torch.nn.functional.cross_entropy(logits.float(), targets[counts], reduction="sum")
        if num_items_in_batch is None:
            num_items_in_batch = counts.sum() * self.args.gradient_accumulation_steps
        return loss * self.accelerator.num_processes / num_items_in_batch

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log({**logs, "seconds": self.clock.seconds()}, start_time)


class _only_at:
    """Within it, a model computes logits at the marked positions only, shape (marked, vocabulary)."""

    def __init__(self, model: Any, counts: torch.Tensor):
        self.head, self.counts = model.get_output_embeddings(), counts

    def __enter__(self) -> None:
        self.hook = self.head.register_forward_pre_hook(lambda _, given: (given[0][:, :-1][self.counts],))

    def __exit__(self, *exc: object) -> None:
        self.hook.remove()


SHAPES: dict[str, Callable[[float], float]] = {
    "constant": lambda share: 1.0,
    "linear": lambda share: 1.0 - share,
    "cosine": lambda share: 0.5 * (1.0 + math.cos(math.pi * share)),
}


def pad(rows: Sequence[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    """A batch of shape (rows, longest), padded on the right; padding is not attended to and carries no loss."""
    longest = max(len(row["input_ids"]) for row in rows)

    def filled(key: str, fill: int) -> torch.Tensor:
        return torch.tensor([row[key] + [fill] * (longest - len(row[key])) for row in rows])

    mask = torch.tensor([[1] * len(row["input_ids"]) + [0] * (longest - len(row["input_ids"])) for row in rows])
    return {"input_ids": filled("input_ids", 0), "labels": filled("labels", -100), "attention_mask": mask}


def _arguments(folder: Path, config: TrainConfig) -> TrainingArguments:
    from accelerate import PartialState

    processes = PartialState().num_processes
    if config.batch % (config.micro_batch * processes):
        raise ConfigError(f"batch ({config.batch}) must be a multiple of micro_batch x processes ({processes})")
    bfloat16 = config.precision == "bfloat16" or (config.precision == "auto" and fast_bfloat16())
    return TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=config.epochs,
        max_steps=config.steps or -1,
        per_device_train_batch_size=config.micro_batch,
        gradient_accumulation_steps=config.batch // (config.micro_batch * processes),
        learning_rate=config.learning_rate,
        max_grad_norm=config.max_grad_norm,
        weight_decay=config.weight_decay,
        bf16=bfloat16,
        use_cpu=not torch.cuda.is_available(),
        gradient_checkpointing=config.gradient_checkpointing,
        train_sampling_strategy="group_by_length" if config.micro_batch > 1 else "random",
        logging_steps=1,
        save_strategy="no",
        save_total_limit=2,
        seed=config.seed,
        data_seed=config.seed,
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        ddp_find_unused_parameters=False,
    )


class _Budget(TrainerCallback):  # type: ignore[misc]
    """Ends training when the budget is used up, asks for checkpoints by the clock, and shows progress."""

    def __init__(self, clock: Clock, config: TrainConfig):
        self.clock, self.config, self.saved = clock, config, 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.log_history:
            self.clock.before = state.log_history[-1]["seconds"]
        self.clock.started = time.monotonic()
        self.saved = self.clock.seconds()
        self.shown = (
            progress("train", state.max_steps, "steps", state.global_step) if state.is_local_process_zero else None
        )
        self.advance = self.shown.__enter__() if self.shown else None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.clock.share(state.global_step) >= 1.0:
            control.should_training_stop = True
        elif self.clock.seconds() - self.saved > self.config.save_minutes * 60:
            self.saved, control.should_save = self.clock.seconds(), True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if self.advance and logs and "loss" in logs:
            budget = f", {self.clock.seconds() / 60:.1f}/{self.config.minutes:g} min" if self.config.minutes else ""
            self.advance(1, f"loss {logs['loss']:.4f}{budget}")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.shown:
            self.shown.__exit__(None, None, None)


def _finish(trainer: _WorldTrainer, tokenizer: Any, out: Path, counts: dict[str, int]) -> dict[str, Any]:
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
        write_json(out / "loss.json", [[entry["step"], entry["loss"]] for entry in history])
        write_json(out / "train.json", metrics)
        shutil.rmtree(out / "checkpoints", ignore_errors=True)
    return metrics
