"""Answers many sessions at once: each pass takes whoever waits, drafts what each may be about to say, and verifies.

A draft that the model agrees with is settled in one pass; what it rejects is drafted again from there. Greedy output
is the model's own, token for token; with a temperature, drafts are accepted by rejection sampling (Leviathan et al.
2023, "Fast inference from transformers via speculative decoding", section 2.3; a draft is a certain guess here).
"""

import atexit
import itertools
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakSet, WeakValueDictionary

import torch

from worldloom.lm.cache import KVCache
from worldloom.lm.ending import Ending
from worldloom.lm.guess import Guess
from worldloom.lm.packed import Chunk, forward

GIB = 2**30
PASS_TOKENS = 4096  # new tokens in one pass, unless one session alone brings more
DRAFT_TOKENS = 96
SHORT_DRAFT, CROWD = 8, 4  # tokens; sessions from which on drafts compete for the machine
IDLE_SECONDS = 5.0
CIRCLE, CIRCLING = 32, 128  # tokens: the longest run that is said over and over, and for how long it is listened to


class Sampling:
    """Draws tokens at a temperature; one draft can be tried, since its tokens are accepted by chance."""

    def __init__(self, temperature: float, seed: int = 0):
        self.temperature, self.random = temperature, torch.Generator().manual_seed(seed)

    def choice(self, rows: torch.Tensor, draft: Sequence[int]) -> list[int]:
        """Tokens distributed as if drawn one after another."""
        said: list[int] = []
        for row, token in zip(rows, [*draft, None], strict=True):
            chances = (row / self.temperature).softmax(-1).cpu()
            if token is not None and torch.rand((), generator=self.random) < chances[token]:
                said.append(token)
                continue
            if token is not None:
                chances[token] = 0.0
            return [*said, int(torch.multinomial(chances, 1, generator=self.random))]
        return said

    def draw(self) -> int:
        """A seed for somebody else's drawing."""
        return int(torch.randint(2**31, (), generator=self.random))


@dataclass
class Request:
    """An answer that somebody waits for: the history ``ids``, of which the first ``start`` began the episode (0 if
    that is not to be shared with others)."""

    ids: list[int]
    start: int
    cache: KVCache
    limit: int
    guess: Guess
    sampling: Sampling | None = None
    answer: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    """Of each token of the answer that the model said; one more token may end an answer that was cut."""
    passes: int = 0
    future: "Future[list[int]]" = field(default_factory=Future)

    @property
    def beginning(self) -> tuple[int, ...]:
        """What other sessions of the same task have in common with this one."""
        return tuple(self.ids[: self.start])

    def chunk(self, crowded: bool = False) -> Chunk:
        """What the model has to read next: the tokens that the cache lacks, and drafts.

        For a session alone a second draft is nearly free; in a crowd it costs as much as what it may save, unless it
        is short.
        """
        room = min(DRAFT_TOKENS, self.limit - len(self.answer))
        best, *others = [draft[:room] for draft in self.guess(self.answer)] or [[]]
        others = [draft for draft in others if not crowded or len(draft) <= SHORT_DRAFT]
        drafts = [draft for draft in [best, *([] if self.sampling else others)] if draft]
        return Chunk(self.cache, (self.ids + self.answer)[self.cache.length :], drafts)


@dataclass
class Counts:
    """What the engine did: answers, those settled in one pass, passes, tokens of answers, and tokens it read."""

    answers: int = 0
    one_pass: int = 0
    passes: int = 0
    tokens: int = 0
    read: int = 0

    def add(self, request: Request) -> None:
        self.answers += 1
        self.one_pass += request.passes == 1
        self.passes += request.passes
        self.tokens += len(request.answer)

    def report(self) -> dict[str, float]:
        """``answers``, and of them: ``settled_in_one_pass``, ``passes_per_answer``, ``tokens_per_pass`` (of answers),
        ``read_per_answer`` (histories, actions and drafts)."""
        if not self.answers:
            return {}
        return {
            "answers": self.answers,
            "settled_in_one_pass": self.one_pass / self.answers,
            "passes_per_answer": self.passes / self.answers,
            "tokens_per_pass": self.tokens / self.passes,
            "read_per_answer": self.read / self.answers,
        }


