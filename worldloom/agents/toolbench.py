"""A scripted ToolBench agent that acts from text alone, with a skill knob."""

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from worldloom.agents.base import Agent, Decision, Start, chances

FUNCTION = re.compile(r"- (\w+)(?:: (.*))?")
PARAMETER = re.compile(r"    (\S+): (\w+), (required|optional)(.*)")
FINE = '{"error": "", "response": '
UNKNOWN = "[NOT RECORDED]"
BEST = 5  # functions by words in common with the query; the others are not tried
TRIES = 3  # of one function, with different arguments
MOST_CALLS = 14  # of an episode, before it is finished
EXCERPT = 150  # characters of an answer that are passed on to the user
WORD = re.compile(r"[a-z]{3,}|\d+")
EMPTY = frozenset(
    ["the", "for", "and", "you", "can", "with", "that", "this", "are", "from", "have", "need", "also", "get"]
)
PAIR = re.compile(r"""["'](\w+)["']: ?(?:"([^"]{1,80})"|'([^']{1,80})'|(-?\d+(?:\.\d+)?))""")
NAMED = re.compile(r"(?<![.?!] )(?<!^)\b[A-Z][\w'-]*(?: [A-Z][\w'-]*)*")
QUOTED = re.compile(r"""['"“]([^'"”]{2,60})['"”](?!\w)""")
LINK = re.compile(r"https?://[^\s'\"<>)]+|\bwww\.[^\s'\"<>)]+")
TOPIC = re.compile(r"\b(?:about|of|for|on|to|in) (?:the |a |an |my |some )?([a-z][\w-]*(?: [a-z][\w-]*){0,2})")
NUMBER = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?![\w-])")
NO_NAMES = ("I", "API", "APIs", "I'm", "Can", "Additionally")
NUMERIC = re.compile("count|limit|page|size|lat|lon")  # in a parameter's name
LINKED = re.compile("url|link|domain|website")
ASKED = re.compile("^q$|query|name|number|city|location|country|search|term|text")
CODE = re.compile(r"\b(?=\w*\d)(?=\w*[A-Z])[A-Z0-9]{5,}\b|\b\d{4}-\d\d-\d\d\b|\b[\w.]+@[\w.]+\w")


class Parameter(NamedTuple):
    """One parameter of a function, as its document has it."""

    name: str
    kind: str
    required: bool
    choices: tuple[Any, ...] = ()
    example: Any = None


class Function(NamedTuple):
    """One function, as its document has it."""

    name: str
    about: str
    parameters: tuple[Parameter, ...]


def functions_in(text: str) -> list[Function]:
    """The functions that a text documents, ``Finish`` left out."""
    found: list[Function] = []
    for line in text.splitlines():
        if (head := FUNCTION.fullmatch(line)) is not None:
            found.append(Function(head[1], head[2] or "", ()))
        elif found and (said := PARAMETER.fullmatch(line)) is not None:
            parameter = Parameter(said[1], said[2], said[3] == "required", *_values(said[4]))
            found[-1] = found[-1]._replace(parameters=(*found[-1].parameters, parameter))
    return [function for function in found if function.name != "Finish"]


def _values(said: str) -> tuple[tuple[Any, ...], Any]:
    """The choices and the example that a parameter's line goes on with."""
    choices = said.partition(", one of ")[2].partition(", for example ")[0]
    example = said.partition(", for example ")[2]
    listed = tuple(_first_value(part) for part in choices.split(" or ")) if choices else ()
    return listed, _first_value(example) if example else None


def _first_value(text: str) -> Any:
    try:
        return json.JSONDecoder().raw_decode(text)[0]
    except ValueError:
        return None


def words_of(text: str) -> frozenset[str]:
    """The words of a text that say something, without a plural's s."""
    return frozenset(word.removesuffix("s") for word in WORD.findall(text.lower().replace("_", " "))) - EMPTY


class Heard:
    """Values that a query and earlier answers have named."""

    def __init__(self, query: str):
        self.query = query
        self.numbers = [_number(text) for text in NUMBER.findall(query)]
        self.links = LINK.findall(query)
        names = [name for name in NAMED.findall(query) if name not in NO_NAMES]
        self.names = [*CODE.findall(query), *QUOTED.findall(query), *names]
        self.topics = TOPIC.findall(query)
        self.told: dict[str, list[Any]] = {}

    def hear(self, answer: str) -> None:
        """Take in an answer's keys and values."""
        for key, *values in PAIR.findall(answer.removeprefix(FINE).strip('"').replace("\\", "")):
            value = next((value for value in values[:2] if value), None)
            self.told.setdefault(_plain(key), []).append(_number(values[2]) if value is None else value)

    def candidates(self, parameter: Parameter) -> list[Any]:
        """Values for a parameter, the likeliest first; there is at least one."""
        name = _plain(parameter.name)
        beside = re.findall(rf"(?i)\b{re.escape(name)}\W{{1,3}}(-?\d+(?:\.\d+)?)", self.query)
        known = [*parameter.choices, *map(_number, beside), *self._told(name), *self._named(parameter, name)]
        given = [] if parameter.example is None else [parameter.example]
        last = 1 if parameter.kind == "integer" else "example"
        return list({json.dumps(value): value for value in [*known, *given, *self.names, *self.topics, last]}.values())

    def _named(self, parameter: Parameter, name: str) -> Sequence[Any]:
        """What the query names that may be meant for a parameter."""
        if parameter.kind == "boolean":
            return [True, False]
        if parameter.kind == "integer" or NUMERIC.search(name):
            return self.numbers
        if LINKED.search(name):
            return self.links
        return self.names if parameter.example is None or ASKED.search(name) else []

    def _told(self, name: str) -> Iterator[Any]:
        for key, values in self.told.items():
            if key == name or (len(key) > 1 and name.endswith(key)) or (len(name) > 3 and key.endswith(name)):
                yield from values[:2]


