"""A world that is a recording of another corridor, kept to the true one by its answers. No language model here."""

import pytest

from tests.envs.corridor import Corridor, Walker
from worldloom.anchoring import Anchor, AnchoredEnv
from worldloom.envs.base import StepResult
from worldloom.envs.check import check_env
from worldloom.errors import ConfigError, EnvError
from worldloom.lm.base import Confidence
from worldloom.lm.replies import Replies
from worldloom.lm.retrieval import RetrievalLM, RetrievalSession
from worldloom.rollout import rollout
from worldloom.world import WorldModelEnv, starts_of

REAL = [rollout(Corridor(), Walker(), f"test-{n}", split="test") for n in range(5)]
LOGGED = Replies().learn(rollout(Corridor(), Walker(), f"train-{n}") for n in range(8))


class Doubtful(RetrievalLM):
    """Logged replies, with a confidence that is low where the reply is about a room or a door."""

    def session(
        self, initial_context: str | None, initial_observation: str, env: str | None = None
    ) -> RetrievalSession:
        session = super().session(initial_context, initial_observation, env)
        plain = session.step

        def step(action: str, *rest: object) -> str:
            text = plain(action)
            session.confidence = Confidence(-3.0 if "room" in text or "door" in text else -0.01, -0.01, 4)
            return text

        session.step = step
        return session


def anchored(text: str, lm: RetrievalLM | None = None) -> AnchoredEnv:
    world = WorldModelEnv(lm or RetrievalLM(LOGGED), starts_of(REAL), "corridor")
    return AnchoredEnv(world, Corridor(), Anchor.parse(text))


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("first=2", [1, 2]),
        ("every=3", [3, 6]),
        ("action=go *", [1, 3, 4]),
        ("action=search[*]", [5]),
        ("action=look", [2]),
        ("unsure=0.9", []),
    ],
)
def test_which_steps_are_the_real_environments(text: str, asked: list[int]) -> None:
    actions = ["go east", "look", "go west", "go away\nnow", "search[red shoes]", "look around"]
    anchor = Anchor.parse(text)
    assert str(anchor) == text
    assert [n for n, action in enumerate(actions, 1) if anchor.asks(n, action)] == asked


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("frist=3", "unknown anchor 'frist=3'; did you mean 'first'?"),
        ("first", "anchor 'first' has no value; write for example first=3"),
        ("first=", "has no value"),
        ("every=0", "anchor every=0: the value must be a whole number, 1 or more"),
        ("first=1.5", "a whole number"),
        ("unsure=1.5", "a probability between 0 and 1"),
    ],
)
def test_what_is_no_anchor(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        Anchor.parse(text)
    assert message in str(error.value)


def test_where_reality_answers_everything_the_episode_is_real() -> None:
    env = anchored("every=1")
    for real in REAL:
        played = rollout(env, Walker(), real.task.id)
        assert [(s.action, s.observation, s.terminal, s.reward) for s in played.steps] == [
            (s.action, s.observation, s.terminal, s.reward) for s in real.steps
        ]
        assert all(step.anchored for step in played.steps)


def test_what_reality_answers_is_true_to_all_actions_so_far_and_told_to_the_world() -> None:
    env = anchored("action=look")
    env.reset("test-0")
    truth = Corridor()
    truth.reset("test-0")
    imagined = env.step("go east")
    assert "anchored" not in imagined.info
    really = truth.step("go east"), truth.step("look")
    told = env.step("look")
    assert told.observation == really[1].observation  # the real corridor went east, too
    assert told.info["anchored"] is True
    parts = "".join(env.world._session.memory.parts)
    assert really[1].observation in parts
    assert env.options["anchor"] == "action=look"


def test_unsure_steps_are_handed_over() -> None:
    env = anchored("unsure=0.5", Doubtful(LOGGED))
    played = rollout(env, Walker(), "test-1")
    by_doubt = {step.confidence["logprob"] < -1: step.anchored for step in played.steps}
    assert by_doubt == {True: True, False: None}
    assert all(step.reason is None for step in played.steps)


def test_after_the_real_end_the_world_is_alone() -> None:
    env = anchored("action=look")
    env.reset("test-0")
    env._real_over = True
    assert "anchored" not in env.step("look").info
    doubtful = anchored("unsure=0.5", Doubtful(LOGGED))
    doubtful.reset("test-0")
    doubtful.step("take key")
    doubtful._real_over = True
    told = doubtful.step("unlock door")
    assert (told.truncated, told.info["reason"]) == (True, "unsure")


def test_another_beginning_than_the_real_one_is_refused() -> None:
    env = anchored("first=1")
    with pytest.raises(EnvError, match=r"begins otherwise in the real environment \(seed 7\)"):
        env.reset("test-0", seed=7)


def test_the_contract_holds() -> None:
    assert check_env(anchored("every=2"), ["test-0", "test-1"], max_steps=6).ok


def test_the_step_result_of_reality_comes_through() -> None:
    env = anchored("first=1")
    env.reset("test-0")
    told = env.step("look")
    assert isinstance(told, StepResult)
    assert told.info["admissible_actions"] == env.real.admissible()
