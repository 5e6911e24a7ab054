"""One-step fidelity: teacher-forced exact match of (observation, terminal) on real episodes.

Correct means ``prediction.strip() == target.strip()``, suffix included (Word2World, arXiv 2512.18832, section 3).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from worldloom.collect import label
from worldloom.coverage.steps import kind_of
from worldloom.envs.answer_schema import is_json, parsed, schema_agreement
from worldloom.evaluate.lenient import masked, unordered
from worldloom.evaluate.stats import rate, word_f1
from worldloom.lm.base import AnsweringLM, Confidence
from worldloom.lm.replies import Replies
from worldloom.lm.retrieval import RetrievalLM
from worldloom.lm.score import exact, score
from worldloom.lm.session import LocalLM
from worldloom.protocol import heard, said
from worldloom.tokens import Encoded
from worldloom.trajectory import Step, Trajectory

Record = dict[str, Any]
NOTHING = "Nothing happens."
ENDS = ("success", "failure")
CONTEXTS = (1000, 2000, 4000)  # tokens of history
LEAST_IN_STRATUM = 10  # steps, for a verb to be told apart
WORD = re.compile(r"\w+")
CALL = "tool_call"


def score_episodes(lm: LocalLM, episodes: Sequence[tuple[Trajectory, str, Encoded]]) -> list[Record]:
    """Records of some (episode, key, tokens): at each step what was to be said, what the model says, and whether
    that is right.

    One forward pass for all; only steps whose gold tokens are not the argmax are generated, to learn what the model
    says. Steps that do not fit the model's window are counted in ``left_out``.
    """
    scored = score(lm, [(trajectory, encoded) for trajectory, _, encoded in episodes])
    return [
        _record(trajectory, key, [
            _judged(trajectory, number, answer, confidence) | {"logprob": logprob, "context_tokens": span.start}
            for (number, answer, logprob, confidence), span in zip(steps, encoded.spans, strict=True)
        ], lm.replies)
        for (trajectory, key, encoded), steps in zip(episodes, scored, strict=True)
    ]  # fmt: skip


def verify_episodes(lm: LocalLM, episodes: Sequence[tuple[Trajectory, str, Encoded]]) -> list[Record]:
    """Records of some (episode, key, tokens) that say of each step whether the model is right, and nothing else of
    what it says: several times as quick as ``score_episodes`` for a model that is often wrong."""
    verdicts = exact(lm, [(trajectory, encoded) for trajectory, _, encoded in episodes])
    return [
        _record(trajectory, key, [
            _about(trajectory, number) | {"correct": right, "logprob": logprob, "context_tokens": span.start}
            for (number, right, logprob), span in zip(steps, encoded.spans, strict=True)
        ], lm.replies)
        for (trajectory, key, encoded), steps in zip(episodes, verdicts, strict=True)
    ]  # fmt: skip


def answer_episode(lm: AnsweringLM, trajectory: Trajectory, key: str) -> Record:
    """The record of one episode by a model that can only be asked, step by step after the real history.

    Steps that it gives no answer to, as they outgrow its window, are counted in ``left_out``.
    """
    answered = zip(range(len(trajectory.steps)), lm.answers(trajectory), strict=False)
    judged = [_judged(trajectory, number, answer) for number, answer in answered if not _unknown(trajectory, number)]
    return _record(trajectory, key, judged, lm.replies)


def _unknown(trajectory: Trajectory, number: int) -> bool:
    """Whether a recorded world did not know the answer, so that nothing can be compared with it."""
    return bool(trajectory.steps[number].not_recorded)


def recorded(trajectory: Trajectory) -> int:
    """How many steps of an episode have a known answer, so that a model can be measured by them."""
    return sum(not step.not_recorded for step in trajectory.steps)


def _record(trajectory: Trajectory, key: str, steps: Sequence[Record], logged: Replies | None) -> Record:
    usual = {name: list(say(trajectory)) for name, say in _guessers(logged).items()} if steps else {}
    for judged in steps:
        number = judged["index"] - 1
        told = {name: answers[number] for name, answers in usual.items()}
        judged["baselines"] = {n: judge(trajectory.steps[number], text)["correct"] for n, text in told.items()}
        if "confidence" in judged and "retrieval" in told:
            ours = heard(told["retrieval"])
            judged["confidence"]["agrees"] = ours == (judged["predicted"], judged["predicted_terminal"])
    return {
        "kind": "one_step", "key": key, "task_id": trajectory.task.id, "agent": label(trajectory),
        "steps": steps, "left_out": recorded(trajectory) - len(steps),
    }  # fmt: skip


def _judged(
    trajectory: Trajectory, number: int, answer: str | None, confidence: Confidence | None = None
) -> Record:  # fmt: skip
    step = trajectory.steps[number]
    text = said(step.observation, step.terminal) if answer is None else answer
    judged = _about(trajectory, number) | judge(step, text)
    return judged | ({"confidence": confidence.record()} if confidence else {})


def _about(trajectory: Trajectory, number: int) -> Record:
    """What a record tells of a step, whatever a model says."""
    step = trajectory.steps[number]
    known = {} if step.reward is None else {"gold_reward": step.reward}
    return known | {
        "index": number + 1,
        "action": step.action,
        "gold": step.observation,
        "gold_terminal": _end(step),
        "stratum": trajectory.effect(number),
        "again": step.action in {earlier.action for earlier in trajectory.steps[:number]},
    }


def _end(step: Step) -> str | None:
    return step.terminal if step.terminal in ENDS else None


def judge(step: Step, text: str) -> Record:
    """Compare what a model said at a step with what was to be said."""
    predicted, terminal = heard(text)
    same = predicted.strip() == step.observation.strip()
    return {
        "predicted": predicted,
        "predicted_terminal": terminal,
        "correct": same and terminal == _end(step),
        "correct_observation": same,
        "word_f1": word_f1(predicted, step.observation),
    }


def one_step_metrics(records: Sequence[Record]) -> Record:
    """The ``one_step`` part of ``metrics.json``, from the records alone.

    Rates are over steps, their intervals over episodes; ``em_macro`` is the mean over episodes. Where the records do
    not say what the model says (``verify_episodes``), there is no figure that needs it.
    """
    steps = [record["steps"] for record in records]
    told = all("predicted" in s for episode in steps for s in episode)
    metrics: Record = {
        "n_episodes": len(records),
        "n_steps": sum(map(len, steps)),
        "left_out": sum(record["left_out"] for record in records),
        "em": _mean(steps, lambda s: s["correct"]),
        "em_macro": _macro(steps),
        **(_of_answers(steps) if told else {}),
        "strata": _strata(steps),
        "by_step_index": _by_index(steps),
        "by_agent": {a: _mean([r["steps"] for r in records if r["agent"] == a], lambda s: s["correct"])
                     for a in sorted({r["agent"] for r in records})},
    }  # fmt: skip
    if found := baselines(records):
        metrics["baselines"] = found
    return metrics


def _of_answers(steps: Sequence[Sequence[Record]]) -> Record:
    """What needs the model's own words."""
    found = {
        "em_observation": _mean(steps, lambda s: s["correct_observation"]),
        "em_without_counters": _mean(steps, lambda s: _alike(s, masked)),
        "em_without_order": _mean(steps, lambda s: _alike(s, unordered)),
        "word_f1": _mean(steps, lambda s: s["word_f1"]),
        "terminal": _terminal(steps),
    }
    if (error := _mean(_known(steps), _reward_error)) is not None:
        found["reward_error"] = error
    if answers := _tool_answers(steps):
        found["tool_answers"] = answers
    return found


