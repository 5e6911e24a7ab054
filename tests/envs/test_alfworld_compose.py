"""Composed ALFWorld games: made from the wheel alone, well formed, solvable, and played to the end on the engine."""

import os
import re
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worldloom.envs import alfworld_compose
from worldloom.envs.alfworld_compose import SPLITS, TASK_TYPES, ComposedGame, compose, floor_plans, task_ids
from worldloom.errors import ConfigError, EnvError

pytest.importorskip("alfworld", reason="composed games are made from the alfworld package")

ANY_ID = st.sampled_from(SPLITS).flatmap(
    lambda split: st.integers(0, len(task_ids(split)) - 1).map(lambda n: task_ids(split)[n])
)
NEEDS = {"pick_clean_then_place_in_recep": "SinkBasin", "pick_heat_then_place_in_recep": "Microwave",
         "pick_cool_then_place_in_recep": "Fridge"}  # fmt: skip


DRAWERS = "composed/train/00012"  # a bedroom whose drawers all start closed


def facts(problem: str, name: str) -> list[tuple[str, ...]]:
    """The arguments of every fact of a predicate that holds at the start."""
    start = problem[problem.index("(:init") : problem.index("(:goal")]
    return [tuple(found.split()) for found in re.findall(rf"\({name} ([^()]+)\)", start)]


def declared(problem: str, kind: str) -> list[str]:
    return re.findall(rf"^\s*(\S+) - {kind}$", problem[: problem.index("(:init")], re.MULTILINE)


def test_splits_have_the_promised_sizes_and_ids():
    assert [len(task_ids(split)) for split in SPLITS] == [10_000, 500, 500, 500]
    assert task_ids("train")[42] == "composed/train/00042"
    assert list(task_ids("ood")[498:]) == ["composed/ood/00498", "composed/ood/00499"]
    assert task_ids("train")[-1] == "composed/train/09999"


def test_held_out_floor_plans_are_never_trained_on():
    plans = {split: set(floor_plans(split)) for split in SPLITS}
    assert plans["train"] == plans["valid_seen"]
    assert not plans["train"] & plans["valid_unseen"]
    assert plans["ood"] == set(range(401, 431))
    assert all(number < 400 for split in SPLITS[:3] for number in plans[split])


def test_seen_validation_shows_new_arrangements():
    arrangements = {split: {str(facts(compose(i)["pddl_problem"], "inReceptacle")) for i in task_ids(split)[:60]}
                    for split in ("train", "valid_seen")}  # fmt: skip
    assert len(arrangements["train"]) == len(arrangements["valid_seen"]) == 60
    assert not arrangements["train"] & arrangements["valid_seen"]


