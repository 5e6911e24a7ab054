"""What a step shows: the kind of its action, whether it failed, and which form its texts have."""

import json
import re
from typing import Any, NamedTuple

from worldloom.ingest.turns import tool_names
from worldloom.trajectory import Step, Trajectory

TEXT = "(text)"
_JSON_CALL = re.compile(r'\s*[\[{].{0,200}?"name"\s*:\s*"([^"]{1,80})"', re.DOTALL)
_CALL = re.compile(r"\s*([A-Za-z_][\w.-]{0,80})\s*\(")
_WORD = re.compile(r"\w+")
_VARIED = re.compile(r'(?P<key>"[^"\n]*"(?=\s*:))|(?P<quoted>"[^"\n]*")|\d+')
_NUMBER = re.compile(r"\d+")
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

    The engine's own word decides (``refused``), or a field of the log (``error``, ``is_error``, ``failed``), else the
    actions that were admissible before it, else the observation: how it begins, or an error in its JSON.
    """
    extra = step.model_extra or {}
    if step.refused is not None:
        return Outcome(step.refused, "field")
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
    """A text with numbers and quoted values masked: two replies of one form differ in ids, prices and names only.

    Names of fields stay, but for the numbers in them.
    """
    try:
        return _masked(json.loads(text)) if text.lstrip()[:1] in ("{", "[") else _masked_text(text)
    except (ValueError, RecursionError):
        return _masked_text(text)


def form_of_action(action: str) -> str:
    """The same of an action, whose kind stays."""
    return f"{kind_of(action).name} {form_of(action)}"


def _masked(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{_NUMBER.sub("#", key)}": {_masked(each)}' for key, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_masked, value))}]"
    return json.dumps(value) if value is None or isinstance(value, bool) else '"#"' if isinstance(value, str) else "#"


def _masked_text(text: str) -> str:
    def mask(found: re.Match[str]) -> str:
        return _NUMBER.sub("#", found["key"]) if found["key"] else '"#"' if found["quoted"] else "#"

    return _VARIED.sub(mask, text)


def offered(trajectory: Trajectory) -> set[str]:
    """Kinds of actions that an episode offers: admissible actions, and tools listed in a field ``tools``."""
    found = {kind_of(action).name for step in trajectory.steps for action in step.admissible_actions or ()}
    tools = (trajectory.model_extra or {}).get("tools") or trajectory.env.options.get("tools") or ()
    return found | set(tool_names(tools if isinstance(tools, list) else ()))
