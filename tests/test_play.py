"""A person at the keyboard, told by what is said."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.envs.corridor import Corridor
from worldloom.envs import EnvSpec
from worldloom.play import NOT_YET, play

CORRIDOR = EnvSpec("tests.envs.corridor:Corridor", {"longest": 3})


def played(*said: str, model: str | None = None) -> list[str]:
    told: list[str] = []
    answers: Iterator[str] = iter(said)
    play(CORRIDOR, lambda: next(answers, None), told.append, model=model)
    return told


def test_a_real_episode_to_its_end() -> None:
    plan = Corridor(3).reset("train-0").gold_actions
    told = played(":actions", ":undo", *plan, "never asked")
    assert told[0].startswith("corridor train-0\n")
    assert told[1:3] == [NOT_YET, "a real environment cannot take a step back"]
    assert len(told) == 3 + len(plan) + 1
    assert told[-1] == "the end: success, reward 1.0"


def test_input_may_end_or_be_quit() -> None:
    assert len(played()) == 1
    assert len(played(":quit", "go east")) == 1


@pytest.mark.parametrize("undo", [True, False])
def test_an_imagined_episode_can_be_taken_back(tiny_lm_folder: Path, undo: bool) -> None:
    told = played("look", *([":undo", ":undo"] if undo else []), model=str(tiny_lm_folder))
    assert told[0].startswith("world-model:corridor train-0\n")
    assert told[2:3] == (["the last step is undone"] if undo else [])
    assert not undo or told[3].startswith("cannot take back 1 steps")


def test_commands_are_not_sent_to_the_world() -> None:
    told = played(":bogus", "look", ":actions")
    assert told[1].startswith("there is no ':bogus'; An action, or :actions")
    assert told[3].splitlines()[:3] == ["go east", "go west", "look"]
    assert len(told) == 4
