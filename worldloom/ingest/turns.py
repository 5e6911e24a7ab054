"""Who said what in a log, in order, and the trajectory that it makes.

What the agent says or calls is an action, what comes back before it acts again is the observation. Instructions, the
tools and what is said before the agent first acts are the initial observation: the first text that the agent sees.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

from worldloom.envs.toolbench_call import Call, arguments_of
from worldloom.errors import ProtocolError
from worldloom.ingest.row import Outcome
from worldloom.trajectory import AgentRef, EnvRef, Failure, Step, TaskRef, Trajectory

GAP = "\n\n"
System = Literal["observation", "context", "none"]
_THOUGHT, _ACTION = "Thought:", "Action:"


@dataclass(frozen=True)
class ToolCall:
    """A call as the log has it; ``arguments`` is an object or the text of one."""

    name: str
    arguments: Any = None
    id: str | None = None

    @property
    def action(self) -> str:
        """``{"name": ..., "arguments": {...}}``; arguments that are no object stay the text that was said."""
        return Call(self.name, arguments_of({} if self.arguments is None else self.arguments)).text

    @property
    def meaning(self) -> str:
        """The same for calls that differ in ids, the order of arguments or the form of numbers only."""
        told = self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments or {})
        return Call(self.name, arguments_of(told)).key


@dataclass(frozen=True)
class Told:
    """An instruction: a system or developer message."""

    text: str


@dataclass(frozen=True)
class Said:
    """The agent's: words, calls, or both; ``thought`` is what nobody else hears."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    thought: str = ""


@dataclass(frozen=True)
class Heard:
    """The world's: a user's words, or the result of a call (the one with ``call_id``, else the first open one)."""

    text: str
    of_tool: bool = False
    call_id: str | None = None
    failed: bool = False
    reward: float | None = None


Turn = Told | Said | Heard


@dataclass(frozen=True)
class Dialogue:
    """One episode as a format's module reads it.

    ``hidden`` is what a world model may know and the agent did not. ``left_out`` names the parts that a trajectory
    cannot hold (images), each once. ``place`` and ``records`` are set where several records make one episode.
    """

    turns: Sequence[Turn]
    tools: Sequence[Any] = ()
    id: str | None = None
    hidden: str | None = None
    outcome: Outcome = field(default_factory=Outcome)
    error: Failure | None = None
    agent: AgentRef | None = None
    seed: int | None = None
    split: str | None = None
    left_out: Sequence[str] = ()
    place: int | None = None
    records: int = 1


@dataclass
class _Act:
    action: str
    thought: str | None = None
    call: ToolCall | None = None
    answer: Heard | None = None


@dataclass
class _Episode:
    """A dialogue on its way to steps: those that are closed, and the agent's turn that is open."""

    told: list[str] = field(default_factory=list)
    opening: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    acts: list[_Act] = field(default_factory=list)
    after: list[str] = field(default_factory=list)  # heard since, and the answer to no call
    reward: float | None = None

    def add(self, turn: Turn) -> None:
        if isinstance(turn, Said):
            self._say(turn)
        elif isinstance(turn, Heard) and self.said:
            self._hear(turn)
        elif self.said:
            self.after.append(turn.text)
        else:
            (self.told if isinstance(turn, Told) else self.opening).append(turn.text)

    def _say(self, turn: Said) -> None:
        if self.after or any(act.answer for act in self.acts):
            self.close()
        self.said.append(turn)
        self.acts = _acts(self.said)

    def _hear(self, turn: Heard) -> None:
        self.reward = turn.reward if turn.reward is not None else self.reward
        open_calls = [act for act in self.acts if act.call and not act.answer] if turn.of_tool else []
        named = [act for act in open_calls if turn.call_id and act.call and act.call.id == turn.call_id]
        for act in (named or [act for act in open_calls if not (turn.call_id and act.call and act.call.id)])[:1]:
            act.answer = turn
            return
        self.after.append(_failed(turn))

    def close(self) -> None:
        """End the agent's turn: its acts become steps."""
        for number, act in enumerate(self.acts):
            last = number == len(self.acts) - 1
            heard = ([_failed(act.answer)] if act.answer else []) + (self.after if last else [])
            self.steps.append(
                Step(
                    action=act.action, observation=GAP.join(heard), thought=act.thought,
                    reward=self.reward if last else None, not_recorded=None if heard else True,
                    **_marks(act, number, len(self.acts)),
                )
            )  # fmt: skip
        self.said, self.acts, self.after, self.reward = [], [], [], None


def _acts(said: Sequence[Said]) -> list[_Act]:
    """What the agent does in one turn: its calls, its words being their thought; else its words."""
    calls = [call for turn in said for call in turn.calls]
    words = GAP.join(turn.text for turn in said if turn.text)
    thought = GAP.join(turn.thought for turn in said if turn.thought)
    if not calls:
        before, words = _react(words)
        return [_Act(words, GAP.join(filter(None, (thought, before))) or None)]
    first = _Act(calls[0].action, GAP.join(filter(None, (thought, words))) or None, calls[0])
    return [first, *(_Act(call.action, None, call) for call in calls[1:])]


