"""BFCL's multi-turn APIs (Patil et al. 2025, Berkeley Function Calling Leaderboard), run for real.

File system, tickets, trading, travel, messages, posts, vehicle and mathematics are the classes of the PyPI package
``bfcl-eval``. Four things are kept from them: today's date (it stands still), the order of a printed set (it is
sorted), a list that episodes would share, and numbers so big that a sum would not end.
"""

import ast
import copy
import datetime
import decimal
import importlib.util
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from worldloom.envs.base import installed_version
from worldloom.errors import MissingDependency

PACKAGE = "bfcl-eval"
INSTALL = "pip install --no-deps bfcl-eval==2026.3.23, and pip install mpmath"
SOURCES = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
MODULES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}
ERROR = "Error during execution: "  # as BFCL's own executor says it
MALFORMED = f"{ERROR}not a call with literal arguments, as in mv(source='a', destination='b')"
BOUNDED = ("power", "logarithm", "square_root", "round_number")  # of MathAPI: these arguments, by name or not first
BOUNDED_BY = ("exponent", "precision", "decimal_places")
MOST = 1_000
LONGEST = 10_000  # characters of an action; Python's parser could exhaust the stack on longer ones
NOT_STATE = ("_api_description", "_random", "_current_dir", "_flight_cost_lookup", "long_context", "generated_ids")
_SET = re.compile(r"(Must be one of \{)([^{}]*)(\})")
_UNKNOWN_FIELDS = re.compile(r"(Invalid fields for update: )(.*)(\"\})", re.DOTALL)


class Clock(datetime.datetime):
    """The time that BFCL's trading desk says it is, for the classes that ask the machine."""

    @classmethod
    def today(cls) -> "Clock":
        return cls(2024, 9, 1, 10, 30)


class Call(NamedTuple):
    """One function call."""

    name: str
    args: list[Any]
    kwargs: dict[str, Any]

    @classmethod
    def parse(cls, action: str) -> "Call | None":
        """Read a call as BFCL writes it; None unless it is one call of a plain name with literal arguments."""
        if len(action) > LONGEST:
            return None
        try:
            said = ast.parse(action.strip(), mode="eval").body
            if not isinstance(said, ast.Call) or not isinstance(said.func, ast.Name):
                return None
            keywords = {str(k.arg): ast.literal_eval(k.value) for k in said.keywords if k.arg is not None}
            if len(keywords) < len(said.keywords):
                return None
            return cls(said.func.id, [ast.literal_eval(value) for value in said.args], keywords)
        except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
            return None


def version() -> str:
    """The package's version.

    Raises:
        MissingDependency: it is not installed.
    """
    return installed_version(PACKAGE, f"the back office needs the package {PACKAGE}: {INSTALL}")


@cache
def api_class(name: str) -> Any:
    """A class of the package, from a copy of its module whose clock stands still; the module itself stays as it is.

    Raises:
        MissingDependency: the package, or one that it needs, is not installed.
    """
    try:
        spec = importlib.util.find_spec(f"{SOURCES}.{MODULES[name]}")
        if spec is None or spec.loader is None:
            raise ImportError(f"no module {MODULES[name]}")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        raise MissingDependency(f"BFCL's {name} cannot be loaded ({error}): {INSTALL}") from error
    if getattr(module, "datetime", None) is datetime.datetime:
        module.datetime = Clock  # type: ignore[attr-defined]
    return getattr(module, name)


class Office:
    """The APIs of one task, in its initial state."""

    def __init__(self, classes: Sequence[str], config: Mapping[str, Any]):
        self.apis = {name: api_class(name)() for name in classes}
        for name, api in self.apis.items():
            if hasattr(api, "_load_scenario"):
                api._load_scenario(copy.deepcopy(config.get(name, {})))
        # Where two APIs share a name, the later one has it, as in BFCL.
        self.functions = {function: bound for api in self.apis.values() for function, bound in _functions(api)}

    def call(self, call: Call) -> str:
        """The result as BFCL's executor gives it: JSON of a dict, else ``str``; an error of any kind is a text too."""
        try:
            function = self.functions.get(call.name)
            if function is None:
                raise NameError(f"name '{call.name}' is not defined")
            if call.name in BOUNDED and _is_beyond(call):
                raise ValueError(f"{' and '.join(BOUNDED_BY)} are at most {MOST} here")
            result = _worded_result(function, call)
        except RecursionError:  # its words depend on how deep the caller is
            result = f"{ERROR}maximum recursion depth exceeded"
        except Exception as error:
            result = f"{ERROR}{error}"
        return _in_order(result).encode("utf-8", "replace").decode()

    def state(self) -> dict[str, dict[str, Any]]:
        """What BFCL compares: the public attributes of each API."""
        return {name: {k: v for k, v in vars(api).items() if k[0] != "_"} for name, api in self.apis.items()}

    def same_state(self, other: "Office") -> bool:
        """Whether the two ended alike, by the classes' own equality."""
        try:
            return self.state() == other.state()
        except RecursionError:  # a folder within itself
            return False

    def context(self) -> str:
        """The whole state as compact JSON, defaults included; a folder is a dict, a file its text."""
        shown = {name: _shown(api) for name, api in self.apis.items()}
        return json.dumps(
            {name: state for name, state in shown.items() if state}, default=_plain, separators=(",", ":")
        )

    def signatures(self, without: Sequence[str]) -> dict[str, list[str]]:
        """How the functions of each API are called."""
        return {
            name: [f"{f}({_parameters(bound)})" for f, bound in _functions(api) if f not in without]
            for name, api in self.apis.items()
        }


def _functions(api: Any) -> list[tuple[str, Callable[..., Any]]]:
    return [(name, bound) for name, bound in inspect.getmembers(api, inspect.ismethod) if name[0] != "_"]


def _parameters(function: Callable[..., Any]) -> str:
    parameters = inspect.signature(function).parameters.values()
    return ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters)


def _worded_result(function: Callable[..., Any], call: Call) -> str:
    """Call it. Lists that are defaults are new ones, and the precision that MathAPI sets for all ends with the call."""
    import mpmath

    kwargs = dict(call.kwargs)
    for number, parameter in enumerate(inspect.signature(function).parameters.values()):
        if isinstance(parameter.default, list) and number >= len(call.args):
            kwargs.setdefault(parameter.name, [])
    with decimal.localcontext(), mpmath.workdps(mpmath.mp.dps):
        result = function(*call.args, **kwargs)
        try:
            return json.dumps(result) if isinstance(result, dict) else str(result)
        except (TypeError, ValueError):
            return str(result)


def _is_beyond(call: Call) -> bool:
    values = [*call.args[1:], *(value for key, value in call.kwargs.items() if key in BOUNDED_BY)]
    return any(isinstance(value, int | float) and abs(value) > MOST for value in values)


def _in_order(text: str) -> str:
    """The text with the members of a printed set sorted: their order is another in each process."""
    for pattern in (_SET, _UNKNOWN_FIELDS):
        text = pattern.sub(lambda m: m[1] + ", ".join(sorted(m[2].split(", "))) + m[3], text)
    return text


def _shown(api: Any) -> dict[str, Any]:
    """Attributes that some function shows: not the randomness, not the place where one stands at first."""
    return {key.lstrip("_"): value for key, value in vars(api).items() if key not in NOT_STATE}


def _plain(value: Any) -> Any:
    """A folder or a file of the file system, as JSON can have it; the topmost folder with its name."""
    if not hasattr(value, "contents"):
        return value.content
    return value.contents if value.parent is not None else {value.name: value.contents}
