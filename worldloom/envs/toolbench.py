"""ToolBench from real recorded API calls: an agent calls functions, the record of its query answers.

The APIs of ToolBench (Qin et al. 2023) are long gone or changed; what they answered to agents is recorded. Nothing is
simulated: what no run has asked is said to be unrecorded.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from worldloom.envs.base import Environment, Observation, StepInfo, StepResult
from worldloom.envs.toolbench_call import Call, parse_call
from worldloom.envs.toolbench_record import FINISH, SPLITS, Answered, Answers, Function, Query, record
from worldloom.errors import ConfigError, EnvError, suggest
from worldloom.trajectory import Terminal

KINDS = ("sessions", "calls")
PLANS = ("won", "recorded")
MAX_CHARS = 1_024  # where ToolBench itself cut what it recorded, with the same mark
CUT = "..."
NOT_RECORDED = "[NOT RECORDED] No recorded run of this task makes this call, so its answer is unknown."
NOT_JSON = '{"error": "Tool input parse error...\\n", "response": ""}'
FORMAT = 'An action is one call, as JSON: {"name": FUNCTION, "arguments": {PARAMETER: VALUE, ...}}'
REWARDS: dict[Terminal | None, float | None] = {"success": 1.0, "failure": 0.0, None: None}

GAVE_UP = '{"response":"chose to give up and restart"}'
ANSWERED = '{"response":"successfully giving the final answer."}'
_DESCRIPTION = re.compile(r'This is the subfunction for tool "[^"]*", you can use this tool\.'
                          r'(?:The description of this function is: "(.*)")?', re.DOTALL)  # fmt: skip
_SAID = re.compile(r'"(return_type|final_answer)": "([^"]*)')


class ToolBench(Environment):
    """Answer a user's query with the help of web APIs, as recorded.

    With ``kind="sessions"`` a task is a query; actions are calls until ``Finish``, which ends the episode. With
    ``kind="calls"`` it is one recorded call; the first action ends the episode, and nothing is won or lost.

    The seed decides whose answers come first where runs were answered differently: those of run ``seed`` (modulo their
    number). A call that no run made is answered with ``NOT_RECORDED``, and ``info["not_recorded"]`` is True.

    Args:
        data: folder of recorded runs; default ``$TOOLBENCH_DATA``, else ``toolbench`` in worldloom's cache.
        kind: ``"sessions"`` or ``"calls"``.
        plan: what ``gold_actions`` are: ``"won"``, a recorded run that ended with an answer, or ``"recorded"``, the run
            whose answers come first, whatever came of it, so that the agent ``gold`` plays the record.
        max_chars: longer answers are cut here and end in "...". The record itself was cut so at 1,024 characters.

    Raises:
        ConfigError: an option is unknown or out of range.
        MissingDependency: there are no recorded runs.
        DataError: they cannot be read.
    """

    name = "toolbench"
    version = "toolbench-1"

    def __init__(
        self,
        data: str | None = None,
        kind: Literal["sessions", "calls"] = "sessions",
        plan: Literal["won", "recorded"] = "won",
        max_chars: int = MAX_CHARS,
    ):
        for name, value, known in (("kind", kind, KINDS), ("plan", plan, PLANS)):
            if value not in known:
                raise ConfigError(f"toolbench has no {name} {value!r}{suggest(value, known)}")
        if max_chars < 1:
            raise ConfigError(f"toolbench's max_chars must be at least 1, not {max_chars}")
        self.queries, self.kind, self.plan, self.max_chars = record(data), kind, plan, max_chars
        self._query: Query | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Constructor arguments, without the machine's own data folder."""
        return {"kind": self.kind, "plan": self.plan, "max_chars": self.max_chars}

    @property
    def splits(self) -> tuple[str, ...]:
        """``train``, ``valid`` and ``test``: a query is in one of them, with all its runs and calls."""
        return SPLITS

    def task_ids(self, split: str) -> Sequence[str]:
        """``sessions/<query>``, or ``calls/<query>/<call>``; query and call are hashes of what they are.

        Raises:
            ConfigError: there is no such split.
        """
        self.check_split(split)
        chosen = [query for query in self.queries.values() if query.split == split]
        if self.kind == "sessions":
            return [f"sessions/{query.id}" for query in chosen]
        return [f"calls/{query.id}/{call}" for query in chosen for call in query.calls]

    def reset(self, task_id: str, seed: int = 0) -> Observation:
        """Start a task; ``seed`` chooses whose answers come first."""
        query, call = self._task(task_id)
        self._query, self._answers = query, Answers(query, seed)
        self._obtained: set[str] = set()
        if call is not None:
            self._functions = [function for function in query.functions if function["name"] == call.name][:1]
            return Observation(told(self._functions), query.text, gold_actions=(call.text,))
        self._functions = list(query.functions)
        chosen = next((run for run in query.turned(seed) if run.win or self.plan == "recorded"), None)
        plan = tuple(step.call.text for step in chosen.steps) if chosen else None
        return Observation(f"Task: {query.text}\n\n{told(self._functions)}", query.text, gold_actions=plan)

    def recorded_actions(self, task_id: str, seed: int = 0) -> tuple[str, ...]:
        """The actions of the run whose answers come first under a seed, won or lost.

        Raises:
            EnvError: there is no such task.
        """
        query, call = self._task(task_id)
        return tuple(step.call.text for step in query.turned(seed)[0].steps) if call is None else (call.text,)

    def _task(self, task_id: str) -> tuple[Query, Call | None]:
        kind, _, rest = task_id.partition("/")
        query_id, _, call_id = rest.partition("/")
        query = self.queries.get(query_id) if kind == self.kind else None
        if query is not None and kind == "sessions" and not call_id:
            return query, None
        if query is None or call_id not in query.calls:
            raise EnvError(f"toolbench ({self.kind}) has no task {task_id!r}")
        return query, query.calls[call_id]

    def step(self, action: str) -> StepResult:
        if self._query is None:
            raise EnvError("the episode has ended or none was started: call reset first")
        call = parse_call(action)
        if self.kind == "sessions" and call is not None and call.name == FINISH:
            return self._finish(finishing(call))
        answer = self._answer(call)
        text = NOT_RECORDED if answer is None else self._cut(answer)
        info = StepInfo(terminal=None, not_recorded=True) if answer is None else StepInfo(terminal=None)
        if self.kind == "sessions":
            return StepResult(text, 0.0, False, False, info)
        self._query = None
        return StepResult(text, None, True, False, info)

    def close(self) -> None:
        self._query = None

    def _answer(self, call: Call | None) -> str | None:
        """What ToolBench or an API says to a call, None if that was not recorded."""
        if call is None:
            return NOT_JSON
        if call.name == FINISH or call.name not in [function["name"] for function in self._functions]:
            return json.dumps({"error": f"No such function name: {call.name}", "response": ""})
        if isinstance(call.arguments, str):
            return NOT_JSON
        answer = self._answers.answer(call)
        if answer is not None and Answered(call, answer).fine:
            self._obtained.add(call.key)
        return answer

    def _finish(self, said: dict[str, str]) -> StepResult:
        """ToolBench's rules for ``Finish``; an answer is a success if a recorded winner knew no more."""
        answer = refusal(said)
        if answer is not None:
            return StepResult(answer, 0.0, False, False, StepInfo(terminal=None))
        gave_up = said["return_type"] == "give_up_and_restart"
        winners = [run for run in self._query.runs if run.win] if self._query else []
        known = any(run.obtained <= self._obtained for run in winners)
        terminal: Terminal | None = "failure" if gave_up else "success" if known else None
        self._query = None
        return StepResult(GAVE_UP if gave_up else ANSWERED, REWARDS[terminal], True, False, StepInfo(terminal=terminal))

    def _cut(self, text: str) -> str:
        return text if len(text) <= self.max_chars + len(CUT) else text[: self.max_chars] + CUT


