"""A whole measurement of planning, by a retrieval world whose answers can be told in advance."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.practice.kiosk import Kiosk, Seller
from worldloom.agents import AgentSpec
from worldloom.cli import app
from worldloom.envs import EnvSpec
from worldloom.errors import ConfigError
from worldloom.evaluate.stats import unseen
from worldloom.practice.plan import Search
from worldloom.practice.plan_run import plan
from worldloom.rollout import rollout
from worldloom.runs import read_json
from worldloom.trajectory import write

KIOSK = EnvSpec("tests.practice.kiosk:Kiosk")
SELLER = AgentSpec("tests.practice.kiosk:Seller")
WHO, LABEL = "seller(order=['red', 'green', 'blue'])", "best of 1, depth 3, cost 9"
SETTINGS: dict[str, Any] = {"split": "test", "tasks": 6, "max_steps": 8, "workers": 1}


@pytest.fixture(scope="module")
def winners(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Episodes in which red is taken, sold, and right: a world made of them foresees nothing else."""
    path = tmp_path_factory.mktemp("logs") / "winners.jsonl"
    write(path, [rollout(Kiosk(), Seller(["red"]), str(n), split="train", max_steps=8) for n in (12, 15, 18, 21)])
    return f"retrieval:{path}"


def test_arms_gains_and_foresight(winners: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    found = plan(out, winners, KIOSK, [SELLER], [Search(width=1, depth=3, cost=9)], **SETTINGS)
    alone, planned = (found["utility"]["arms"][name] for name in (f"{WHO}, alone", f"{WHO}, {LABEL}"))
    # Red is taken and sold in every arm: right for two tasks of six. The look-ahead foresees that after two steps.
    for arm, imagined in ((alone, 0), (planned, 12)):
        assert arm["real_success"]["value"] == pytest.approx(1 / 3)
        assert (arm["n_tasks"], arm["real_steps"], arm["imagined_steps"]) == (6, 12, imagined)
    gain = found["utility"]["gain"]
    assert (gain["value"], gain["low"], gain["high"], gain["arm"]) == (0.0, -unseen(6), unseen(6), LABEL)
    assert (gain["fewer_steps"]["value"], gain["best_of"]) == (0.0, 1)
    assert found["overlap"] == {"tasks": 0, "of": 6}  # the world was made of tasks of another split
    told = found["planning"][f"{WHO}, {LABEL}"]
    assert (told["look_aheads"], told["foreseen_successes"]) == (6, 6)
    assert told["tasks_won_of_those_foreseen"]["value"] == pytest.approx(1 / 3)
    assert (
        plan(out, winners, KIOSK, [SELLER], [Search(width=1, depth=3, cost=9)], **SETTINGS)["utility"]
        == found["utility"]
    )
    with pytest.raises(ConfigError, match="holds a run with other settings"):
        plan(out, winners, KIOSK, [SELLER], [Search(width=2, depth=3, cost=9)], **SETTINGS)


def test_the_best_of_several_says_so_and_costs_are_those_that_were(winners: str, tmp_path: Path) -> None:
    searches = [Search(width=1, depth=3, cost=50), Search(width=1, depth=1, cost=3)]
    found = plan(tmp_path, winners, KIOSK, [SELLER], searches, **{**SETTINGS, "tasks": 2})
    gain = found["utility"]["gain"]
    assert (gain["value"], gain["best_of"], gain["arm"]) == (0.0, 2, "best of 1, depth 1, cost 3")  # the cheaper one
    # Two steps an episode are foreseen, at once or one after the other; neither comes to its cost.
    used = {name: arm["imagined_steps"] for name, arm in found["utility"]["arms"].items()}
    assert used == {f"{WHO}, alone": 0, f"{WHO}, {searches[0].label}": 4, f"{WHO}, {searches[1].label}": 4}
    assert "the best of 2" in (tmp_path / "report.html").read_text()


def test_the_command(winners: str, tmp_path: Path) -> None:
    name = "tests.practice.kiosk:Seller"
    where = ["--env", KIOSK.name, "--split", "test", "--tasks", "2", "--workers", "1", "--out", str(tmp_path / "out")]
    search = ["--search", "width=1,depth=3,cost=9", "--record", str(tmp_path / "m.json")]
    words = ["plan", winners, "-a", name, *where, *search]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert f"{WHO}, {LABEL}" in done.output
    assert read_json(tmp_path / "m.json") == read_json(tmp_path / "out" / "metrics.json")


@pytest.mark.parametrize("searches", [[], [Search(), Search()]])
def test_look_aheads_are_given_each_once(winners: str, tmp_path: Path, searches: list[Search]) -> None:
    with pytest.raises(ConfigError, match="one or more look-aheads, each once"):
        plan(tmp_path / "run", winners, KIOSK, [SELLER], searches, **SETTINGS)
