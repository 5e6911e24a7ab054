"""GRPO by TRL's own trainer, with a real or an imagined environment as its source of rollouts.

Group Relative Policy Optimization (Shao et al. 2024, "DeepSeekMath", arXiv 2402.03300). TRL's ``rollout_func`` is asked
for whole episodes; what the environment said in them is masked (``env_mask``), so that only actions are reinforced.
"""

import logging
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from worldloom.errors import ConfigError
from worldloom.lineage import files_of, lineage
from worldloom.lm.hf import fast_bfloat16, load_model, load_tokenizer, resolve
from worldloom.lm.replies import Replies
from worldloom.lm.session import LocalLM
from worldloom.naming import Naming
from worldloom.practice.grpo_rollouts import Rollouts, rewards
from worldloom.practice.guard import GuardConfig
from worldloom.practice.improve import guard_of, publish
from worldloom.practice.place import Ground, Place
from worldloom.progress import progress
from worldloom.runs import Log, fingerprint, open_run, read_json, read_records, write_json
from worldloom.train import last_checkpoint

logger = logging.getLogger(__name__)

ROLLOUTS, UPDATES = "rollouts.jsonl", "updates.jsonl"
PASSED = "passed"  # the weights as they were when the guard last let training go on
NO_TRL = "GRPO needs TRL: pip install 'worldloom[rl]'"


@dataclass(frozen=True)
class GrpoConfig:
    """How to train. The defaults are for a model of about 135M parameters.

    Raises:
        ConfigError: a value is out of range.
    """

    updates: int = 20
    tasks: int = 64  # in all; each update draws some of them
    tasks_per_update: int = 4
    samples: int = 4  # of each task; a group, whose mean reward is the baseline
    temperature: float = 1.0
    learning_rate: float = 5e-6
    beta: float = 0.0  # weight of the divergence from the first policy
    max_grad_norm: float = 1.0
    micro_batch: int = 1  # episodes in one forward pass
    gradient_checkpointing: bool = False
    max_steps: int = 50
    save_every: int = 5  # updates
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("updates", "tasks_per_update", "micro_batch", "max_steps", "save_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be 1 or more")
        if self.samples < 2 or not self.temperature > 0 or not self.learning_rate > 0:
            raise ConfigError("samples must be 2 or more, temperature and learning_rate above 0")
        if self.tasks < self.tasks_per_update:
            raise ConfigError(f"tasks is {self.tasks}, fewer than the {self.tasks_per_update} of one update")
        if self.tasks_per_update * self.samples % self.micro_batch:
            raise ConfigError("tasks_per_update x samples must be a multiple of micro_batch")


def grpo(
    out: Path,
    place: Place,
    policy: str,
    split: str = "train",
    config: GrpoConfig | None = None,
    guard: GuardConfig | None = None,
) -> dict[str, Any]:
    """Train a policy by the success of its own episodes; ``out/model`` is what comes of it.

    ``out/rollouts.jsonl`` keeps every episode, ``out/updates.jsonl`` the reward of each update. Started again it goes
    on from the last whole checkpoint. The guard looks every ``guard.every`` updates; when it says stop, ``out/model``
    is the policy as it was at the look before that, or before training if there was none.

    Args:
        policy: a run of ``worldloom train -s learns=policy``, or its model folder.

    Returns:
        What is written to ``out/train.json``: lineage, ``updates`` (after how many ``out/model`` is), ``stopped`` (why,
        if it was), and of all that was played: ``updates_played``, ``seconds``, ``reward`` of the first and last
        update, ``real_steps`` and ``imagined_steps`` (both without the guard's).

    Raises:
        ConfigError: TRL is not installed, a setting is out of range, or ``out`` holds a run with others.
        ModelError: the policy cannot be loaded, or is a world model.
    """
    config, guard = config or GrpoConfig(), guard or GuardConfig(every=5)
    _check_installed()
    open_run(out, {
        "stage": "grpo", **place.record(), "split": split, "policy": policy, **asdict(config), "guard": asdict(guard),
        "fingerprint": fingerprint(files_of(policy)),
    })  # fmt: skip
    if (out / "train.json").exists():
        found: dict[str, Any] = read_json(out / "train.json")
        return found
    lm = LocalLM(policy, learns="policy")
    with Ground(place, out) as ground, Log(out / ROLLOUTS) as rollouts, Log(out / UPDATES) as updates:
        tasks = place.tasks(split, config.tasks, config.seed)
        ground.prepare([(task, split, config.seed) for task in tasks])
        source = Rollouts(lm, ground, split, config, rollouts, updates, guard_of(out, place, guard))
        trainer = _trainer(out, policy, tasks, source, config)
        trainer.train(resume_from_checkpoint=last_checkpoint(out / "checkpoints"))
        kept = _save(trainer, source, policy, out)
    return _conclude(out, policy, source, kept)


