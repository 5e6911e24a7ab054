"""A world of logged replies."""

from pathlib import Path
from typing import Any

import pytest

from tests.lm.test_draft import logged
from worldloom.envs.base import Observation
from worldloom.errors import ModelError
from worldloom.evaluate.one_step import answer_episode, baselines
from worldloom.lm.base import open_lm
from worldloom.lm.replies import Action
from worldloom.lm.retrieval import RetrievalLM
from worldloom.trajectory import Trajectory, write
from worldloom.world import Start, WorldModelEnv

NOTHING = "Nothing happens."
LOG = logged(
    ("take mug 1 from desk 2", "You pick up the mug 1 from the desk 2."),
    ("dance", NOTHING),
    ("go to desk 1", "On the desk 1, you see a pen 1."),
    ("go to bed 1", "On the bed 1, you see nothing."),
)
WIN = {"action": "win", "observation": "You win.", "terminal": "success"}
STEPS = [
    {"action": "take pen 3 from shelf 9", "observation": "You pick up the pen 3 from the shelf 9."},
    {"action": "go to sofa 4", "observation": "On the sofa 4, you see a cat 1."},
    {"action": "fly", "observation": NOTHING},
]


def episode(*more: dict[str, Any]) -> Trajectory:
    start = {"initial_context": "On the sofa 4, you see a cat 1.", "initial_observation": "A room."}
    return Trajectory.model_validate({"env": {"name": "e"}, "task": {"id": "t"}, "steps": [*STEPS, *more], **start})


def test_it_answers_from_logs_and_from_the_episode() -> None:
    record = answer_episode(RetrievalLM(LOG), episode(), "k")
    assert [step["correct"] for step in record["steps"]] == [True, True, False]  # nobody ever flew
    forgetful = [step["correct"] for step in answer_episode(RetrievalLM(LOG, remember=False), episode(), "k")["steps"]]
    assert forgetful == [True, False, False]


def test_a_step_that_a_recorded_world_does_not_know_is_not_judged() -> None:
    unknown = {**STEPS[2], "not_recorded": True}
    record = answer_episode(RetrievalLM(LOG), episode(unknown), "k")
    assert [step["index"] for step in record["steps"]] == [1, 2, 3]
    assert record["left_out"] == 0


def test_it_is_a_baseline() -> None:
    found = baselines([answer_episode(RetrievalLM(LOG), episode(), "k")])
    assert {name: round(of["em"]["value"], 3) for name, of in found.items()} == {
        "repeat_last": 0.0, "nothing_happens": 0.333, "majority_reply": 0.333, "retrieval": 0.667,
    }  # fmt: skip


def test_it_is_a_world(tmp_path: Path) -> None:
    write(tmp_path / "t.jsonl", [episode(WIN)])
    world = WorldModelEnv(open_lm(f"retrieval:{tmp_path / 't.jsonl'}"), {"t": Start("all", Observation("A room."))})
    world.reset("t")
    assert world.step("take cup 1 from bed 2").observation == "You pick up the cup 1 from the bed 2."
    twin = world.fork()
    world.rewind()
    assert (world._session.taken, twin._session.taken) == (0, 1)
    won = world.step("win")
    assert (won.observation, won.terminated, won.info) == ("You win.", True, {"terminal": "success"})


def test_it_needs_something_logged(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="give a trajectories file, or a trained model"):
        open_lm(f"retrieval:{tmp_path}")
    LOG.save(tmp_path)
    assert open_lm(f"retrieval:{tmp_path}").replies.forms == LOG.forms


CALL = '{{"name": "{}", "arguments": {{"id": {}}}}}'
ROWS = ", ".join(f'"row {n}"' for n in range(200))


def tools(*steps: tuple[str, int, str]) -> Trajectory:
    made = [{"action": CALL.format(tool, number), "observation": answer} for tool, number, answer in steps]
    return Trajectory.model_validate({**episode().model_dump(), "steps": made})


def test_the_reply_to_the_nearest_logged_action_is_told_whole(tmp_path: Path) -> None:
    """Two tools whose calls have as many words, and an answer longer than a draft."""
    write(tmp_path / "t.jsonl", [tools(("get", 7, f'{{"id": 7, "rows": [{ROWS}]}}'), ("list", 8, "[8]"))])
    world = open_lm(f"nearest:{tmp_path / 't.jsonl'}").session(None, "A room.")
    nine = ROWS.replace('"row 7"', '"row 9"')  # the word, wherever it stands
    assert world.step(CALL.format("get", 9)) == f'{{"id": 9, "rows": [{nine}]}}'
    assert world.step(CALL.format("list", 8)) == "[8]"
    assert world.step(CALL.format("drop", 8)) == "" == world.step("hello")  # nobody ever did
    world.rewind(2)
    assert world.taken == 2 and world.fork().step(CALL.format("list", 1)) == "[1]"


def test_words_are_answered_as_the_most_similar_ones_were(tmp_path: Path) -> None:
    write(tmp_path / "t.jsonl", [episode(WIN)])
    lm = open_lm(f"nearest:{tmp_path / 't.jsonl'}")
    assert lm.session(None, "A room.").step("take pen 3 from shelf 5") == "You pick up the pen 3 from the shelf 5."
    assert lm.session(None, "A room.").step("win") == "You win. [SUCCESS]"
    with pytest.raises(ModelError, match="holds no step"):
        write(tmp_path / "empty.jsonl", [])
        open_lm(f"nearest:{tmp_path / 'empty.jsonl'}")


def test_calls_of_two_tools_are_no_one_form() -> None:
    assert [Action(CALL.format(tool, 1)).form for tool in ("get", "list")] == ["get 21", "list 21"]
    assert Action("take mug 1").form == "take 3"
