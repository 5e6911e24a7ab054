"""Logged actions inside a model that only knows logged replies: what is played and measured, worked out by hand."""

import time
from pathlib import Path
from typing import Any

import pytest

from worldloom.coverage.steps import Kind
from worldloom.errors import ConfigError, ProtocolError
from worldloom.evaluate.budget import AT_A_TIME, Budget
from worldloom.evaluate.rollouts import KIND, play_again, repeats, score_rollouts, steady_kinds
from worldloom.evaluate.run import evaluate
from worldloom.evaluate.verdicts import rollout_metrics, verdict_metrics
from worldloom.lm.retrieval import RetrievalLM
from worldloom.runs import Log, read_records
from worldloom.trajectory import EnvRef, Step, TaskRef, Terminal, Trajectory, read, write


def episode(task: str, *steps: tuple[str, str] | tuple[str, str, Terminal]) -> Trajectory:
    made = [Step(action=s[0], observation=s[1], terminal=s[2] if len(s) > 2 else None) for s in steps]
    return Trajectory(env=EnvRef(name="hall"), task=TaskRef(id=task), initial_observation="You wake.", steps=made)


LEARNT = [episode(f"l{n}", ("look", "A hall."), ("look", "A hall."), ("finish", "Done.", "success")) for n in range(3)]
HELD_OUT = [
    episode("all alike", ("look", "A hall."), ("look", "A hall."), ("finish", "Done.", "success")),
    episode("ended early", ("finish", "Not yet."), ("look", "A hall."), ("finish", "Done.", "failure")),
    episode("never seen", ("jump", "You fall.", "failure")),
    episode("no verdict", ("look", "A hall.", "truncated")),
]


@pytest.fixture
def lm(tmp_path: Path) -> RetrievalLM:
    write(tmp_path / "learnt.jsonl", LEARNT)
    return RetrievalLM.open(str(tmp_path / "learnt.jsonl"))


@pytest.fixture
def records(lm: RetrievalLM) -> list[dict[str, Any]]:
    return [play_again(lm, logged, steady_kinds(HELD_OUT)) for logged in HELD_OUT]


def test_what_the_logs_show_to_repeat_alike() -> None:
    assert steady_kinds(HELD_OUT) == {Kind("look", False)}  # finish was answered in two ways
    assert repeats(HELD_OUT[0]) == {1: 0}
    called = episode("c", *[('{"name": "get", "arguments": {}}', "7")] * 2, *[("hello", "hi")] * 2)
    assert steady_kinds([called]) == {Kind("get", True)}  # words may be answered as one likes


def test_a_rollout_goes_on_from_its_own_answers(records: list[dict[str, Any]]) -> None:
    alike, early, never, no_verdict = records
    assert [(s["said"], s["same"]) for s in alike["steps"]] == [("A hall.", True), ("A hall.", True), ("Done.", True)]
    assert (alike["logged"], alike["verdict"]) == ("success", "success")
    assert [s.get("asked_again") for s in alike["steps"]] == [True, True, None]
    assert [s.get("repeated") for s in alike["steps"]] == [None, {"alike": True, "logged": True}, None]
    assert (early["verdict"], early["of"], len(early["steps"])) == ("success", 3, 1)
    assert (never["verdict"], never["steps"][0]["said"]) == (None, "")
    assert (no_verdict["logged"], no_verdict["verdict"]) == (None, None)


def test_the_metrics_of_rollouts(records: list[dict[str, Any]]) -> None:
    found = rollout_metrics(records)
    assert (found["n_episodes"], found["n_steps"]) == (4, 8)
    assert found["em"]["value"] == 4 / 8  # three of the first, one of the last
    assert found["ended_early"]["value"] == 1 / 4
    assert [(row["step"], row["n"], row["em"]["value"], row["agree"]["value"]) for row in found["by_step"]] == [
        (1, 4, 0.5, 0.5), (2, 2, 0.5, 0.5), (3, 2, 0.5, 0.5)
    ]  # fmt: skip
    consistent = found["self_consistency"]
    assert (consistent["asked_again"]["value"], consistent["asked_again"]["steps"]) == (1.0, 3)
    assert (consistent["repeated"]["steps"], consistent["logged"]["value"]) == (1, 1.0)
    verdicts = found["verdicts"]
    assert verdicts["table"] == {
        "success": {"success": 1, "failure": 0, "none": 0}, "failure": {"success": 1, "failure": 0, "none": 1},
    }  # fmt: skip
    assert verdicts["accuracy"]["value"] == pytest.approx(1 / 3)
    assert verdicts["always"]["verdict"] == "failure" and verdicts["always"]["accuracy"]["value"] == pytest.approx(
        2 / 3
    )
    assert (verdicts["success"]["precision"]["value"], verdicts["success"]["recall"]["value"]) == (0.5, 1.0)
    assert verdicts["failure"].keys() == {"recall"} and verdicts["failure"]["recall"]["value"] == 0.0
    assert verdicts["kappa"]["value"] == pytest.approx(1 / 7)  # (1/3 - 2/9) / (1 - 2/9)


