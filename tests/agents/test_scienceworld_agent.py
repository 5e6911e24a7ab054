"""The scripted agent hears text alone; its skill on the real engine is shown in the marked test."""

from collections import Counter
from random import Random

import pytest

from worldloom.agents import make
from worldloom.agents.base import Start
from worldloom.agents.scienceworld import ScienceWorldAgent
from worldloom.agents.scienceworld_notes import HOUSE, Notes, names_in, next_room
from worldloom.agents.scienceworld_plans import plan_for
from worldloom.envs.scienceworld import ScienceWorld
from worldloom.rollout import rollout

HALLWAY = (
    "This room is called the hallway. In it, you see: \n\tthe agent\n\ta substance called air\n\ta picture\n"
    "You also see:\n\tA door to the art studio (that is closed)\n\tA door to the kitchen (that is open)"
)
OUTSIDE = (
    "This outside location is called the outside. Here you see: \n\tthe agent\n\ta substance called air\n\tan axe\n"
    "\ta baby brown bear\n\ta chameleon egg\n\ta juvenile wolf\n\tthe ground\nYou also see:\n"
    "\tA door to the kitchen (that is open)"
)
FIND = "Your task is to find a(n) animal. First, focus on the thing. Then, move it to the red box in the kitchen."
LIFE = (
    "Your task is to find the animal with the longest life span, then the shortest life span. First, focus on the "
    "animal with the longest life span.  Then, focus on the animal with the shortest life span. The animals are in "
    "the 'outside' location."
)
BULB = "Your task is to turn on the red light bulb by powering it using a {} power source. First, focus on the bulb."
COOK = (
    "Your task is to {} chocolate. First, focus on the substance. Then, take actions that change its state of matter."
)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("a table. On the table is: a bowl (containing a red apple, a potato), a drawer.",
         ["table", "bowl", "red apple", "potato", "drawer"]),
        ("a toilet. In the toilet is: A drain, which is closed, a substance called water.", ["toilet", "water"]),
        ("a flower pot 7 (containing a apple tree in the adult stage. On the apple tree you see: a flower. , soil)",
         ["flower pot 7", "apple tree"]),
        ("a switch, which is off", ["switch"]),
        ("a thermometer, currently reading a temperature of 10 degrees celsius", ["thermometer"]),
        ("unknown substance J", ["unknown substance J"]),
        ("the agent", []),
        ("a substance called air", []),
        ("", []),
    ],
)  # fmt: skip
def test_names_in_a_line(line: str, names: list[str]) -> None:
    assert names_in(line) == names


def test_the_house_leads_everywhere_and_doors_lead_both_ways() -> None:
    assert all(room in HOUSE[beyond] for room, doors in HOUSE.items() for beyond in doors)
    for start in HOUSE:
        for goal in set(HOUSE) - {start}:
            room, steps = start, 0
            while room != goal:
                room, steps = next_room(room, goal), steps + 1
            assert steps <= 5
    assert (next_room("bathroom", "foundry"), next_room("bedroom", "outside")) == ("kitchen", "hallway")


def test_notes_follow_an_episode() -> None:
    notes = Notes()
    assert notes.reach("kitchen") == "look around"
    notes.hear(HALLWAY)
    assert (notes.room, notes.things("hallway")) == ("hallway", ["picture"])
    assert notes.reach("art studio") == "open door to art studio"
    assert notes.reach("outside") == "go to kitchen"
    notes.hear("The door is now open.", "open door to art studio")
    assert notes.reach("art studio") == "go to art studio"
    notes.hear("You move to the kitchen.", "go to kitchen")
    assert (notes.room, notes.reach("kitchen")) == ("kitchen", "look around")
    notes.hear("The door is not open.", "go to outside")
    assert notes.reach("outside") == "open door to outside"
    notes.hear("You move the metal pot to the inventory.")
    notes.hear("You move the lighter to the inventory.")
    notes.hear("You move the metal pot to the stove.")
    assert (list(notes.held), notes.left) == (["lighter"], {"metal pot": "kitchen"})
    notes.hear("In your inventory, you see:\n\tan orange\n\ta substance called soap")
    assert list(notes.held) == ["orange", "soap"]
    notes.hear("the thermometer measures a temperature of -12 degrees celsius")
    notes.hear("You focus on the baby wolf.")
    assert (notes.temperature, notes.focused) == (-12, ["baby wolf"])


def said(agent: ScienceWorldAgent, *texts: str) -> list[str]:
    return [agent.act(text).action for text in texts]


def begun(
    instruction: str, text: str = OUTSIDE, skill: float = 1.0, seed: int = 0, task: str = "t"
) -> ScienceWorldAgent:
    agent = ScienceWorldAgent(skill)
    agent.begin(Start(task, f"{instruction}\n\n{text}", instruction, seed))
    return agent


def test_it_finds_carries_focuses_and_delivers() -> None:
    agent = begun(FIND)
    assert said(agent, f"{FIND}\n\n{OUTSIDE}", OUTSIDE) == ["look around", "pick up brown bear"]
    assert said(agent, "You move the brown bear to the inventory.") == ["focus on brown bear"]
    assert said(agent, "You focus on the baby brown bear.") == ["go to kitchen"]
    assert said(agent, "You move to the kitchen.") == ["look around"]
    kitchen = "This room is called the kitchen. In it, you see: \n\ta red box (containing nothing)\nYou also see:\n"
    assert said(agent, kitchen) == ["move brown bear to red box"]


