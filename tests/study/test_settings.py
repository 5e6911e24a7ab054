"""A study's settings: what is shipped is valid, one number scales it, and mistakes are told before anything runs."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from worldloom.envs import make
from worldloom.errors import ConfigError, MissingDependency
from worldloom.lm.hf import DEFAULT_MODEL
from worldloom.study.fit import fitted
from worldloom.study.plan import plan
from worldloom.study.settings import KINDS, Settings, known_worlds, study_settings

TWO = ["alfworld", "textworld"]


@pytest.mark.parametrize("name", KINDS)
def test_shipped_studies_have_a_plan_whose_parts_fit(name: str) -> None:
    settings = study_settings(name)
    found = plan(settings)
    assert settings.study == name
    assert len(found.arms) >= 2
    for arm in found.arms.values():
        assert arm.model in found.trained and arm.test in found.played
        assert arm.at is None or arm.at in (found.trained[arm.model].config.snapshots or ())
    used = [name for trained in found.trained.values() for name in trained.data]
    used += [arm.test for arm in found.arms.values()]
    assert set(found.played) == set(used)  # nothing is played for nothing
    for one, other in found.compared:
        assert {one, other} <= set(found.arms)


def test_every_world_can_be_built_and_has_its_splits() -> None:
    for name, world in known_worlds().items():
        assert all(player.build() for player in [*world.players, world.unknown])
        assert world.unknown not in world.players
        for options in ({}, *world.contexts.values()):
            try:
                with make(world.env, **{**world.options, **options}) as env:
                    assert {world.train, world.test, *world.unseen} <= set(env.splits), name
            except MissingDependency:
                continue


def test_data_is_one_pass_with_the_model_kept_at_each_number() -> None:
    found = plan(study_settings("data", {"worlds": TWO, "trajectories": [4, 8, 20], "batch": 3}))
    assert list(found.arms) == [f"{world}-{count}" for world in TWO for count in (4, 8, 20)]
    config = found.trained["alfworld"].config
    assert (config.snapshots, config.steps, config.schedule) == ((4, 8, 20), 7, "constant")  # 7 x 3 are 20 at least
    assert {name: of.episodes for name, of in found.played.items()} == {
        "alfworld": 21, "alfworld-test": 40, "textworld": 21, "textworld-test": 40,
    }  # fmt: skip
    assert found.compared[:2] == [("alfworld-8", "alfworld-4"), ("alfworld-20", "alfworld-8")]


def test_a_mixture_learns_the_very_episodes_that_each_model_alone_learns() -> None:
    found = plan(study_settings("mixture"))
    assert {name: of.data for name, of in found.trained.items()} == {
        "alfworld": ("alfworld",), "textworld": ("textworld",), "mixture": ("alfworld", "textworld"),
    }  # fmt: skip
    assert found.arms["textworld-mixed"].test == found.arms["textworld-alone"].test


def test_coverage_is_of_equal_numbers_and_measured_with_one_who_is_in_neither() -> None:
    found = plan(study_settings("coverage"))
    one, several = (found.played[f"alfworld-{arm}"] for arm in ("one-agent", "several-agents"))
    assert (len(one.agents), len(several.agents)) == (1, 4)
    assert one._replace(agents=()) == several._replace(agents=())
    (stranger,) = found.arms["alfworld-one-agent"].players
    assert stranger not in several.agents
    assert list(found.played["alfworld-test"].agents) == [stranger]


def test_ood_is_one_model_on_every_split() -> None:
    found = plan(study_settings("ood"))
    assert Counter(arm.model for arm in found.arms.values()) == {"alfworld": 3}
    assert [found.played[arm.test].split for arm in found.arms.values()] == ["valid_seen", "valid_unseen", "ood"]


def test_contexts_differ_in_nothing_else() -> None:
    found = plan(study_settings("context"))
    told, untold = (found.played[f"alfworld-{arm}-context"] for arm in ("with", "without"))
    assert (told.env.options["context"], untold.env.options["context"]) == ("full", "none")
    assert told._replace(env=untold.env) == untold
    assert found.compared == [("alfworld-with-context", "alfworld-without-context")]


def test_one_number_scales_all_sizes() -> None:
    settings = study_settings("ood", {"scale": 0.5, "minutes": 10, "trajectories": 9, "test": 7, "tasks": 5}).sized()
    assert (settings.trajectories, settings.test, settings.tasks, settings.training.minutes) == ((4,), 4, 2, 5.0)
    assert study_settings("ood", {"tasks": 0, "scale": 3}).sized().tasks == 0
    with pytest.raises(ConfigError, match=r"scale 0\.01 makes trajectories \[1, 1, 1, 2, 4\], of which two are alike"):
        study_settings("data", {"scale": 0.01}).sized()


@pytest.mark.parametrize(
    ("scale", "model", "rate", "batch"),
    [
        (0.5, DEFAULT_MODEL, 3e-4, 1),
        (9.9, DEFAULT_MODEL, 3e-4, 1),
        (10, "HuggingFaceTB/SmolLM2-360M", 2e-4, 4),
        (99, "HuggingFaceTB/SmolLM2-1.7B", 5e-5, 16),
        (400, "Qwen/Qwen2.5-7B", 1e-5, 128),
    ],
)
def test_a_large_scale_brings_a_larger_model(scale: float, model: str, rate: float, batch: int) -> None:
    training = study_settings("data", {"scale": scale}).training
    assert (training.model, training.learning_rate, training.batch) == (model, rate, batch)
    named = study_settings("data", {"scale": scale, "model": "mine"}).training
    assert (named.model, named.learning_rate) == ("mine", 3e-4)
    assert study_settings("data", {"scale": scale, "batch": 2}).training.batch == 2  # what is asked for stays


def test_a_plan_is_fitted_to_the_tasks_that_there_are(tmp_path: Path) -> None:
    """The corridor has 20 tasks to learn from and 5 to be tested on."""
    path = tmp_path / "own.yaml"
    path.write_text(
        "study: coverage\nworlds: [mine]\ntrajectories: [30]\ntest: 9\ntasks: 7\ndefine: {mine: {agent: gold, "
        "env: 'tests.envs.corridor:Corridor', agents: [{}, {noise: 0.1}], stranger: {noise: 0.5}}}\n"
    )
    with pytest.raises(ConfigError, match=r"30 episodes of 'mine-one-agent' .* 'train' has 20 tasks and 1 agents play"):
        fitted(plan(study_settings(str(path))))
    found = fitted(plan(study_settings(str(path), {"study": "data"})))
    assert {name: (of.episodes, of.per_task) for name, of in found.played.items()} == {
        "mine": (32, 2), "mine-test": (5, 1),
    }  # fmt: skip
    assert found.arms["mine-30"].tasks == 5


def test_keys_of_the_study_and_of_its_training_can_be_set() -> None:
    settings = study_settings("data", {"worlds": "alfworld, textworld", "model": "m", "trajectories": 5, "seed": 3})
    assert (settings.worlds, settings.training.model, settings.trajectories) == (("alfworld", "textworld"), "m", (5,))
    assert (settings.seed, settings.training.batch) == (3, 1)  # what was not set stays


def test_a_study_of_one_s_own(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(
        "study: ood\nworlds: [mine]\ntrajectories: [3]\ntest: 2\n"
        "define: {mine: {env: 'm:Env', agent: gold, agents: [{}], stranger: {noise: 0.5}, unseen: [far]}}\n"
    )
    found = plan(study_settings(str(path)))
    assert list(found.arms) == ["mine-test", "mine-far"]
    assert found.played["mine-far"].env.name == "m:Env"


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "no such study": ("dta", {}, "unknown study 'dta'; did you mean 'data'?; or give a YAML file"),
    "no such file": ("none.yaml", {}, "none.yaml: cannot be read"),
    "key": ("data", {"trajectorys": 3}, "unknown setting 'trajectorys'; did you mean 'trajectories'?"),
    "training's key": ("data", {"learning_rte": 3}, "did you mean 'learning_rate'?"),
    "kind": ("data", {"test": "many"}, "study setting test: Input should be a valid integer"),
    "training's kind": ("data", {"batch": "many"}, "training setting batch: Input should be a valid integer"),
    "world": ("data", {"worlds": "alfwrld"}, "unknown world 'alfwrld'; did you mean 'alfworld'?"),
    "several numbers": ("ood", {"trajectories": [1, 2]}, "study ood takes one number of trajectories"),
    "no trajectories": ("data", {"trajectories": [0]}, "it must be numbers of 1 or more"),
    "scale": ("data", {"scale": 0}, "scale is 0.0; it must be above 0"),
    "one world": ("mixture", {"worlds": "alfworld"}, "a mixture needs two worlds"),
    "budget": ("data", {"minutes": 3}, "study data ends with its last trajectory; leave minutes out"),
    "schedule": ("data", {"schedule": "cosine"}, "schedule must be constant, not 'cosine'"),
    "unseen": ("ood", {"worlds": "textworld"}, "world 'textworld' has no split of what was not seen"),
    "trained": ("data", {"trained": "runs/model"}, "trained is for study ood of one world"),
    "contexts": ("context", {"worlds": "backoffice"}, "world 'backoffice' has no options"),
    "same environment": ("mixture", {"worlds": "alfworld,alfworld-official"}, "two of the worlds are of the same"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "values", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_told(name: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        plan(study_settings(name, values))
    assert message in str(error.value)


def test_a_world_s_wrong_key_is_named(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("study: ood\nworlds: [mine]\ntrajectories: [3]\ntest: 2\ndefine: {mine: {env: e, agnet: gold}}\n")
    with pytest.raises(ConfigError, match=r"study setting define\.mine"):
        study_settings(str(path))


def test_settings_are_made_in_python_too() -> None:
    assert Settings("data", ("alfworld",), (2, 4), 3).sized().trajectories == (2, 4)
