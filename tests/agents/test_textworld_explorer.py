"""The exploring TextWorld agents: the map they draw, doors and keys, what they look for, and real games."""

import pytest

import worldloom
from worldloom.agents import AgentSpec, make
from worldloom.agents.base import Start
from worldloom.agents.textworld_explorer import Finder, House, TreasureHunterAgent, wanted
from worldloom.rollout import rollout
from worldloom.trajectory import Trajectory

OBJECTIVE = "First of all, try to go east. Then, lift the iron from the floor of the bathroom. Got that? Good!"


def room(name: str, *told: str) -> str:
    """What TextWorld says on entering a room."""
    body = "\n\n".join(told)
    return f"-= {name} =-\nYou have arrived.\n\n{body}\n\n-= {name} =-0/1"


VAULT = room("Vault", "There is an exit to the east. Don't worry, it is unguarded.")
HALL = room(
    "Hall",
    "You see a closed locker. You make out a bench. But the thing is empty.",
    "There is a closed barn door leading north. You don't like doors? Why not try going west, it is unguarded.",
)


@pytest.mark.parametrize(
    ("objective", "thing"),
    [
        (OBJECTIVE, "iron"),
        ("Then, travel east. With that over with, pick up the coin from the floor of the washroom.", "coin"),
        ("Then, travel east. And then, take the keycard from the bed stand. And you're the winner!", "keycard"),
        ("And then, retrieve the fly larva from the case inside the attic. Thanks!", "fly larva"),
        ("You are hungry! Let's cook a delicious meal.", None),
    ],
)
def test_what_is_wanted(objective: str, thing: str | None) -> None:
    assert wanted(objective) == thing


def test_a_house_knows_ways_doors_and_keys() -> None:
    house = House()
    house.learn(None, VAULT)
    house.learn("go east", HALL)
    assert house.leads == {"Vault": {"east": "Hall"}, "Hall": {"west": "Vault"}}
    assert house.go("Hall", "north") == "open barn door"
    house.learn("open barn door", "You have to unlock the barn door with the latchkey first.\n\n-= Hall =-0/3")
    assert house.explore() == "inventory"  # perhaps it was carried all along
    house.learn("inventory", "You are carrying: a tin and an iron.\n\n-= Hall =-0/3")
    assert list(house.held) == ["tin", "iron"]
    house.learn("go west", room("Vault", "There is a latchkey on the floor. There is an exit to the east."))
    assert house.explore() == "take latchkey"
    house.learn("take latchkey", "You pick up the latchkey from the ground.\n\n-= Vault =-0/4")
    assert house.explore() == "go east"
    house.learn("go east", HALL)
    assert house.go("Hall", "north") == "unlock barn door with latchkey"
    house.learn("unlock barn door with latchkey", "You unlock barn door.\n\n-= Hall =-0/4")
    assert house.go("Hall", "north") == "open barn door"
    house.learn("open barn door", "You open barn door.\n\n-= Hall =-0/5")
    assert house.go("Hall", "north") == "go north"
    house.learn("close barn door", "You close barn door.\n\n-= Hall =-0/6")
    house.learn("go north", "You have to open the barn door first.\n\n-= Hall =-0/7")
    assert house.go("Hall", "north") == "open barn door"


def test_containers_come_before_ways_and_then_the_nearest_room_with_something_left() -> None:
    house = House()
    house.learn(None, VAULT)
    house.learn("go east", HALL)
    assert list(house.unseen("Hall")) == ["open locker", "open barn door"]
    house.learn("open locker", "You open the locker, revealing a tin.\n\n-= Hall =-0/3")
    assert house.tells_of("Hall", "tin")
    house.learn("go west", VAULT)
    assert house.explore() == "go east"
    house.learn("go east", HALL)
    assert [house.explore() for _ in range(3)] == ["open barn door"] * 3
    assert house.explore() == "open bench"  # the door does not open: what else might?


def test_a_thing_that_is_not_there_is_forgotten() -> None:
    house = House()
    house.learn(None, HALL)
    assert house.tells_of("Hall", "locker")
    house.learn("open locker", "You can't see any such thing.\n\n-= Hall =-0/2")
    assert not house.tells_of("Hall", "locker")


def test_it_goes_where_the_thing_was_seen_and_takes_it() -> None:
    agent = TreasureHunterAgent(skill=1, invalid=0)
    agent.begin(Start("t", VAULT, OBJECTIVE, 0))
    assert agent.act(VAULT).action == "go east"
    there = room("Hall", "There is an exit to the west.", "There is an iron on the floor. There is a tin on the floor.")
    assert agent.act(there).action == "take iron"
    assert agent.act("You're carrying too much.\n\n-= Hall =-0/3").action == "take iron"
    assert agent.act(VAULT).action == "go east"


def test_it_does_not_repeat_for_ever_what_does_not_work() -> None:
    agent = TreasureHunterAgent(skill=1, invalid=0)
    agent.begin(Start("t", VAULT, OBJECTIVE, 0))
    there = room("Hall", "There is an iron on the floor.")
    assert {agent.act(there).action for _ in range(10)} > {"take iron"}


def test_actions_depend_on_task_agent_and_seed_only() -> None:
    def actions(task: str, seed: int) -> list[str]:
        agent = TreasureHunterAgent(skill=0.3)
        agent.begin(Start(task, HALL, OBJECTIVE, seed))
        return [agent.act(HALL).action for _ in range(20)]

    assert actions("a", 1) == actions("a", 1)
    assert len({tuple(actions(task, seed)) for task in "ab" for seed in (1, 2)}) == 4


@pytest.mark.parametrize(
    ("told", "held"),
    [
        ("nothing", []),
        (": a latchkey", ["latchkey"]),
        (": a knife, some milk and a chopped raw purple potato", ["knife", "milk", "purple potato"]),
    ],
)
def test_what_is_carried(told: str, held: list[str]) -> None:
    house = House()
    house.learn("inventory", f"You are carrying{told if told[0] == ':' else f' {told}'}.\n\n-= Hall =-0/3")
    assert list(house.held) == held


@pytest.mark.parametrize("name", ["scripted-textworld-coin-collector", "scripted-textworld-treasure-hunter"])
def test_names(name: str) -> None:
    agent = AgentSpec(name, {"skill": 0.25}).build()
    assert isinstance(agent, Finder)
    assert (agent.name, agent.params) == (name, {"skill": 0.25, "invalid": 0.05})


def plays(family: str, skill: float) -> list[Trajectory]:
    """Episodes of one real game, four seeds."""
    agent = f"scripted-textworld-{family}"
    with worldloom.make(f"textworld-{family}", admissible=False) as env:
        return [rollout(env, make(agent, skill=skill), f"{family}/test/00001", seed=seed) for seed in range(4)]


@pytest.mark.engine
@pytest.mark.parametrize(("family", "shortest"), [("coin-collector", 10), ("treasure-hunter", 3)])
def test_real_games(family: str, shortest: int) -> None:
    found = {skill: plays(family, skill) for skill in (1.0, 0.0)}
    assert [play.error for played in found.values() for play in played] == [None] * 8
    assert [play.outcome for play in found[1.0]] == ["success"] * 4
    assert min(len(play.steps) for play in found[1.0]) == shortest
    wins = [play for play in found[0.0] if play.outcome == "success"]
    assert len(wins) < 3
    said = [step.observation for play in found[0.0] for step in play.steps]
    assert any("You can't see any such thing" in text for text in said)
