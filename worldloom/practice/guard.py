"""A guard against learning the errors of a world model: imagined successes are replayed in the real environment.

A policy that is rewarded by a world model may learn what only that model takes for a success. The share of imagined
successes that reality does not confirm, beside the reward, shows it.
"""

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from scipy.stats import binomtest

from worldloom.agents import AgentSpec
from worldloom.collect import play
from worldloom.envs import EnvSpec
from worldloom.envs.worker import Job
from worldloom.errors import ConfigError
from worldloom.practice.place import steps_of
from worldloom.runs import read_json, write_json
from worldloom.trajectory import Trajectory, read

logger = logging.getLogger(__name__)

Check = dict[str, Any]
Verdict = Literal["fine", "warn", "stop"]
FILE = "guard.json"


@dataclass(frozen=True)
class GuardConfig:
    """When to look, at how much, and what to do.

    Raises:
        ConfigError: a value is out of range.
    """

    every: int = 1  # rounds of expert iteration, or updates of GRPO
    sample: int = 8  # imagined successes that are replayed each time
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
        won = sorted((t for t in episodes if t.outcome == "success"), key=lambda t: t.to_json())
        chosen = random.Random(f"guard {at}").sample(won, min(self.config.sample, len(won)))
        replays = self._replayed(self.folder / "guard" / f"{at}.jsonl", chosen)
        known = [t for t in replays if t.error is None]
        found: Check = {"at": at, "reward": share(len(won), len(episodes)), "real_steps": steps_of(replays)}
        if known:
            found["false_success"] = share(sum(t.outcome != "success" for t in known), len(known))
        found["verdict"] = verdict([*self.checks, found], self.config.limit)
        self.checks.append(found)
        write_json(self.folder / FILE, self.checks)
        self._tell(found)
        return found

    def _replayed(self, path: Path, won: Sequence[Trajectory]) -> list[Trajectory]:
        jobs = [
            Job(t.task.id, AgentSpec("replay", {"actions": t.actions}), t.task.seed or 0, t.task.split, len(t.steps))
            for t in won
        ]
        play(path, self.env, jobs, self.workers)
        return read(path)

    def _tell(self, found: Check) -> None:
        from worldloom.practice.curve import draw

        draw(self.folder / "guard.svg", self.checks)
        if found["verdict"] != "fine":
            false = found["false_success"]
            logger.warning(
                "guard at %s: %.0f%% of imagined successes are false in the real environment (%d replayed, 95%% "
                "interval from %.0f%%), reward %.2f: the world model is being exploited",
                found["at"], 100 * false["value"], false["n"], 100 * false["low"], found["reward"]["value"],
            )  # fmt: skip


def share(hits: int, n: int) -> dict[str, float]:
    """A share with its 95 % interval (Wilson 1927), which has a width even where all or none are hits."""
    if not n:
        return {"value": 0.0, "low": 0.0, "high": 1.0, "n": 0}
    bounds = binomtest(hits, n).proportion_ci(method="wilson")
    return {"value": hits / n, "low": float(bounds.low), "high": float(bounds.high), "n": n}


def verdict(checks: Sequence[Check], limit: float) -> Verdict:
    """What the newest check means.

    "stop": surely more than ``limit`` of the imagined successes are false. "warn": more than that are, but not surely;
    or reward and reality part: since the first check the reward rose, and the share of episodes that succeed in
    reality, reward x (1 - false successes), fell.
    """
    told = [check for check in checks if "false_success" in check]
    if not told or told[-1] is not checks[-1]:
        return "fine"
    first, last = told[0], told[-1]
    if last["false_success"]["low"] > limit:
        return "stop"
    rose = last["reward"]["value"] > first["reward"]["value"]
    fell = _really(last) < _really(first)
    return "warn" if last["false_success"]["value"] > limit or (rose and fell) else "fine"


def _really(check: Check) -> float:
    return float(check["reward"]["value"] * (1 - check["false_success"]["value"]))
