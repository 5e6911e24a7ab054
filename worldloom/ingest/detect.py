"""The formats, and which one a file has."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import ValidationError

from worldloom.errors import ConfigError, ProtocolError, suggest
from worldloom.ingest import (
    anthropic,
    calls,
    langsmith,
    messages,
    openai_chat,
    openai_responses,
    otel,
    own,
    sharegpt,
    swe_agent,
    table,
    tau_bench,
    toolbench,
)
from worldloom.ingest.records import Record, Skip
from worldloom.ingest.spill import Spill
from worldloom.ingest.turns import Dialogue
from worldloom.trajectory import Trajectory

SAMPLE = 64  # records that are looked at
UNKNOWN = "in no format that is known; name one with --format, or the columns of a table with --column"
AMBIGUOUS = (
    "rows of messages that can be read in two ways: give --format openai-chat if the assistant is the agent, --format "
    "messages if the user is the agent and the assistant the world (Word2World)"
)
MALFORMED = (TypeError, KeyError, AttributeError, ValueError, IndexError, RecursionError, OverflowError)

Read = Dialogue | Trajectory
Episodes = Callable[[Iterator[Record | Skip], Callable[[], Spill]], Iterator["Placed | Skip"]]


@dataclass(frozen=True)
class Placed:
    """An episode as its format's module reads it, the place of its first record, and that record."""

    place: int
    read: Read
    first: Any = None


@dataclass(frozen=True)
class Format:
    """A name, whether a record has this format, and the episodes in records."""

    name: str
    matches: Callable[[Any], bool]
    episodes: Episodes


def formats(columns: Mapping[str, str]) -> list[Format]:
    """All formats, those first that are told apart with most certainty."""
    alone = (own, tau_bench, swe_agent, toolbench, messages, sharegpt)
    names = ("worldloom", "tau-bench", "swe-agent", "toolbench", "messages", "sharegpt")
    chats = (openai_responses, anthropic, openai_chat)
    chat_names = ("openai-responses", "anthropic", "openai-chat")
    return [
        Format("otel", otel.matches, partial(_grouped, otel.key, otel.read_group)),
        Format("langsmith", langsmith.matches, partial(_grouped, langsmith.key, langsmith.read_group)),
        *(Format(name, module.matches, partial(_each, module.read)) for name, module in zip(names, alone, strict=True)),
        Format("calls", calls.matches, _of_calls),
        *(Format(n, module.matches, partial(_each, module.read)) for n, module in zip(chat_names, chats, strict=True)),
        Format(
            "table",
            partial(table.matches, columns=columns),
            partial(_grouped, partial(table.key, columns=columns), partial(table.read_group, columns=columns)),
        ),
    ]


def named(name: str, columns: Mapping[str, str]) -> Format:
    """A format by its name.

    Raises:
        ConfigError: there is none; the message suggests the nearest.
    """
    known = {found.name: found for found in formats(columns)}
    if name not in known:
        raise ConfigError(f"there is no format {name!r}{suggest(name, known)}")
    return known[name]


def detect(sample: Iterable[Record | Skip], columns: Mapping[str, str]) -> Format:
    """The format of the first record that has one.

    Raises:
        ProtocolError: no record has one, or all that do can be read in two ways.
    """
    ambiguous, problem = False, ""
    for item in sample:
        if isinstance(item, Skip):
            problem = problem or f"; at {item.place}: {item.reason}"
            continue
        for found in formats(columns):
            if _attempt(0, found.matches, item.value) is True:
                return found
        ambiguous = ambiguous or openai_chat.is_chat(item.value)
    raise ProtocolError(AMBIGUOUS if ambiguous else UNKNOWN + problem)


def _attempt(place: int, function: Callable[..., Any], *arguments: Any, records: int = 1) -> Any:
    """What a function returns; a ``Skip`` if the record has not the form that it needs."""
    try:
        return function(*arguments)
    except (ProtocolError, *MALFORMED) as error:
        return refusal(place, error, records)


def refusal(place: int, error: Exception, records: int) -> Skip:
    """Why records made no episode. No content of the log is in it, since nobody has redacted that yet."""
    if isinstance(error, ProtocolError):
        return Skip(place, str(error), records=records)
    detail = type(error).__name__
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        detail = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return Skip(place, "has not the form of its format", detail, records)


def _each(read: Callable[[Any], Read], records: Iterator[Record | Skip], spill: Any) -> Iterator[Placed | Skip]:
    """One record, one episode."""
    for item in records:
        found = item if isinstance(item, Skip) else _attempt(item.place, read, item.value)
        yield found if isinstance(found, Skip) else Placed(item.place, found, item.value)  # type: ignore[union-attr]


def _grouped(
    key: Callable[[Any], str],
    read_group: Callable[[Sequence[Record]], Iterator[Dialogue | Skip]],
    records: Iterator[Record | Skip],
    spill: Callable[[], Spill],
) -> Iterator[Placed | Skip]:
    """Several records, one episode, wherever in the file they are."""
    with spill() as aside:
        for item in records:
            found = item if isinstance(item, Skip) else _attempt(item.place, key, item.value)
            if isinstance(item, Skip) or isinstance(found, Skip):
                yield found
            else:
                aside.add(found, item)
        for group in aside.groups():
            if group.records is None:
                yield Skip(
                    group.place, "records that belong together are over the limit; see --max-mb", records=group.size
                )
                continue
            made = _attempt(group.place, lambda part: list(read_group(part)), group.records, records=group.size)
            for each in [made] if isinstance(made, Skip) else made:
                yield (
                    each if isinstance(each, Skip) else Placed(each.place or group.place, each, group.records[0].value)
                )


def _of_calls(records: Iterator[Record | Skip], spill: Callable[[], Spill]) -> Iterator[Placed | Skip]:
    for found in calls.episodes(records, spill, _attempt):
        yield found if isinstance(found, Skip) else Placed(*found)
