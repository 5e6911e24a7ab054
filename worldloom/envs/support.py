"""A support desk on tau2's airline, retail and telecom tools (Barres et al. 2025), without a live customer.

The agent reads what the customer wants and knows, calls tools that run for real on a fresh database, and says when
it is done.
"""

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

from worldloom.envs.base import Environment, Observation, StepInfo, StepResult
from worldloom.envs.support_desk import DOMAINS, MALFORMED, Call, Desk, find_task, gold_calls, split_ids, told, version
from worldloom.envs.support_records import initial_context
from worldloom.errors import ConfigError, EnvError, suggest
from worldloom.trajectory import Terminal

SPLITS = ("train", "test", "extra")
ORDER = 20  # the seed of the order of a split's tasks, so that any first part of it mixes the domains
JUDGES = ("database", "tau2")
DONE = "done"
CLOSED = "The case is closed."
ERROR = "Error: "  # how tau2 and this desk begin the answer to a call that failed
DESKS = {"airline": "an airline", "retail": "a shop", "telecom": "a telephone company"}
FORM = (
    'Act by one tool call: {"name": TOOL, "arguments": {...}}. When all is done: '
    '{"name": "done", "arguments": {"message": WHAT THE CUSTOMER HAS TO KNOW}}.'
)


class Support(Environment):
    """Do what a customer may have, by tool calls; then say so by ``done``.

    An action is a tool call as JSON, ``{"name": ..., "arguments": {...}}``, as in the messages of tool-calling chat
    APIs; its observation is the tool's result as tau2 gives it, errors included. ``done`` ends the episode: a success
    (reward 1) if the database, and in telecom the customer's phone, equal those that the gold actions leave, by
    tau2's own hash, and the message holds all that the task says the customer has to be told; else a failure.

    A task id is ``<domain>/<tau2's id>``, for instance ``retail/17``.

    Args:
        domains: which of ``airline``, ``retail`` and ``telecom`` to take tasks from.
        judge: ``database``, as above, or ``tau2``: telecom tasks are judged as tau2 does, by its assertions on the
            end, which leave other ways than the gold one, and by the transfer to a human where one is due.
        context_chars: the most characters of the initial context.

    Raises:
        ConfigError: an option is unknown or out of range.
        MissingDependency: tau2 or a package that it needs is not installed.
    """

    name = "support"

    def __init__(self, domains: Sequence[str] = DOMAINS, *, judge: str = "database", context_chars: int = 6_000):
        _check(domains, judge, context_chars)
        self.domains, self.judge, self.context_chars = tuple(domains), judge, context_chars
        self.version = version()
        self._desk: Desk | None = None
        self._seen: tuple[Any, str | None] | None = None  # whose tool wrote last, and what it left
        self._fresh: dict[str, str | None] = {}  # how the tasks of a domain begin that have no state of their own
        self._gold_states: dict[tuple[str, int], Any] = {}

    @property
    def options(self) -> dict[str, Any]:
        """What ``worldloom.make`` needs to build this environment again."""
        return {"domains": list(self.domains), "judge": self.judge, "context_chars": self.context_chars}

    @property
    def splits(self) -> tuple[str, ...]:
        """tau2's own ``train`` and ``test``; ``extra``: telecom's other tasks (only with that domain)."""
        return SPLITS if "telecom" in self.domains else SPLITS[:2]

    def task_ids(self, split: str) -> Sequence[str]:
        self.check_split(split)
        return _ids(self.domains, split)

    def reset(self, task_id: str, seed: int = 0) -> Observation:
        """Start a task on a fresh database. ``seed`` decides the ids that tau2 would draw at random (new bills)."""
        self._desk = None
        domain, _, name = task_id.partition("/")
        if domain not in self.domains:
            raise EnvError(f"the support desk has no task {task_id!r}; ids are like retail/17")
        task = find_task(domain, name)
        scenario = str(task.user_scenario)
        self._desk, self._seen = Desk(domain, task, seed), None
        context = initial_context(self._desk, scenario, self.context_chars)
        gold = [*gold_calls(task), Call(DONE, {"message": " ".join(told(task))})]
        return Observation(self._welcome(self._desk, scenario), scenario, context, tuple(call.text for call in gold))

    def _welcome(self, desk: Desk, scenario: str) -> str:
        tools = desk.tools()
        lines = [f"You are at the support desk of {DESKS[desk.domain]}.", f"Tools: {', '.join(tools['agent'])}"]
        if "customer" in tools:
            lines.append(f"Tools of the customer's phone: {', '.join(tools['customer'])}")
        return "\n".join([*lines, FORM, "The customer:", scenario])

    def step(self, action: str) -> StepResult:
        if self._desk is None:
            raise EnvError("the episode has ended or none was started: call reset first")
        call = Call.parse(action)
        if call is not None and call.name == DONE:
            return self._closed(self._desk, call)
        said, changed = self._watched(self._desk, call) if call else (MALFORMED, False)
        info = StepInfo(terminal=None)
        if changed is not None:
            info |= StepInfo(changed=changed, refused=said.startswith(ERROR) and not changed)
        return StepResult(said, 0.0, False, False, info)

    def _closed(self, desk: Desk, call: Call) -> StepResult:
        ending: Terminal = "success" if self._won(desk, str(call.arguments.get("message", ""))) else "failure"
        self._desk = None
        info = StepInfo(terminal=ending, changed=False, refused=False)
        return StepResult(CLOSED, float(ending == "success"), True, False, info)

    def _watched(self, desk: Desk, call: Call) -> tuple[str, bool | None]:
        """The result of a call, and whether it changed the database of its tool, None if that cannot be told.

        Only tools that tau2 marks as writing can do so: the others are not watched, which takes longer than most calls.
        """
        kit = _writing(desk, call.name)
        if kit is None:
            return desk.call(call), False
        before = self._before(desk, kit)
        said, after = desk.call(call), _record(kit)
        self._seen = kit, after
        return said, None if before is None or after is None else after != before

    def _before(self, desk: Desk, kit: Any) -> str | None:
        """A database as it is, or as it was when last seen, if nothing else has written since."""
        if self._seen is None and desk.task.initial_state is None:
            if desk.domain not in self._fresh:
                self._fresh[desk.domain] = _record(kit)
            return self._fresh[desk.domain]
        return self._seen[1] if self._seen and self._seen[0] is kit else _record(kit)

    def _won(self, desk: Desk, message: str) -> bool:
        heard = message.lower().replace(",", "")  # as tau2 looks for what has to be told
        if not all(each.lower() in heard for each in told(desk.task)):
            return False
        if self.judge == "tau2" and not desk.judged_by_end():
            return desk.meets_assertions()
        return bool(desk.state() == self._gold_state(desk))

    def _gold_state(self, desk: Desk) -> Any:
        key = (f"{desk.domain}/{desk.task.id}", desk.seed)
        if key not in self._gold_states:
            gold = Desk(desk.domain, desk.task, desk.seed)
            for call in gold_calls(desk.task):
                gold.call(call)
            self._gold_states[key] = gold.state()
        return self._gold_states[key]

    def close(self) -> None:
        self._desk = self._seen = None
        self._gold_states.clear()


