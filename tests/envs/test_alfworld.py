"""ALFWorld on its real engine: transcripts, the context in the engine's words, and clear errors."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from worldloom.envs import EnvSpec, make
from worldloom.envs.alfworld import ALFWorld, OfficialGames
from worldloom.envs.alfworld_compose import compose
from worldloom.envs.check import check_env
from worldloom.errors import ConfigError, EnvError, MissingDependency, UnsolvableGame

pytest.importorskip("alfworld", reason='the ALFWorld engine is not installed: pip install "worldloom[alfworld]"')

ROOT = Path(__file__).parents[2]
SOAP = "valid_unseen/pick_clean_then_place_in_recep-SoapBar-None-Cabinet-424/trial_T20190908_214926_337906"
BATHROOM = "composed/ood/00041"  # small, with drawers
BEDROOM = "composed/train/00012"
LAMP = "composed/train/00001"  # with a desk lamp


@pytest.fixture(scope="module")
def composed() -> Iterator[ALFWorld]:
    with ALFWorld() as env:
        yield env


@pytest.fixture(scope="module")
def official(alfworld_data: Path) -> Iterator[ALFWorld]:
    with ALFWorld("official", data=alfworld_data) as env:
        yield env


# Read off the plain engine (AlfredDemangler over textworld's PddlEnv), not off this package.
ROOM_424 = (
    "You are in the middle of a room. Looking quickly around you, you see a cabinet 4, a cabinet 3, a cabinet 2, "
    "a cabinet 1, a countertop 1, a garbagecan 1, a handtowelholder 2, a handtowelholder 1, a sinkbasin 2, "
    "a sinkbasin 1, a toilet 1, a toiletpaperhanger 1, and a towelholder 1.\n\n"
    "Your task is to: clean some soapbar and put it in cabinet."
)
CONTEXT_424 = """\
The cabinet 4 is closed. In it, you see a candle 1, and a cloth 2.
The cabinet 3 is closed. In it, you see nothing.
The cabinet 2 is closed. In it, you see nothing.
The cabinet 1 is closed. In it, you see nothing.
On the countertop 1, you see a soapbar 1, and a soapbottle 1.
On the garbagecan 1, you see nothing.
On the handtowelholder 2, you see a handtowel 2.
On the handtowelholder 1, you see a handtowel 1.
On the sinkbasin 2, you see nothing.
On the sinkbasin 1, you see nothing.
On the toilet 1, you see a spraybottle 1, and a toiletpaper 2.
On the toiletpaperhanger 1, you see a toiletpaper 1.
On the towelholder 1, you see a towel 1."""
EPISODE_424 = [
    ("go to countertop 1", "You arrive at countertop 1. On the countertop 1, you see a soapbar 1, and a soapbottle 1."),
    ("go to moon 1", "Nothing happens."),
    ("take soapbar 1 from countertop 1", "You pick up the soapbar 1 from the countertop 1."),
    ("inventory", "You are carrying: a soapbar 1."),
    ("go to sinkbasin 1", "You arrive at sinkbasin 1. On the sinkbasin 1, you see nothing."),
    ("clean soapbar 1 with sinkbasin 1", "You clean the soapbar 1 using the sinkbasin 1."),
    ("go to cabinet 1", "You arrive at cabinet 1. The cabinet 1 is closed."),
    ("move soapbar 1 to cabinet 1", "Nothing happens."),
    ("open cabinet 1", "You open the cabinet 1. The cabinet 1 is open. In it, you see nothing."),
    ("move soapbar 1 to cabinet 1", "You move the soapbar 1 to the cabinet 1."),
]


@pytest.mark.engine
def test_an_official_game_word_for_word(official: ALFWorld) -> None:
    first = official.reset(SOAP)
    assert first.text == ROOM_424
    assert first.instruction == "clean some soapbar and put it in cabinet"
    assert first.initial_context == CONTEXT_424
    told = [official.step(action) for action, _ in EPISODE_424]
    assert [result.observation for result in told] == [observation for _, observation in EPISODE_424]
    assert [result.reward for result in told] == [0.0] * 9 + [1.0]
    assert [result.terminated for result in told] == [False] * 9 + [True]
    assert [result.info["terminal"] for result in told] == [None] * 9 + ["success"]
    assert not any(result.truncated for result in told)
    # Read off the game's actions: which of them have an effect other than "checked", and which are none here.
    assert [number for number, result in enumerate(told) if result.info["refused"]] == [1, 7]
    assert [number for number, result in enumerate(told) if not result.info["changed"]] == [1, 3, 7]
    assert "take soapbar 1 from countertop 1" in told[0].info["admissible_actions"]
    assert "take soapbar 1 from countertop 1" not in told[2].info["admissible_actions"]
    with pytest.raises(EnvError, match="call reset first"):
        official.step("look")


@pytest.mark.engine
def test_a_lamp_that_is_turned_on_changes_the_state_though_the_same_can_be_done(composed: ALFWorld) -> None:
    composed.reset(LAMP)
    plan = composed.source.game(LAMP)["walkthrough"]
    *way, lamp = plan[: next(n for n, action in enumerate(plan) if action.startswith("use ")) + 1]
    for action in way:
        before = composed.step(action).info["admissible_actions"]
    for action in ("look", "inventory", "help"):
        told = composed.step(action).info
        assert (told["changed"], told["refused"]) == (False, False)
    used = composed.step(lamp)
    assert (used.info["admissible_actions"], used.info["changed"]) == (before, True)


@pytest.mark.engine
def test_the_splits_are_the_official_ones(official: ALFWorld) -> None:
    assert official.splits == ("train", "valid_seen", "valid_unseen")
    ids = {split: official.task_ids(split) for split in official.splits}
    assert {split: len(found) for split, found in ids.items()} == {
        "train": 3553, "valid_seen": 140, "valid_unseen": 134,
    }  # fmt: skip
    assert all(task_id.startswith(f"{split}/") for split, found in ids.items() for task_id in found)
    assert list(ids["train"]) == sorted(ids["train"])


PLAIN = """
import json, sys
import textworld
from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
from textworld.envs.pddl import PddlEnv
game, actions = json.load(sys.stdin)
engine = AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, lost=True, admissible_commands=True)))
engine.load(game)
told = [engine.reset()]
told += [engine.step(action)[0] for action in actions]
print(json.dumps([[s.feedback, list(s.admissible_commands or []), bool(s.won)] for s in told]))
"""


@pytest.mark.engine
@pytest.mark.parametrize("task_id", [SOAP, BEDROOM, LAMP])
def test_keeping_results_changes_nothing_that_the_engine_says(
    official: ALFWorld, composed: ALFWorld, task_id: str
) -> None:
    env = official if task_id == SOAP else composed
    game = dict(env.source.game(task_id))
    plan = game["walkthrough"]
    actions = [
        *("look", "inventory", "dance", plan[0], f"examine {plan[0].removeprefix('go to ')}", "look"),
        *(command for step in plan for command in (step, "inventory", "help", step)),
    ]
    child = subprocess.run(
        [sys.executable, "-c", PLAIN],
        input=json.dumps([game, actions]), capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    plain = json.loads(child.stdout.splitlines()[-1])
    for _ in range(2):  # the second time, everything has been kept
        told = [env.reset(task_id).text]
        assert plain[0][0].endswith(told[0])
        for action, (feedback, admissible, won) in zip(actions, plain[1:], strict=True):
            result = env.step(action)
            assert (result.observation, result.info["admissible_actions"]) == (feedback.strip(), admissible)
            assert (result.info["terminal"] == "success", result.terminated) == (won, won)
            if won:
                break
        assert won


@pytest.mark.engine
@pytest.mark.parametrize("task_id", [SOAP, BATHROOM, BEDROOM, LAMP])
def test_the_context_is_what_the_engine_says_on_a_first_visit(
    official: ALFWorld, composed: ALFWorld, task_id: str
) -> None:
    env = official if task_id == SOAP else composed
    first = env.reset(task_id)
    lines = first.initial_context.splitlines()
    places = re.findall(r"an? ([a-z]+ \d+)", first.text.partition("you see ")[2].partition("\n")[0])
    assert len(places) == len(set(places)) >= 6
    about = dict(zip(places, lines, strict=False))  # a line a place, in the engine's order
    for place, line in about.items():
        arrival = env.step(f"go to {place}").observation
        if not line.startswith(f"The {place} is closed."):
            assert arrival in (f"You arrive at {place}. {line}", "Nothing happens.")  # where one stands already
            assert env.step(f"examine {place}").observation == line
            continue
        assert arrival == f"You arrive at {place}. The {place} is closed."
        contents = line.removeprefix(f"The {place} is closed. ")
        opened = env.step(f"open {place}").observation
        assert opened == f"You open the {place}. The {place} is open. {contents}"
    others = lines[len(places) :]
    faced = [line for line in others if line.startswith("You are facing the ")]
    for line in faced:
        group = re.findall(r"([a-z]+ \d+)", line)
        for place in group:
            env.step(f"go to {place}")
            assert env.step("look").observation.startswith(line)
    lamps = {thing for line in lines for thing in re.findall(r"an? (desklamp \d+)", line)}
    assert [line for line in others if line not in faced] == [f"This {lamp} is off." for lamp in lamps]


@pytest.mark.engine
def test_the_context_tells_nothing_of_the_goal_and_can_be_left_out(composed: ALFWorld) -> None:
    first = composed.reset(BEDROOM)
    assert "task" not in first.initial_context
    with ALFWorld(context="none") as bare:
        assert bare.reset(BEDROOM) == first._replace(initial_context=None)


@pytest.mark.engine
def test_the_planners_plan_wins_a_game_that_has_none_of_its_own(alfworld_data: Path, tmp_path: Path) -> None:
    copy_game(alfworld_data, tmp_path, lambda game: {k: v for k, v in game.items() if k != "walkthrough"})
    with ALFWorld("official", data=tmp_path) as plain:
        assert plain.reset(SOAP).gold_actions is None
    with ALFWorld("official", data=tmp_path, gold=True) as env:
        plan = env.reset(SOAP).gold_actions
        told = [env.step(action) for action in plan]
    assert told[-1].info["terminal"] == "success"


def copy_game(data: Path, folder: Path, change) -> Path:
    """One official game in a folder of its own, changed."""
    game = json.loads((data / "json_2.1.1" / SOAP / "game.tw-pddl").read_text())
    path = folder / "json_2.1.1" / SOAP / "game.tw-pddl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(change(game)))
    return path


def test_a_missing_games_folder_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingDependency) as caught:
        make("alfworld", games="official", data=tmp_path / "none")
    told = str(caught.value)
    assert str(tmp_path / "none") in told
    assert all(part in told for part in ("alfworld-download", "ALFWORLD_DATA", "games='composed'"))
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "other"))
    with pytest.raises(MissingDependency, match="other: run `alfworld-download`"):
        OfficialGames()


BROKEN = {
    "cut off": (lambda text: text[: len(text) // 2], r"game\.tw-pddl: not a game file .*download it anew"),
    "no object": (lambda text: "[1]", r"game\.tw-pddl: not a game file"),
    "without a grammar": (lambda text: text.replace('"grammar"', '"gramar"'), r"tw-pddl: no grammar; download it anew"),
    "not UTF-8": (lambda text: "\udcff", r"game\.tw-pddl: not a game file"),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A games folder with one composed game in it."""
    path = tmp_path / "json_2.1.1" / "train" / "task" / "trial" / "game.tw-pddl"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(compose(BATHROOM)))
    return tmp_path


