"""transformers' Trainer with logits only where there is loss, and a budget of time as well as of steps."""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from worldloom.config import TrainConfig
from worldloom.errors import ConfigError
from worldloom.lm.blocks import train_in_blocks
from worldloom.lm.hf import fast_bfloat16
from worldloom.mixture import MixedOrder
from worldloom.progress import progress
from worldloom.tokens import Encoded


class Clock:
    """How much of the budget is used: the larger of the shares of steps and of time, in [0, 1]."""

    def __init__(self, minutes: float | None):
        self.budget = minutes * 60 if minutes is not None else None
        self.before = 0.0
        self.started = time.monotonic()
        self.ticked = 0.0
        self.total_steps = 1

    def tick(self) -> None:
        """Take the time that ``share`` goes by: the main process's, so that all processes stop at the same step."""
        self.ticked = float(broadcast_object_list([self.seconds()])[0])

    def seconds(self) -> float:
        """Seconds of training so far, those before a restart included."""
        return self.before + time.monotonic() - self.started

    def share(self, step: int) -> float:
        """The share used after ``step`` optimizer steps, at the last tick."""
        time_share = self.ticked / self.budget if self.budget else 0.0
        return min(1.0, max(step / self.total_steps, time_share))


class WorldTrainer(Trainer):  # type: ignore[misc]
    """Make it with ``WorldTrainer.of``; ``clock`` says how much of the budget is used."""

    clock: Clock
    config: TrainConfig
    order: MixedOrder | None

    @classmethod
    def of(
        cls,
        model: Any,
        episodes: Sequence[Encoded],
        folder: Path,
        config: TrainConfig,
        order: MixedOrder | None = None,
    ) -> "WorldTrainer":
        """``order`` is that of the episodes, for several environments; by default the Trainer shuffles them."""
        rows = [{"input_ids": e.input_ids, "labels": e.labels} for e in episodes]
        made = cls(model=model, args=_arguments(folder, config), train_dataset=rows, data_collator=pad)
        made.config, made.clock, made.order = config, Clock(config.minutes), order
        made.loss_is_scaled_for_ga = True
        made.remove_callback(PrinterCallback)
        made.add_callback(_Budget(made.clock, config))
        if made.args.bf16 and made.args.use_cpu:
            train_in_blocks(model)
        if order is not None:
            made.add_callback(_Epochs(order, config.batch))
        return made

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return self.order if self.order is not None else super()._get_train_sampler(train_dataset)

    def episodes_taken(self, before: int = 0) -> int:
        """How many episodes the optimizer steps so far (but for the last ``before``) have had, those that came again
        counted again."""
        there: int = len(self.train_dataset)
        steps: int = self.state.global_step - before
        whole, rest = divmod(steps, math.ceil(there / self.config.batch))
        return whole * there + min(rest * self.config.batch, there)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        self.clock.total_steps = num_training_steps
        shape = SHAPES[self.config.schedule]

        def factor(step: int) -> float:
            return min(1.0, (step + 1) / max(1, self.config.warmup_steps)) * shape(self.clock.share(step))

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


class _Epochs(TrainerCallback):  # type: ignore[misc]
    """Tells the order its epoch. The Trainer does so too, but cannot reach it where several processes go on in the
    midst of an epoch."""

    def __init__(self, order: MixedOrder, batch: int):
        self.order, self.steps = order, math.ceil(len(order) / batch)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.order.set_epoch(state.global_step // self.steps)


class Snapshots(TrainerCallback):  # type: ignore[misc]
    """Calls ``keep`` with each of some numbers of episodes, at the first optimizer step that has had as many.

    It is called before a checkpoint of that step is written, so that a run that goes on from one lacks none.
    """

    def __init__(self, trainer: WorldTrainer, counts: Sequence[int], keep: Callable[[int], None]):
        self.trainer, self.counts, self.keep = trainer, sorted(counts), keep

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        before, now = self.trainer.episodes_taken(before=1), self.trainer.episodes_taken()
        for count in self.counts:
            if before < count <= now:
                self.keep(count)


class _Budget(TrainerCallback):  # type: ignore[misc]
    """Ends training when the budget is used up, asks for checkpoints by the clock, and shows progress."""

    def __init__(self, clock: Clock, config: TrainConfig):
        self.clock, self.config, self.saved = clock, config, 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.log_history:
            self.clock.before = state.log_history[-1]["seconds"]
        self.clock.started = time.monotonic()
        self.clock.tick()
        self.saved = self.clock.ticked
        self.shown = (
            progress("train", state.max_steps, "steps", state.global_step) if state.is_local_process_zero else None
        )
        self.advance = self.shown.__enter__() if self.shown else None

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.clock.tick()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.clock.share(state.global_step) >= 1.0:
            control.should_training_stop = True
        elif self.clock.ticked - self.saved > self.config.save_minutes * 60:
            self.saved, control.should_save = self.clock.ticked, True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if self.advance and logs and "loss" in logs:
            budget = f", {self.clock.seconds() / 60:.1f}/{self.config.minutes:g} min" if self.config.minutes else ""
            self.advance(1, f"loss {logs['loss']:.4f}{budget}")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.shown:
            self.shown.__exit__(None, None, None)
