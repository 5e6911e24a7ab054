"""What verification is worth: agents of several skills, several budgets, on the same tasks of the real environment."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from worldloom.agents import AgentSpec
from worldloom.agents.base import Agent
from worldloom.collect import choose_tasks
from worldloom.coverage.steps import kind_of
from worldloom.envs import Environment, EnvSpec
from worldloom.envs.versions import check_version, refs_of
from worldloom.errors import ConfigError
from worldloom.evaluate.stats import rate
from worldloom.lineage import Task, files_of, overlap, overlaps, tasks_of, weights_of
from worldloom.lm.base import WorldLM, open_lm
from worldloom.origin import Origin
from worldloom.practice import arms as played
from worldloom.practice.arms import Arm, Record, Tasks, labels
from worldloom.practice.calibrate import judge_all, judged_of
from worldloom.practice.following import Memo
from worldloom.practice.plan import Watched
from worldloom.practice.threshold import by_gain, by_refusals, described
from worldloom.practice.truth import truth_of
from worldloom.practice.utility import about, publish
from worldloom.practice.verify import Check, Verdict, VerifiedAgent, followed
from worldloom.rollout import MAX_STEPS
from worldloom.runs import fingerprint, open_run
from worldloom.trajectory import Trajectory, read
from worldloom.world import Start

ARMS, CALIBRATION = "arms.jsonl", "calibration.jsonl"


def verify(
    out: Path,
    model: str,
    env: EnvSpec,
    agents: Sequence[AgentSpec],
    check: Check,
    budgets: Sequence[int],
    *,
    split: str,
    tasks: int,
    threshold: float | None = None,
    calibrate: Path | None = None,
    most_wrong: float | None = None,
    seed: int = 0,
    max_steps: int = MAX_STEPS,
    workers: int = 2,
    name: str | None = None,
) -> Record:
    """Let each agent play the same real tasks at each budget of refusals, and see what the refusals were worth.

    ``out`` gets ``calibration.jsonl``, ``arms.jsonl`` (episodes and verdicts, with the truth), ``metrics.json`` and
    ``report.html``. Budget 0 is a dry run: all is judged, nothing held back. Started again it goes on.

    ``overlap`` says how many of the tasks the world model was trained on, as far as that is known; where it is some, a
    warning does too.

    Args:
        check: its threshold and budget are replaced by those here.
        threshold: see ``Check``; chosen on ``calibrate`` if not given.
        calibrate: a file of real episodes, of none of the tasks played here.
        most_wrong: choose the threshold that holds back at most this share of right actions, instead of the one with
            the largest expected gain; see ``practice.threshold``.

    Raises:
        ConfigError: settings out of range or contradictory, or ``out`` holds a run with others.
    """
    named = labels(agents)
    ids = choose_tasks(env, split, tasks, seed)
    logged = _checked(budgets, threshold, calibrate, set(ids))
    with env.build() as world:
        check_version(refs_of(logged), world.ref, str(calibrate))
        installed = world.ref
    plan = Tasks(env, split, ids, seed, max_steps)
    open_run(out, {
        "stage": "verify", "model": model, **plan.record(), "agents": list(named), "check": check.record(),
        "budgets": list(budgets), "threshold": threshold, "calibrate": calibrate.as_posix() if calibrate else None,
        "most_wrong": most_wrong, "fingerprint": fingerprint(files_of(model, calibrate)), **weights_of(agents),
    })  # fmt: skip
    origin = Origin(out)
    known = overlaps(model, agents, {Task.of(installed.name, split, task) for task in ids})
    lm = open_lm(model)
    chosen: Record = {"threshold": threshold}
    if threshold is None:
        learnt = overlap(model, tasks_of(logged), "calibrated")
        judged = judge_all(out / CALIBRATION, lm, logged, check, env, workers)
        best = by_gain(judged) if most_wrong is None else by_refusals(judged, most_wrong)
        chosen = described(judged, best) | ({"overlap": learnt} if learnt else {})
    check = replace(check, threshold=chosen["threshold"])
    arms = _arms(lm, installed.name, named, check, budgets)
    records = played.play_arms(out / ARMS, arms, plan, workers, with_truth(seed))
    told = {**about(name or out.name, model, installed, split), "check": check.record(), **known}
    found = measured(records, list(named), budgets, chosen)
    return publish(out, {**told, **found, "provenance": origin.told()})


def _checked(
    budgets: Sequence[int], threshold: float | None, calibrate: Path | None, ids: set[str]
) -> list[Trajectory]:
    """The episodes to calibrate on."""
    if not budgets or len({*budgets}) < len(budgets) or min(budgets) < 0:
        raise ConfigError(f"budgets are numbers of refusals, 0 or more, each once; not {list(budgets)}")
    if (threshold is None) == (calibrate is None):
        raise ConfigError("give either a threshold, or real episodes to calibrate it on")
    episodes = [t for t in read(calibrate) if t.steps] if calibrate else []
    if shared := ids & {t.task.id for t in episodes}:
        raise ConfigError(
            f"{calibrate} has episodes of {len(shared)} of the tasks that are to be played, such as {min(shared)!r}; "
            "calibrate on other tasks"
        )
    return episodes


def _arms(lm: WorldLM, env: str, agents: Mapping[str, AgentSpec], check: Check, budgets: Sequence[int]) -> list[Arm]:
    memo: Memo = {}  # arms of one agent are the same until a budget is spent

    def arm(name: str, spec: AgentSpec, budget: int) -> Arm:
        own = replace(check, budget=budget, dry_run=budget == 0)

        def agent(starts: Mapping[str, Start], real: Watched) -> Agent:
            return VerifiedAgent(spec.build(), lm, own, starts, env, memo=memo)

        return Arm(arm_name(name, budget), agent)

    return [arm(name, spec, budget) for name, spec in agents.items() for budget in budgets]


def arm_name(agent: str, budget: int) -> str:
    """How ``metrics.json`` calls an arm."""
    return f"{agent}, budget {budget}"


def with_truth(seed: int) -> Callable[[Environment, Trajectory], Record]:
    """For ``play_arms``: say of each verdict what the action would really have come to."""

    def after(env: Environment, episode: Trajectory) -> Record:
        actions, found = episode.actions, []
        for verdict in followed(episode):
            truth = truth_of(env, episode.task.id, seed, actions[: verdict["step"]], verdict["action"])
            found.append({**verdict, "task_id": episode.task.id, "right": truth})
        return {"verdicts": found}

    return after


def measured(records: Sequence[Record], agents: Sequence[str], budgets: Sequence[int], chosen: Record) -> Record:
    """The parts ``utility`` and ``verification`` of ``metrics.json``, from the records of all arms."""
    arms = played.by_arm(records)
    found = {name: _arm(of) for name, of in arms.items()}
    gains = {agent: _gains(arms, agent, budgets) for agent in agents}
    utility: Record = {"arms": found, "gains": gains}
    if 0 in budgets and len(budgets) > 1:
        utility["gain"] = _middle(found, agents, gains)
    plain = [arms[arm_name(agent, 0)] for agent in agents if 0 in budgets]
    dry = judged_of([verdict for of in plain for record in of for verdict in record.get("verdicts", ())])
    verification = {"calibration": chosen, **({"dry_run": described(dry, chosen["threshold"])} if dry else {})}
    return {"utility": utility, "verification": verification}


def _arm(records: Sequence[Record]) -> Record:
    verdicts = [verdict for record in records for verdict in record.get("verdicts", ())]
    found = played.rates(records, sum(verdict.get("steps", 0) for verdict in verdicts))
    found |= _both(verdicts)
    kinds = sorted({kind_of(verdict["action"]).name for verdict in verdicts})
    if len(kinds) > 1:
        found["kinds"] = {kind: _both([v for v in verdicts if kind_of(v["action"]).name == kind]) for kind in kinds}
    for share, right in (("wrong_actions_prevented", False), ("right_actions_blocked", True)):
        per_task = [[v for v in record.get("verdicts", ()) if v["right"] is right] for record in records]
        held = rate([sum(v["held"] for v in of) for of in per_task], [len(of) for of in per_task])
        found |= {share: held} if held else {}
    return found


def _both(verdicts: Sequence[Verdict]) -> Record:
    return {"refusals": _counts(verdicts, True), "passes": _counts(verdicts, False)}


def _counts(verdicts: Sequence[Verdict], held: bool) -> Record:
    """Of the actions that were held back (or not), for how many that was right; ``unknown``: what the action would have
    come to cannot be told."""
    truths = Counter(verdict["right"] for verdict in verdicts if verdict["held"] is held)
    return {"right": truths[not held], "wrong": truths[held], "unknown": truths[None]}


def _gains(arms: Mapping[str, Sequence[Record]], agent: str, budgets: Sequence[int]) -> Record:
    least, *more = sorted(budgets)
    without = arms[arm_name(agent, least)]
    return {str(budget): played.gain(arms[arm_name(agent, budget)], without) for budget in more}


def _middle(found: Mapping[str, Record], agents: Sequence[str], gains: Mapping[str, Record]) -> Record:
    """The gain of the best budget for the agent of middle skill (by its success at budget 0); ``best_of`` so many."""
    ranked = sorted(agents, key=lambda agent: float(found[arm_name(agent, 0)]["real_success"]["value"]))
    agent = ranked[len(ranked) // 2]
    budget, best = max(gains[agent].items(), key=lambda item: float(item[1]["value"]))
    return {**best, "agent": agent, "budget": int(budget), "best_of": len(gains[agent])}