def _plain(name: str) -> str:
    return name.lower().removeprefix("is_").replace("_", "")


def _number(text: str) -> float | int:
    return float(text) if "." in text else int(text)


def said(name: str, arguments: Mapping[str, Any]) -> str:
    """A call as an action."""
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)


class ToolBenchAgent(Agent):
    """With probability ``skill`` makes the next sensible call, else one at random.

    With sense it tries the functions that have most words in common with the query first, up to three times with other
    values for what they require (from earlier answers, the query, the documents' examples), and finishes with what was
    answered; it gives up if nothing was.

    Args:
        skill: 0 acts at random, 1 always with sense.
        invalid: share of the random steps that no world can answer: no such function, broken JSON and the like.
    """

    name = "scripted-toolbench"

    def __init__(self, skill: float = 1.0, invalid: float = 0.25):
        self.skill, self.invalid = chances(skill=skill, invalid=invalid)

    def begin(self, start: Start) -> None:
        self.random = self.rng(start)
        query = start.instruction or start.text.partition("\n")[0]
        self.heard, self.found = Heard(query), list[str]()
        wanted = words_of(query)
        self.functions = sorted(functions_in(start.text), key=lambda f: -_fit(f, wanted))
        self.tried = dict.fromkeys((function.name for function in self.functions), 0)
        self.open = [function.name for function in self.functions][:BEST]
        self.last: str | None = None
        self.calls = 0

    def act(self, observation: str) -> Decision:
        if self.last is not None:
            self._learn(self.last, observation)
        self.last = None
        self.calls += 1
        action = self._sensible() if self.random.random() < self.skill else self._wander()
        return Decision(action)

    def _learn(self, name: str, observation: str) -> None:
        """What was answered to a call; a function that answered, or failed three times, is done with."""
        fine = observation.startswith(FINE)
        if fine:
            self.heard.hear(observation)
            self.found.append(observation.removeprefix(FINE).strip('"}'))
        unknown = observation.startswith(UNKNOWN)
        if name in self.open and (fine or unknown or self.tried[name] >= TRIES):
            self.open.remove(name)

    def _sensible(self) -> str:
        if not self.open or self.calls > MOST_CALLS:
            return self._finish()
        name = min(self.open, key=lambda name: self.tried[name])
        function = next(function for function in self.functions if function.name == name)
        return self._call(function, self.tried[name])

    def _call(self, function: Function, attempt: int) -> str:
        """A call with the values that come to mind at an attempt."""
        self.last = function.name
        self.tried[function.name] += 1
        arguments: dict[str, Any] = {}
        for parameter in function.parameters:
            if parameter.required:
                values = self.heard.candidates(parameter)
                fresh = [value for value in values if value not in arguments.values()] or values
                arguments[parameter.name] = fresh[min(attempt, len(fresh) - 1)]
        return said(function.name, arguments)

    def _finish(self) -> str:
        if not self.found:
            return said("Finish", {"return_type": "give_up_and_restart"})
        answer = "This is what I found: " + "; ".join(text[:EXCERPT] for text in self.found)
        return said("Finish", {"return_type": "give_answer", "final_answer": answer})

    def _wander(self) -> str:
        if self.random.random() < self.invalid or not self.functions:
            return self._impossible()
        if self.random.random() < 0.1:
            return self._finish()
        function = self.random.choice(self.functions)
        return self._call(function, self.random.randrange(TRIES + 1))

    def _impossible(self) -> str:
        """Something that is no call of a function with all that it requires."""
        function = self.random.choice(self.functions) if self.functions else Function("look", "", ())
        call = self._call(function, 0) if self.functions else said("look", {})
        self.last = None
        return self.random.choice(list(_broken(function, call, self.random)))


def _broken(function: Function, call: str, rng: random.Random) -> Iterator[str]:
    arguments = json.loads(call)["arguments"]
    yield said(function.name[rng.randrange(1, 9) :], arguments)
    yield said(function.name.partition("_for_")[0], arguments)
    yield said(function.name.partition("_for_")[2], arguments)
    yield call[: rng.randrange(len(call))]
    yield said(function.name, dict(list(arguments.items())[1:]))
    yield said(function.name, {**arguments, "return_type": "give_answer"})
    yield json.dumps({"name": function.name, "arguments": call[:-3]})
    yield said("Finish", {"final_answer": "done"})
    yield f"{function.name}({arguments})"


def _fit(function: Function, wanted: frozenset[str]) -> float:
    """How many of a function's words the query has, the function's own name counting most."""
    name, _, tool = function.name.partition("_for_")
    return 2 * len(words_of(name) & wanted) + len(words_of(tool) & wanted) + len(words_of(function.about) & wanted)
