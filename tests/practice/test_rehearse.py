"""Rehearsals in a right world and in broken ones; every figure is worked out by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.practice.kiosk import ExactLM, GivingLM, Kiosk, Seller, SellingLM
from worldloom.agents import AgentSpec
from worldloom.cli import app
from worldloom.envs import EnvSpec
from worldloom.errors import ConfigError
from worldloom.practice import rehearse_run
from worldloom.practice.limits import Limits, judged, read_limits
from worldloom.practice.rehearse import seen_kinds, swap
from worldloom.practice.rehearse_run import World, rehearse, told
from worldloom.rollout import rollout
from worldloom.runs import read_json
from worldloom.trajectory import EnvRef, Step, TaskRef, Trajectory, write

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
