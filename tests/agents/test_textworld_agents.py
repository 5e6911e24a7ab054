"""The scripted TextWorld agent: reads the plan, follows it, finds back from detours, and is repeatable."""

import os
from collections.abc import Iterator

import pytest

from worldloom.agents.base import Start
from worldloom.agents.textworld import Scene, TextWorldAgent, parse_plan, undoing
from worldloom.envs.textworld import TextWorld
from worldloom.rollout import rollout
from worldloom.trajectory import Trajectory

TASK = "simple/test/00001"
BEDROOM = (
    "-= Bedroom =-\nYou've just walked into a bedroom.\n\nYou make out a chest drawer. You make out a closed antique "
    "trunk. You see a king-size bed. The king-size bed is normal.\n\nThere is a closed wooden door leading east."
    "\n\n-= Bedroom =-0/1"
)


@pytest.mark.parametrize(
    ("objective", "plan"),
    [
        (
            "Welcome to TextWorld! Here is your task for today. First, it would be a great idea if you could "
            "doublecheck that the antique trunk in the bedroom is open. Then, recover the old key from the antique "
            "trunk in the bedroom. And then, unlock the wooden door inside the bedroom. And then, open the wooden "
            "door. Then, venture east. With that over with, make an attempt to go to the east. Then, attempt to take "
            "a trip south. And then, pick up the half of a bag of chips from the floor of the garden. After stealing "
            "the half of a bag of chips, head north. Then, sit the half of a bag of chips on the stove inside the "
            "kitchen. And if you do that, you're the winner!",
            [
                "open antique trunk",
                "take old key from antique trunk",
                "unlock wooden door with old key",
                "open wooden door",
                "go east",
                "go east",
                "go south",
                "take half of a bag of chips",
                "go north",
                "put half of a bag of chips on stove",
            ],
        ),
        (
            "You do! Insert the old key into the wooden door inside the bedroom's lock to unlock it. After unlocking "
            "the wooden door, look and see that the Henderson's locker is locked with the Henderson's keycard. Then, "
            "place the lettuce inside the fridge in the kitchen. Next, deposit the glove on the floor of the cellar. "
            "Once you manage that, make sure that the box is shut. Then, eat the apple. That's it!",
            [
                "unlock wooden door with old key",
                "lock Henderson's locker with Henderson's keycard",
                "insert lettuce into fridge",
                "drop glove",
                "close box",
                "eat apple",
            ],
        ),
        ("The dinner is almost ready! It's only missing a grilled milk.", []),
        ("", []),
    ],
)
def test_parse_plan(objective: str, plan: list[str]) -> None:
    assert parse_plan(objective) == plan


@pytest.mark.parametrize(
    ("action", "back"),
    [
        ("go north", "go south"),
        ("close antique trunk", "open antique trunk"),
        ("drop old key", "take old key"),
        ("put old key on king-size bed", "take old key from king-size bed"),
        ("insert milk into refrigerator", "take milk from refrigerator"),
        ("lock wooden door with old key", "unlock wooden door with old key"),
        ("open antique trunk", None),
        ("look", None),
        ("", None),
    ],
)
def test_undoing(action: str, back: str | None) -> None:
    assert undoing(action) == back


def test_scene_hears_rooms_ways_things_and_what_is_carried() -> None:
    scene = Scene()
    scene.hear(BEDROOM)
    assert scene.room == "Bedroom"
    assert scene.ways["Bedroom"] == ["east"]
    assert {"chest drawer", "antique trunk", "king-size bed", "wooden door"} <= set(scene.here)
    scene.hear("You open the chest drawer, revealing an old key and a tin.\n\n-= Bedroom =-1/2")
    assert {"old key", "tin"} <= set(scene.here)
    scene.hear("You take the old key from the chest drawer.\n\n-= Bedroom =-2/3")
    assert list(scene.held) == ["old key"]
    scene.hear("You have to open the wooden door first.\n\n-= Bedroom =-2/4")
    scene.hear("You drop the old key on the ground.\n\n-= Bedroom =-2/5")
    assert list(scene.held) == []
    scene.hear("-= Kitchen =-\nYou've entered a kitchen.\n\nThere is an exit to the north.\n\n-= Kitchen =-2/6")
    assert (scene.room, scene.ways["Kitchen"]) == ("Kitchen", ["north"])


