"""Trajectory -> trajectory without its secrets: the same value, however it is spelt, has the same placeholder."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from worldloom.redact.find import find, find_in_field
from worldloom.redact.rules import PLACEHOLDER, Found, Rules, whole
from worldloom.trajectory import Trajectory

Told = Callable[[str, str], str]  # (field's name, text) -> text
LOCAL = 6  # shorter values are replaced where they are found, not wherever the same characters stand
LOOSE = 16  # longer values are replaced inside longer words, too
TASK = "REDACTED_TASK"  # the kind of the placeholders of tasks' ids, which are numbered over all episodes
_NUMBERS = {"reward", "seed"}  # known fields that must stay numbers
_FIXED = {"schema": {"worldloom/1"}, "terminal": {"success", "failure", "truncated"}}


class Redactor:
    """Redacts trajectories one after the other: ``redactor(trajectory)``; keeps counts, and never a value that
    the next trajectory does not need.

    A task's id that cannot stay is replaced as a whole, by a placeholder that is numbered over all trajectories
    whatever the scope: ids tell tasks apart. So all episodes of a file need the same ``Redactor``.

    ``counts`` are replaced occurrences by kind, ``values`` different values by kind (of an episode each, unless
    the scope is ``file``). ``originals`` holds what the last trajectory's placeholders stand for (see ``restore``).
    """

    def __init__(self, rules: Rules | None = None):
        self.rules = rules or Rules()
        self.counts: Counter[str] = Counter()
        self.values: Counter[str] = Counter()
        self.originals: dict[str, list[str]] = {}
        self._known = _Placeholders()
        self._tasks: dict[str, int] = {}

    def __call__(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory with every secret and identifier replaced, in every text, key and unknown field."""
        row = trajectory.model_dump(by_alias=True)
        if self.rules.scope == "episode":
            self._known = _Placeholders()
        self.originals = defaultdict(list)
        walked(row, self._mind_placeholders)
        here = self._learn(row)
        task = row["task"]["id"]
        if not here and task not in self._tasks:
            return trajectory
        name = self._task_name(task, here)
        told = walked({**row, "task": {**row["task"], "id": ""}} if name else row, self._replacing(here))
        if name:
            told["task"]["id"] = name
            self.originals[name].append(task)
        self.originals = {name: texts if len(set(texts)) > 1 else texts[:1] for name, texts in self.originals.items()}
        return Trajectory.model_validate(told)

    def _task_name(self, task: str, here: set[str]) -> str | None:
        """What stands for a task's id; None if it may stay, or if its placeholders mean the same everywhere."""
        if self.rules.scope == "file" or PLACEHOLDER.search(task):
            return None
        if task not in self._tasks:
            inside = [text for text in here if len(text) >= LOCAL and text in task]
            if not self._found("", task) and not (inside and _any_of(inside).search(task)):
                return None
            self._tasks[task] = len(self._tasks) + 1
            self.values[TASK] += 1
        self.counts[TASK] += 1
        return f"<{TASK}_{self._tasks[task]}>"

    def _mind_placeholders(self, key: str, text: str) -> str:
        for name, number in PLACEHOLDER.findall(text) if "<" in text else ():
            self._known.numbers[name] = max(self._known.numbers[name], int(number))
        return text

    def _learn(self, row: dict[str, Any]) -> set[str]:
        """Find all first, so that a value is replaced also where nothing gives it away; the texts found."""
        here: set[str] = set()

        def look(key: str, text: str) -> str:
            for each in self._found(key, text):
                said = text[each.start : each.stop]
                here.add(said)
                self.values[each.kind] += self._known.learn(said, each.kind)
            return text

        walked(row, look)
        return here

    def _found(self, key: str, text: str) -> tuple[Found, ...]:
        return find_in_field(key, text, self.rules) if key else find(text, self.rules)

    def _replacing(self, texts: Iterable[str]) -> Told:
        anywhere = [text for text in texts if len(text) >= LOCAL]

        def say(text: str) -> str:
            name = self._known.texts[text]
            self.counts[name[1 : name.rindex("_")]] += 1
            self.originals[name].append(text)
            return name

        def gap(text: str) -> str:
            there = [each for each in anywhere if each in text]
            return _any_of(there).sub(lambda match: say(match[0]), text) if there else text

        def told(key: str, text: str) -> str:
            parts, at = [], 0
            for each in self._found(key, text):
                parts += [gap(text[at : each.start]), say(text[each.start : each.stop])]
                at = each.stop
            return "".join([*parts, gap(text[at:])])

        return told


