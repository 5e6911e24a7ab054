"""Metrics on records whose values are worked out by hand."""

from typing import Any

import pytest

from worldloom.evaluate.one_step import answer_episode, baselines, judge, one_step_metrics, recorded
from worldloom.protocol import said
from worldloom.trajectory import AgentRef, EnvRef, Step, TaskRef, Trajectory

A, B = ["look", "go"], ["look", "stop"]
FIRST = [
    Step(action="look", observation="A room.", admissible_actions=A),
    Step(action="look", observation="A room.", admissible_actions=A),
    Step(action="fly", observation="Nothing happens.", admissible_actions=A),
    Step(action="go", observation="You win a prize.", admissible_actions=B, terminal="success"),
]
SECOND = [
    Step(action="go", observation="It is dark.", admissible_actions=A),
    Step(action="go", observation="You fall.", admissible_actions=B, terminal="failure"),
]
THIRD = [Step(action="look", observation="A hall."), Step(action="look", observation="A hall.", terminal="truncated")]


def episode(number: int, steps: list[Step], agent: str = "walker") -> Trajectory:
    return Trajectory(
        env=EnvRef(name="e"), task=TaskRef(id=f"t{number}"), initial_observation="A hall.", steps=steps,
        agent=AgentRef(name=agent),
    )  # fmt: skip


REAL = [episode(1, FIRST), episode(2, SECOND), episode(3, THIRD, "other")]
STRATA = [[None, "no_change", "invalid", "state_changing"], [None, "state_changing"], [None, None]]


def about(step: Step, number: int, stratum: str | None) -> dict[str, Any]:
    end = None if step.terminal == "truncated" else step.terminal
    return {
        "index": number + 1, "action": step.action, "gold": step.observation, "gold_terminal": end, "stratum": stratum,
    }  # fmt: skip


def records(says: Any) -> list[dict[str, Any]]:
    """The records of a model that says ``says(episode, step)``."""
    return [
        {
            "kind": "one_step", "key": t.task.id, "task_id": t.task.id, "agent": t.agent.name, "left_out": 0,
            "steps": [about(s, n, STRATA[e][n]) | judge(s, says(t, s)) for n, s in enumerate(t.steps)],
        }
        for e, t in enumerate(REAL)
    ]  # fmt: skip


class Oracle:
    """A model that can only be asked, and is right."""

    replies = None

    def answers(self, trajectory: Trajectory) -> list[str]:
        return [said(step.observation, step.terminal) for step in trajectory.steps]


def answered() -> list[dict[str, Any]]:
    return [answer_episode(Oracle(), t, t.task.id) for t in REAL]


def oracle(_: Trajectory, step: Step) -> str:
    return said(step.observation, step.terminal)


def values(found: dict[str, Any]) -> dict[str, float]:
    return {name: rate["value"] for name, rate in found.items()}


def test_an_oracle_is_right_everywhere() -> None:
    found = one_step_metrics(records(oracle))
    assert (found["n_episodes"], found["n_steps"], found["left_out"]) == (3, 8, 0)
    for name in ("em", "em_observation", "word_f1"):
        assert found[name] == {"value": 1.0, "low": pytest.approx(0.025 ** (1 / 3)), "high": 1.0, "n": 3, "of": 8}
    assert values(found["terminal"]) == {"precision": 1.0, "recall": 1.0, "f1": 1.0, "false_success_rate": 0.0}
    assert {name: (s["n"], s["em"]["value"]) for name, s in found["strata"].items()} == {
        "invalid": (1, 1.0), "no_change": (1, 1.0), "state_changing": (2, 1.0),
    }  # fmt: skip
    assert [(s["step"], s["n"]) for s in found["by_step_index"]] == [(1, 3), (2, 3), (3, 1), (4, 1)]


def test_a_model_that_is_wrong_in_known_steps() -> None:
    wrong = {
        ("t1", 1): "A cave.",  # another observation; its words are half right
        ("t1", 3): "You win a prize.",  # the end is missed
        ("t2", 0): "It is dark. [SUCCESS]",  # a success is claimed
        ("t2", 1): "You fall. [SUCCESS]",  # the wrong end
    }

    def says(t: Trajectory, step: Step) -> str:
        return wrong.get((t.task.id, [s is step for s in t.steps].index(True)), oracle(t, step))

    found = one_step_metrics(records(says))
    assert found["em"]["value"] == 4 / 8
    assert found["em_observation"]["value"] == 7 / 8
    assert found["word_f1"]["value"] == pytest.approx((7 + 1 / 2) / 8)
    # Said to be an end: t2's two steps, none as it was. Ends that were: two. No success: all steps but one.
    assert values(found["terminal"]) == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "false_success_rate": 2 / 7}
    assert {name: s["em"]["value"] for name, s in found["strata"].items()} == {
        "invalid": 1.0, "no_change": 0.0, "state_changing": 0.0,
    }  # fmt: skip
    assert [s["em"]["value"] for s in found["by_step_index"]] == [2 / 3, 1 / 3, 1.0, 0.0]
    assert {name: rate["value"] for name, rate in found["by_agent"].items()} == {"other": 1.0, "walker": 2 / 6}