class Engine:
    """One model, whose passes are shared by all who wait.

    Args:
        model: made ready by ``packed.prepare_model``.
        end: the token that ends an answer.
        cache_bytes: of all sessions' caches; those longest unused are dropped, and computed again when needed.
        sessions: how many are answered at once; more wait.
        ending: how likely an end of the episode must be for it to be said; None is greedy there as everywhere.
    """

    def __init__(
        self, model: Any, end: int, cache_bytes: int = 4 * GIB, sessions: int = 64, ending: Ending | None = None
    ):
        self.model, self.end, self.cache_bytes, self.sessions = model, end, cache_bytes, sessions
        self.ending = ending
        self.counts, self.peak_bytes = Counts(), 0
        self._caches: WeakSet[KVCache] = WeakSet()
        self._beginnings: WeakValueDictionary[tuple[int, ...], KVCache] = WeakValueDictionary()
        self._clock = itertools.count(1)
        self._waiting: list[Request] = []
        self._ready = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ending = False

    def submit(self, request: Request) -> "Future[list[int]]":
        """Ask for an answer: its tokens, end token included."""
        with self._ready:
            self._waiting.append(request)
            if self._thread is None:
                _serving.add(self)
                self._thread = threading.Thread(target=self._serve, daemon=True, name="worldloom-engine")
                self._thread.start()
            self._ready.notify()
        return request.future

    def close(self) -> None:
        """Answer those who wait, then end the thread; asked again, it begins anew."""
        with self._ready:
            self._ending, thread = True, self._thread
            self._ready.notify()
        if thread:
            thread.join()

    def forget(self) -> None:
        """Share no beginning from before; the model has changed."""
        self._beginnings.clear()

    def _serve(self) -> None:
        active: list[Request] = []
        while True:
            with self._ready:
                if not active:
                    self._ready.wait_for(lambda: self._waiting or self._ending, IDLE_SECONDS)
                if not (active or self._waiting):
                    self._thread, self._ending = None, False  # so that an engine out of use can be freed
                    return
                room = self.sessions - len(active)
                active += self._waiting[:room]
                del self._waiting[:room]
            self._pass(active)
            active = [request for request in active if not request.future.done()]

    def _pass(self, active: Sequence[Request]) -> None:
        """Take as many as fit a pass further."""
        try:
            chosen = self._choose(active)
            for (request, chunk), logits in zip(chosen, forward(self.model, [c for _, c in chosen]), strict=True):
                accept(request, chunk, logits, self.end, self.ending)
                self.counts.read += chunk.size
                self._settle(request)
        except Exception as error:  # whatever it was, those who wait must hear of it
            for request in active:
                if not request.future.done():
                    request.cache.drop()
                    request.future.set_exception(error)

    def _settle(self, request: Request) -> None:
        request.passes += 1
        request.cache.used = next(self._clock)
        if request.start:
            self._beginnings[request.beginning] = request.cache  # the newest: an older one may have been dropped
        if request.answer[-1] == self.end:
            self.counts.add(request)
            request.future.set_result(request.answer)

    def _choose(self, active: Sequence[Request]) -> list[tuple[Request, Chunk]]:
        chosen: list[tuple[Request, Chunk]] = []
        tokens, new = 0, set()
        for request in sorted(active, key=lambda r: r.passes):
            if request.start and request.cache.length == 0 and not self._begun(request):
                if request.beginning in new:
                    continue  # it is being computed for another session, to be shared in the next pass
                new.add(request.beginning)
            chunk = request.chunk(len(active) > CROWD)
            crowded = chosen and tokens + chunk.size > PASS_TOKENS
            if crowded or (not self._has_room(chunk, active) and chosen):
                continue
            self._caches.add(request.cache)
            request.cache.reserve(request.cache.length + chunk.size)
            chosen.append((request, chunk))
            tokens += chunk.size
        self.peak_bytes = max(self.peak_bytes, self.cached_bytes())
        return chosen

    def _begun(self, request: Request) -> bool:
        """Take over the beginning of another session of the same task, if there is one."""
        known = self._beginnings.get(request.beginning)
        if known is None or known is request.cache or known.length < request.start:
            return False
        request.cache.adopt(known, min(request.start, len(request.ids) - 1))  # a pass must read something
        return request.cache.length > 0

    def _has_room(self, chunk: Chunk, active: Sequence[Request]) -> bool:
        """Whether the caches stay within their budget, after dropping some that nobody waits for."""
        needed = chunk.cache.bytes_for(chunk.cache.length + chunk.size)
        if needed and self.cached_bytes() + needed > self.cache_bytes:
            busy = {id(request.cache) for request in active}
            idle = sorted((c for c in self._caches if c.length and id(c) not in busy), key=lambda c: c.used)
            while idle and self.cached_bytes() + needed > self.cache_bytes:
                idle.pop(0).drop()
        return not needed or self.cached_bytes() + needed <= self.cache_bytes

    def cached_bytes(self) -> int:
        """Bytes of all caches, a room that several share counted once."""
        return sum({id(c.buffer): c.buffer.tensor.nbytes for c in self._caches}.values())


