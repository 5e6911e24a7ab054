"""Utility by hand, and a recipe: several stages from one file, whose arms are measured in the real environment."""

import shutil
from pathlib import Path

import pytest
import yaml

from worldloom.agents import AgentSpec
from worldloom.envs import EnvSpec
from worldloom.errors import ConfigError
from worldloom.evaluate.stats import unseen
from worldloom.practice.compare import compared, utility
from worldloom.practice.recipe import Recipe, player, references, resolved, run
from worldloom.runs import read_json, write_json
from worldloom.trajectory import EnvRef, Step, TaskRef, Trajectory

ROOT = Path(__file__).parents[2]


def played(*ends: str) -> list[Trajectory]:
    return [
        Trajectory(
            env=EnvRef(name="e"), task=TaskRef(id=str(n)), initial_observation="x",
            steps=[Step.model_validate({"action": "a", "observation": "o", "terminal": end})],
        )
        for n, end in enumerate(ends)
    ]  # fmt: skip


def test_gain_is_paired_over_tasks() -> None:
    """Of four tasks one arm wins three, the other one, of which both win one: the gain is 2/4."""
    arms = {"new": played("success", "success", "success", "failure"),
            "old": played("success", "failure", "truncated", "failure")}  # fmt: skip
    found = compared(arms, {"new": {"real_steps": 5, "imagined_steps": 7}}, ("new", "old"))
    assert found["arms"]["new"]["real_success"]["value"] == 0.75
    assert found["arms"]["old"]["real_success"]["value"] == 0.25
    assert found["arms"]["new"]["made"] == {"real_steps": 5, "imagined_steps": 7}
    assert found["arms"]["new"]["played"] == {"real_steps": 4, "imagined_steps": 0}  # a step each
    assert (found["arms"]["new"]["real_steps"], found["arms"]["new"]["imagined_steps"]) == (9, 7)
    assert (found["arms"]["old"]["played"]["real_steps"], found["arms"]["old"]["real_steps"]) == (4, "unknown")
    assert found["arms"]["new"]["n_tasks"] == found["gain"]["n"] == 4
    assert (found["gain"]["value"], found["gain"]["of"], found["gain"]["over"]) == (0.5, "new", "old")
    assert found["gain"]["low"] == 0.0 < found["gain"]["high"]  # a task either gains 1 or 0
    same = compared({"new": arms["new"], "old": arms["new"]}, {}, ("new", "old"))["gain"]
    assert (same["value"], same["low"], same["high"]) == (0.0, -unseen(4), unseen(4))  # four tasks are no proof


def test_names_of_other_stages() -> None:
    stage = {"env": "world-model:alfworld=@world", "data": ["@logs", "own.jsonl"], "server": "m@http://h/v1"}
    assert list(references(stage)) == ["world", "logs"]
    assert resolved(stage, {"world": Path("r/world"), "logs": Path("r/logs")}) == {
        "env": "world-model:alfworld=r/world", "data": ["r/logs", "own.jsonl"], "server": "m@http://h/v1"}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path, tiny_lm_folder: Path) -> Path:
    """Early experience in the small: demonstrations, a world, a policy from scratch and one that knew the world."""
    corridor = {"env": "tests.envs.corridor:Corridor", "options": {"longest": 3}}
    quick = {"epochs": 100, "steps": 2, "precision": "float32"}
    stages = {
        "logs": {"do": "collect", **corridor, "split": "train", "tasks": 3, "max_steps": 6,
                 "agents": ["tests.envs.corridor:Walker"]},
        "world": {"do": "train", "data": ["@logs"], "model": str(tiny_lm_folder), **quick},
        "plain": {"do": "train", "data": ["@logs"], "model": str(tiny_lm_folder), "learns": "policy", **quick},
        "early": {"do": "train", "data": ["@logs"], "model": "@world", "learns": "policy", "change_role": True,
                  **quick},
        "dreams": {"do": "imagine", "env": f"world-model:{corridor['env']}=@world", "options": corridor["options"],
                   "agents": [{"name": "policy", "model": "@early"}], "split": "train", "tasks": 2, "max_steps": 2,
                   "keep": "all"},
    }  # fmt: skip
    told = {
        "name": "small", "stages": stages, "arms": {"early": "@early", "plain": "@plain"}, "gain": ["early", "plain"],
        "measure": {**corridor, "split": "test", "tasks": 3, "max_steps": 2},
    }  # fmt: skip
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(told, sort_keys=False))
    return path


def test_a_recipe_runs_its_stages_and_measures_its_arms(file: Path, tmp_path: Path) -> None:
    found = run(file, tmp_path / "out")
    assert list(found["stages"]) == ["logs", "world", "plain", "early", "dreams"]
    assert read_json(tmp_path / "out" / "metrics.json") == found
    arms = found["utility"]["arms"]
    assert arms["early"]["n_tasks"] == 3 and set(arms["plain"]["real_success"]) == {"value", "low", "high", "n"}
    steps = read_json(tmp_path / "out" / "logs" / "summary.json")["steps"]
    nothing_imagined = {"real_steps": steps, "imagined_steps": 0}  # what was, went into no policy
    assert arms["early"]["made"] == arms["plain"]["made"] == nothing_imagined
    assert arms["early"]["played"] == {"real_steps": 6, "imagined_steps": 0}  # three tasks of two steps
    assert arms["early"]["real_steps"] == steps + 6
    assert "stopped" not in arms["early"]
    assert found["utility"]["gain"]["of"] == "early"
    assert "git_commit" in found["provenance"] and found["environment"] == "tests.envs.corridor:Corridor"
    about = read_json(tmp_path / "out" / "early" / "train.json")
    assert [one["learns"] for one in about["before"]] == ["world"]
    again = run(file, tmp_path / "out")
    assert again["utility"] == found["utility"]
    given = run(file, tmp_path / "other", use={"world": tmp_path / "out" / "world"})
    assert "world" not in given["stages"] and not (tmp_path / "other" / "world").exists()
    made = {name: arm["made"]["real_steps"] for name, arm in given["utility"]["arms"].items()}
    assert made == {"early": 2 * steps, "plain": steps}  # the logs were played again; the world's own count, too


