"""ALFWorld on its real engine: official games from a folder, or games composed from what the wheel carries."""

import importlib.util
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Protocol

from worldloom.envs.alfworld_engine import new_engine
from worldloom.envs.base import Environment, Observation, StepInfo, StepResult
from worldloom.errors import ConfigError, EnvError, MissingDependency, UnsolvableGame

WELCOME = "-= Welcome to TextWorld, ALFRED! =-"
TASK_MARK = "Your task is to: "
LOOKED_AT = "checked"  # the fact that `look`, `inventory`, `examine` and `open` leave
NO_DATA = (
    "the official ALFWorld games are not at {path}: run `alfworld-download` and set ALFWORLD_DATA to its folder "
    "(the one that holds json_2.1.1), or play composed games with games='composed', which need no download"
)


class GameSource(Protocol):
    """Where games come from: their splits, their ids, and one game as the engine's dictionary."""

    @property
    def splits(self) -> tuple[str, ...]: ...

    def task_ids(self, split: str) -> Sequence[str]: ...

    def game(self, task_id: str) -> Mapping[str, Any]: ...


class OfficialGames:
    """The games that ``alfworld-download`` lays out: <root>/json_2.1.1/<split>/<task>/<trial>/game.tw-pddl."""

    splits = ("train", "valid_seen", "valid_unseen")

    def __init__(self, data: str | Path | None = None):
        root = Path(data or os.environ.get("ALFWORLD_DATA") or "~/.cache/alfworld").expanduser()
        self.root = root / "json_2.1.1" if (root / "json_2.1.1").is_dir() else root
        if not any((self.root / split).is_dir() for split in self.splits):
            raise MissingDependency(NO_DATA.format(path=root))

    def task_ids(self, split: str) -> list[str]:
        games = (self.root / split).glob("*/*/game.tw-pddl")
        ids = (path.parent.relative_to(self.root).as_posix() for path in games)
        # ALFWorld itself leaves these two kinds out: its text engine cannot play them.
        return sorted(i for i in ids if "movable" not in i and "Sliced" not in i)

    def game(self, task_id: str) -> dict[str, Any]:
        path = self.root / task_id / "game.tw-pddl"
        if not path.resolve().is_relative_to(self.root.resolve()) or not path.is_file():
            raise EnvError(f"no ALFWorld game {task_id!r} under {self.root}")
        try:
            game = json.loads(path.read_text(encoding="utf-8"))
            missing = {"pddl_domain", "grammar", "pddl_problem"} - game.keys()
        except (ValueError, AttributeError) as error:
            raise EnvError(
                f"{path}: not a game file ({error}); download it anew with `alfworld-download -f`"
            ) from error
        if missing:
            raise EnvError(f"{path}: no {', '.join(sorted(missing))}; download it anew with `alfworld-download -f`")
        if not game.get("solvable", True):
            raise UnsolvableGame(f"{path}: marked as not solvable; choose another task")
        return game  # type: ignore[no-any-return]


class ComposedGames:
    """Games written on the spot from the wheel's floor plans; see ``alfworld_compose``."""

    def __init__(self) -> None:
        from worldloom.envs import alfworld_compose

        self._compose = alfworld_compose
        self.splits = alfworld_compose.SPLITS

    def task_ids(self, split: str) -> Sequence[str]:
        return self._compose.task_ids(split)

    def game(self, task_id: str) -> Mapping[str, Any]:
        return self._compose.compose(task_id)


