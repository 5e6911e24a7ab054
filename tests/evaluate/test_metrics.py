"""Metrics come from records alone, in whatever order these stand; and a world kept to reality by anchors."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.envs.corridor import Corridor, Walker
from tests.evaluate.test_known_answers import one_step, right
from worldloom.agents import AgentSpec
from worldloom.anchoring import Anchor
from worldloom.cli import app
from worldloom.envs import EnvSpec
from worldloom.errors import ConfigError, DataError
from worldloom.evaluate.metrics import measured, rescore
from worldloom.evaluate.run import evaluate
from worldloom.origin import BEGUN
from worldloom.rollout import rollout
from worldloom.runs import read_json, read_records, write_json
from worldloom.trajectory import read, write

CORRIDOR = EnvSpec("tests.envs.corridor:Corridor", {"longest": 4})
ANCHORS = ("first=2", "every=1")
SETTINGS: dict[str, Any] = {
    "env": CORRIDOR, "split": "test", "tasks": 3, "max_steps": 12, "workers": 1, "name": "corridor-retrieval",
    "agents": [AgentSpec("tests.envs.corridor:Walker")], "anchors": [Anchor.parse(text) for text in ANCHORS],
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An evaluation of a world of logged replies: no language model, so that it is quick."""
    out = tmp_path_factory.mktemp("run")
    write(out / "train.jsonl", [rollout(Corridor(4), Walker(), f"train-{n}") for n in range(12)])
    write(out / "test.jsonl", [rollout(Corridor(4), Walker(), f"test-{n}", split="test") for n in range(5)])
    evaluate(out / "eval", f"retrieval:{out / 'train.jsonl'}", data=out / "test.jsonl", **SETTINGS)
    return out / "eval"


def test_rescoring_gives_the_same_numbers(run: Path, tmp_path: Path) -> None:
    before = read_json(run / "metrics.json")
    lines = (run / "records.jsonl").read_text().splitlines(keepends=True)
    alone = tmp_path / "alone"  # nothing but the records, shuffled, and the metrics without what they tell
    alone.mkdir()
    (alone / "records.jsonl").write_text("".join(random.Random(1).sample(lines, len(lines))))
    kept = ("name", "environment", "environment_version", "split", "model", "overlap", "provenance")
    told = {key: before[key] for key in kept}
    (alone / "metrics.json").write_text(json.dumps(told))
    after = rescore(alone)
    assert after["provenance"].pop("rescored")["command"]
    assert after == before
    assert read_json(alone / "metrics.json")["one_step"] == before["one_step"]
    assert (alone / "report.html").read_text().startswith("<!")


def test_tasks_that_the_model_learnt_are_told(run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read_json(run / "metrics.json")["overlap"] == {"tasks": 0, "of": 5}  # of the data and of the three played
    data = run.parent / "test.jsonl"
    assert evaluate(tmp_path, f"nearest:{data}", data=data)["overlap"] == {"tasks": 5, "of": 5}
    assert "was trained on 5 of the 5 tasks that it is measured on" in caplog.text
    assert "overlap: tasks" in (tmp_path / "report.html").read_text()


def test_the_order_of_records_does_not_matter(run: Path) -> None:
    records = list(read_records(run / "records.jsonl"))
    assert measured(records) == measured(records[::-1])


def test_what_anchors_buy(run: Path) -> None:
    found = read_json(run / "metrics.json")["anchoring"]
    assert list(found) == ["none", "first=2", "every=1"]  # by their share of real answers
    assert found["none"]["share_real"]["value"] == 0.0
    assert found["every=1"]["share_real"]["value"] == 1.0
    dreamt = read(run / "wm-first-2.jsonl")
    steps = [step for t in dreamt for step in t.steps]
    assert found["first=2"]["share_real"]["value"] == sum(step.anchored is True for step in steps) / len(steps)
    assert all(step.anchored for t in dreamt for step in t.steps[:2])
    # Where reality says everything, the imagined episode is the real one, and so is its replay.
    assert found["every=1"]["cr"]["value"] == found["every=1"]["cr_paired"]["value"] == 1.0
    assert found["every=1"]["wm"] == found["every=1"]["real"]
    assert found["none"]["cr"]["value"] < 1.0
    kinds = [record["kind"] for record in read_records(run / "records.jsonl")]
    assert {kind: kinds.count(kind) for kind in kinds} == {"one_step": 5, "consistency": 3, "anchored": 6}


def test_started_again_it_is_the_same(run: Path) -> None:
    logs = {path: path.read_bytes() for path in run.glob("*.jsonl") if path.name != BEGUN}
    before = read_json(run / "metrics.json")
    data = run.parent / "test.jsonl"
    again = evaluate(run, f"retrieval:{run.parent / 'train.jsonl'}", data=data, **SETTINGS)
    assert {path: path.read_bytes() for path in logs} == logs
    assert {k: v for k, v in again.items() if k != "provenance"} == {
        k: v for k, v in before.items() if k != "provenance"
    }  # fmt: skip


def test_scoring_again_keeps_the_risk_unless_another_is_asked_for(tmp_path: Path) -> None:
    records = one_step(right)
    for judged in (s for r in records for s in r["steps"]):
        judged["confidence"] = {"logprob": -0.1, "lowest": -0.1, "tokens": 2}
    (tmp_path / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    write_json(tmp_path / "metrics.json", {"name": "x", "provenance": {}, **measured(records, risk=0.15)})

    def told() -> float:
        return float(read_json(tmp_path / "metrics.json")["confidence"]["risk_bound"]["target"])

    app(["rescore", str(tmp_path)], standalone_mode=False)
    assert told() == 0.15
    rescore(tmp_path, risk=0.2)
    assert told() == 0.2
    rescore(tmp_path)
    assert told() == 0.2


def test_what_cannot_be_scored_again_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"metrics\.json: cannot be read"):
        rescore(tmp_path)
    (tmp_path / "metrics.json").write_text((run / "metrics.json").read_text())
    with pytest.raises(DataError, match=r"records\.jsonl: there is no record to score"):
        rescore(tmp_path)


def test_anchors_that_cannot_be_are_refused_before_anything_is_written(run: Path, tmp_path: Path) -> None:
    model, data = f"retrieval:{run.parent / 'train.jsonl'}", run.parent / "test.jsonl"

    def refused(*texts: str, **others: Any) -> str:
        settings = {**SETTINGS, "anchors": [Anchor.parse(text) for text in texts], **others}
        with pytest.raises(ConfigError) as error:
            evaluate(tmp_path / "x", model, data=data, **settings)
        return str(error.value)

    assert "two anchors are alike (action-look)" in refused("action=look", "action=look[")
    assert "retrieval does not tell how sure it is, so `unsure` cannot be an anchor" in refused("unsure=0.5")
    assert "an anchor is for consistency" in refused("first=1", agents=[])
    assert not (tmp_path / "x").exists()


def test_episodes_of_two_versions_of_the_engine_are_refused(run: Path) -> None:
    records = [record for record in read_records(run / "records.jsonl") if record["kind"] == "consistency"]
    records[0]["w2r"]["env"]["version"] = "2"
    with pytest.raises(ConfigError, match=r"in version 1 and in version 2"):
        measured(records)
