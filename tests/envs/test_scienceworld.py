"""ScienceWorld: transcripts, ends, contexts, determinism, odd actions, and the Java process's life and death."""

import gc
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from worldloom.agents.gold import GoldFollower
from worldloom.envs import EnvSpec, scienceworld_engine
from worldloom.envs.check import check_env
from worldloom.envs.scienceworld import ScienceWorld
from worldloom.envs.scienceworld_engine import Engine
from worldloom.errors import ConfigError, EnvError, MissingDependency
from worldloom.rollout import rollout

pytestmark = pytest.mark.engine
TASK = "find-animal/train/00003"
INSTRUCTION = (
    "Your task is to find a(n) animal. First, focus on the thing. Then, move it to the orange box in the kitchen."
)
OUTSIDE = (
    "This outside location is called the outside. Here you see: \n\tthe agent\n\ta substance called air\n\tan axe\n"
    "\ta blue jay egg\n\ta butterfly egg\n\ta dove egg\n\ta fire pit (containing nothing)\n"
    "\ta fountain (containing nothing)\n\tthe ground\n\ta substance called wood\nYou also see:\n"
    "\tA door to the foundry (that is closed)\n\tA door to the greenhouse (that is closed)\n"
    "\tA door to the kitchen (that is closed)"
)
# Read off ScienceWorld 1.2.3's own Python class: action, text, score.
TRANSCRIPT = [
    ("focus on butterfly", "You focus on the butterfly egg.", 0.5),
    ("pick up butterfly", "You move the butterfly to the inventory.", 7 / 12),
    ("go to kitchen", "The door is not open.", 7 / 12),
    ("open door to kitchen", "The door is now open.", 8 / 12),
    ("go to kitchen", "You move to the kitchen.", 10 / 12),
    ("move butterfly to orange box", "You move the butterfly to the orange box.", 1.0),
]
WIN = [action for action, _, _ in TRANSCRIPT]
ROOMS = ["kitchen", "living room", "bedroom", "bathroom", "workshop", "greenhouse", "art studio", "hallway", "foundry"]
CHOICES = ["look at door", "1", "examine egg", "0", "focus on door", "", "look around"]


@pytest.fixture(scope="module", autouse=True)
def env(scienceworld: None) -> Iterator[ScienceWorld]:
    """One Java process for most tests of this file."""
    with ScienceWorld() as made:
        yield made


def texts(env: ScienceWorld, task: str, actions: list[str]) -> list[str]:
    """Everything that an episode says."""
    return [env.reset(task).text, *(env.step(action).observation for action in actions)]


def digest(env: ScienceWorld) -> str:
    """A fingerprint of an episode in which the order of things shows, and of a plan that the engine makes."""
    env.gold = True
    said = [str(env.reset("grow-plant/train/00005").gold_actions), *texts(env, TASK, [*CHOICES, *WIN])]
    return hashlib.sha256("\0".join(said).encode()).hexdigest()


def test_transcript(env: ScienceWorld) -> None:
    first = env.reset(TASK)
    assert (first.text, first.instruction) == (f"{INSTRUCTION}\n\n{OUTSIDE}", INSTRUCTION)
    assert first.gold_actions is None
    before = 0.0
    for action, text, score in TRANSCRIPT:
        result = env.step(action)
        assert result.observation == text
        assert result.reward == pytest.approx(score - before)
        assert (result.terminated, result.truncated) == (score == 1, False)
        assert "admissible_actions" not in result.info
        # The focus scores; a closed door in the way is no refusal of the engine's parser.
        assert (result.info["changed"], result.info["refused"]) == (text != "The door is not open.", False)
        before = score
    assert result.info["terminal"] == "success"
    with pytest.raises(EnvError, match="reset"):
        env.step("look around")


def test_a_wrong_focus_fails(env: ScienceWorld) -> None:
    env.reset("lifespan-shortest-lived/train/00002")
    result = env.step("focus on thermometer")
    assert (result.observation, result.reward) == ("You focus on the thermometer.", -1)
    assert (result.terminated, result.info["terminal"]) == (True, "failure")
    with pytest.raises(EnvError, match="reset"):
        env.step("look around")


def test_a_focus_that_breaks_the_engine_fails_at_once(env: ScienceWorld) -> None:
    env.reset("identify-life-stages-2/train/00003")
    result = env.step("focus on axe")  # the engine looks up the life of what has none
    assert (result.observation, result.info["terminal"]) == ("You focus on the axe.", "failure")


def test_a_wrong_number_of_a_choice_and_a_blank_cancel_it(env: ScienceWorld) -> None:
    said = texts(env, TASK, ["look at door", "9", "look at door", " ", "look at door", " 1 "])
    assert said[1] == said[3] == said[5]
    assert said[1].startswith("Ambiguous request: Please enter the number for the action you intended")
    assert said[2] == said[4]
    assert said[2].startswith("Unknown action.")
    assert said[6].startswith("A door to the ")


