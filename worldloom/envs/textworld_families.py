"""The families of TextWorld's games: what can be set for each, and how its games are generated."""

import importlib
from typing import Any

from worldloom.errors import ConfigError, suggest

DEFAULTS: dict[str, dict[str, Any]] = {
    "simple": {"rewards": "dense", "goal": "detailed"},
    "custom": {"world_size": 6, "nb_objects": 10, "quest_length": 5},
    "cooking": {"recipe": 2, "take": 2, "go": 6, "open": True, "cook": True, "cut": True, "drop": False},
    "coin-collector": {"level": 10},
    "treasure-hunter": {"level": 5},
}
CHOICES = {"rewards": ("dense", "balanced", "sparse"), "goal": ("detailed", "brief", "none")}
LEAST = {"world_size": 1, "nb_objects": 0, "quest_length": 1}
COOKING = {"recipe": range(1, 6), "take": range(6), "go": (1, 6, 9, 12)}
LEVELS = {
    "coin-collector": ((1, 150), (201, 233)),  # those with at most 100 rooms, which is all that a game file holds
    "treasure-hunter": ((1, 30),),
}
CHALLENGES = {
    "simple": "tw_simple.simple",
    "cooking": "tw_cooking.cooking",
    "coin-collector": "tw_coin_collector.coin_collector",
    "treasure-hunter": "tw_treasure_hunter.treasure_hunter",
}


def game_options(family: str, given: dict[str, Any]) -> dict[str, Any]:
    """The options that make a family's games: those given, and the defaults of the others.

    Raises:
        ConfigError: there is no such family, or an option is not one of it, out of range, or contradicts another.
    """
    if family not in DEFAULTS:
        raise ConfigError(f"textworld has no family {family!r}{suggest(family, DEFAULTS)}")
    for name, value in given.items():
        if name not in DEFAULTS[family]:
            raise ConfigError(f"textworld's {family} games have no {name!r}; they have {', '.join(DEFAULTS[family])}")
        _check(family, name, value)
    options = DEFAULTS[family] | given
    if family == "cooking":
        _check_cooking(options)
    return options


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse a value that is none of the choices.

    Raises:
        ConfigError: it is none.
    """
    if value not in choices:
        raise ConfigError(f"textworld's {name} cannot be {value!r}{suggest(str(value), choices)}")


def _check(family: str, name: str, value: Any) -> None:
    if name in CHOICES:
        check_choice(name, value, CHOICES[name])
    elif type(value) is not (wanted := type(DEFAULTS[family][name])):
        raise ConfigError(f"textworld's {name} must be of type {wanted.__name__}, not {value!r}")
    elif name in LEAST and value < LEAST[name]:
        raise ConfigError(f"textworld's {name} must be at least {LEAST[name]}, not {value}")
    elif name == "level" and not any(low <= value <= high for low, high in LEVELS[family]):
        known = " and ".join(f"{low} to {high}" for low, high in LEVELS[family])
        raise ConfigError(f"textworld's {family} games have no level {value}; they have {known}")
    elif name in COOKING and value not in COOKING[name]:
        raise ConfigError(f"textworld's {name} must be one of {', '.join(map(str, COOKING[name]))}, not {value}")


def _check_cooking(options: dict[str, Any]) -> None:
    if options["take"] > options["recipe"]:
        raise ConfigError(f"take={options['take']} of recipe={options['recipe']}: take at most the whole recipe")
    if options["cut"] and not options["cook"] and options["go"] > 6:
        raise ConfigError(
            f"cut=True, cook=False, go={options['go']}: the generator fails where a food that cannot be cut is drawn; "
            "set cook=True or go=6"
        )


def split_options(family: str, options: dict[str, Any], split: str) -> dict[str, Any]:
    """The options of the games of one split: of cooking, each split has foods and preparations of its own."""
    return {**options, "split": split} if family == "cooking" else options


def generate(family: str, options: dict[str, Any], seed: int, settings: Any) -> Any:
    """The game of a seed (a ``textworld.Game``), as ``tw-make`` generates it; ``settings`` are TextWorld's own."""
    settings.seeds = seed
    if family == "custom":
        return _custom(options, settings)
    if family == "simple":
        options = {**options, "test": False}
    elif family == "cooking":
        options = {**options, "recipe_seed": _recipe_seed(options, seed)}
    challenge = importlib.import_module(f"textworld.challenges.{CHALLENGES[family]}")
    return _in_order(challenge.make(options, settings))


def _recipe_seed(options: dict[str, Any], seed: int) -> int:
    """What draws the recipe: the game's seed, from all food that lies about.

    Where something is carried from the start, 0, which tells the generator to draw the recipe together with what is
    carried, again by the game's seed: drawn apart, it could want nothing of that.
    """
    return seed if options["take"] == options["recipe"] else 0


def _custom(options: dict[str, Any], settings: Any) -> Any:
    settings.nb_rooms, settings.nb_objects = options["world_size"], options["nb_objects"]
    chaining, length = settings.chaining, options["quest_length"]
    chaining.min_length = chaining.max_length = chaining.max_depth = length
    return importlib.import_module("textworld.generator").make_game(settings)


def _in_order(game: Any) -> Any:
    """The game with a fixed order of what TextWorld takes out of sets of texts, whose order changes with the process.

    These are the names that its grammar leaves out and, of a dish, the ways to spoil it (eating it comes first).
    """
    for quest in game.quests:
        quest.fail_events = sorted(quest.fail_events, key=_facts)
    game.grammar.options.names_to_exclude.sort(key=str)
    return game


def _facts(event: Any) -> list[tuple[bool, str]]:
    return [(fact.name != "consumed", fact.name) for fact in event.condition.preconditions]