def _react(text: str) -> tuple[str, str]:
    """Thought and action of a ReAct reply ("Thought: ... Action: ..."); any other text is all action."""
    before, mark, action = text.rpartition(_ACTION)
    if not mark or not text.lstrip().startswith(_THOUGHT):
        return "", text
    return before.strip().removeprefix(_THOUGHT).strip(), action.strip()


def _failed(heard: Heard) -> str:
    """The text, which says that it is an error where the log says so beside it."""
    if heard.failed and "error" not in heard.text.lower():
        return f"Error: {heard.text}".strip()
    return heard.text


def _marks(act: _Act, number: int, of: int) -> dict[str, Any]:
    """Fields of a step beyond the schema: the log's error flag, and which of several calls made at once it is."""
    marks: dict[str, Any] = {}
    if act.answer and act.answer.failed:
        marks["failed"] = True
    if of > 1:
        marks["parallel"] = [number + 1, of]
    return marks


def trajectory(
    dialogue: Dialogue, task_id: str, env: str, source: dict[str, Any], system: System = "observation"
) -> Trajectory:
    """A dialogue as a trajectory.

    Where nothing came back to the agent's last turn it is no step but the field ``unanswered``, unless the log says
    how the episode ended: then it is the step that ended it, with an empty observation. A turn in the middle to which
    nothing came back is a step that is ``not_recorded``.

    Raises:
        ProtocolError: there is no step, and no error that would say why.
    """
    found = _Episode()
    for turn in dialogue.turns:
        found.add(turn)
    unanswered = [] if found.after or any(act.answer for act in found.acts) else [act.action for act in found.acts]
    ended = dialogue.outcome.terminal in ("success", "failure")
    if found.acts and (not unanswered or ended):
        found.close()
        unanswered = []
    if not found.steps and dialogue.error is None:
        raise ProtocolError("nothing came back to anything that the agent did" if unanswered else "no agent acts in it")
    context, observation = _start(found, dialogue, system)
    return Trajectory(
        env=EnvRef(name=env),
        task=TaskRef(
            id=dialogue.id or task_id, seed=dialogue.seed, split=dialogue.split,
            instruction=found.opening[0] if found.opening else None,
        ),
        initial_context=context, initial_observation=observation, agent=dialogue.agent,
        steps=_ended(found.steps, dialogue.outcome), error=dialogue.error, source=source,
        **({"tools": [{"name": name} for name in names]} if (names := tool_names(dialogue.tools)) else {}),
        **({"unanswered": unanswered} if unanswered else {}),
        **({"left_out": list(dialogue.left_out)} if dialogue.left_out else {}),
    )  # fmt: skip


def _start(found: _Episode, dialogue: Dialogue, system: System) -> tuple[str | None, str]:
    """Initial context and first observation."""
    tools = ["Tools:\n" + "\n".join(map(tool_text, dialogue.tools))] if dialogue.tools else []
    known = [text for text in (*found.told, *tools) if text]
    hidden = [dialogue.hidden] if dialogue.hidden else []
    if system == "context":
        hidden += known
    shown = known if system == "observation" else []
    return GAP.join(hidden) or None, GAP.join([*shown, *found.opening])


def tool_text(tool: Any) -> str:
    """A tool's description as one line of JSON, out of the wrapping that an API needs."""
    tool = _unwrapped(tool)
    return tool if isinstance(tool, str) else json.dumps(tool, ensure_ascii=False)


def tool_names(tools: Iterable[Any]) -> list[str]:
    """The names of tools, each once; what has none is passed over."""
    names = (tool.get("name") for tool in map(_unwrapped, tools) if isinstance(tool, dict))
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))


def _unwrapped(tool: Any) -> Any:
    return tool["function"] if isinstance(tool, dict) and isinstance(tool.get("function"), dict) else tool


def _ended(steps: list[Step], outcome: Outcome) -> list[Step]:
    if not steps or outcome == Outcome():
        return steps
    last = steps[-1]
    told = {"terminal": outcome.terminal or last.terminal, "reward": last.reward}
    if outcome.reward is not None:
        told["reward"] = outcome.reward
    if outcome.terminal in ("success", "failure"):
        told["not_recorded"] = None  # the verdict is what came back
    return [*steps[:-1], last.model_copy(update=told)]


def texts(turns: Iterable[Turn]) -> list[str]:
    """What is compared of turns, one text each; neighbouring turns of the agent are one.

    Ids, thoughts, white space around words and the way arguments are written do not count, nor does a turn in which
    the agent says nothing: a reply often comes back so in the next request.
    """
    found: list[str] = []
    for _, neighbours in groupby(turns, type):
        same = list(neighbours)
        said = [turn for turn in same if isinstance(turn, Said)]
        found += _said_texts(said) if said else [json.dumps([type(turn).__name__, turn.text]) for turn in same]
    return found


def _said_texts(said: Sequence[Said]) -> list[str]:
    words = GAP.join(text for turn in said if (text := turn.text.strip()))
    calls = [call.meaning for turn in said for call in turn.calls]
    return [json.dumps([Said.__name__, words, *calls])] if words or calls else []