@pytest.mark.parametrize("split", SPLITS)
def test_task_types_are_even_and_rooms_are_the_splits_own(split):
    games = [compose(task_id) for task_id in task_ids(split)[:120]]
    types = Counter(game["task_type"] for game in games)
    expected = 3 if split == "ood" else 6  # a bathroom has no lamp, microwave or fridge
    assert len(types) == expected
    assert set(types.values()) == {120 // expected}
    assert {game["floor_plan"] for game in games} <= {f"FloorPlan{number}" for number in floor_plans(split)}


@settings(max_examples=60, deadline=None)
@given(ANY_ID)
def test_a_problem_declares_what_it_uses_and_nothing_else(task_id):
    problem = compose(task_id)["pddl_problem"]
    assert problem.count("(") == problem.count(")")
    things, receptacles = declared(problem, "object"), declared(problem, "receptacle")
    assert dict(facts(problem, "objectType")).keys() == set(things)
    assert dict(facts(problem, "receptacleType")).keys() == set(receptacles)
    assert sorted(set(dict(facts(problem, "objectType")).values())) == sorted(declared(problem, "otype"))
    assert sorted(set(dict(facts(problem, "receptacleType")).values())) == sorted(declared(problem, "rtype"))
    stood_at = {location for _, location in facts(problem, "receptacleAtLocation") + facts(problem, "atLocation")}
    assert stood_at == set(declared(problem, "location"))
    assert len(facts(problem, "atLocation")) == 1
    assert len(set(things)) == len(things) and len(set(receptacles)) == len(receptacles)


@settings(max_examples=60, deadline=None)
@given(ANY_ID)
def test_names_are_spelt_as_in_the_official_games(task_id):
    problem = compose(task_id)["pddl_problem"]
    number = r"(plus_|minus_)?\d\d_dot_\d\d"
    pattern = re.compile(rf"[A-Za-z]+(_bar_{number}|_bar__{number}){{3}}(_bar_[A-Za-z]+)?")
    for name in declared(problem, "object") + declared(problem, "receptacle"):
        assert pattern.fullmatch(name), name
    for name in declared(problem, "location"):
        assert re.fullmatch(r"loc(_bar_(_minus_)?\d+){3}_bar_(_minus_)?\d+", name), name


@settings(max_examples=80, deadline=None)
@given(ANY_ID)
def test_a_game_starts_unsolved_with_enough_targets_and_the_means_to_win(task_id):
    game = compose(task_id)
    problem = game["pddl_problem"]
    kinds = {name: kind.removesuffix("Type") for name, kind in
             facts(problem, "objectType") + facts(problem, "receptacleType")}  # fmt: skip
    wanted = re.findall(r"\(objectType \?o\d? (\w+)Type\)", problem)
    lies = facts(problem, "inReceptacle")
    targets = [receptacle for thing, receptacle in lies if kinds[thing] == wanted[0]]
    assert len(targets) >= (2 if game["task_type"] == "pick_two_obj_and_place" else 1)
    assert all((thing,) in facts(problem, "pickupable") for thing, kind in kinds.items() if kind == wanted[0])
    assert wanted[0].lower() in game["instruction"]
    if game["task_type"] == "look_at_obj_in_light":
        lamps = [thing for (thing,) in facts(problem, "toggleable")]
        assert lamps and all(kinds[lamp] == "DeskLamp" and dict(lies)[lamp] for lamp in lamps)
        return
    (goal_kind,) = set(re.findall(r"\(receptacleType \?r (\w+)Type\)", problem))
    assert goal_kind.lower() in game["instruction"]
    assert (f"{goal_kind}Type", f"{wanted[0]}Type") in facts(problem, "canContain")
    assert game["task_type"] not in NEEDS or NEEDS[game["task_type"]] in kinds.values()
    if game["task_type"] not in NEEDS:
        assert all(kinds[receptacle] != goal_kind for receptacle in targets)


def test_instructions_are_worded_as_in_the_official_games():
    wordings = {
        "pick_and_place_simple": r"put (a|some) \w+ (in|on) \w+",
        "look_at_obj_in_light": r"(look at \w+ under|examine the \w+ with) the desklamp",
        "pick_clean_then_place_in_recep": r"put a clean \w+ in \w+|clean some \w+ and put it in \w+",
        "pick_heat_then_place_in_recep": r"put a hot \w+ in \w+|heat some \w+ and put it in \w+",
        "pick_cool_then_place_in_recep": r"put a cool \w+ in \w+|cool some \w+ and put it in \w+",
        "pick_two_obj_and_place": r"put two \w+ in \w+|find two \w+ and put them in \w+",
    }
    assert set(wordings) == set(TASK_TYPES)
    for task_id in task_ids("valid_seen")[:60]:
        game = compose(task_id)
        assert re.fullmatch(wordings[game["task_type"]], game["instruction"])
        assert f"Your task is to: {game['instruction']}." in game["grammar"]
        assert "UNKNOWN GOAL" not in game["grammar"]


def test_rooms_are_as_full_as_the_official_ones():
    """Means over the 4,027 official games: 45.2 things in a kitchen's receptacles, 19.0, 21.9 and 15.0 elsewhere."""
    held: dict[int, list[int]] = {0: [], 2: [], 3: [], 4: []}
    for task_id in [*task_ids("train")[:300], *task_ids("ood")[:60]]:
        game = compose(task_id)
        portable = {thing for (thing,) in facts(game["pddl_problem"], "pickupable")}
        count = sum(thing in portable for thing, _ in facts(game["pddl_problem"], "inReceptacle"))
        held[int(game["floor_plan"].removeprefix("FloorPlan")) // 100].append(count)
    for room, official in {0: 45.2, 2: 19.0, 3: 21.9, 4: 15.0}.items():
        assert sum(held[room]) / len(held[room]) == pytest.approx(official, rel=0.15)


def test_the_same_id_gives_the_same_game_in_every_process():
    code = ("import hashlib; from worldloom.envs.alfworld_compose import compose, task_ids, SPLITS; "
            "ids = [task_ids(split)[n] for split in SPLITS for n in (0, 7, 499)]; "
            "print(hashlib.sha256(repr([compose(i) for i in ids]).encode()).hexdigest())")  # fmt: skip
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(digests) == 1


def test_importing_the_module_does_not_import_the_engine():
    code = "import sys, worldloom.envs.alfworld_compose as c; c.task_ids('train')[3]; print([m for m in "
    code += "('alfworld', 'textworld', 'numpy', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("task_id", ["composed/train/10000", "composed/trian/00001", "composed/train/1", "x", ""])
def test_an_unknown_id_is_named_in_the_error(task_id):
    with pytest.raises(EnvError, match=re.escape(repr(task_id))):
        compose(task_id)


def test_an_unknown_split_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean 'valid_seen'"):
        task_ids("valid_sen")
    with pytest.raises(ConfigError):
        floor_plans("test")


def start(game, **infos):
    """A started engine and its first state, with the names that players see."""
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
    from textworld.envs.pddl.pddl import PddlEnv

    engine = PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True, **infos))
    env = AlfredDemangler(engine)
    env.load(game)
    return env, env.reset()


