"""Several stages in one file: collect, train, imagine, improve; and the arms that are then measured in reality.

"Early experience" is such a recipe: a language model learns the world first, then to act, then improves by itself
(Word2World, arXiv 2512.18832, section 5; Zhang et al. 2025, "Agent learning via early experience", arXiv 2510.08558).
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from worldloom.agents import AgentSpec
from worldloom.collect import TRAJECTORIES, collect
from worldloom.config import load_yaml, train_config, validated
from worldloom.envs import EnvSpec
from worldloom.errors import ConfigError, suggest
from worldloom.origin import Origin
from worldloom.practice.compare import utility
from worldloom.practice.cost import cost_of, record_of
from worldloom.practice.guard import GuardConfig
from worldloom.practice.improve import ImproveConfig, improve
from worldloom.practice.place import Place
from worldloom.practice.synthesize import synthesize
from worldloom.runs import open_run, write_json

logger = logging.getLogger(__name__)

Stage = Mapping[str, Any]
Record = dict[str, Any]
NOTHING = {"real_steps": 0, "imagined_steps": 0}
KEYS = ("name", "stages", "arms", "gain", "measure")
KEPT = ("success_rate", "episodes", "kept", "rounds", "stopped", "policy", "real_steps", "imagined_steps",
        "trajectories", "tokens_seen", "seconds", "updates", "updates_played", "reward", "steps", "base",
        "learns")  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """What a file says: ``stages`` by name, in order, and the ``arms`` to compare (policies or agents)."""

    name: str
    stages: Mapping[str, Stage]
    arms: Mapping[str, str]
    gain: tuple[str, str] | None
    measure: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> "Recipe":
        """Read a YAML file; see ``docs/practice.md``.

        Raises:
            ConfigError: it cannot be read, a key or stage is unknown, or a stage needs one that comes later.
        """
        found = load_yaml(path)
        if not isinstance(found.get("stages"), dict):
            raise ConfigError(f"{path}: must have `stages:`, each a name with its settings")
        for key in found:
            if key not in KEYS:
                raise ConfigError(f"{path}: unknown key {key!r}{suggest(str(key), KEYS)}")
        gain = tuple(found["gain"]) if found.get("gain") else None
        made = cls(
            str(found.get("name", path.stem)),
            found["stages"],
            found.get("arms") or {},
            gain,
            found.get("measure") or {},
        )
        made._check(path)
        return made

    def _check(self, path: Path) -> None:
        before: list[str] = []
        for name, stage in self.stages.items():
            kind = stage.get("do") if isinstance(stage, dict) else None
            if kind not in RUN:
                raise ConfigError(f"{path}: stage {name!r} must say `do:` one of {', '.join(RUN)}, not {kind!r}")
            _known(path, f"stage {name!r}", references(stage), before)
            before.append(name)
        for arm, policy in self.arms.items():
            _known(path, f"arm {arm!r}", references(policy), before)
        if self.gain and (len(self.gain) != 2 or not set(self.gain) <= set(self.arms)):
            raise ConfigError(f"{path}: gain must name two arms: the one that may be better, then the other")
        if self.arms and not {"env", "split", "tasks"} <= set(self.measure):
            raise ConfigError(f"{path}: arms are measured: give `measure:` with env, split and tasks")

    def needs(self, value: Any) -> list[str]:
        """The stages that a stage or an arm goes back to, each once."""
        found: dict[str, None] = {}
        for name in references(value):
            found |= dict.fromkeys([*self.needs(self.stages[name]), name])
        return list(found)


def _known(path: Path, whose: str, names: Iterator[str], before: Sequence[str]) -> None:
    for name in names:
        if name not in before:
            raise ConfigError(f"{path}: {whose} needs @{name}, which is no stage before it{suggest(name, before)}")


def references(value: Any) -> Iterator[str]:
    """The names after @ in whatever a stage says."""
    if isinstance(value, str) and "@" in value and "://" not in value:
        yield value.rpartition("@")[2]
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from references(part)
    elif isinstance(value, list):
        for part in value:
            yield from references(part)


def resolved(value: Any, places: Mapping[str, Path]) -> Any:
    """The same with each ``@name`` replaced by its stage's folder."""
    if isinstance(value, str) and "@" in value and "://" not in value:
        head, _, name = value.rpartition("@")
        return head + places[name].as_posix()
    if isinstance(value, Mapping):
        return {key: resolved(part, places) for key, part in value.items()}
    return [resolved(part, places) for part in value] if isinstance(value, list) else value


def run(path: Path, out: Path, *, use: Mapping[str, Path] | None = None, workers: int = 2) -> Record:
    """Run a recipe's stages in order, each into ``out/NAME``, then measure its arms in the real environment.

    Stopped at any moment, it goes on where it was when started again.

    Args:
        use: folders of finished runs that take the place of stages, such as a world model that is there already.

    Returns:
        ``{"stages": {name: what it told}}``, and for a recipe with arms what ``out/metrics.json`` holds; an arm that
        goes back to a stage which was stopped says so under ``stopped``, {stage: why}.

    Raises:
        ConfigError: the file is wrong, or ``out`` holds a run of another one.
    """
    recipe, given = Recipe.read(path), dict(use or {})
    for name in given:
        if name not in recipe.stages:
            raise ConfigError(f"there is no stage {name!r} in {path}{suggest(name, recipe.stages)}")
    open_run(out, {"stage": "recipe", "recipe": {f.name: getattr(recipe, f.name) for f in fields(recipe)},
                   "use": {name: folder.as_posix() for name, folder in given.items()}})  # fmt: skip
    origin = Origin(out)
    places = {name: given.get(name, out / name) for name in recipe.stages}
    told: dict[str, Record] = {}
    for name, stage in recipe.stages.items():
        if name not in given and _needed(recipe, name, given):
            logger.info("stage %s: %s", name, stage["do"])
            told[name] = RUN[stage["do"]](resolved(dict(stage), places), places[name], workers)
    found: Record = {"name": recipe.name, "stages": {name: _short(record) for name, record in told.items()}}
    if recipe.arms:
        found |= {"environment": recipe.measure["env"], "split": recipe.measure["split"]}
        found["utility"] = _measured(recipe, out, places, workers)
        found["provenance"] = origin.told()
        write_json(out / "metrics.json", found)
    return found


