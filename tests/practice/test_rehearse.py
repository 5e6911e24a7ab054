"""Rehearsals in a right world and in broken ones; every figure is worked out by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.practice.kiosk import ExactLM, GivingLM, Kiosk, Seller, SellingLM, Session
from worldloom.agents import AgentSpec
from worldloom.cli import app
from worldloom.envs import EnvSpec
from worldloom.errors import ConfigError
from worldloom.package import PackagedWorld, checked, write_manifest
from worldloom.practice import rehearse_run
from worldloom.practice.limits import Limits, judged, read_limits
from worldloom.practice.rehearse import seen_kinds, swap
from worldloom.practice.rehearse_run import World, rehearse, told
from worldloom.rollout import rollout
from worldloom.runs import read_json, write_json
from worldloom.trajectory import EnvRef, Step, TaskRef, Trajectory, read, write

SELLER = "tests.practice.kiosk:Seller"
Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tasks 0..5 want red, green, blue, red, green, blue."""
    path = tmp_path_factory.mktemp("data") / "trajectories.jsonl"
    write(path, [rollout(Kiosk(), Seller(["red"]), str(n), split="test", max_steps=8) for n in range(6)])
    return path


@pytest.fixture
def run(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    def rehearsed(lm: ExactLM, order: list[str], limits: Limits, **more: Any) -> dict[str, Any]:
        monkeypatch.setattr(rehearse_run, "open_lm", lambda model: lm)
        world = World("a world", data, more.pop("seen", data), more.pop("env", None))
        return rehearse(tmp_path / "out", AgentSpec(SELLER, {"order": order}), world, limits, max_steps=6, **more)

    return rehearsed


def values(report: dict[str, Any]) -> dict[str, float]:
    return {name: round(rate["value"], 3) for name, rate in report["measured"].items()}


def unmet(report: dict[str, Any]) -> list[str]:
    return [verdict["limit"] for verdict in report["limits"] if not verdict["met"]]


def test_in_a_right_world(run: Run, tmp_path: Path) -> None:
    limits = Limits(min_success=0.3, unsure_below=0.5)
    report = run(ExactLM(), ["blue"], limits, env=EnvSpec("tests.practice.kiosk:Kiosk"), workers=1)
    assert values(report) == {
        "success": 0.333, "idle_success": 0.0,
        "swapped_success": 0.333,  # this seller does the same whatever the task
        "errors": 0.0, "unfinished": 0.0, "unsure": 0.0, "new_actions": 0.0, "false_success": 0.0,
    }  # fmt: skip
    assert report["measured"]["success"]["n"] == 6
    assert (report["passed"], unmet(report)) == (True, [])
    sale, take = report["riskiest"]
    assert sale == {"action": "sell", "steps": 6, "failures": 4, "in_lost": 4, "unsure": 0.0, "new": False,
                    "example": "sell"}  # fmt: skip
    assert (take["action"], take["failures"]) == ("take blue", 0)
    assert read_json(tmp_path / "out" / "rehearsal.json") == report
    page = (tmp_path / "out" / "report.html").read_text()
    assert "NOT MET" not in page and "take blue" in page
    assert told(report).endswith("passed")


def test_an_agent_that_wins_only_because_the_world_gives_success_away_is_caught(run: Run) -> None:
    report = run(GivingLM(), ["red"], Limits())
    assert values(report)["success"] == values(report)["idle_success"] == 1.0
    assert not report["passed"]
    assert unmet(report) == ["max_idle_success", "max_swapped_success"]


def test_a_world_in_which_every_sale_succeeds_is_caught_by_swapped_actions_and_by_reality(run: Run) -> None:
    limits = Limits(max_false_success=0.1)
    report = run(SellingLM(), ["red"], limits, env=EnvSpec("tests.practice.kiosk:Kiosk"), workers=1)
    found = values(report)
    assert (found["success"], found["idle_success"], found["swapped_success"]) == (1.0, 0.0, 1.0)
    assert found["false_success"] == pytest.approx(4 / 6, abs=1e-3)  # red was wanted in two tasks of six
    assert unmet(report) == ["max_swapped_success", "max_false_success"]


@pytest.mark.parametrize(
    ("jammed", "replays", "false"),
    [
        (["3"], {"confirmed": 1, "refuted": 4, "broken": 1}, 0.8),  # red was wanted in tasks 0 and 3
        ([str(n) for n in range(6)], {"confirmed": 0, "refuted": 0, "broken": 6}, None),
    ],
)
def test_a_replay_that_broke_refutes_nothing(
    run: Run, tmp_path: Path, jammed: list[str], replays: dict[str, int], false: float | None
) -> None:
    real = EnvSpec("tests.practice.kiosk:Jammed", {"tasks": jammed})
    report = run(SellingLM(), ["red"], Limits(max_swapped_success=None, max_false_success=0.9), env=real, workers=1)
    assert report["replays"] == replays
    assert values(report).get("false_success") == false
    assert unmet(report) == ([] if false else ["max_false_success"])  # of nothing that is known there is no share
    assert ", ".join(f"{n} {name}" for name, n in replays.items()) in told(report)
    assert "replays: broken" in (tmp_path / "out" / "report.html").read_text()


def test_tasks_that_the_world_learnt_are_told(data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(f"retrieval:{data}", data)
    report = rehearse(tmp_path / "out", AgentSpec(SELLER), world, Limits(), tasks=4, max_steps=3)
    assert report["overlap"] == {"tasks": 4, "of": 4}
    assert "was trained on 4 of the 4 tasks that it is rehearsed on" in caplog.text
    assert "replays" not in report


RULES = "Be kind to customers.\n\n"


class ToldLM(ExactLM):
    """Keeps what it is told of the beginnings."""

    def __init__(self) -> None:
        super().__init__()
        self.told: set[str] = set()

    def session(self, initial_context: str | None, initial_observation: str, env: str | None = None) -> Session:
        self.told.add(initial_observation)
        return super().session(initial_context, initial_observation, env)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A world that learnt task 0 and 1, of four; all its episodes began with the same rules."""
    folder = tmp_path / "package"
    tasks = [("0", "train"), ("1", "train"), ("2", "test"), ("3", "test")]
    episodes = [rollout(Kiosk(), Seller(), task, split=split, max_steps=8) for task, split in tasks]
    write(folder / "starts.jsonl", [episode.model_copy(update={"steps": []}) for episode in episodes])
    write(folder / "work" / "data" / "train.jsonl", episodes[:2])
    write_json(folder / "model" / "train.json", {"data": [str(folder / "work" / "data" / "train.jsonl")]})
    write_manifest(folder, "kiosk-logs", "kiosk", RULES)
    return folder


def test_a_package_brings_its_tasks_and_what_they_all_began_with(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = ToldLM()
    monkeypatch.setattr(rehearse_run, "load_world", lambda folder: PackagedWorld(package, checked(package), lm, {}))
    agent, limits = AgentSpec(SELLER, {"order": ["blue"]}), Limits(min_success=0.5)
    report = rehearse(tmp_path / "out", agent, World(str(package)), limits, max_steps=6)
    # Held out are task 2, which wants blue, and task 3, which wants red.
    assert (report["n_tasks"], report["passed"], report["overlap"]) == (2, True, {"tasks": 0, "of": 2})
    assert (values(report)["success"], values(report)["new_actions"]) == (0.5, 0.0)
    for file in ("agent.jsonl", "idle.jsonl", "swapped.jsonl"):
        played = read(tmp_path / "out" / file)
        assert sorted(t.task.id for t in played) == ["2", "3"]
        assert {(t.env.name, t.initial_observation) for t in played} == {
            ("world-model:kiosk-logs", RULES + "A customer comes.")
        }
    assert lm.told == {"A customer comes."}
    # Logs as they were before the rules were taken away are not told these twice.
    whole = [rollout(Kiosk(), Seller(), task, split="train", max_steps=8) for task in ("0", "1")]
    told_again = [t.model_copy(update={"initial_observation": RULES + t.initial_observation}) for t in whole]
    write(tmp_path / "whole.jsonl", told_again)
    report = rehearse(tmp_path / "again", agent, World(str(package), tmp_path / "whole.jsonl"), limits, max_steps=6)
    assert report["overlap"] == {"tasks": 2, "of": 2}
    assert {t.initial_observation for t in read(tmp_path / "again" / "agent.jsonl")} == {RULES + "A customer comes."}
    assert lm.told == {"A customer comes."}


def test_without_a_package_beginnings_have_to_be_given(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"runs/model is no world package, .*: give episodes \(--data\)"):
        rehearse(tmp_path / "out", AgentSpec(SELLER), World("runs/model"), Limits())
    assert not (tmp_path / "out").exists()


def test_where_a_world_is_not_to_be_trusted(run: Run, tmp_path: Path) -> None:
    seen = tmp_path / "seen.jsonl"
    write(seen, [Trajectory(env=EnvRef(name="kiosk"), task=TaskRef(id="9"), initial_observation="A customer comes.",
                            steps=[Step(action="take red", observation="You take red.")])])  # fmt: skip
    report = run(ExactLM(sure=0.4), ["blue"], Limits(min_success=None), seen=seen)
    assert (values(report)["unsure"], values(report)["new_actions"]) == (1.0, 0.5)  # of "take" and "sell" one is new
    assert unmet(report) == ["max_unsure", "max_new_actions"]
    assert report["riskiest"][0]["new"] is True


def test_what_cannot_be_measured_is_not_met(run: Run) -> None:
    report = run(ExactLM(), ["blue"], Limits(min_success=0.3, max_false_success=0.5), seen=None)
    assert "new_actions" not in report["measured"] and "false_success" not in report["measured"]
    assert unmet(report) == ["max_new_actions", "max_false_success"]
    assert "not measured" in told(report)


def test_actions_are_swapped_with_those_of_the_next_task() -> None:
    episodes = [rollout(Kiosk(), Seller([c]), str(n), max_steps=8) for n, c in enumerate(["red", "green", "blue"])]
    assert swap(episodes) == {"0": ["take green", "sell"], "1": ["take blue", "sell"], "2": ["take red", "sell"]}
    assert swap(episodes[:1]) == {}
    assert seen_kinds(episodes) == {"take", "sell"}


def test_limits_are_read_and_judged(tmp_path: Path) -> None:
    path = tmp_path / "limits.yaml"
    path.write_text("min_success: 0.7\nmax_unsure: null\n")
    limits = read_limits(path)
    assert (limits.min_success, limits.max_unsure, limits.max_idle_success) == (0.7, None, 0.05)
    found = {v.limit: v.met for v in judged(limits, {"success": 0.7, "idle_success": 0.05, "swapped_success": 0.6})}
    assert (found["min_success"], found["max_idle_success"], found["max_swapped_success"]) == (True, True, False)
    assert "max_unsure" not in found and found["max_errors"] is False
    assert read_limits(None) == Limits()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("min_sucess: 0.7", "unknown limit 'min_sucess'; did you mean 'min_success'"),
        ("min_success: 7", "min_success: Input should be less than or equal to 1"),
        ("min_success: [", "is not YAML"),
        ("- 1", "must hold KEY: VALUE lines"),
        ("", "must hold KEY: VALUE lines"),
    ],
)
def test_wrong_limits_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "limits.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        read_limits(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_limits(tmp_path / "none.yaml")


@pytest.fixture(scope="module")
def giving(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs in which everything succeeds at once: a retrieval world made of them is broken."""
    path = tmp_path_factory.mktemp("giving") / "trajectories.jsonl"
    won = {"observation": "Well done.", "terminal": "success"}
    write(path, [
        Trajectory(env=EnvRef(name="kiosk"), task=TaskRef(id=str(n)), initial_observation="A customer comes.",
                   steps=[Step(action=action, **won)])
        for n, action in enumerate(["look", "wait", "do nothing", "take red", "sell"])
    ])  # fmt: skip
    return path


def exit_code(tmp_path: Path, *arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["rehearse", *map(str, arguments), "--out", str(tmp_path / "out")])
    return done.exit_code, done.output


def test_the_exit_code_is_for_continuous_integration(giving: Path, data: Path, tmp_path: Path) -> None:
    world = f"retrieval:{giving}"
    code, said = exit_code(tmp_path / "a", SELLER, world, "--data", data)
    assert (code, "FAIL max_idle_success 0.05: 1.000" in said) == (1, True)
    lenient = tmp_path / "limits.yaml"
    lenient.write_text("max_idle_success: null\nmax_swapped_success: null\nmax_unsure: null\nmax_new_actions: 0\n")
    code, said = exit_code(tmp_path / "b", SELLER, world, "--data", data, "--seen", giving, "--limits", lenient)
    assert (code, said.strip().splitlines()[-2]) == (0, "passed")
    lenient.write_text("max_idle: null\n")
    code, said = exit_code(tmp_path / "c", SELLER, world, "--data", data, "--limits", lenient)
    assert (code, "unknown limit 'max_idle'" in said) == (2, True)
    assert exit_code(tmp_path / "d", SELLER, "retrieval:nowhere", "--data", data)[0] == 2
    assert exit_code(tmp_path / "e", SELLER, world)[0] == 2  # no --data
    (tmp_path / "f").write_text("a file where a folder is wanted")
    assert exit_code(tmp_path / "f", SELLER, world, "--data", data)[0] == 2
