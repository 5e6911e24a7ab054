"""What a step shows: the kind of its action, whether it failed, and which form its texts have."""

import re
from typing import NamedTuple

from worldloom.trajectory import Step, Trajectory

TEXT = "(text)"
_JSON_CALL = re.compile(r'\s*[\[{].{0,200}?"name"\s*:\s*"([^"]{1,80})"', re.DOTALL)
_CALL = re.compile(r"\s*([A-Za-z_][\w.-]{0,80})\s*\(")
_WORD = re.compile(r"\w+")
_VARIED = re.compile(r"\d+|(?<=\")[^\"\n]{0,200}(?=\")")
_FAILED = re.compile(
    r"(?i)\W{0,3}(?:error|exception|traceback|invalid|nothing happens|unknown|failed|failure|denied|unauthori[sz]ed"
    r"|forbidden|not found|cannot|can't|could not|you can't|you cannot|i don't understand|that's not a verb"
    r"|no known action|no such|(?:/bin/)?(?:ba)?sh: )(?![\"'])"
)
_JSON_ERROR = re.compile(
    r'[\'"](?:error|errors|exception)[\'"]\s*:\s*(?!\s*(?:""|\'\'|null|None|false|False|\[\]|\{\}|0\b))'
    r'|[\'"](?:status|result)[\'"]\s*:\s*[\'"](?:error|failed|failure)[\'"]|[\'"](?:ok|success)[\'"]\s*:\s*(?:false|False)'
)
_FIELDS = ("error", "is_error", "failed")


class Kind(NamedTuple):
    """What an action is: a called tool or a first word, and which of the two."""

    name: str
    call: bool


class Outcome(NamedTuple):
    """Whether an action failed, and what says so: a field, the admissible actions, or the text."""

    failed: bool
    by: str


def kind_of(action: str) -> Kind:
    """The tool of a call (``refund(id=1)``, ``{"name": "refund", ...}``), else the first word in small letters."""
    if call := _JSON_CALL.match(action) or _CALL.match(action):
        return Kind(call[1], True)
    word = _WORD.search(action)
    return Kind(word[0].lower() if word else "(nothing)", False)


def outcome_of(step: Step, admissible: list[str] | None) -> Outcome:
    """Whether the world refused an action.

    A field of the log decides (``error``, ``is_error``, ``failed``), else the actions that were admissible before it,
    else the observation: how it begins, or an error in its JSON.
    """
    extra = step.model_extra or {}
    if told := [bool(extra[field]) for field in _FIELDS if field in extra]:
        return Outcome(any(told), "field")
    if admissible is not None:
        return Outcome(step.action not in admissible, "admissible actions")
    text = step.observation[:2000]
    return Outcome(bool(_FAILED.match(text) or _JSON_ERROR.search(text)), "text")


def outcomes_of(trajectory: Trajectory) -> list[Outcome]:
    """The outcome of each step."""
    before = [None, *(step.admissible_actions for step in trajectory.steps)]
    return [outcome_of(step, admissible) for step, admissible in zip(trajectory.steps, before, strict=False)]


def form_of(text: str) -> str:
    """A text with numbers and quoted values masked: two replies of one form differ in ids, prices and names only."""
    return _VARIED.sub("#", text)


def offered(trajectory: Trajectory) -> set[str]:
    """Kinds of actions that an episode offers: admissible actions, and tools listed in a field ``tools``."""
    found = {kind_of(action).name for step in trajectory.steps for action in step.admissible_actions or ()}
    tools = (trajectory.model_extra or {}).get("tools") or trajectory.env.options.get("tools") or ()
    for tool in tools if isinstance(tools, list) else ():
        function = tool.get("function", tool) if isinstance(tool, dict) else {}
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            found.add(function["name"])
    return found
