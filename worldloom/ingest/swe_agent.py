"""SWE-agent's .traj files (Yang et al. 2024, arXiv 2405.15793): what was run in a terminal, and what it said.

The steps are those of ``trajectory``; where ``history`` has the same actions, the observations are its, since they are
what the agent saw (with the open file and the folder below). A demonstration has only a history.

Unless the file names its task, the task is the issue that the agent was given, so that all runs on one issue, whatever
their files are called, stay in one split.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from worldloom.errors import ProtocolError
from worldloom.ingest import chat
from worldloom.ingest.row import Outcome, id_of, outcome_of
from worldloom.ingest.turns import Dialogue, Heard, Said, Turn
from worldloom.trajectory import Failure

CUT = ("exit_cost", "exit_context", "exit_total_cost", "exit_max_steps", "exit_total_execution_time")
TITLE = 60  # characters
ISSUE = re.compile(r"^ISSUE:\s*(.+?)^INSTRUCTIONS:|<pr_description>(.+?)</pr_description>", re.DOTALL | re.MULTILINE)
BROKEN = ("exit_error", "exit_api", "exit_environment_error", "exit_command_timeout", "exit_format", "early_exit")


def matches(record: Any) -> bool:
    """Files with a history of messages by agents, or a trajectory of actions and observations."""
    if not isinstance(record, Mapping):
        return False
    history, steps = record.get("history"), record.get("trajectory")
    told = isinstance(history, list) and bool(history) and isinstance(history[0], Mapping) and "agent" in history[0]
    return told or (isinstance(steps, list) and bool(steps) and isinstance(steps[0], Mapping) and "action" in steps[0])


def read(record: Any) -> Dialogue:
    """One episode."""
    if not isinstance(record, Mapping):
        raise ProtocolError("is no object")
    left_out: list[str] = []
    history, steps = _list(record, "history"), _list(record, "trajectory")
    if any(message.get("is_demo") for message in history):
        left_out.append("demonstration in the prompt")
    own = [message for message in history if not message.get("is_demo")]
    seen = list(_seen(own, left_out))
    start = next((number for number, turn in enumerate(seen) if isinstance(turn, Said)), len(seen))
    return Dialogue(
        [*seen[:start], *_merged(seen[start:], steps)], id=id_of(record) or _issue(seen[:start]),
        outcome=_outcome(record), error=_error(record), left_out=left_out,
    )  # fmt: skip


def _issue(told: Sequence[Turn]) -> str | None:
    """What tells an issue from others: its first line, and a digest of it all."""
    texts = (turn.text for turn in told if isinstance(turn, Heard))
    found = next((match for text in texts if (match := ISSUE.search(text))), None)
    lines = (found[1] or found[2]).split("\n") if found else []
    text = " ".join(" ".join(lines).split())
    title = next((line.strip() for line in lines if line.strip()), "")
    known = hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:8]
    return f"{title[:TITLE]} ({known})" if text else None


def _list(record: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = record.get(key) or []
    if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found):
        raise ProtocolError(f"{key!r} is no list of objects")
    return found


def _seen(history: Sequence[Mapping[str, Any]], left_out: list[str]) -> Iterator[Turn]:
    """The history: the action is the command, not the words around it."""
    for message in history:
        if message.get("role") == "assistant" and isinstance(message.get("action"), str):
            yield Said(message["action"].strip("\n"), thought=str(message.get("thought") or "").strip())
        else:
            told = {key: value for key, value in message.items() if key in ("role", "content")}
            yield from chat.turns([told], left_out)


def _merged(seen: list[Turn], steps: list[Mapping[str, Any]]) -> Iterator[Turn]:
    """The steps, each with the observation that the agent saw where the history has it."""
    if not steps:
        yield from seen
        return
    actions = [turn.text for turn in seen if isinstance(turn, Said)]
    same = actions == [str(step.get("action")).strip("\n") for step in steps]
    heard = _answers(seen) if same else [""] * len(steps)
    for step, shown in zip(steps, heard, strict=True):
        yield Said(str(step.get("action")).strip("\n"), thought=str(step.get("thought") or "").strip())
        yield Heard(shown or str(step.get("observation") or ""))


def _answers(seen: list[Turn]) -> list[str]:
    """What followed each action; "" where nothing did."""
    found: list[str] = []
    for turn in seen:
        if isinstance(turn, Said):
            found.append("")
        elif found:
            found[-1] += turn.text
    return found


def _status(record: Mapping[str, Any]) -> str:
    info = record.get("info")
    return str(info.get("exit_status") or "") if isinstance(info, Mapping) else ""


def _outcome(record: Mapping[str, Any]) -> Outcome:
    """``submitted`` says that a patch was handed in, not that it is right: that is not in these files."""
    cut = any(word in _status(record) for word in CUT)
    return Outcome("truncated") if cut and outcome_of(record) == Outcome() else outcome_of(record)


def _error(record: Mapping[str, Any]) -> Failure | None:
    status = _status(record)
    broken = any(word in status for word in BROKEN)
    return Failure(kind="swe-agent", message=f"the run ended by {status}") if broken else None