@pytest.mark.parametrize(("change", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_game_file_is_named(folder: Path, change, message: str) -> None:
    path = folder / "json_2.1.1" / "train" / "task" / "trial" / "game.tw-pddl"
    path.write_text(change(path.read_text()), errors="surrogateescape")
    with ALFWorld("official", data=folder) as env, pytest.raises(EnvError, match=message):
        env.reset("train/task/trial")


def test_a_game_marked_as_not_solvable_is_refused(folder: Path) -> None:
    path = folder / "json_2.1.1" / "train" / "task" / "trial" / "game.tw-pddl"
    path.write_text(json.dumps({**compose(BATHROOM), "solvable": False}))
    told = r"game\.tw-pddl: marked as not solvable; choose another task"
    with ALFWorld("official", data=folder) as env, pytest.raises(UnsolvableGame, match=told):
        env.reset("train/task/trial")


@pytest.mark.engine
def test_a_game_that_no_plan_wins_is_refused_where_a_plan_is_asked_for(folder: Path) -> None:
    path = folder / "json_2.1.1" / "train" / "task" / "trial" / "game.tw-pddl"
    game = {**compose(BATHROOM), "walkthrough": None}
    goal = game["pddl_problem"].index("(:goal")
    things = re.findall(r"\(pickupable ([^()]+)\)", game["pddl_problem"])
    game["pddl_problem"] = game["pddl_problem"][:goal] + f"(:goal (and (isOn {things[0]}))))\n"
    path.write_text(json.dumps(game))
    with ALFWorld("official", data=folder, gold=True) as env, pytest.raises(EnvError):
        env.reset("train/task/trial")


@pytest.mark.engine
def test_an_engine_that_cannot_load_a_game_says_so_and_plays_the_next_one(folder: Path) -> None:
    path = folder / "json_2.1.1" / "train" / "task" / "trial" / "game.tw-pddl"
    bad = path.parents[2] / "bad" / "trial" / "game.tw-pddl"
    bad.parent.mkdir(parents=True)
    bad.write_text(json.dumps({**compose(BATHROOM), "pddl_problem": "(define (problem"}))
    with ALFWorld("official", data=folder) as env:
        env.reset("train/task/trial")
        with pytest.raises(EnvError, match=r"ALFWorld cannot start 'train/bad/trial'.*is the game file whole"):
            env.reset("train/bad/trial")
        with pytest.raises(EnvError, match="call reset first"):
            env.step("look")
        assert "Your task is to" in env.reset("train/task/trial").text


def test_ids_outside_the_folder_and_unknown_splits_are_refused(folder: Path) -> None:
    (folder / "secret").mkdir()
    (folder / "secret" / "game.tw-pddl").write_text("{}")
    with ALFWorld("official", data=folder) as env:
        for task_id in ("train/none", "../secret", ""):
            with pytest.raises(EnvError, match=re.escape(f"no ALFWorld game {task_id!r}")):
                env.reset(task_id)
        assert env.task_ids("train") == ["train/task/trial"]
        with pytest.raises(ConfigError, match="alfworld has no split 'test'; it has train, valid_seen, valid_unseen"):
            env.task_ids("test")


@pytest.mark.parametrize("options", [{"games": "offical"}, {"context": "some"}])
def test_an_unknown_choice_is_refused(options: dict) -> None:
    with pytest.raises(ConfigError, match="composed/official, and full/none"):
        make("alfworld", **options)


def test_the_data_folder_stays_out_of_what_is_recorded(folder: Path) -> None:
    with ALFWorld("official", data=folder) as env:
        assert env.ref.options == {"games": "official", "context": "full", "gold": False}
        assert env.version.startswith("alfworld 0.")


@pytest.mark.engine
def test_composed_games_keep_the_contract() -> None:
    report = check_env(EnvSpec("alfworld"), [BATHROOM, BEDROOM], max_steps=6, processes=1)
    assert report.ok
    assert "determinism" in report.rules


def test_importing_the_module_does_not_import_the_engine() -> None:
    code = "import sys, worldloom.envs.alfworld; print([m for m in ('alfworld', 'textworld') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.strip() == "[]"