def test_a_blocked_way_is_opened_and_tried_again() -> None:
    agent = TextWorldAgent(skill=1, invalid=0)
    agent.begin(Start("t", BEDROOM, "Then, head east. Then, take the pan from the stove.", 0))
    assert agent.act(BEDROOM).action == "go east"
    assert agent.act("You have to open the wooden door first.\n\n-= Bedroom =-0/2").action == "open wooden door"
    assert agent.act("You open wooden door.\n\n-= Bedroom =-0/3").action == "go east"
    assert agent.act("-= Kitchen =-\nHi.\n\nIt's a stove.\n\n-= Kitchen =-0/4").action == "take pan from stove"


def test_a_detour_is_taken_back_before_the_plan_goes_on() -> None:
    agent = TextWorldAgent(skill=0, invalid=0)
    agent.begin(Start("t", BEDROOM, "Then, open the antique trunk.", 0))
    action = agent.act(BEDROOM).action
    while action != "go east":
        action = agent.act("Nothing.\n\n-= Bedroom =-0/1").action
    agent.skill = 1
    assert agent.act("-= Hall =-\nA hall.\n\nGo west.\n\n-= Hall =-0/2").action == "go west"
    assert agent.act(f"{BEDROOM}").action == "open antique trunk"


def test_actions_depend_on_task_agent_and_seed_only() -> None:
    def actions(task: str, skill: float, seed: int) -> list[str]:
        agent = TextWorldAgent(skill=skill)
        agent.begin(Start(task, BEDROOM, "Then, open the antique trunk.", seed))
        return [agent.act(BEDROOM).action for _ in range(20)]

    assert actions("a", 0, 1) == actions("a", 0, 1)
    assert len({tuple(actions(task, 0, seed)) for task in "ab" for seed in (1, 2)}) == 4


def test_all_actions_can_be_invalid() -> None:
    agent = TextWorldAgent(skill=0, invalid=1)
    agent.begin(Start("t", BEDROOM, None, 0))
    verbs = {agent.act(BEDROOM).action.split()[0] for _ in range(300)}
    assert verbs >= {"polish", "teleport", "hello", "what"}
    assert not verbs & {"look", "inventory", "close"}


@pytest.fixture(scope="module")
def plays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[float, list[Trajectory]]]:
    """Episodes of one real game, six seeds for each skill."""
    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get("WORLDLOOM_CACHE"):
            patch.setenv("WORLDLOOM_CACHE", str(tmp_path_factory.mktemp("games")))
        with TextWorld(admissible=False) as env:
            yield {
                skill: [rollout(env, TextWorldAgent(skill=skill), TASK, seed=seed) for seed in range(6)]
                for skill in (0, 0.5, 1)
            }


@pytest.mark.engine
class TestOnTheRealGame:
    def test_skill_wins(self, plays: dict[float, list[Trajectory]]) -> None:
        wins = {skill: sum(play.outcome == "success" for play in found) for skill, found in plays.items()}
        assert wins[1] == 6
        assert wins[0] < wins[0.5]

    def test_skill_1_goes_straight(self, plays: dict[float, list[Trajectory]]) -> None:
        assert min(len(play.steps) for play in plays[1]) == 8  # the walkthrough's length

    def test_lack_of_skill_tries_much(self, plays: dict[float, list[Trajectory]]) -> None:
        said = [step.observation for play in plays[0] for step in play.steps]
        assert any("You can't see any such thing" in text for text in said)
        assert any("That's not a verb I recognise" in text for text in said)
        assert len(set(said)) > 30
        assert {play.outcome for play in plays[0]} <= {"truncated", "failure", "success"}
