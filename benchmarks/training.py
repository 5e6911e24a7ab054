"""Training tokens per second and its share of a bare matrix product's speed, beside TRL's SFTTrainer.

    python -m benchmarks.training FILE [--episodes 12] [--batch 2]

Each trainer gets the same episodes, model, batch, learning rate and precision, in a process of its own; TRL once with
its defaults (gradients checkpointed) and once without checkpointing. Writes results/speed-train-trl/metrics.json.
"""

import argparse
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from worldloom.config import TrainConfig
from worldloom.lm.hf import DEFAULT_MODEL, fast_bfloat16, load_model, load_tokenizer
from worldloom.origin import begin, provenance
from worldloom.protocol import render
from worldloom.runs import write_json
from worldloom.tokens import ChatFormat
from worldloom.train import load_all

OUT = Path("results/speed-train-trl/metrics.json")
MAX_TOKENS = 2048
MARKED = (
    "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n'}}"
    "{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}"
    "{% else %}{{ m['content'] + '<|im_end|>' + '\n' }}{% endif %}{% endfor %}"
)  # ChatML that says which tokens are learnt, as TRL wants it


def chosen(path: Path, count: int) -> list[Any]:
    """The first episodes that fit whole."""
    chat = ChatFormat(load_tokenizer(DEFAULT_MODEL))
    fitting = (t for t in load_all([path]) if chat.encode(t, 10**9).input_ids.__len__() <= MAX_TOKENS)
    return [episode for episode, _ in zip(fitting, range(count), strict=False)]


def losses_of(trainer: Any) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def ours(path: Path, count: int, batch: int) -> dict[str, Any]:
    """Our trainer's losses and seconds, and how much it had to compute."""
    from worldloom.trainer import WorldTrainer

    chat = ChatFormat(load_tokenizer(DEFAULT_MODEL))
    episodes = [chat.encode(t, MAX_TOKENS) for t in chosen(path, count)]
    model = load_model(DEFAULT_MODEL)
    config = TrainConfig(batch=batch, schedule="constant", warmup_steps=1, save_minutes=1e6)
    trainer = WorldTrainer.of(model, episodes, Path(tempfile.mkdtemp()), config)
    start = time.monotonic()
    trainer.train()
    seconds = time.monotonic() - start
    tokens = sum(len(e.input_ids) for e in episodes)
    return {"losses": losses_of(trainer), "seconds": seconds, "tokens": tokens,
            "flops": sum(flops(model, len(e.input_ids), sum(b - a for a, b, _ in e.spans)) for e in episodes),
            "matmul_flops_per_second": matmul(model)}  # fmt: skip


def flops(model: Any, tokens: int, answered: int) -> float:
    """Of one episode's forward and backward pass: 6 for each weight and token that meet, and causal attention."""
    config = model.config
    head = config.vocab_size * config.hidden_size
    body = sum(p.numel() for p in model.parameters()) - head
    attention = 6 * config.num_hidden_layers * config.hidden_size * tokens**2
    return 6.0 * (body * tokens + head * answered) + attention


def matmul(model: Any, seconds: float = 3.0) -> float:
    """FLOP/s of the model's commonest matrix product by itself, in the precision of training."""
    import torch

    config = model.config
    dtype = torch.bfloat16 if fast_bfloat16() else torch.float32
    left = torch.randn(MAX_TOKENS, config.hidden_size, dtype=dtype)
    right = torch.randn(config.hidden_size, config.intermediate_size, dtype=dtype)
    count, start = 0, time.monotonic()
    while time.monotonic() - start < seconds:
        left @ right
        count += 1
    return 2 * left.numel() * config.intermediate_size * count / (time.monotonic() - start)


def trl(path: Path, count: int, batch: int, **settings: Any) -> dict[str, Any]:
    """TRL's losses and seconds on the same messages."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    tokenizer = load_tokenizer(DEFAULT_MODEL)
    tokenizer.chat_template = MARKED
    rows = Dataset.from_list([{"messages": [dict(m) for m in render(t)]} for t in chosen(path, count)])
    arguments = SFTConfig(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=1, gradient_accumulation_steps=batch,
        num_train_epochs=1, learning_rate=TrainConfig.learning_rate, lr_scheduler_type="constant", logging_steps=1,
        save_strategy="no", report_to="none", max_length=None, assistant_only_loss=True, bf16=fast_bfloat16(),
        use_cpu=True, seed=0, data_seed=0, **settings,
    )  # fmt: skip
    trainer = SFTTrainer(load_model(DEFAULT_MODEL), args=arguments, train_dataset=rows, processing_class=tokenizer)
    start = time.monotonic()
    trainer.train()
    return {"losses": losses_of(trainer), "seconds": time.monotonic() - start}


def alone(work: Any, *given: Any, **settings: Any) -> dict[str, Any]:
    """A function's result from a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found: dict[str, Any] = pool.apply(work, given, settings)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--episodes", type=int, default=12)
    parser.add_argument("--batch", type=int, default=2)
    asked = parser.parse_args()
    begun, clock = begin(f"python -m benchmarks.training {' '.join(sys.argv[1:])}"), time.monotonic()
    given = asked.data, asked.episodes, asked.batch
    runs = {
        "worldloom": alone(ours, *given),
        "trl": alone(trl, *given),
        "trl without checkpointing": alone(trl, *given, gradient_checkpointing=False),
    }
    for name, run in runs.items():
        rate = runs["worldloom"]["tokens"] / run["seconds"]
        print(f"{name:<26} {rate:6.1f} tokens/s   losses {' '.join(f'{loss:.3f}' for loss in run['losses'])}")
    mine = runs["worldloom"]
    share = mine["flops"] / mine["seconds"] / mine["matmul_flops_per_second"]
    speed = {
        "episodes": asked.episodes, "batch": asked.batch, "precision": "bfloat16" if fast_bfloat16() else "float32",
        "tokens_per_second": {name: mine["tokens"] / run["seconds"] for name, run in runs.items()},
        "losses": {name: run["losses"] for name, run in runs.items()},
        "ratio_to_trl": runs["trl"]["seconds"] / mine["seconds"],
        "ratio_to_trl_without_checkpointing": runs["trl without checkpointing"]["seconds"] / mine["seconds"],
        "matmul_flops_per_second": mine["matmul_flops_per_second"], "flops_share_of_matmul": share,
    }  # fmt: skip
    print(f"{share:.0%} of a bare matrix product's speed; {speed['ratio_to_trl']:.2f} x TRL's defaults")
    write_json(OUT, {"name": OUT.parent.name, "environment": "alfworld", "model": DEFAULT_MODEL, "speed": speed,
                     "provenance": provenance(begun, time.monotonic() - clock)})  # fmt: skip


if __name__ == "__main__":
    main()
