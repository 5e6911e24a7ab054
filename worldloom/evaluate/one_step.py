"""One-step fidelity: teacher-forced exact match of (observation, terminal) on real episodes.

Correct means ``prediction.strip() == target.strip()``, suffix included (Word2World, arXiv 2512.18832, section 3).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from worldloom.collect import label
from worldloom.errors import ContextOverflow
from worldloom.evaluate.stats import interval, rate, ratio, word_f1
from worldloom.lm.score import score
from worldloom.lm.server import ServerLM
from worldloom.lm.session import LocalLM
from worldloom.protocol import heard, render, said
from worldloom.tokens import Encoded
from worldloom.trajectory import Step, Trajectory

Record = dict[str, Any]
NOTHING = "Nothing happens."
ENDS = ("success", "failure")


def score_episodes(lm: LocalLM, episodes: Sequence[tuple[Trajectory, str, Encoded]]) -> list[Record]:
    """Records of some (episode, key, tokens): at each step what was to be said, what the model says, and whether
    that is right.

    One forward pass for all; only steps whose gold tokens are not the argmax are generated, to learn what the model
    says. Steps that do not fit the model's window are counted in ``left_out``.
    """
    scored = score(lm, [(trajectory, encoded) for trajectory, _, encoded in episodes])
    return [
        {
            "kind": "one_step", "key": key, "task_id": trajectory.task.id, "agent": label(trajectory),
            "steps": [_judged(trajectory, *step) for step in steps], "left_out": encoded.left_out,
        }
        for (trajectory, key, encoded), steps in zip(episodes, scored, strict=True)
    ]  # fmt: skip


def generate_episode(lm: ServerLM, trajectory: Trajectory, key: str) -> Record:
    """The record of one episode by a model that can only be asked: each step is generated after the real history.

    A step that does not fit the model's window ends the scoring; those left are counted in ``left_out``.
    """
    messages, steps = render(trajectory), []
    for number in range(len(trajectory.steps)):
        try:
            steps.append(_judged(trajectory, number, lm.reply(messages[: 2 * number + 2])))
        except ContextOverflow:
            break
    return {
        "kind": "one_step", "key": key, "task_id": trajectory.task.id, "agent": label(trajectory),
        "steps": steps, "left_out": len(trajectory.steps) - len(steps),
    }  # fmt: skip


def _judged(trajectory: Trajectory, number: int, answer: str | None, logprob: float | None = None) -> Record:
    step = trajectory.steps[number]
    text = said(step.observation, step.terminal) if answer is None else answer
    found = judge(step, text, number + 1, _stratum(trajectory, number))
    return found if logprob is None else found | {"logprob": logprob}


def judge(step: Step, text: str, index: int, stratum: str | None = None) -> Record:
    """Compare what a model said at a step with what was to be said."""
    predicted, terminal = heard(text)
    gold_end = step.terminal if step.terminal in ENDS else None
    same = predicted.strip() == step.observation.strip()
    return {
        "index": index,
        "action": step.action,
        "gold": step.observation,
        "gold_terminal": gold_end,
        "predicted": predicted,
        "predicted_terminal": terminal,
        "correct": same and terminal == gold_end,
        "correct_observation": same,
        "word_f1": word_f1(predicted, step.observation),
        "stratum": stratum,
    }


def _stratum(trajectory: Trajectory, number: int) -> str | None:
    """What the action was to the real environment, told by its admissible actions; None where that is unknown."""
    before = trajectory.steps[number - 1].admissible_actions if number else None
    if before is None:
        return None
    step = trajectory.steps[number]
    if step.action not in before:
        return "invalid"
    return "no_change" if step.admissible_actions == before else "state_changing"


def one_step_metrics(records: Sequence[Record], real: Iterable[Trajectory] = ()) -> Record:
    """The ``one_step`` part of ``metrics.json``, from the records alone; baselines need their real episodes too,
    in the same order.

    Rates are over steps, their intervals over episodes.
    """
    steps = [record["steps"] for record in records]
    metrics: Record = {
        "n_episodes": len(records),
        "n_steps": sum(map(len, steps)),
        "left_out": sum(record["left_out"] for record in records),
        "em": _mean(steps, lambda s: s["correct"]),
        "em_observation": _mean(steps, lambda s: s["correct_observation"]),
        "word_f1": _mean(steps, lambda s: s["word_f1"]),
        "terminal": _terminal(steps),
        "strata": _strata(steps),
        "by_step_index": _by_index(steps),
        "by_agent": {a: _mean([r["steps"] for r in records if r["agent"] == a], lambda s: s["correct"])
                     for a in sorted({r["agent"] for r in records})},
    }  # fmt: skip
    if episodes := list(real):
        metrics["baselines"] = baselines(episodes, [[s["index"] - 1 for s in episode] for episode in steps])
    return metrics


def _mean(steps: Sequence[Sequence[Record]], value: Callable[[Record], float]) -> Record | None:
    return rate([sum(map(value, episode)) for episode in steps], [len(episode) for episode in steps])


def _terminal(steps: Sequence[Sequence[Record]]) -> Record:
    """Precision, recall and F1 of the end, and how often the model claims a success where there is none."""
    hits = [sum(s["predicted_terminal"] == s["gold_terminal"] is not None for s in episode) for episode in steps]
    told = [sum(s["predicted_terminal"] is not None for s in episode) for episode in steps]
    true = [sum(s["gold_terminal"] is not None for s in episode) for episode in steps]
    false = [sum(s["predicted_terminal"] == "success" != s["gold_terminal"] for s in episode) for episode in steps]
    open_steps = [sum(s["gold_terminal"] != "success" for s in episode) for episode in steps]

    found = {"precision": rate(hits, told), "recall": rate(hits, true), "false_success_rate": rate(false, open_steps)}
    if sum(told) + sum(true):
        found["f1"] = interval(ratio, [[2 * h for h in hits], [a + b for a, b in zip(told, true, strict=True)]])
    return {name: value for name, value in found.items() if value is not None}


def _strata(steps: Sequence[Sequence[Record]]) -> Record:
    names = sorted({s["stratum"] for episode in steps for s in episode} - {None})
    found = {}
    for name in names:
        chosen = [[s for s in episode if s["stratum"] == name] for episode in steps]
        found[name] = {"n": sum(map(len, chosen)), "em": _mean(chosen, lambda s: s["correct"])}
    return found


def _by_index(steps: Sequence[Sequence[Record]]) -> list[Record]:
    longest = max((s["index"] for episode in steps for s in episode), default=0)
    found = []
    for index in range(1, longest + 1):
        chosen = [[s for s in episode if s["index"] == index] for episode in steps]
        if n := sum(map(len, chosen)):
            found.append({"step": index, "n": n, "em": _mean([c for c in chosen if c], lambda s: s["correct"])})
    return found


def baselines(episodes: Sequence[Trajectory], chosen: Sequence[Iterable[int]] | None = None) -> Record:
    """Exact match of saying the same again, and of saying that nothing happens.

    Args:
        episodes: the real episodes.
        chosen: the indices of the steps of each that count; all of them if not given.
    """
    steps = chosen if chosen is not None else [range(len(t.steps)) for t in episodes]
    return {
        "repeat_last": {"em": _baseline(episodes, steps, _last)},
        "nothing_happens": {"em": _baseline(episodes, steps, lambda t, n: NOTHING)},
    }


def _last(trajectory: Trajectory, number: int) -> str:
    return trajectory.steps[number - 1].observation if number else trajectory.initial_observation


def _baseline(
    episodes: Sequence[Trajectory], chosen: Sequence[Iterable[int]], say: Callable[[Trajectory, int], str]
) -> Record | None:
    judged = [
        [judge(t.steps[n], say(t, n), n + 1) for n in numbers] for t, numbers in zip(episodes, chosen, strict=True)
    ]
    return _mean(judged, lambda s: s["correct"])
