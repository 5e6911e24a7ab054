"""A whole evaluation: what it writes, that kills change nothing, what it refuses. The model is tiny: mechanics only."""

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.envs.corridor import Corridor, Walker
from tests.killing import kill_when
from worldloom.agents import AgentSpec
from worldloom.agents.gold import GoldFollower
from worldloom.collect import summarize
from worldloom.envs import EnvSpec
from worldloom.errors import ConfigError, DataError, ModelError
from worldloom.evaluate.run import evaluate, keep_records
from worldloom.origin import BEGUN
from worldloom.rollout import rollout
from worldloom.runs import read_json, read_records
from worldloom.trajectory import EnvRef, Step, TaskRef, Trajectory, read, write

ROOT = Path(__file__).parents[2]
CORRIDOR = EnvSpec("tests.envs.corridor:Corridor", {"longest": 3})
AGENTS = [AgentSpec("tests.envs.corridor:Walker"), AgentSpec("gold", {"noise": 0.2})]
SETTINGS: dict[str, Any] = {"split": "test", "tasks": 3, "max_steps": 4, "workers": 1}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "trajectories.jsonl"
    agents = [Walker(), GoldFollower(0.4)]
    write(
        path,
        [rollout(Corridor(3), agent, f"test-{n}", split="test", max_steps=4) for n in range(4) for agent in agents],
    )
    return path


