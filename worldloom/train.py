"""Stage 2: trajectories -> world model or policy, by supervised fine-tuning on transformers' own Trainer."""

import copy
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
from worldloom.trainer import Snapshots, WorldTrainer
from worldloom.trajectory import MESSAGES, BadLine, Trajectory, read, scan

logger = logging.getLogger(__name__)

COUNTED = ("trajectories", "tokens", "loss_tokens", "too_long", "unsayable", "steps_left_out")


def train(data: Sequence[Path], out: Path, config: TrainConfig | None = None) -> dict[str, Any]:
    """Fine-tune a language model on the trajectories of some files, and write it to ``out/model``.

    With it go what was usually said (``replies.json``), for drafting answers; whether the system message names the
    environment, and whether the model is a world or a policy (``protocol.json``); and what it was trained on
    (``train.json``). ``config.model`` may itself be a trained model: it is then trained on, and all three are kept and
    added to. ``config.snapshots`` keeps what the model was after some numbers of episodes, in folders like
    ``out/model-at-100``, each with what it had seen until then.

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
    output = _Output(trainer, corpus, naming, replies, data, out)
    if config.snapshots:
        trainer.add_callback(Snapshots(trainer, config.snapshots, output.keep))
    trainer.train(resume_from_checkpoint=last_checkpoint(out / "checkpoints"))
    return output.finish(trajectories)


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
    """Episodes to learn in tokens, what was counted in each environment, and their order (None leaves it to the
    Trainer)."""

    chat: ChatFormat
    episodes: list[Encoded]
    counts: dict[str, dict[str, Any]]
    order: MixedOrder | None

    def first(self, count: int) -> list[Encoded]:
        """The first ``count`` episodes of the order, each once."""
        places = {place for _, place in islice(self.order.drawn(), count)} if self.order else range(len(self.episodes))
        return [self.episodes[place] for place in sorted(places)]


def gather(groups: Mapping[str, Sequence[Trajectory]], chat: ChatFormat, budget: int, config: TrainConfig) -> Corpus:
    """The trajectories of some environments, made ready.

    Where there are several, or snapshots are kept, the order of the episodes is known: it is that of ``mixture``.

    Raises:
        DataError: of an environment, nothing fits.
        ConfigError: a snapshot is asked for after more episodes than training will have.
    """
    advice = "raise max_tokens" if config.max_tokens == budget else "take a model with a longer window"
    found = {env: prepare(there, chat, budget, config.overflow, advice) for env, there in groups.items()}
    sizes = {env: len(episodes) for env, (episodes, _) in found.items()}
    if config.snapshots and max(config.snapshots) > (most := config.epochs * sum(sizes.values())):
        raise ConfigError(f"a snapshot after {max(config.snapshots)} episodes, but training has {most:g}; collect more")
    return Corpus(
        chat,
        [episode for episodes, _ in found.values() for episode in episodes],
        {env: counts for env, (_, counts) in found.items()},
        MixedOrder(sizes, config.mixture, config.seed) if len(groups) > 1 or config.snapshots else None,
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
    from transformers import set_seed

    set_seed(config.seed)  # an adapter begins at random
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


def _save(trainer: WorldTrainer, out: Path) -> None:
    """Write the weights; an adapter by itself, too."""
    if trainer.config.lora_rank is not None:
        trained = trainer.accelerator.unwrap_model(trainer.model)
        trained.save_pretrained(out / "adapter")
        trainer.model = trained.merge_and_unload()
    trainer.save_model(str(out / "model"))


def _snapshot(trainer: WorldTrainer, folder: Path) -> Path:
    """Write the weights as they are into a draft of the folder, which is returned; training can go on."""
    draft = folder.with_name(folder.name + ".part")
    if trainer.is_world_process_zero():
        shutil.rmtree(draft, ignore_errors=True)  # of a run that was killed
    if trainer.config.lora_rank is None:
        trainer.save_model(str(draft))
    elif trainer.is_world_process_zero():
        copy.deepcopy(trainer.accelerator.unwrap_model(trainer.model)).merge_and_unload().save_pretrained(draft)
    return draft


def _went(trainer: WorldTrainer, tokens: int) -> dict[str, Any]:
    """How the training went so far."""
    seconds, losses = trainer.clock.seconds(), [loss for _, loss in _losses(trainer)]
    trained = trainer.accelerator.unwrap_model(trainer.model)
    found = {
        "epochs": round(min(trainer.state.epoch or 0.0, trainer.config.epochs), 3),
        "steps": trainer.state.global_step,
        "seconds": round(seconds, 1),
        "tokens_per_second": round(tokens / seconds, 1),
        "trainable_parameters": sum(p.numel() for p in trained.parameters() if p.requires_grad),
        "precision": "bfloat16" if trainer.args.bf16 else "float32",
    }
    if losses:  # after the first step there is none yet
        found |= {"loss_first": losses[0], "loss_last": sum(losses[-10:]) / len(losses[-10:])}
    return found


def _losses(trainer: WorldTrainer) -> list[tuple[int, float]]:
    return [(entry["step"], entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]


class _Output(NamedTuple):
    """Writes the model into ``out``, at the end and on the way, with what belongs to it."""

    trainer: WorldTrainer
    corpus: Corpus
    naming: Naming
    replies: Replies
    data: Sequence[Path]
    out: Path

    def metrics(self) -> dict[str, Any]:
        """What was learnt so far, of what there is."""
        told = {**lineage(self.trainer.config.model), **self.corpus.chat.role.record()}
        told |= {"data": [path.as_posix() for path in self.data], **amounts(self.corpus, self.trainer)}
        return told | _went(self.trainer, told["tokens_seen"])

    def keep(self, count: int) -> None:
        """Write what the model is after ``count`` episodes, unless that was done before a kill."""
        folder = self.out / f"model-at-{count}"
        if folder.exists():
            return
        draft = _snapshot(self.trainer, folder)
        if self.trainer.is_world_process_zero():
            seen = [t for episode in self.corpus.first(self.trainer.episodes_taken()) if (t := episode.trajectory)]
            self._accompany(draft, seen, self.metrics())
            draft.rename(folder)

    def finish(self, trajectories: Sequence[Trajectory]) -> dict[str, Any]:
        """Write the model, and say that the run is finished."""
        metrics = self.metrics()
        _save(self.trainer, self.out)
        if self.trainer.is_world_process_zero():
            self._accompany(self.out / "model", trajectories, metrics)
            _conclude(self.trainer, self.out, metrics)
        return metrics

    def _accompany(self, folder: Path, trajectories: Sequence[Trajectory], metrics: Mapping[str, Any]) -> None:
        self.corpus.chat.tokenizer.save_pretrained(folder)
        role, replies = self.corpus.chat.role, copy.deepcopy(self.replies)
        self.naming.save(folder)
        role.save(folder)
        (replies.learn(trajectories) if role.learns == "world" else replies.learn_actions(trajectories, role)).save(
            folder
        )
        write_json(folder / "train.json", metrics)


def _conclude(trainer: WorldTrainer, out: Path, metrics: dict[str, Any]) -> None:
    write_json(out / "loss.json", _losses(trainer))
    write_json(out / "train.json", metrics)  # last: it says that the run is finished
    shutil.rmtree(out / "checkpoints", ignore_errors=True)
