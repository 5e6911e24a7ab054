"""What a model that was not trained as a world is told, and that it is judged like any other."""

from pathlib import Path
from typing import Any

import pytest

from tests.lm.serving import Answer, completion, recorded
from worldloom.errors import ConfigError
from worldloom.evaluate.run import evaluate
from worldloom.lm.base import open_lm
from worldloom.lm.prompt import INSTRUCTIONS, few_shot, prompted, split_prompt, zero_shot
from worldloom.lm.session import LocalLM
from worldloom.trajectory import EnvRef, Step, TaskRef, Trajectory, write


def episode(task: str, *turns: tuple[str, str], won: bool = True, context: str | None = None) -> Trajectory:
    steps = [Step(action=action, observation=text) for action, text in turns]
    steps[-1] = steps[-1].model_copy(update={"terminal": "success" if won else "failure"})
    return Trajectory(
        env=EnvRef(name="e"), task=TaskRef(id=task), initial_context=context, initial_observation="A room.", steps=steps
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    write(path, [
        episode("a", ("look", "A long and winding hall."), ("go", "You win.")),
        episode("a", ("go", "You win.")),  # the same task, shorter
        episode("b", ("open box", "It is empty."), context="The box is empty."),
        episode("c", ("go", "You lose."), won=False),
        episode("d", ("look", "A hall. " * 20)),
    ])  # fmt: skip
    return path


def test_where_no_end_is_known_examples_are_the_shortest_episodes(tmp_path: Path) -> None:
    rows = [episode("a", ("go", "On.")), episode("b", ("go", "On and on."))]
    open_ended = [t.model_copy(update={"steps": [t.steps[0].model_copy(update={"terminal": None})]}) for t in rows]
    write(tmp_path / "log.jsonl", open_ended[::-1])
    assert few_shot(tmp_path / "log.jsonl", 1).text.count("> go\nOn.\n") == 1


def test_examples_are_the_shortest_won_episodes_each_of_another_task(log: Path) -> None:
    found = few_shot(log, 2)
    assert (found.shots, found.examples) == (2, log.as_posix())
    assert found.text == (
        f"{INSTRUCTIONS}\n\n"
        "Example 1. It begins:\n\nA room.\n> go\nYou win. [SUCCESS]\n\n"
        "Example 2. It begins:\n\nThe box is empty.\n\nA room.\n> open box\nIt is empty. [SUCCESS]\n\n"
        "This is how it begins now:"
    )
    with pytest.raises(ConfigError, match="has 3 tasks that were won; 4 are needed as examples"):
        few_shot(log, 4)


def test_how_prompted_models_are_named(log: Path) -> None:
    assert split_prompt("runs/model") == (None, "runs/model")
    assert split_prompt("q:7b@http://h/v1") == (None, "q:7b@http://h/v1")
    assert split_prompt("zero-shot:q:7b@http://h/v1") == (zero_shot(), "q:7b@http://h/v1")
    assert split_prompt(f"few-shot:{log}:q:7b") == (few_shot(log), "q:7b")
    for wrong in ("zero-shot:", "few-shot:x", "few-shot::q", f"few-shot:{log}:"):
        with pytest.raises(ConfigError, match="write zero-shot:MODEL, or few-shot:FILE:MODEL"):
            split_prompt(wrong)
    with pytest.raises(ConfigError, match="no language model, so it cannot be prompted"):
        open_lm(f"zero-shot:retrieval:{log}")


def test_the_prompt_stands_before_the_initial_context() -> None:
    prompt = zero_shot()
    told = prompted(episode("a", ("go", "x"), context="The box is empty."), prompt)
    assert told.initial_context == f"{prompt.text}\n\nThe box is empty."
    assert prompted(episode("a", ("go", "x")), prompt).initial_context == prompt.text
    assert prompted(told, None) is told


def test_a_prompted_model_behind_a_server_is_scored_like_any_other_and_recorded_as_such(
    log: Path, tmp_path: Path
) -> None:
    def answer(where: str, body: Any) -> Answer:
        return Answer(completion("You win. [SUCCESS]" if body["messages"][-1]["content"] == "go" else "A cave."))

    with recorded(answer) as server:
        metrics = evaluate(tmp_path / "run", f"few-shot:{log}:m@{server.base_url}", data=log)
    # One episode a task, of one step each: "go" twice, of which one is really a loss; the two others are no cave.
    assert (metrics["one_step"]["n_steps"], metrics["one_step"]["em"]["value"]) == (4, 1 / 4)
    assert metrics["prompt"] == {"text": few_shot(log).text, "shots": 3, "examples": log.as_posix()}
    assert metrics["model"].startswith("few-shot:")
    begins = {body["messages"][0]["content"] for body in server.chats}
    assert begins == {f"{few_shot(log).text}\n\nA room.", f"{few_shot(log).text}\n\nThe box is empty.\n\nA room."}
    assert {message["role"] for body in server.chats for message in body["messages"][1::2]} == {"user"}


def test_a_local_model_reads_the_prompt_too(tiny_lm_folder: Path) -> None:
    lm, plain = open_lm(f"zero-shot:{tiny_lm_folder}"), LocalLM(str(tiny_lm_folder))
    told, start = lm.session("A context.", "A room.").ids, plain.session("A context.", "A room.").ids
    assert len(told) > len(start)
    assert lm.chat.decode(told).count("You are the environment of a text-based task") == 1
    real = episode("a", ("go", "You win."), context="A context.")
    assert lm.encode(real).input_ids[: len(told)] == told
    assert plain.encode(real).input_ids[: len(start)] == start
