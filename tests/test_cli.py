import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from worldloom.cli import agent_specs, main
from worldloom.cli_text import pairs
from worldloom.envs import ENVIRONMENTS
from worldloom.errors import ConfigError
from worldloom.runs import read_json
from worldloom.trajectory import EnvRef, Step, TaskRef, Trajectory, write

ROOT = Path(__file__).parents[1]
MAIN = [sys.executable, "-c", "from worldloom.cli import main; main()"]


def worldloom(*arguments: str | Path, timeout: float = 120, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MAIN, *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False,
        env={**os.environ, "COLUMNS": "300", **env},
    )  # fmt: skip


def test_help_answers_within_a_second() -> None:
    assert any(seconds_of_help() < 1.0 for _ in range(10))  # a busy machine may be slow, but not always


def seconds_of_help() -> float:
    started = time.monotonic()
    done = worldloom("--help")
    assert done.returncode == 0
    assert all(stage in done.stdout for stage in ("demo", "collect", "train", "evaluate", "envs"))
    return time.monotonic() - started


def test_naming_the_commands_imports_nothing_heavy() -> None:
    code = (
        "import sys, worldloom, worldloom.cli; worldloom.cli.default_agents('alfworld'); "
        "print([m for m in ('torch', 'transformers', 'textworld', 'alfworld', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "command",
    [
        "demo",
        "collect",
        "record",
        "conversations",
        "train",
        "evaluate",
        "study",
        "transfer",
        "envs",
        "verify",
        "plan",
        "rehearse",
        "build",
        "imagine",
        "improve",
        "grpo",
        "recipe",
        "report",
    ],
)
def test_every_command_has_help(command: str) -> None:
    done = worldloom(command, "--help")
    assert done.returncode == 0
    assert "Usage" in done.stdout


ERRORS = {
    "environment": (["envs", "check", "alfwrld"], "unknown environment 'alfwrld'; did you mean 'alfworld'?"),
    "nothing to fetch": (["fetch", "alfworld"], "nothing is fetched for 'alfworld'; known: webshop"),
    "option": (["envs", "check", "alfworld", "-o", "game=official"], "unexpected keyword argument 'game'"),
    "option without a value": (["envs", "check", "alfworld", "-o", "games"], "'games' is not KEY=VALUE"),
    "games folder": (
        ["collect", "--out", "{tmp}/r", "-o", "games=official", "-o", "data={tmp}/none"],
        "official ALFWorld games are not at {tmp}/none: run `alfworld-download` and set ALFWORLD_DATA",
    ),
    "agent": (["collect", "--out", "{tmp}/r", "-a", "scripted-alfwrld"], "did you mean 'scripted-alfworld'?"),
    "split": (["collect", "--out", "{tmp}/r", "--split", "tests"], "alfworld has no split 'tests'; it has train, "),
    "too many tasks": (["collect", "--out", "{tmp}/r", "--split", "ood", "--tasks", "501"], "501 tasks asked"),
    "training setting": (["train", "{tmp}/t.jsonl", "--out", "{tmp}/m", "-s", "epoch=1"], "did you mean 'epochs'?"),
    "training data": (["train", "{tmp}/none.jsonl", "--out", "{tmp}/m"], "{tmp}/none.jsonl: cannot be read"),
    "model folder": (
        ["evaluate", "{tmp}/none", "--out", "{tmp}/e", "--data", "{tmp}/t.jsonl"],
        "there is no model folder {tmp}/none; train one, or give 'smollm2-135m' or a hub id",
    ),
    "nothing to do": (["evaluate", "x", "--out", "{tmp}/e"], "nothing to evaluate: give real episodes"),
    "anchor": (["evaluate", "x", "--out", "{tmp}/e", "--anchor", "frist=1"], "did you mean 'first'?"),
    "study": (["study", "dta", "--out", "{tmp}/s"], "unknown study 'dta'; did you mean 'data'?"),
    "study setting": (["study", "data", "--out", "{tmp}/s", "-s", "tsks=3"], "did you mean 'tasks'?"),
    "no evaluation": (["transfer", "{tmp}/none"], "{tmp}/none/metrics.json: cannot be read"),
    "nothing to score again": (["rescore", "{tmp}/none"], "{tmp}/none/metrics.json: cannot be read"),
    "key": (["collect", "--out", "{tmp}/r", "-a", "llm:model=m,api_key=sk-1"], "api_key would be written down"),
    "gold": (["envs", "check", "alfworld", "-o", "gold=maybe"], "gold must be of type bool, not 'maybe'"),
    "out is a file": (["collect", "--out", "{tmp}/t.jsonl", "--tasks", "1"], "{tmp}/t.jsonl is a file; give a folder"),
    "out within a file": (["collect", "--out", "{tmp}/t.jsonl/r", "--tasks", "1"], "t.jsonl/r: Not a directory"),
    "no split": (["evaluate", "x", "--out", "{tmp}/e", "-a", "gold", "--env", "alfworld"], "needs an environment"),
}  # fmt: skip


