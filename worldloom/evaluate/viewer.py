"""Episodes of an evaluation as rows to read side by side: what really followed, and what the world model said.

Which words differ is worked out here, so that the page needs no program to show it.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from worldloom.trajectory import Step, Trajectory

EPISODES = 60  # more than anybody reads, and still a page of a few megabytes

_WORD = re.compile(r"\w+|[^\w\s]")
_SPACE_OR_WORD = re.compile(r"\s|\S+")
_EXACT_DIFF_TO = 2000  # words; above, difflib's own heuristic keeps the time in bounds


class Pair(NamedTuple):
    """The two sides of a step, escaped, with ``<mark>`` around the words that differ."""

    real: Markup
    imagined: Markup


@dataclass(frozen=True)
class Row:
    """One step: None for a side that had ended before it, or whose text was not kept."""

    number: int
    action: str
    same: bool
    real: Markup | None
    imagined: Markup | None
    real_end: str | None
    imagined_end: str | None
    ends_differ: bool


@dataclass(frozen=True)
class Episode:
    """All rows of one episode, with what is said above them."""

    kind: str
    title: str
    facts: dict[str, str]
    opening: dict[str, str]
    rows: list[Row]

    @property
    def differing(self) -> list[int]:
        """The numbers of the steps at which the two sides differ."""
        return [row.number for row in self.rows if not row.same]

    @property
    def label(self) -> str:
        """The episode's line in the list."""
        wrong = self.differing
        if not self.rows:
            return f"{self.title} · no steps"
        verdict = f"{len(wrong)} of {len(self.rows)} steps differ, first at {wrong[0]}" if wrong else "no difference"
        return f"{self.title} · {verdict}"


class Selection(NamedTuple):
    """The episodes shown, and how many are left out."""

    episodes: list[Episode]
    left_out: int


def select(records: Iterable[Mapping[str, Any]], limit: int = EPISODES) -> Selection:
    """Choose the episodes most worth reading: wrong ends and errors first, then other differences, then the rest.

    The kinds (one-step, consistency, rollouts) take turns, so that none crowds out the others; within a kind the
    order is the records' own. Records of an unknown kind are passed over.
    """
    queues: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for record in records:
        if record.get("kind") in _KINDS:
            severity = _KINDS[record["kind"]].severity(record)
            queues.setdefault((severity, record["kind"]), []).append(record)
    turns = sorted((severity, turn, kind) for (severity, kind), queue in queues.items() for turn in range(len(queue)))
    chosen = [queues[severity, kind][turn] for severity, turn, kind in turns[:limit]]
    episodes = [_KINDS[record["kind"]].episode(record) for record in chosen]
    return Selection(sorted(episodes, key=lambda episode: episode.kind), len(turns) - len(chosen))


def diff(real: str, imagined: str) -> Pair:
    """Escape both texts and mark the words in which they differ (spaces, if they differ in nothing else)."""
    token = _SPACE_OR_WORD if _WORD.findall(real) == _WORD.findall(imagined) else _WORD
    left, right = list(token.finditer(real)), list(token.finditer(imagined))
    matcher = SequenceMatcher(
        None,
        [word[0] for word in left],
        [word[0] for word in right],
        autojunk=max(len(left), len(right)) > _EXACT_DIFF_TO,
    )
    edits = [edit for edit in matcher.get_opcodes() if edit[0] != "equal"]
    return Pair(
        _mark(real, left, ((start, end) for _, start, end, _, _ in edits)),
        _mark(imagined, right, ((start, end) for _, _, _, start, end in edits)),
    )


def _mark(text: str, words: list[re.Match[str]], spans: Iterable[tuple[int, int]]) -> Markup:
    parts, done = [], 0
    for start, end in spans:
        if start < end:
            opens, closes = words[start].start(), words[end - 1].end()
            parts += [escape(text[done:opens]), Markup("<mark>{}</mark>").format(text[opens:closes])]
            done = closes
    return Markup("").join([*parts, escape(text[done:])])


def _row(number: int, same: bool, real: Step | None, imagined: Step | None) -> Row:
    left, right = (None if step is None else escape(step.observation) for step in (real, imagined))
    if real and imagined and not same:
        left, right = diff(real.observation, imagined.observation)
    action = next(step.action for step in (imagined, real) if step)
    ends_differ = bool(real and imagined and _end(real) != _end(imagined))
    ends = [None if step is None else step.terminal for step in (real, imagined)]
    return Row(number, action, same, left, right, ends[0], ends[1], ends_differ)


