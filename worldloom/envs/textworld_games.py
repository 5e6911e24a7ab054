"""The games that TextWorld plays: generated with its own generator, compiled, cached, and toured."""

import fcntl
import importlib
import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from worldloom.envs.textworld_families import generate
from worldloom.errors import EnvError, MissingDependency, UnsolvableGame

STATUS = re.compile(r"\n?>?[ \t]*(?P<status>-= (?P<room>.*?) =-\s*-?\d+/\d+)\s*\Z")
_SCORED = re.compile(r"Your score has just gone (?:up|down) by .*?\.")
_BACK = {"go north": "go south", "go south": "go north", "go east": "go west", "go west": "go east"}


def engine() -> ModuleType:
    """The package ``textworld``.

    Raises:
        MissingDependency: it is not installed.
    """
    try:
        return importlib.import_module("textworld")
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f'TextWorld needs the package {error.name!r}: pip install "worldloom[textworld]" (Linux or macOS)'
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out the warning that Jericho gives of every game that is not a published one."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is not fully supported")
        yield


def cached_game(folder: Path, family: str, options: dict[str, Any], seed: int) -> Path:
    """The game file in ``folder``, made there if the folder does not exist.

    A folder appears whole or not at all, and of several processes that want the same game one makes it.

    Raises:
        UnsolvableGame: the generator found no quest.
        EnvError: the game cannot be made, or the cache cannot be written.
    """
    if not folder.is_dir():
        with _lock(folder.with_name(f".lock-{seed % 64}")):
            if not folder.is_dir():
                _make_whole(folder, family, options, seed)
    return folder / "game.z8"


def _make_whole(folder: Path, family: str, options: dict[str, Any], seed: int) -> None:
    draft = folder.with_name(f".draft-{folder.name}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    try:
        make_game(family, options, seed, draft / "game.z8")
        (draft / "game.ni").unlink(missing_ok=True)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def is_whole(story: Path) -> bool:
    """Whether a compiled game is undamaged by its own header; the interpreter would end the process if it were not.

    Z-Machine Standards 1.1, section 11: version in byte 0, length over 8 in word 0x1A, the sum of all bytes after the
    header in word 0x1C.
    """
    data = story.read_bytes()
    if len(data) < 64 or data[0] != 8:
        return False
    length = 8 * int.from_bytes(data[0x1A:0x1C], "big")
    return len(data) >= length and sum(data[64:length]) % 65536 == int.from_bytes(data[0x1C:0x1E], "big")


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold a lock that other processes respect and that dies with this one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    except OSError as error:
        raise EnvError(f"cannot write the game cache {path.parent} ({error.strerror}): set WORLDLOOM_CACHE") from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_game(family: str, options: dict[str, Any], seed: int, path: Path) -> None:
    """Generate and compile the game of a seed, as ``tw-make`` does (a few seconds).

    Raises:
        UnsolvableGame: the generator found no quest.
        EnvError: the bundled Inform compiler failed or cannot run here.
    """
    settings = engine().GameOptions()
    generator = importlib.import_module("textworld.generator")
    settings.path = str(path)
    try:
        with quiet():
            generator.compile_game(generate(family, options, seed, settings), settings)
    except generator.QuestGenerationError as error:
        raise UnsolvableGame(f"textworld found no quest with seed {seed} and {options}: relax the options") from error
    except (OSError, generator.CouldNotCompileGameError) as error:
        raise EnvError(f"textworld's Inform compiler failed on seed {seed} and {options}: {error}") from error


def plain(raw: str) -> str:
    """What the engine printed without prompt, padding, blank runs and status line."""
    match = STATUS.search(raw)
    body = raw[: match.start()] if match else raw
    body = "\n".join(line.rstrip() for line in body.splitlines())
    return re.sub(r"\n{3,}", "\n\n", body).strip("\n")


def tour(game: Any) -> str:
    """What the engine says of an untouched game: each room as first seen, each thing examined, each container opened.

    The engine itself plays the tour, and must be reset after it. Where an action would end the game, the tour starts
    again without it. Scores are left out, so that nothing says which actions count.
    """
    skip: set[_Deed] = set()
    while True:
        walk = _Tour(game, skip)
        try:
            walk.visit(game.reset())
        except _Ended as end:
            skip.add(end.deed)
        else:
            return "\n\n".join(walk.said)


class _Deed(NamedTuple):
    room: str
    command: str


class _Ended(Exception):
    """A deed of the tour ended the game."""

    def __init__(self, deed: _Deed):
        super().__init__(deed)
        self.deed = deed


class _Tour:
    """One walk through a house, depth first: look, examine, open, take keys, unlock, go on, come back."""

    def __init__(self, game: Any, skip: set[_Deed]):
        self.game, self.skip = game, skip
        self.said: list[str] = []
        self.rooms: set[str] = set()
        self.tried: set[str] = set()

    def visit(self, state: Any) -> None:
        """Tell of the room where the player stands, then of all rooms beyond it."""
        room = _room(state)
        self.rooms.add(room)
        state = self._do(_Deed(room, "look"))
        self.said.append(self._words(state))
        while command := next((c for c in state.admissible_commands if self._is_worth(_Deed(room, c), state)), None):
            self.tried.add(command)
            state = self._do(_Deed(room, command))
            if command.startswith(("examine ", "open ")):
                self.said.append(f"> {command}\n{self._words(state)}")
        for way in [c for c in state.admissible_commands if c in _BACK and _Deed(room, c) not in self.skip]:
            self._beyond(_Deed(room, way))

    def _beyond(self, deed: _Deed) -> None:
        state = self._do(deed)
        if _room(state) not in self.rooms:
            self.visit(state)
        self._do(deed, _BACK[deed.command])

    def _do(self, deed: _Deed, command: str | None = None) -> Any:
        state, _, done = self.game.step(command or deed.command)
        if done:
            raise _Ended(deed)
        return state

    def _is_worth(self, deed: _Deed, state: Any) -> bool:
        if deed.command in self.tried or deed in self.skip:
            return False
        keys = tuple(f"take {name}" for name, kind in state.typed_entities if kind == "k")
        return deed.command.startswith(("examine ", "open ", "unlock ", *keys))

    def _words(self, state: Any) -> str:
        return plain(_SCORED.sub("", state.feedback))


def _room(state: Any) -> str:
    match = STATUS.search(state.feedback)
    return match["room"] if match else ""
