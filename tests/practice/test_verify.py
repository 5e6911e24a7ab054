"""Verification word for word, in a kiosk where selling the wrong thing cannot be taken back."""

import pytest

from tests.practice.kiosk import ExactLM, Kiosk, Seller, SellingLM
from worldloom.agents.base import HELD_BACK
from worldloom.errors import ConfigError
from worldloom.practice.calibrate import judge
from worldloom.practice.truth import _left, truth_of
from worldloom.practice.verify import Check, VerifiedAgent, followed
from worldloom.rollout import rollout
from worldloom.trajectory import Trajectory
from worldloom.world import Start

STARTS = {str(n): Start("test", Kiosk().reset(str(n))) for n in range(6)}


def played(task: str, lm: ExactLM, **check: object) -> tuple[Trajectory, VerifiedAgent]:
    settings = {"actions": ["sell"], "threshold": 0.5, "budget": 4, **check}
    agent = VerifiedAgent(Seller(), lm, Check(**settings), STARTS)
    return rollout(Kiosk(), agent, task, max_steps=8), agent


def test_a_wrong_sale_is_held_back_and_the_agent_goes_on() -> None:
    episode, agent = played("2", ExactLM())  # blue is wanted, red and green are offered first
    assert episode.actions == ["take red", "take green", "take blue", "sell"]
    assert episode.outcome == "success"
    verdicts = [(v["step"], v["action"], v["held"], v["chance"], v["terminal"]) for v in episode.agent.verdicts]
    assert verdicts == [(1, "sell", True, 0.0, "failure"), (2, "sell", True, 0.0, "failure"),
                        (3, "sell", False, 1.0, "success")]  # fmt: skip
    # What was held back is told in words, and then the kiosk's own texts go on.
    told = HELD_BACK.format("sell")
    assert agent.agent.heard[1:] == [
        "A customer comes.",
        "You take red.",
        told,
        "You take green.",
        told,
        "You take blue.",
    ]
    assert (episode.agent.name, episode.agent.params["order"]) == ("verified seller", ["red", "green", "blue"])
    assert episode.agent.params["check"]["budget"] == 4


BUDGETS = [(0, "failure", "red"), (1, "failure", "green"), (2, "success", "blue")]


@pytest.mark.parametrize(("budget", "outcome", "sold"), BUDGETS)
def test_a_budget_bounds_the_refusals(budget: int, outcome: str, sold: str) -> None:
    lm = ExactLM()
    episode, agent = played("2", lm, budget=budget)
    assert (episode.outcome, episode.actions[-2]) == (outcome, f"take {sold}")
    assert agent.refusals == budget
    assert len(lm.asked) == budget  # once it is spent nothing is imagined any more


def test_a_dry_run_only_says_what_it_would_do() -> None:
    episode, agent = played("2", ExactLM(), dry_run=True)
    assert (episode.actions, episode.outcome) == (["take red", "sell"], "failure")
    assert [(v["held"], v["low"]) for v in agent.verdicts] == [(False, True)]


def test_verdicts_are_given_as_they_come_and_the_world_hears_what_really_happened() -> None:
    seen, lm = [], ExactLM()
    agent = VerifiedAgent(Seller(), lm, Check(["sell"]), STARTS, on_verdict=seen.append)
    rollout(Kiosk(), agent, "1", max_steps=8)
    assert [verdict["held"] for verdict in seen] == [True, False]
    assert lm.asked == [("take red", "sell"), ("take red", "take green", "sell")]


class Stubborn(Seller):
    """Sells whatever it is told."""

    def act(self, observation: str):
        return super().act("You take" if self.at else observation)


def test_the_same_action_in_the_same_place_is_imagined_once() -> None:
    lm = ExactLM()
    agent = VerifiedAgent(Stubborn(), lm, Check(["sell"], budget=3), STARTS)
    episode = rollout(Kiosk(), agent, "2", max_steps=8)
    assert (episode.outcome, agent.refusals, len(lm.asked)) == ("failure", 3, 1)
    assert [verdict["steps"] for verdict in agent.verdicts] == [1, 0, 0]


def test_with_a_horizon_an_action_is_judged_by_what_the_agent_would_do_next() -> None:
    for task, held in (("0", False), ("1", True)):
        lm = ExactLM()
        agent = VerifiedAgent(Seller(), lm, Check(["take *"], budget=1, horizon=3), STARTS)
        rollout(Kiosk(), agent, task, max_steps=8)
        assert lm.asked[:2] == [("take red",), ("take red", "sell")]  # a copy of the agent sells
        first = agent.verdicts[0]
        assert (first["held"], first["chance"], first["steps"]) == (held, float(not held), 2)


def test_a_closing_action_asks_whether_all_would_be_well() -> None:
    lm = ExactLM()
    agent = VerifiedAgent(Seller(), lm, Check(["take *"], budget=9, closing="sell"), STARTS)
    episode = rollout(Kiosk(), agent, "2", max_steps=8)
    assert (episode.actions, episode.outcome) == (["take blue", "sell"], "success")
    assert [(v["action"], v["held"], v["steps"]) for v in agent.verdicts] == [
        ("take red", True, 2), ("take green", True, 2), ("take blue", False, 2),
    ]  # fmt: skip
    assert lm.asked[-2:] == [("take blue",), ("take blue", "sell")]


