"""The cooking TextWorld agent: reading a recipe, doing what it says, little room to carry, and a real game."""

import pytest

import worldloom
from worldloom.agents.base import Start
from worldloom.agents.textworld_cook import CookAgent, Recipe, Task
from worldloom.rollout import rollout

COOKBOOK = """You open the copy of "Cooking: A Modern Approach (3rd Ed.)" and start reading:

Recipe #1
---------
Gather all following ingredients and follow the directions to prepare this tasty meal.

Ingredients:
red hot pepper
  carrot

Directions:
dice the red hot pepper
  fry the red hot pepper
  grill the carrot
  prepare meal

-= Kitchen =-0/2"""
KITCHEN = (
    "-= Kitchen =-\nYou've entered a kitchen.\n\nYou see a counter. On the counter you make out a cookbook, a knife, "
    "a diced red hot pepper and a carrot. You make out a stove.\n\nThere is an exit to the north.\n\n-= Kitchen =-0/1"
)
BACKYARD = "-= Backyard =-\nIt's a BBQ.\n\nThere is an exit to the south.\n\n-= Backyard =-2/9"


def test_recipe() -> None:
    assert Recipe.parse(COOKBOOK) == Recipe(
        ("red hot pepper", "carrot"),
        (Task("dice", "red hot pepper"), Task("fry", "red hot pepper"), Task("grill", "carrot")),
    )
    assert Recipe.parse(KITCHEN) is None


def test_from_the_cookbook_to_the_meal() -> None:
    agent = CookAgent(skill=1, invalid=0)
    agent.begin(Start("t", KITCHEN, None, 0))
    heard_and_done = [
        (KITCHEN, "examine cookbook"),
        (COOKBOOK, "inventory"),
        ("You are carrying nothing.\n\n-= Kitchen =-0/3", "take red hot pepper"),
        ("You take the red hot pepper from the counter.\n\n-= Kitchen =-0/4", "take carrot"),
        ("You take the carrot from the counter.\n\n-= Kitchen =-1/5", "cook red hot pepper with stove"),  # is diced
        ("You fried the red hot pepper.\n\n-= Kitchen =-2/6", "go north"),  # to look for something that grills
        (BACKYARD, "cook carrot with BBQ"),
        ("You grilled the carrot.\n\n-= Backyard =-3/9", "go south"),
        (KITCHEN, "prepare meal"),
        ("Adding the meal to your inventory.\n\n-= Kitchen =-4/10", "eat meal"),
    ]
    assert [agent.act(heard).action for heard, _ in heard_and_done] == [done for _, done in heard_and_done]


def test_full_hands_drop_what_the_next_deed_does_not_need() -> None:
    agent = CookAgent(skill=1, invalid=0)
    agent.begin(Start("t", KITCHEN, None, 0))
    kitchen = KITCHEN.replace("diced ", "")
    carried = "You are carrying: a red hot pepper and a carrot.\n\n-= Kitchen =-0/3"
    assert [agent.act(text).action for text in (kitchen, COOKBOOK, carried)][1:] == ["inventory", "take knife"]
    full = "You're carrying too many things already.\n\n-= Kitchen =-0/4"
    assert agent.act(full).action == "drop carrot"
    assert agent.act("You drop the carrot on the ground.\n\n-= Kitchen =-0/5").action == "take knife"
    knife = "You take the knife from the counter.\n\n-= Kitchen =-0/6"
    assert agent.act(knife).action == "dice red hot pepper with knife"


def test_actions_depend_on_task_agent_and_seed_only() -> None:
    def actions(task: str, seed: int) -> list[str]:
        agent = CookAgent(skill=0.3)
        agent.begin(Start(task, KITCHEN, None, seed))
        return [agent.act(text).action for text in [KITCHEN, COOKBOOK] * 10]

    assert actions("a", 1) == actions("a", 1)
    assert len({tuple(actions(task, seed)) for task in "ab" for seed in (1, 2)}) == 4


@pytest.mark.engine
def test_a_real_game() -> None:
    with worldloom.make("textworld-cooking", admissible=False) as env:
        plays = {
            skill: [rollout(env, CookAgent(skill=skill), "cooking/test/00001", seed=seed) for seed in range(4)]
            for skill in (1.0, 0.0)
        }
    assert [play.error for found in plays.values() for play in found] == [None] * 8
    assert [play.outcome for play in plays[1.0]] == ["success"] * 4
    assert "success" not in [play.outcome for play in plays[0.0]]
    said = [step.observation for play in plays[0.0] for step in play.steps]
    assert any("You can't see any such thing" in text for text in said)
    assert len(set(said)) > 30


@pytest.mark.parametrize("text", ["", "-= -= =-", COOKBOOK.replace("red hot pepper", "(hot+"), "You are carrying: an "])
def test_whatever_an_imagined_world_says_is_taken(text: str) -> None:
    agent = CookAgent(skill=0.7, invalid=0.5)
    agent.begin(Start("t", text, None, 0))
    assert all(agent.act(text).action for _ in range(50))
