"""How a world is built from logs: what is read, redacted and split, and how the minutes are shared."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from worldloom.config import TrainConfig, train_config
from worldloom.errors import ConfigError
from worldloom.ingest.run import Settings
from worldloom.redact.rules import Rules
from worldloom.split import SplitConfig
from worldloom.trajectory import Trajectory

TRAIN, TEST = "train", "test"
TRAINING_SHARE = 2 / 3  # of the minutes; the rest is for measuring
EPOCHS = 3  # passes, where the minutes allow them
MAX_TOKENS = 4096  # of an episode that is learnt: memory and time grow with it
STEP_TOKENS = 2000  # in one optimizer step, about


@dataclass(frozen=True)
class BuildConfig:
    """How to build.

    Args:
        name: of the world and of its environment.
        minutes: for training and measuring together: two thirds are training's, of the rest one-step fidelity and
            rollouts have half each; reading the logs and the few-shot baseline come on top. None takes as long as
            three passes over the data, and all held-out episodes, need.
        train: training settings over the build's own (``worldloom.config.TrainConfig``).
        read: how the logs are read; its ``env`` and ``keep`` are filled in.
        rules: what is redacted; its scope is filled in.
        by, time: what no two splits may share, and the field with a time; see ``worldloom.split.SplitConfig``.
        test: share of the groups that is held out.
        seed: of splits, training and measuring.
        few_shot: held-out episodes on which the base model, shown three episodes, is measured beside; 0 for none.
        strict: stop at the first record that is lost.

    Raises:
        ConfigError: a setting is out of range, or unknown.
    """

    name: str
    minutes: float | None = None
    train: Mapping[str, Any] = field(default_factory=dict)
    read: Settings = field(default_factory=Settings)
    rules: Rules = field(default_factory=Rules)
    by: tuple[str, ...] = ("task",)
    time: str | None = None
    test: float = 0.2
    seed: int = 0
    few_shot: int = 0
    strict: bool = False

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ConfigError("the world has no name; give one")
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise ConfigError(f"minutes is {self.minutes}; it must be above 0, or left out")
        if self.few_shot < 0:
            raise ConfigError(f"few_shot is {self.few_shot}; it must be 0 or more")
        if not 0 < self.test < 1:
            raise ConfigError(f"test is {self.test}; it must be between 0 and 1")
        self.training(STEP_TOKENS)
        _ = self.splitting, self.settings

    @property
    def settings(self) -> Settings:
        """How the logs are read: under the world's name, with the fields that they are split by."""
        fields = [*self.by, *([self.time] if self.time else [])]
        own = [path for path in fields if path != "task" and path.partition(".")[0] not in Trajectory.model_fields]
        return replace(self.read, env=self.name, keep=tuple(dict.fromkeys((*self.read.keep, *own))))

    @property
    def redaction(self) -> Rules:
        """What is redacted; where episodes are told apart by more than their task, the same in all of them."""
        return replace(self.rules, scope="episode" if self.by == ("task",) else "file")

    @property
    def splitting(self) -> SplitConfig:
        """How episodes are split."""
        fractions = ((TRAIN, 1 - self.test), (TEST, self.test))
        return SplitConfig(
            self.by, self.time, fractions, self.seed, leaks="leave_out", placeholders=self.redaction.scope
        )

    def training(self, mean_tokens: float) -> TrainConfig:
        """How to train on episodes of a mean length; the fewer tokens one has, the more make one optimizer step."""
        own: dict[str, Any] = {
            "epochs": EPOCHS, "batch": max(1, min(4, round(STEP_TOKENS / mean_tokens))), "max_tokens": MAX_TOKENS,
            "overflow": "window", "seed": self.seed,
        }  # fmt: skip
        if self.minutes is not None:
            own["minutes"] = self.minutes * TRAINING_SHARE
        return train_config(None, {**own, **self.train})

    @property
    def measuring_minutes(self) -> float | None:
        """For one-step fidelity and rollouts."""
        return None if self.minutes is None else self.minutes * (1 - TRAINING_SHARE)

    def plain(self) -> dict[str, Any]:
        """As a run's settings; what is redacted, which may be names, only by a digest."""
        return {
            "name": self.name, "minutes": self.minutes, "train": dict(self.train), "read": asdict(self.settings),
            "rules": self.redaction.digest, "by": list(self.by), "time": self.time,
            "test": self.test, "seed": self.seed, "few_shot": self.few_shot, "strict": self.strict,
        }  # fmt: skip


@dataclass(frozen=True)
class Work:
    """The folders and files of a build, all in ``WORLD/work``."""

    out: Path

    @property
    def folder(self) -> Path:
        """What is needed only while the world is built, or to go on with it."""
        return self.out / "work"

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    @property
    def train(self) -> Path:
        """The episodes that are learnt."""
        return self / "data" / f"{TRAIN}.jsonl"

    @property
    def test(self) -> Path:
        """The episodes that are held out."""
        return self / "data" / f"{TEST}.jsonl"
