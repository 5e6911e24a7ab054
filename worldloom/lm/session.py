"""A local world model or policy, and conversations with it that keep what was computed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from worldloom.errors import ContextOverflow
from worldloom.lm.base import MAX_NEW_TOKENS, Confidence, check_rewind
from worldloom.lm.draft import Memory
from worldloom.lm.ending import Ending
from worldloom.lm.engine import GIB, Engine, Request, Sampling, logprobs
from worldloom.lm.guess import Guess, Guesser, remembering
from worldloom.lm.hf import fast_bfloat16, load_model, load_tokenizer, resolve, window
from worldloom.lm.packed import Chunk, forward, new_cache, prepare_model
from worldloom.lm.prepacked import load_weights, prepack
from worldloom.lm.prompt import Prompt, prompted
from worldloom.lm.replies import Replies
from worldloom.lm.retrieval import RetrievalLM
from worldloom.naming import Naming
from worldloom.role import Learns, Role
from worldloom.tokens import ChatFormat, Encoded
from worldloom.trajectory import Trajectory


class LocalLM:
    """A causal language model on this machine, with the chat format that it was trained in.

    Its sessions may be used from many threads, one thread each; they are then answered together.

    Args:
        model: a run of ``worldloom train``, a model folder, ``"smollm2-135m"``, or a hub id.
        learns: whether it is to be a world, whose sessions ``session`` begins, or a policy (``policy``).
        dtype: default bfloat16 where that is fast, else float32.
        prompt: what the model is told first, if it was not trained for this.
        draft: whether to guess answers, for the model to verify: faster, and the same text.
        cache_bytes, sessions: see ``worldloom.lm.engine.Engine``.

    Raises:
        ModelError: the model or its tokenizer cannot be loaded, the engine does not know its kind of attention, or it
            was trained to be the other: a policy instead of a world, say.
    """

    def __init__(
        self,
        model: str,
        dtype: torch.dtype | None = None,
        *,
        prompt: Prompt | None = None,
        learns: Learns = "world",
        draft: bool = True,
        cache_bytes: int = 4 * GIB,
        sessions: int = 64,
    ):
        folder = Path(resolve(model))
        self.chat = ChatFormat(load_tokenizer(model), Naming.load(folder), Role.opened(folder, learns))
        self.name, self.prompt = str(model), prompt
        device = "cuda" if torch.cuda.is_available() else "cpu"
        loaded = load_model(model, dtype or (torch.bfloat16 if fast_bfloat16() else torch.float32))
        self.model = loaded.to(device).eval()
        prepare_model(self.model)
        prepack(self.model)
        self.window = window(self.model)
        self.guesser = Guesser(self.chat, Replies.load(folder))
        logged = learns == "world" and self.guesser.replies.forms
        self.retrieval = RetrievalLM(self.guesser.replies) if logged else None
        self.draft = draft
        ending = Ending.load(folder, self.chat) if learns == "world" else None
        self.engine = Engine(self.model, self.chat.end, cache_bytes, sessions, ending)

    @property
    def role(self) -> Role:
        """Whether it is a world or a policy, and how the latter speaks."""
        return self.chat.role

    @property
    def replies(self) -> Replies:
        """What was logged of the environment that it learnt; may be empty."""
        return self.guesser.replies

    def session(self, initial_context: str | None, initial_observation: str, env: str | None = None) -> "Session":
        """Begin an episode; see ``worldloom.lm.base.WorldLM``."""
        memory = remembering(initial_context, initial_observation)
        context = self.prompt.before(initial_context) if self.prompt else initial_context
        return Session(self, self.chat.start(context, initial_observation, env), memory)

    def policy(self, instruction: str | None, first: str, env: str | None = None) -> "PolicySession":
        """Begin to act in an episode whose first observation is ``first``; see ``worldloom.lm.base.PolicyLM``."""
        return PolicySession(self, self.chat.begin(instruction, first, env), remembering(None, first))

    def take(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Go on with other weights of the same model, as its ``state_dict`` gives them while it is trained.

        Sessions from before keep what they computed with the old ones: begin new ones.
        """
        load_weights(self.model, weights)
        self.engine.forget()

    def encode(self, trajectory: Trajectory) -> Encoded:
        """An episode in tokens, as far as the window goes.

        Raises:
            ContextOverflow: not even one step of it fits.
        """
        return self.chat.encode(prompted(trajectory, self.prompt), self.window, "window")

    def guess(self, memory: Memory, action: str) -> Guess:
        """What may be answered to an action; nothing if drafting is off."""
        return self.guesser.guess(memory, action) if self.draft else lambda said: []


class Turn(NamedTuple):
    """A step of a session: how many tokens and how many pieces of its memory came before, and where the answer begins
    among the tokens."""

    length: int
    heard: int
    answer: int


