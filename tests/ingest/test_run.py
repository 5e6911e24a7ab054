"""A run: the account, going on after a kill, strict, the hook, real logs."""

import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.ingest import samples as made
from worldloom.cli import app
from worldloom.errors import ConfigError, DataError
from worldloom.ingest.run import Settings, ingest
from worldloom.runs import read_json
from worldloom.trajectory import Trajectory, read

ROOT = Path(__file__).parents[2]


def lines(*rows: Any) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two formats, two bad rows, a file that is no log, and one that is not looked at."""
    folder = tmp_path / "logs"
    (folder / "more").mkdir(parents=True)
    rows = [{**made.OPENAI, "id": f"conv-{number}"} for number in range(6)]
    bad, king = '{"broken": ', {"messages": [{"role": "king"}]}
    (folder / "a.jsonl").write_text(lines(*rows[:3], bad, *rows[3:5], king, rows[5]))
    (folder / "more" / "spans.json").write_text(json.dumps(made.otlp_export(made.OTEL_SPANS)))
    (folder / "readme.txt").write_text("hello\nworld\n")
    (folder / ".hidden.jsonl").write_text("{}")
    return folder


def test_everything_is_accounted_for(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    account = ingest([logs], out)
    assert account == read_json(out / "ingest.json")
    assert account["formats"] == {"openai-chat": 1, "otel": 1, "none": 1}
    assert [account[key] for key in ("files", "records", "episodes", "steps", "unaccounted")] == [3, 15, 7, 27, 0]
    assert account["outcomes"] == {"success": 7}
    assert account["merged"] == {"a span that is no GenAI span": 1}
    assert account["skipped"] == {
        "is not JSON in UTF-#": 1,
        "message # has an unknown role": 1,
        "in no format that is known; name one with --format, or the columns of a table with --column; "
        "at #: is not JSON in UTF-#": 1,
    }
    told = [json.loads(line) for line in (out / "skipped.jsonl").read_text().splitlines()]
    assert [(Path(line["file"]).name, line["line"], line["lost"]) for line in told] == [
        ("a.jsonl", 4, True), ("a.jsonl", 7, True), ("spans.json", 1, False), ("readme.txt", 1, True)
    ]  # fmt: skip
    assert told[1]["reason"] == "message 1 has an unknown role"
    assert "king" not in (out / "skipped.jsonl").read_text()  # what nobody has redacted is not told
    assert [e.task.id for e in read(out / "trajectories.jsonl")][:6] == [f"conv-{number}" for number in range(6)]


def test_a_finished_run_is_left_alone_and_other_settings_are_refused(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = ingest([logs], out)
    before = (out / "trajectories.jsonl").read_bytes()
    assert ingest([logs], out) == first
    assert (out / "trajectories.jsonl").read_bytes() == before
    with pytest.raises(ConfigError, match="env: 'logs' there, 'shop' now"):
        ingest([logs], out, Settings(env="shop"))
    (logs / "a.jsonl").write_text("{}")
    with pytest.raises(ConfigError, match="files: "):
        ingest([logs], out)


@pytest.mark.parametrize(
    ("episodes", "skips", "files"), [(0, 0, 0), (0.3, 1, 0), (0.55, 0.5, 0), (1, 1, 0.4), (0.95, 0.8, 0)]
)
def test_a_killed_run_goes_on_to_the_same_end(
    episodes: float, skips: float, files: float, logs: Path, tmp_path: Path
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    ingest([logs], whole)
    shutil.copytree(whole, cut)
    (cut / "ingest.json").unlink()
    for name, share in (("trajectories.jsonl", episodes), ("skipped.jsonl", skips), ("files.jsonl", files)):
        content = (whole / name).read_bytes()
        (cut / name).write_bytes(content[: int(len(content) * share)])
    ingest([logs], cut)
    for name in ("trajectories.jsonl", "skipped.jsonl", "files.jsonl", "ingest.json"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes(), name


def slowly(episode: Trajectory) -> Trajectory:
    """A hook that leaves time to be killed in."""
    time.sleep(0.05)
    return episode


KILLED = """
import sys; from pathlib import Path; from tests.ingest.test_run import slowly; from worldloom.ingest.run import ingest
ingest([Path(sys.argv[1])], Path(sys.argv[2]), change=slowly)
"""


def test_a_kill_loses_nothing_that_was_written(logs: Path, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    process = subprocess.Popen([sys.executable, "-c", KILLED, logs, cut], cwd=ROOT, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (cut / "trajectories.jsonl").exists() or (cut / "trajectories.jsonl").read_bytes().count(b"\n") < 3:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.wait()
    before = (cut / "trajectories.jsonl").read_bytes()
    before = before[: before.rfind(b"\n") + 1]
    assert not (cut / "ingest.json").exists()
    account = ingest([logs], cut, change=slowly)
    assert account == ingest([logs], whole, change=slowly)
    assert (cut / "trajectories.jsonl").read_bytes().startswith(before)
    for name in ("trajectories.jsonl", "skipped.jsonl", "files.jsonl"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes(), name


def test_strict_stops_at_the_first_that_is_lost_and_a_plain_run_goes_on(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(DataError, match=r"a\.jsonl:4: is not JSON in UTF-8"):
        ingest([logs], out, strict=True)
    assert len(read(out / "trajectories.jsonl")) == 3
    assert ingest([logs], out)["episodes"] == 7
    image = {"role": "user", "content": [{"type": "image_url"}]}
    seen = {"messages": [image, {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]}
    for name, content in (("x.txt", "hello"), ("y.jsonl", lines(seen))):
        (tmp_path / name).write_text(content)
        with pytest.raises(DataError, match=f"{name}:1: (in no format|a part cannot be kept: image_url)"):
            ingest([tmp_path / name], tmp_path / f"out-{name}", strict=True)


def test_the_hook_sees_every_episode_before_it_is_written(logs: Path, tmp_path: Path) -> None:
    def hidden(episode: Trajectory) -> Trajectory:
        return Trajectory.from_json(episode.to_json().replace("order", "XXXXX"))

    ingest([logs], tmp_path / "out", change=hidden)
    written = (tmp_path / "out" / "trajectories.jsonl").read_text()
    assert "XXXXX 17" in written and "order 17" not in written
    with pytest.raises(ConfigError, match="change: "):
        ingest([logs], tmp_path / "out")


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: does not exist"):
        ingest([tmp_path / "nowhere"], tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty: holds no files"):
        ingest([tmp_path / "empty"], tmp_path / "out")
    with pytest.raises(ConfigError, match="no format 'openai'; did you mean 'openai-"):
        Settings(format="openai")
    with pytest.raises(ConfigError, match="no column 'actoin'; did you mean 'action'"):
        Settings(columns={"actoin": "x"})
    with pytest.raises(ConfigError, match="max_mb is 0"):
        Settings(max_mb=0)


def test_an_output_folder_within_the_logs_is_not_read(logs: Path) -> None:
    assert ingest([logs], logs / "out") == ingest([logs], logs / "out")
    assert len(read_json(logs / "out" / "config.json")["files"]) == 3


def test_a_trace_over_the_limit_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    path.write_text(lines(*(made.otlp_export([span]) for span in made.OTEL_SPANS)))
    account = ingest([path], tmp_path / "out", Settings(max_mb=0.004))
    assert account["skipped"] == {"records that belong together are over the limit; see --max-mb": 6}
    assert account["unaccounted"] == 0


def test_tau_bench_s_real_airline_log(data_dir: Path, tmp_path: Path) -> None:
    account = ingest([data_dir / "tau-bench" / "gpt-4o-airline.json.gz"], tmp_path)
    # 1,290 + 1,164 messages of the agent, counted in the file itself; 84 rewards of 1; 5 runs that the limit ended
    assert [account[key] for key in ("records", "episodes", "steps", "unaccounted")] == [200, 200, 2454, 0]
    assert account["outcomes"] == {"failure": 111, "success": 84, "truncated": 5}
    assert (account["skipped"], account["merged"], account["left_out"]) == ({}, {}, {})
    episodes = read(tmp_path / "trajectories.jsonl", strict=True)
    assert Counter(Counter(e.task.id for e in episodes).values()) == {4: 50}
    assert sum(step.not_recorded is True for e in episodes for step in e.steps) == 0
    assert sum(step.action.startswith('{"name": ') for e in episodes for step in e.steps) == 1164


def test_swe_agent_s_and_toolbench_s_real_logs(data_dir: Path, tmp_path: Path) -> None:
    account = ingest([data_dir / "swe-agent"], tmp_path / "swe")
    assert [account[key] for key in ("files", "episodes", "unaccounted")] == [10, 10, 0]
    tasks = Counter(t.task.id.rpartition(" (")[0] for t in read(tmp_path / "swe" / "trajectories.jsonl"))
    assert sorted(tasks.values()) == [1, 1, 8] and tasks["TimeDelta serialization precision"] == 8
    for episode in read(tmp_path / "swe" / "trajectories.jsonl", strict=True):
        assert episode.actions[-1] == "submit" and "diff --git" in episode.steps[-1].observation
    account = ingest([data_dir / "toolbench" / "toolbench_runs_800.jsonl.gz"], tmp_path / "tb")
    assert [account[key] for key in ("records", "episodes", "unaccounted")] == [800, 800, 0]


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.write_text("1,cmd,observation\n7,ls,a\n")
    how = ["--out", str(tmp_path / "out"), "--column", "episode=1", "--column", "action=cmd", "--env", "shell"]
    done = CliRunner().invoke(app, ["ingest", str(path), *how])
    assert (done.exit_code, json.loads(done.stdout)["episodes"]) == (0, 1)
    (episode,) = read(tmp_path / "out" / "trajectories.jsonl")
    assert (episode.env.name, episode.task.id, episode.actions) == ("shell", "7", ["ls"])


def test_rows_without_an_id_are_told_apart_by_file_and_place(tmp_path: Path) -> None:
    row = {key: value for key, value in made.OPENAI.items() if key != "id"}
    for name in ("a/x.v1.jsonl", "b/x.v1.jsonl", "b/x.v2.jsonl"):
        (tmp_path / "logs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "logs" / name).write_text(lines(row, row))
    ingest([tmp_path / "logs"], tmp_path / "out")
    ids = [episode.task.id for episode in read(tmp_path / "out" / "trajectories.jsonl")]
    assert ids == ["a/x.v1/1", "a/x.v1/2", "b/x.v1/1", "b/x.v1/2", "b/x.v2/1", "b/x.v2/2"]


def test_numbers_beyond_64_bits_are_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines({**made.TABLE[1], "reward": 10**400, "step": 10**30}))
    account = ingest([tmp_path / "a.jsonl"], tmp_path / "out")
    assert (account["episodes"], account["unaccounted"]) == (1, 0)


def test_fields_of_a_record_can_be_kept(tmp_path: Path) -> None:
    about = {"customer": {"id": 7, "name": "Mara"}, "at": "2026-01-01", "more": 1}
    rows = [{**made.OPENAI, "metadata": about}, {**made.OPENAI, "id": "other"}]
    (tmp_path / "a.jsonl").write_text(lines(*rows))
    ingest([tmp_path / "a.jsonl"], tmp_path / "out", Settings(keep=("metadata.customer.id", "metadata.at")))
    first, second = read(tmp_path / "out" / "trajectories.jsonl")
    assert first.metadata == {"customer": {"id": 7}, "at": "2026-01-01"}  # type: ignore[attr-defined]
    assert not hasattr(second, "metadata")
    with pytest.raises(ConfigError, match="keep names steps, which every episode has of its own"):
        Settings(keep=("steps.x",))


def test_fields_are_kept_of_rows_that_belong_together(tmp_path: Path) -> None:
    rows = [{"episode": "e", "step": n, "action": "go", "observation": "on", "customer": "c"} for n in range(2)]
    (tmp_path / "a.jsonl").write_text(lines(*rows))
    ingest([tmp_path / "a.jsonl"], tmp_path / "out", Settings(keep=("customer",)))
    (episode,) = read(tmp_path / "out" / "trajectories.jsonl")
    assert (len(episode.steps), episode.customer) == (2, "c")  # type: ignore[attr-defined]
