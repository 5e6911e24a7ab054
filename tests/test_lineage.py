"""Which of some tasks a model learnt, itself or what it was before, from what its trainings noted."""

import json
import logging
from pathlib import Path

import pytest

from worldloom.agents import AgentSpec
from worldloom.lineage import Task, overlap, overlaps
from worldloom.runs import write_json
from worldloom.trajectory import EnvRef, Step, TaskRef, Trajectory, write

HALLS = [Task("hall", "train", str(n)) for n in range(4)]


def episode(task: Task) -> Trajectory:
    return Trajectory(
        env=EnvRef(name=task.env), task=TaskRef(id=task.id, split=None if task.split == "all" else task.split),
        initial_observation="A hall.", steps=[Step(action="look", observation="A hall.")],
    )  # fmt: skip


def logged(path: Path, *tasks: Task) -> str:
    write(path, map(episode, tasks))
    return str(path)


@pytest.fixture
def trained(tmp_path: Path) -> str:
    """Learnt tasks 0 and 1 at first, then task 2 and one of another environment."""
    first = logged(tmp_path / "first.jsonl", HALLS[0], HALLS[1], HALLS[1])
    second = logged(tmp_path / "second.jsonl", HALLS[2], Task("attic", "train", "3"))
    write_json(tmp_path / "run" / "model" / "train.json", {"data": [second], "before": [{"data": [first]}]})
    return str(tmp_path / "run")


def test_tasks_learnt_now_and_before_are_counted_and_warned_of(trained: str, caplog: pytest.LogCaptureFixture) -> None:
    assert overlap(trained, HALLS, "rehearsed") == {"tasks": 3, "of": 4}
    assert f"{trained} was trained on 3 of the 4 tasks that it is rehearsed on, such as '0'" in caplog.text
    assert overlap(f"zero-shot:{trained}/model", [HALLS[1], HALLS[3]]) == {"tasks": 1, "of": 2}


def test_a_task_is_the_same_by_environment_split_and_id(trained: str, caplog: pytest.LogCaptureFixture) -> None:
    others = [Task.of("hall", "test", "0"), Task.of("cellar", "train", "0"), Task.of("hall", "train", "3")]
    assert overlap(trained, others) == {"tasks": 0, "of": 3}
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert Task.of("world-model:hall", "train", "0") == HALLS[0]  # imagined, it is still that task
    assert Task.of("hall", None, "0") == Task.of("hall", "all", "0")


def test_what_is_gone_or_broken_is_not_known(trained: str, tmp_path: Path) -> None:
    (tmp_path / "first.jsonl").unlink()
    assert overlap(trained, HALLS) == {"tasks": 1, "of": 4, "unread": 1}
    (tmp_path / "second.jsonl").write_text("no trajectory\n")
    assert overlap(trained, HALLS) is None
    (tmp_path / "run" / "model" / "train.json").write_text("{")
    for model in (trained, "smollm2-135m", "m@http://127.0.0.1:9/v1", f"retrieval:{tmp_path / 'none'}"):
        assert overlap(model, HALLS) is None


def test_a_training_that_noted_no_files_may_have_learnt_any_task(trained: str, tmp_path: Path) -> None:
    past = {"data": [str(tmp_path / "first.jsonl")]}
    write_json(tmp_path / "grpo" / "train.json", {"method": "grpo", "before": [past]})
    assert overlap(str(tmp_path / "grpo"), HALLS) == {"tasks": 2, "of": 4, "unread": 1}


def test_worlds_of_logged_replies_learnt_their_file(trained: str, tmp_path: Path) -> None:
    for name in ("retrieval", "nearest"):
        assert overlap(f"{name}:{tmp_path / 'first.jsonl'}", HALLS) == {"tasks": 2, "of": 4}
    assert overlap(f"retrieval:{trained}", HALLS) == {"tasks": 3, "of": 4}


def test_half_a_surrogate_pair_hides_no_task(tmp_path: Path) -> None:
    row = json.loads(episode(HALLS[0]).to_json()) | {"initial_observation": "\ud83d"}
    (tmp_path / "odd.jsonl").write_text(json.dumps(row) + "\nbroken\n")
    assert overlap(f"retrieval:{tmp_path / 'odd.jsonl'}", HALLS[:2]) == {"tasks": 1, "of": 2}


def test_agents_with_a_model_of_their_own_are_looked_at_too(trained: str, tmp_path: Path) -> None:
    world = f"retrieval:{logged(tmp_path / 'attic.jsonl', Task('attic', 'all', '3'))}"
    agents = [AgentSpec("policy", {"model": trained}), AgentSpec("llm", {"model": "far"}), AgentSpec("idle")]
    assert overlaps(world, agents, HALLS) == {
        "overlap": {"tasks": 0, "of": 4},
        "overlap_agents": {trained: {"tasks": 3, "of": 4}},
    }
    assert overlaps("far@http://127.0.0.1:9/v1", agents[1:], HALLS) == {}
