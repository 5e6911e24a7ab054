"""The README's and the docs' commands are real, its Python runs, its figures are those of the recorded results."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

import worldloom
from worldloom.cli import app
from worldloom.config import train_config
from worldloom.evaluate.tables import page, pages, recorded, recorded_studies

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of a page that are marked with one of the languages."""
    fences = re.split(r"^```(\w*)\n", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [text for mark, text in zip(fences[1::4], fences[2::4], strict=True) if mark in languages]


def commands(page: Path) -> Iterator[list[str]]:
    """The arguments of every worldloom command in a page's shell blocks."""
    for block in blocks(page, "", "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if "worldloom" in words and words[0] in ("worldloom", "accelerate", "python"):
                yield words[words.index("worldloom") + 1 :]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_parses(page: Path) -> None:
    for words in commands(page):
        command = get_command(app).commands.get(words[0])  # type: ignore[attr-defined]
        assert command is not None or words == ["--help"] or words[0] == "COMMAND", words
        if command is not None:
            command.make_context(words[0], [word for word in words[1:] if word != "--help"])


def test_the_readme_has_commands() -> None:
    stages = ["collect", "collect", "train", "evaluate"]
    logs = ["build", "play", "ingest", "redact", "lint", "stats", "split"]
    practice = ["train", "improve", "collect", "verify", "rehearse"]
    assert [words[0] for words in commands(ROOT / "README.md")] == stages + logs + practice


@pytest.mark.parametrize("target", ["demo", "test"])
def test_make_targets_exist(target: str) -> None:
    made = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {"demo": "worldloom demo --minutes 25", "test": "pytest"}[target] in made


@pytest.mark.engine
@pytest.mark.model
def test_the_readme_s_python_runs(smollm2: Path, tmp_path: Path) -> None:
    (code,) = blocks(ROOT / "README.md", "python")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("> ") == 2


@pytest.mark.parametrize("path", pages(ROOT), ids=str)
def test_tables_are_those_of_the_recorded_results(path: Path) -> None:
    tables, text = pages(ROOT)[path], (ROOT / path).read_text(encoding="utf-8")
    for mark in tables:
        assert text.count(f"<!-- {mark}: made by `make tables` -->") == text.count(f"<!-- end of {mark} -->") == 1
    assert page(ROOT, path, tables) == text, "run `make tables`"


def test_recorded_results_come_from_a_clean_commit() -> None:
    for name, metrics in {**recorded(ROOT), **recorded_studies(ROOT)}.items():
        commit = metrics["provenance"]["git_commit"]
        assert re.fullmatch(r"[0-9a-f]{40}", commit or ""), f"{name}: {commit}"
        assert metrics["name"] == name


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.name)
def test_shipped_configs_are_valid(path: Path) -> None:
    if path.name.startswith("accelerate"):
        pytest.importorskip("accelerate").commands.config.config_args.load_config_from_file(str(path))
    else:
        assert train_config(path).model


def test_the_public_names() -> None:
    assert sorted(worldloom.__all__) == [
        "AgentSpec", "EnvSpec", "Environment", "LocalLM", "TrainConfig", "Trajectory", "WorldModelEnv",
        "WorldloomError", "check_env", "load_world", "make", "read", "record", "starts_of", "write",
    ]  # fmt: skip
    assert all(getattr(worldloom, name) is not None for name in worldloom.__all__)
