"""Chat messages -> tokens and loss mask, for any tokenizer, with an exact budget.

Every message is tokenized by itself, between the pieces of the model's own chat format. So a history's tokens
never change when it grows, what training sees is what inference sees, and the loss mask is known exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from jinja2 import TemplateError

from worldloom.errors import ContextOverflow, ModelError, ProtocolError
from worldloom.naming import Naming
from worldloom.protocol import said, system_text
from worldloom.role import Role, policy_system
from worldloom.trajectory import Trajectory

Overflow = Literal["cut", "window", "drop"]

CHATML = (
    "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SYSTEM, ACTION, ANSWER = "\ue000SYSTEM\ue000", "\ue000ACTION\ue000", "\ue000ANSWER\ue000"


class Span(NamedTuple):
    """Where one step's answer stands in ``input_ids``: its text and end token, [start, stop)."""

    start: int
    stop: int
    step: int  # index into the trajectory's steps


@dataclass
class Encoded:
    """A trajectory in tokens. ``spans`` are the places that carry loss; ``left_out`` counts steps that did not fit;
    ``trajectory`` is what it was made of."""

    input_ids: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    left_out: int = 0
    trajectory: Trajectory | None = field(default=None, compare=False, repr=False)

    @property
    def labels(self) -> list[int]:
        """``input_ids`` where the loss counts, -100 elsewhere."""
        labels = [-100] * len(self.input_ids)
        for start, stop, _ in self.spans:
            labels[start:stop] = self.input_ids[start:stop]
        return labels