def test_a_model_that_always_claims_success() -> None:
    found = one_step_metrics(records(lambda t, s: f"{s.observation} [SUCCESS]"))
    assert found["em"]["value"] == 1 / 8
    assert found["em_observation"]["value"] == 1.0
    # 8 claims, 1 right; 2 ends, 1 found; f1 = 2/(8+2); 7 steps are no success and all are claimed to be one.
    assert values(found["terminal"]) == {"precision": 1 / 8, "recall": 1 / 2, "f1": 2 / 10, "false_success_rate": 1.0}
    assert "baselines" not in found


def test_a_model_that_never_ends_has_no_precision() -> None:
    found = one_step_metrics(records(lambda t, s: s.observation))
    assert values(found["terminal"]) == {"recall": 0.0, "f1": 0.0, "false_success_rate": 0.0}


def test_episodes_without_an_end_have_neither_recall_nor_f1() -> None:
    found = one_step_metrics(records(oracle)[2:])
    assert values(found["terminal"]) == {"false_success_rate": 0.0}


def test_the_trivial_baselines() -> None:
    # Again: t1 second step; t3 both (its first observation is the initial one, its end was cut off, not said).
    # Nothing happens: t1 third step. An end that is not claimed is not right.
    found = baselines(answered())
    assert found["repeat_last"]["em"]["value"] == 3 / 8
    assert found["nothing_happens"]["em"]["value"] == 1 / 8
    assert found["repeat_last"]["em"]["n"] == 3


def test_baselines_are_on_the_steps_that_were_scored() -> None:
    scored = answered()
    scored[0]["steps"], scored[0]["left_out"] = scored[0]["steps"][2:], 2  # the window left the first two out
    scored[2]["steps"], scored[2]["left_out"] = [], 2
    found = one_step_metrics(scored)
    assert found["n_steps"] == 4
    assert found["baselines"]["repeat_last"]["em"]["value"] == 0.0
    assert found["baselines"]["nothing_happens"]["em"]["value"] == 1 / 4


@pytest.mark.parametrize(
    ("text", "correct", "observation"),
    [
        ("You fall. [FAILURE]", True, True),
        (" You fall.\n [FAILURE]", True, True),  # outer white space does not count
        ("You fall.", False, True),
        ("You fall. [SUCCESS]", False, True),
        ("You  fall. [FAILURE]", False, False),
        ("", False, False),
    ],
)
def test_correct_is_the_observation_and_the_end(text: str, correct: bool, observation: bool) -> None:
    found = judge(SECOND[1], text)
    assert (found["correct"], found["correct_observation"]) == (correct, observation)


def test_a_truncated_end_is_to_be_said_like_an_open_one() -> None:
    assert judge(THIRD[1], "A hall.")["correct"]
    assert not judge(THIRD[1], "A hall. [FAILURE]")["correct"]


def test_records_that_do_not_say_what_the_model_says_give_exact_match_alone() -> None:
    full = records(lambda t, s: said(s.observation, s.terminal if s.terminal != "truncated" else None))
    words = {"predicted", "predicted_terminal", "correct_observation", "word_f1"}
    bare = [r | {"steps": [{k: v for k, v in s.items() if k not in words} for s in r["steps"]]} for r in full]
    found, whole = one_step_metrics(bare), one_step_metrics(full)
    assert found["em"]["value"] == 1.0
    assert set(whole) - set(found) == {
        "em_observation", "em_without_counters", "em_without_order", "word_f1", "terminal"
    }  # fmt: skip
    assert {name: whole[name] for name in found} == found


def test_strata_are_what_the_environment_tells() -> None:
    steps = [
        FIRST[0].model_copy(update={"changed": True, "refused": False}),
        FIRST[1].model_copy(update={"changed": False, "refused": True}),
        FIRST[2].model_copy(update={"changed": False, "refused": False}),  # it was not listed, but done
    ]
    record = answer_episode(Oracle(), episode(1, steps), "t1")
    assert [step["stratum"] for step in record["steps"]] == ["state_changing", "invalid", "no_change"]


def test_steps_without_a_known_answer_are_neither_scored_nor_left_out() -> None:
    half = episode(1, [FIRST[0], FIRST[1].model_copy(update={"not_recorded": True}), FIRST[2]])
    assert recorded(half) == 2
    record = answer_episode(Oracle(), half, "t1")
    assert ([step["index"] for step in record["steps"]], record["left_out"]) == ([1, 3], 0)