def test_it_knows_how_long_animals_live() -> None:
    agent = begun(LIFE)
    told = said(agent, OUTSIDE, OUTSIDE, "You focus on the baby brown bear.")
    assert told == ["look around", "focus on baby brown bear", "focus on chameleon egg"]


def test_a_refused_step_is_tried_again_after_a_look_and_then_given_up() -> None:
    agent = begun(LIFE)
    said(agent, OUTSIDE, OUTSIDE)
    refused = "No known action matches that input."
    told = said(agent, *[refused, OUTSIDE] * 3, refused)
    assert told == [*["look around", "focus on baby brown bear"] * 3, "focus on chameleon egg"]


def test_a_choice_is_answered_with_its_first_number() -> None:
    agent = begun(LIFE)
    said(agent, OUTSIDE, OUTSIDE)
    assert said(agent, "Ambiguous request: Please enter the number:\n0:\tfocus on a\n1:\tfocus on b") == ["0"]


@pytest.mark.parametrize(
    ("instruction", "steps"),
    [
        (FIND, ["look around"]),
        (FIND.replace("animal", "non-living thing"), ["look around"]),
        ("Your task is to use chemistry to create green paint. When you are done, focus on the green paint.",
         ["look around", "pour wood cup containing blue paint in bowl", "pour wood cup containing yellow paint in bowl",
          "mix bowl", "focus on green paint"]),
        ("Your task is to measure the temperature of lead, which is located around the bedroom. First, focus on the "
         "thermometer. Next, focus on the lead. If the lead temperature is above 5.0 degrees celsius, place it in the "
         "red box. If the lead temperature is below 5.0 degrees celsius, place it in the blue box. The boxes are "
         "located around the kitchen.",
         ["pick up thermometer", "focus on thermometer", "pick up lead", "focus on lead", "use thermometer on lead"]),
        ("Your task is to determine if fork is electrically conductive. The fork is located around the kitchen. First, "
         "focus on the fork. If it is electrically conductive, place it in the red box. If it is electrically "
         "nonconductive, place it in the blue box.",
         ["pick up fork", "focus on fork", "drop fork", "look around", "move fork to blue box"]),
        (BULB.format("renewable"), ["look around", "focus on red light bulb", "pick up battery"]),
        (BULB.format("nonrenewable"), ["look around", "focus on red light bulb", "activate battery"]),
        (COOK.format("boil"), ["look around", "look around", "pick up metal pot", "move chocolate to metal pot",
                               "focus on chocolate", "pick up metal pot", "move metal pot to stove"]),
        ("Your task is to focus on the 3 life stages of the wolf, starting from earliest to latest.",
         ["look around", "wait1"]),
        ("Your task is to focus on the life stages of the apple plant, starting from earliest to latest. The plants "
         "are located outside.", ["look around", "wait1", "look around"]),
    ],
)  # fmt: skip
def test_plans_are_read_from_the_engines_wordings(instruction: str, steps: list[str]) -> None:
    plan = plan_for(instruction, Notes(), Random(0))
    assert [step.action for step, _ in zip(plan, steps, strict=False)] == steps


def test_a_task_without_a_plan_is_a_tour_without_focus() -> None:
    plan = plan_for("Your task is to grow a apple plant from seed.", Notes(), Random(0))
    steps = [next(plan) for _ in range(10)]
    assert {step.room for step in steps} == set(HOUSE)
    assert {step.action for step in steps} == {"look around"}


def test_randomness_depends_on_task_agent_and_seed_alone() -> None:
    told = [said(begun(FIND, skill=0.3, **other), *[HALLWAY] * 40) for other in ({}, {}, {"seed": 1}, {"task": "u"})]
    assert told[0] == told[1]
    assert told[0] not in told[2:]
    assert make("scripted-scienceworld", skill=0.3).ref.params == {"skill": 0.3, "invalid": 0.12}


def test_without_skill_actions_are_of_many_kinds_some_impossible_and_a_focus_is_rare() -> None:
    verbs = Counter(
        action.split()[0] for seed in range(40) for action in said(begun(FIND, skill=0, seed=seed), *[OUTSIDE] * 50)
    )
    assert verbs.keys() >= {"go", "look", "examine", "open", "close", "pick", "move", "pour", "wait1", "inventory"}
    assert verbs.keys() & {"take", "eat", "wear", "hello", "north"}
    assert 5 <= verbs["focus"] <= 60  # of 2,000: 0.9 % by chance, and a bare "focus" now and then


@pytest.mark.parametrize("skill", [0, 0.5, 1])
def test_an_imagined_world_may_say_anything(skill: float) -> None:
    agent = begun(FIND, skill=skill)
    odd = ["", "This room is called the moon. In it, you see: \n\tnothing\n", "You move to the moon.", "0:\t",
           "You move the x to the y.", "Ambiguous request:\n7:\tfly", "A door to the  (that is open)", "Ambiguous",
           "\n" * 9]  # fmt: skip
    assert all(isinstance(action, str) for action in said(agent, *odd, *odd))


@pytest.mark.engine
def test_skill_shows_on_the_real_engine(scienceworld: None) -> None:
    tasks = [
        "find-animal/test/00225",
        "find-plant/test/00240",
        "lifespan-longest-lived/test/00093",
        "power-component/test/00015",
        "chemistry-mix-paint-secondary-color/test/00027",
    ]
    with ScienceWorld(context="none") as env:
        won = {
            skill: sum(rollout(env, ScienceWorldAgent(skill), task).outcome == "success" for task in tasks)
            for skill in (0.0, 1.0)
        }
    assert won == {0.0: 0, 1.0: 5}