def _needed(recipe: Recipe, name: str, given: Mapping[str, Path]) -> bool:
    """Whether a stage serves another purpose than one whose result is given."""
    users = [other for other, stage in recipe.stages.items() if name in references(stage)]
    in_arms = any(name in references(policy) for policy in recipe.arms.values())
    return in_arms or not users or any(user not in given and _needed(recipe, user, given) for user in users)


def _short(record: Record) -> Record:
    return {key: record[key] for key in KEPT if key in record}


def _measured(recipe: Recipe, out: Path, places: Mapping[str, Path], workers: int) -> Record:
    asked = dict(recipe.measure)
    env = EnvSpec(asked.pop("env"), asked.pop("options", {}))
    arms = {name: player(recipe, policy, places) for name, policy in recipe.arms.items()}
    made = {name: cost_of(agent.params["model"]) if agent.name == "policy" else NOTHING for name, agent in arms.items()}
    found = utility(out / "measure", env, arms, made=made, gain=recipe.gain, workers=workers, **asked)
    for name, policy in recipe.arms.items():
        if stopped := _stopped(recipe.needs(policy), places):
            found["arms"][name]["stopped"] = stopped
    return found


def player(recipe: Recipe, policy: Any, places: Mapping[str, Path]) -> AgentSpec:
    """Who plays for an arm: where improvement stopped before it made a policy, the agent that it began with."""
    name = policy.removeprefix("@") if isinstance(policy, str) else ""
    told = (record_of(places[name]) if name in places else None) or {}
    if "stopped" in told and not (places[name] / "model").is_dir():
        policy = recipe.stages[name]["agent"]
    return agent_of(resolved(policy, places))


def _stopped(names: Sequence[str], places: Mapping[str, Path]) -> dict[str, str]:
    records = {name: record_of(places[name]) or {} for name in names}
    return {name: record["stopped"] for name, record in records.items() if "stopped" in record}


def agent_of(text: str | Mapping[str, Any]) -> AgentSpec:
    """An agent as a recipe names it: {name, parameters}, ``NAME:KEY=VALUE,...``, or a policy's folder."""
    if isinstance(text, Mapping):
        return AgentSpec(str(text["name"]), {key: value for key, value in text.items() if key != "name"})
    if "=" in text or "/" not in text:
        return AgentSpec.parse(text)
    return AgentSpec("policy", {"model": text})


def _files(stage: Any) -> list[Path]:
    """The trajectories of stages or files."""
    return [Path(name) / TRAJECTORIES if Path(name).is_dir() else Path(name) for name in stage.pop("data", [])]


def _place(stage: Any, workers: int) -> Place:
    starts = stage.pop("starts", None)
    return Place.parse(stage.pop("env"), stage.pop("options", None), Path(starts) if starts else None, workers)


def _collect(stage: Any, out: Path, workers: int) -> Record:
    stage.pop("do")
    env, agents = EnvSpec(stage.pop("env"), stage.pop("options", {})), [agent_of(a) for a in stage.pop("agents")]
    return collect(out, env, agents, workers=workers, **stage)


def _train(stage: Any, out: Path, workers: int) -> Record:
    from worldloom.train import train

    stage.pop("do")
    return train(_files(stage), out, train_config(None, stage))


def _imagine(stage: Any, out: Path, workers: int) -> Record:
    stage.pop("do")
    place, agents = _place(stage, workers), [agent_of(a) for a in stage.pop("agents")]
    return synthesize(out, place, agents, **stage)


def _improve(stage: Any, out: Path, workers: int) -> Record:
    stage.pop("do")
    place, agent, guard = _place(stage, workers), agent_of(stage.pop("agent")), stage.pop("guard", {})
    split, train, data = stage.pop("split", "train"), stage.pop("train", {}), _files(stage)
    return improve(
        out, place, agent, split, validated(ImproveConfig, stage), validated(GuardConfig, guard), train=train, data=data
    )  # fmt: skip


def _grpo(stage: Any, out: Path, workers: int) -> Record:
    from worldloom.practice.grpo import GrpoConfig, grpo

    stage.pop("do")
    place, guard, policy = _place(stage, workers), stage.pop("guard", {"every": 5}), stage.pop("policy")
    return grpo(
        out, place, policy, stage.pop("split", "train"), validated(GrpoConfig, stage), validated(GuardConfig, guard)
    )


RUN: dict[str, Callable[[Any, Path, int], Record]] = {
    "collect": _collect, "train": _train, "imagine": _imagine, "improve": _improve, "grpo": _grpo,
}  # fmt: skip
