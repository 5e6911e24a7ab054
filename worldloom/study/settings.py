"""What a study is: its kind, its worlds, its sizes, and how models are trained in it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from worldloom.agents import AgentSpec
from worldloom.config import TrainConfig, load_yaml, train_config, validated
from worldloom.envs import EnvSpec
from worldloom.errors import ConfigError, suggest

Kind = Literal["data", "mixture", "coverage", "ood", "context"]
KINDS: tuple[str, ...] = get_args(Kind)
CONFIGS = Path(str(files("worldloom.study"))) / "configs"
SCALED = ("minutes", "steps")  # of training, where they are set


@dataclass(frozen=True)
class World:
    """An environment as studies play it.

    Args:
        env, options, max_steps: what is played, and how long.
        train, test, unseen: splits to learn from, to be measured on, and of what was not seen in training.
        agent, agents: who makes the training episodes, in turn: parameters of one scripted agent, the most able first.
        stranger: the parameters of one that is in no training data.
        contexts: options that tell the world model the initial state, and that tell it nothing, each with a name.
    """

    env: str
    agent: str
    agents: tuple[Mapping[str, Any], ...]
    stranger: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    train: str = "train"
    test: str = "test"
    unseen: tuple[str, ...] = ()
    max_steps: int = 50
    contexts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def spec(self, **options: Any) -> EnvSpec:
        """The environment, with some options changed."""
        return EnvSpec(self.env, {**self.options, **options})

    @property
    def players(self) -> list[AgentSpec]:
        """Who makes the training episodes."""
        return [AgentSpec(self.agent, params) for params in self.agents]

    @property
    def unknown(self) -> AgentSpec:
        """The one that is in no training data."""
        return AgentSpec(self.agent, self.stranger)


@dataclass(frozen=True)
class Settings:
    """A study.

    Args:
        study: what it varies.
        worlds: names of ``configs/worlds.yaml`` or of ``define``.
        trajectories: real episodes to learn from, of each world; several numbers only where the study varies them.
        test: real episodes that one-step fidelity is measured on, for each arm.
        tasks: on which consistency is measured, for each arm; 0 measures none.
        scale: multiplies these three, and training's budgets of minutes and steps; ``study_settings`` takes a larger
            model for a large one.
        seed: draws tasks and drives agents.
        train: settings of training, see ``worldloom.config.TrainConfig``.
        trained: a model that is there already (a run of ``worldloom train``, or one that another study made), for
            ``ood``: it is measured as it is, and nothing is trained.
        define: worlds of one's own.

    Raises:
        ConfigError: something is out of range.
    """

    study: Kind
    worlds: tuple[str, ...]
    trajectories: tuple[int, ...]
    test: int
    tasks: int = 0
    scale: float = 1.0
    seed: int = 0
    train: Mapping[str, Any] = field(default_factory=dict)
    trained: str | None = None
    define: Mapping[str, World] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise ConfigError(f"scale is {self.scale}; it must be above 0")
        if not self.trajectories or any(count < 1 for count in self.trajectories):
            raise ConfigError(f"trajectories is {list(self.trajectories)}; it must be numbers of 1 or more")
        if self.test < 1 or self.tasks < 0:
            raise ConfigError(f"test is {self.test} and tasks {self.tasks}; they must be 1 or more, and 0 or more")
        if len(set(self.worlds)) < (2 if self.study == "mixture" else 1):
            raise ConfigError(f"study {self.study} of {list(self.worlds)}: a mixture needs two worlds, others one")
        if self.trained and (self.study != "ood" or len(self.worlds) > 1):
            raise ConfigError("trained is for study ood of one world; leave it out, and the study trains what it needs")
        self._check_trajectories()

    def _check_trajectories(self) -> None:
        """Several numbers are for the study that measures a training on its way, which must be steady."""
        if self.study != "data" and len(self.trajectories) > 1:
            raise ConfigError(f"study {self.study} takes one number of trajectories, not {list(self.trajectories)}")
        if self.study == "data" and (budget := [name for name in SCALED if self.train.get(name)]):
            raise ConfigError(f"study data ends with its last trajectory; leave {budget[0]} out")
        if self.study == "data" and (schedule := self.train.get("schedule", "constant")) != "constant":
            raise ConfigError(f"study data measures a training on its way; schedule must be constant, not {schedule!r}")

    def sized(self) -> "Settings":
        """The same with ``scale`` put into its sizes.

        Raises:
            ConfigError: two numbers of trajectories become one.
        """
        counts = tuple(max(1, round(count * self.scale)) for count in self.trajectories)
        if len(set(counts)) < len(counts):
            raise ConfigError(f"scale {self.scale} makes trajectories {list(counts)}, of which two are alike")
        train = {k: v * self.scale if k in SCALED and v else v for k, v in self.train.items()}
        if train.get("steps"):
            train["steps"] = max(1, round(train["steps"]))
        return replace(
            self, trajectories=tuple(sorted(counts)), test=max(2, round(self.test * self.scale)), scale=1.0,
            tasks=max(2, round(self.tasks * self.scale)) if self.tasks else 0, train=train,
        )  # fmt: skip

    @property
    def places(self) -> dict[str, World]:
        """The worlds, by name.

        Raises:
            ConfigError: one is not known.
        """
        known = {**known_worlds(), **self.define}
        if unknown := [name for name in self.worlds if name not in known]:
            raise ConfigError(f"unknown world {unknown[0]!r}{suggest(unknown[0], known)}")
        return {name: known[name] for name in self.worlds}

    @property
    def training(self) -> TrainConfig:
        """How models are trained.

        Raises:
            ConfigError: a setting is unknown or wrong.
        """
        usual = {"schedule": "constant"} if self.study == "data" else {}
        return train_config(None, {**usual, **self.train})


def known_worlds() -> dict[str, World]:
    """The worlds that are shipped."""
    found = load_yaml(CONFIGS / "worlds.yaml")
    return {name: validated(World, world, f"setting of world {name}") for name, world in found.items()}


def study_settings(name: str, values: Mapping[str, Any] | None = None) -> Settings:
    """The settings of a study by its name or its own YAML file, with ``values`` over them.

    A key of ``values`` may also be one of training, as ``model``. Where no model is named, a large scale brings a
    larger one, with the learning rate and the batch that fit it (``configs/models.yaml``).

    Raises:
        ConfigError: no such study, an unknown key, or a value of the wrong kind.
    """
    path = CONFIGS / f"{name}.yaml" if name in KINDS else Path(name)
    if name not in KINDS and path.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"unknown study {name!r}{suggest(name, KINDS)}; or give a YAML file")
    settings = load_yaml(path)
    own, training = ([f.name for f in fields(kind)] for kind in (Settings, TrainConfig))
    train, asked = dict(settings.get("train") or {}), {}
    for key, value in (values or {}).items():
        if key in own:
            settings[key] = _listed(key, value)
        elif key in training:
            asked[key] = value
        else:
            raise ConfigError(f"unknown setting {key!r}{suggest(key, [*own, *training])}")
    if "model" not in {**train, **asked}:
        train |= _larger(settings.get("scale", 1.0))
    train |= asked
    found = validated(Settings, {**settings, "train": train}, "study setting")
    _ = found.training, found.places  # what is wrong with them is told now
    return found


def _larger(scale: Any) -> dict[str, Any]:
    """The model that belongs to a scale, and how it is trained; nothing where it is the usual one."""
    found: dict[str, Any] = {}
    for rung in yaml.safe_load((CONFIGS / "models.yaml").read_text(encoding="utf-8")):
        if isinstance(scale, int | float) and scale >= rung.pop("from"):
            found = rung
    return found


def _listed(key: str, value: Any) -> Any:
    """One value, or several with commas, where a list is wanted."""
    if key not in ("worlds", "trajectories"):
        return value
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    return value if isinstance(value, Sequence) else [value]