class _Placeholders:
    """Which placeholder each text has; numbers go on after those that the episode already holds."""

    def __init__(self) -> None:
        self.numbers: Counter[str] = Counter()
        self.texts: dict[str, str] = {}
        self._by_value: dict[tuple[str, str], str] = {}

    def learn(self, text: str, kind: str) -> bool:
        """Give a text its placeholder; whether its value is new."""
        if text in self.texts:
            return False
        value = kind, canonical(text, kind)
        if new := value not in self._by_value:
            self.numbers[kind] += 1
            self._by_value[value] = f"<{kind}_{self.numbers[kind]}>"
        self.texts[text] = self._by_value[value]
        return new


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """A pattern of texts that are replaced wherever they stand, the longest first."""
    long = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(re.escape(t) if len(t) >= LOOSE else whole(re.escape(t)) for t in long))


def canonical(text: str, kind: str) -> str:
    """What two spellings of one value have in common: digits of numbers, small letters of addresses."""
    if kind in ("CARD", "IBAN", "ACCOUNT", "SSN"):
        return re.sub(r"[\W_]", "", text)
    if kind == "PHONE":
        return re.sub(r"\D", "", text)[-10:]  # with or without the country's code
    if kind == "EMAIL":
        return text.lower().replace("%40", "@")
    return re.sub(r"\\n|\s", "", text) if kind == "PRIVATE_KEY" else text


def walked(value: Any, told: Told, key: str = "") -> Any:
    """A JSON value with ``told`` applied to every text in it, in order: values, keys, and long whole numbers.

    ``told`` gets the name of the field only where the schema has no such field; the known ones are plain texts.
    """
    if isinstance(value, str):
        return value if value in _FIXED.get(key, ()) else told(key if key not in PLAIN else "", value)
    if isinstance(value, dict):
        return dict(_walked_items(value, told))
    if isinstance(value, list | tuple):
        return [walked(each, told, key) for each in value]
    if isinstance(value, int | float) and not isinstance(value, bool) and key not in _NUMBERS:
        text = repr(value)
        said = told(key, text)
        return value if said == text else said
    return value


_SCHEMA = {
    "env", "task", "agent", "steps", "options", "params", "error", "reward", "seed", "not_recorded",
    "changed", "refused", "confidence", "anchored", "reason",
}  # fmt: skip
PLAIN = {
    "action", "observation", "thought", "initial_observation", "initial_context", "instruction", "message", "id",
    "name", "version", "split", "kind", "admissible_actions", "gold_actions", "schema", "terminal",
}  # fmt: skip


def _walked_items(value: Mapping[str, Any], told: Told) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for key, each in value.items():
        said = key if key in PLAIN or key in _SCHEMA else told("", key)
        while said in seen:  # two spellings of one value as keys of one object
            said += "'"
        seen.add(said)
        yield said, walked(each, told, key)


def restore(trajectory: Trajectory, originals: Mapping[str, list[str]]) -> Trajectory:
    """A redacted trajectory with its values put back, by the ``originals`` of its redaction.

    Where a value had several spellings they come back in order, so the episode must be as it was written. A number
    that was redacted comes back as text.
    """
    left = {name: list(texts) for name, texts in originals.items()}

    def put_back(match: re.Match[str]) -> str:
        texts = left.get(match[0])
        return match[0] if not texts else texts.pop(0) if len(texts) > 1 else texts[0]

    row = walked(trajectory.model_dump(by_alias=True), lambda _, text: PLACEHOLDER.sub(put_back, text))
    return Trajectory.model_validate(row)
