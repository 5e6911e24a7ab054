"""A guard against learning the errors of a world model: imagined successes are replayed in the real environment.

A policy that is rewarded by a world model may learn what only that model takes for a success. The share of imagined
successes that reality does not confirm, beside the reward, shows it.
"""

import logging
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any, Literal

from worldloom.agents import AgentSpec
from worldloom.collect import play
from worldloom.envs import EnvSpec
from worldloom.envs.worker import Job
from worldloom.errors import ConfigError
from worldloom.practice.place import steps_of
from worldloom.practice.synthesize import chosen
from worldloom.runs import read_json, write_json
from worldloom.trajectory import Trajectory, read

logger = logging.getLogger(__name__)

Check = dict[str, Any]
Verdict = Literal["fine", "warn", "stop"]
FILE = "guard.json"
Z = NormalDist().inv_cdf(0.975)  # standard deviations of a 95 % interval


@dataclass(frozen=True)
class GuardConfig:
    """When to look, at how much, and what to do.

    Raises:
        ConfigError: a value is out of range.
    """

    every: int = 1  # rounds of expert iteration, or updates of GRPO
    sample: int = 8  # different imagined successes that are replayed each time, of as many tasks as there are
    limit: float = 0.5  # share of false successes above which training stops, once that is sure
    action: Literal["stop", "warn", "off"] = "stop"

    def __post_init__(self) -> None:
        if self.every < 1 or self.sample < 1 or not 0 <= self.limit < 1:
            raise ConfigError("a guard's every and sample must be 1 or more, and its limit from 0 to below 1")
        if self.action not in ("stop", "warn", "off"):
            raise ConfigError(f"a guard's action is {self.action!r}; it must be stop, warn or off")


class Guard:
    """Replays imagined successes of a run; ``folder/guard.json`` keeps its checks, and ``guard.svg`` draws them."""

    def __init__(self, folder: Path, env: EnvSpec, config: GuardConfig, workers: int = 2):
        self.folder, self.env, self.config, self.workers = folder, env, config, workers
        self.checks: list[Check] = read_json(folder / FILE) if (folder / FILE).exists() else []

    def check(self, at: int, episodes: Sequence[Trajectory]) -> Verdict:
        """Look at the imagined episodes of a round (or of the updates since the last look).

        Returns:
            Whether training may go on. A look that was made before is not made again.
        """
        if self.config.action == "off" or at % self.config.every:
            return "fine"
        found = next((check for check in self.checks if check["at"] == at), None) or self._look(at, episodes)
        verdict: Verdict = found["verdict"]
        return "warn" if verdict == "stop" and self.config.action == "warn" else verdict

    def _look(self, at: int, episodes: Sequence[Trajectory]) -> Check:
        won = spread(chosen(episodes), self.config.sample, random.Random(f"guard {at}"))
        replays = self._replayed(self.folder / "guard" / f"{at}.jsonl", won)
        known = [t for t in replays if t.error is None]
        reward = share(sum(t.outcome == "success" for t in episodes), len(episodes))
        found: Check = {"at": at, "reward": reward, "real_steps": steps_of(replays), "replays": len(replays)}
        found["broken"] = len(replays) - len(known)
        if known:
            found["false_success"] = false_share(known)
        found["verdict"] = verdict([*self.checks, found], self.config.limit)
        self.checks.append(found)
        write_json(self.folder / FILE, self.checks)
        self._tell(found, replays)
        return found

    def _replayed(self, path: Path, won: Sequence[Trajectory]) -> list[Trajectory]:
        jobs = [
            Job(t.task.id, AgentSpec("replay", {"actions": t.actions}), t.task.seed or 0, t.task.split, len(t.steps))
            for t in won
        ]
        play(path, self.env, jobs, self.workers)
        return read(path)

    def _tell(self, found: Check, replays: Sequence[Trajectory]) -> None:
        from worldloom.practice.curve import draw

        draw(self.folder / "guard.svg", self.checks)
        if broke := [t.error.message for t in replays if t.error]:
            logger.warning(
                "guard at %s: %d of %d replays broke in the real environment (%s): they say nothing of the world model",
                found["at"], len(broke), len(replays), broke[0],
            )  # fmt: skip
        if found["verdict"] != "fine" and (false := found.get("false_success")):
            logger.warning(
                "guard at %s: %.0f%% of imagined successes are false in the real environment (of %d tasks, 95%% "
                "interval from %.0f%%), reward %.2f: the world model is being exploited",
                found["at"], 100 * false["value"], false["n"], 100 * false["low"], found["reward"]["value"],
            )  # fmt: skip


def spread(won: Sequence[Trajectory], count: int, rng: random.Random) -> list[Trajectory]:
    """Draw episodes: one of each task, and a second one of a task only where all others have had their turn."""
    by_task = list(_by_task(won).values())
    rng.shuffle(by_task)
    turns = zip_longest(*(rng.sample(of, len(of)) for of in by_task))
    return [episode for turn in turns for episode in turn if episode][:count]


def _by_task(episodes: Iterable[Trajectory]) -> dict[str, list[Trajectory]]:
    found: dict[str, list[Trajectory]] = {}
    for episode in episodes:
        found.setdefault(episode.task.id, []).append(episode)
    return found


def false_share(replays: Iterable[Trajectory]) -> dict[str, float]:
    """The share of replays that did not succeed, as the mean over tasks of each task's share.

    ``n`` is the number of tasks, not of replays: those of one task are no independent evidence.
    """
    shares = [fmean(t.outcome != "success" for t in of) for of in _by_task(replays).values()]
    return share(sum(shares), len(shares))


def share(hits: float, n: int) -> dict[str, float]:
    """A share with its 95 % interval (Wilson 1927), which has a width even where all or none are hits.

    Args:
        hits: a sum of ``n`` numbers from 0 to 1. Such numbers vary at most as much as hits and misses with the same
            mean do, so that the interval is wide enough.
    """
    if not n:
        return {"value": 0.0, "low": 0.0, "high": 1.0, "n": 0}
    value, tail = hits / n, Z**2 / n
    middle, half = value + tail / 2, math.sqrt(tail * (value * (1 - value) + tail / 4))
    low = (middle - half) / (1 + tail) if hits > 0 else 0.0
    high = (middle + half) / (1 + tail) if hits < n else 1.0
    return {"value": value, "low": low, "high": high, "n": n}


def verdict(checks: Sequence[Check], limit: float) -> Verdict:
    """What the newest check means.

    "stop": surely more than ``limit`` of the imagined successes are false. "warn": more than that are, but not surely;
    or reward and reality part: since the first check the reward rose, and the share of episodes that succeed in
    reality, reward x (1 - false successes), fell; or there were imagined successes, and none could be replayed.
    """
    newest, told = checks[-1], [check for check in checks if "false_success" in check]
    if "false_success" not in newest:
        return "warn" if newest["reward"]["value"] > 0 else "fine"
    if newest["false_success"]["low"] > limit:
        return "stop"
    rose = newest["reward"]["value"] > told[0]["reward"]["value"]
    fell = _really(newest) < _really(told[0])
    return "warn" if newest["false_success"]["value"] > limit or (rose and fell) else "fine"


def _really(check: Check) -> float:
    return float(check["reward"]["value"] * (1 - check["false_success"]["value"]))