def test_what_is_not_understood_is_refused_and_a_look_changes_nothing(env: ScienceWorld) -> None:
    env.reset(TASK)
    done = [
        ("frob the xyzzy", False, True),
        ("look at door", False, True),  # which of them?
        ("9", False, True),
        ("look around", False, False),
        ("inventory", False, False),
        ("open door to kitchen", True, False),
        ("open door to kitchen", False, False),
    ]
    infos = [(action, env.step(action).info) for action, _, _ in done]
    assert [(action, info["changed"], info["refused"]) for action, info in infos] == done


@pytest.mark.parametrize(
    "action",
    [
        "",
        "frob the xyzzy",
        "look around\nlook around",
        "go " * 3333,
        "é\x00🔑",
        "\ud800",
        '"\\n',
        "99999999999999999999",
    ],
)
def test_odd_actions_are_answered_and_harm_nothing(env: ScienceWorld, action: str) -> None:
    assert texts(env, TASK, [action])[1] == "No known action matches that input."
    assert env.step("look around").observation == OUTSIDE


def test_the_rooms_are_told_as_a_walker_sees_them(env: ScienceWorld) -> None:
    context = env.reset(TASK).initial_context or ""
    places = context.split("\n\n")
    names = [f"This room is called the {room}. In it, you see: " for room in ROOMS]
    heads = [place.partition("\n")[0] for place in places]
    assert sorted(heads) == sorted([*names, "This outside location is called the outside. Here you see: "])
    assert OUTSIDE in places
    assert env._process is not None
    engine = env._process
    for room in engine.jvm.scala.collection.JavaConverters.setAsJavaSetConverter(
        engine.agent.universe().getContainedObjects(False)
    ).asJava():
        if room.name() == "sewer":
            continue
        room.addObject(engine.agent.agent())  # put there, so that no time passes
        seen = engine.server.freeActionLook().strip().replace("\tthe agent\n", "", 1)
        assert any(place.partition("\nWhen opened:")[0].replace("\tthe agent\n", "") == seen for place in places)


def test_what_closed_containers_hold_is_told_as_it_is_said_when_they_are_open(env: ScienceWorld) -> None:
    kitchen = (env.reset("lifespan-shortest-lived/train/00002").initial_context or "").partition("\n\n")[0]
    told = kitchen.partition("\nWhen opened:\n")[2].split("\n")
    boxes = ["cupboard", "freezer", "fridge", "oven"]
    assert [line.split()[1].rstrip(".,") for line in told] == boxes
    for box in boxes:
        env.step(f"open {box}")
    seen = env.step("look around").observation.split("\n")
    assert set(told) <= set(seen)


def test_contexts_tell_no_goal_but_that_of_word2world_does(env: ScienceWorld) -> None:
    assert "focus" not in (env.reset(TASK).initial_context or "")
    env.context = "word2world"
    theirs = env.reset(TASK).initial_context or ""
    env.context = "rooms"
    assert "GoalFocusOnAnimal\tfocus on an animal" in theirs
    assert " - teleport OBJ\n" in theirs
    assert "== Room: sewer ==\nThis outside location is called the outside." in theirs  # where it could not go


def test_neither_context_nor_listing_nor_plan_changes_the_episode(env: ScienceWorld) -> None:
    # Bees fly at random, and listing the valid actions draws from the same random numbers.
    actions = ["open door to greenhouse", "go to greenhouse", "open bee hive", *["wait1", "look around"] * 4]
    actions += ["open door to outside", "wait", "look around", "go to outside", "look around"]
    plain = texts(env, "grow-fruit/train/00003", actions)
    assert len(set(plain)) > 10
    for name, value in (("context", "none"), ("context", "word2world"), ("admissible", True)):
        usual = getattr(env, name)
        setattr(env, name, value)
        assert texts(env, "grow-fruit/train/00003", actions) == plain, name
        setattr(env, name, usual)


def test_valid_actions_are_listed_when_wanted(env: ScienceWorld) -> None:
    env.admissible = True
    env.reset(TASK)
    listed = env.step("look around").info["admissible_actions"]
    env.admissible = False
    assert {"open door to kitchen", "pick up axe", "look around"} <= set(listed)
    assert listed == sorted(listed)


def test_same_texts_and_plan_in_another_process_after_other_games(env: ScienceWorld) -> None:
    code = (
        "from tests.envs.test_scienceworld import *\n"
        "with ScienceWorld() as env:\n"
        "    texts(env, 'melt/train/00001', ['look around'])\n"
        "    print(digest(env))"
    )
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    output = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    try:
        assert output.stdout.strip() == digest(env)
    finally:
        env.gold = False