def test_a_stopped_improvement_is_measured_as_what_it_left(policy: Path, liar: Path, tmp_path: Path) -> None:
    """Of 4 tasks, all false: at least 51 %, so that the guard stops the first round."""
    corridor = {"env": "tests.envs.corridor:Corridor", "options": {"longest": 3}}
    inside = {"env": f"world-model:{corridor['env']}={liar}", "options": corridor["options"]}
    told = {
        "name": "stopped", "arms": {"better": "@better", "before": str(policy)}, "gain": ["better", "before"],
        "stages": {"better": {"do": "improve", **inside, "agent": str(policy), "rounds": 2, "tasks": 4, "samples": 2,
                              "max_steps": 4}},
        "measure": {**corridor, "split": "test", "tasks": 2, "max_steps": 3},
    }  # fmt: skip
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(told))
    found = run(tmp_path / "recipe.yaml", tmp_path / "out")
    assert read_json(tmp_path / "out" / "metrics.json") == found
    assert found["stages"]["better"]["policy"] == {"model": str(policy), "rounds": 0}
    better, before = found["utility"]["arms"]["better"], found["utility"]["arms"]["before"]
    assert better["stopped"]["better"].startswith("round 1: too many imagined successes are false")
    assert "stopped" not in before
    assert better["real_success"] == before["real_success"]  # they are the same policy
    assert found["utility"]["gain"]["value"] == 0.0
    assert better["made"] == {"real_steps": "unknown", "imagined_steps": "unknown"}  # of the policy, given from outside


def test_an_agent_that_was_to_be_improved_stands_for_a_policy_that_never_came(tmp_path: Path) -> None:
    stage = {"do": "improve", "env": "world-model:e=@world", "agent": "llm:model=m,base_url=http://h/v1"}
    recipe = Recipe("r", {"taught": stage}, {"a": "@taught"}, None, {})
    write_json(tmp_path / "config.json", {"stage": "improve"})
    write_json(tmp_path / "improve.json", {"rounds": [], "stopped": "round 1: nothing was won"})
    assert player(recipe, "@taught", {"taught": tmp_path}).name == "llm"
    (tmp_path / "model").mkdir()
    assert player(recipe, "@taught", {"taught": tmp_path}) == AgentSpec("policy", {"model": tmp_path.as_posix()})


def test_a_policy_that_was_trained_on_is_measured_anew(policy: Path, tmp_path: Path) -> None:
    shutil.copytree(policy / "model", tmp_path / "policy")
    arms = {"a": AgentSpec("policy", {"model": str(tmp_path / "policy")})}

    def measure() -> None:
        utility(tmp_path / "out", EnvSpec("tests.envs.corridor:Corridor"), arms, "test", 1, max_steps=1)

    measure()
    measure()
    with (tmp_path / "policy" / "model.safetensors").open("ab") as file:
        file.write(b"more")
    with pytest.raises(ConfigError, match=r"holds a run with other settings \(weights"):
        measure()


def test_mistakes_in_a_recipe_are_named(file: Path, tmp_path: Path) -> None:
    told = yaml.safe_load(file.read_text())

    def refused(match: str, **changes: object) -> None:
        file.write_text(yaml.safe_dump({**told, **changes}, sort_keys=False))
        with pytest.raises(ConfigError, match=match):
            run(file, tmp_path / "refused")
        assert not (tmp_path / "refused").exists()

    refused("unknown key 'stage'; did you mean 'stages'", stage={})
    refused("stage 'a' must say `do:` one of collect", stages={"a": {"do": "dance"}})
    refused("stage 'a' needs @logs, which is no stage before it", stages={"a": {"do": "train", "data": ["@logs"]}})
    refused("arm 'x' needs @nobody", arms={"x": "@nobody"}, gain=None)
    refused("gain must name two arms", gain=["early", "late"])
    refused("give `measure:` with env, split and tasks", measure={})


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "utility").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_recipes_that_come_with_worldloom_are_whole(path: Path) -> None:
    """Every stage's settings are known ones."""
    from worldloom.config import train_config, validated
    from worldloom.practice.grpo import GrpoConfig
    from worldloom.practice.improve import ImproveConfig

    recipe = Recipe.read(path)
    assert recipe.gain and recipe.arms
    places = {name: Path("out") / name for name in recipe.stages}
    own = {"do", "data", "env", "options", "split", "guard", "train", "agent", "agents", "policy", "starts"}
    kinds = {"improve": ImproveConfig, "grpo": GrpoConfig}
    for stage in recipe.stages.values():
        told = {key: value for key, value in resolved(dict(stage), places).items() if key not in own}
        if stage["do"] == "train":
            train_config(None, {k: v for k, v in resolved(dict(stage), places).items() if k not in ("do", "data")})
        elif stage["do"] in kinds:
            validated(kinds[stage["do"]], told)
