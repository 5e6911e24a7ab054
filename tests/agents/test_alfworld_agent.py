"""The scripted agent hears text alone; its skill on the real engine is shown in the marked test."""

from collections import Counter

import pytest

from worldloom.agents.alfworld import ALFWorldAgent, Goal, Memory
from worldloom.agents.base import Start
from worldloom.envs.alfworld import ALFWorld
from worldloom.envs.alfworld_compose import compose, task_ids
from worldloom.rollout import rollout

ROOM = (
    "You are in the middle of a room. Looking quickly around you, you see a bed 1, a drawer 2, a drawer 1, "
    "and a shelf 1.\n\nYour task is to: put a book in drawer."
)


@pytest.mark.parametrize(
    ("instruction", "goal"),
    [
        ("put a book in drawer", Goal("book", "drawer")),
        ("put some soapbar on countertop", Goal("soapbar", "countertop")),
        ("put a clean mug in cabinet", Goal("mug", "cabinet", "clean")),
        ("clean some soapbar and put it in cabinet", Goal("soapbar", "cabinet", "clean")),
        ("heat some egg and put it in garbagecan", Goal("egg", "garbagecan", "hot")),
        ("put a hot egg in garbagecan", Goal("egg", "garbagecan", "hot")),
        ("put a cool tomato in microwave", Goal("tomato", "microwave", "cool")),
        ("cool some tomato and put it in microwave", Goal("tomato", "microwave", "cool")),
        ("put two pen in drawer", Goal("pen", "drawer", None, 2)),
        ("find two pen and put them in drawer", Goal("pen", "drawer", None, 2)),
        ("look at bowl under the desklamp", Goal("bowl", lamp="desklamp")),
        ("examine the cd with the desklamp", Goal("cd", lamp="desklamp")),
    ],
)
def test_goals_in_the_official_wordings(instruction: str, goal: Goal) -> None:
    assert Goal.parse(instruction) == goal


def test_a_goal_in_other_words_is_none() -> None:
    assert Goal.parse("tidy up") is None


@pytest.mark.parametrize("split", ["train", "ood"])
def test_every_composed_instruction_is_understood(split: str) -> None:
    for task_id in task_ids(split)[:60]:
        game = compose(task_id)
        goal = Goal.parse(game["instruction"])
        assert goal is not None
        assert (goal.number == 2) == (game["task_type"] == "pick_two_obj_and_place")
        assert (goal.lamp is not None) == (game["task_type"] == "look_at_obj_in_light")
        assert (goal.treatment is not None) == any(t in game["task_type"] for t in ("clean", "heat", "cool"))


def test_memory_follows_an_episode() -> None:
    memory = Memory()
    memory.hear(ROOM)
    assert memory.places == ["bed 1", "drawer 2", "drawer 1", "shelf 1"]
    memory.hear("You arrive at drawer 1. The drawer 1 is closed.")
    assert (memory.at, memory.closed, memory.here) == ("drawer 1", {"drawer 1"}, [])
    memory.hear("You open the drawer 1. The drawer 1 is open. In it, you see a book 2, and a pen 1.")
    assert (memory.closed, memory.here, memory.openable) == (set(), ["book 2", "pen 1"], {"drawer 1"})
    memory.hear("You pick up the book 2 from the drawer 1.")
    assert (memory.held, memory.here) == ("book 2", ["pen 1"])
    memory.hear("Nothing happens.")
    memory.hear("You close the drawer 1.")
    assert (memory.held, memory.here, memory.closed) == ("book 2", [], {"drawer 1"})
    memory.hear("You arrive at shelf 1. On the shelf 1, you see nothing.")
    assert (memory.at, memory.here, memory.unseen()) == ("shelf 1", [], ["bed 1", "drawer 2"])
    memory.hear("You move the book 2 to the shelf 1.")
    assert (memory.held, memory.here) == (None, ["book 2"])
    assert list(memory.where("book")) == [("shelf 1", "book 2")]
    memory.hear("You heat the egg 1 using the microwave 1.")
    assert memory.treated == {("hot", "egg 1")}


def test_with_full_skill_it_goes_straight_for_what_it_knows() -> None:
    agent = ALFWorldAgent(skill=1.0)
    agent.begin(Start("t", ROOM, "put a book in drawer", 0))
    first = agent.act(ROOM).action
    assert first.startswith("go to ")
    agent.order = ["shelf 1", "bed 1", "drawer 1", "drawer 2"]
    told = [
        ("You arrive at bed 1. On the bed 1, you see a pillow 1.", "go to shelf 1"),
        ("You arrive at shelf 1. On the shelf 1, you see a book 2.", "take book 2 from shelf 1"),
        ("You pick up the book 2 from the shelf 1.", "go to drawer 2"),
        ("You arrive at drawer 2. The drawer 2 is closed.", "open drawer 2"),
        ("You open the drawer 2. The drawer 2 is open. In it, you see nothing.", "move book 2 to drawer 2"),
    ]
    assert [agent.act(text).action for text, _ in told] == [action for _, action in told]


def actions(agent: ALFWorldAgent, seed: int = 0, task: str = "t", count: int = 60) -> list[str]:
    agent.begin(Start(task, ROOM, "put a book in drawer", seed))
    return [
        agent.act(ROOM if n == 0 else "You arrive at shelf 1. On the shelf 1, you see a pen 1.").action
        for n in range(count)
    ]


def test_randomness_depends_on_task_agent_and_seed_alone() -> None:
    assert actions(ALFWorldAgent(0.0)) == actions(ALFWorldAgent(0.0))
    other = [actions(ALFWorldAgent(0.0), seed=1), actions(ALFWorldAgent(0.0), task="u"), actions(ALFWorldAgent(0.1))]
    assert actions(ALFWorldAgent(0.0)) not in other


def test_without_skill_actions_are_many_kinds_and_some_impossible() -> None:
    kinds = Counter(action.split()[0] for n in range(20) for action in actions(ALFWorldAgent(0.0), seed=n))
    assert {"go", "take", "look", "inventory", "examine", "open", "close", "move"} <= set(kinds)
    assert kinds.keys() & {"help", "jump", "think", "slice", "put"}
    tame = Counter(action.split()[0] for n in range(20) for action in actions(ALFWorldAgent(0.0, invalid=0.0), seed=n))
    assert not tame.keys() & {"help", "jump", "think", "slice", "put"}


def test_an_imagined_world_may_say_anything() -> None:
    agent = ALFWorldAgent(0.5)
    agent.begin(Start("t", "", None, 0))
    for text in ("", "You see a", "On the shelf 1, you see .", "You pick up the x from the y.", "[SUCCESS]", "\n" * 9):
        assert agent.act(text).action


@pytest.mark.engine
def test_skill_shows_on_the_real_engine() -> None:
    with ALFWorld() as env:
        ids = [task_id for task_id in task_ids("ood")[:24]][::4]
        won = {
            skill: sum(rollout(env, ALFWorldAgent(skill), task_id).outcome == "success" for task_id in ids)
            for skill in (0.0, 1.0)
        }
    assert won[1.0] >= 5
    assert won[0.0] <= 2
