"""Chooses, from real episodes, how likely an end must be for an imagined episode to end."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from worldloom.errors import ConfigError, DataError, ProtocolError
from worldloom.lineage import overlaps, tasks_of
from worldloom.lm.ending import FILE, Ending
from worldloom.lm.hf import resolve
from worldloom.lm.packed import Chunk, forward, new_cache
from worldloom.lm.score import batches
from worldloom.lm.session import LocalLM
from worldloom.progress import progress
from worldloom.protocol import MARKERS
from worldloom.runs import write_json
from worldloom.tokens import Encoded
from worldloom.trajectory import Trajectory, read

Record = dict[str, Any]
NEVER = 1e-6  # chances are kept this far from 0 and 1


class Seen(NamedTuple):
    """A step: the chance that the model gives an end after the real observation, and whether there was one."""

    chance: float
    ended: bool


def calibrate(model: str, data: Path, episodes: int | None = None, seed: int = 0) -> Record:
    """Choose the chance of an end from which on a world model's episodes end: so that real ones would end as often.

    Steps of which nobody knows whether they were the end (the last ones of episodes without an outcome) do not count.

    Args:
        model: a run of ``worldloom train`` or a model's folder. It gets a file ``ends.json``, and whoever loads it
            keeps to it.
        data: real episodes (a trajectories file), of other tasks than it is going to be measured on; ``episodes`` of
            them drawn by ``seed``, all if None.

    Returns:
        What was written: ``least``, ``n_episodes``, ``n_steps``, ``n_ends``, ``auroc`` (of an end), and ``before``
        (greedy decoding) and ``after``, each with ``precision``, ``recall`` and ``f1`` on these very steps; ``overlap``
        where the model learnt some of their tasks.

    Raises:
        ConfigError: the model is not on this machine.
        DataError: no step of these episodes is an end, or all are; or an observation holds the token that ends begin
            with (" ["), so that after it nobody knows whether an end comes.
        ModelError: the model cannot be loaded, or its tokenizer tells ends in a way that cannot be weighed.
    """
    if not Path(model).is_dir():
        raise ConfigError(f"{model!r} is no folder of a trained model here, so nothing can be noted beside it")
    real = read(data)
    real = real if episodes is None or episodes >= len(real) else random.Random(f"ends {seed}").sample(real, episodes)
    known = overlaps(model, (), tasks_of(real), "calibrated")
    lm = LocalLM(model)
    ending = Ending.of(lm.chat)
    check_plain(lm, ending, real, data)
    seen = list(_seen(lm, ending, real))
    if len({step.ended for step in seen}) < 2:
        raise DataError(f"{sum(s.ended for s in seen)} of its {len(seen)} steps are ends; both kinds are needed", data)
    least = least_of(seen)
    found: Record = {"least": least, "data": data.as_posix(), "n_episodes": len(real), "n_steps": len(seen)}
    found |= {"n_ends": sum(step.ended for step in seen), "auroc": _auroc(seen)}
    found |= {"before": told(seen, 0.5), "after": told(seen, least), **known}
    write_json(Path(resolve(model)) / FILE, found)
    return found


def check_plain(lm: LocalLM, ending: Ending, real: Sequence[Trajectory], data: Path) -> None:
    """Refuse texts in which what begins like an end is none."""
    for trajectory in real:
        for number, step in enumerate(trajectory.steps, 1):
            if ending.suffix in lm.chat.answer(step.observation):
                begin, task = lm.chat.decode([ending.suffix]), trajectory.task.id
                where = f"stands in what task {task!r} answers in step {number}"
                raise DataError(f"{begin!r}, with which ends begin, {where}: ends cannot be weighed here", data)


def least_of(seen: Sequence[Seen]) -> float:
    """The chance at which as many ends are told as there were: in odds, the middle between the last one that is told
    and the next. Then imagined episodes end as often as real ones, where a best F1 would tell more."""
    from scipy.special import expit, logit

    chances = sorted((min(max(step.chance, NEVER), 1 - NEVER) for step in seen), reverse=True)
    ends = sum(step.ended for step in seen)
    return float(expit(logit(chances[ends - 1 : ends + 1]).mean()))


def told(seen: Sequence[Seen], least: float) -> Record:
    """``precision`` (absent if no end is told), ``recall`` and ``f1`` of ends at or above a chance."""
    hits = sum(step.ended for step in seen if step.chance >= least)
    said, true = sum(step.chance >= least for step in seen), sum(step.ended for step in seen)
    return {**({"precision": hits / said} if said else {}), "recall": hits / true, "f1": 2 * hits / (said + true)}


def _auroc(seen: Sequence[Seen]) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score([step.ended for step in seen], [step.chance for step in seen]))


def _seen(lm: LocalLM, ending: Ending, real: Sequence[Trajectory]) -> Iterator[Seen]:
    """Every step whose end is known, each episode in one pass."""
    encoded = []
    for trajectory in real:
        try:
            encoded.append((trajectory, lm.encode(trajectory)))
        except ProtocolError:  # too long, or of a text that the protocol cannot say
            continue
    with progress("ends", len(encoded), "episodes") as advance:
        for batch in batches([len(e.input_ids) for _, e in encoded]):
            yield from _passed(lm, ending, [encoded[index] for index in batch])
            advance(len(batch), "")


def _passed(lm: LocalLM, ending: Ending, episodes: Sequence[tuple[Trajectory, Encoded]]) -> Iterator[Seen]:
    places = [_places(lm, *episode) for episode in episodes]
    chunks = [
        Chunk(new_cache(lm.model), e.input_ids, keep=list(at)) for (_, e), at in zip(episodes, places, strict=True)
    ]
    for at, logits in zip(places, forward(lm.model, chunks), strict=True):
        yield from map(Seen, ending.chances(logits).tolist(), at.values())


def _places(lm: LocalLM, trajectory: Trajectory, encoded: Encoded) -> dict[int, bool]:
    """Where all of an observation is said and an end is or is not; and which."""
    found = {}
    for span in encoded.spans:
        step = trajectory.steps[span.step]
        size = len(lm.chat.answer(step.observation)) - 1
        unknown = step.terminal is None and span.step == len(trajectory.steps) - 1
        if not unknown and size:
            found[span.start + size - 1] = step.terminal in MARKERS
    return found
