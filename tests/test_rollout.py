import pytest

from tests.envs.corridor import PATIENCE, Corridor, Unsafe, Walker
from worldloom.agents.base import Agent, Decision, Start
from worldloom.agents.gold import GoldFollower, Replay
from worldloom.envs.base import StepResult
from worldloom.rollout import replay, rollout, terminal_of
from worldloom.trajectory import AgentRef, EnvRef, TaskRef


class Lost(Agent):
    """Walks into the wall for ever."""

    name = "lost"

    def begin(self, start: Start) -> None:
        self.heard: list[str] = [start.text]

    def act(self, observation: str) -> Decision:
        self.heard.append(observation)
        return Decision("go west")


class Faint(Lost):
    """Gives up, with an error, at its third action."""

    name = "faint"

    def act(self, observation: str) -> Decision:
        if len(self.heard) == 3:
            raise RuntimeError("no more strength")
        return super().act(observation)


def test_an_episode_word_for_word() -> None:
    played = rollout(Corridor(), Replay(["take key", "look", "go west"]), "test-0", seed=2, split="test", max_steps=3)
    assert played.env == EnvRef(name="corridor", version="1", options={"longest": 6})
    world = Corridor()
    first = world.reset("test-0", 2)
    assert played.task == TaskRef(
        id="test-0", split="test", seed=2, instruction=first.instruction, gold_actions=list(first.gold_actions)
    )  # fmt: skip
    assert (played.initial_observation, played.initial_context) == (first.text, first.initial_context)
    assert played.agent == AgentRef(name="replay", params={"actions": ["take key", "look", "go west"]})
    assert [step.observation for step in played.steps] == [
        "You take the key." if world.key == 1 else "Nothing happens.",
        "There is nothing here." + (" East is a door." if world.rooms == 2 else ""),
        "You walk into the wall.",
    ]
    assert [step.terminal for step in played.steps] == [None, None, "truncated"]
    assert [step.reward for step in played.steps] == [0.0, 0.0, 0.0]
    assert all(step.admissible_actions for step in played.steps)
    assert (played.outcome, played.error) == ("truncated", None)


def test_success_ends_the_episode_and_thoughts_are_kept() -> None:
    played = rollout(Corridor(), Walker(), "train-3")
    assert played.outcome == "success"
    assert [step.terminal for step in played.steps[:-1]] == [None] * (len(played.steps) - 1)
    assert (played.steps[-1].reward, played.steps[-1].action) == (1.0, "go east")
    (found,) = [step for step in played.steps if step.action == "take key"]
    assert found.thought == "a key will be of use"


def test_the_agent_hears_every_observation_and_the_worlds_own_limit_is_a_truncation() -> None:
    agent = Lost()
    played = rollout(Corridor(), agent, "train-0", max_steps=100)
    assert len(played.steps) == PATIENCE
    assert (played.outcome, played.steps[-2].terminal) == ("truncated", None)
    assert agent.heard[:2] == [played.initial_observation] * 2
    assert agent.heard[2:] == ["You walk into the wall."] * (PATIENCE - 1)


def test_an_agent_that_breaks_is_a_record_with_what_was_played() -> None:
    played = rollout(Corridor(), Faint(), "train-0")
    assert played.outcome == "error"
    assert (played.error.kind, played.error.message) == ("RuntimeError", "no more strength")
    assert [step.action for step in played.steps] == ["go west"] * 2


def test_an_engine_that_breaks_is_a_record_with_what_was_played() -> None:
    played = rollout(Unsafe(), Walker(), "train-19")
    assert (played.error.kind, played.error.message, len(played.steps)) == ("ValueError", "the engine tripped", 1)


def test_a_task_that_cannot_start_is_a_record() -> None:
    played = rollout(Corridor(), Walker(), "train-99", seed=4, split="train")
    assert (played.error.kind, played.error.message) == ("EnvError", "no task 'train-99'")
    assert (played.task.id, played.task.seed, played.steps) == ("train-99", 4, [])


def test_an_agent_that_cannot_begin_is_a_record_with_the_first_observation() -> None:
    class Planless(Corridor):
        def reset(self, task_id, seed=0):
            return super().reset(task_id, seed)._replace(gold_actions=None)

    played = rollout(Planless(), GoldFollower(), "train-0")
    assert played.error.kind == "ConfigError"
    assert "has no gold plan" in played.error.message
    assert played.initial_observation.startswith("You stand in room 1")


def test_a_sign_of_life_comes_before_the_reset_and_before_each_step() -> None:
    signs: list[int] = []
    played = rollout(Corridor(), Replay(["look"] * 5), "train-0", max_steps=5, on_step=lambda: signs.append(1))
    assert len(signs) == 1 + len(played.steps) == 6


class Unjudged(Corridor):
    """Ends at once, in a way that nobody can judge, and tells what the action did."""

    def step(self, action):
        return super().step(action)._replace(terminated=True, info={"changed": False, "refused": True})


def test_an_end_that_nobody_can_judge_is_unknown_even_at_the_last_step() -> None:
    played = rollout(Unjudged(), Replay(["look"]), "train-0", max_steps=5)
    again = replay(Unjudged(), played)  # which may take as many steps as there were
    assert [trajectory.outcome for trajectory in (played, again)] == [None, None]
    assert rollout(Corridor(), Replay(["look"]), "train-0", max_steps=1).outcome == "truncated"
    assert (again.steps[0].changed, again.steps[0].refused) == (False, True)


@pytest.mark.parametrize(
    ("terminated", "truncated", "info", "expected"),
    [
        (False, False, {}, None),
        (True, False, {"terminal": "success"}, "success"),
        (True, False, {"terminal": "failure"}, "failure"),
        (True, False, {}, None),  # it ended, nobody says how
        (False, True, {}, "truncated"),
        (True, True, {"terminal": "success"}, "success"),
        (False, False, {"terminal": "success"}, None),
    ],
)
def test_how_a_step_ends_an_episode(terminated: bool, truncated: bool, info: dict, expected: str | None) -> None:
    assert terminal_of(StepResult("", None, terminated, truncated, info)) == expected