def _end(step: Step) -> str | None:
    """How the step ends the world; running out of steps is no end that a world model has to foretell."""
    return None if step.terminal == "truncated" else step.terminal


def _one_step_severity(record: Mapping[str, Any]) -> int:
    wrong = [step for step in record["steps"] if not step["correct"]]
    ends = any(step.get("gold_terminal") != step.get("predicted_terminal") for step in wrong)
    return 0 if ends else 1 if wrong else 2


def _one_step_episode(record: Mapping[str, Any]) -> Episode:
    rows = [_one_step_row(step) for step in record["steps"]]
    return Episode("each step from the real history", _title(record), {}, {}, rows)


def _one_step_row(step: Mapping[str, Any]) -> Row:
    gold = Step(action=step["action"], observation=step["gold"], terminal=step.get("gold_terminal"))
    said = step["gold"] if step.get("predicted") is None and step["correct"] else step.get("predicted")
    end = step.get("predicted_terminal")
    imagined = None if said is None else Step(action=step["action"], observation=said, terminal=end)
    return _row(step["index"], bool(step["correct"]), gold, imagined)


def _consistency_severity(record: Mapping[str, Any]) -> int:
    imagined, replay = _played(record, "wm"), _played(record, "w2r")
    outcomes = [imagined.outcome, replay.outcome]
    if "error" in outcomes or outcomes.count("success") == 1:
        return 0
    return 2 if all(_agree(*steps) for steps in zip_longest(replay.steps, imagined.steps)) else 1


def _consistency_episode(record: Mapping[str, Any]) -> Episode:
    imagined, replay = _played(record, "wm"), _played(record, "w2r")
    facts = {name: _ending(_played(record, key)) for key, name in (("real", "Real"), ("wm", "WM"), ("w2r", "W2R"))}
    opening = {
        "Task": imagined.task.instruction,
        "Initial context (for the world model alone)": imagined.initial_context,
        "First observation": imagined.initial_observation,
    }
    pairs = enumerate(zip_longest(replay.steps, imagined.steps), 1)
    rows = [_row(number, _agree(*steps), *steps) for number, steps in pairs]
    shown = {name: text for name, text in opening.items() if text}
    return Episode("whole episodes imagined, then replayed", _title(record), facts, shown, rows)


def _played(record: Mapping[str, Any], world: str) -> Trajectory:
    return Trajectory.model_validate(record[world])


def _agree(real: Step | None, imagined: Step | None) -> bool:
    if real is None or imagined is None:
        return False
    return real.observation.strip() == imagined.observation.strip() and _end(real) == _end(imagined)


def _ending(played: Trajectory) -> str:
    how = f"{played.error.kind}: {played.error.message}" if played.error else played.outcome or "no end"
    return f"{how} after {len(played.steps)} steps"


def _title(record: Mapping[str, Any]) -> str:
    seed = record.get("seed")
    parts = (record["task_id"], record.get("agent"), None if seed is None else f"seed {seed}")
    return " · ".join(part for part in parts if part)


def _rollout_severity(record: Mapping[str, Any]) -> int:
    if record["logged"] and record["logged"] != record["verdict"]:
        return 0
    return 2 if all(step.get("same", True) for step in record["steps"]) else 1


def _rollout_episode(record: Mapping[str, Any]) -> Episode:
    facts = {"Logged": record["logged"] or "no end", "WM": record["verdict"] or record.get("reason") or "no end"}
    rows = [_rollout_row(step) for step in record["steps"]]
    return Episode("logged actions, imagined answers", _title(record), facts, {}, rows)


def _rollout_row(step: Mapping[str, Any]) -> Row:
    real, imagined = (Step(action=step["action"], observation=step[side]) for side in ("gold", "said"))
    return _row(step["index"], bool(step.get("same", True)), real, imagined)


class _Kind(NamedTuple):
    severity: Callable[[Mapping[str, Any]], int]
    episode: Callable[[Mapping[str, Any]], Episode]


_KINDS = {
    "one_step": _Kind(_one_step_severity, _one_step_episode),
    "consistency": _Kind(_consistency_severity, _consistency_episode),
    "rollout": _Kind(_rollout_severity, _rollout_episode),
}