def smallest(split: str, task_type: str) -> ComposedGame:
    """The game of a type that the engine loads fastest, among the first of a split."""
    games = [game for game in map(compose, task_ids(split)[:60]) if game["task_type"] == task_type]
    return min(games, key=lambda game: len(game["pddl_problem"]))


@pytest.mark.engine
@pytest.mark.parametrize(
    ("split", "task_type"),
    [("train", "pick_and_place_simple"), ("valid_seen", "look_at_obj_in_light"), ("ood", "pick_two_obj_and_place"),
     ("train", "pick_clean_then_place_in_recep"), ("valid_unseen", "pick_heat_then_place_in_recep"),
     ("train", "pick_cool_then_place_in_recep")],
)  # fmt: skip
def test_the_walkthrough_wins_with_its_last_command(split, task_type):
    game = smallest(split, task_type)
    env, state = start(game)
    assert f"Your task is to: {game['instruction']}." in state.feedback
    for command in game["walkthrough"]:
        assert not state.won
        assert command in state.admissible_commands
        state, _, _ = env.step(command)
    assert state.won


@pytest.mark.engine
@pytest.mark.parametrize(("split", "task_type"), [("ood", "pick_clean_then_place_in_recep"),
                                                  ("valid_seen", "pick_two_obj_and_place"),
                                                  ("valid_unseen", "look_at_obj_in_light")])  # fmt: skip
def test_the_engines_own_planner_finds_a_plan_that_wins(split, task_type):
    env, state = start(smallest(split, task_type), policy_commands=True)
    plan = list(state.policy_commands)
    assert plan
    for command in plan:
        assert not state.won
        state, _, _ = env.step(command)
    assert state.won


@pytest.mark.engine
def test_closed_receptacles_hide_what_is_in_them_and_help_is_the_official_text():
    env, state = start(compose(DRAWERS))
    drawer = next(command for command in state.admissible_commands if command.startswith("go to drawer"))
    name = drawer.removeprefix("go to ")
    assert f"The {name} is closed." in env.step(drawer)[0].feedback
    assert f"You open the {name}. The {name} is open. In it, you see " in env.step(f"open {name}")[0].feedback
    assert "move (object) to (receptacle):  place an object in or on a receptacle" in env.step("help")[0].feedback
    assert env.step("go to bed 99")[0].feedback == "Nothing happens."


def test_the_version_is_part_of_the_seed(monkeypatch):
    before = compose("composed/train/00000")["pddl_problem"]
    monkeypatch.setattr(alfworld_compose, "COMPOSER_VERSION", "other")
    assert compose("composed/train/00000")["pddl_problem"] != before
