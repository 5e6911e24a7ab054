"""A scripted back-office agent that acts from text alone, with a skill knob."""

import re
from collections.abc import Callable
from typing import Any

from worldloom.agents.backoffice_words import FILE, NAME, REMEDIES, Facts, Function, Reading
from worldloom.agents.base import Agent, Decision, Start, chances
from worldloom.agents.slips import misspelt

REQUEST = re.compile(r"^\d+\. ", re.MULTILINE)
AT_MOST = 4  # functions for one request
ENOUGH = 0.5  # how much a request has to speak of a function
DONE = "done()"
ON_FILE = re.compile(r"(?:cat|cp|diff|echo|grep|mv|rm|sort|tail|wc)\([^)]*?(?:file_name1?|source)='([^']+)'")
READS = re.compile(r"get_|view|list|find|ls|estimate|check")


class BackOfficeAgent(Agent):
    """Goes through the requests with probability ``skill`` at each step, else tries something.

    For each request it calls the functions that its words speak of, with arguments from the requests and from the
    answers so far, and does first what an error asks for. At random it calls any listed function with what it knows,
    mixes up names, looks again at what it did, or, now and then, is done too early.

    Args:
        skill: 0 acts at random, 1 goes through the requests.
        invalid: share of the random steps that no function understands: misspelt, incomplete or no calls at all.
    """

    name = "scripted-backoffice"

    def __init__(self, skill: float = 1.0, invalid: float = 0.15):
        self.skill, self.invalid = chances(skill=skill, invalid=invalid)

    def begin(self, start: Start) -> None:
        self.random, self.facts = self.rng(start), Facts()
        self.requests = [text for text in REQUEST.split(start.instruction or start.text) if text.strip()]
        listing = start.text.partition("\nAct by")[0]
        self.functions = [function for function in Function.all_in(listing) if function.name != "done"]
        self.at = -1
        self.queue: list[Function | str] = ["find(path='.')"] if "find(" in listing else []
        self.folder: list[str] = []
        self.made: list[str] = []
        self.remedied: set[str] = set()

    def act(self, observation: str) -> Decision:
        if self.made:
            self.facts.hear(observation)
        self.made.append(self._remedy(observation) or self._next())
        return Decision(self.made[-1])

    def _next(self) -> str:
        return self._work() if self.random.random() < self.skill else self._stray()

    def _remedy(self, observation: str) -> str | None:
        """What the newest answer asks to be done first, once; then the refused call again."""
        for complaint, remedy in REMEDIES if self.made else ():
            function = next((f for f in self.functions if f.name == remedy.partition("(")[0]), None)
            if complaint in observation and function and remedy not in self.remedied:
                self.remedied.add(remedy)
                call = remedy if "(" in remedy else self._reading().call(function, self.made)
                if call is not None and self.random.random() < self.skill:
                    self.queue.insert(0, self.made[-1])
                    return call
        return None

    def _work(self) -> str:
        """The next call for the request at hand, or for the one after it; done after the last."""
        while self.queue or self.at < len(self.requests) - 1:
            if not self.queue:
                self.at += 1
                self.queue = self._meant(self.requests[self.at])
                continue
            wanted = self.queue.pop(0)
            call = wanted if isinstance(wanted, str) else self._reading().call(wanted, self.made)
            if call is not None:
                return self._at_the_place(call)
        return DONE

    def _at_the_place(self, call: str) -> str:
        """The call, or the first step into the folder of the file that it names; the call then waits."""
        file = ON_FILE.match(call)
        folder = self.facts.folder_of(file[1]) if file else None
        if folder is None or folder == self.folder:
            return call
        same = folder[: len(self.folder)] == self.folder
        step = folder[len(self.folder)] if same else ".."
        self.folder = [*self.folder, step] if same else self.folder[:-1]
        self.queue.insert(0, call)
        return f"cd(folder={step!r})"

    def _reading(self) -> Reading:
        at = max(self.at, 0)
        return Reading(self.requests[at] if self.requests else "", self.requests[:at], self.facts)

    def _meant(self, request: str) -> list[Function | str]:
        """The functions that a request speaks of, reading ones first, once for each thing that it names."""
        fits = sorted(((function.fit(request), function) for function in self.functions), key=lambda pair: -pair[0])
        best = [(fit, function) for fit, function in fits if fit >= ENOUGH][:AT_MOST]
        meant = [function for fit, function in best if fit >= 0.6 * best[0][0]]
        meant.sort(key=lambda function: not READS.match(function.name))
        return [function for function in meant for _ in range(_times(function, request))]

    def _stray(self) -> str:
        if self.random.random() < self.invalid:
            return self._impossible()
        kinds: list[Callable[[], str]] = [self._any, self._mixed_up, self._again, lambda: DONE]
        return self.random.choices(kinds, [6, 3, 1.5, 0.4])[0]()

    def _any(self) -> str:
        """Some function: as some request would have it, else with any of what is known."""
        function = self.random.choice(self.functions)
        request = self.random.choice(self.requests or [""])
        call = Reading(request, self.requests, self.facts).call(function)
        return call or f"{function.name}({', '.join(f'{name}={self._thing()!r}' for name in function.parameters)})"

    def _thing(self) -> Any:
        return self.random.choice([*self.facts.names[-30:], "report.txt", 1, 2, 5, 100.0, "USR002", True])

    def _mixed_up(self) -> str:
        """A call with one of its texts replaced by another thing that is known."""
        return re.sub(r"'[^']*'", lambda _: repr(self._thing()), self._any(), count=1)

    def _again(self) -> str:
        return self.random.choice(self.made[-4:] or [self._any()])

    def _impossible(self) -> str:
        call = self._any()
        name, _, inside = call.partition("(")
        request = self.random.choice(self.requests or ["Hello"])
        return self.random.choice(
            [
                misspelt(call, self.random),
                f"{name}()",
                f"{name}(note='urgent', {inside}",
                call[:-1],
                f"{self.random.choice(['open', 'lookup', 'get_help', 'undo'])}({inside}",
                name,
                f"{name} {inside[:-1]}",
                request[:40],
            ]
        )


def _times(function: Function, request: str) -> int:
    """How often to call a function of one argument: as many files or cities as a request names, three at most."""
    pattern = {"file_name": FILE, "city": NAME}.get(function.parameters[0]) if len(function.parameters) == 1 else None
    return max(1, min(3, len(set(pattern.findall(request))))) if pattern else 1
