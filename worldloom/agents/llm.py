"""A language model as the agent: ReAct text ("Thought: ... Action: ..."), from any OpenAI-compatible server.

The conversation has Word2World's shape (arXiv 2512.18832, agent side): the prompt as a user turn that is answered
by an "OK", then the first observation with the task; then reply and observation in turn, at temperature 1.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from worldloom.agents.base import Agent, Decision, Start
from worldloom.errors import ConfigError, ContextOverflow, suggest
from worldloom.lm.openai import ChatServer, Message
from worldloom.trajectory import AgentRef

logger = logging.getLogger(__name__)

BASE_URL = "http://127.0.0.1:8000/v1"  # where `vllm serve` and `transformers serve` listen unless told otherwise
CONSENT = "OK."
MARK = "Action:"

_FORMAT = """\
Answer every observation in exactly this form, and write nothing after the action:
Thought: what you know now and what to do next
Action: one single action"""

PROMPTS = {
    "generic": f"""\
You act in a world made of text. Each turn you read what happened, then you say one action, on one line.
An action that is not understood or not possible changes nothing.

{_FORMAT}""",
    "alfworld": f"""\
You are a household robot in one room. The first message lists the places in it and names your task.
Name things with their numbers, as in "apple 2" or "fridge 1". You carry at most one thing. The actions are:
go to PLACE
open PLACE
close PLACE
take THING from PLACE
move THING to PLACE
clean THING with PLACE
heat THING with PLACE
cool THING with PLACE
slice THING with THING
use LAMP
examine THING_OR_PLACE
inventory
look
help
Stand at a place before you use it. "Nothing happens." means that the action was not possible.

{_FORMAT}""",
    "textworld": f"""\
You play a text adventure in a house. The first message describes the place and names your task.
Move between rooms, get what you need and use it. The actions are:
look
inventory
goal
examine THING
go north, go south, go east, go west
open CONTAINER_OR_DOOR, close CONTAINER_OR_DOOR
unlock CONTAINER_OR_DOOR with KEY, lock CONTAINER_OR_DOOR with KEY
take THING, take THING from CONTAINER_OR_SURFACE
put THING on SURFACE
insert THING into CONTAINER
drop THING
eat FOOD
cook FOOD with APPLIANCE
slice FOOD with TOOL, dice FOOD with TOOL, chop FOOD with TOOL
prepare meal
Call things by the full names that the game gives them.