def test_threads_that_wait_sleep_soon_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    def waiting(**told: str) -> tuple[str | None, str | None]:
        for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
            monkeypatch.delenv(name, raising=False)
        for name, value in told.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit):
            main()
        return os.environ.get("OMP_WAIT_POLICY"), os.environ.get("GOMP_SPINCOUNT")

    monkeypatch.setattr(sys, "argv", ["worldloom", "--help"])
    assert waiting() == ("PASSIVE", "1000")
    assert waiting(GOMP_SPINCOUNT="7") == ("PASSIVE", "7")
    assert waiting(OMP_WAIT_POLICY="ACTIVE") == ("ACTIVE", None)


@pytest.mark.parametrize(("arguments", "message"), ERRORS.values(), ids=ERRORS.keys())
def test_an_error_is_one_line_without_a_traceback(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    step = Step(action="look", observation="A room.")
    row = Trajectory(env=EnvRef(name="e"), task=TaskRef(id="t"), initial_observation="x", steps=[step])
    write(tmp_path / "t.jsonl", [row])
    monkeypatch.setattr(sys, "argv", ["worldloom", *(text.format(tmp=tmp_path) for text in arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    out, told = capsys.readouterr()
    assert out == ""
    (line,) = told.splitlines()
    assert line.startswith("error: ")
    assert message.format(tmp=tmp_path) in line


def test_an_error_of_the_real_command_is_one_line_without_a_traceback() -> None:
    done = worldloom("envs", "check", "alfwrld")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: unknown environment 'alfwrld'; did you mean 'alfworld'?\n"


def test_a_mistake_leaves_no_run_behind_that_refuses_the_corrected_command(tmp_path: Path) -> None:
    out, common = tmp_path / "run", ["--env", "tests.envs.corridor:Corridor", "-a", "gold", "--tasks", "1"]
    assert "no split 'tets'" in worldloom("collect", "--out", out, *common, "--split", "tets").stderr
    assert not out.exists()
    assert worldloom("collect", "--out", out, *common, "--split", "test").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["colect"], "Did you mean 'collect'?"),
        (["collect", "--out", "x", "--task", "1"], "No such option: --task"),
        (["collect"], "Missing option '--out'"),
        (["collect", "--out", "x", "--tasks", "many"], "Invalid value for '--tasks'"),
        (["collect", "--out", "x", "--max-steps", "0"], "Invalid value for '--max-steps'"),
        (["collect", "--out", "x", "--workers", "0"], "Invalid value for '--workers'"),
        (["demo", "--minutes", "nan"], "Invalid value for '--minutes'"),
        (["evaluate", "x", "--out", "x", "--record", "docs"], "Invalid value for '--record'"),
    ],
)
def test_wrong_usage_is_told_with_a_suggestion(arguments: list[str], message: str) -> None:
    done = worldloom(*arguments)
    assert done.returncode == 2
    assert message in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


def test_the_environments_are_listed() -> None:
    lines = worldloom("envs").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(ENVIRONMENTS)
    states = {line.split()[0]: line.split()[1] for line in lines}
    assert set(states.values()) <= {"ready:", "missing:"}
    assert "worldloom fetch webshop" in worldloom("envs", WEBSHOP_DATA="/nowhere").stdout


def test_a_check_prints_its_report() -> None:
    done = worldloom("envs", "check", "tests.envs.corridor:Corridor", "-o", "longest=4")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("corridor 1: ok\n")


def test_a_stop_from_the_keyboard_says_how_to_go_on(tmp_path: Path) -> None:
    code = [
        *MAIN[:2],
        "import signal, time, worldloom.envs.check as check\n"
        # a process started in the background, as CI's may be, ignores the keyboard unless told otherwise
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def wait(spec, **settings): print('begun', flush=True); time.sleep(60)\n"
        "check.check_env = wait\n" + MAIN[2],
    ]
    process = subprocess.Popen(
        [*code, "envs", "check", "alfworld"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert told == "stopped; start the same command again to go on\n"


def test_agents_and_options_are_read_as_they_are_written() -> None:
    assert pairs(["games=official", "gold=true", "n=3", "a=b=c", "s=1.5x"]) == {
        "games": "official", "gold": True, "n": 3, "a": "b=c", "s": "1.5x",
    }  # fmt: skip
    first, second, own = agent_specs(["gold", "scripted-alfworld:skill=0.5,invalid=0", "tests.envs.corridor:Walker"])
    assert (first.name, first.params) == ("gold", {})
    assert (second.name, second.params) == ("scripted-alfworld", {"skill": 0.5, "invalid": 0})
    assert (own.name, own.params) == ("tests.envs.corridor:Walker", {})
    (tuned,) = agent_specs(["tests.test_collect:Wanderer:hurry=0.25"])
    assert (tuned.name, tuned.params) == ("tests.test_collect:Wanderer", {"hurry": 0.25})
    with pytest.raises(ConfigError, match="'skill' is not KEY=VALUE"):
        agent_specs(["gold:skill=1,skill"])


def test_collect_from_the_command_line(tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = worldloom(
        "collect", "--out", out, "--env", "tests.envs.corridor:Corridor", "-o", "longest=4", "--split", "test",
        "-a", "gold:noise=0.2", "-a", "tests.envs.corridor:Walker", "--agents-per-task", "2", "--workers", "1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == read_json(out / "summary.json")
    assert json.loads(done.stdout)["by_agent"] == {"gold(noise=0.2)": {"success": 5}, "walker": {"success": 5}}
    assert "collect: 10/10 episodes" in done.stderr


def test_a_run_of_nothing_but_errors_says_so_and_keeps_them(tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = worldloom(
        "collect", "--out", out, "--env", "tests.envs.corridor:Corridor", "--split", "test", "--tasks", "2",
        "--workers", "1", "-a", "llm:model=m,base_url=http://127.0.0.1:9/v1,retries=0",
    )  # fmt: skip
    assert done.returncode == 1
    told = done.stderr.splitlines()[-1]
    assert told.startswith("error: every one of 2 episodes ended in an error, 2 of them in 'ModelError: ")
    assert read_json(out / "summary.json")["outcomes"] == {"error": 2} == json.loads(done.stdout)["outcomes"]


def test_warnings_of_the_library_show_no_source(tmp_path: Path) -> None:
    path = tmp_path / "trajectories.jsonl"
    path.write_text("{}\n")
    done = worldloom(
        "collect", "--out", tmp_path, "--env", "tests.envs.corridor:Corridor", "--split", "test", "--tasks", "1",
        "--workers", "1", "-a", "tests.envs.corridor:Walker",
    )  # fmt: skip
    assert done.stderr.splitlines()[0] == f"WARNING: left out: {path}:1: env: Field required"
    assert "warnings.warn" not in done.stderr


def test_the_help_of_training_lists_its_settings() -> None:
    lines = [" ".join(line.split()) for line in worldloom("train", "--help").stdout.splitlines()]
    assert "epochs=1.0 (float)" in lines
    assert 'schedule="cosine" (constant, linear, cosine)' in lines
    assert "max_tokens=null (int or null)" in lines
    assert "mixture=null (NAME: NUMBER, ... or null)" in lines
