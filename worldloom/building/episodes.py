"""Logs -> redacted episodes without what all of them begin with, split; and the account of every record."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from worldloom.building.config import BuildConfig, Work
from worldloom.collect import key
from worldloom.ingest.run import SUMMARY, TRAJECTORIES, ingest
from worldloom.ingest.turns import GAP
from worldloom.redact.rules import PLACEHOLDER
from worldloom.runs import read_json, write_json
from worldloom.split import LEFT_OUT, split
from worldloom.trajectory import Trajectory, read, write

EPISODES, PREPARED = "episodes.jsonl", "prepared.json"
NO_STEP = "an episode without a step"


def read_logs(files: Sequence[Path], work: Work, config: BuildConfig) -> None:
    """Ingest; each episode is redacted before anything of it is written. After a stop this begins anew."""
    ingest(files, work / "ingest", config.settings, strict=config.strict, redact=config.redaction)


def prepare(work: Work) -> None:
    """Write ``episodes.jsonl``: those with a step, each with a key of its own, without their common beginning."""
    found = read(work / "ingest" / TRAJECTORIES, strict=True)
    usable = [episode for episode in found if episode.steps]
    beginning = common_beginning([episode.initial_observation for episode in usable])
    write(work / EPISODES, _told_apart(_shortened(episode, len(beginning)) for episode in usable))
    redacted = Counter(name for episode in found for name, _ in PLACEHOLDER.findall(episode.to_json()))
    write_json(
        work / PREPARED,
        {
            "beginning": beginning,
            "no_step": len(found) - len(usable),
            "steps": sum(len(episode.steps) for episode in usable),
            "placeholders": dict(redacted.most_common()),
        },
    )


def common_beginning(texts: Sequence[str]) -> str:
    """Whole paragraphs with which all texts begin, such as an agent's instructions; each text keeps something."""
    if len(texts) < 2:
        return ""
    first, last = min(texts), max(texts)  # in their order, those that have the least in common
    same = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    common = first[:same]
    end = common.rfind(GAP)
    while end > 0 and min(map(len, texts)) <= end + len(GAP):
        end = common.rfind(GAP, 0, end)
    return common[: end + len(GAP)] if end > 0 else ""


def _shortened(episode: Trajectory, begin: int) -> Trajectory:
    if not begin:
        return episode
    return episode.model_copy(update={"initial_observation": episode.initial_observation[begin:]})


def _told_apart(episodes: Iterator[Trajectory]) -> Iterator[Trajectory]:
    """Several logs of one task by one agent, with the same seed or none, are numbered by seeds of their own."""
    seen: Counter[Any] = Counter()
    taken: set[Any] = set()
    for episode in episodes:
        name = key(episode)
        seed = episode.task.seed
        while key(episode) in taken:
            seed = seen[name] = seen[name] + 1
            episode = episode.model_copy(update={"task": episode.task.model_copy(update={"seed": seed})})
        taken.add(key(episode))
        yield episode


def split_episodes(work: Work, config: BuildConfig) -> dict[str, Any]:
    """Write ``data/train.jsonl`` and ``data/test.jsonl``; what splits would share is left out, and counted."""
    return split(work / EPISODES, work / "data", config.splitting)


def account(work: Work) -> dict[str, Any]:
    """What became of every record of the logs: the ``ingest`` part of ``metrics.json``.

    Returns:
        ``files``, ``formats``, ``records``, ``episodes``, ``steps``, ``outcomes``; ``skipped`` and ``merged`` by
        reason; ``became``: episodes by what they were used for; ``redacted``: placeholders by kind; ``unaccounted``:
        records and episodes of which nothing is known, which must be 0.
    """
    told, prepared = read_json(work / "ingest" / SUMMARY), read_json(work / PREPARED)
    splits = read_json(work / "data" / "splits.json")["splits"]
    became = {name: found["episodes"] for name, found in splits.items() if name != LEFT_OUT}
    became["left_out_as_splits_would_share_them"] = splits.get(LEFT_OUT, {}).get("episodes", 0)
    skipped = {**told["skipped"], **({NO_STEP: prepared["no_step"]} if prepared["no_step"] else {})}
    missing = told["episodes"] - prepared["no_step"] - sum(became.values())
    return {
        **{name: told[name] for name in ("files", "formats", "records", "episodes", "steps", "outcomes")},
        "skipped": skipped,
        "merged": told["merged"],
        "left_out_parts": told["left_out"],
        "became": became,
        "redacted": prepared["placeholders"],
        "beginning_left_out_characters": len(prepared["beginning"]),
        "unaccounted": told["unaccounted"] + missing,
    }


def reached(test: int, one_step: Mapping[str, Any], rollouts: Mapping[str, Any]) -> dict[str, int]:
    """How many held-out episodes were measured: the time may not have been enough for all."""
    return {"held_out": test, "one_step": one_step["n_episodes"], "rollouts": rollouts.get("n_episodes", 0)}
