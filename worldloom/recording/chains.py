"""Which recorded call of a model goes on from which: the exchanges of a file as chains.

A call goes on from an earlier one if it sends that one's items and reply again before its own, or names its response
(``previous_response_id``) or the server's ``conversation``. Calls with the label ``X-Worldloom-Episode`` are looked
for among those with the same label, the others among those without; and in a labelled episode a call also goes on from
one of which it has only the reply, so that an agent may shorten its history. A call that repeats one that failed, or
that its client marks as a retry (``x-stainless-retry-count``), takes its place. Two calls may go on from the same one:
then the conversation forks, and each branch is one. A conversation that begins like another is another.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from worldloom.recording.asked import Asked, digest, digests, meaning

EPISODE = "episode"  # the label that says which episode an exchange is of


@dataclass
class Link:
    """One call: where it stands in the file, and what it goes on from.

    Its conversation is ``given`` if ``cut`` is None, else the parent's, with its reply, and ``given[cut:]``.
    """

    offset: int
    episode: str | None
    failed: bool
    parent: int | None = None
    cut: int | None = None
    children: int = 0
    replaced: bool = False


@dataclass
class Chains:
    """The calls so far. It keeps some hundred bytes for each, and none of their texts."""

    links: list[Link] = field(default_factory=list)
    _ends: dict[bytes, list[int]] = field(default_factory=lambda: defaultdict(list))
    _replies: dict[bytes, int] = field(default_factory=dict)
    _asked: dict[bytes, int] = field(default_factory=dict)
    _responses: dict[str, int] = field(default_factory=dict)

    def add(self, offset: int, exchange: Mapping[str, Any], asked: Asked) -> None:
        """Take the next call of the file."""
        episode = (exchange.get("labels") or {}).get(EPISODE)
        scope = digest(f"{asked.kind} {episode}".encode())
        marks = digests(asked.given, scope)
        link = Link(offset, episode, failed=not asked.replies)
        same = digest(marks[-1] + (asked.previous or asked.thread or "").encode())
        before = self._asked.get(same)
        if before is not None and self._is_retry(before, exchange):
            self.links[before].replaced = True
            link.parent, link.cut = self.links[before].parent, self.links[before].cut
        else:
            link.parent, link.cut = self._parent(asked, marks, scope, episode)
            if link.parent is not None:
                self.links[link.parent].children += 1
        self._keep(link, asked, marks, scope, same)

    def _is_retry(self, before: int, exchange: Mapping[str, Any]) -> bool:
        first = self.links[before]
        told = str(exchange["request"].get("headers", {}).get("x-stainless-retry-count", "0")) != "0"
        return not first.children and (first.failed or told)

    def _parent(
        self, asked: Asked, marks: list[bytes], scope: bytes, episode: str | None
    ) -> tuple[int | None, int | None]:
        """The call that it goes on from, and from which of its items on it is new."""
        if (before := asked.previous or asked.thread) is not None:
            found = self._responses.get(before)
            return found, None if found is None else 0
        for mark in reversed(marks):
            if mark in self._ends:
                ends = self._ends[mark]
                return next((end for end in ends if not self.links[end].children), ends[-1]), None
        for number in reversed(range(len(asked.given))) if episode is not None else ():
            found = self._replies.get(digest(scope + meaning(asked.given[number]).encode()))
            if found is not None:
                return found, number + 1
        return None, None

    def _keep(self, link: Link, asked: Asked, marks: list[bytes], scope: bytes, same: bytes) -> None:
        number = len(self.links)
        self.links.append(link)
        self._asked[same] = number
        for reply in asked.replies:
            self._ends[digests(reply, marks[-1])[-1]].append(number)
            if reply and link.episode is not None:
                self._replies[digest(scope + meaning(reply[-1]).encode())] = number
        for name in (asked.id, asked.thread):
            if name is not None:
                self._responses[name] = number

    def leaves(self) -> Iterator[list[Link]]:
        """The conversations in the order in which they began: for each, its calls, first to last."""
        paths = [self._path(n) for n, link in enumerate(self.links) if not link.children and not link.replaced]
        yield from ([self.links[number] for number in path] for path in sorted(paths))

    def _path(self, number: int) -> list[int]:
        found = [number]
        while (parent := self.links[found[-1]].parent) is not None:
            found.append(parent)
        return found[::-1]
