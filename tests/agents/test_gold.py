import contextlib

import pytest

from tests.envs.corridor import Corridor
from worldloom.agents import AgentSpec, make
from worldloom.agents.base import Decision, Finished, Start
from worldloom.agents.gold import GoldFollower, Idle, Replay
from worldloom.envs.base import Observation
from worldloom.errors import ConfigError
from worldloom.rollout import rollout

PLAN = ("go to shelf 1", "take book 2 from shelf 1", "wait")


def told(agent: GoldFollower, task: str = "t", seed: int = 0, steps: int = 40) -> list[str]:
    agent.begin(Start(task, "", None, seed, PLAN))
    return rest(agent, steps)


def rest(agent: GoldFollower, steps: int) -> list[str]:
    actions = []
    with contextlib.suppress(Finished):
        for _ in range(steps):
            actions.append(agent.act("").action)
    return actions


def test_without_noise_it_is_the_plan_and_nothing_more() -> None:
    assert told(GoldFollower(), steps=5) == [*PLAN]


def test_where_a_plan_does_not_win_the_episode_ends_with_it() -> None:
    plan = Corridor().reset("train-3").gold_actions or ()
    played = rollout(Short(), GoldFollower(), "train-3")
    assert (tuple(played.actions), played.outcome) == (plan[:-1], "truncated")


class Short(Corridor):
    """Gives all but the last action of the plan."""

    def reset(self, task_id: str, seed: int = 0) -> Observation:
        first = super().reset(task_id, seed)
        return first._replace(gold_actions=(first.gold_actions or ())[:-1])


@pytest.mark.parametrize("task", [f"train-{n}" for n in range(10)])
def test_the_plan_wins_in_as_many_steps_as_it_has(task: str) -> None:
    played = rollout(Corridor(), GoldFollower(), task)
    assert played.outcome == "success"
    assert tuple(played.actions) == Corridor().reset(task).gold_actions


@pytest.mark.parametrize("noise", [0.3, 0.7])
def test_detours_come_between_the_plans_steps_about_as_often_as_asked(noise: float) -> None:
    actions = [action for n in range(200) for action in told(GoldFollower(noise), f"t{n}")[: told_until(noise, n)]]
    detours = [action for action in actions if action not in PLAN]
    broken = {"go to shelf", "take book 2 from shelf"}  # the next step without its last word; "wait" has but one
    assert set(detours) == {"look", "inventory"} | broken
    # 600 planned steps: the number of detours is negative binomial with this mean and standard deviation.
    mean, deviation = 600 * noise / (1 - noise), (600 * noise) ** 0.5 / (1 - noise)
    waits = sum(action == "wait" for action in actions) - 200  # one-word detours look like the plan's own step
    assert abs(len(detours) + waits - mean) < 4 * deviation


def told_until(noise: float, number: int) -> int:
    """How many of an episode's actions belong to the plan and its detours."""
    agent = GoldFollower(noise)
    agent.begin(Start(f"t{number}", "", None, 0, PLAN))
    count = 0
    while agent.at < len(PLAN):
        agent.act("")
        count += 1
    return min(count, 40)


def test_noise_does_not_keep_the_plan_from_winning() -> None:
    played = [rollout(Corridor(), GoldFollower(0.3), f"train-{n}") for n in range(10)]
    assert {t.outcome for t in played} == {"success"}
    assert sum(len(t.steps) for t in played) > sum(len(Corridor().reset(t.task.id).gold_actions) for t in played)


def test_randomness_depends_on_task_agent_and_seed_alone() -> None:
    assert told(GoldFollower(0.5)) == told(GoldFollower(0.5))
    assert told(GoldFollower(0.5)) != told(GoldFollower(0.5), task="u")
    assert told(GoldFollower(0.5)) != told(GoldFollower(0.5), seed=1)


@pytest.mark.parametrize("plan", [None, ()])
def test_without_a_plan_it_says_what_to_do(plan: tuple[str, ...] | None) -> None:
    with pytest.raises(ConfigError, match="'t9' has no gold plan; build the environment with gold=True"):
        GoldFollower().begin(Start("t9", "", None, 0, plan))


def test_replay_says_what_it_was_given_in_every_episode() -> None:
    agent = make("replay", actions=["a", "b"])
    for _ in range(2):
        agent.begin(Start("t", "", None, 0))
        assert [agent.act("x"), agent.act("y")] == [Decision("a"), Decision("b")]
    assert agent.ref.params == {"actions": ["a", "b"]}
    assert Replay(("a", "b")).ref == agent.ref


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("glod", {}, "unknown agent 'glod'; did you mean 'gold'"),
        ("gold", {"nosie": 1}, "unexpected keyword argument 'nosie'; known options: noise"),
        ("worldloom.agents.gold:Folower", {}, "has no 'Folower'"),
        ("worldloom.nowhere:X", {}, "there is no module 'worldloom.nowhere'"),
    ],
)
def test_an_unknown_agent_or_parameter_is_named(name: str, params: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AgentSpec(name, params).build()


def test_idling_gets_nowhere() -> None:
    played = rollout(Corridor(), Idle(), "train-0", max_steps=5)
    assert played.actions == ["look", "wait", "do nothing", "look", "wait"]
    assert {step.reward for step in played.steps} == {0.0}


def test_a_fork_goes_on_alike_or_by_chances_of_its_own() -> None:
    agent = GoldFollower(0.5)
    agent.begin(Start("t", "", None, 0, PLAN * 5))
    agent.act("")
    same, first, again, other = agent.fork(), agent.fork(1), agent.fork(1), agent.fork(2)
    on = [rest(each, 30) for each in (agent, same, first, again, other)]
    assert on[0] == on[1] and on[2] == on[3]
    assert len({*map(tuple, on)}) == 3