def _known(steps: Sequence[Sequence[Record]]) -> list[list[Record]]:
    return [[s for s in episode if "gold_reward" in s] for episode in steps]


def _reward_error(step: Record) -> float:
    """How far the reward is off that an agent would get of the model: 1 where it tells a success, else nothing."""
    imagined = 1.0 if step["predicted_terminal"] == "success" else 0.0
    return abs(imagined - float(step["gold_reward"]))


def _tool_answers(steps: Sequence[Sequence[Record]]) -> Record:
    """Of the steps that a tool answered with a JSON object or list: how many there are, the share that the model
    answers with JSON too, and the mean agreement of keys and types (see ``envs.answer_schema``)."""
    chosen = [[s for s in episode if _structured(s["gold"])] for episode in steps]
    if not (n := sum(map(len, chosen))):
        return {}
    agreement = _mean(chosen, lambda s: schema_agreement(s["predicted"], s["gold"]) or 0.0)
    return {"n": n, "json": _mean(chosen, lambda s: is_json(s["predicted"])), "schema_agreement": agreement}


def _structured(text: str) -> bool:
    found = parsed(text)
    return found is not None and isinstance(found[0], dict | list)


def _macro(steps: Sequence[Sequence[Record]]) -> Record | None:
    shares = [sum(s["correct"] for s in episode) / len(episode) for episode in steps if episode]
    return rate(shares, [1] * len(shares))