class Session:
    """One episode. ``ids`` is the whole history in tokens; the cache holds a prefix of it."""

    def __init__(self, lm: LocalLM, ids: Sequence[int], memory: Memory | None = None):
        self.lm, self.ids, self.start = lm, list(ids), len(ids)
        self.memory = memory or Memory()
        self.cache = new_cache(lm.model)
        self.turns: list[Turn] = []
        self.confidence: Confidence | None = None

    @property
    def taken(self) -> int:
        """How many steps it has."""
        return len(self.turns)

    def fork(self) -> "Session":
        """The same episode so far, to go on by itself; what was computed is shared."""
        twin = type(self)(self.lm, self.ids, self.memory.copy())
        twin.start, twin.cache, twin.turns = self.start, self.cache.fork(), list(self.turns)
        twin.confidence = self.confidence
        return twin

    def rewind(self, steps: int = 1) -> None:
        """Take the last steps back; nothing has to be computed again.

        Raises:
            ValueError: there were not as many.
        """
        check_rewind(steps, self.taken)
        if steps:
            self.confidence = None
            length, heard, _ = self.turns[-steps]
            del self.turns[-steps:], self.ids[length:]
            self.memory.forget(heard)
            self.cache.length = min(self.cache.length, length)

    def step(self, action: str, max_new_tokens: int = MAX_NEW_TOKENS, sampling: Sampling | None = None) -> str:
        """What the model answers to an action (a policy to an observation): greedily decoded, or drawn.

        Raises:
            ContextOverflow: history, action and answer do not fit the model's window; the session stays as it was.
        """
        prompt = self._asking(action)
        limit = min(max_new_tokens, self._room(prompt) - 1)  # one is the end token's
        guess = self.lm.guess(self.memory, self._form(action))
        request = Request(prompt, self.start, self.cache, limit, guess, sampling)
        answer = self.lm.engine.submit(request).result()
        text, usual = self.lm.chat.decode(answer), self.lm.retrieval
        agrees = usual.answer(self.memory, action) == text if usual else None
        self._take(prompt, answer, self._heard(action, text), Confidence.of(request.logprobs, agrees))
        return text

    def chances(self, action: str, answers: Sequence[str]) -> list[float]:
        """The log-probability of each whole answer to an action, its end included, by one pass; no step is taken.

        Each answer is judged as it is usually split into tokens. What a step before has read need not be read again.

        Raises:
            ContextOverflow: history, action and the longest answer do not fit the model's window.
        """
        ids, drafts = self._asking(action), [self.lm.chat.answer(text) for text in answers]
        self._room(ids, least=max(map(len, drafts), default=0))
        cache = self.cache.fork()
        cache.length = min(cache.length, len(ids) - 1)
        chunk = Chunk(cache, ids[cache.length :], drafts)
        (rows,) = forward(self.lm.model, [chunk])
        found, at = [], 1
        for draft in drafts:
            found.append(sum(logprobs(torch.cat([rows[:1], rows[at : at + len(draft) - 1]]), draft)))
            at += len(draft)
        return found

    def hear(self, action: str, text: str) -> None:
        """Take a step whose answer is known; the model reads it with the next one.

        Raises:
            ContextOverflow: history, action and answer do not fit the model's window; the session stays as it was.
        """
        prompt, answer = self._asking(action), self.lm.chat.answer(text)
        self._room(prompt + answer, least=0)
        self._take(prompt, answer, self._heard(action, text), None)

    def _form(self, asked: str) -> str:
        """By what logged replies are looked up."""
        return asked

    def _heard(self, asked: str, text: str) -> list[str]:
        """What of a step may be said again."""
        return [text]

    def _asking(self, action: str) -> list[int]:
        """The history and an action."""
        chat = self.lm.chat
        return self.ids + (chat.after_answer if self.turns else []) + chat.action(action)

    def _room(self, ids: Sequence[int], least: int = 2) -> int:
        """How many more tokens the window holds."""
        room = self.lm.window - len(ids)
        if room < least:
            raise ContextOverflow(f"the episode is {len(ids)} tokens, more than the model's window {self.lm.window}")
        return room

    def _take(self, prompt: list[int], answer: list[int], heard: list[str], confidence: Confidence | None) -> None:
        self.turns.append(Turn(len(self.ids), len(self.memory.parts), len(prompt)))
        self.ids, self.confidence = prompt + answer, confidence
        for text in heard:
            self.memory.hear(text)


class PolicySession(Session):
    """One episode of an agent. ``step`` takes an observation and gives what the policy says: an action.

    The first observation is known from the start, so the text of the first ``step`` is not read again.
    """

    def _form(self, asked: str) -> str:
        return ""  # what was said anywhere may be said again

    def _asking(self, action: str) -> list[int]:
        return super()._asking(action) if self.turns else self.ids + self.lm.chat.before_answer

    def _heard(self, asked: str, text: str) -> list[str]:
        return [asked, text] if self.turns else [text]

    def spoken(self) -> list[int]:
        """For each token after the beginning, ``ids[start:]``, whether the policy said it (1) or not (0)."""
        mask = [0] * (len(self.ids) - self.start)
        ends = [turn.length for turn in self.turns[1:]] + [len(self.ids)]
        for turn, end in zip(self.turns, ends, strict=False):
            mask[turn.answer - self.start : end - self.start] = [1] * (end - turn.answer)
        return mask
