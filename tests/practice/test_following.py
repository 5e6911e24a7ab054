"""The chance of success, from a real (tiny, random) language model's own probabilities."""

import math
from pathlib import Path

import pytest
import torch

from tests.practice.kiosk import ExactLM, Kiosk, Seller
from worldloom.agents.base import Start
from worldloom.errors import ContextOverflow
from worldloom.lm.replies import Action, Replies
from worldloom.lm.retrieval import RetrievalLM
from worldloom.lm.session import LocalLM
from worldloom.practice.following import Follower
from worldloom.protocol import heard
from worldloom.rollout import rollout
from worldloom.trajectory import EnvRef, Step, TaskRef, Trajectory
from worldloom.world import Start as WorldStart

STARTS = {"2": WorldStart("test", Kiosk().reset("2"))}
BEGIN = Start("2", "A customer comes.", None, 0)


@pytest.fixture(scope="module")
def tiny(tiny_lm_folder: Path) -> LocalLM:
    return LocalLM(str(tiny_lm_folder), torch.float32)


def plainly(lm: LocalLM, ids: list[int], answer: str) -> float:
    """The log-probability of an answer by an ordinary pass over everything."""
    said = lm.chat.answer(answer)
    with torch.inference_mode():
        logits = lm.model(torch.tensor([ids + said])).logits[0].log_softmax(-1)
    return sum(logits[len(ids) + n - 1, token].item() for n, token in enumerate(said))


def test_whole_answers_are_scored_in_one_pass_and_no_step_is_taken(tiny: LocalLM) -> None:
    session = tiny.session("The customer wants blue.", "A customer comes.")
    session.hear("take red", "You take red.")
    answers = ["Sold. [SUCCESS]", "Sold. [FAILURE]", "Sold.", ""]
    expected = [plainly(tiny, session._asking("sell"), answer) for answer in answers]
    for _ in range(2):  # with nothing read before, and after a step that was taken back
        assert session.chances("sell", answers) == pytest.approx(expected, abs=1e-3)
        assert session.taken == 1
        session.step("sell", max_new_tokens=4)
        session.rewind()
    with pytest.raises(ContextOverflow):
        session.chances("sell", ["word " * 600])


def test_the_chance_is_that_of_the_answers_that_say_success(tiny: LocalLM) -> None:
    follower = Follower(tiny, STARTS)
    follower.begin(BEGIN)
    follower.hear("take blue", "You take blue.")
    session = follower.session
    assert session is not None
    found = follower.foresee("sell", Seller())
    observation, _ = heard(session.step("sell"))
    session.rewind()
    (right,) = session.chances("sell", [observation + " [SUCCESS]"])
    assert found.chance == pytest.approx(math.exp(right))
    assert (found.observation, found.steps, session.taken) == (observation, 1, 1)


def test_logged_ends_are_among_the_answers(tiny: LocalLM, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = Follower(tiny, STARTS)
    follower.begin(BEGIN)
    before = follower.foresee("sell", Seller()).chance
    logged = Trajectory(env=EnvRef(name="kiosk"), task=TaskRef(id="1"), initial_observation="",
                        steps=[Step(action="sell", observation="Sold.", terminal="success")])  # fmt: skip
    monkeypatch.setattr(tiny.guesser, "replies", Replies().learn([logged]))
    (sold,) = follower.session.chances("sell", ["Sold. [SUCCESS]"])
    assert follower.foresee("sell", Seller()).chance == pytest.approx(before + math.exp(sold), rel=1e-3)


def test_the_commonest_ends_of_a_form_of_action() -> None:
    def end(action: str, text: str, terminal: str | None) -> Trajectory:
        step = Step(action=action, observation=text, terminal=terminal)
        return Trajectory(env=EnvRef(name="e"), task=TaskRef(id="1"), initial_observation="", steps=[step])

    replies = Replies().learn([
        end("sell red", "Sold red.", "failure"), end("sell blue", "Sold blue.", "success"),
        end("sell blue", "Sold blue.", "success"), end("sell blue", "No.", None), end("go away", "Bye.", "failure"),
    ])  # fmt: skip
    assert replies.endings(Action("sell green")) == ["Sold green. [SUCCESS]", "Sold green. [FAILURE]"]
    assert replies.endings(Action("sell green"), most=1) == ["Sold green. [SUCCESS]"]
    assert replies.endings(Action("unheard of, this")) == []


def test_a_model_that_tells_no_probabilities_is_taken_at_its_word_or_asked_often() -> None:
    won = [rollout(Kiosk(), Seller(["blue"]), "2", max_steps=4)]
    for samples, steps in ((0, 1), (5, 6)):
        follower = Follower(RetrievalLM(Replies().learn(won)), STARTS, samples=samples)
        follower.begin(BEGIN)
        follower.hear("take blue", "You take blue.")
        found = follower.foresee("sell", Seller())
        assert (found.chance, found.steps, found.terminal) == (1.0, steps, "success")


def test_beyond_the_window_the_model_cannot_say(tiny: LocalLM) -> None:
    follower = Follower(tiny, STARTS)
    follower.begin(BEGIN)
    follower.hear("look", "word " * 600)
    assert follower.foresee("sell", Seller()).chance is None


def test_what_cannot_be_said_makes_it_blind() -> None:
    follower = Follower(ExactLM(), STARTS)
    follower.begin(BEGIN)
    follower.hear("look", "It says [SUCCESS]")  # a text that ends as if it were the end of an episode
    assert follower.session is None
    assert follower.foresee("sell", Seller()).chance is None
