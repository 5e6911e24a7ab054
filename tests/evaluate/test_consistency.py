"""Rates by hand, and the three playings of the same tasks with a world that is a recording of the real one."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binomtest, kendalltau

from worldloom.agents import AgentSpec
from worldloom.collect import imagine
from worldloom.envs.worker import Job
from worldloom.errors import ConfigError, ModelError
from worldloom.evaluate.agreement import outcome, sign_flip, tau_b
from worldloom.evaluate.consistency import consistency_metrics, record, replay_job
from worldloom.evaluate.consistency_sections import consistency_section
from worldloom.evaluate.summary import _consistency
from worldloom.trajectory import AgentRef, EnvRef, Failure, Step, TaskRef, Trajectory, read


def played(task: str, end: str | None, agent: str = "a", seed: int = 0) -> Trajectory:
    """An episode of one step that ended so; "error" breaks it, "nothing" has no step."""
    terminal: Any = end if end in ("success", "failure", "truncated") else None
    return Trajectory(
        env=EnvRef(name="e"), task=TaskRef(id=task, seed=seed), initial_observation="x", agent=AgentRef(name=agent),
        steps=[] if end == "nothing" else [Step(action="go", observation="y", terminal=terminal)],
        error=Failure(kind="E", message="m") if end == "error" else None,
    )  # fmt: skip


def triple(task: str, real: str, wm: str, w2r: str, agent: str = "a") -> dict[str, Any]:
    return record(played(task, real, agent), played(task, wm, agent), played(task, w2r, "replay"))


def values(found: dict[str, Any]) -> dict[str, float]:
    return {name: found[name]["value"] for name in ("real", "wm", "w2r", "cr", "cr_paired") if name in found}


STRONG = [
    triple("t1", "success", "success", "success"),
    triple("t2", "success", "failure", "truncated"),
    triple("t3", "failure", "success", "success"),
    triple("t4", "success", "error", "error"),
    triple("t5", "error", "success", "nothing"),
]
WEAK = [
    triple("t1", "success", "success", "success", "b"),
    triple("t2", "failure", "truncated", "truncated", "b"),
    triple("t3", "truncated", "error", "nothing", "b"),
    triple("t4", "failure", "failure", "failure", "b"),
    triple("t5", "failure", "failure", "success", "b"),
]


def test_rates_by_hand() -> None:
    found = consistency_metrics(STRONG + WEAK)
    assert (found["n_tasks"], found["same_task_ids"]) == (5, True)
    strong, weak, overall = found["agents"]["a"], found["agents"]["b"], found["overall"]
    # Errors are in the denominators, as no success.
    assert values(strong) == pytest.approx({"real": 3 / 5, "wm": 3 / 5, "w2r": 2 / 5, "cr": 2 / 3, "cr_paired": 1 / 3})
    assert strong["errors"] == {"real": 1, "wm": 1, "w2r": 1}
    assert strong["unknown"] == {"real": 0, "wm": 0, "w2r": 1}  # a plan of no step: nothing says how it ended
    # A ratio above one: a success of the replay need not be one of reality; the paired ratio cannot be above one.
    assert values(weak) == pytest.approx({"real": 1 / 5, "wm": 1 / 5, "w2r": 2 / 5, "cr": 2.0, "cr_paired": 1.0})
    assert weak["errors"] == {"real": 0, "wm": 1, "w2r": 0}
    assert values(overall) == pytest.approx({"real": 0.4, "wm": 0.4, "w2r": 0.4, "cr": 1.0, "cr_paired": 0.5})
    assert (strong["n"], overall["n"]) == (5, 10)
    assert overall["real"]["n"] == 5  # its interval is over tasks


def test_without_a_success_in_reality_there_is_no_ratio() -> None:
    found = consistency_metrics([triple("t1", "failure", "success", "success")])["overall"]
    assert values(found) == {"real": 0.0, "wm": 1.0, "w2r": 1.0}


def test_a_ratio_over_different_tasks_is_refused() -> None:
    with pytest.raises(ConfigError, match="did not play the same tasks"):
        consistency_metrics(STRONG + WEAK[:4])
    with pytest.raises(ConfigError, match="did not play the same tasks"):
        consistency_metrics([*STRONG[:4], triple("t6", "success", "success", "success"), *WEAK])


def test_agents_that_are_all_consistent_have_a_ratio_of_one_as_sure_as_their_number_allows() -> None:
    told = [triple(f"t{n}", *(["success"] * 3 if n % 2 else ["failure"] * 3)) for n in range(6)]
    found = consistency_metrics(told)["overall"]
    # Three of six tasks are won in reality, and again; that proves as little of others as Beta(3.5, 0.5) says.
    below, beside = beta.ppf(0.025, 3.5, 0.5), 1 - 0.025 ** (1 / 6)
    assert (found["cr"]["value"], found["cr"]["n"], found["cr"]["of"]) == (1.0, 6, 3)
    assert found["cr"]["low"] < 0.7 and found["cr"]["high"] > 1.4
    assert found["cr_paired"] == {"value": 1.0, "low": pytest.approx(below, abs=0.03), "high": 1.0, "n": 3}
    agreed = found["agreement"]["w2r"]
    assert agreed["kappa"] == {"value": 1.0, "low": pytest.approx(1 - beside * 2), "high": 1.0, "n": 6}
    assert agreed["difference"] == {"value": 0.0, "low": pytest.approx(-beside), "high": pytest.approx(beside), "n": 6}


@pytest.mark.parametrize(
    ("end", "expected"),
    [("success", "success"), ("truncated", "truncated"), ("error", "error"), ("nothing", "unknown"), (None, "unknown")],
)
def test_how_a_record_ended(end: str | None, expected: str) -> None:
    assert outcome(played("t", end).model_dump(by_alias=True)) == expected


def test_a_replay_takes_the_imagined_actions_and_no_more() -> None:
    job = replay_job(Job("t1", AgentSpec("gold"), 3, "test", 50), played("t1", "success"))
    assert job == Job("t1", AgentSpec("replay", {"actions": ["go"]}), 3, "test", 1)


def test_a_record_names_task_agent_and_seed() -> None:
    told = record(played("t1", "success", seed=4), played("t1", "error"), played("t1", "nothing"))
    assert (told["kind"], told["task_id"], told["agent"], told["seed"]) == ("consistency", "t1", "a", 4)
    assert told["real"]["steps"][-1]["terminal"] == "success"
    assert told["wm"]["error"] == {"kind": "E", "message": "m"}


def test_agreement_with_reality_by_hand() -> None:
    strong = consistency_metrics(STRONG)["overall"]["agreement"]
    kappas, apart = ([strong[name].pop(key) for name in ("wm", "w2r")] for key in ("kappa", "difference"))
    # Reality is won at t1, t2, t4; the model at t1, t3, t5; the replay at t1, t3.
    assert strong["wm"] == {
        "both": 1, "real_only": 2, "other_only": 2, "neither": 0, "mcnemar_p": 1.0,
    }  # fmt: skip
    assert strong["w2r"] == {
        "both": 1, "real_only": 2, "other_only": 1, "neither": 1, "mcnemar_p": 1.0,
    }  # fmt: skip
    by_hand = [(1 / 5 - 13 / 25) / (12 / 25), (2 / 5 - 12 / 25) / (13 / 25)]
    assert [kappa["value"] for kappa in kappas] == pytest.approx(by_hand)
    assert all(-1 <= kappa["low"] <= kappa["value"] <= kappa["high"] <= 1 for kappa in kappas)
    assert [each["value"] for each in apart] == pytest.approx([0.0, 2 / 5 - 3 / 5])
    alike = [triple(f"t{n}", "success", "success", "success") for n in range(3)]
    found = consistency_metrics(alike)["overall"]["agreement"]["wm"]
    assert found.pop("difference")["value"] == 0.0
    assert found == {"both": 3, "real_only": 0, "other_only": 0, "neither": 0}  # chance alone would agree: no kappa


def test_an_agreement_is_resampled_by_task() -> None:
    """Twenty copies of each episode are no more tasks: the interval stays as wide."""
    once = consistency_metrics(STRONG)["overall"]["agreement"]["w2r"]
    often = [r | {"agent": f"a{n}"} for n in range(20) for r in STRONG]
    again = consistency_metrics(often)["overall"]["agreement"]["w2r"]
    for name in ("kappa", "difference"):
        assert again[name] == pytest.approx(once[name])
    assert again["both"] == 20 * once["both"]


def test_several_agents_on_a_task_are_no_independent_pairs() -> None:
    """Four agents that fare alike: of twelve tasks five are won in reality alone. Each way to give five tasks a sign is
    as likely, and two of 32 are as far from even as this: all in reality, or all in the replay."""
    ends = [*(["success", "success", "failure"] for _ in range(5)), *(["success"] * 3 for _ in range(7))]
    told = [triple(f"t{n}", *end, agent) for agent in "abcd" for n, end in enumerate(ends)]
    found = consistency_metrics(told)
    overall = found["overall"]["agreement"]["w2r"]
    assert overall["sign_flip_p"] == pytest.approx(2 / 32) and "mcnemar_p" not in overall
    one = found["agents"]["a"]["agreement"]["w2r"]
    assert one["mcnemar_p"] == pytest.approx(2 / 32) and "sign_flip_p" not in one
    assert not {"mcnemar_p", "sign_flip_p"} & set(found["overall"]["agreement"]["wm"])  # nothing differs there


def test_flipped_signs_by_hand() -> None:
    # The eight ways to give 3, 1 and 1 a sign sum to 5, 3, 3, 1, -1, -3, -3 and -5: six are as far from 0 as 3 is.
    assert sign_flip(np.array([3, 1, -1, 0])) == pytest.approx(6 / 8)
    assert sign_flip(np.array([4])) == sign_flip(np.array([0, 0])) == 1.0
    many = np.array([1] * 21 + [-1] * 9)  # too many to look at all: 2 ** 30
    assert sign_flip(many) == pytest.approx(binomtest(9, 30).pvalue, abs=0.01)
    assert sign_flip(many) == sign_flip(many)


def test_a_task_that_was_played_with_several_seeds_is_one_task() -> None:
    told = [record(*(played(task, "success", seed=seed) for _ in range(3))) for task in ("t1", "t2") for seed in (0, 1)]
    found = consistency_metrics(told)
    assert (found["n_tasks"], found["overall"]["n"]) == (2, 4)
    assert (found["overall"]["real"]["n"], found["overall"]["real"]["of"]) == (2, 4)


def test_ranks_of_agents_by_hand() -> None:
    found = consistency_metrics(STRONG + WEAK)["rank_agreement"]
    assert set(found) == {"n_agents", "kendall_wm"}  # 3 and 1 wins; the replays have 2 and 2
    # Whatever tasks are drawn, "a" is ahead, or both have as many: no interval rather than one without width.
    assert (found["n_agents"], found["kendall_wm"]) == (2, {"value": 1.0, "n": 5})
    swapped = triple("t6", "failure", "success", "success", "a"), triple("t6", "failure", "success", "success", "b")
    ahead = triple("t7", "failure", "failure", "failure", "a"), triple("t7", "success", "failure", "failure", "b")
    found = consistency_metrics([*STRONG, *WEAK, *swapped, *ahead])["rank_agreement"]
    assert (found["kendall_wm"]["value"], found["kendall_wm"]["low"]) == (1.0, -1.0)  # drawn often, t7 turns reality
    assert consistency_metrics(STRONG)["rank_agreement"] == {"n_agents": 1}


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=8))
def test_tau_b_is_scipys(scores: list[tuple[int, int]]) -> None:
    left, right = np.array(scores).T
    expected = kendalltau(left, right).statistic
    assert tau_b(np.stack([left, left]), np.stack([right, right])) == pytest.approx([expected] * 2, nan_ok=True)


def jobs(count: int) -> list[Job]:
    return [Job(f"t{n}", AgentSpec("tests.envs.corridor:Walker"), split="test") for n in range(count)]


def playing(job: Job, error: Failure | None = None) -> Trajectory:
    task = TaskRef(id=job.task_id, split=job.split, seed=job.seed)
    return Trajectory(
        env=EnvRef(name="e"), task=task, initial_observation="", agent=job.agent.build().ref, steps=[], error=error
    )


def test_where_imagining_is_stopped_what_was_begun_is_kept_and_the_rest_not_begun(tmp_path: Path) -> None:
    begun = []

    def play_one(job: Job) -> Trajectory:
        begun.append(job.task_id)
        if job.task_id == "t1":
            raise KeyboardInterrupt  # what the waiting thread gets when somebody types Ctrl-C
        time.sleep(0.2)
        return playing(job)

    with pytest.raises(KeyboardInterrupt):
        imagine(tmp_path / "wm.jsonl", jobs(40), play_one, at_once=4)
    kept = [t.task.id for t in read(tmp_path / "wm.jsonl")]
    assert sorted([*kept, "t1"]) == sorted(begun)
    assert len(begun) < 12


def test_a_model_that_is_gone_ends_the_run_and_no_episode_is_failed_for_it(tmp_path: Path) -> None:
    def play_one(job: Job) -> Trajectory:
        gone = Failure(kind="ModelError", message="no server at http://localhost:1")
        return playing(job, gone if job.task_id == "t2" else None)

    with pytest.raises(ModelError, match="no server at"):
        imagine(tmp_path / "wm.jsonl", jobs(3), play_one, at_once=1)
    assert [t.task.id for t in read(tmp_path / "wm.jsonl")] == ["t0", "t1"]
    imagine(tmp_path / "wm.jsonl", jobs(3), playing)
    assert [t.task.id for t in read(tmp_path / "wm.jsonl")] == ["t0", "t1", "t2"]


def test_ends_that_nobody_can_judge_are_told_beside_the_rates() -> None:
    """ToolBench cannot judge an answer after calls that no run made; that is no failure of the agent's."""
    found = consistency_metrics([triple("t1", "open", "success", "open"), triple("t2", "success", "open", "success")])
    assert found["overall"]["unknown"] == {"real": 1, "wm": 1, "w2r": 1}
    section = consistency_section(found)
    told = "Ends that nobody can judge count as no success: 1 in Real, 1 in WM, 1 in W2R of 2 episodes."
    assert told in section.note
    assert "nobody can judge" not in consistency_section(consistency_metrics([STRONG[0]])).note
    (row,) = [text for name, text in _consistency(found) if name.startswith("overall")]
    assert row.endswith(", unknown {'real': 1, 'wm': 1, 'w2r': 1}")
