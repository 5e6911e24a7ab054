"""Stage 2: trajectories -> world model or policy, by supervised fine-tuning on transformers' own Trainer."""

import json
import logging
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from worldloom.collect import key
from worldloom.config import TrainConfig
from worldloom.errors import ConfigError, ContextOverflow, DataError, ProtocolError
from worldloom.lineage import lineage
from worldloom.lm.hf import load_model, load_tokenizer, resolve, window
from worldloom.lm.replies import Replies
from worldloom.mixture import MixedOrder, check_weights
from worldloom.naming import Naming
from worldloom.role import Role, check_change
from worldloom.runs import fingerprint, open_run, read_json, write_json
from worldloom.selection import select
from worldloom.tokens import ChatFormat, Encoded, Overflow
from worldloom.trainer import WorldTrainer
from worldloom.trajectory import MESSAGES, BadLine, Trajectory, read, scan

logger = logging.getLogger(__name__)

COUNTED = ("trajectories", "tokens", "loss_tokens", "too_long", "unsayable", "steps_left_out")


def train(data: Sequence[Path], out: Path, config: TrainConfig | None = None) -> dict[str, Any]:
    """Fine-tune a language model on the trajectories of some files, and write it to ``out/model``.

    With it go what was usually said (``replies.json``), for drafting answers; whether the system message names the
    environment, and whether the model is a world or a policy (``protocol.json``); and what it was trained on
    (``train.json``). ``config.model`` may itself be a trained model: it is then trained on, and all three are kept and
    added to.

    Started again with the same settings it goes on from its last whole checkpoint; a finished run is left alone.
    Runs on one device as it is, on several under ``accelerate launch``.

    Returns:
        The ``train`` part of ``metrics.json``; also written to ``out/train.json``, the loss curve to
        ``out/loss.json`` as [step, loss per token].

    Raises:
        DataError: no usable trajectory.
        ConfigError: a setting is out of range, ``out`` holds a run with others, or the model would change its role.
        ModelError: the model cannot be loaded.
    """
    config = config or TrainConfig()
    trajectories = select(load_all(data), config)
    groups = by_environment(trajectories)
    check_weights(config.mixture, groups)
    settings = {
        "stage": "train", "data": [path.as_posix() for path in data], "fingerprint": fingerprint(data),
        **config.recorded(),
    }  # fmt: skip
    if (out / "config.json").exists():
        open_run(out, settings)
    if (out / "train.json").exists():
        found: dict[str, Any] = read_json(out / "train.json")
        return found
    base, role = Path(resolve(config.model)), Role(config.learns, config.says)
    before = Role.load(base)
    check_change(role, before, config.change_role, config.model)
    tokenizer, model = load_tokenizer(config.model), load_model(config.model)
    naming = Naming.load(base).learning(groups, config.name_environment)
    replies = Replies.load(base) if before in (None, role) else Replies()
    corpus = gather(groups, ChatFormat(tokenizer, naming, role), _budget(config, window(model)), config)
    open_run(out, settings)  # no sooner: a mistake leaves no run behind
    trainer = WorldTrainer.of(_with_lora(model, config), corpus.episodes, out / "checkpoints", config, corpus.order)
    trainer.train(resume_from_checkpoint=last_checkpoint(out / "checkpoints"))
    about = {
        **lineage(config.model), **role.record(), "data": [path.as_posix() for path in data],
        **amounts(corpus, trainer),
    }  # fmt: skip
    metrics = about | _saved(trainer, out, about["tokens_seen"])
    if trainer.is_world_process_zero():
        corpus.chat.tokenizer.save_pretrained(out / "model")
        naming.save(out / "model")
        role.save(out / "model")
        learnt = replies.learn(trajectories) if role.learns == "world" else replies.learn_actions(trajectories, role)
        learnt.save(out / "model")
        _conclude(trainer, out, metrics)
    return metrics


def _budget(config: TrainConfig, window: int) -> int:
    """How many tokens an episode may have."""
    if config.max_tokens is not None and config.max_tokens > window:
        logger.warning("max_tokens is %d, but the model's window is %d, which counts", config.max_tokens, window)
    return min(config.max_tokens or window, window)


def by_environment(trajectories: Iterable[Trajectory]) -> dict[str, list[Trajectory]]:
    """Trajectories by the name of their environment, in the same order."""
    groups: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        groups.setdefault(trajectory.env.name, []).append(trajectory)
    return groups


def load_all(data: Sequence[Path]) -> list[Trajectory]:
    """All trajectories of some files, in an order that does not depend on how they were collected.

    Raises:
        ConfigError: a file is given twice.
        DataError: a file cannot be read or is no file of trajectories, or there is none in them.
    """
    for number, path in enumerate(data):
        if any(path.resolve() == earlier.resolve() for earlier in data[:number]):
            raise ConfigError(f"{path} is given twice, so each of its trajectories would count twice")
        if isinstance(first := next(scan(path), None), BadLine) and first.reason == MESSAGES:
            raise DataError(first.reason, path, first.line)
    found = sorted((t for path in data for t in read(path)), key=lambda t: (t.env.name, *map(str, key(t))))
    usable = [t for t in found if t.steps]
    if not usable:
        raise DataError("holds no trajectory with a step; collect some first", data[0] if data else None)
    return usable


