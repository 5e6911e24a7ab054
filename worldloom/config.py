"""Training settings: their kinds and defaults, from a YAML file and from single values."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin

import yaml
from pydantic import TypeAdapter, ValidationError

from worldloom.errors import ConfigError, suggest
from worldloom.lm.hf import DEFAULT_MODEL
from worldloom.role import Learns, Says
from worldloom.tokens import Overflow

Settings = TypeVar("Settings")
Schedule = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True)
class TrainConfig:
    """How to train. Budgets: whichever of ``epochs``, ``steps`` and ``minutes`` is used up first ends it.

    The defaults are for SmolLM2-135M on a CPU; ``configs/`` has the recipe of arXiv 2512.18832.

    Raises:
        ConfigError: a value is out of range, or ``batch`` is no multiple of ``micro_batch``.
    """

    model: str = DEFAULT_MODEL
    epochs: float = 1.0
    steps: int | None = None
    minutes: float | None = None
    learning_rate: float = 5e-4
    schedule: Schedule = "cosine"
    warmup_steps: int = 10
    batch: int = 4  # episodes in one optimizer step, over all processes
    micro_batch: int = 1  # episodes in one forward pass of one process
    max_tokens: int | None = None  # an episode's budget; None is the model's window
    overflow: Overflow = "cut"
    max_grad_norm: float = 1.0
    weight_decay: float = 0.0
    precision: Literal["auto", "bfloat16", "float32"] = "auto"
    lora_rank: int | None = None  # None trains all weights
    lora_alpha: int = 32
    gradient_checkpointing: bool = False
    save_minutes: float = 10.0
    seed: int = 0
    mixture: Mapping[str, float] | None = None  # environment -> weight of its episodes; None: all episodes alike
    snapshots: tuple[int, ...] | None = None  # episodes after which the model is kept as it is, in RUN/model-at-N
    name_environment: bool | None = None  # in the system message; None: as the model does, and where there are several
    learns: Learns = "world"  # what is said by the world, or what is done by the agent
    says: Says = "actions"  # of a policy: the action alone, or ReAct's thought and action
    change_role: bool = False  # allow to make a policy of a world model, or the reverse
    keep: Literal["all", "success"] = "all"  # which episodes to learn from
    episodes: int | None = None  # how many of them, drawn by the seed; None is all
    imagined: float | None = None  # share of imagined ones among them; None takes them as they come

    def __post_init__(self) -> None:
        for name in ("epochs", "learning_rate", "batch", "micro_batch", "save_minutes"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be above 0")
        for name in ("steps", "minutes", "max_tokens", "lora_rank", "episodes"):
            if (value := getattr(self, name)) is not None and not 0 < value < math.inf:
                raise ConfigError(f"{name} is {value}; it must be above 0, or left out")
        for name in ("warmup_steps", "max_grad_norm", "weight_decay"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be 0 or more")
        if self.batch % self.micro_batch:
            raise ConfigError(f"batch ({self.batch}) must be a multiple of micro_batch ({self.micro_batch})")
        if wrong := [count for count in self.snapshots or () if count < 1]:
            raise ConfigError(f"snapshots has {wrong[0]}; it must be numbers of episodes, 1 or more")
        self._check_choice()
        for env, weight in (self.mixture or {}).items():
            if not 0 < weight < math.inf:
                raise ConfigError(f"mixture gives {env!r} the weight {weight}; it must be above 0")

    def _check_choice(self) -> None:
        if self.imagined is not None and not 0 <= self.imagined <= 1:
            raise ConfigError(f"imagined is {self.imagined}; it is a share from 0 to 1")
        if self.learns == "world" and self.says != "actions":
            raise ConfigError(f"says={self.says} is how a policy speaks; give learns=policy, too")
        if self.learns == "policy" and self.overflow == "window":
            raise ConfigError("overflow=window would join observations that a policy saw apart; use cut or drop")

    def recorded(self) -> dict[str, Any]:
        """As a run keeps them; a setting that came later is left out where it changes nothing, so that runs from
        before it go on."""
        kept = {f.name: getattr(self, f.name) for f in fields(self)}
        usual = {f.name: f.default for f in fields(self) if f.name in LATER}
        return {name: value for name, value in kept.items() if name not in usual or value != usual[name]}


LATER = ("learns", "says", "change_role", "keep", "episodes", "imagined")


def described() -> list[str]:
    """Each setting with its kind and default, as ``NAME=DEFAULT (KIND)``."""
    return [f"{f.name}={json.dumps(f.default)} ({_kind(f.type)})" for f in fields(TrainConfig)]


def _kind(hint: Any) -> str:
    """A setting's annotation as a person says it."""
    if get_origin(hint) is Literal:
        return ", ".join(get_args(hint))
    if isinstance(hint, UnionType):
        return " or ".join("null" if part is type(None) else _kind(part) for part in get_args(hint))
    if get_origin(hint) is not None:
        return "NUMBER, ..." if get_origin(hint) is tuple else "NAME: NUMBER, ..."
    return str(hint.__name__)


def train_config(path: Path | None = None, values: Mapping[str, Any] | None = None) -> TrainConfig:
    """Settings for training: the file's, then ``values`` over them.

    Raises:
        ConfigError: the file cannot be read, a key is unknown, or a value is of the wrong kind.
    """
    return validated(TrainConfig, {**(load_yaml(path) if path else {}), **(values or {})}, "training setting")


def validated(kind: type[Settings], values: Mapping[str, Any], what: str = "setting") -> Settings:
    """Settings of a dataclass, from values as YAML and JSON give them.

    Args:
        what: they are called in messages, as "training setting".

    Raises:
        ConfigError: a key is unknown, or a value is of the wrong kind.
    """
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise ConfigError(f"unknown {what} {key!r}{suggest(str(key), known)}")
    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ConfigError(f"{what} {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def load_yaml(path: Path) -> dict[str, Any]:
    """Settings in a YAML file.

    Raises:
        ConfigError: the file cannot be read, or holds no settings.
    """
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not YAML: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: must hold KEY: VALUE lines")
    return found