def accept(request: Request, chunk: Chunk, logits: torch.Tensor, end: int, ending: Ending | None = None) -> None:
    """Take over what the model agrees with, and the token that it says after that."""
    choose = partial(greedy_choice, ending=ending) if request.sampling is None else request.sampling.choice
    best: list[int] = []
    source, at, seen = 0, 1, logits
    for draft in chunk.drafts or [[]]:
        rows = torch.cat([logits[:1], logits[at : at + len(draft)]])
        said = choose(rows, draft)
        if len(said) > len(best):
            best, source, seen = said, chunk.start + len(chunk.certain) + at - 1, rows
        at += len(draft)
    if end in best:
        best = best[: best.index(end) + 1]
    best = best[: request.limit - len(request.answer)]
    chunk.cache.move(source, len(best) - 1)
    request.answer += best
    request.logprobs += logprobs(seen, best)
    cut = len(request.answer) >= request.limit or (request.sampling is None and circles(request.answer))
    if cut and request.answer[-1] != end:
        request.answer.append(end)


def circles(answer: Sequence[int]) -> bool:
    """Whether an answer ends in the same few tokens over and over, which greedy decoding does not leave again."""
    tail = answer[-CIRCLING:]
    return len(tail) == CIRCLING and any(tail[n:] == tail[:-n] for n in range(1, CIRCLE + 1))


def logprobs(rows: torch.Tensor, tokens: Sequence[int]) -> list[float]:
    """The log-probability of each token, given one row of logits for each (further rows are not looked at)."""
    said = torch.tensor(tokens, device=rows.device)
    rows = rows[: len(tokens)]
    found: list[float] = (rows.gather(-1, said[:, None])[:, 0] - rows.logsumexp(-1)).tolist()
    return found


def greedy(rows: torch.Tensor, ending: Ending | None) -> list[int]:
    """The token that greedy decoding says after each row's."""
    best: list[int] = (ending.greedy(rows) if ending else rows.argmax(-1)).tolist()
    return best


def greedy_choice(rows: torch.Tensor, draft: Sequence[int], ending: Ending | None = None) -> list[int]:
    """The beginning of a draft that greedy decoding would say, and what it would say next."""
    best = greedy(rows, ending)
    right = next((n for n, token in enumerate(draft) if best[n] != token), len(draft))
    return [*draft[:right], best[right]]


_serving: WeakSet[Engine] = WeakSet()


@atexit.register
def _end_all() -> None:
    """Before Python ends: a thread that it stops within torch's own code takes the process down."""
    for engine in list(_serving):
        engine.close()
