"""Ends by their chance: which token is said, what is kept beside a model, and how the threshold is chosen."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from worldloom.ends import Seen, calibrate, least_of, told
from worldloom.errors import ConfigError, DataError, ModelError
from worldloom.lm.ending import FILE, Ending
from worldloom.lm.engine import greedy_choice
from worldloom.lm.score import exact, score
from worldloom.lm.session import LocalLM
from worldloom.trajectory import EnvRef, Step, TaskRef, Trajectory, write

NONE, SUFFIX, OTHER = 0, 1, 2


def rows(*chances: tuple[float, float, float]) -> torch.Tensor:
    return torch.tensor(chances).log()


def test_an_end_is_said_from_its_chance_on_where_all_is_said() -> None:
    """Chances of an end, of it or none: 0.1 / 0.8, 0.2 / 0.8 and 0.6 / 0.9; in the last row neither is likeliest."""
    told = rows((0.7, 0.1, 0.2), (0.6, 0.2, 0.2), (0.3, 0.6, 0.1), (0.1, 0.3, 0.6))
    assert Ending(NONE, SUFFIX).greedy(told).tolist() == told.argmax(-1).tolist() == [NONE, NONE, SUFFIX, OTHER]
    assert Ending(NONE, SUFFIX, 0.2).greedy(told).tolist() == [NONE, SUFFIX, SUFFIX, OTHER]
    assert Ending(NONE, SUFFIX, 0.7).greedy(told).tolist() == [
        NONE,
        NONE,
        NONE,
        OTHER,
    ]  # also where ends are held too likely
    assert Ending(NONE, SUFFIX).chances(told).tolist() == pytest.approx([1 / 8, 2 / 8, 6 / 9, 3 / 4])


def test_a_draft_is_accepted_as_far_as_the_end_allows() -> None:
    told = rows((0.1, 0.1, 0.8), (0.7, 0.2, 0.1))
    assert greedy_choice(told, [OTHER]) == [OTHER, NONE]
    assert greedy_choice(told, [OTHER], Ending(NONE, SUFFIX, 0.2)) == [OTHER, SUFFIX]


def test_as_many_ends_are_told_as_there_were() -> None:
    """Two ends, so two steps are told: those of 0.4 and of 0.2, of which one is right."""
    seen = [Seen(0.4, True), Seen(0.2, False), Seen(0.1, True), Seen(0.05, False), Seen(0.01, False)]
    least = least_of(seen)
    assert 0.1 < least < 0.2
    assert least / (1 - least) == pytest.approx(((0.2 / 0.8) * (0.1 / 0.9)) ** 0.5)
    assert told(seen, least) == {"precision": 0.5, "recall": 0.5, "f1": 0.5}
    assert told(seen, 0.5) == {"recall": 0.0, "f1": 0.0}
    assert told(seen, 0.02) == {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3)}


def episode(task: str, terminal: str | None) -> Trajectory:
    steps = [Step(action="look", observation="A door."), Step(action="open door", observation="It is open.")]
    last = Step(action="go", observation="You are out.", terminal=terminal)  # type: ignore[arg-type]
    return Trajectory(
        env=EnvRef(name="house"), task=TaskRef(id=task), initial_observation="A house.", steps=[*steps, last]
    )


@pytest.fixture
def model(tiny_lm_folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_lm_folder, tmp_path / "model")


def test_a_model_keeps_to_what_was_chosen(model: Path, tmp_path: Path) -> None:
    assert LocalLM(str(model)).engine.ending is None
    write(tmp_path / "real.jsonl", [episode("a", "success"), episode("b", "failure"), episode("c", "truncated")])
    found = calibrate(str(model), tmp_path / "real.jsonl")
    assert (found["n_episodes"], found["n_steps"], found["n_ends"]) == (3, 9, 2)
    assert json.loads((model / FILE).read_text()) == found
    lm = LocalLM(str(model))
    assert lm.engine.ending == replace(Ending.of(lm.chat), least=found["least"])
    assert LocalLM(str(model), learns="world").chat.decode([lm.engine.ending.suffix]) == " ["


def test_steps_whose_end_nobody_knows_do_not_count(model: Path, tmp_path: Path) -> None:
    write(tmp_path / "real.jsonl", [episode("a", "success"), episode("b", None)])
    assert calibrate(str(model), tmp_path / "real.jsonl")["n_steps"] == 5
    write(tmp_path / "open.jsonl", [episode("b", None)])
    with pytest.raises(DataError, match="0 of its 2 steps are ends; both kinds are needed"):
        calibrate(str(model), tmp_path / "open.jsonl")


def test_only_a_model_of_one_s_own_is_noted_of(tmp_path: Path) -> None:
    write(tmp_path / "real.jsonl", [episode("a", "success")])
    with pytest.raises(ConfigError, match="'smollm2-135m' is no folder of a trained model"):
        calibrate("smollm2-135m", tmp_path / "real.jsonl")


def test_texts_that_look_like_ends_are_refused(model: Path, tmp_path: Path) -> None:
    shop = episode("a", "success")
    shop.steps[1] = Step(action="search", observation="Back to Search [SEP] Page 1")
    write(tmp_path / "real.jsonl", [shop])
    with pytest.raises(DataError, match=r"' \[', with which ends begin, stands in what task 'a' answers in step 2"):
        calibrate(str(model), tmp_path / "real.jsonl")


def test_scoring_and_saying_end_alike(model: Path) -> None:
    """What the tiny model says first stands for "no end" here, and another word for an end."""
    trajectory, lm = episode("a", None), LocalLM(str(model), torch.float32)
    encoded = lm.encode(trajectory)
    first = lm.session(None, trajectory.initial_observation).step("look", 1)
    (none,), (suffix,) = lm.chat.answer(first)[:-1], lm.chat.answer(" door")[:-1]
    for least, word in ((0.999, first), (1e-9, " door")):
        lm.engine.ending = Ending(none, suffix, least)
        said = lm.session(None, trajectory.initial_observation).step("look", 20)
        scored = score(lm, [(trajectory, encoded)])[0][0].said
        assert said.startswith(word) and scored is not None and scored.startswith(said)
        spoken = trajectory.model_copy(update={"steps": [Step(action="look", observation=word)]})
        assert exact(lm, [(spoken, lm.encode(spoken))])[0][0].right is False  # it goes on after the first word


@pytest.mark.parametrize("text", ["{", "{}", '{"least": "x"}', '{"least": 1.5}'])
def test_a_broken_file_is_told(model: Path, text: str) -> None:
    (model / FILE).write_text(text)
    with pytest.raises(ModelError, match=FILE):
        LocalLM(str(model))
