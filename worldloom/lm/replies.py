"""What an environment answered to actions of each form: a tree of replies with the action's words left open.

"go to shelf 2" answered by "You arrive at shelf 2. ..." is learnt as "You arrive at {2} {3}. ...", under the verb and
the number of words. Nothing here knows an environment; it only guesses, and the world model verifies.
"""

import contextlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from worldloom.errors import ModelError, ProtocolError
from worldloom.protocol import heard, said
from worldloom.role import Role
from worldloom.trajectory import ESCAPED, Trajectory

PIECE = re.compile(r"\s*\w+|\s*[^\w\s]|\s+$")
WORD = re.compile(r"\w+|[^\w\s]")
CALLED = ['"', "name", '"', ":", '"']  # how a call in JSON goes on after its brace
END = "\x01"  # the end of a reply, as a piece
SLOT = "\x00"  # begins the name of an open place: its index in the action's words
MOST = 300_000  # pieces of a file of replies: where it would be larger, replies seen once are left out, then twice
RARE = 3  # replies seen so often are always kept
LONGEST = 256  # pieces of a reply that are learnt: the file nests as deep, and JSON readers have a limit
ENDINGS = 16  # replies that end an episode, of one form of action
FILE = "replies.json"

Node = dict[str, list[Any]]  # piece -> [count, Node]


def pieces(text: str) -> list[str]:
    """A text in words and marks, each with the space before it; joined they are the text."""
    return PIECE.findall(text)


class Action:
    """An action's words, and how they fill the open places of a reply."""

    def __init__(self, text: str):
        self.words = WORD.findall(text)
        called = self.words[1:6] == CALLED  # tools, not braces, tell calls apart
        first = self.words[6:7] if called else self.words[:1]
        self.form = f"{''.join(first)} {len(self.words)}"

    def open(self, part: str, last: int = -1) -> tuple[str, int]:
        """A reply's piece, left open if it repeats the action; and which of its words, -1 if none.

        ``last`` is that of the piece before: words are repeated in runs.
        """
        word = part.lstrip()
        index = self._index(word, last)
        return (part, -1) if index is None else (f"{part[: len(part) - len(word)]}{SLOT}{index}", index)

    def _index(self, word: str, last: int) -> int | None:
        if 0 <= last < len(self.words) - 1 and self.words[last + 1] == word:
            return last + 1
        if word in self.words[1:] and not word.isdigit() and word.isalnum():
            return self.words.index(word, 1)
        return None

    def fill(self, part: str) -> str:
        """The opposite of ``open`` for one piece."""
        space, found, index = part.partition(SLOT)
        return space + self.words[int(index)] if found else part


class Replies:
    """The tree: form of the action -> pieces of replies, with counts."""

    def __init__(self, forms: dict[str, Node] | None = None):
        self.forms: dict[str, Node] = forms or {}
        self._endings: dict[str, list[list[str]]] = {}

    def learn(self, trajectories: Iterable[Trajectory]) -> "Replies":
        """Take in all replies of some trajectories; those that the text protocol cannot say are passed over."""
        self._endings.clear()
        for trajectory in trajectories:
            for step in trajectory.steps:
                with contextlib.suppress(ProtocolError):
                    self._add(Action(step.action), said(step.observation, step.terminal))
        return self

    def learn_actions(self, trajectories: Iterable[Trajectory], role: Role) -> "Replies":
        """Take in what a policy says, whatever it was told."""
        for trajectory in trajectories:
            for step in trajectory.steps:
                self._add(Action(""), role.answer(step))
        return self

    def _add(self, action: Action, reply: str) -> None:
        node, last = self.forms.setdefault(action.form, {}), -1
        for part in [*pieces(reply), END][:LONGEST]:
            name, last = action.open(part, last)
            entry = node.setdefault(name, [0, {}])
            entry[0] += 1
            node = entry[1]

    def walk(self, action: Action) -> "Walk":
        """Begin at the beginning of a reply."""
        return Walk(action, self.forms.get(action.form, {}))

    def endings(self, action: Action, most: int = ENDINGS) -> list[str]:
        """The replies with which actions of this form ended an episode, the commonest first."""
        if action.form not in self._endings:
            found = [(n, parts) for parts, n in _whole(self.forms.get(action.form, {})) if heard("".join(parts))[1]]
            self._endings[action.form] = [parts for _, parts in sorted(found, key=lambda each: -each[0])]
        return ["".join(map(action.fill, parts)) for parts in self._endings[action.form][:most]]

    def save(self, folder: Path) -> None:
        """Write them to ``folder/replies.json``: all, as far as they are not too many (``MOST``)."""
        kept, least = dict(sorted(self.forms.items())), 1
        while least < RARE and sum(map(_size, kept.values())) > MOST:
            least += 1
            kept = {form: _pruned(node, least) for form, node in kept.items()}
        text = json.dumps({f: n for f, n in kept.items() if n}, ensure_ascii=False) + "\n"
        (folder / FILE).write_text(text, encoding="utf-8", errors=ESCAPED)

    @classmethod
    def load(cls, folder: Path) -> "Replies":
        """Read a model folder's replies; there may be none.

        Raises:
            ModelError: the file is broken.
        """
        path = folder / FILE
        try:
            forms = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            if not isinstance(forms, dict) or not all(map(_is_node, forms.values())):
                raise ValueError("it holds no tree of replies")
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{path} is broken ({error}); remove it, answers will only be slower") from error
        return cls(forms)


class Walk:
    """A place in the tree: ``node`` holds what came next in the logs; it is empty where they know no more. ``seen``
    counts the replies that came here."""

    def __init__(self, action: Action, node: Node):
        self.action, self.node, self.last = action, node, -1
        self.seen = sum(count for count, _ in node.values())
        self.named: list[str] = []  # the words of the action that were repeated last

    def knows(self, part: str) -> bool:
        """Whether the logs went on by this piece, too."""
        return self.action.open(part, self.last)[0] in self.node

    def go(self, part: str) -> None:
        """Go on by a piece that was said."""
        before = self.last
        name, self.last = self.action.open(part, before)
        if self.last >= 0:
            self.named = [*(self.named if before >= 0 else []), self.action.words[self.last]]
        self.seen, self.node = self.node.get(name, [0, {}])

    def commonest(self) -> tuple[str | None, float]:
        """The piece by which most logged replies went on, and their share; one unseen reply is always reckoned with."""
        top = max(self.node, key=lambda part: self.node[part][0], default=None)
        return top, self.node[top][0] / (self.seen + 1) if top is not None else 0.0


def _is_node(found: Any) -> bool:
    return isinstance(found, dict) and all(
        isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], int) and _is_node(entry[1])
        for entry in found.values()
    )


def _whole(node: Node) -> Iterator[tuple[list[str], int]]:
    """Every reply of a tree that was kept to its end, in pieces, and how often it was seen."""
    waiting: list[tuple[Node, list[str]]] = [(node, [])]
    while waiting:  # deeper than Python calls functions
        here, parts = waiting.pop()
        for part, (count, below) in here.items():
            if part == END:
                yield parts, count
            else:
                waiting.append((below, [*parts, part]))


def _pruned(node: Node, least: int) -> Node:
    return {part: [count, _pruned(below, least)] for part, (count, below) in node.items() if count >= least}


def _size(node: Node) -> int:
    return len(node) + sum(_size(below) for _, below in node.values())