def test_answers_that_the_log_does_not_know_are_not_wrong(lm: RetrievalLM) -> None:
    logged = episode("unknown", ("finish", "Not yet."), ("look", "A hall."), ("finish", "Done.", "failure"))
    steps = [logged.steps[0], logged.steps[1].model_copy(update={"not_recorded": True}), logged.steps[2]]
    record = play_again(lm, logged.model_copy(update={"steps": steps}))
    assert (record["verdict"], record["unknown"], len(record["steps"])) == ("success", [2], 1)
    assert rollout_metrics([record])["n_steps"] == 2


class Speechless(RetrievalLM):
    def session(self, *begin: Any, **more: Any) -> Any:
        raise ProtocolError("half a surrogate pair cannot be said in tokens")


def test_an_episode_that_cannot_be_said_is_left_out(lm: RetrievalLM, records: list[dict[str, Any]]) -> None:
    record = play_again(Speechless(lm.replies), HELD_OUT[0])
    assert (record["reason"], record["steps"]) == ("unsayable", [])
    assert rollout_metrics([*records, record]) == {**rollout_metrics(records), "left_out": 1}
    assert rollout_metrics([record])["n_episodes"] == 0


def test_without_logged_ends_there_is_no_agreement_of_verdicts() -> None:
    assert verdict_metrics([{"logged": None, "verdict": "success"}]) is None


def test_where_all_ends_are_alike_kappa_says_nothing() -> None:
    found = verdict_metrics([{"logged": "success", "verdict": "success"}] * 3)
    assert found is not None and "kappa" not in found and found["accuracy"]["value"] == 1.0


def test_evaluate_measures_rollouts_and_goes_on(lm: RetrievalLM, tmp_path: Path) -> None:
    write(tmp_path / "held-out.jsonl", HELD_OUT)
    asked: dict[str, Any] = {"data": tmp_path / "held-out.jsonl", "rollouts": True, "logs": tmp_path / "learnt.jsonl"}
    model = f"retrieval:{tmp_path / 'learnt.jsonl'}"
    found = evaluate(tmp_path / "run", model, **asked)
    assert found["rollouts"]["verdicts"]["n"] == 3
    assert "no Real and no W2R" in (tmp_path / "run" / "report.html").read_text()
    lines = (tmp_path / "run" / "records.jsonl").read_text().splitlines()
    kept = [line for line in lines if "all alike" not in line]
    (tmp_path / "run" / "records.jsonl").write_text("\n".join(kept) + "\n")  # as if it had been stopped
    assert evaluate(tmp_path / "run", model, **asked)["rollouts"] == found["rollouts"]
    with pytest.raises(ConfigError, match="rollouts: True there, None now"):
        evaluate(tmp_path / "run", model, data=tmp_path / "held-out.jsonl")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"minutes": 1.0}, "give their file"),
        ({"rollouts": True}, "give their file"),
        ({"exact_only": True}, "give their file"),
        ({"episodes": 3}, "give their file"),
        ({"data": Path("x"), "minutes": 0.0}, "must be above 0"),
        ({"data": Path("x"), "logs": Path("y")}, "logs are for rollouts"),
    ],
)
def test_settings_that_make_no_sense(asked: dict[str, Any], told: str, tmp_path: Path) -> None:
    from worldloom.agents import AgentSpec
    from worldloom.envs import EnvSpec

    if "data" not in asked:
        asked |= {"env": EnvSpec("corridor"), "split": "test", "agents": [AgentSpec("gold")]}
    with pytest.raises(ConfigError, match=told):
        evaluate(tmp_path, "retrieval:x", **asked)


class Clock:
    """A minute passes at every second look."""

    def __init__(self) -> None:
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return 60.0 * (self.looks // 2)


def test_a_budget_ends_between_parts_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", Clock().monotonic)
    items, path = list(range(3 * AT_A_TIME)), tmp_path / "records.jsonl"
    with Log(path) as log:
        stopped = Budget(path, "p", 1.5).parts(items, log)
        assert len(next(stopped)) == AT_A_TIME
        stopped.close()
        assert not list(read_records(path))  # what was stopped in its midst took no time
    monkeypatch.setattr(time, "monotonic", Clock().monotonic)
    with Log(path) as log:
        taken = [list(part) for part in Budget(path, "p", 1.5).parts(items, log)]
        assert taken == [items[:AT_A_TIME], items[AT_A_TIME : 2 * AT_A_TIME]]  # 60 s of 90 are used, then 120
        assert list(Budget(path, "p", 1.5).parts(items, log)) == []
        assert [list(part) for part in Budget(path, "other", None).parts(items, log)] == [items]
    assert [r["seconds"] for r in read_records(path)] == [60.0, 60.0]


def test_rollouts_within_a_budget(lm: RetrievalLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [LEARNT[0].model_copy(update={"task": TaskRef(id=f"t{n}")}) for n in range(AT_A_TIME + 1)]
    path = tmp_path / "records.jsonl"
    found = score_rollouts(path, lm, many, set(), Budget(path, KIND, 1e-9))
    assert len(found) == AT_A_TIME  # some are always played
    assert score_rollouts(path, lm, many, set(), Budget(path, KIND, 1e-9)) == found
    assert len(read(tmp_path / "learnt.jsonl")) == 3
