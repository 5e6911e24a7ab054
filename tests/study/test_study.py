"""A whole study on a tiny model: what it writes, that kills change nothing, what it refuses. Mechanics only."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.envs.corridor import Walker
from tests.evaluate.test_run import has_lines
from tests.killing import kill_when
from worldloom.errors import ConfigError, EnvError
from worldloom.evaluate.tables import recorded_studies, study_table
from worldloom.runs import read_json, read_records
from worldloom.study.run import study
from worldloom.study.settings import study_settings
from worldloom.trajectory import read

ROOT = Path(__file__).parents[2]
CORRIDOR = {
    "env": "tests.envs.corridor:Corridor", "options": {"longest": 3}, "max_steps": 5, "agent": "gold",
    "agents": [{"noise": 0.1}, {"noise": 0.4}], "stranger": {"noise": 0.6}, "unseen": ["test"], "test": "train",
}  # fmt: skip
SIZES = {"trajectories": [4, 8], "test": 3, "tasks": 2}


class Clumsy(Walker):
    """Falls at every start."""

    name = "clumsy"

    def begin(self, start: Any) -> None:
        raise RuntimeError("fell")


def own(folder: Path, model: Path, **changes: Any) -> Path:
    """The file of a study of the corridor, which is YAML since it is JSON."""
    train = {"model": str(model), "batch": 2, "precision": "float32", "warmup_steps": 1, "save_minutes": 1e-9}
    told = {"study": "data", "worlds": ["corridor"], **SIZES, "train": train, "define": {"corridor": CORRIDOR}}
    path = folder / "own.yaml"
    path.write_text(json.dumps({**told, **changes}))
    return path


@pytest.fixture(scope="module")
def config(tiny_lm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own(tmp_path_factory.mktemp("config"), tiny_lm_folder)


@pytest.fixture(scope="module")
def undisturbed(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("study")
    study(out, study_settings(str(config)), workers=1)
    return out


def figures(metrics: dict[str, Any]) -> dict[str, Any]:
    """The metrics without what a clock says."""
    arms = {name: {k: v for k, v in arm.items() if k != "minutes"} for name, arm in metrics["study"]["arms"].items()}
    return {**metrics, "provenance": None, "study": {**metrics["study"], "arms": arms}}


def test_what_a_study_writes(undisturbed: Path) -> None:
    metrics = read_json(undisturbed / "metrics.json")
    assert (metrics["name"], metrics["environment"]) == ("study-data-corridor", "corridor")
    arms = metrics["study"]["arms"]
    assert {name: (arm["trajectories"], arm["n"], arm["n_tasks"]) for name, arm in arms.items()} == {
        "corridor-4": (4, 3, 2), "corridor-8": (8, 3, 2),
    }  # fmt: skip
    for name, arm in arms.items():
        own = read_json(undisturbed / "arms" / name / "metrics.json")
        assert arm["em"] == own["one_step"]["em"]
        assert arm["real"] == own["consistency"]["overall"]["real"]
        assert (arm["tokens"], own["model"][-10:]) == (own["train"]["tokens_seen"], f"model-at-{name[-1]}")
    assert 0 < arms["corridor-4"]["tokens"] < arms["corridor-8"]["tokens"]
    tests = read(undisturbed / "episodes" / "corridor-test" / "trajectories.jsonl")
    assert arms["corridor-4"]["n_steps"] == sum(len(t.steps) for t in tests)
    assert set(metrics["study"]["differences"]) == {"corridor-8 - corridor-4"}
    assert metrics["provenance"]["seconds"] > 0
    assert len(read(undisturbed / "episodes" / "corridor" / "trajectories.jsonl")) == 9  # one to spare
    assert read_json(undisturbed / "models" / "corridor" / "train.json")["trajectories_seen"] == 8


def test_a_model_that_is_there_is_measured_as_it_is(undisturbed: Path, config: Path, tmp_path: Path) -> None:
    there = undisturbed / "models" / "corridor" / "model-at-4"
    asked = {"study": "ood", "trajectories": 4, "trained": str(there)}
    metrics = study(tmp_path / "ood", study_settings(str(config), asked), workers=1)
    assert not (tmp_path / "ood" / "models").exists()
    arms, usual = metrics["study"]["arms"], read_json(undisturbed / "metrics.json")["study"]["arms"]["corridor-4"]
    assert list(arms) == ["corridor-train", "corridor-test"]
    told = [{k: v for k, v in arm.items() if k not in ("minutes", "split")} for arm in (arms["corridor-train"], usual)]
    assert told[0] == told[1]  # the same model on the same episodes


def test_the_report_has_every_arm_and_loads_nothing(undisturbed: Path) -> None:
    page = (undisturbed / "report.html").read_text()
    for name in ("corridor-4", "corridor-8", "corridor-8 - corridor-4"):
        assert f'<th scope="row">{name}</th>' in page
    assert "http" not in page.replace("http://www.w3.org/", "").replace("http-equiv", "")
    pictures = sorted(undisturbed.glob("plot-*.svg"))
    assert len(pictures) == 2  # exact match by trajectories, and the agents
    assert all(ElementTree.parse(path).getroot().tag.endswith("svg") for path in pictures)
    assert "trajectories" in pictures[0].read_text()


def test_kills_change_nothing(undisturbed: Path, config: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    told = ["study", str(config), "--out", str(out), "--workers", "1"]
    command = [sys.executable, "-c", "from worldloom.cli import main; main()", *told]
    moments = (
        (out / "models" / "corridor" / "model-at-4").exists,
        partial(has_lines, out / "arms" / "corridor-4" / "records.jsonl", 1),
        (out / "arms" / "corridor-8" / "config.json").exists,
    )
    for ready in moments:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        kill_when(process, ready, seconds=500)
        assert not (out / "metrics.json").exists()
    first = (out / "arms" / "corridor-4" / "metrics.json").stat().st_mtime_ns
    said: list[str] = []
    metrics = study(out, study_settings(str(config)), name="study-data-corridor", workers=1, tell=said.append)
    assert figures(metrics) == figures(read_json(undisturbed / "metrics.json"))
    assert (out / "arms" / "corridor-4" / "metrics.json").stat().st_mtime_ns == first  # what is done is left alone
    assert said == [
        "1/5 play 9 episodes: corridor (done)",
        "2/5 play 3 episodes: corridor-test (done)",
        "3/5 train: corridor (done)",
        "4/5 measure: corridor-4 (done)",
        "5/5 measure: corridor-8",
    ]
    keys = [r["key"] for r in read_records(out / "arms" / "corridor-4" / "records.jsonl")]
    assert len(keys) == len(set(keys))


def test_a_finished_study_is_left_alone(undisturbed: Path, config: Path) -> None:
    before = read_json(undisturbed / "metrics.json")
    kept = {path: path.stat().st_mtime_ns for path in undisturbed.glob("*/*/*.json*")}
    assert study(undisturbed, study_settings(str(config)), workers=1) == before  # where the numbers come from included
    assert {path: path.stat().st_mtime_ns for path in undisturbed.glob("*/*/*.json*")} == kept


def test_other_settings_are_refused(undisturbed: Path, config: Path) -> None:
    with pytest.raises(ConfigError, match=r"other settings \(seed: 0 there, 1 now\)"):
        study(undisturbed, study_settings(str(config), {"seed": 1}))


def test_an_environment_that_always_breaks_ends_it(tiny_lm_folder: Path, tmp_path: Path) -> None:
    broken = {**CORRIDOR, "agent": "tests.study.test_study:Clumsy", "agents": [{}], "stranger": {}}
    path = own(tmp_path, tiny_lm_folder, define={"corridor": broken})
    with pytest.raises(EnvError, match="every one of 9 episodes ended in an error"):
        study(tmp_path / "run", study_settings(str(path)), workers=1)


def test_the_table_of_recorded_studies(undisturbed: Path, tmp_path: Path) -> None:
    assert study_table(recorded_studies(tmp_path)) == ""
    folder = tmp_path / "results" / "study-data-corridor"
    folder.mkdir(parents=True)
    metrics = read_json(undisturbed / "metrics.json")
    arm = metrics["study"]["arms"]["corridor-4"]
    arm |= {"tokens": 123456, "minutes": 2.4, "n_steps": 11, "em": {"value": 0.5, "low": 0.25, "high": 0.75, "n": 3}}
    arm |= {"cr": {"value": 0.5, "low": 0.0, "high": 1.0, "n": 2}}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    row = study_table(recorded_studies(tmp_path)).splitlines()[2]
    assert row.startswith(
        "| [study-data-corridor](../results/study-data-corridor/metrics.json) | corridor-4 | 4 trajectories, "
        "0.12 M tokens, 2 min | 50.0% [25.0%, 75.0%], 11 steps of 3 episodes |"
    )
    assert row.endswith("| 0.50 [0.00, 1.00], n=2 tasks |")
