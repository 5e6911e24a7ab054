"""Expert iteration: a policy plays, learns from what it won, and plays again, in a real or an imagined environment.

It is rejection-sampling fine-tuning in rounds (Anthony et al. 2017, "Thinking fast and slow with deep learning and tree
search"; Zelikman et al. 2022, "STaR", arXiv 2203.14465): several draws of each task, successes kept, supervised
fine-tuning on them.
"""

import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from worldloom.agents import AgentSpec
from worldloom.collect import plan
from worldloom.config import TrainConfig, train_config
from worldloom.errors import ConfigError
from worldloom.lineage import files_of
from worldloom.lm.hf import resolve
from worldloom.practice.guard import Guard, GuardConfig, share
from worldloom.practice.place import Ground, Place, draws, steps_of
from worldloom.practice.synthesize import ROLLOUTS, chosen
from worldloom.role import Role
from worldloom.runs import fingerprint, open_run, write_json
from worldloom.trajectory import Trajectory, write

logger = logging.getLogger(__name__)

RECORD = "improve.json"


@dataclass(frozen=True)
class ImproveConfig:
    """How to improve.

    Raises:
        ConfigError: a value is out of range.
    """

    rounds: int = 3
    tasks: int = 32  # of each round, drawn anew
    samples: int = 4  # of each task
    temperature: float = 1.0  # of a policy's draws
    max_steps: int = 50
    seed: int = 0
    learn_from: Literal["round", "all"] = "all"  # the round's successes, or those of all rounds so far
    afresh: bool = False  # train each round from the first policy, not from the last

    def __post_init__(self) -> None:
        for name in ("rounds", "tasks", "samples", "max_steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be 1 or more")
        if self.temperature < 0 or self.learn_from not in ("round", "all"):
            raise ConfigError("temperature must be 0 or more, and learn_from round or all")


def improve(
    out: Path,
    place: Place,
    agent: AgentSpec,
    split: str = "train",
    config: ImproveConfig | None = None,
    guard: GuardConfig | None = None,
    *,
    train: Mapping[str, Any] | None = None,
    data: Sequence[Path] = (),
) -> dict[str, Any]:
    """Improve an agent by what it wins in a place; ``out/model`` is the policy that comes of it.

    Each round has a folder ``out/round-N`` with its rollouts, successes and policy. Stopped at any moment it goes on
    where it was. Where a world model answers, a guard replays some of its successes in the real environment; when it
    says stop, the round is not learnt from, and ``out/model`` is the policy that learnt from the rounds before: in
    round 1 the one that played it. An agent that is no policy leaves no ``out/model`` there.

    Args:
        agent: who plays the first round: a policy, which is trained on, or any agent that samples, such as a language
            model behind a server, whose successes then train ``train["model"]``.
        train: settings of ``TrainConfig`` for each round.
        data: episodes to learn from in each round, too, such as those that the policy was first trained on.

    Returns:
        {"rounds": [{"round", "success", "kept", "steps", "guard"}], "stopped" (why, if it was), "policy": what
        ``out/model`` is, {"model", "rounds": how many it learnt from} (absent if there is none), "real_steps",
        "imagined_steps" (both without the guard's)}; also in ``out/improve.json``.

    Raises:
        ConfigError: settings out of range, or ``out`` holds a run with others.
    """
    config, guard = config or ImproveConfig(), guard or GuardConfig()
    base = _base(agent, train or {})
    settings = train_config(
        None, {**(train or {}), "model": base, "learns": "policy", "says": _says(base, train or {})}
    )
    open_run(out, {
        "stage": "improve", **place.record(), "split": split,
        "agent": {"name": agent.name, "params": dict(agent.params)}, **asdict(config), "guard": asdict(guard),
        "train": settings.recorded(), "data": [p.as_posix() for p in data],
        "fingerprint": fingerprint([*data, *files_of(base)]),
    })  # fmt: skip
    with Ground(place, out) as ground:
        run = _Run(out, ground, split, config, settings, list(data), guard_of(out, place, guard))
        found = run.all(agent)
    write_json(out / RECORD, found)
    return found


def _base(agent: AgentSpec, train: Mapping[str, Any]) -> str:
    """What is trained in the first round."""
    return str(train.get("model") or (agent.params["model"] if agent.name == "policy" else TrainConfig().model))


def _says(base: str, train: Mapping[str, Any]) -> Any:
    """How the policy speaks: as it did before, unless it is told otherwise."""
    role = Role.load(Path(resolve(base)))
    return train.get("says") or (role.says if role and role.learns == "policy" else "actions")