{_FORMAT}""",
}


def parse_react(text: str) -> Decision:
    """Read a ReAct reply: the action is what follows the last "Action:", the thought what stands before it.

    The action is one line without white space around it: the first line after the mark that is not blank, and
    "" if there is none. A reply without the mark has its last line that is not blank for its action.
    """
    before, mark, after = text.rpartition(MARK)
    if mark:
        return Decision(next(iter(_lines(after)), ""), _thought(before))
    *before_last, action = _lines(text) or [""]
    return Decision(action, _thought("\n".join(before_last)))


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _thought(text: str) -> str | None:
    return text.strip().removeprefix("Thought:").strip() or None


class LLMAgent(Agent):
    """Asks a chat model for every action. The conversation is kept whole as long as it fits.

    Args:
        model: its name on the server.
        base_url: the server's API; see ``ChatServer`` for this and ``api_key``, ``temperature``, ``max_tokens``,
            ``timeout_s``, ``retries``, ``window``, ``extra``.
        family: whose action forms the prompt lists, a key of ``PROMPTS``.
        prompt: a prompt of one's own instead.
        system_role: send the prompt as a "user" turn that is answered by "OK.", or as the "system" message.
        overflow: what to do when the conversation outgrows the model's window: "drop_oldest" leaves out the oldest
            reply and the observation after it, as often as needed, but never the prompt, the first observation or
            the newest one; "error" raises. Each drop is logged and counted in the trajectory's
            ``agent.dropped_exchanges``.
        stop: strings that end a reply.
        sample: the number of this draw, where a task is played several times; it only changes the requests' seeds.

    Raises:
        ConfigError: an unknown family, role or overflow policy, or a value that ``ChatServer`` refuses.
    """

    name = "llm"

    def __init__(
        self,
        model: str,
        base_url: str = BASE_URL,
        *,
        api_key: str | None = None,
        temperature: float = 1.0,
        max_tokens: int | None = 512,
        timeout_s: float = 120.0,
        retries: int = 2,
        window: int | None = None,
        extra: Mapping[str, Any] | None = None,
        family: str = "generic",
        prompt: str | None = None,
        system_role: Literal["user", "system"] = "user",
        overflow: Literal["drop_oldest", "error"] = "drop_oldest",
        stop: Sequence[str] = (),
        sample: int = 0,
    ):
        _one_of("family", family, PROMPTS)
        _one_of("system_role", system_role, ("user", "system"))
        _one_of("overflow", overflow, ("drop_oldest", "error"))
        if isinstance(stop, str):
            raise ConfigError(f"stop is a list of texts, not {stop!r}")
        self.server = ChatServer(
            base_url=base_url,
            model=model,
            api_key=api_key,
            temperature=temperature,
            max_tokens=max_tokens,
            timeout_s=timeout_s,
            retries=retries,
            window=window,
            extra=extra,
        )
        self.family, self.prompt = family, prompt
        self.system_role, self.overflow, self.stop = system_role, overflow, tuple(stop)
        self.dropped, self.sample = 0, sample

    @property
    def params(self) -> dict[str, Any]:
        """What shapes its behaviour; where the server is, how long to wait and the key are no part of that."""
        return {
            "model": self.server.model,
            "temperature": self.server.temperature,
            "max_tokens": self.server.max_tokens,
            "window": self.server.window,
            "extra": dict(self.server.extra or {}),
            "family": self.family,
            "prompt": self.prompt,
            "system_role": self.system_role,
            "overflow": self.overflow,
            "stop": list(self.stop),
            **({"sample": self.sample} if self.sample else {}),
        }

    @property
    def ref(self) -> AgentRef:
        """The agent, with what it had to leave out of the current episode's conversation."""
        return AgentRef.model_validate({"name": self.name, "params": self.params, "dropped_exchanges": self.dropped})

    def begin(self, start: Start) -> None:
        """Start a conversation."""
        self.random, self.dropped = self.rng(start), 0
        self._opening = [*self._prompt(), _turn("user", _first_message(start))]
        self._exchanges: list[tuple[str, str]] = []  # a reply and the observation that followed
        self._reply: str | None = None

    def act(self, observation: str) -> Decision:
        """Ask for the next action.

        Raises:
            ContextOverflow: not even the prompt, the first and the newest exchange fit, or ``overflow`` is "error".
            ModelError: the server gives no reply.
        """
        if self._reply is not None:
            self._exchanges.append((self._reply, observation))
        self._reply = self._ask(self.random.getrandbits(31))
        return parse_react(self._reply)

    def did(self, action: str) -> None:
        """The conversation then has that action for its own."""
        self._reply = f"{MARK} {action}"

    def messages(self) -> list[Message]:
        """The conversation as it would be sent now."""
        later = [(_turn("assistant", reply), _turn("user", seen)) for reply, seen in self._exchanges]
        return [*self._opening, *(turn for pair in later for turn in pair)]

    def _ask(self, seed: int) -> str:
        while True:
            try:
                return self.server.chat(self.messages(), seed=seed, stop=self.stop)
            except ContextOverflow as error:
                if self.overflow == "error" or len(self._exchanges) < 2:
                    raise
                del self._exchanges[0]
                self.dropped += 1
                logger.warning("dropped the oldest exchange, %d so far: %s", self.dropped, error)

    def _prompt(self) -> list[Message]:
        text = self.prompt if self.prompt is not None else PROMPTS[self.family]
        if self.system_role == "system":
            return [_turn("system", text)]
        return [_turn("user", text), _turn("assistant", CONSENT)]


def _turn(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _first_message(start: Start) -> str:
    """The first observation, with the task unless the observation says it already."""
    if start.instruction is None or start.instruction in start.text:
        return start.text
    return f"{start.text}\n\nYour task: {start.instruction}"


def _one_of(setting: str, value: str, known: Any) -> None:
    if value not in known:
        raise ConfigError(f"{setting} is {value!r}{suggest(value, known)}")