def _alike(step: Record, seen: Callable[[str], Any]) -> bool:
    """Whether a step is right once both texts are looked at in a kinder way."""
    same = seen(step["predicted"].strip()) == seen(step["gold"].strip())
    return bool(same and step["predicted_terminal"] == step["gold_terminal"])


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
        found["f1"] = rate([2 * h for h in hits], [a + b for a, b in zip(told, true, strict=True)])
    return {name: value for name, value in found.items() if value is not None}


def _strata(steps: Sequence[Sequence[Record]]) -> Record:
    """Exact match by kinds of steps; a step is of several."""
    kinds = [[(s, _kinds(s)) for s in episode] for episode in steps]
    if any(CALL in found_in for episode in kinds for _, found_in in episode):
        kinds = [[(s, k if CALL in k else [*k, f"no_{CALL}"]) for s, k in episode] for episode in kinds]
    names = Counter(name for episode in kinds for _, found in episode for name in found)
    found = {}
    for name in sorted(names):
        if names[name] >= LEAST_IN_STRATUM or not name.startswith(("verb ", "call ")):
            chosen = [[s for s, found_in in episode if name in found_in] for episode in kinds]
            found[name] = {"n": names[name], "em": _mean(chosen, lambda s: s["correct"])}
    return found


def _kinds(step: Record) -> list[str]:
    """What kind of a step it was: to the environment, done before, its tool or verb, how long the history was."""
    kinds = [step["stratum"]] if step.get("stratum") else []
    if "again" in step:
        kinds.append("done_before" if step["again"] else "first_time")
    if "context_tokens" in step:
        below = next((limit for limit in CONTEXTS if step["context_tokens"] < limit), None)
        kinds.append(f"context_below_{below}" if below else f"context_from_{CONTEXTS[-1]}")
    if (kind := kind_of(step["action"])).call:
        return [*kinds, CALL, f"call {kind.name}"]
    verb = WORD.match(step["action"])
    return [*kinds, f"verb {verb[0].lower()}"] if verb else kinds


def _by_index(steps: Sequence[Sequence[Record]]) -> list[Record]:
    longest = max((s["index"] for episode in steps for s in episode), default=0)
    found = []
    for index in range(1, longest + 1):
        chosen = [[s for s in episode if s["index"] == index] for episode in steps]
        if n := sum(map(len, chosen)):
            found.append({"step": index, "n": n, "em": _mean([c for c in chosen if c], lambda s: s["correct"])})
    return found


def baselines(records: Sequence[Record]) -> Record:
    """Exact match of saying the same again, of saying that nothing happens, and of two that know logged replies: the
    majority reply to that form of action, and the nearest logged transition with this episode's things put in."""
    steps = [[s for s in record["steps"] if "baselines" in s] for record in records]
    names = list(dict.fromkeys(name for episode in steps for s in episode for name in s["baselines"]))
    return {name: {"em": _baseline(steps, name)} for name in names}


def _baseline(steps: Sequence[Sequence[Record]], name: str) -> Record | None:
    return _mean(steps, lambda s: s["baselines"][name])


def _guessers(logged: Replies | None) -> dict[str, Callable[[Trajectory], Iterable[str]]]:
    """What each baseline says at each step of a real episode."""
    found: dict[str, Callable[[Trajectory], Iterable[str]]] = {
        "repeat_last": lambda t: [t.initial_observation, *(step.observation for step in t.steps[:-1])],
        "nothing_happens": lambda t: [NOTHING] * len(t.steps),
    }
    if logged is not None and logged.forms:
        found["majority_reply"] = RetrievalLM(logged, remember=False).answers
        found["retrieval"] = RetrievalLM(logged).answers
    return found