def test_what_was_foreseen_before_is_not_imagined_again() -> None:
    lm, memo = ExactLM(), {}
    for budget, held in ((2, 2), (1, 1)):
        agent = VerifiedAgent(Seller(), lm, Check(["sell"], budget=budget), STARTS, memo=memo)
        rollout(Kiosk(), agent, "2", max_steps=8)
        assert (agent.refusals, len(lm.asked), agent.verdicts[0]["steps"]) == (held, 2, 1)


def test_with_a_closing_action_it_is_not_imagined_again_and_with_a_horizon_it_is() -> None:
    for how, asked in (({"closing": "sell"}, 6), ({"horizon": 1}, 12)):
        lm, memo = ExactLM(), {}
        for _ in range(2):  # three colours are taken, each followed by a sale
            agent = VerifiedAgent(Seller(), lm, Check(["take *"], **how), STARTS, memo=memo)
            rollout(Kiosk(), agent, "2", max_steps=8)
            assert [verdict["steps"] for verdict in agent.verdicts] == [2, 2, 2]
        assert len(lm.asked) == asked


def test_what_really_followed_is_noted_where_an_action_was_let_through() -> None:
    seen = []
    agent = VerifiedAgent(Seller(), SellingLM(), Check(["take *", "sell"], closing="sell", budget=0, dry_run=True),
                          STARTS, on_verdict=seen.append)  # fmt: skip
    episode = rollout(Kiosk(), agent, "2", max_steps=8)
    # The world foresaw success of both; red was not wanted, and only the sale says so.
    assert [(v["action"], v["chance"], v.get("followed")) for v in seen] == [
        ("take red", 1.0, {"observation": "You take red."}),
        ("sell", 1.0, None),  # the agent never sees how its episode ends
    ]
    assert [v["followed"] for v in followed(episode)] == [
        {"observation": "You take red."}, {"observation": "Sold.", "terminal": "failure"},
    ]  # fmt: skip


def test_what_was_held_back_was_followed_by_nothing() -> None:
    episode, _ = played("1", ExactLM())
    assert [(v["held"], v.get("followed")) for v in followed(episode)] == [
        (True, None), (False, {"observation": "Sold.", "terminal": "success"}),
    ]  # fmt: skip
    assert followed(rollout(Kiosk(), Seller(), "1", max_steps=8)) == []  # an agent that is not verified


def test_of_long_texts_the_beginning_is_noted() -> None:
    class Wordy(Kiosk):
        def _text(self, verb: str, colour: str) -> str:
            return super()._text(verb, colour) + "." * 300

    agent = VerifiedAgent(Seller(), ExactLM(), Check(["take *"], dry_run=True), STARTS)
    rollout(Wordy(), agent, "1", max_steps=2)
    assert agent.verdicts[0]["followed"]["observation"] == "You take red." + "." * 187


def test_kinds_of_actions_are_not_evaded_by_capitals_or_spaces() -> None:
    check = Check(["click[Buy Now]", "cancel_*", "answer: *"])
    assert check.covers(" CLICK[buy now]\n")
    assert not check.covers("click[buy now] please")
    assert check.covers('{"name": "cancel_order", "arguments": {"order_id": "#1"}}')
    assert check.covers('{ "name" : "Cancel_order" }')
    assert not check.covers('{"name": "get_order", "arguments": {"why": "cancel_order"}}')
    assert check.covers("Answer: 42")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"actions": "sell"}, "is a list of patterns such as"),
        ({"actions": []}, "is a list of patterns such as"),
        ({"actions": ["sell"], "budget": -1}, "budget is -1; it must be 0 or more"),
        ({"actions": ["sell"], "horizon": 1, "closing": "sell"}, "either a horizon or a closing action"),
    ],
)
def test_what_makes_no_check_is_refused(settings: dict, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Check(**settings)


@pytest.mark.parametrize(
    ("history", "action", "right"),
    [
        (["take blue"], "sell", True),  # blue is wanted
        (["take red"], "sell", False),
        ([], "smash red", True),  # it can still be won
        ([], "smash blue", False),  # it could be won before, and cannot any more
        (["smash blue"], "look", None),  # it was lost before
        (["take blue", "smash red"], "take red", False),
    ],
)
def test_what_an_action_would_really_have_come_to(history: list[str], action: str, right: bool | None) -> None:
    if action == "take red":  # the plan's own step was taken already; taking something else undoes it
        history = ["take blue"]
    assert truth_of(Kiosk(), "2", 0, history, action) is right


def test_what_was_taken_of_a_plan_is_known_by_its_meaning() -> None:
    plan = ['{"name": "pay", "arguments": {"a": 1, "b": 2}}', "done", "done"]
    assert _left(plan, ['{"arguments":{"b":2,"a":1},"name":"pay"}', "done"]) == ["done"]


def test_a_recorded_episode_is_judged_without_being_played() -> None:
    episode = rollout(Kiosk(), Seller(["green"]), "1", split="train", max_steps=8)
    assert [(v["step"], v["chance"]) for v in judge(ExactLM(), episode, Check(["sell"]))] == [(1, 1.0)]
    ahead = judge(ExactLM(), episode, Check(["take *"], horizon=5))  # then what was recorded: sell
    assert [(v["action"], v["chance"], v["steps"]) for v in ahead] == [("take green", 1.0, 2)]
    wrong = rollout(Kiosk(), Seller(["red"]), "1", split="train", max_steps=8)
    assert [v["chance"] for v in judge(SellingLM(), wrong, Check(["sell"]))] == [1.0]  # a world that is wrong