def test_gold_wins_with_and_without_detours(env: ScienceWorld) -> None:
    env.gold = True
    played = [rollout(env, GoldFollower(noise), "find-non-living-thing/test/00225") for noise in (0, 0.3)]
    env.gold = False
    assert [episode.outcome for episode in played] == ["success", "success"]
    assert len(played[1].steps) > len(played[0].steps)


def test_it_says_what_the_packages_own_class_says(env: ScienceWorld) -> None:
    from scienceworld import ScienceWorldEnv

    theirs = ScienceWorldEnv("", envStepLimit=1000)
    try:
        theirs.load("find-animal", 3, "")
        text, info = theirs.reset()
        told = [(f"{INSTRUCTION}\n\n{text}", info["score"])]
        told += [(result[0], result[3]["score"]) for result in map(theirs.step, WIN)]
    finally:
        theirs.close()
    score = [0.0]
    ours = [(env.reset(TASK).text, 0)]
    for action in WIN:
        result = env.step(action)
        score.append(score[-1] + (result.reward or 0))
        ours.append((result.observation, round(100 * score[-1])))
    assert ours == told


def test_keeps_the_contract() -> None:
    check_env(EnvSpec("scienceworld", {"simplifications": "easy"}), [TASK], processes=1)


class TestJava:
    """The process: what starts it, and that nothing leaves it behind."""

    def test_closing_and_forgetting_end_it(self) -> None:
        closed, forgotten = ScienceWorld(), ScienceWorld()
        pids = [one._engine().pid for one in (closed, forgotten)]
        assert all(psutil.pid_exists(pid) for pid in pids)
        closed.close()
        closed.close()
        del forgotten
        gc.collect()
        assert not any(psutil.pid_exists(pid) for pid in pids)

    @pytest.mark.parametrize("child", ["", "os.fork() or time.sleep(60)"])
    def test_it_dies_with_a_process_that_is_killed(self, child: str) -> None:
        code = (
            "import os, time\nfrom worldloom.envs.scienceworld_engine import Engine\n"
            f"engine = Engine()\nparent = os.getpid()\n{child or 'pass'}\n"
            "if os.getpid() == parent: print(engine.pid, flush=True); time.sleep(60)"
        )
        owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert owner.stdout is not None
        java = psutil.Process(int(owner.stdout.readline()))
        children = [process for process in psutil.Process(owner.pid).children() if process.pid != java.pid]
        assert len(children) == bool(child)
        owner.kill()
        owner.wait()
        java.wait(timeout=10)
        for process in children:
            process.kill()

    def test_one_that_died_is_an_error_and_started_again(self, env: ScienceWorld) -> None:
        env.reset(TASK)
        assert env._process is not None
        os.kill(env._process.pid, signal.SIGKILL)
        with pytest.raises(EnvError, match="Java process failed"):
            env.step("look around")
        assert env.reset(TASK).text.endswith(OUTSIDE)

    def test_it_writes_nothing_into_the_working_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with ScienceWorld() as env:
            env.reset(TASK)
        assert list(tmp_path.iterdir()) == []

    def test_one_that_does_not_start(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        program = tmp_path / "bin" / "java"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\necho 'Unrecognized VM option' >&2\nexit 1\n")
        program.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        with pytest.raises(MissingDependency, match=r"does not start \(Unrecognized VM option\)"):
            Engine()

    def test_one_that_is_too_old(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(scienceworld_engine, "OLDEST_JAVA", 999)
        with pytest.raises(MissingDependency, match="or newer, not "):
            Engine()


class TestTasks:
    def test_splits_are_the_engines_and_disjoint(self, env: ScienceWorld) -> None:
        ids = {split: list(env.task_ids(split)) for split in env.splits}
        assert {split: len(found) for split, found in ids.items()} == {"train": 3592, "valid": 1796, "test": 1819}
        variations = [(i.split("/")[0], i.split("/")[2]) for found in ids.values() for i in found]
        assert len(set(variations)) == 7207
        assert len({task for task, _ in variations}) == 30
        assert ids["train"][0] == "boil/train/00000"
        assert len({i.split("/")[0] for i in ids["test"][:30]}) == 30  # one of each, to begin with
        with pytest.raises(ConfigError, match="did you mean 'train'"):
            env.task_ids("trian")

    @pytest.mark.parametrize(
        "task", ["boil/train/00014", "boil/test/00000", "boil/train/1", "brew/train/00000", "", "../x"]
    )
    def test_unknown(self, env: ScienceWorld, task: str) -> None:
        with pytest.raises(EnvError, match="has no task"):
            env.reset(task)

    def test_an_electrical_task_without_electrical_actions(self) -> None:
        with ScienceWorld("noElectricalAction") as env, pytest.raises(EnvError, match="electrical"):
            env.reset("power-component/train/00000")