def guard_of(out: Path, place: Place, config: GuardConfig) -> Guard | None:
    """None where there is nothing to guard against, or no real environment."""
    if not place.imagined or config.action == "off":
        return None
    if place.starts is not None:
        logger.warning("no guard: tasks begin as recorded episodes did, and no real environment is at hand")
        return None
    return Guard(out, place.env, config, place.workers)


@dataclass
class _Run:
    out: Path
    ground: Ground
    split: str
    config: ImproveConfig
    settings: TrainConfig
    data: list[Path]
    guard: Guard | None

    def all(self, agent: AgentSpec) -> dict[str, Any]:
        found: dict[str, Any] = {"rounds": []}
        for number in range(1, self.config.rounds + 1):
            told, played = self._play(number, agent)
            found["rounds"].append(told)
            self._learnable(number, played, told)
            if why := self._stop(number, played, told):
                found["stopped"] = f"round {number}: {why}"
                logger.warning("stopped in round %d: %s", number, why)
                break
            as_before = agent.params if agent.name == "policy" else {}
            agent = AgentSpec("policy", {**as_before, "model": self._learn(number).as_posix()})
        if agent.name == "policy":  # the last one that played, or was just trained
            publish(Path(resolve(agent.params["model"])), self.out)
            learnt = len(found["rounds"]) - ("stopped" in found)
            found["policy"] = {"model": agent.params["model"], "rounds": learnt}
        self._draw(found["rounds"])
        steps = sum(told["steps"] for told in found["rounds"])
        imagined = self.ground.place.imagined
        return {**found, "real_steps": 0 if imagined else steps, "imagined_steps": steps if imagined else 0}

    def _draw(self, rounds: Sequence[Mapping[str, Any]]) -> None:
        from worldloom.practice.curve import draw, false_successes

        points = [{"at": told["round"], "reward": told["success"]} for told in rounds]
        draw(self.out / "reward.svg", [*points, *false_successes(self.guard.checks if self.guard else [])])

    def folder(self, number: int) -> Path:
        return self.out / f"round-{number}"

    def _play(self, number: int, agent: AgentSpec) -> tuple[dict[str, Any], list[Trajectory]]:
        config = self.config
        if agent.name == "policy":
            agent = AgentSpec("policy", {**agent.params, "temperature": config.temperature})
        drawn = draws(agent, config.samples)
        tasks = self.ground.place.tasks(self.split, config.tasks, config.seed + number - 1)
        jobs = plan(tasks, drawn, self.split, len(drawn), config.seed, config.max_steps)
        played = self.ground.play(self.folder(number) / ROLLOUTS, jobs)
        won = sum(t.outcome == "success" for t in played)
        return {"round": number, "success": share(won, len(played)), "steps": steps_of(played)}, played

    def _learnable(self, number: int, played: list[Trajectory], told: dict[str, Any]) -> None:
        kept = chosen(played)
        write(self.folder(number) / "kept.jsonl", kept)
        told["kept"] = len(kept)

    def _stop(self, number: int, played: list[Trajectory], told: dict[str, Any]) -> str | None:
        if not told["kept"]:
            return "nothing was won, so there is nothing to learn; give easier tasks, more samples, or a better agent"
        if self.guard:
            told["guard"] = self.guard.check(number, played)
            if told["guard"] == "stop":
                return f"too many imagined successes are false in the real environment (see {self.out / 'guard.json'})"
        return None

    def _learn(self, number: int) -> Path:
        """Train the next policy; a finished one is left alone."""
        from worldloom.train import train

        first = 1 if self.config.learn_from == "all" else number
        kept = [self.folder(n) / "kept.jsonl" for n in range(first, number + 1)]
        last = self.settings.model if number == 1 or self.config.afresh else self._policy(number - 1).as_posix()
        data = [*self.data, *(path for path in kept if path.stat().st_size)]
        train(data, self._policy(number), replace(self.settings, model=last))
        return self._policy(number)

    def _policy(self, number: int) -> Path:
        return self.folder(number) / "policy"


def publish(model: Path, out: Path) -> None:
    """Make ``out/model`` a model folder's twin, whose weights lie on the disk once where the file system allows it."""
    draft, target = out / "model.part", out / "model"
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(model, draft, copy_function=_link)
    shutil.rmtree(target, ignore_errors=True)
    draft.rename(target)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
