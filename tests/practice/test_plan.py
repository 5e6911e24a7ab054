"""Look-aheads in an exact world, whose steps can be counted by hand."""

import pytest

from tests.practice.kiosk import ExactLM, Kiosk, Seller, SellingLM, Session, Wanderer
from worldloom.agents.base import Agent, Decision, Start
from worldloom.agents.gold import GoldFollower
from worldloom.errors import ConfigError
from worldloom.practice.plan import Planner, Search, Watched
from worldloom.rollout import rollout
from worldloom.trajectory import Trajectory
from worldloom.world import Start as WorldStart

STARTS = {str(n): WorldStart("test", Kiosk().reset(str(n))) for n in range(6)}


def played(agent: Agent, task: str, lm: ExactLM, search: Search, admissible: bool = False) -> Trajectory:
    real = Watched(Kiosk())
    planner = Planner(agent, lm, search, STARTS, admissible=real.admissible if admissible else lambda: ())
    return rollout(real, planner, task, max_steps=6)


def test_alone_the_wanderer_mostly_sells_the_wrong_thing_and_with_foresight_never() -> None:
    alone = [rollout(Kiosk(), Wanderer(), str(n), seed=s, max_steps=6).outcome for n in range(6) for s in range(4)]
    assert 0 < alone.count("success") < 16
    for task in range(6):
        episode = played(Wanderer(), str(task), ExactLM(), Search(width=24, depth=4, cost=500))
        assert episode.outcome == "success"
        (plan,) = episode.agent.plans  # the first was followed to its end, since reality said what was imagined
        assert plan["success"] and plan["length"] == len(episode.steps)
        assert plan["trust"] == pytest.approx(0.9 ** plan["length"])


def test_the_soonest_success_is_followed_and_equal_histories_are_imagined_once() -> None:
    lm = ExactLM()
    episode = played(Wanderer(), "2", lm, Search(width=60, depth=5, cost=500))
    assert episode.actions == ["take blue", "sell"]  # of 60 continuations some begin so: no other way is as short
    first = [asked for asked in lm.asked if len(asked) == 1]
    assert sorted(first) == sorted({*first}) and len(first) <= 4  # three colours and "sell", each once
    assert len({*lm.asked}) == len(lm.asked) == episode.agent.plans[0]["steps"]


class Eager(Agent):
    """Sells at once."""

    name = "eager"

    def begin(self, start: Start) -> None:
        pass

    def act(self, observation: str) -> Decision:
        return Decision("sell")


class EagerLM(ExactLM):
    """Says that a sale at once succeeds; it is not as sure of that as of all else."""

    def __init__(self, at_once: float, sure: float):
        super().__init__(sure)
        self.at_once = at_once

    def answer(self, session: Session, action: str) -> str:
        return "Sold. [SUCCESS]" if self._at_once(session, action) else session.really(action)

    def sure_of(self, session: Session, action: str) -> float:
        return self.at_once if self._at_once(session, action) else self.sure

    def _at_once(self, session: Session, action: str) -> bool:
        return action == "sell" and not session.history


@pytest.mark.parametrize(
    ("at_once", "sure", "plan", "trust", "steps"),
    [
        (0.1, 0.9, ["take blue", "sell"], 0.81, 3),  # the sale at once is foreseen first, and hardly believed
        (0.85, 0.9, ["sell"], 0.85, 3),  # more probable than 0.9 x 0.9, which had to be looked at
        (0.9, 0.9, ["sell"], 0.9, 2),  # what is 0.9 after one step cannot come to more: it is not gone on with
        (0.25, 0.5, ["sell"], 0.25, 3),  # as probable as the other, 0.5 x 0.5, and sooner
    ],
)
def test_a_foreseen_success_is_worth_its_probability(
    at_once: float, sure: float, plan: list[str], trust: float, steps: int
) -> None:
    lm, search = EagerLM(at_once, sure), Search(width=2, depth=4)
    planner = Planner(Eager(), lm, search, STARTS, admissible=lambda: ["take blue"])
    planner.begin(Start("2", "A customer comes.", None, 0))
    first = planner.act("A customer comes.")
    assert [first.action, *(step.decision.action for step in planner._left)] == plan
    (told,) = planner.plans
    assert (told["success"], told["steps"]) == (True, steps)
    assert told["trust"] == pytest.approx(trust)


class Lost(Agent):
    """Takes red for ever."""

    name = "lost"

    def begin(self, start: Start) -> None:
        self.instead: list[str] = []

    def act(self, observation: str) -> Decision:
        return Decision("sell" if observation == "You take blue." else "take red")

    def did(self, action: str) -> None:
        self.instead.append(action)


class SilentLM(ExactLM):
    """A broken world: nothing ever happens."""

    def answer(self, session: Session, action: str) -> str:
        return "Nothing happens."