class ChatFormat:
    """The pieces that a model's chat template puts around texts, as tokens; whether it names the environment; and
    whose part the model speaks. The other part is the user's.

    Raises:
        ModelError: the template does not keep messages' texts whole and in order.
    """

    def __init__(self, tokenizer: Any, naming: Naming = Naming(), role: Role = Role()):  # noqa: B008
        self.tokenizer, self.naming, self.role = tokenizer, naming, role
        head, between, answer, after = self._pieces(tokenizer.chat_template or CHATML)
        self.head, self.before_action = self._ids(head), self._ids(between)
        self.before_answer = self._ids(answer)
        self.end, self.after_answer = self._end(after, between)

    def _pieces(self, template: str) -> tuple[str, str, str, str]:
        """Text before the system message; system -> action; action -> answer; answer -> next action."""
        chat = [("system", SYSTEM), ("user", ACTION), ("assistant", ANSWER), ("user", ACTION), ("assistant", ANSWER)]
        messages = [{"role": role, "content": content} for role, content in chat]
        try:
            text = self.tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False)
        except TemplateError as error:
            raise ModelError(
                f"the tokenizer's chat template refuses a conversation of system, user and assistant ({error}); "
                "give another template"
            ) from error
        pieces = []
        for _, content in chat:
            piece, found, text = text.partition(content)
            if not found:
                raise ModelError("the tokenizer's chat template changes or drops messages; give another template")
            pieces.append(piece)
        return pieces[0], pieces[1], pieces[2], pieces[3]

    def _end(self, after: str, between: str) -> tuple[int, list[int]]:
        """The token that ends an answer, and what stands between it and the next action."""
        ids = self._ids(after)
        special = set(self.tokenizer.all_special_ids) | set(self.tokenizer.get_added_vocab().values())
        if ids and ids[0] in special:
            return ids[0], ids[1:]
        if self.tokenizer.eos_token_id is None:
            raise ModelError("the tokenizer has no end-of-sequence token, so answers cannot be ended")
        return self.tokenizer.eos_token_id, ids

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _content(self, text: str) -> list[int]:
        """Tokens of what an episode says: a text that looks like the format's own marks is only text.

        Raises:
            ProtocolError: the text is no whole Unicode.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ProtocolError(f"half a surrogate pair (character {error.start}) cannot be said in tokens") from error
        return list(self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])

    def start(self, initial_context: str | None, initial_observation: str, env: str | None = None) -> list[int]:
        """Tokens of the system message, up to where the first action is written.

        Raises:
            ConfigError: the model has to be told the environment, and ``env`` says none.
        """
        text = system_text(initial_context, initial_observation, self.naming.of(env))
        return self.head + self._content(text) + self.before_action

    def begin(self, instruction: str | None, first: str, env: str | None = None) -> list[int]:
        """Tokens of a policy's system message and of the first observation, up to where its turn ends.

        Raises:
            ConfigError: the model has to be told the environment, and ``env`` says none.
        """
        system = policy_system(instruction, first, self.naming.of(env))
        return self.head + self._content(system) + self.before_action + self._content(first)

    def action(self, text: str) -> list[int]:
        """Tokens of an action (or of whatever is the other part's), up to where the answer begins."""
        return self._content(text) + self.before_answer

    def answer(self, text: str) -> list[int]:
        """Tokens of an answer and its end token: exactly what is learnt and generated."""
        return [*self._content(text), self.end]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of an answer's tokens, without its end token."""
        kept = ids[:-1] if ids and ids[-1] == self.end else ids
        return str(self.tokenizer.decode(kept, clean_up_tokenization_spaces=False))

    def encode(self, trajectory: Trajectory, budget: int, overflow: Overflow = "cut") -> Encoded:
        """A trajectory in at most ``budget`` tokens.

        What does not fit goes by whole steps, and ``left_out`` says how many: ``cut`` leaves out the last ones,
        ``window`` the oldest ones, ``drop`` all of them. The system message always stays. Steps whose answer a
        recorded world does not know stand there, but are not learnt or scored.

        Raises:
            ContextOverflow: the system message and one step do not fit.
        """
        start, steps = self._policy(trajectory) if self.role.learns == "policy" else self._world(trajectory)
        sizes = [len(action) + len(answer) + len(self.after_answer) for action, answer in steps]
        first, last = self._fitting(sizes, budget - len(start), overflow)
        if steps and first == last and overflow != "drop":
            raise ContextOverflow(
                f"task {trajectory.task.id!r}: the beginning is {len(start)} tokens and a step {min(sizes)}, "
                f"more than the budget of {budget}; shorten the context or take a model with a longer window"
            )
        encoded = self._joined(start, steps, first, last)
        encoded.trajectory = trajectory
        if self.role.learns == "world":
            encoded.spans = [span for span in encoded.spans if not trajectory.steps[span.step].not_recorded]
        return encoded

    def _world(self, trajectory: Trajectory) -> tuple[list[int], list[tuple[list[int], list[int]]]]:
        """The beginning, and of each step what is asked (an action) and answered (what follows)."""
        start = self.start(trajectory.initial_context, trajectory.initial_observation, trajectory.env.name)
        return start, [(self.action(s.action), self.answer(said(s.observation, s.terminal))) for s in trajectory.steps]

    def _policy(self, trajectory: Trajectory) -> tuple[list[int], list[tuple[list[int], list[int]]]]:
        """The same for who acts: an observation is asked, an action answered; nothing follows the last action."""
        start = self.begin(trajectory.task.instruction, trajectory.initial_observation, trajectory.env.name)
        asked = [self.before_answer, *(self.action(step.observation) for step in trajectory.steps)]
        answers = [self.answer(self.role.answer(step)) for step in trajectory.steps]
        return start, list(zip(asked, answers, strict=False))

    def _fitting(self, sizes: list[int], room: int, overflow: Overflow) -> tuple[int, int]:
        # The text after the last answer is not written, so it need not fit.
        room += len(self.after_answer)
        if sum(sizes) <= room:
            return 0, len(sizes)
        if overflow == "drop":
            return 0, 0
        ordered = sizes if overflow == "cut" else sizes[::-1]
        count = sum(1 for n in range(1, len(sizes) + 1) if sum(ordered[:n]) <= room)
        return (0, count) if overflow == "cut" else (len(sizes) - count, len(sizes))

    def _joined(self, start: list[int], steps: list[tuple[list[int], list[int]]], first: int, last: int) -> Encoded:
        encoded = Encoded(list(start), left_out=len(steps) - (last - first))
        for number in range(first, last):
            action, answer = steps[number]
            if number > first:
                encoded.input_ids += self.after_answer
            encoded.input_ids += action
            begin = len(encoded.input_ids)
            encoded.input_ids += answer
            encoded.spans.append(Span(begin, len(encoded.input_ids), number))
        return encoded
