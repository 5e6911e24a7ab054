"""Guesses at what a world model will say next, for it to verify in one pass.

A guess goes piece by piece. Where logged replies to such an action nearly always went on in one way, so does the
guess; else it goes on as this episode did after the same words, most recently; else as a logged reply whose next
words, filled with the action's own, this episode has said before ("The shelf 2 is" or "On the shelf 2,"?); else as
most logged replies did.
"""

from collections.abc import Sequence

from worldloom.lm.replies import END, SLOT, Action, Node, Replies, Walk, pieces

SURE, LIKELY = 0.97, 0.5
LONG, SHORT = 6, 2  # pieces that the past must share with the guess
PIECES = 64  # of one guess
ALTERNATIVES, ALTERNATIVE_SHARE = 3, 0.03


class Memory:
    """What was said in one episode, as pieces; each text ends with END."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.words: list[str] = []
        self.begins: list[int] = []  # where each piece's text begins
        self.places: dict[tuple[str, str], list[int]] = {}

    def hear(self, text: str) -> None:
        """Take in a text."""
        begin = len(self.parts)
        for part in [*pieces(text), END]:
            self.parts.append(part)
            self.words.append(part.lstrip())
            self.begins.append(begin)
            if len(self.words) > 1:
                self.places.setdefault((self.words[-2], self.words[-1]), []).append(len(self.words))

    def forget(self, length: int) -> None:
        """Keep the first ``length`` pieces."""
        del self.parts[length:], self.words[length:], self.begins[length:]
        for places in self.places.values():
            while places and places[-1] > length:
                places.pop()

    def copy(self) -> "Memory":
        twin = Memory()
        twin.parts, twin.words, twin.begins = list(self.parts), list(self.words), list(self.begins)
        twin.places = {pair: list(places) for pair, places in self.places.items()}
        return twin

    def after(self, said: Sequence[str], least: int, about: Sequence[str] = ()) -> str | None:
        """The piece that followed the longest known ending of ``said``, of at least ``least`` pieces, most recently.

        If ``about`` is given, only where these words were said before in the same text.
        """
        ending = [part.lstrip() for part in said[-LONG:]]
        if len(ending) < max(least, SHORT):
            return None
        best, longest = None, least - 1
        for place in reversed(self.places.get((ending[-2], ending[-1]), ())):
            length = _shared(self.words, place, ending)
            if length > longest and place < len(self.parts) and self._names(about, place):
                best, longest = self.parts[place], length
            if longest == len(ending):
                break
        return best

    def _names(self, about: Sequence[str], place: int) -> bool:
        if not about:
            return True
        near, size = self.words[self.begins[place - 1] : place], len(about)
        return any(word == about[0] and near[n : n + size] == about for n, word in enumerate(near))

    def last(self, run: Sequence[str]) -> int:
        """Where a run of pieces was last said; -1 if never."""
        words = [part.lstrip() for part in run]
        for place in reversed(self.places.get((words[0], words[1]), ()) if len(words) > 1 else ()):
            if self.words[place - 2 : place - 2 + len(words)] == words:
                return place
        return -1


def _shared(words: Sequence[str], place: int, ending: Sequence[str]) -> int:
    count = 0
    while count < len(ending) and count < place and words[place - 1 - count] == ending[-1 - count]:
        count += 1
    return count


class Drafter:
    """Guesses for one action of an episode."""

    def __init__(self, replies: Replies, memory: Memory, action: str):
        self.replies, self.memory, self.action = replies, memory, Action(action)

    def guesses(self, said: str) -> list[list[str]]:
        """Guesses at how a reply that begins with ``said`` goes on, in pieces: the best, then alternatives to it."""
        best = self._go_on(pieces(said), [])
        if said or not best:
            return [best] if best else []
        return [best, *(self._go_on([], [start]) for start in self._starts() if start != best[0])][: 1 + ALTERNATIVES]

    def _starts(self) -> list[str]:
        """How logged replies begin that are not rare, the commonest first."""
        root = self.replies.walk(self.action).node
        total = sum(count for count, _ in root.values())
        common = [part for part in root if root[part][0] >= ALTERNATIVE_SHARE * total]
        return [self.action.fill(part) for part in sorted(common, key=lambda part: -root[part][0])]

    def _go_on(self, said: list[str], guess: list[str]) -> list[str]:
        walk = self.replies.walk(self.action)
        for part in said + guess:
            walk.go(part)
        while len(guess) < PIECES and (not guess or guess[-1] != END):
            following = self._next(walk, said + guess)
            if following is None:
                break
            guess.append(following)
            walk.go(following)
        return guess

    def _next(self, walk: Walk, parts: list[str]) -> str | None:
        top, share = walk.commonest()
        usual = self.action.fill(top) if top is not None else None
        if share >= SURE:
            return usual
        found = self.memory.after(parts, LONG - 2, walk.named) or self._supported(walk.node)
        if found and not (usual == END and share >= LIKELY and not walk.knows(found)):
            return found
        return usual if share >= LIKELY else self._remembered(parts, walk.named) or usual

    def _remembered(self, parts: list[str], named: list[str]) -> str | None:
        memory = self.memory
        return memory.after(parts, SHORT + 1, named) or memory.after(parts, LONG - 2) or memory.after(parts, SHORT)

    def _supported(self, node: Node) -> str | None:
        """The branch whose next words name the action's and were said in this episode, latest if several were."""
        places = {part: self.memory.last(run) for part in node if (run := self._run(node, part))}
        best = max(places, key=lambda part: places[part], default=None)
        return self.action.fill(best) if best is not None and places[best] >= 0 else None

    def _run(self, node: Node, part: str) -> list[str]:
        """A branch's next words, up to the first past those of the action; empty if it names none of them."""
        run: list[str] = []
        while part != END and len(run) < LONG:
            run.append(part)
            node = node[part][1]
            part = max(node, key=lambda p: node[p][0], default=END)
        named = max((n for n, part in enumerate(run) if SLOT in part), default=-2)
        return [self.action.fill(part) for part in run[: named + 2]]
