"""Real environments behind one contract, and the one registry of the library."""

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_type_hints

from worldloom.envs.base import Environment, Observation, StepInfo, StepResult
from worldloom.errors import ConfigError, suggest

ENVIRONMENTS = {
    "alfworld": "worldloom.envs.alfworld:ALFWorld",
    "backoffice": "worldloom.envs.backoffice:BackOffice",
    "support": "worldloom.envs.support:Support",
    "scienceworld": "worldloom.envs.scienceworld:ScienceWorld",
    "textworld": "worldloom.envs.textworld:TextWorld",
    "toolbench": "worldloom.envs.toolbench:ToolBench",
    "textworld-coin-collector": "worldloom.envs.textworld_challenges:CoinCollector",
    "textworld-cooking": "worldloom.envs.textworld_challenges:Cooking",
    "textworld-treasure-hunter": "worldloom.envs.textworld_challenges:TreasureHunter",
    "webshop": "worldloom.envs.webshop:WebShop",
}
PACKAGE, MANIFEST = "worldloom.package:load_world", "world.json"
FETCHED = {"webshop": "worldloom.envs.webshop_catalogue:fetch"}
"""Environments whose data ``worldloom fetch`` downloads from where their authors offer them."""

__all__ = [
    "ENVIRONMENTS",
    "FETCHED",
    "EnvSpec",
    "Environment",
    "Observation",
    "StepInfo",
    "StepResult",
    "construct",
    "imported",
    "make",
    "suggest",
]


def make(name: str, **options: Any) -> Environment:
    """Build an environment by its name, or by the folder of a world package (``worldloom build``); ``options`` go to
    its constructor, or to ``worldloom.load_world``.

    Raises:
        ConfigError: no such environment or option; the message suggests the nearest name.
        MissingDependency: its engine or data is not installed; the message says how to get it.
        DataError: the package is not whole.
    """
    environment: Environment
    if name not in ENVIRONMENTS and (Path(name) / MANIFEST).is_file():
        environment = construct(PACKAGE, {"folder": name, **options})
        return environment
    if name not in ENVIRONMENTS:
        told = f"; {name} has no {MANIFEST}, so it is no world package" if Path(name).is_dir() else ""
        raise ConfigError(f"unknown environment {name!r}{suggest(name, ENVIRONMENTS)}{told}")
    environment = construct(ENVIRONMENTS[name], options)
    return environment


@dataclass(frozen=True)
class EnvSpec:
    """What another process needs to build an environment: a name of ``ENVIRONMENTS``, ``"module:Class"``, or the folder
    of a world package."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def build(self) -> Environment:
        """Build it.

        Raises:
            ConfigError: no such environment, module, class or option.
            MissingDependency: its engine or data is not installed.
        """
        if ":" not in self.name or (Path(self.name) / MANIFEST).is_file():
            return make(self.name, **self.options)
        environment: Environment = construct(self.name, self.options)
        return environment


def construct(target: str, options: Mapping[str, Any]) -> Any:
    """Import ``"module:Class"`` and call the class with ``options``.

    Raises:
        ConfigError: there is no such module, class or option, or it is of the wrong kind; the message names it.
    """
    made = imported(target)
    known = inspect.signature(made).parameters
    try:
        inspect.signature(made).bind(**options)
    except TypeError as error:
        raise ConfigError(f"{target!r}: {error}; known options: {', '.join(known) or 'none'}") from error
    _check_kinds(target, made, options)
    return made(**options)


def _check_kinds(target: str, made: Any, options: Mapping[str, Any]) -> None:
    """Refuse what is no number or no truth value where the constructor wants one."""
    try:
        hints = get_type_hints(made.__init__ if inspect.isclass(made) else made)
    except (NameError, TypeError, AttributeError):  # annotations that only a type checker understands
        return
    for name, value in options.items():
        kinds = set(get_args(hints.get(name)) or [hints.get(name)])
        if kinds <= {bool, int, float, type(None)} and not _is_of(kinds, value):
            wanted = " or ".join(sorted(kind.__name__ for kind in kinds if kind is not type(None)))
            raise ConfigError(f"{target!r}: {name} must be of type {wanted}, not {value!r}")


def _is_of(kinds: set[Any], value: Any) -> bool:
    """A whole number may stand for any, a truth value for none."""
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, (*kinds, int) if float in kinds else tuple(kinds))


def imported(target: str) -> Any:
    """The class (or function) that ``"module:Class"`` names.

    Raises:
        ConfigError: there is no such module or class; the message names it.
    """
    module_name, _, attribute = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there, something that it imports is not
        raise ConfigError(f"{target!r}: there is no module {error.name!r}") from error
    found = getattr(module, attribute, None)
    if found is None:
        raise ConfigError(f"{target!r}: module {module_name!r} has no {attribute!r}{suggest(attribute, vars(module))}")
    return found
