"""Training settings from a YAML file and from single values; an unknown key is an error with a suggestion."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import TypeAdapter, ValidationError

from worldloom.envs import suggest
from worldloom.errors import ConfigError

if TYPE_CHECKING:
    from worldloom.train import TrainConfig


def train_config(path: Path | None = None, values: Mapping[str, Any] | None = None) -> "TrainConfig":
    """Settings for training: the file's, then ``values`` over them.

    Raises:
        ConfigError: the file cannot be read, a key is unknown, or a value is of the wrong kind.
    """
    from worldloom.train import TrainConfig

    settings = {**(_load(path) if path else {}), **(values or {})}
    known = TrainConfig.__dataclass_fields__
    for key in settings:
        if key not in known:
            raise ConfigError(f"unknown training setting {key!r}{suggest(str(key), known)}")
    try:
        return TypeAdapter(TrainConfig).validate_python(settings)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ConfigError(f"training setting {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _load(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is not YAML: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: must hold KEY: VALUE lines")
    return found
