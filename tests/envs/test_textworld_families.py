"""TextWorld's challenges: how each is won and lost, games as tw-make makes them, facts, splits, clear errors.

The games are made once and kept in worldloom's cache.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import worldloom
from worldloom.agents import AGENTS
from worldloom.envs import EnvSpec
from worldloom.envs.check import check_env
from worldloom.envs.textworld import TextWorld
from worldloom.envs.textworld_families import generate, split_options
from worldloom.errors import ConfigError, EnvError
from worldloom.trajectory import Terminal

TASKS = {
    "textworld-cooking": "cooking/test/00001",
    "textworld-coin-collector": "coin-collector/test/00001",
    "textworld-treasure-hunter": "treasure-hunter/test/00001",
}

# Read off TextWorld 1.7.0 itself: tw-make of the same settings with --seed 1000001
GOLD = {
    "textworld-cooking": (
        "inventory, go north, go east, examine cookbook, take purple potato from counter, take yellow apple from "
        "counter, cook purple potato with oven, cook yellow apple with oven, take knife from table, chop purple potato "
        "with knife, drop knife, take knife, chop yellow apple with knife, drop knife, prepare meal, eat meal"
    ),
    "textworld-coin-collector": (
        "go east, go north, go north, go north, go east, go south, go east, go north, go east, take coin"
    ),
    "textworld-treasure-hunter": "go east, go north, take iron",
}
TW_MAKE = {
    "textworld-cooking": (
        "tw-cooking --recipe 2 --take 2 --go 6 --open --cook --cut --split test --recipe-seed 1000001"
    ),
    "textworld-coin-collector": "tw-coin_collector --level 10",
    "textworld-treasure-hunter": "tw-treasure_hunter --level 5",
}
COOKBOOK = """You open the copy of "Cooking: A Modern Approach (3rd Ed.)" and start reading:

Recipe #1
---------
Gather all following ingredients and follow the directions to prepare this tasty meal.

Ingredients:
purple potato
  yellow apple

Directions:
chop the purple potato
  roast the purple potato
  chop the yellow apple
  roast the yellow apple
  prepare meal

