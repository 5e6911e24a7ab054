"""Guesses in tokens, for whatever engine verifies them."""

from collections.abc import Callable, Iterator, Sequence

from worldloom.lm.draft import Drafter, Memory
from worldloom.lm.replies import END, Replies
from worldloom.protocol import system_text
from worldloom.tokens import ChatFormat

Guess = Callable[[list[int]], list[list[int]]]
"""The answer's tokens so far -> guesses at what follows, the likeliest first."""


def remembering(initial_context: str | None, initial_observation: str) -> Memory:
    """The memory of an episode that begins so."""
    return _heard(system_text(initial_context, initial_observation))


def _heard(system: str) -> Memory:
    memory = Memory()
    for line in system.split("\n"):
        memory.hear(line)
    return memory


class Guesser:
    """Says guesses in a model's tokens."""

    def __init__(self, chat: ChatFormat, replies: Replies):
        self.chat, self.replies = chat, replies

    def guess(self, memory: Memory, action: str) -> Guess:
        """What may be answered to an action."""
        drafter = Drafter(self.replies, memory, action)

        def guesses(said: list[int]) -> list[list[int]]:
            text = self.chat.decode(said)
            return [ids for parts in drafter.guesses(text) if (ids := self._joining(said, text, parts))]

        return guesses

    def _joining(self, said: list[int], text: str, parts: Sequence[str]) -> list[int]:
        """The tokens by which a guess goes on after those of an answer's beginning; none if they do not join."""
        ended = parts[-1] == END
        ids = self.chat.answer(text + "".join(parts[:-1] if ended else parts))
        return ids[len(said) : None if ended else -1] if ids[: len(said)] == said else []

    def resume(self, prompt: Sequence[int]) -> Guess:
        """Guesses for a whole history in tokens, up to where an answer begins; none if it is in another format."""
        turns = list(self._turns(list(prompt)))
        if not turns:
            return lambda said: []
        memory = _heard(turns[0][0])
        for answer, _ in turns[1:]:
            memory.hear(answer)
        return self.guess(memory, turns[-1][1])

    def _turns(self, prompt: list[int]) -> Iterator[tuple[str, str]]:
        """What was said before each action (the system message, then answers), and the action."""
        chat = self.chat
        blocks = split(prompt, chat.before_answer)
        marks = [chat.before_action] + [[chat.end, *chat.after_answer]] * (len(blocks) - 2)
        for number, (block, mark) in enumerate(zip(blocks[:-1], marks, strict=False)):
            parts = split(block, mark)
            if len(parts) != 2:
                return
            yield chat.decode(parts[0][len(chat.head) if not number else 0 :]), chat.decode(parts[1])


def split(ids: list[int], mark: Sequence[int]) -> list[list[int]]:
    """A list cut at each place where ``mark`` stands, without it."""
    found, begin, at = [], 0, 0
    while at + len(mark) <= len(ids):
        if ids[at : at + len(mark)] == list(mark):
            found.append(ids[begin:at])
            begin = at = at + len(mark)
        else:
            at += 1
    return [*found, ids[begin:]]
