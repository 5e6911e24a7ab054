"""What was recorded in one version of an engine goes with no other version."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.envs.corridor import Corridor, Versioned, Walker
from worldloom.agents import AgentSpec
from worldloom.agents.gold import GoldFollower
from worldloom.collect import collect, plan
from worldloom.envs import EnvSpec
from worldloom.envs.versions import check_version, version_of
from worldloom.errors import ConfigError
from worldloom.evaluate.consistency import consistency_metrics, play_real, record, run_imagined
from worldloom.evaluate.run import evaluate
from worldloom.lm.replies import Replies
from worldloom.lm.retrieval import RetrievalLM
from worldloom.rollout import replay, rollout
from worldloom.trajectory import EnvRef, Trajectory, read, write

WALKER = AgentSpec("tests.envs.corridor:Walker")
SPEC = EnvSpec("tests.envs.corridor:Versioned")
DIFFER = r"was recorded in corridor version 1, and version 2 is installed here.*install 1, or collect the episodes anew"
MIXED = r"holds episodes of corridor in version 1 and in version 2.*in a folder of their own"
SETTINGS: dict[str, Any] = {"split": "test", "tasks": 2, "max_steps": 4, "workers": 1}


@pytest.fixture
def upgrade(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda: monkeypatch.setenv("CORRIDOR_VERSION", "2")


def played(version: str, task: str = "test-0") -> Trajectory:
    env = Corridor(3)
    env.version = version
    return rollout(env, Walker(), task, split="test", max_steps=4)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "t.jsonl", [played("1", f"test-{n}") for n in range(3)])
    return tmp_path / "t.jsonl"


@pytest.fixture
def retrieval(data: Path) -> str:
    return f"retrieval:{data}"


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_versions_are_compared_by_environment() -> None:
    one, two, other = EnvRef(name="a", version="1"), EnvRef(name="a", version="2"), EnvRef(name="b", version="7")
    untold = EnvRef(name="a")
    assert version_of([one, other, untold, one], "x") == {"a": "1", "b": "7"}
    check_version([one, other, untold], one, "x")
    check_version([untold], two, "x")
    check_version([], two, "x")
    with pytest.raises(ConfigError, match=r"^x was recorded in a version 1, and version 2 is installed here"):
        check_version([one], two, "x")
    with pytest.raises(ConfigError, match=r"^x holds episodes of a in version 1 and in version 2"):
        version_of([two, one], "x")


def test_collecting_goes_on_in_the_same_version_only(upgrade: Any, tmp_path: Path) -> None:
    out = tmp_path / "run"
    collect(out, SPEC, [WALKER], "test", tasks=3, workers=1, max_steps=4)
    lines = (out / "trajectories.jsonl").read_text().splitlines(keepends=True)
    (out / "trajectories.jsonl").write_text("".join(lines[:2]))
    before = files(out)
    upgrade()
    with pytest.raises(ConfigError, match=f"{re.escape(str(out))} {DIFFER}"):
        collect(out, SPEC, [WALKER], "test", tasks=3, workers=1, max_steps=4)
    assert files(out) == before
    collect(tmp_path / "new", SPEC, [WALKER], "test", tasks=3, workers=1, max_steps=4)
    assert {t.env.version for t in read(tmp_path / "new" / "trajectories.jsonl")} == {"2"}


def test_one_step_needs_no_engine_and_says_the_version(
    data: Path, retrieval: str, upgrade: Any, tmp_path: Path
) -> None:
    upgrade()
    metrics = evaluate(tmp_path / "run", retrieval, data=data)
    assert (metrics["environment"], metrics["environment_version"]) == ("corridor", "1")
    assert "corridor · 1 · test" in (tmp_path / "run" / "report.html").read_text()


def test_episodes_of_another_version_are_not_evaluated_with_the_engine(
    data: Path, retrieval: str, upgrade: Any, tmp_path: Path
) -> None:
    upgrade()
    with pytest.raises(ConfigError, match=f"{re.escape(str(data))} {DIFFER}"):
        evaluate(tmp_path / "run", retrieval, data=data, env=SPEC, agents=[WALKER], **SETTINGS)
    assert not (tmp_path / "run").exists()
    metrics = evaluate(tmp_path / "run", retrieval, env=SPEC, agents=[WALKER], **SETTINGS)
    assert metrics["environment_version"] == "2"


def test_data_of_two_versions_are_refused(data: Path, retrieval: str, tmp_path: Path) -> None:
    write(tmp_path / "two.jsonl", [*read(data), played("2", "test-4")])
    with pytest.raises(ConfigError, match=rf"two\.jsonl {MIXED}"):
        evaluate(tmp_path / "run", retrieval, data=tmp_path / "two.jsonl")


def test_a_folder_of_results_stays_with_its_version(retrieval: str, upgrade: Any, tmp_path: Path) -> None:
    out = tmp_path / "run"
    evaluate(out, retrieval, env=SPEC, agents=[WALKER], **SETTINGS)
    before = files(out)
    upgrade()
    with pytest.raises(ConfigError, match=f"{re.escape(str(out))} {DIFFER}"):
        evaluate(out, retrieval, env=SPEC, agents=[WALKER], **SETTINGS)
    assert files(out) == before


def test_imagined_episodes_are_not_replayed_in_another_version(data: Path, upgrade: Any, tmp_path: Path) -> None:
    """Stopped before the replays, and the engine is upgraded then."""
    lm, out = RetrievalLM(Replies().learn(read(data))), tmp_path / "run"
    realities = play_real(out, SPEC, plan(["test-0", "test-1"], [WALKER], "test", 1, 0, 4), workers=1)
    run_imagined(out, lm, realities)
    (out / "w2r.jsonl").unlink()
    upgrade()
    with pytest.raises(ConfigError, match=DIFFER):
        run_imagined(out, lm, realities)
    assert read(out / "w2r.jsonl") == []


def test_no_metrics_over_two_versions() -> None:
    one, two = played("1"), played("2")
    assert consistency_metrics([record(one, one, one)])["n_tasks"] == 1
    with pytest.raises(ConfigError, match=f"this evaluation {MIXED}"):
        consistency_metrics([record(one, one, two)])
    with pytest.raises(ConfigError, match=f"this evaluation {MIXED}"):
        consistency_metrics([record(one, one, one), record(played("2", "test-1"), one, played("2", "test-1"))])


def test_a_recorded_episode_is_taken_again_in_its_own_version(upgrade: Any) -> None:
    recorded = rollout(Versioned(), GoldFollower(), "test-1", seed=5, split="test")
    again = replay(Versioned(), recorded)
    assert (again.steps, again.task, again.initial_observation) == (
        recorded.steps, recorded.task, recorded.initial_observation,
    )  # fmt: skip
    upgrade()
    with pytest.raises(ConfigError, match=f"^the episode of task 'test-1' {DIFFER}"):
        replay(Versioned(), recorded)
