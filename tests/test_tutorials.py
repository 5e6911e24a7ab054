"""Each tutorial's commands and Python, in order, at small size: some records, a tiny model, one step of training."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.test_readme import ROOT, blocks, commands
from worldloom.cli import app
from worldloom.runs import read_json

TUTORIALS = ROOT / "docs" / "tutorials"
NEEDS_A_SERVER = "llm:"
SMALL = ("steps=1", "batch=1", "precision=float32")


def with_window(tiny: Path, folder: Path, tokens: int) -> Path:
    """The tiny model with a window that first observations fit and not much more; its positions have no weights."""
    shutil.copytree(tiny, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": tokens}))
    return folder


def airline(data: Path, to: Path) -> int:
    """The first runs on five requests."""
    with gzip.open(data / "tau-bench" / "gpt-4o-airline.json.gz") as file:
        rows = [row for row in json.load(file) if row["task_id"] < 5 and row["trial"] < 2]
    with gzip.open(to / "gpt-4o-airline.json.gz", "wt") as file:
        json.dump(rows, file)
    return len(rows)


def swe_agent(data: Path, to: Path) -> int:
    shutil.copytree(data / "swe-agent", to / "swe-agent")
    return len(list((to / "swe-agent").iterdir()))


def toolbench(data: Path, to: Path) -> int:
    """The first runs that were offered tools of few words."""
    (source,) = (data / "toolbench").glob("toolbench_runs_*.jsonl.gz")
    with gzip.open(source, "rt", encoding="utf-8") as file:
        rows = [line for line in file if len(json.dumps(json.loads(line)["functions"])) < 3000][:24]
    (to / "toolbench_runs.jsonl").write_text("".join(rows), encoding="utf-8")
    return len(rows)


@pytest.mark.parametrize(
    ("name", "world", "records", "folder", "window"),
    [
        ("support-desk", "airline", airline, "tau-bench", 512),
        ("developer-tools", "terminal", swe_agent, "swe-agent", 2000),
        ("tool-apis", "apis", toolbench, "toolbench", 2000),
    ],
)
def test_a_tutorial(
    name: str, world: str, records: Callable[[Path, Path], int], folder: str, window: int, data_dir: Path,
    tiny_lm_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if not (data_dir / folder).is_dir():
        pytest.skip(f"no logs at {data_dir / folder}")
    count, model = records(data_dir, tmp_path), with_window(tiny_lm_folder, tmp_path / "tiny", window)
    monkeypatch.chdir(tmp_path)
    page = TUTORIALS / f"{name}.md"
    for words in commands(page):
        if not any(word.startswith(NEEDS_A_SERVER) for word in words):
            done = CliRunner().invoke(app, small(words, model), input=":actions\n:quit\n")
            assert done.exit_code == 0, (words, done.output, done.exception)
    for code in blocks(page, "python"):
        exec(compile(code, str(page), "exec"), {})
    ingest = read_json(tmp_path / world / "metrics.json")["ingest"]
    assert (ingest["records"], ingest["episodes"], ingest["skipped"], ingest["unaccounted"]) == (count, count, {}, 0)
    assert sum(ingest["became"].values()) == count
    assert read_json(tmp_path / world / "metrics.json")["one_step"]["n_steps"] > 0
    assert os.listdir(tmp_path / world / "model")


def small(words: list[str], model: Path) -> list[str]:
    """A command of a page, so that it takes seconds."""
    if words[0] != "build":
        return words
    kept = list(words)
    if "--minutes" in kept:
        at = kept.index("--minutes")
        del kept[at : at + 2]
    return [*kept, "--model", str(model), *(word for setting in SMALL for word in ("--set", setting))]


def test_every_tutorial_is_run() -> None:
    assert {path.stem for path in TUTORIALS.glob("*.md")} == {"support-desk", "developer-tools", "tool-apis"}
