"""A world of logged replies."""

from pathlib import Path
from typing import Any

import pytest

from tests.lm.test_draft import logged
from worldloom.envs.base import Observation
from worldloom.errors import ModelError
from worldloom.evaluate.one_step import answer_episode, baselines
from worldloom.lm.base import open_lm
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


def test_long_answers_of_tools_are_told_whole(tmp_path: Path) -> None:
    """Two tools whose calls have as many words, and an answer of more words than a draft or a saved tree has."""
    rows = ", ".join(f'"row {n}"' for n in range(200))
    calls = {f'{{"name": "{tool}", "arguments": {{"id": 1}}}}': f'{{"{tool}": [{rows}]}}' for tool in ("get", "list")}
    steps = [{"action": action, "observation": answer} for action, answer in calls.items()]
    told = episode().model_dump() | {"steps": steps}
    write(tmp_path / "t.jsonl", [Trajectory.model_validate(told)])
    world = open_lm(f"retrieval:{tmp_path / 't.jsonl'}").session(None, "A room.")
    assert {action: world.step(action) for action in calls} == calls
