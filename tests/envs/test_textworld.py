"""TextWorld: the transcript, the end of games, bad actions, determinism, the cache, and clear errors."""

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import worldloom.envs
from worldloom.cache import cache_dir
from worldloom.envs import EnvSpec, textworld_games
from worldloom.envs.check import check_env
from worldloom.envs.textworld import LONGEST_ACTION, UNKNOWN_VERB, TextWorld, readable, speakable
from worldloom.errors import ConfigError, EnvError, MissingDependency

TASK = "simple/test/00001"

# Read off TextWorld 1.7.0 itself: tw-make tw-simple --rewards dense --goal detailed --seed 1000001
OBJECTIVE = (
    "Welcome to another fast paced game of TextWorld! Here is your task for today. Your first objective is to ensure "
    "that the chest drawer is open. After pulling open the chest drawer, retrieve the old key from the chest drawer. "
    "After that, insert the old key into the wooden door within the bedroom's lock to unlock it. After that, ensure "
    "that the wooden door within the bedroom is open. Having pulled open the wooden door, travel east. After that, "
    "ensure that the refrigerator is open. And then, recover the milk from the refrigerator inside the kitchen. And "
    "then, put the milk on the stove in the kitchen. And if you do that, you're the winner!"
)
BEDROOM = (
    "-= Bedroom =-\nYou've just walked into a bedroom.\n\nYou make out a chest drawer. You make out a closed antique "
    "trunk. You see a king-size bed. The king-size bed is normal. Looks like someone's already been here and taken "
    "everything off it, though. What, you think everything in TextWorld should have stuff on it?\n\nThere is a closed "
    "wooden door leading east."
)
POINT = "\n\nYour score has just gone up by one point."
TRANSCRIPT = [
    ("open chest drawer", f"You open the chest drawer, revealing an old key.{POINT}\n\n-= Bedroom =-1/2", 1 / 7),
    (
        "take old key from chest drawer",
        f"You take the old key from the chest drawer.{POINT}\n\n-= Bedroom =-2/3",
        1 / 7,
    ),
    ("unlock wooden door with old key", f"You unlock wooden door.{POINT}\n\n-= Bedroom =-3/4", 1 / 7),
    ("open wooden door", f"You open wooden door.{POINT}\n\n-= Bedroom =-4/5", 1 / 7),
    (
        "go east",
        "-= Kitchen =-\nYou've entered a kitchen.\n\nYou scan the room, seeing a refrigerator. You shudder, but "
        "continue examining the room. You can make out a counter. But the thing is empty. You see a stove. But the "
        "thing hasn't got anything on it. It would have been so cool if there was stuff on the stove. You scan the "
        "room, seeing a kitchen island. You see a note on the kitchen island.\n\nThere is a closed screen door leading "
        "east. There is an open wooden door leading west. There is an exit to the north. Don't worry, it is "
        f"unguarded. You don't like doors? Why not try going south, that entranceway is unblocked.{POINT}"
        "\n\n-= Kitchen =-5/6",
        1 / 7,
    ),
    ("open refrigerator", "You open the refrigerator, revealing a milk and a bell pepper.\n\n-= Kitchen =-5/7", 0),
    ("take milk from refrigerator", f"You take the milk from the refrigerator.{POINT}\n\n-= Kitchen =-6/8", 1 / 7),
    (
        "put milk on stove",
        f"You put the milk on the stove.{POINT}\n\n{' ' * 55}*** The End ***\n\nYou scored 7 out of a possible 7, in 9 "
        "turns.\n\nWould you like to RESTART, RESTORE a saved game, QUIT or UNDO the last command?\n\n-= Kitchen =-6/8",
        1 / 7,
    ),
]
GOLD = [action for action, _, _ in TRANSCRIPT]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Games are made once for this file, unless ``WORLDLOOM_CACHE`` holds them already."""
    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get("WORLDLOOM_CACHE"):
            patch.setenv("WORLDLOOM_CACHE", str(tmp_path_factory.mktemp("games")))
        yield cache_dir()


def digest(env: TextWorld, actions: list[str]) -> str:
    """A fingerprint of every text of an episode."""
    texts = [env.reset(TASK).text, *(env.step(action).observation for action in actions)]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


@pytest.mark.engine
class TestEngine:
    def test_transcript(self) -> None:
        with worldloom.envs.make("textworld") as env:
            first = env.reset(TASK)
            assert first.text == f"{OBJECTIVE}\n\n{BEDROOM}\n\n-= Bedroom =-0/1"
            assert (first.instruction, first.initial_context) == (OBJECTIVE, None)
            assert list(first.gold_actions or ()) == GOLD
            for action, text, reward in TRANSCRIPT:
                result = env.step(action)
                assert result.observation == text
                assert result.reward == pytest.approx(reward)
                assert (result.terminated, result.truncated) == (action == GOLD[-1], False)
                assert (result.info["changed"], result.info["refused"]) == (True, False)
            assert result.info["terminal"] == "success"
            with pytest.raises(EnvError, match="reset"):
                env.step("look")

    @pytest.mark.parametrize(
        ("action", "said", "refused"),
        [
            ("look", "-= Bedroom =-\nYou've just", False),
            ("examine door", "The wooden door looks sturdy.", False),  # which is not listed in these words
            ("wait", "Time passes.", False),
            ("fly", "That's not a verb I recognise.", True),
            ("take key", "You can't see any such thing.", True),
            ("open wooden door", "You have to unlock the wooden door with the old key first.", True),
            ("go north", "You can't go that way.", True),
        ],
    )
    def test_what_changes_nothing_is_done_or_refused(self, action: str, said: str, refused: bool) -> None:
        with TextWorld() as env:
            env.reset(TASK)
            result = env.step(action)
        assert result.observation.startswith(said)
        assert (result.info["changed"], result.info["refused"]) == (False, refused)

    def test_eating_the_dinner_loses(self) -> None:
        with TextWorld() as env:
            env.reset(TASK)
            for action in GOLD[:-1]:
                assert env.step(action).info["terminal"] is None
            result = env.step("eat milk")
        assert "*** You lost! ***" in result.observation
        assert (result.reward, result.terminated, result.info["terminal"]) == (0, True, "failure")

    def test_admissible_actions_come_or_stay_away_and_change_no_text(self) -> None:
        with TextWorld() as listing, TextWorld(admissible=False) as silent:
            assert digest(listing, GOLD) == digest(silent, GOLD)
            listing.reset(TASK)
            silent.reset(TASK)
            assert "open antique trunk" in listing.step("look").info["admissible_actions"]
            assert silent.step("look").info == {"terminal": None}

    @pytest.mark.parametrize(
        ("action", "answer"),
        [
            ("", "I beg your pardon?"),
            ("xyzzyx the frob", "That's not a verb I recognise."),
            ("take elephant", "You can't see any such thing."),
            ("é\x00🔑", "That's not a verb I recognise."),
            ("inventory\n", "You are carrying nothing."),
            ("look " * 2000, "That's not a verb I recognise."),
            ("quit", "That's not a verb I recognise."),
            ("save", "That's not a verb I recognise."),
            ("look. script", "That's not a verb I recognise."),
        ],
    )
    def test_odd_actions_are_answered_and_harm_nothing(
        self, action: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with TextWorld(admissible=False) as env:
            env.reset(TASK)
            assert env.step(action).observation.partition("\n\n")[0] == answer
            assert env.step(GOLD[0]).observation.startswith("You open the chest drawer, revealing an old key.")
        assert list(tmp_path.iterdir()) == []

    def test_facts_are_said_in_the_engines_words_and_leave_the_game_untouched(self) -> None:
        with TextWorld(context="facts") as env:
            first = env.reset(TASK)
            assert first.text.endswith("-= Bedroom =-0/1")
        facts = first.initial_context or ""
        assert facts.startswith(f"{BEDROOM}\n\n> examine antique trunk\n")
        assert facts.count("-= ") == 6  # rooms
        assert "> open refrigerator\nYou open the refrigerator, revealing a milk and a bell pepper.\n" in facts
        assert "score" not in facts

    def test_same_game_and_texts_in_another_process_with_an_empty_cache(self, tmp_path: Path) -> None:
        code = (
            "from tests.envs.test_textworld import *\n"
            "with TextWorld() as env: print(digest(env, ['go east', 'open antique trunk', *GOLD]))"
        )
        environment = os.environ | {"WORLDLOOM_CACHE": str(tmp_path), "PYTHONHASHSEED": "7"}
        output = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        with TextWorld() as env:
            assert output.stdout.strip() == digest(env, ["go east", "open antique trunk", *GOLD])

    def test_keeps_the_contract(self) -> None:
        check_env(EnvSpec("textworld", {"context": "facts"}), [TASK], processes=1)

    def test_custom_game_is_won_by_its_gold_actions(self) -> None:
        with TextWorld("custom", world_size=3, nb_objects=5, quest_length=3) as env:
            first = env.reset("custom/train/00000")
            assert first.gold_actions == (
                "open Canadian style box",
                "take glove from Canadian style box",
                "drop glove",
            )
            terminals = [env.step(action).info["terminal"] for action in first.gold_actions]
        assert terminals == [None, None, "success"]

    def test_banner_only_when_wanted(self) -> None:
        with TextWorld(banner=True) as env:
            text = env.reset(TASK).text
        assert "$$$$$$$$" in text
        assert text.endswith(f"{OBJECTIVE}\n\n{BEDROOM}\n\n-= Bedroom =-0/1")

    @pytest.mark.parametrize("damage", ["story", "data"])
    def test_broken_game_is_named_and_not_loaded(
        self, damage: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with TextWorld() as env:
            env.reset(TASK)
            source = env.game_folder(TASK)
        monkeypatch.setenv("WORLDLOOM_CACHE", str(tmp_path))
        with TextWorld() as env:
            folder = env.game_folder(TASK)
            folder.mkdir(parents=True)
            story, data = (source / "game.z8").read_bytes(), (source / "game.json").read_bytes()
            (folder / "game.z8").write_bytes(story[:-5000] if damage == "story" else story)
            (folder / "game.json").write_bytes(data[:5000] if damage == "data" else data)
            with pytest.raises(EnvError, match=f"{folder.name} holds a broken game: delete"):
                env.reset(TASK)

    def test_no_compiler(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WORLDLOOM_CACHE", str(tmp_path / "cache"))
        module = "textworld.generator.inform7.world2inform7.I7_DEFAULT_PATH"
        monkeypatch.setattr(module, str(tmp_path / "nowhere"))
        with TextWorld() as env:
            with pytest.raises(EnvError, match="Inform compiler"):
                env.reset(TASK)
            assert not env.game_folder(TASK).exists()


class TestWithoutEngine:
    def test_splits(self) -> None:
        env = TextWorld()
        train, test = env.task_ids("train"), env.task_ids("test")
        assert (len(train), len(test)) == (2500, 200)
        assert (train[17], test[-1]) == ("simple/train/00017", "simple/test/00199")
        with pytest.raises(ConfigError, match="did you mean 'train'"):
            env.task_ids("trian")

    @pytest.mark.parametrize("task_id", ["simple/test/00200", "custom/test/00000", "simple/test/1", "", "../x"])
    def test_unknown_task(self, task_id: str) -> None:
        with pytest.raises(EnvError, match="has no task"):
            TextWorld().reset(task_id)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"family": "cokking"}, "no family 'cokking'; did you mean 'cooking'"),
            ({"rewards": "dens"}, "did you mean 'dense'"),
            ({"world_size": 4}, "simple games have no 'world_size'"),
            ({"family": "custom", "quest_length": 0}, "at least 1"),
            ({"context": "all"}, "context cannot be 'all'"),
        ],
    )
    def test_wrong_options(self, options: dict[str, object], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            worldloom.envs.make("textworld", **options)

    def test_options_build_the_same_environment(self) -> None:
        env = TextWorld("custom", nb_objects=7, context="facts")
        assert env.options["nb_objects"] == 7
        assert TextWorld(**env.options).options == env.options

    def test_missing_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "textworld", None)
        with pytest.raises(MissingDependency, match=r'pip install "worldloom\[textworld\]"'):
            TextWorld()

    def test_step_before_reset(self) -> None:
        with pytest.raises(EnvError, match="reset"):
            TextWorld().step("look")

    def test_readable(self) -> None:
        raw = (
            "\nYou open the box.   \n\n\n\nYour score has just gone up by one point.\n\n>" + " " * 60 + "-= Attic =-1/2"
        )
        assert readable(raw) == "You open the box.\n\nYour score has just gone up by one point.\n\n-= Attic =-1/2"

    @pytest.mark.parametrize(
        ("said", "heard"),
        [
            ("  take\told   key \n", "take old key"),
            ("café", "caf?"),
            ("x" * LONGEST_ACTION, "x" * LONGEST_ACTION),
            ("x" * (LONGEST_ACTION + 1), UNKNOWN_VERB),
            ("open box. QUIT", UNKNOWN_VERB),
            ("tw-print state", UNKNOWN_VERB),
            ("take quilt", "take quilt"),
        ],
    )
    def test_speakable(self, said: str, heard: str) -> None:
        assert speakable(said) == heard

    def test_a_game_wanted_twice_at_once_is_made_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        made = []

        def slow(family: str, options: dict[str, object], seed: int, path: Path) -> None:
            time.sleep(0.2)
            made.append(seed)
            path.write_text("a game")

        monkeypatch.setattr(textworld_games, "make_game", slow)
        folder = tmp_path / "kind" / "train-00003"
        threads = [
            threading.Thread(target=textworld_games.cached_game, args=(folder, "simple", {}, 3)) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [3]
        assert [path.name for path in folder.iterdir()] == ["game.z8"]

    def test_a_game_that_cannot_be_made_leaves_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fails(family: str, options: dict[str, object], seed: int, path: Path) -> None:
            path.write_text("half a game")
            raise EnvError("no")

        monkeypatch.setattr(textworld_games, "make_game", fails)
        with pytest.raises(EnvError):
            textworld_games.cached_game(tmp_path / "train-00003", "simple", {}, 3)
        assert [path.name for path in tmp_path.iterdir()] == [".lock-3"]