class ALFWorld(Environment):
    """Household tasks in text (Shridhar et al. 2021), played by ``alfworld``'s own engine.

    Args:
        games: ``"composed"`` (no download) or ``"official"`` (from ``data``).
        data: folder of the official games; default ``$ALFWORLD_DATA``.
        context: ``"full"`` tells a world model the initial state in the engine's own words; ``"none"`` nothing.
        gold: give the planner's winning plan as ``gold_actions`` where the game file has none (takes time).

    Raises:
        MissingDependency: the engine or the games folder is absent.
    """

    name = "alfworld"

    def __init__(
        self,
        games: Literal["composed", "official"] = "composed",
        data: str | Path | None = None,
        context: Literal["full", "none"] = "full",
        gold: bool = False,
    ):
        if games not in ("composed", "official") or context not in ("full", "none"):
            raise ConfigError(f"games={games!r}, context={context!r}: one of composed/official, and full/none")
        if importlib.util.find_spec("alfworld") is None:
            raise MissingDependency('the ALFWorld engine is not installed: pip install "worldloom[alfworld]"')
        self._options = {"games": games, "context": context, "gold": gold}
        self._data = str(data) if data is not None else None
        self.source: GameSource = OfficialGames(data) if games == "official" else ComposedGames()
        self.version = self._version(games)
        self._engine: Any = None
        self._facts: frozenset[Any] = frozenset()
        self._done = True

    @staticmethod
    def _version(games: str) -> str:
        engine = f"alfworld {version('alfworld')}, textworld {version('textworld')}"
        if games == "official":
            return engine
        from worldloom.envs.alfworld_compose import COMPOSER_VERSION

        return f"{engine}, composer {COMPOSER_VERSION}"

    @property
    def options(self) -> dict[str, Any]:
        """Constructor arguments, without the machine's own data folder."""
        return dict(self._options)

    @property
    def splits(self) -> tuple[str, ...]:
        return self.source.splits

    def task_ids(self, split: str) -> Sequence[str]:
        if split not in self.splits:
            raise ConfigError(f"alfworld has no split {split!r}; it has {', '.join(self.splits)}")
        return self.source.task_ids(split)

    def reset(self, task_id: str, seed: int = 0) -> Observation:
        """Start a game. ALFWorld has no chance in it, so ``seed`` changes nothing."""
        game = self.source.game(task_id)
        self._done = True  # until the game has started
        self._engine = self._engine or new_engine()
        self._engine.request_infos.policy_commands = self._options["gold"] and not game.get("walkthrough")
        try:
            self._engine.load(game)
            state = self._engine.reset()
        except Exception as error:
            self._engine = None
            raise EnvError(f"ALFWorld cannot start {task_id!r}: {error!r}; is the game file whole?") from error
        self._done, self._facts = False, world_facts(state)
        text = state.feedback.removeprefix(WELCOME).strip()
        gold = game.get("walkthrough") or (state.policy_commands if self._options["gold"] else None)
        if self._options["gold"] and not gold:
            raise UnsolvableGame(f"{task_id!r}: the planner finds no plan; choose another task")
        context = initial_context(self._engine.unwrapped) if self._options["context"] == "full" else None
        return Observation(text, text.rpartition(TASK_MARK)[2].rstrip("."), context, tuple(gold) if gold else None)

    def step(self, action: str) -> StepResult:
        if self._done:
            raise EnvError("the episode has ended or none was started: call reset first")
        self._engine.request_infos.policy_commands = False
        state, reward, self._done = self._engine.step(action)
        before, self._facts = self._facts, world_facts(state)
        info = StepInfo(
            terminal="success" if state.won else "failure" if state.lost else None,
            admissible_actions=list(state.admissible_commands),
            changed=self._facts != before,
            refused=state["_last_action"] is None,  # it knows no action for these words here
        )
        return StepResult(state.feedback.strip(), float(reward), self._done, False, info)

    def close(self) -> None:
        self._engine, self._done = None, True


def world_facts(state: Any) -> frozenset[Any]:
    """What is true in the engine's state, but for its notes of what has been looked at."""
    return frozenset(fact for fact in state["_facts"] if fact.name != LOOKED_AT)


def initial_context(engine: Any) -> str:
    """The state of every receptacle, the places that several share, and every switch, in the engine's own words.

    It uses the game's grammar, so that each line is what the engine will say later, word for word and in its
    listing order: predicting an unchanged place is copying. Nothing of the goal is told.
    """
    say = _Narrator(engine)
    lines = [say.receptacle(r) for r in say.entities("receptacleatlocation", 0)]
    lines += [say.facing(group) for group in say.shared_locations()]
    lines += [say.switch(thing) for thing in say.entities("toggleable", 0)]
    return "\n".join(lines)


class _Narrator:
    """Lets the game's own grammar speak about its state."""

    CONTENTS = "[{o.indefinite + ' ' + o.name | inreceptacle(o:object, r:receptacle)}]"

    def __init__(self, engine: Any):
        self.state, self.infos, self.grammar = engine._pddl_state, engine._entity_infos, engine._logic.grammar
        self.facts = sorted(self.state.facts)

    def entities(self, predicate: str, position: int) -> list[Any]:
        """The things for which a predicate holds, in the engine's order."""
        found = (fact.arguments[position] for fact in self.facts if fact.name == predicate)
        return sorted(set(found), key=lambda variable: variable.name)

    def derive(self, rule: str, **things: Any) -> str:
        from textworld.logic import Placeholder

        context = {
            "state": self.state,
            "facts": self.facts,
            "variables": {key: self.infos[thing.name] for key, thing in things.items()},
            "mapping": {Placeholder(key, thing.type): thing for key, thing in things.items()},
            "entity_infos": self.infos,
        }
        return str(self.grammar.derive(rule, context)).strip()

    def receptacle(self, receptacle: Any) -> str:
        said = self.derive("#examineReceptacle.feedback#", r=receptacle)
        if not said.endswith("is closed."):
            return said
        return f"{said} In it, you see {self.derive(self.CONTENTS, r=receptacle)}."

    def switch(self, thing: Any) -> str:
        """The grammar's sentence for a switch. Its own rule says it only if a game writes ``not_istoggled`` down."""
        on = any(fact.name == "istoggled" and fact.arguments[0] == thing for fact in self.facts)
        return f"This {self.infos[thing.name].name} is {'on' if on else 'off'}."

    def shared_locations(self) -> Iterator[list[Any]]:
        places: dict[str, list[Any]] = {}
        for fact in self.facts:
            if fact.name == "receptacleatlocation":
                places.setdefault(fact.arguments[1].name, []).append(fact.arguments[0])
        return (group for _, group in sorted(places.items()) if len(group) > 1)

    def facing(self, group: list[Any]) -> str:
        names = [self.infos[receptacle.name].name for receptacle in group]
        return f"You are facing the {', '.join(names[:-1])}, and {names[-1]}."
