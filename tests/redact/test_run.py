"""Planted secrets: how many are found, and that none is left in any file, log or message."""

import json
import os
import stat
from pathlib import Path

import pytest

from benchmarks.planted import KINDS, Case, corpus
from benchmarks.redaction import RULES, measure, survives
from worldloom.cli import app
from worldloom.errors import ConfigError, DataError
from worldloom.redact.run import put_back, redact
from worldloom.trajectory import read, write

EACH = 10


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return corpus(seed=20, each=EACH)


def test_recall_and_precision_on_planted_secrets(cases: list[Case]) -> None:
    found = measure(cases)
    assert len(KINDS) >= 15
    assert found["planted"] == EACH * len(KINDS) >= 200
    assert found["recall_structured"]["value"] >= 0.98
    assert all(recall["value"] >= 0.9 for recall in found["recall"].values()), found["recall"]
    assert all(precision["value"] >= 0.9 for precision in found["precision"].values()), found["precision"]
    assert found["innocent"]["n"] >= 200
    assert found["innocent"]["left_as_they_are"] >= 0.99


def test_the_corpus_holds_what_it_plants_and_a_blind_redactor_finds_nothing(cases: list[Case]) -> None:
    for case in cases:
        line = case.trajectory.to_json()
        assert all(survives(secret, line) for secret in case.planted)


def test_no_secret_is_left_in_the_output_folder_in_logs_or_in_messages(
    cases: list[Case], tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    source, out, apart = tmp_path / "in" / "t.jsonl", tmp_path / "out", tmp_path / "apart" / "way-back.jsonl"
    write(source, (case.trajectory for case in cases))
    secret = cases[0].planted[0].value
    with source.open("a", encoding="utf-8") as file:
        file.write(f'{{"schema": "worldloom/1", "env": "{secret}", "{secret}": [\n')
        file.write(json.dumps({"schema": secret, "env": {"name": secret}, "task": {secret: secret}, secret: 1}) + "\n")
    names = [argument for name in RULES.names for argument in ("--name", name)]
    app(
        ["redact", str(source), "--out", str(out / "t.jsonl"), "--report", str(out / "report.json"),
         "--originals", str(apart), *names], standalone_mode=False,
    )  # fmt: skip
    told = "".join(capfd.readouterr()) + caplog.text
    written = [path.read_text(encoding="utf-8") for path in out.rglob("*") if path.is_file()]
    assert len(written) == 2
    assert "t.jsonl:11" in told and "t.jsonl:12" in told
    for text in (*written, told):
        assert [s.kind for case in cases for s in case.planted if survives(s, text)] == []
    assert stat.S_IMODE(apart.stat().st_mode) == 0o600
    put_back(out / "t.jsonl", apart, tmp_path / "again.jsonl")
    assert read(tmp_path / "again.jsonl") == [case.trajectory for case in cases]
    assert stat.S_IMODE((tmp_path / "again.jsonl").stat().st_mode) == 0o600


def test_the_report_counts_by_kind(tmp_path: Path, cases: list[Case]) -> None:
    write(tmp_path / "t.jsonl", [cases[0].trajectory])
    report = redact(tmp_path / "t.jsonl", tmp_path / "o.jsonl", RULES)
    assert (report["episodes"], report["redacted"], report["left_out"]) == (1, 1, [])
    assert report["kinds"]["IBAN"]["values"] == 1
    assert report["kinds"]["SECRET"]["values"] == 2
    assert report["kinds"]["EMAIL"]["occurrences"] >= 1


def test_the_way_back_is_never_written_over_nor_beside_the_result(tmp_path: Path, cases: list[Case]) -> None:
    source, apart = tmp_path / "t.jsonl", tmp_path / "apart" / "w.jsonl"
    write(source, [cases[0].trajectory])
    with pytest.raises(ConfigError, match="keep the originals in a folder elsewhere"):
        redact(source, tmp_path / "out" / "t.jsonl", originals=tmp_path / "out" / "deeper" / "w.jsonl")
    redact(source, tmp_path / "out" / "t.jsonl", originals=apart)
    with pytest.raises(ConfigError, match="may be the only way back"):
        redact(source, tmp_path / "out" / "t.jsonl", originals=apart)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        redact(source, tmp_path / "out" / "t.jsonl", originals=tmp_path / "file" / "w.jsonl")
    with pytest.raises(ConfigError, match="is the file to redact"):
        redact(source, source)


def test_a_way_back_of_another_file_is_refused(tmp_path: Path, cases: list[Case]) -> None:
    source, apart = tmp_path / "t.jsonl", tmp_path / "apart" / "w.jsonl"
    write(source, [case.trajectory for case in cases[:2]])
    redact(source, tmp_path / "out" / "t.jsonl", originals=apart)
    write(source, [cases[0].trajectory])
    with pytest.raises(DataError, match="has more episodes"):
        put_back(source, apart, tmp_path / "x.jsonl")
    apart.write_text("{\n")
    with pytest.raises(DataError, match=r"w\.jsonl:1: is not JSON"):
        put_back(source, apart, tmp_path / "x.jsonl")
    os.truncate(apart, 0)
    with pytest.raises(DataError, match="has fewer episodes"):
        put_back(source, apart, tmp_path / "x.jsonl")


def test_a_bad_line_stops_a_strict_redaction_and_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text("{}\n")
    apart = tmp_path / "apart" / "w.jsonl"
    with pytest.raises(DataError, match=r"t\.jsonl:1: "):
        redact(tmp_path / "t.jsonl", tmp_path / "out" / "o.jsonl", originals=apart, strict=True)
    assert not (tmp_path / "out" / "o.jsonl").exists()
    assert not apart.exists()
