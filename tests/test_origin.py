import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from worldloom.origin import BEGUN, Origin, begin, hide, provenance, versions
from worldloom.runs import read_records

ROOT = Path(__file__).parents[1]


def test_provenance_says_where_a_result_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/worldloom", "collect", "--out", "x"])
    found = provenance(begin(), 12.345)
    assert found["command"] == "worldloom collect --out x"
    assert found["seconds"] == 12.3
    assert f"{os.cpu_count()} cores" in found["machine"]
    assert found["started"].endswith("+00:00")
    assert found["versions"] == versions()
    assert found["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (found["git_commit"] or "").removesuffix("+changes") == asked.stdout.strip()


def test_what_is_hidden_stands_in_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(["Ada Lovelace"])
    monkeypatch.setattr(sys, "argv", ["worldloom", "build", "--name", "Ada Lovelace", "--name=Ada Lovelace", "x=1"])
    assert begin()["command"] == "worldloom build --name ... --name=... x=1"


def written(path: Path, at: float) -> None:
    path.write_text("x")
    os.utime(path, (at, at))


def test_the_seconds_of_all_starts_are_counted_and_the_first_start_is_named(tmp_path: Path) -> None:
    """The first start was killed 100 seconds after it began, the second 20 seconds after."""
    begun = {"git_commit": "a" * 40, "command": "worldloom evaluate m", "started": "2026-01-01T00:00:00+00:00"}
    starts = [{**begun, "at": 1000.0, "spent": 0.0}, {**begun, "started": "later", "at": 2000.0, "spent": 100.0}]
    (tmp_path / BEGUN).write_text("".join(json.dumps(start) + "\n" for start in starts))
    os.utime(tmp_path / BEGUN, (2000.0, 2000.0))
    (tmp_path / "deep").mkdir()
    written(tmp_path / "deep" / "records.jsonl", 2020.0)
    written(tmp_path / ".lock", 9e9)  # belongs to no start
    found = Origin(tmp_path).told()
    assert found["started"] == "2026-01-01T00:00:00+00:00"
    assert 120.0 <= found["seconds"] < 125.0
    assert found["earlier_commits"] == ["a" * 40]
    assert found["git_commit"] == begin()["git_commit"]
    assert len([*read_records(tmp_path / BEGUN)]) == 3


def test_a_run_that_was_started_once_says_no_more_than_its_own(tmp_path: Path) -> None:
    found = Origin(tmp_path).told()
    assert "earlier_commits" not in found
    assert 0.0 <= found["seconds"] < 5.0
    again = Origin(tmp_path).told()
    assert again["started"] == found["started"] and "earlier_commits" not in again
