"""The commands of practice: what they refuse, and that they do what the functions do."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from worldloom.cli import app
from worldloom.cli_practice import settings
from worldloom.errors import ConfigError
from worldloom.practice.guard import GuardConfig
from worldloom.practice.improve import ImproveConfig
from worldloom.trajectory import read


def test_settings_are_checked_by_name_and_kind() -> None:
    assert settings(ImproveConfig, ["rounds=5", "temperature=0.5"]) == ImproveConfig(rounds=5, temperature=0.5)
    assert settings(GuardConfig, ["every=5", "every=2"]) == GuardConfig(every=2)
    with pytest.raises(ConfigError, match="unknown setting 'round'; did you mean 'rounds'"):
        settings(ImproveConfig, ["round=5"])
    with pytest.raises(ConfigError, match="setting rounds: Input should be a valid integer"):
        settings(ImproveConfig, ["rounds=many"])


def test_one_command_plays_in_reality_by_its_name(tmp_path: Path) -> None:
    told = ["imagine", "--env", "tests.envs.corridor:Corridor", "--option", "longest=3", "--agent",
            "tests.envs.corridor:Walker", "--tasks", "2", "--out", str(tmp_path)]  # fmt: skip
    done = CliRunner().invoke(app, told, catch_exceptions=False)
    assert done.exit_code == 0
    summary = json.loads(done.stdout)
    assert (summary["kept"], summary["outcomes"]) == (2, {"success": 2})
    assert len(read(tmp_path / "trajectories.jsonl")) == 2


def test_mistakes_leave_no_run(tmp_path: Path) -> None:
    told = ["imagine", "--agent", "gold", "--out", str(tmp_path / "run")]
    for env, match in (
        ("world-model:alfworld", "write world-model:NAME=MODEL"),
        ("alfwrld", "did you mean 'alfworld'"),
    ):
        with pytest.raises(ConfigError, match=match):
            CliRunner().invoke(app, [*told, "--env", env], catch_exceptions=False)
    assert not (tmp_path / "run").exists()
