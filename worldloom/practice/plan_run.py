"""What planning is worth: agents alone and with look-aheads of several costs, on the same tasks of the real one."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from worldloom.agents import AgentSpec
from worldloom.agents.base import Agent
from worldloom.collect import choose_tasks
from worldloom.envs import EnvSpec
from worldloom.errors import ConfigError
from worldloom.evaluate.stats import interval
from worldloom.lineage import Task, files_of, overlaps, weights_of
from worldloom.lm.base import WorldLM, open_lm
from worldloom.origin import Origin
from worldloom.practice import arms as played
from worldloom.practice.arms import Arm, Record, Tasks, labels
from worldloom.practice.plan import Planner, Search, Watched
from worldloom.practice.utility import about, publish
from worldloom.rollout import MAX_STEPS
from worldloom.runs import fingerprint, open_run
from worldloom.world import Start

ARMS = "arms.jsonl"


def plan(
    out: Path,
    model: str,
    env: EnvSpec,
    agents: Sequence[AgentSpec],
    searches: Sequence[Search],
    *,
    split: str,
    tasks: int,
    admissible: bool = False,
    seed: int = 0,
    max_steps: int = MAX_STEPS,
    workers: int = 2,
    name: str | None = None,
) -> Record:
    """Let each agent play the same real tasks alone and with each look-ahead.

    ``out`` gets ``arms.jsonl`` (episodes, with their plans), ``metrics.json`` and ``report.html``. Started again it
    goes on. ``overlap`` says how many of the tasks the world model was trained on, as far as that is known; where it is
    some, a warning does too.

    Args:
        admissible: propose first actions from what the real environment says to be possible.

    Raises:
        ConfigError: settings out of range or contradictory, or ``out`` holds a run with others.
    """
    named = labels(agents)
    if not searches or len({search.label for search in searches}) < len(searches):
        raise ConfigError("give one or more look-aheads, each once")
    tasks_of = Tasks(env, split, choose_tasks(env, split, tasks, seed), seed, max_steps)
    with env.build() as world:
        installed = world.ref
    told = [asdict(search) for search in searches]
    open_run(out, {
        "stage": "plan", "model": model, **tasks_of.record(), "agents": list(named), "searches": told,
        "admissible": admissible, "fingerprint": fingerprint(files_of(model, None)), **weights_of(agents),
    })  # fmt: skip
    origin = Origin(out)
    known = overlaps(model, agents, {Task.of(installed.name, split, task) for task in tasks_of.ids})
    arms = _arms(open_lm(model), installed.name, named, searches, admissible)
    records = played.play_arms(out / ARMS, arms, tasks_of, workers)
    head = {**about(name or out.name, model, installed, split), "searches": told, "admissible": admissible, **known}
    return publish(out, {**head, **measured(records, list(named), searches), "provenance": origin.told()})


def _arms(
    lm: WorldLM, env: str, agents: Mapping[str, AgentSpec], searches: Sequence[Search], admissible: bool
) -> list[Arm]:
    def planning(name: str, spec: AgentSpec, search: Search) -> Arm:
        def agent(starts: Mapping[str, Start], real: Watched) -> Agent:
            return Planner(spec.build(), lm, search, starts, env, real.admissible if admissible else lambda: ())

        return Arm(arm_name(name, search), agent)

    def alone(name: str, spec: AgentSpec) -> Arm:
        return Arm(arm_name(name), lambda starts, real: spec.build())

    return [
        arm
        for name, spec in agents.items()
        for arm in (alone(name, spec), *(planning(name, spec, s) for s in searches))
    ]


def arm_name(agent: str, search: Search | None = None) -> str:
    """How ``metrics.json`` calls an arm."""
    return f"{agent}, {search.label}" if search else f"{agent}, alone"


def measured(records: Sequence[Record], agents: Sequence[str], searches: Sequence[Search]) -> Record:
    """The parts ``utility`` and ``planning`` of ``metrics.json``, from the records of all arms.

    ``gain`` is that of the look-ahead with the most successes (of several, the cheapest) for the first agent; it is
    the best of ``best_of``, and so a little flattered. ``fewer_steps`` is how many real steps a task took less than
    alone, episodes that did not succeed counted as they are. ``imagined_steps`` of an arm were really imagined; the
    look-ahead's ``cost`` only bounds them.
    """
    arms = played.by_arm(records)
    found = {name: played.rates(of, sum(p["steps"] for p in played.notes(of, "plans"))) for name, of in arms.items()}
    gains: Record = {}
    for agent in agents:
        alone = arms[arm_name(agent)]
        for search in searches:
            arm = arms[arm_name(agent, search)]
            fewer = interval(_fewer, [_steps(alone), _steps(arm)])
            gains.setdefault(agent, {})[search.label] = {**(played.gain(arm, alone) or {}), "fewer_steps": fewer}
    own = gains[agents[0]]
    best = max(sorted(searches, key=lambda s: s.cost), key=lambda s: float(own[s.label]["value"])).label
    utility = {
        "arms": found,
        "gains": gains,
        "gain": {**own[best], "agent": agents[0], "arm": best, "best_of": len(own)},
    }
    return {"utility": utility, "planning": {name: _foresight(of) for name, of in arms.items() if _plans(of)}}


def _fewer(alone: Any, arm: Any, axis: int = -1) -> Any:
    return alone.mean(axis=axis) - arm.mean(axis=axis)


def _steps(records: Sequence[Record]) -> list[float]:
    return [float(len(record["episode"]["steps"])) for record in records]


def _plans(records: Sequence[Record]) -> list[Record]:
    return list(played.notes(records, "plans"))


def _foresight(records: Sequence[Record]) -> Record:
    """How often it looked ahead, how often it foresaw a success, and how often the last such plan came true."""
    plans = _plans(records)
    foreseen = {plan["task_id"] for plan in plans if plan["success"]}
    true = [float(played.outcome_of(r) == "success") for r in records if r["task_id"] in foreseen]
    found: dict[str, Any] = {"look_aheads": len(plans), "foreseen_successes": sum(plan["success"] for plan in plans)}
    return found | ({"tasks_won_of_those_foreseen": played.share(true)} if true else {})
