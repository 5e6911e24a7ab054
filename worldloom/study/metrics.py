"""The figures of a study: those of its arms, and how far arms are apart."""

from collections.abc import Iterable, Mapping
from typing import Any

from worldloom.evaluate.stats import difference as paired
from worldloom.evaluate.summary import percent

Record = dict[str, Any]
ONE_STEP = ("em", "em_observation", "word_f1")
OVERALL = ("real", "wm", "w2r", "cr", "cr_paired")


def arm_metrics(metrics: Mapping[str, Any], world: str) -> Record:
    """An arm's figures, from the metrics of its evaluation.

    Returns:
        ``world``, ``environment``, ``split``, the amounts it was trained on (``trajectories`` and ``tokens`` seen, and
        ``minutes``), ``em`` and others with their intervals, ``n`` (episodes), ``n_steps``, ``retrieval`` (exact match
        of guessing from the same logged episodes, without a model), and, where measured, the rates of consistency with
        ``n_tasks``.
    """
    train, one, played = metrics["train"], metrics["one_step"], metrics.get("consistency")
    found: Record = {
        "world": world,
        "environment": metrics["environment"],
        "split": metrics["split"],
        "trajectories": train["trajectories_seen"],
        "tokens": train["tokens_seen"],
        "minutes": round(train["seconds"] / 60, 1),
        **{name: one[name] for name in ONE_STEP},
        "n": one["n_episodes"],
        "n_steps": one["n_steps"],
    }
    if (usual := one.get("baselines", {}).get("retrieval", {}).get("em")) is not None:
        found["retrieval"] = usual
    if played:
        found |= {name: played["overall"][name] for name in OVERALL if played["overall"].get(name)}
        found |= {"n_tasks": played["n_tasks"], "agents": {a: _rates(of) for a, of in played["agents"].items()}}
    return found


def _rates(found: Mapping[str, Any]) -> Record:
    return {name: found[name] for name in OVERALL if found.get(name)}


def difference(one: Iterable[Record], other: Iterable[Record]) -> Record | None:
    """Exact match of one arm less that of another, on the same episodes, from their records; resampled by episode,
    with both arms' steps on it. Where an episode outgrows the window of one, the steps that both were shown count. None
    if they are not of the same episodes."""
    left, right = _right(one), _right(other)
    if not left or left.keys() != right.keys():
        return None
    both = [list(zip(left[key], right[key], strict=False)) for key in sorted(left)]
    ours, theirs = ([float(sum(pair[side] for pair in steps)) for steps in both] for side in (0, 1))
    return paired(ours, theirs, [float(len(steps)) for steps in both])


def _right(records: Iterable[Record]) -> dict[str, list[bool]]:
    """Whether each step of each episode is right."""
    return {
        record["key"]: [bool(step["correct"]) for step in record["steps"]]
        for record in records
        if record["kind"] == "one_step"
    }


def told(found: Mapping[str, Any]) -> str:
    """A study's arms and differences as a few lines of text."""
    rows = [(name, _arm_told(arm)) for name, arm in found["arms"].items()]
    rows += [(name, percent(apart)) for name, apart in found["differences"].items()]
    return "\n".join(f"{name:<44} {text}" for name, text in rows)


def _arm_told(arm: Mapping[str, Any]) -> str:
    ratio_told = f", CR {arm['cr']['value']:.2f} of {arm['n_tasks']} tasks" if arm.get("cr") else ""
    learnt = f"{arm['trajectories']} trajectories, {arm['tokens']} tokens"
    return f"exact match {percent(arm['em'])} of {arm['n']} episodes after {learnt}{ratio_told}"