class Corpus(NamedTuple):
    """Episodes to learn in tokens, what was counted in each environment, and, where there are several, their order."""

    chat: ChatFormat
    episodes: list[Encoded]
    counts: dict[str, dict[str, Any]]
    order: MixedOrder | None


def gather(groups: Mapping[str, Sequence[Trajectory]], chat: ChatFormat, budget: int, config: TrainConfig) -> Corpus:
    """The trajectories of some environments, made ready.

    Raises:
        DataError: of an environment, nothing fits.
    """
    advice = "raise max_tokens" if config.max_tokens == budget else "take a model with a longer window"
    found = {env: prepare(there, chat, budget, config.overflow, advice) for env, there in groups.items()}
    sizes = {env: len(episodes) for env, (episodes, _) in found.items()}
    return Corpus(
        chat,
        [episode for episodes, _ in found.values() for episode in episodes],
        {env: counts for env, (_, counts) in found.items()},
        MixedOrder(sizes, config.mixture, config.seed) if len(groups) > 1 else None,
    )


def prepare(
    trajectories: Sequence[Trajectory],
    chat: ChatFormat,
    budget: int,
    overflow: Overflow,
    advice: str = "allow more",
) -> tuple[list[Encoded], dict[str, Any]]:
    """Tokens of each trajectory of an environment that fits, and what was counted on the way.

    Returns:
        The encoded episodes, and {"versions" (of the engine), "trajectories", "tokens", "loss_tokens", "too_long",
        "unsayable", "steps_left_out"}; ``unsayable`` ones hold an observation that the text protocol cannot say.

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
        where = f"none of {len(trajectories)} trajectories can be used in {budget} tokens; {advice}"
        raise DataError(f"{where} ({trajectories[0].env.name})")
    return usable, {
        "versions": sorted({t.env.version for t in trajectories if t.env.version}),
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


def amounts(corpus: Corpus, trainer: WorldTrainer) -> dict[str, Any]:
    """How much there was to learn in all and in each environment, and how much of it training has seen.

    ``trajectories_seen`` counts each once, ``episodes_seen`` as often as it came.
    """
    counts, taken = corpus.counts, trainer.episodes_taken()
    found: dict[str, Any] = {key: sum(c[key] for c in counts.values()) for key in COUNTED}
    if corpus.order is None:
        share = taken / found["trajectories"]
        found |= {"trajectories_seen": min(taken, found["trajectories"]), "tokens_seen": round(found["tokens"] * share)}
        seen = dict.fromkeys(counts, taken)
    else:
        drawn = list(islice(corpus.order.drawn(), taken))
        tokens = sum(len(corpus.episodes[place].input_ids) for _, place in drawn)
        found |= {"trajectories_seen": len(set(drawn)), "tokens_seen": tokens}
        seen = Counter(env for env, _ in drawn)
    return {**found, "environments": {env: {**c, "episodes_seen": seen[env]} for env, c in counts.items()}}


def _saved(trainer: WorldTrainer, out: Path, tokens: int) -> dict[str, Any]:
    """Write the weights; and how the training went."""
    seconds, history = trainer.clock.seconds(), _losses(trainer)
    trained = trainer.accelerator.unwrap_model(trainer.model)
    parameters = sum(p.numel() for p in trained.parameters() if p.requires_grad)
    if trainer.config.lora_rank is not None:
        trained.save_pretrained(out / "adapter")
        trainer.model = trained.merge_and_unload()
    trainer.save_model(str(out / "model"))
    return {
        "epochs": round(min(trainer.state.epoch or 0.0, trainer.config.epochs), 3),
        "steps": trainer.state.global_step,
        "seconds": round(seconds, 1),
        "tokens_per_second": round(tokens / seconds, 1),
        "trainable_parameters": parameters,
        "precision": "bfloat16" if trainer.args.bf16 else "float32",
        "loss_first": history[0][1],
        "loss_last": sum(loss for _, loss in history[-10:]) / len(history[-10:]),
    }


def _losses(trainer: WorldTrainer) -> list[tuple[int, float]]:
    return [(entry["step"], entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]


def _conclude(trainer: WorldTrainer, out: Path, metrics: dict[str, Any]) -> None:
    write_json(out / "loss.json", _losses(trainer))
    write_json(out / "model" / "train.json", metrics)
    write_json(out / "train.json", metrics)  # last: it says that the run is finished
    shutil.rmtree(out / "checkpoints", ignore_errors=True)