"""
POINT = "\n\nYour score has just gone up by one point.\n\n"


def play(name: str, actions: list[str]) -> tuple[str, Terminal | None]:
    """The last text and how it ended."""
    with worldloom.make(name, admissible=False) as env:
        env.reset(TASKS[name])
        results = [env.step(action) for action in actions]
    return results[-1].observation, results[-1].info["terminal"]


def folder(name: str) -> Path:
    """Where the game of ``TASKS`` is kept, made if need be."""
    env = worldloom.make(name, admissible=False)
    assert isinstance(env, TextWorld)
    with env:
        env.reset(TASKS[name])
        return env.game_folder(TASKS[name])


@pytest.mark.engine
class TestEngine:
    @pytest.mark.parametrize("name", TASKS)
    def test_gold_wins_and_rewards_add_up(self, name: str) -> None:
        with worldloom.make(name) as env:
            first = env.reset(TASKS[name])
            assert ", ".join(first.gold_actions or ()) == GOLD[name]
            results = [env.step(action) for action in first.gold_actions or ()]
            with pytest.raises(EnvError, match="reset"):
                env.step("look")
        assert [result.info["terminal"] for result in results] == [None] * (len(results) - 1) + ["success"]
        assert sum(result.reward or 0 for result in results) == pytest.approx(1)
        assert "*** The End ***" in results[-1].observation

    def test_cooking_says(self) -> None:
        with worldloom.make("textworld-cooking") as env:
            text = env.reset(TASKS["textworld-cooking"]).text
            assert text.startswith("You are hungry! Let's cook a delicious meal. Check the cookbook in the kitchen")
            gold = GOLD["textworld-cooking"].split(", ")
            said = {action: env.step(action).observation for action in gold}
        assert said["examine cookbook"] == f"{COOKBOOK}-= Kitchen =-0/5"
        assert said["cook yellow apple with oven"] == f"You roasted the yellow apple.{POINT}-= Kitchen =-4/9"
        assert said["chop purple potato with knife"] == f"You chop the purple potato.{POINT}-= Kitchen =-5/11"
        assert said["prepare meal"] == f"Adding the meal to your inventory.{POINT}-= Kitchen =-7/16"

    @pytest.mark.parametrize(
        ("name", "actions", "said"),
        [
            ("cooking", "go north, go east, take yellow apple, cook yellow apple with stove", "You fried the yellow"),
            ("cooking", "go north, go east, take yellow apple, take knife, dice yellow apple with knife", "You dice"),
            (
                "cooking",
                "go north, go east, take yellow apple, cook yellow apple with oven, cook yellow apple with oven",
                "You burned the yellow apple!",
            ),
            ("cooking", "go north, go east, take yellow apple, eat yellow apple", "You eat the yellow apple."),
            ("treasure-hunter", "go east, take passkey", "You pick up the passkey from the ground."),
        ],
    )
    def test_what_loses(self, name: str, actions: str, said: str) -> None:
        text, terminal = play(f"textworld-{name}", actions.split(", "))
        assert text.startswith(said)
        assert "*** You lost! ***" in text
        assert terminal == "failure"

    def test_another_food_may_be_spoiled(self) -> None:
        actions = ["go north", "go east", "take yellow onion", "cook yellow onion with stove", "eat yellow onion"]
        assert play("textworld-cooking", actions)[1] is None

    @pytest.mark.parametrize("name", TASKS)
    def test_games_are_those_of_tw_make(self, name: str, tmp_path: Path) -> None:
        script = Path(sys.executable).with_name("tw-make")
        if not script.is_file():
            pytest.skip("tw-make is not beside this Python")
        made = [*TW_MAKE[name].split(), "--seed", "1000001", "--silent", "--output", str(tmp_path / "game.z8")]
        environment = os.environ | {"PYTHONHASHSEED": str(alphabetical())}
        subprocess.run([sys.executable, script, *made], env=environment, check=True, capture_output=True)
        assert story(folder(name)) == story(tmp_path)

    def test_the_same_bytes_in_another_process(self, tmp_path: Path) -> None:
        code = "from tests.envs.test_textworld_families import folder; folder('textworld-cooking')"
        environment = os.environ | {"WORLDLOOM_CACHE": str(tmp_path), "PYTHONHASHSEED": "7"}
        subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
        mine = folder("textworld-cooking")
        other = next(tmp_path.glob(f"textworld/*/{mine.parent.name}/{mine.name}"))
        assert story(mine) == story(other)
        assert described(mine) == described(other)

    @pytest.mark.parametrize("name", TASKS)
    def test_facts_tell_of_every_room_and_change_nothing(self, name: str) -> None:
        rooms = {"textworld-cooking": 6, "textworld-coin-collector": 10, "textworld-treasure-hunter": 5}
        with worldloom.make(name, context="facts") as told, worldloom.make(name) as untold:
            first, plain = told.reset(TASKS[name]), untold.reset(TASKS[name])
            assert first.text == plain.text
            for action in first.gold_actions or ():
                assert told.step(action) == untold.step(action)
        facts = first.initial_context or ""
        assert facts.count("-= ") == rooms[name]
        assert "score" not in facts and "***" not in facts

    def test_facts_of_cooking(self) -> None:
        with worldloom.make("textworld-cooking", context="facts") as env:
            facts = env.reset(TASKS["textworld-cooking"]).initial_context or ""
        assert f"> examine cookbook\n{COOKBOOK.strip()}\n\n" in facts
        assert "> open fridge\nYou open the fridge, revealing an orange bell pepper.\n\n" in facts
        assert "> open plain door\nYou open plain door.\n\n-= Pantry =-\n" in facts

    def test_facts_of_a_treasure_hunt_leave_what_ends_it(self) -> None:
        with worldloom.make("textworld-treasure-hunter", context="facts") as env:
            facts = env.reset(TASKS["textworld-treasure-hunter"]).initial_context or ""
        assert "> examine passkey\nThe metal of the passkey is polished.\n\n" in facts
        assert "take " not in facts

    @pytest.mark.parametrize("name", TASKS)
    def test_keeps_the_contract(self, name: str) -> None:
        report = check_env(EnvSpec(name, {"context": "facts"}), [TASKS[name]], processes=1)
        assert not any("end" in note for note in report.notes)

    def test_what_a_recipe_of_the_test_split_wants_is_new(self) -> None:
        from textworld.challenges.tw_cooking.cooking import FOOD_PREPARATIONS_SPLITS

        known = FOOD_PREPARATIONS_SPLITS["train"]
        game = json.loads((folder("textworld-cooking") / "game.json").read_text())
        wanted = game["metadata"]["ingredients"]
        assert wanted == [["purple potato", "roasted", "chopped"], ["yellow apple", "roasted", "chopped"]]
        assert not [food for food, heat, cut in wanted if (heat, cut) in known.get(food, [])]


def story(game: Path) -> bytes:
    """A compiled game without the day on which it was compiled (Z-Machine Standards 1.1, section 11: word 0x12 on)."""
    data = (game / "game.z8").read_bytes()
    return data[:0x12] + data[0x18:]


def described(game: Path) -> dict[str, Any]:
    """What TextWorld wrote of a game, but where its own files lay when it was made."""
    data: dict[str, Any] = json.loads((game / "game.json").read_text())
    del data["KB"]["text_grammars_path"]
    return data


def alphabetical() -> int:
    """A PYTHONHASHSEED with which Python lists the ways to spoil the dish in alphabetical order."""
    code = (
        "cut, heat = set(['chopped', 'sliced', 'diced']) - {'chopped'}, set(['fried', 'roasted', 'grilled']) - "
        "{'roasted'}; print(list(cut) == sorted(cut) and list(heat) == sorted(heat))"
    )
    for seed in range(100):
        environment = os.environ | {"PYTHONHASHSEED": str(seed)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        if done.stdout.strip() == "True":
            return seed
    raise AssertionError("no such seed")


class TestWithoutGames:
    @pytest.mark.parametrize("name", TASKS)
    def test_splits_and_names(self, name: str) -> None:
        env = worldloom.make(name)
        family = name.removeprefix("textworld-")
        assert env.name == name
        assert f"scripted-{name}" in AGENTS
        assert env.task_ids("train")[2499] == f"{family}/train/02499"
        assert env.task_ids("test")[199] == f"{family}/test/00199"
        with pytest.raises(ConfigError, match=f"{name} has no split 'valid'"):
            env.task_ids("valid")
        with pytest.raises(EnvError, match=f"{name} has no task 'simple/test/00001'"):
            env.reset("simple/test/00001")

    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("textworld-cooking", {"recipe": 3, "go": 12, "drop": True, "context": "facts"}),
            ("textworld-coin-collector", {"level": 150, "banner": True}),
            ("textworld-treasure-hunter", {"level": 30, "admissible": False}),
        ],
    )
    def test_options_build_the_same_environment(self, name: str, options: dict[str, object]) -> None:
        built = worldloom.make(name, **options)
        assert built.options.items() >= options.items()
        assert "family" not in built.options
        assert worldloom.make(name, **built.options).options == built.options

    @pytest.mark.parametrize(
        ("name", "options", "message"),
        [
            ("cooking", {"recipe": 6}, "recipe must be one of 1, 2, 3, 4, 5, not 6"),
            ("cooking", {"take": 3}, "take=3 of recipe=2"),
            ("cooking", {"go": 7}, "go must be one of 1, 6, 9, 12, not 7"),
            ("cooking", {"cut": 1}, "cut must be of type bool, not 1"),
            ("cooking", {"cook": False, "go": 12}, "set cook=True or go=6"),
            ("cooking", {"level": 3}, "cooking games have no 'level'; they have recipe, take, go"),
            ("cooking", {"family": "simple"}, "cooking games have no 'family'"),
            ("coin-collector", {"level": 0}, "no level 0; they have 1 to 150 and 201 to 233"),
            ("coin-collector", {"level": 151}, "no level 151"),
            ("coin-collector", {"level": "10"}, "level must be of type int, not '10'"),
            ("treasure-hunter", {"level": 31}, "no level 31; they have 1 to 30"),
            ("treasure-hunter", {"context": "fact"}, "did you mean 'facts'"),
        ],
    )
    def test_wrong_options(self, name: str, options: dict[str, object], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            worldloom.make(f"textworld-{name}", **options)

    def test_the_cooking_splits_are_the_engines(self) -> None:
        assert split_options("cooking", {"go": 6}, "test") == {"go": 6, "split": "test"}
        assert split_options("coin-collector", {"level": 3}, "test") == {"level": 3}

    @pytest.mark.parametrize(
        ("recipe", "take", "seed", "recipe_seed"), [(2, 2, 17, 17), (2, 1, 17, 0), (1, 0, 17, 0), (3, 3, 0, 0)]
    )
    def test_the_recipe_is_drawn_by_the_seed(
        self, recipe: int, take: int, seed: int, recipe_seed: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from textworld import GameOptions
        from textworld.challenges.tw_cooking import cooking

        class Told(Exception):
            pass

        def tells(settings: dict[str, object], options: GameOptions) -> None:
            raise Told(settings["recipe_seed"], options.seeds)

        monkeypatch.setattr(cooking, "make", tells)
        with pytest.raises(Told) as told:
            generate("cooking", {"recipe": recipe, "take": take}, seed, GameOptions())
        expected = GameOptions()
        expected.seeds = seed
        assert told.value.args == (recipe_seed, expected.seeds)

    def test_foods_and_preparations_of_the_splits_are_disjoint(self) -> None:
        from textworld.challenges.tw_cooking.cooking import FOOD_PREPARATIONS_SPLITS, FOODS_SPLITS

        train, test = FOOD_PREPARATIONS_SPLITS["train"], FOOD_PREPARATIONS_SPLITS["test"]
        assert not set(FOODS_SPLITS["test"]) & set(FOODS_SPLITS["train"])
        again = {way for food in train for way in set(train[food]) & set(test[food])}
        assert again == {("raw", "uncut")}  # never with cut and cook
