"""The whole way from logs to a world, on a tiny model: the account, the package, kills. Mechanics, not claims."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.building.shop import MAIL, NAME, TASKS, TRIALS, write_logs
from tests.ingest.samples import POLICY
from tests.killing import kill_when
from worldloom import load_world
from worldloom.building.config import BuildConfig
from worldloom.building.episodes import common_beginning
from worldloom.building.run import build
from worldloom.cli import main
from worldloom.envs import EnvSpec
from worldloom.envs.check import check_env
from worldloom.errors import ConfigError, DataError
from worldloom.evaluate.tables import table
from worldloom.play import play
from worldloom.redact.rules import Rules
from worldloom.runs import read_json, read_records
from worldloom.trajectory import read

ROOT = Path(__file__).parents[2]
STEPS = 5  # of each conversation


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "chats.jsonl"
    write_logs(path)
    return path


def settings(model: Path, **changes: Any) -> BuildConfig:
    train = {"model": str(model), "steps": 2, "batch": 2, "max_tokens": 500, "precision": "float32"}
    return BuildConfig(
        **{"name": "shop", "train": train, "test": 0.25, "few_shot": 2, "rules": Rules((NAME,)), **changes}
    )


@pytest.fixture(scope="module")
def world(logs: Path, tiny_lm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("worlds") / "shop"
    build([logs], out, settings(tiny_lm_folder))
    return out


def test_every_record_is_accounted_for(world: Path) -> None:
    ingest = read_json(world / "metrics.json")["ingest"]
    assert (ingest["files"], ingest["records"], ingest["episodes"], ingest["steps"]) == (1, 18, 16, 80)
    assert ingest["outcomes"] == {"success": 8, "failure": 8}
    assert ingest["skipped"] == {"is not JSON in UTF-#": 1, "no agent acts in it": 1}
    assert ingest["became"] == {"train": 12, "test": 4, "left_out_as_splits_would_share_them": 0}
    assert ingest["measured"] == {"held_out": 4, "one_step": 4, "rollouts": 4}
    assert ingest["redacted"] == {"NAME": 32, "EMAIL": 32}  # in the first observation, and as the instruction
    assert ingest["unaccounted"] == 0
    tasks = {name: {t.task.id for t in read(world / "work" / "data" / f"{name}.jsonl")} for name in ("train", "test")}
    assert (len(tasks["train"]), len(tasks["test"])) == (6, 2) and not tasks["train"] & tasks["test"]


def test_nothing_is_written_before_it_is_redacted(world: Path) -> None:
    files = [path for path in world.rglob("*") if path.is_file()]
    assert len(files) > 30
    assert not [path for path in files if MAIL.encode() in path.read_bytes() or NAME.encode() in path.read_bytes()]


def test_what_is_measured_stands_beside_baselines(world: Path) -> None:
    metrics = read_json(world / "metrics.json")
    one, rollouts = metrics["one_step"], metrics["rollouts"]
    assert (one["n_episodes"], one["n_steps"]) == (4, 20)
    # Orders differ in nothing but their number, which the call says; trials in what is said to the question, and in
    # their end: of the five steps the three calls are right, of the others every second one.
    nearest = one["baselines"]["nearest_reply"]
    assert (nearest["n_steps"], nearest["em"]["value"]) == (20, 0.8)
    assert nearest["tool_answers"]["schema_agreement"]["value"] == 1.0
    assert one["baselines"]["few_shot"]["n_episodes"] == one["baselines"]["few_shot"]["world_model"]["n_episodes"] == 2
    assert one["strata"]["tool_call"]["n"] == 12 and one["strata"]["no_tool_call"]["n"] == 8
    assert rollouts["n_episodes"] == 4 and rollouts["verdicts"]["n"] == 4
    assert metrics["provenance"]["seconds"] > 0 and metrics["model"] == "model"
    assert "consistency" not in metrics
    assert "no Real and no W2R" in (world / "report.html").read_text()
    assert "shop-logs" in table({"shop-logs": metrics})


def test_the_card_says_what_it_is(world: Path) -> None:
    text = (world / "WORLD.md").read_text()
    assert text.startswith("# shop\n")
    for told in (
        "made from 16 episodes with 80 steps, 8 success, 8 failure",
        "| episodes: train | 12 |",
        "| skipped: no agent acts in it | 1 |",
        "| unaccounted for | 0 |",
        "| reply to the nearest logged action | ",
        "| the base model, shown three episodes (does not fit the model's window) | - |",
        "| EMAIL | 32 |",
        "There is no environment to replay these logs in",
        "Split by task, seed 0",
    ):
        assert told in text
    assert MAIL not in text and NAME not in text and str(world) not in text


def test_a_package_loads_in_one_line_wherever_it_is(world: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(world, moved, ignore=shutil.ignore_patterns("work"))
    with load_world(moved, max_new_tokens=8) as shop:
        assert (shop.name, shop.splits) == ("world-model:shop", ("train", "test"))
        assert len(shop.task_ids("train")) == 6 and len(shop.task_ids("test")) == 2
        first = shop.reset(shop.task_ids("test")[0])
        assert first.text.startswith(f"{POLICY}\n\nTools:\n") and first.text.endswith("I am <NAME_1>, <EMAIL_1>.")
        start = shop.starts[shop.task_ids("test")[0]].observation.text
        assert start.startswith("Cancel order") and len(start) < len(first.text)  # the model reads no more than this
        shop.step("look")
        assert shop.fork().version == shop.version == load_world(world).version
        assert "model" not in shop.options


def test_a_package_is_checked_when_it_is_loaded(world: Path, tmp_path: Path) -> None:
    moved = tmp_path / "broken"
    shutil.copytree(world, moved, ignore=shutil.ignore_patterns("work"))
    weights = moved / "model" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(DataError, match=r"model\.safetensors: is not the file that was built; copy the whole folder"):
        load_world(moved)
    weights.unlink()
    with pytest.raises(DataError, match=r"model\.safetensors: is missing from the world package"):
        load_world(moved)
    (moved / "world.json").write_text("{}")
    with pytest.raises(DataError, match="of no schema that is known"):
        load_world(moved)
    (moved / "world.json").unlink()
    with pytest.raises(DataError, match="is no world package"):
        load_world(moved)
    with pytest.raises(ConfigError, match=r"has no world\.json"):
        EnvSpec(str(moved)).build()


def test_a_package_is_an_environment(world: Path) -> None:
    told: list[str] = []
    play(EnvSpec(str(world), {"max_new_tokens": 8}), lambda: None, told.append)
    assert told[0].startswith("world-model:shop order-")
    report = check_env(lambda: load_world(world, max_new_tokens=4), max_steps=2, raise_on_problem=False)
    assert report.ok, str(report)


def test_a_finished_build_is_left_alone_and_other_settings_are_refused(
    world: Path, logs: Path, tiny_lm_folder: Path, tmp_path: Path
) -> None:
    before = {path: path.stat().st_mtime_ns for path in world.rglob("*") if path.is_file()}
    told: list[str] = []
    assert build([logs], world, settings(tiny_lm_folder), tell=told.append) == read_json(world / "metrics.json")
    assert told[0] == "1/7 ingest and redact: done before" and len(told) == 7
    assert {path: path.stat().st_mtime_ns for path in world.rglob("*") if path.is_file()} == before
    with pytest.raises(ConfigError, match=r"test: 0\.25 there, 0\.5 now"):
        build([logs], world, settings(tiny_lm_folder, test=0.5))
    shutil.copytree(world, tmp_path / "given", ignore=shutil.ignore_patterns("work"))
    with pytest.raises(ConfigError, match="finished world without its work folder"):
        build([logs], tmp_path / "given", settings(tiny_lm_folder))


def measured(out: Path) -> dict[str, Any]:
    """The metrics without times."""
    metrics: dict[str, Any] = read_json(out / "metrics.json")
    assert metrics["train"]["data"] == ["work/data/train.jsonl"]
    train = {k: v for k, v in metrics.pop("train").items() if k not in ("seconds", "tokens_per_second", "data")}
    return {**{k: v for k, v in metrics.items() if k != "provenance"}, "train": train}


def lines(path: Path, count: int) -> bool:
    return path.exists() and path.read_bytes().count(b"\n") >= count


def test_kills_change_nothing(world: Path, logs: Path, tiny_lm_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    words = ["build", logs, "--out", out, "--title", "shop", "--test", "0.25", "--few-shot", "2", "--name", NAME]
    train = {"model": str(tiny_lm_folder), "steps": 2, "batch": 2, "max_tokens": 500, "precision": "float32"}
    words += [word for name, value in train.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-c", "from worldloom.cli import main; main()", *map(str, words)]
    work = out / "work"
    moments: list[Callable[[], bool]] = [
        partial(lines, work / "ingest" / "trajectories.jsonl", 1),
        (work / "train" / "config.json").exists,
        partial(lines, work / "evaluate" / "records.jsonl", 5),  # four episodes scored, a rollout played
    ]
    for moment in moments:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        kill_when(process, moment, 1500)
        assert not (out / "world.json").exists()
    assert not [path for path in out.rglob("*") if path.is_file() and NAME.encode() in path.read_bytes()]
    kept = (work / "evaluate" / "records.jsonl").read_bytes()
    build([logs], out, settings(tiny_lm_folder))
    assert measured(out) == measured(world)
    assert (work / "evaluate" / "records.jsonl").read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])
    keys = [(r["kind"], r["key"]) for r in read_records(work / "evaluate" / "records.jsonl")]
    assert len(keys) == len(set(keys)) == 8
    assert (out / "starts.jsonl").read_bytes() == (world / "starts.jsonl").read_bytes()


def test_splits_by_customer_and_by_time(logs: Path, tiny_lm_folder: Path, tmp_path: Path) -> None:
    """Up to the split, which is what differs: customers, who are redacted, have two orders each."""
    from worldloom.building.config import Work
    from worldloom.building.episodes import prepare, read_logs, split_episodes

    config = settings(tiny_lm_folder, by=("metadata.customer",), test=0.25)
    work = Work(tmp_path / "by-customer")
    read_logs([logs], work, config)
    prepare(work)
    split_episodes(work, config)
    held_out = {t.task.id for t in read(work.test)}
    assert len(held_out) == 2 and len({int(task[-1]) % 4 for task in held_out}) == 1
    assert not [path for path in work.folder.rglob("*.jsonl") if b"customer-" in path.read_bytes()]
    (work.folder / "ingest" / "ingest.json").unlink()  # stopped before its end: placeholders are made anew, and alike
    first = (work.folder / "ingest" / "trajectories.jsonl").read_bytes()
    read_logs([logs], work, config)
    assert (work.folder / "ingest" / "trajectories.jsonl").read_bytes() == first

    config = settings(tiny_lm_folder, time="metadata.at", test=0.25)
    work = Work(tmp_path / "by-time")
    read_logs([logs], work, config)
    prepare(work)
    split_episodes(work, config)
    assert {t.task.id for t in read(work.test)} == {"order-6", "order-7"}


def test_the_beginning_that_all_texts_share() -> None:
    assert common_beginning(["Rules.\n\nBe kind.\n\nHi", "Rules.\n\nBe kind.\n\nHello"]) == "Rules.\n\nBe kind.\n\n"
    assert common_beginning(["Rules.\n\nHi", "Rules.\n\nHi"]) == "Rules.\n\n"
    assert common_beginning(["Rules.\n\nHi\n\n", "Rules.\n\nHi\n\nBob"]) == "Rules.\n\n"  # each keeps something
    assert common_beginning(["A hall.", "A hall."]) == ""
    assert common_beginning(["Rules.\n\nHi"]) == ""
    assert common_beginning([]) == ""


def test_settings(tiny_lm_folder: Path) -> None:
    config = BuildConfig("w", minutes=30)
    assert config.training(3000).minutes == 20 and config.measuring_minutes == pytest.approx(10)
    assert [config.training(mean).batch for mean in (100, 900, 3000)] == [4, 2, 1]
    assert BuildConfig("w", train={"minutes": 7}, minutes=30).training(1).minutes == 7
    with pytest.raises(ConfigError, match="did you mean 'epochs'"):
        BuildConfig("w", train={"epoch": 1})
    with pytest.raises(ConfigError, match="minutes is -1"):
        BuildConfig("w", minutes=-1)
    with pytest.raises(ConfigError, match="test is 1"):
        BuildConfig("w", test=1)


def test_mistakes_leave_nothing_behind(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words, told in (
        ([str(logs), "--set", "epoch=1"], "unknown training setting 'epoch'"),
        ([str(logs), "--model", "./nowhere"], "there is no model folder ./nowhere"),
        ([str(tmp_path / "none.jsonl")], "none.jsonl: does not exist"),
        ([str(logs), "--pattern", "x"], "'x' is not KIND=REGEX"),
    ):
        monkeypatch.setattr(sys, "argv", ["worldloom", "build", *words, "--out", str(tmp_path / "out")])
        with pytest.raises(SystemExit):
            main()
        assert told in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
    assert TASKS * TRIALS * STEPS == 80
    assert json.loads(logs.read_text().splitlines()[0])["task_id"] == "order-0"