def finishing(call: Call) -> dict[str, Any]:
    """The arguments of ``Finish``; from text that is no JSON, what can be made out, as ToolBench does."""
    return dict(_SAID.findall(call.arguments)) if isinstance(call.arguments, str) else dict(call.arguments)


def refusal(said: dict[str, Any]) -> str | None:
    """Why ToolBench does not take a ``Finish``, in its words; None if it does."""
    if "return_type" not in said:
        return '{error:"must have "return_type""}'
    if said["return_type"] == "give_answer":
        return None if "final_answer" in said else '{error:"must have "final_answer""}'
    return None if said["return_type"] == "give_up_and_restart" else '{error:""return_type" is not a valid choice"}'


def told(functions: Sequence[Function]) -> str:
    """The documents of some functions, and the form of an action."""
    return "\n".join(["Functions:", *(line for function in functions for line in _document(function)), "", FORMAT])


def _document(function: Function) -> Iterator[str]:
    match = _DESCRIPTION.fullmatch(function["description"])
    description = (match[1] or "" if match else function["description"]).strip()
    yield f"- {function['name']}: {' '.join(description.split())}".rstrip(": ")
    parameters = function["parameters"]
    for name, about in parameters["properties"].items():
        yield f"    {name}: {_parameter(about, name in parameters['required'])}"


def _parameter(about: dict[str, Any], required: bool) -> str:
    parts = [about["type"], "required" if required else "optional"]
    if about.get("enum"):
        parts.append("one of " + " or ".join(json.dumps(value, ensure_ascii=False) for value in about["enum"]))
    if about.get("example_value") is not None:
        parts.append("for example " + json.dumps(about["example_value"], ensure_ascii=False))
    description = " ".join((about.get("description") or "").split())
    return ", ".join(parts) + (f". {description}" if description else "")
