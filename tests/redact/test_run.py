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
from worldloom.ingest.run import ingest
from worldloom.redact.rules import Rules
from worldloom.redact.run import placeholders, put_back, redact
from worldloom.runs import read_json
from worldloom.trajectory import read, write

EACH = 10
NAMES = [argument for name in RULES.names for argument in ("--name", name)]


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return corpus(seed=20, each=EACH)


def test_recall_and_precision_on_planted_secrets(cases: list[Case]) -> None:
    found = measure(cases)
    assert {"huggingface_token", "npm_token", "cookie"} < set(KINDS)
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
    app(
        ["redact", str(source), "--out", str(out / "t.jsonl"), "--report", str(out / "report.json"),
         "--originals", str(apart), *NAMES], standalone_mode=False,
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


def test_ingest_redacts_before_anything_is_written(
    cases: list[Case], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    write(logs / "a.jsonl", (case.trajectory for case in cases[:3]))
    with (logs / "a.jsonl").open("a", encoding="utf-8") as file:
        secret = cases[0].planted[0].value
        file.write(f'{{"schema": "worldloom/1", "env": "{secret}", "{secret}": [\n')
        file.write(json.dumps({"schema": secret, "env": {"name": secret}, "task": {secret: secret}, secret: 1}) + "\n")
    chats = [{"messages": [{"role": r, "content": s} for r, s in _chat(case)]} for case in cases[3:6]]
    (logs / "b.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats), encoding="utf-8")
    app(["ingest", str(logs), "--out", str(out), "--redact", *NAMES], standalone_mode=False)
    told = "".join(capfd.readouterr())
    written = [path.read_text(encoding="utf-8") for path in out.rglob("*") if path.is_file()]
    assert len(written) >= 5  # trajectories, skipped, files, ingest.json, config.json
    for text in (*written, told):
        assert [s.kind for case in cases for s in case.planted if survives(s, text)] == []
    report = json.loads(told[told.index("{") : told.rindex("}") + 1])["redaction"]
    assert (report["episodes"], report["redacted"]) == (6, 6)
    assert report["kinds"]["IBAN"]["values"] == 6
    assert report == read_json(out / "ingest.json")["redaction"] == placeholders(out / "trajectories.jsonl", "episode")


def _chat(case: Case) -> list[tuple[str, str]]:
    """All texts of an episode as the replies of an agent and what came back."""
    said = [
        (r, s) for step in case.trajectory.steps for r, s in (("assistant", step.action), ("user", step.observation))
    ]
    first = case.trajectory.task.instruction, case.trajectory.initial_context, case.trajectory.initial_observation
    return [("system", "Help."), ("user", "\n".join(map(str, first))), *said]


def test_ingest_without_it_writes_what_is_there_and_refuses_rules(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("episode,action,observation\n1,ls,ann@example.com\n")
    command = ["ingest", str(tmp_path / "a.csv"), "--out", str(tmp_path / "out")]
    for more in (["--name", "Ann"], ["--keep", "EMAIL"], ["--scope", "file"], ["--region", "DE"]):
        with pytest.raises(ConfigError, match="--keep, --region and --scope need --redact"):
            app([*command, *more], standalone_mode=False)
    assert not (tmp_path / "out").exists()
    app(command, standalone_mode=False)
    (episode,) = read(tmp_path / "out" / "trajectories.jsonl")
    assert episode.steps[0].observation == "ann@example.com"
    with pytest.raises(ConfigError, match="redact: None there"):
        app([*command, "--redact"], standalone_mode=False)


def test_a_stopped_ingest_begins_anew_so_that_placeholders_keep_their_meaning(tmp_path: Path) -> None:
    rows = [f"{n},ls,{name}@example.com\n" for n, name in enumerate(["ann", "bob", "ann"])]
    (tmp_path / "a.csv").write_text("episode,action,observation\n" + "".join(rows))
    out, rules = tmp_path / "out", Rules(scope="file")
    whole = ingest([tmp_path / "a.csv"], out, redact=rules)
    assert whole["redaction"]["kinds"] == {"EMAIL": {"values": 2, "occurrences": 3}}
    written = (out / "trajectories.jsonl").read_text()
    (out / "ingest.json").unlink()
    (out / "files.jsonl").unlink()
    (out / "trajectories.jsonl").write_text("".join(written.splitlines(keepends=True)[1:2]))
    assert ingest([tmp_path / "a.csv"], out, redact=rules) == whole
    assert (out / "trajectories.jsonl").read_text() == written
    assert ingest([tmp_path / "a.csv"], out, redact=rules) == whole
    with pytest.raises(ConfigError, match="redact: "):
        ingest([tmp_path / "a.csv"], out, redact=Rules(names=("Ann",), scope="file"))
    with pytest.raises(ConfigError, match="give change or redact"):
        ingest([tmp_path / "a.csv"], out, redact=rules, change=lambda episode: episode)


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
