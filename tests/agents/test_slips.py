"""The gold follower that slips: what each chance does, and that the rest stays as it is."""

import random
from typing import Any

import pytest

from tests.envs.corridor import Corridor
from worldloom.agents import make
from worldloom.agents.base import Start
from worldloom.agents.slips import NoisyGold, misspelt
from worldloom.errors import ConfigError
from worldloom.rollout import rollout

PLAN = ("find order 17", "open 'box'", "pay 250", "done")
NEVER = {"wrong": 0.0, "skip": 0.0, "swap": 0.0, "repeat": 0.0}


def told(task: str = "t", seed: int = 0, **chances: float) -> list[str]:
    agent = NoisyGold(**{**NEVER, **chances})
    agent.begin(Start(task, "", None, seed, PLAN))
    said = [agent.act("").action for _ in range(20)]
    return said[: said.index("done") + 1]


def test_without_slips_it_is_the_plan() -> None:
    assert tuple(told()) == PLAN
    assert rollout(Corridor(), NoisyGold(**NEVER), "train-1").outcome == "success"


@pytest.mark.parametrize(
    ("chance", "said"),
    [
        ("skip", ["done"]),
        ("repeat", ["find order 17", "find order 17", "open 'box'", "open 'box'", "pay 250", "pay 250", "done"]),
        ("swap", ["open 'box'", "pay 250", "find order 17", "done"]),  # the first is put off twice
    ],
)
def test_each_slip_when_it_always_happens(chance: str, said: list[str]) -> None:
    assert told(**{chance: 1.0}) == said


def test_a_wrong_step_comes_before_the_right_one() -> None:
    *said, last = told(wrong=1.0)
    assert (tuple(said[1::2]), last) == (PLAN[:3], "done")
    for wrong, right in zip(said[::2], PLAN[:3], strict=True):
        assert wrong != right
        assert abs(len(wrong) - len(right)) <= 1


@pytest.mark.parametrize(
    ("action", "changed"),
    [
        ("pay 2", {f"pay {digit}" for digit in "013456789"}),
        ("open('ab')", {"open('a')", "open('b')"}),
        ("look", {"look"}),
        ("", {""}),
    ],
)
def test_misspelt(action: str, changed: set[str]) -> None:
    assert {misspelt(action, random.Random(seed)) for seed in range(200)} == changed


def test_slips_are_as_frequent_as_asked() -> None:
    episodes = [told(task=f"t{n}", skip=0.2) for n in range(1_000)]
    left_out = 3_000 - sum(len(said) - 1 for said in episodes)
    assert abs(left_out - 600) < 4 * (3_000 * 0.2 * 0.8) ** 0.5


def test_randomness_depends_on_task_agent_and_seed_alone() -> None:
    chances = {"wrong": 0.5, "skip": 0.2, "swap": 0.3, "repeat": 0.3}
    assert told(**chances) == told(**chances)
    assert len({tuple(told(task=task, seed=seed, **chances)) for task in "ab" for seed in range(3)}) > 3


@pytest.mark.parametrize("params", [{"wrong": 1.5}, {"skip": -0.1}])
def test_a_chance_is_a_chance(params: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="between 0 and 1"):
        make("noisy-gold", **params)


def test_without_a_plan_it_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="'t9' has no gold plan"):
        NoisyGold().begin(Start("t9", "", None, 0, None))