def test_an_agent_that_is_finished_in_what_it_imagines_is_not_so_in_reality() -> None:
    episode = played(GoldFollower(), "2", SilentLM(), Search(width=2, depth=5, cost=50))
    assert (episode.actions, episode.outcome) == (["take blue", "sell"], "success")


def test_what_costs_too_much_is_not_imagined() -> None:
    lm = ExactLM()
    episode = played(Lost(), "2", lm, Search(width=1, depth=3, cost=4))
    assert episode.actions == ["take red"] * 6
    assert [(p["step"], p["steps"], p["success"], p["length"]) for p in episode.agent.plans] == [
        (0, 3, False, 3), (3, 1, False, 1),
    ]  # fmt: skip
    assert len(lm.asked) == 4


def test_first_actions_may_come_from_what_the_environment_says_to_be_possible() -> None:
    # Nothing is said before the first action; then there are five options, and the agent's own way goes nowhere.
    episode = played(Lost(), "2", ExactLM(), Search(width=6, depth=2, cost=60), admissible=True)
    assert episode.actions == ["take red", "take red", "take blue", "sell"]
    assert [plan["success"] for plan in episode.agent.plans] == [False, True]


def test_an_agent_hears_what_was_done_in_its_name() -> None:
    planner = Planner(Lost(), ExactLM(), Search(width=6, depth=2, cost=60), STARTS, admissible=lambda: ["take blue"])
    planner.begin(Start("2", "A customer comes.", None, 0))
    assert planner.act("A customer comes.").action == "take blue"
    assert planner.agent.instead == ["take blue"]


def test_a_plan_is_given_up_when_reality_says_something_else() -> None:
    # Blue is wanted. In this world every sale succeeds, so the seller's own way looks like a success and is followed.
    episode = played(Seller(), "2", SellingLM(), Search(width=1, depth=3, cost=30))
    assert (episode.actions, episode.outcome) == (["take red", "sell"], "failure")

    class Clumsy(Kiosk):
        """Drops what is taken the first time."""

        dropped = False

        def _text(self, verb: str, colour: str) -> str:
            if verb == "take" and not self.dropped:
                self.dropped = True
                return "It falls."
            return super()._text(verb, colour)

    planner = Planner(Seller(["blue"]), ExactLM(), Search(width=1, depth=3, cost=30), STARTS)
    episode = rollout(Clumsy(), planner, "2", max_steps=6)
    assert episode.outcome == "success"
    assert [(plan["step"], plan["success"]) for plan in episode.agent.plans] == [(0, True), (1, True)]


def test_a_success_that_is_not_trusted_is_not_followed() -> None:
    episode = played(Seller(["blue"]), "2", ExactLM(sure=0.5), Search(width=1, depth=3, cost=30, trust=0.3))
    # The sale after two steps has a probability of 0.25; after the first was really taken, one of 0.5.
    assert [(plan["success"], plan["length"]) for plan in episode.agent.plans] == [(False, 0), (True, 1)]
    sure = played(Seller(["blue"]), "2", ExactLM(sure=0.6), Search(width=1, depth=3, trust=0.3))
    assert [(plan["success"], plan["length"]) for plan in sure.agent.plans] == [(True, 2)]


def test_a_beam_keeps_so_many_histories() -> None:
    lm = ExactLM()
    planner = Planner(Wanderer(), lm, Search(width=2, branch=4, depth=3, cost=200), STARTS)
    planner.begin(Start("2", "A customer comes.", None, 3))
    planner.act("A customer comes.")
    for depth in (2, 3):  # a history of this depth goes on from one of two kept ones
        assert len({asked[:-1] for asked in lm.asked if len(asked) == depth}) <= 2


def test_without_a_plan_the_agent_acts_as_alone() -> None:
    episode = played(Wanderer(), "1", ExactLM(), Search(width=1, depth=1, cost=1))
    alone = rollout(Kiosk(), Wanderer(), "1", max_steps=6)
    assert episode.actions == alone.actions


def test_settings_of_a_look_ahead() -> None:
    assert Search.parse({"width": 3, "cost": 40}).label == "best of 3, depth 12, cost 40"
    assert Search(width=3, branch=2, trust=0.5).label == "beam of 3 by 2, depth 12, cost 200, trust 0.5"
    for wrong, told in (
        ({"widht": 3}, "unknown setting 'widht' of a look-ahead; did you mean 'width'?"),
        ({"width": 0}, "width is 0; it must be a whole number"),
        ({"trust": 1.5}, "trust is 1.5; it must be a probability"),
    ):
        with pytest.raises(ConfigError, match=told.replace("?", r"\?")):
            Search.parse(wrong)