def _check_installed() -> None:
    try:
        import datasets
        import trl

        assert datasets and trl
    except ImportError as error:
        raise ConfigError(NO_TRL) from error


def _trainer(out: Path, policy: str, tasks: Sequence[str], source: Rollouts, config: GrpoConfig) -> Any:
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import GRPOTrainer

    os.environ.setdefault(
        "TRL_EXPERIMENTAL_SILENCE", "1"
    )  # that rollout_func may change: tested, and the version bounded
    trainer = GRPOTrainer(
        model=load_model(policy),
        args=_arguments(out / "checkpoints", config),
        reward_funcs=rewards,
        train_dataset=Dataset.from_dict({"prompt": list(tasks)}),
        processing_class=load_tokenizer(policy),
        rollout_func=source,
        callbacks=[_callback(source, config, out / PASSED)],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _arguments(folder: Path, config: GrpoConfig) -> Any:
    import torch
    from trl import GRPOConfig

    return GRPOConfig(
        output_dir=str(folder),
        max_steps=config.updates,
        num_generations=config.samples,
        per_device_train_batch_size=config.micro_batch,
        gradient_accumulation_steps=config.tasks_per_update * config.samples // config.micro_batch,
        learning_rate=config.learning_rate,
        max_grad_norm=config.max_grad_norm,
        lr_scheduler_type="constant",
        temperature=config.temperature,
        beta=config.beta,
        gradient_checkpointing=config.gradient_checkpointing,
        bf16=fast_bfloat16(),
        use_cpu=not torch.cuda.is_available(),
        logging_steps=1,
        save_steps=config.save_every,
        save_total_limit=2,
        seed=config.seed,
        report_to="none",
        disable_tqdm=True,
    )


def _callback(source: Rollouts, config: GrpoConfig, passed: Path) -> Any:
    """Shows progress, asks the guard after each update, and keeps what it lets pass."""
    from transformers import TrainerCallback

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            source.go_on(state.global_step)
            self.shown = progress("grpo", config.updates, "updates", state.global_step)
            self.advance = self.shown.__enter__()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            newest = [t.outcome == "success" for t in source.since[-config.tasks_per_update * config.samples :]]
            self.advance(1, f"reward {sum(newest) / max(1, len(newest)):.2f}")
            verdict = source.look(state.global_step)
            if verdict == "stop":
                control.should_training_stop = True
                control.should_save = False  # a run that went on from here would not ask the guard again
            elif verdict:
                _keep(kwargs["model"], passed)

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.shown.__exit__(None, None, None)

    return Watch()


def _keep(model: Any, folder: Path) -> None:
    draft = folder.with_suffix(".part")
    model.save_pretrained(draft)
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)


def _save(trainer: Any, source: Rollouts, policy: str, out: Path) -> int:
    """Write ``out/model``; after how many updates that is."""
    base, lm, kept = Path(resolve(policy)), source.lm, trainer.state.global_step
    if source.stopped:
        kept = source.passed()
        publish(out / PASSED if kept else base, out)
        logger.warning("stopped at %s; the policy is kept as it was after %d updates", source.stopped, kept)
    else:
        trainer.save_model(str(out / "model"))
    if kept:  # the policy from before has all this
        lm.chat.tokenizer.save_pretrained(out / "model")
        Naming.load(base).save(out / "model")
        lm.role.save(out / "model")
        Replies.load(base).save(out / "model")
    return int(kept)


def _conclude(out: Path, policy: str, source: Rollouts, kept: int) -> dict[str, Any]:
    from worldloom.practice.curve import draw, false_successes

    updates = list({record["at"]: record for record in read_records(out / UPDATES)}.values())
    steps = sum(record["steps"] for record in updates)
    seconds = sum(record["seconds"] for record in updates) + time.monotonic() - source.clock
    imagined = source.ground.place.imagined
    found = {
        **lineage(policy), **source.lm.role.record(), "method": "grpo", "updates": kept,
        "updates_played": len(updates), "seconds": round(seconds, 1),
        "reward": {"first": updates[0]["reward"], "last": updates[-1]["reward"]},
        "real_steps": 0 if imagined else steps, "imagined_steps": steps if imagined else 0,
        **({"stopped": source.stopped} if source.stopped else {}),
    }  # fmt: skip
    draw(out / "reward.svg", [*updates, *false_successes(source.guard.checks if source.guard else [])])
    write_json(out / "model" / "train.json", found)
    write_json(out / "train.json", found)
    shutil.rmtree(out / PASSED, ignore_errors=True)
    return found