def _writing(desk: Desk, name: str) -> Any:
    """Whose tool it is, the customer's or the desk's, if it is one that writes."""
    for kit in (desk.world.user_tools, desk.world.tools):
        if kit is not None and kit.has_tool(name):
            return kit if kit.tool_type(name).value == "write" else None
    return None


def _record(kit: Any) -> str | None:
    """A database as JSON, which says what tau2's hash does and is quicker; None if a call put into it what JSON cannot
    hold."""
    try:
        return str(kit.db.model_dump_json(warnings=False))
    except ValueError:
        return None


def _check(domains: Sequence[str], judge: str, context_chars: int) -> None:
    if not domains or isinstance(domains, str):
        raise ConfigError(f"support's domains are a list that is not empty, not {domains!r}")
    for domain in domains:
        if domain not in DOMAINS:
            raise ConfigError(f"support has no domain {domain!r}{suggest(domain, DOMAINS)}")
    if judge not in JUDGES:
        raise ConfigError(f"support's judge cannot be {judge!r}{suggest(judge, JUDGES)}")
    if context_chars < 0:
        raise ConfigError(f"support's context_chars must be at least 0, not {context_chars}")


@cache
def _ids(domains: tuple[str, ...], split: str) -> list[str]:
    ids = [f"{domain}/{name}" for domain in domains for name in _names(domain, split)]
    random.Random(ORDER).shuffle(ids)
    return ids


def _names(domain: str, split: str) -> list[str]:
    """tau2's ids; ``extra`` is what its telecom split ``full`` has besides ``train`` and ``test``."""
    known = split_ids(domain)
    if split != "extra":
        return known[split]
    taken = {*known["train"], *known["test"]}
    return [name for name in known.get("full", []) if name not in taken]
