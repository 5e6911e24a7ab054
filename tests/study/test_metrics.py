"""A study's figures by hand."""

from typing import Any

from worldloom.study.metrics import arm_metrics, difference, told


def rate(value: float) -> dict[str, float]:
    return {"value": value, "low": value, "high": value, "n": 2}


def record(key: str, right: list[bool]) -> dict[str, Any]:
    return {"kind": "one_step", "key": key, "steps": [{"correct": correct} for correct in right]}


def test_how_far_two_arms_are_apart() -> None:
    """Over steps: 4 of 5 less 2 of 5. An episode drawn twice has both arms' steps on it twice: 0.5 or 1/3 apart."""
    one = [record("a", [True, True]), record("b", [True, True, False]), {"kind": "consistency", "key": "a"}]
    other = [record("b", [True, False, False]), record("a", [True, False])]
    found = difference(one, other)
    assert found is not None
    assert round(found["value"], 12) == round(4 / 5 - 2 / 5, 12)
    assert [round(found[bound], 12) for bound in ("low", "high")] == [round(1 / 3, 12), 0.5]
    assert found["n"] == 2


def test_only_steps_that_both_arms_were_shown_count() -> None:
    """The other arm's window ends before the second step of the first episode: 2 of 2 less 1 of 2."""
    one, other = [record("a", [True, False]), record("b", [True])], [record("a", [True]), record("b", [False])]
    found = difference(one, other)
    assert found is not None
    assert (found["value"], found["n"]) == (0.5, 2)


def test_arms_of_other_episodes_are_not_compared() -> None:
    assert difference([record("a", [True])], [record("b", [True])]) is None
    assert difference([record("a", [True])], [record("a", [True]), record("b", [True])]) is None
    assert difference([], []) is None


METRICS: dict[str, Any] = {
    "environment": "e", "split": "test",
    "train": {"trajectories_seen": 20, "tokens_seen": 3000, "seconds": 90.0},
    "one_step": {
        "n_episodes": 2, "n_steps": 9, "em": rate(0.5), "em_observation": rate(0.6), "word_f1": rate(0.7),
        "baselines": {"retrieval": {"em": rate(0.1)}},
    },
}  # fmt: skip


def test_an_arm_s_figures_are_those_of_its_evaluation() -> None:
    expected = {
        "world": "w", "environment": "e", "split": "test", "trajectories": 20, "tokens": 3000, "minutes": 1.5,
        "em": rate(0.5), "em_observation": rate(0.6), "word_f1": rate(0.7), "n": 2, "n_steps": 9,
        "retrieval": rate(0.1),
    }  # fmt: skip
    assert arm_metrics(METRICS, "w") == expected
    overall = {"n": 4, "real": rate(1.0), "wm": rate(0.5), "w2r": rate(0.5), "cr": rate(0.5), "errors": {}}
    played = {**METRICS, "consistency": {"n_tasks": 2, "overall": overall, "agents": {"a": overall}}}
    rates = {"real": rate(1.0), "wm": rate(0.5), "w2r": rate(0.5), "cr": rate(0.5)}
    assert arm_metrics(played, "w") == {**expected, **rates, "n_tasks": 2, "agents": {"a": rates}}
    bare = {**METRICS, "one_step": {**METRICS["one_step"], "baselines": {}}}
    assert "retrieval" not in arm_metrics(bare, "w")  # what was not measured is absent


def test_what_the_command_prints() -> None:
    arm = {**arm_metrics(METRICS, "w"), "cr": rate(0.5), "n_tasks": 2}
    text = told({"arms": {"w-20": arm}, "differences": {"w-20 - w-10": rate(0.25)}})
    assert text.splitlines() == [
        f"{'w-20':<44} exact match 50.0% [50.0%, 50.0%] of 2 episodes after 20 trajectories, 3000 tokens, "
        "CR 0.50 of 2 tasks",
        f"{'w-20 - w-10':<44} 25.0% [25.0%, 25.0%]",
    ]