@pytest.fixture(scope="module")
def undisturbed(data: Path, tiny_lm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("evaluation")
    evaluate(out, str(tiny_lm_folder), data=data, env=CORRIDOR, agents=AGENTS, name="corridor-tiny", **SETTINGS)
    return out


def has_lines(log: Path, count: int) -> bool:
    return log.exists() and log.read_bytes().count(b"\n") >= count


def measured(out: Path) -> dict[str, Any]:
    """The metrics without where and when they were measured."""
    metrics: dict[str, Any] = read_json(out / "metrics.json")
    return {key: value for key, value in metrics.items() if key not in ("provenance", "name")}


def test_what_an_evaluation_writes(undisturbed: Path, data: Path, tiny_lm_folder: Path) -> None:
    metrics = read_json(undisturbed / "metrics.json")
    told = read(data)
    assert (metrics["name"], metrics["split"], metrics["model"]) == ("corridor-tiny", "test", str(tiny_lm_folder))
    one, consistency = metrics["one_step"], metrics["consistency"]
    assert (one["n_episodes"], one["n_steps"]) == (8, summarize(told)["steps"])
    few = pytest.approx(1 - 0.025 ** (1 / 8))
    assert one["em"] == {"value": 0.0, "low": 0.0, "high": few, "n": 8, "of": 32}  # random weights say nothing right
    nothing = sum(step.observation == "Nothing happens." for t in told for step in t.steps)
    assert nothing and one["baselines"]["nothing_happens"]["em"]["value"] == nothing / one["n_steps"]
    assert (consistency["n_tasks"], consistency["same_task_ids"]) == (3, True)
    assert set(consistency["agents"]) == {"walker", "gold(noise=0.2)"}
    real = read(undisturbed / "real.jsonl")
    for name, agent in (("walker", "walker"), ("gold(noise=0.2)", "gold")):
        won = [t.outcome == "success" for t in real if t.agent.name == agent]
        assert len(won) == 3
        assert consistency["agents"][name]["real"]["value"] == sum(won) / 3
    # The gold follower has its plan in the imagined world, too.
    assert consistency["agents"]["gold(noise=0.2)"]["errors"] == {"real": 0, "wm": 0, "w2r": 0}
    assert consistency["agents"]["gold(noise=0.2)"]["wm"]["value"] == 0.0
    assert metrics["provenance"]["seconds"] > 0
    assert (undisturbed / "report.html").read_text().startswith("<!")


def test_the_replay_takes_the_imagined_actions_in_reality(undisturbed: Path) -> None:
    imagined = {t.task.id: t for t in read(undisturbed / "wm.jsonl") if t.agent.name == "walker"}
    replayed = {(t.task.id, tuple(t.agent.params["actions"])): t for t in read(undisturbed / "w2r.jsonl")}
    real = {t.task.id: t for t in read(undisturbed / "real.jsonl") if t.agent.name == "walker"}
    assert imagined.keys() == real.keys()
    for task, dream in imagined.items():
        assert dream.env.name.startswith("world-model:")
        assert (dream.initial_observation, dream.initial_context) == (
            real[task].initial_observation, real[task].initial_context,
        )  # fmt: skip
        played = replayed[task, tuple(dream.actions)]
        assert played.actions == dream.actions[: len(played.steps)]
        assert played.env.name == "corridor"


def test_a_finished_evaluation_started_again_gives_the_same(
    undisturbed: Path, data: Path, tiny_lm_folder: Path
) -> None:
    before = measured(undisturbed)
    logs = {path: path.read_bytes() for path in undisturbed.glob("*.jsonl") if path.name != BEGUN}
    evaluate(undisturbed, str(tiny_lm_folder), data=data, env=CORRIDOR, agents=AGENTS, **SETTINGS)
    assert measured(undisturbed) == before
    assert {path: path.read_bytes() for path in logs} == logs


def test_kills_change_nothing(undisturbed: Path, data: Path, tiny_lm_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    arguments = ["evaluate", tiny_lm_folder, "--out", out, "--data", data, "--env", CORRIDOR.name, "-o", "longest=3",
                 "--split", "test", "--tasks", "3", "--max-steps", "4", "--workers", "1",
                 "-a", AGENTS[0].name, "-a", "gold:noise=0.2"]  # fmt: skip
    command = [sys.executable, "-c", "from worldloom.cli import main; main()", *map(str, arguments)]
    kept = []
    for log, lines in ((out / "records.jsonl", 3), (out / "wm.jsonl", 1)):
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        kill_when(process, partial(has_lines, log, lines))
        assert not (out / "metrics.json").exists()
        content = log.read_bytes()
        kept.append((log, content[: content.rfind(b"\n") + 1]))
    with (out / "records.jsonl").open("ab") as file:
        file.write(b'{"kind": "one_st')
    evaluate(out, str(tiny_lm_folder), data=data, env=CORRIDOR, agents=AGENTS, **SETTINGS)
    assert measured(out) == measured(undisturbed)
    for log, content in kept:
        assert log.read_bytes().startswith(content)
    keys = [(record["kind"], record["key"]) for record in read_records(out / "records.jsonl")]
    assert len(keys) == len(set(keys)) == 8 + 6


def test_an_episode_that_does_not_fit_is_a_record_and_not_a_measurement(
    data: Path, tiny_lm_folder: Path, tmp_path: Path
) -> None:
    step = Step(action="look", observation="A room.")
    long = Trajectory(
        env=EnvRef(name="corridor"), task=TaskRef(id="zz"), initial_observation="word " * 600,
        steps=[step, step.model_copy(update={"not_recorded": True})],
    )  # fmt: skip
    write(tmp_path / "t.jsonl", [*read(data)[:1], long])
    metrics = evaluate(tmp_path / "run", str(tiny_lm_folder), data=tmp_path / "t.jsonl")
    assert (metrics["one_step"]["n_episodes"], metrics["one_step"]["left_out"]) == (2, 1)
    assert metrics["one_step"]["n_steps"] == len(read(data)[0].steps)
    (record,) = [r for r in read_records(tmp_path / "run" / "records.jsonl") if r["task_id"] == "zz"]
    assert "more than the budget of 512" in record["error"]


def test_records_of_one_episode_and_several_kinds_are_all_kept(tmp_path: Path) -> None:
    path, kinds = tmp_path / "records.jsonl", ("one_step", "rollout", "consistency")
    for kind in (*kinds, "consistency"):
        keep_records(path, [{"kind": kind, "key": "task|agent|{}|0"}])
    assert [record["kind"] for record in read_records(path)] == list(kinds)


def test_episodes_are_drawn_by_seed_and_others_settings_are_refused(
    data: Path, tiny_lm_folder: Path, tmp_path: Path
) -> None:
    first = evaluate(tmp_path / "a", str(tiny_lm_folder), data=data, episodes=2, seed=1)
    assert first["one_step"]["n_episodes"] == 2
    with pytest.raises(ConfigError, match=r"other settings \(episodes: 2 there, 3 now\)"):
        evaluate(tmp_path / "a", str(tiny_lm_folder), data=data, episodes=3, seed=1)


def test_what_cannot_be_measured_is_refused_before_anything_is_written(
    data: Path, tiny_lm_folder: Path, tmp_path: Path
) -> None:
    out, model = tmp_path / "run", str(tiny_lm_folder)
    with pytest.raises(ConfigError, match="nothing to evaluate: give real episodes"):
        evaluate(out, model)
    with pytest.raises(ConfigError, match="consistency needs an environment and a split beside the agents"):
        evaluate(out, model, agents=AGENTS, env=CORRIDOR)
    with pytest.raises(ConfigError, match=r"environment .* is for consistency: give agents, too"):
        evaluate(out, model, data=data, env=CORRIDOR)
    with pytest.raises(ConfigError, match="episodes is 0; it must be 1 or more"):
        evaluate(out, model, data=data, episodes=0)
    with pytest.raises(ModelError, match="there is no model folder"):
        evaluate(out, str(tmp_path / "none"), data=data)
    with pytest.raises(DataError, match=r"none\.jsonl: cannot be read"):
        evaluate(out, model, data=tmp_path / "none.jsonl")
    with pytest.raises(ConfigError, match="tst"):
        evaluate(out, model, agents=AGENTS, env=CORRIDOR, **{**SETTINGS, "split": "tst"})
    with pytest.raises(ConfigError, match="walkr"):
        evaluate(out, model, agents=[AgentSpec("walkr")], env=CORRIDOR, **SETTINGS)
    write(tmp_path / "empty.jsonl", [])
    with pytest.raises(ConfigError, match="holds no episode with a step"):
        evaluate(out, model, data=tmp_path / "empty.jsonl")
    assert not out.exists()


def test_records_of_other_data_by_the_same_name_are_refused(data: Path, tiny_lm_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write(path, read(data)[:2])
    evaluate(tmp_path / "run", str(tiny_lm_folder), data=path)
    write(path, read(data)[2:4])
    with pytest.raises(ConfigError, match=r"other settings \(fingerprint"):
        evaluate(tmp_path / "run", str(tiny_lm_folder), data=path)


def test_data_of_another_environment_and_agents_given_twice_are_refused(
    data: Path, tiny_lm_folder: Path, tmp_path: Path
) -> None:
    out, model = tmp_path / "run", str(tiny_lm_folder)
    other = [t.model_copy(update={"env": EnvRef(name="shop")}) for t in read(data)]
    write(tmp_path / "other.jsonl", other)
    with pytest.raises(ConfigError, match="has episodes of shop, but consistency is of corridor"):
        evaluate(out, model, data=tmp_path / "other.jsonl", env=CORRIDOR, agents=AGENTS, **SETTINGS)
    with pytest.raises(ConfigError, match="two of the agents are the same: gold"):
        evaluate(out, model, env=CORRIDOR, agents=[AgentSpec("gold"), AgentSpec("gold", {"noise": 0.0})], **SETTINGS)
