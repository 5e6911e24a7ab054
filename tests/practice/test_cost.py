"""What a policy cost to make, from the records of runs that are written here by hand."""

from pathlib import Path
from typing import Any

import pytest

from worldloom.practice.cost import cost_of, record_of
from worldloom.runs import write_json

UNKNOWN = {"real_steps": "unknown", "imagined_steps": "unknown"}


def run(folder: Path, file: str, record: dict[str, Any], **settings: Any) -> Path:
    write_json(folder / "config.json", settings)
    write_json(folder / file, record)
    return folder


def trained(folder: Path, *data: Path, base: Path | None = None) -> Path:
    """As ``worldloom train`` leaves it: what it was trained on is told beside the weights, too."""
    files = [str(place / "trajectories.jsonl") for place in data]
    record: dict[str, Any] = {"base": str(base or "smollm2-135m"), "data": files, "steps": 100}
    if base:
        record["before"] = [{"base": "smollm2-135m"}]
    write_json(folder / "model" / "train.json", record)
    write_json(folder / "model" / "config.json", {"model_type": "llama"})
    return run(folder, "train.json", record, stage="train", data=files, model=record["base"])


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """7 real steps of logs; 5 imagined ones of a dream; 11 of an improvement that begins with both; 2 of GRPO."""
    scripted = [{"name": "scripted-alfworld", "params": {}}]
    logs = run(tmp_path / "logs", "summary.json", {"steps": 7}, stage="collect", agents=scripted)
    world = trained(tmp_path / "world", logs)
    dream = run(tmp_path / "dream", "summary.json", {"steps": 5, "imagined_steps": 5}, stage="imagine",
                world=str(world), agents=scripted)  # fmt: skip
    policy = trained(tmp_path / "policy", logs, dream, base=world)
    agent = {"name": "policy", "params": {"model": str(policy)}}
    better = run(tmp_path / "better", "improve.json", {"real_steps": 0, "imagined_steps": 11}, stage="improve",
                 world=str(world), agent=agent, data=[], train={"model": str(policy)})  # fmt: skip
    run(tmp_path / "best", "train.json", {"real_steps": 2, "imagined_steps": 0, "base": str(better), "before": [{}]},
        stage="grpo", world=None, policy=str(better / "model"))  # fmt: skip
    return tmp_path


def test_each_run_that_a_policy_goes_back_to_counts_once(runs: Path) -> None:
    def steps(name: str) -> tuple[int | str, int | str]:
        found = cost_of(runs / name)
        return found["real_steps"], found["imagined_steps"]

    assert steps("world") == (7, 0)
    assert steps("policy") == (7, 5)
    assert steps("policy/model") == (7, 5)
    assert steps("better") == (7, 16)
    assert steps("best") == (9, 16)


def test_a_run_without_a_record_makes_the_cost_unknown(runs: Path) -> None:
    (runs / "dream" / "summary.json").unlink()
    assert cost_of(runs / "better") == UNKNOWN
    assert cost_of(runs / "world") == {"real_steps": 7, "imagined_steps": 0}
    assert cost_of(runs / "nowhere") == UNKNOWN
    assert cost_of("policy@http://127.0.0.1:8000/v1") == UNKNOWN
    (runs / "logs" / "summary.json").unlink()
    assert cost_of(runs / "world") == UNKNOWN


def test_a_model_folder_away_from_its_run_still_tells_its_data(runs: Path) -> None:
    (runs / "world" / "model").rename(runs / "copied")
    assert cost_of(runs / "copied") == {"real_steps": 7, "imagined_steps": 0}
    assert record_of(runs / "nowhere") is None
