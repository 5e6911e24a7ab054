"""Zero-shot and few-shot world models: a language model that was never trained as one is told in words what to do.

The instructions, and some whole episodes if there are any, stand before the initial context in the system message; the
rest of the conversation is the protocol's own (``worldloom.protocol``), so that the same scorer judges both kinds.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from worldloom.errors import ConfigError
from worldloom.protocol import CONTEXT_END, said, system_text
from worldloom.trajectory import Trajectory, read

SHOTS = 3  # Word2World's prompted models see as many
INSTRUCTIONS = (
    "You are the environment of a text-based task, not its player. Each user message is one action of the player. "
    "Answer with the observation that this environment gives next, in exactly its words, and with nothing else. Keep "
    "track of the state: what was opened, taken, moved or changed stays so. If an action is impossible, answer as "
    "this environment does to impossible actions. If the action completes the task, append [SUCCESS] to the "
    "observation, after a space; if it makes the task fail for good, append [FAILURE]."
)


@dataclass(frozen=True)
class Prompt:
    """What is said before an episode's initial context. ``shots`` episodes of the file ``examples`` are in it."""

    text: str
    shots: int = 0
    examples: str | None = None

    def before(self, initial_context: str | None) -> str:
        """The initial context of a prompted episode."""
        return self.text if initial_context is None else self.text + CONTEXT_END + initial_context


def prompted(trajectory: Trajectory, prompt: Prompt | None) -> Trajectory:
    """The same episode with a prompt before its initial context."""
    if prompt is None:
        return trajectory
    return trajectory.model_copy(update={"initial_context": prompt.before(trajectory.initial_context)})


def zero_shot() -> Prompt:
    """Instructions alone."""
    return Prompt(f"{INSTRUCTIONS}\n\nThis is how it begins now:")


def few_shot(path: Path, shots: int = SHOTS) -> Prompt:
    """Instructions and the shortest won episodes of a trajectories file, each of another task; where nothing says how
    any episode ended, the shortest ones.

    Raises:
        ConfigError: it has not as many.
        DataError: it cannot be read.
    """
    told = sorted((t for t in read(path) if t.steps), key=_length, reverse=True)
    known = any(t.outcome in ("success", "failure") for t in told)
    usable = {t.task.id: t for t in told if t.outcome == "success" or not known}
    chosen = sorted(usable.values(), key=_length)[:shots]
    if len(chosen) < shots:
        of = "tasks that were won" if known else "tasks"
        raise ConfigError(f"{path} has {len(chosen)} {of}; {shots} are needed as examples")
    shown = "\n\n".join(f"Example {n}. It begins:\n\n{_example(t)}" for n, t in enumerate(chosen, 1))
    return Prompt(f"{INSTRUCTIONS}\n\n{shown}\n\nThis is how it begins now:", shots, path.as_posix())


def _length(trajectory: Trajectory) -> int:
    return len(_example(trajectory))


def _example(trajectory: Trajectory) -> str:
    begin = system_text(trajectory.initial_context, trajectory.initial_observation)
    return "\n".join([begin, *_turns(trajectory)])


def _turns(trajectory: Trajectory) -> Iterable[str]:
    for step in trajectory.steps:
        yield f"> {step.action}"
        yield said(step.observation, step.terminal)


def split_prompt(model: str) -> tuple[Prompt | None, str]:
    """``zero-shot:MODEL`` and ``few-shot:FILE:MODEL`` as their prompt and the model; None and the model for others.

    Raises:
        ConfigError: a model is missing, or there are too few examples.
        DataError: the examples cannot be read.
    """
    kind, found, rest = model.partition(":")
    if not found or kind not in ("zero-shot", "few-shot"):
        return None, model
    path, between, name = rest.partition(":") if kind == "few-shot" else ("", ":", rest)
    if not between or not name or (kind == "few-shot" and not path):
        raise ConfigError(f"{model!r}: write zero-shot:MODEL, or few-shot:FILE:MODEL with a trajectories file")
    return (few_shot(Path(path)) if path else zero_shot()), name
