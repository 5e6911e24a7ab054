"""Calls of a model, each with its whole history, as conversations; results that only a tool's own span has put in.

An agent asks its model again after each result, so a trace or an API's log holds every conversation many times over.
A call is the conversation if no other call goes on from what it was given and what it said; the others say nothing
that it does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import takewhile

from worldloom.ingest.turns import Heard, Said, ToolCall, Turn, texts

DIGEST = 8


@dataclass(frozen=True)
class Exchange:
    """One call of a model: what it was given, and what it said."""

    request: Sequence[Turn]
    reply: Sequence[Turn]
    tools: Sequence[object] = ()


@dataclass(frozen=True)
class ToolRun:
    """One run of a tool."""

    call: ToolCall
    answer: Heard


def mark_of(exchange: Exchange) -> bytes:
    """A digest of each beginning of what a call was given, the shortest first, then one of it with the reply.

    The last is absent if there is no reply, as when the call failed.
    """
    spoken = list(takewhile(lambda turn: isinstance(turn, Said), reversed(exchange.request)))[::-1]
    before = texts(exchange.request[: len(exchange.request) - len(spoken)])
    given, whole = ([*before, *texts([*spoken, *reply])] for reply in ((), exchange.reply))
    return b"".join(_beginnings(given)) + (_beginnings(whole)[-1] if whole != given else b"")


def _beginnings(told: Sequence[str]) -> list[bytes]:
    running, found = blake2b(digest_size=DIGEST), []
    for text in told:
        running.update(text.encode())
        found.append(running.digest())
    return found


class Seen:
    """The beginnings of all calls that were added."""

    def __init__(self) -> None:
        self._known: set[bytes] = set()

    def add(self, mark: bytes) -> bool:
        """Add a call, those with the longest mark first; False if another one is the same or goes on from it."""
        known = mark[-DIGEST:] in self._known
        self._known.update(mark[at : at + DIGEST] for at in range(0, len(mark), DIGEST))
        return not known


def conversations(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """The calls that no other goes on from, in order."""
    marks = [mark_of(exchange) for exchange in exchanges]
    seen, kept = Seen(), set()
    for number in sorted(range(len(marks)), key=lambda n: (len(marks[n]), n), reverse=True):
        if seen.add(marks[number]):
            kept.add(number)
    return [exchanges[number] for number in sorted(kept)]


def answered(turns: Sequence[Turn], runs: Sequence[ToolRun]) -> list[Turn]:
    """The turns with the results of calls that have none, by the calls' ids, else by the tool's name in order."""
    told = {turn.call_id for turn in turns if isinstance(turn, Heard) and turn.of_tool}
    left = [run for run in runs if run.call.id is None or run.call.id not in told]
    found: list[Turn] = []
    for number, turn in enumerate(turns):
        found.append(turn)
        following = turns[number + 1] if number + 1 < len(turns) else None
        if isinstance(turn, Said) and not (isinstance(following, Heard) and following.of_tool):
            for call in turn.calls:
                run = next((run for run in left if _is(run.call, call)), None)
                if run and call.id not in told:
                    left.remove(run)
                    found.append(replace(run.answer, call_id=call.id))
    return found


def _is(run: ToolCall, call: ToolCall) -> bool:
    return run.id == call.id if run.id and call.id else run.name == call.name


def of_tools_alone(opening: Sequence[Turn], runs: Sequence[ToolRun], closing: Sequence[Turn] = ()) -> list[Turn]:
    """An episode of which only the tools' runs are known."""
    steps = [turn for run in runs for turn in (Said(calls=(run.call,)), run.answer)]
    return [*opening, *steps, *closing]
