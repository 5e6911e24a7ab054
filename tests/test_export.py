"""What other trainers read is what was recorded."""

import json
from pathlib import Path
from typing import Any

import pytest

from worldloom.cli import app
from worldloom.errors import ConfigError
from worldloom.export import FORMS, export
from worldloom.protocol import Row, read_messages, scan_messages
from worldloom.trajectory import AgentRef, EnvRef, Step, TaskRef, Trajectory, write

EPISODE = Trajectory(
    env=EnvRef(name="e"), task=TaskRef(id="t", split="train"), initial_context="Lamp: off.",
    initial_observation="A room.",
    agent=AgentRef(name="a"),
    steps=[Step(action="look", observation="A lamp é."), Step(action="go", observation="?", not_recorded=True),
           Step(action="switch it on", observation="Light.", terminal="success")],
)  # fmt: skip
EMPTY = EPISODE.model_copy(update={"steps": []})
SYSTEM, LOOK, LAMP, GO, WHAT, ON, LIGHT = (
    "Lamp: off.\n\nA room.", "look", "A lamp é.", "go", "?", "switch it on", "Light. [SUCCESS]",
)  # fmt: skip


def chat(*texts: str) -> list[dict[str, str]]:
    roles = ["system", *["user", "assistant"] * 3]
    return [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]


EXPECTED: dict[str, list[dict[str, Any]]] = {
    "messages": [{"messages": chat(SYSTEM, LOOK, LAMP, GO, WHAT, ON, LIGHT)}],
    "sharegpt": [{"conversations": [
        {"from": "system", "value": SYSTEM}, {"from": "human", "value": LOOK}, {"from": "gpt", "value": LAMP},
        {"from": "human", "value": GO}, {"from": "gpt", "value": WHAT}, {"from": "human", "value": ON},
        {"from": "gpt", "value": LIGHT},
    ]}],
    "steps": [
        {"prompt": chat(SYSTEM, LOOK), "completion": [{"role": "assistant", "content": LAMP}]},
        {"prompt": chat(SYSTEM, LOOK, LAMP, GO, WHAT, ON), "completion": [{"role": "assistant", "content": LIGHT}]},
    ],
    "trajectories": [
        {"environment": "e", "task": "t", "split": "train", "agent": "a", "outcome": "success", "steps": 3,
         "trajectory": EPISODE.to_json()},
    ],
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_every_form_holds_what_was_said(tmp_path: Path, form: str, suffix: str) -> None:
    path = tmp_path / "deep" / f"x.{suffix}"
    counts = export([EPISODE], path, form)
    assert counts == {"episodes": 1, "rows": len(EXPECTED[form]), "without_steps": 0, "not_recorded": 1}
    assert rows(path) == EXPECTED[form]


def rows(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    found: list[dict[str, Any]] = pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
    return found


@pytest.mark.parametrize("form", FORMS)
def test_half_a_surrogate_pair_is_written_as_its_escape(tmp_path: Path, form: str) -> None:
    half = EPISODE.model_copy(update={"steps": [Step(action="look\ud83d", observation="Light.", terminal="success")]})
    export([half], tmp_path / "x.jsonl", form)
    assert "look\\ud83d" in (tmp_path / "x.jsonl").read_text(encoding="utf-8")
    (row,) = rows(tmp_path / "x.jsonl")
    told = json.loads(row["trajectory"]) if form == "trajectories" else row
    assert '"look\\ud83d"' in json.dumps(told)


def test_a_table_s_escapes_are_counted(tmp_path: Path) -> None:
    half = EPISODE.model_copy(update={"steps": [Step(action="look\ud83d", observation="Light.", terminal="success")]})
    counts = export([half, EPISODE], tmp_path / "x.parquet", "steps")
    assert counts["escaped"] == 1
    assert rows(tmp_path / "x.parquet")[0]["prompt"] == chat(SYSTEM, "look\\ud83d")
    export([half], tmp_path / "t.parquet", "trajectories")
    assert Trajectory.from_json(rows(tmp_path / "t.parquet")[0]["trajectory"]) == half


def test_an_episode_without_steps_is_counted_and_gives_no_row(tmp_path: Path) -> None:
    counts = export([EMPTY, EPISODE], tmp_path / "x.jsonl", "messages")
    assert counts == {"episodes": 2, "rows": 1, "without_steps": 1, "not_recorded": 1}
    assert export([EMPTY], tmp_path / "t.jsonl", "trajectories")["rows"] == 1


def test_exported_messages_load_as_messages(tmp_path: Path) -> None:
    export([EPISODE], tmp_path / "x.jsonl")
    (back,) = read_messages(tmp_path / "x.jsonl")
    assert [(s.action, s.observation, s.terminal) for s in back.steps] == [
        (s.action, s.observation, s.terminal) for s in EPISODE.steps
    ]
    assert isinstance(next(scan_messages(tmp_path / "x.jsonl")), Row)


def test_many_rows_are_written_in_groups(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    export([EPISODE] * 2_001, tmp_path / "x.parquet", "trajectories")
    assert pq.ParquetFile(tmp_path / "x.parquet").metadata.num_row_groups == 3
    assert pq.read_table(tmp_path / "x.parquet").num_rows == 2_001


def test_hugging_face_datasets_reads_the_parquet(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    export([EPISODE], tmp_path / "x.parquet", "steps")
    found = datasets.Dataset.from_parquet(str(tmp_path / "x.parquet"), cache_dir=str(tmp_path / "cache"))
    assert found[1]["completion"] == [{"role": "assistant", "content": LIGHT}]


@pytest.mark.parametrize(
    ("name", "form", "message"),
    [
        ("x.jsonl", "sharegtp", "there is no form 'sharegtp'; did you mean 'sharegpt'?"),
        ("x.csv", "messages", r"must end in \.jsonl or \.parquet"),
        ("x.parquet", "messages", "there is no row to write"),
    ],
)
def test_what_cannot_be_written_is_told(tmp_path: Path, name: str, form: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        export([EMPTY], tmp_path / name, form)
    assert not (tmp_path / name).exists()


def test_export_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "t.jsonl", [EPISODE])
    out = tmp_path / "x.jsonl"
    app(["export", str(tmp_path / "t.jsonl"), "--out", str(out), "--form", "sharegpt"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["rows"] == 1
    assert rows(out) == EXPECTED["sharegpt"]
