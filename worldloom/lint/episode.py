"""What is wrong with one episode by itself."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from worldloom.protocol import MARKERS
from worldloom.redact.find import find_in_field
from worldloom.redact.replace import PLAIN, walked
from worldloom.redact.rules import Rules
from worldloom.trajectory import Trajectory

Said = tuple[str, str]  # (rule, message)


class Window(NamedTuple):
    """How long an episode may be: a count of its tokens and the most that a model attends to."""

    count: Callable[[Trajectory], int]
    tokens: int
    model: str


def episode_problems(trajectory: Trajectory, rules: Rules | None, window: Window | None) -> Iterator[Said]:
    """All that is wrong with an episode; secrets are looked for if there are rules, its length if there is a window."""
    yield from _shape(trajectory)
    yield from _markers(trajectory)
    if rules is not None and (kinds := secrets_in(trajectory, rules)):
        told = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
        yield "secret", f"{told}; `worldloom redact` replaces them"
    if window is not None:
        yield from _length(trajectory, window)


def _shape(trajectory: Trajectory) -> Iterator[Said]:
    if not trajectory.steps:
        yield "no-steps", "no step"
    for number, step in enumerate(trajectory.steps, 1):
        if not step.action.strip():
            yield "empty-action", f"step {number} has no action"
    if trajectory.error is not None:
        yield "broken", f"the rollout broke after {len(trajectory.steps)} steps"


def _markers(trajectory: Trajectory) -> Iterator[Said]:
    ends = [number for number, step in enumerate(trajectory.steps, 1) if step.terminal is not None]
    for number in ends:
        if number < len(trajectory.steps):
            told = trajectory.steps[number - 1].terminal
            yield "marker", f"step {number} of {len(trajectory.steps)} ends the task ({told}), and the episode goes on"
    said = [("the first observation", trajectory.initial_observation)]
    said += [(f"the observation of step {n}", step.observation) for n, step in enumerate(trajectory.steps, 1)]
    for place, text in said:
        for marker in MARKERS.values():
            if text.rstrip().endswith(marker.strip()):
                yield "marker", f"{place} ends in {marker.strip()} as text; say it as the step's terminal"
            elif marker in text:
                yield "marker", f"{place} holds {marker.strip()}, which a model would learn to say there"


def secrets_in(trajectory: Trajectory, rules: Rules) -> Counter[str]:
    """How many secrets and identifiers an episode holds, by kind."""
    found: Counter[str] = Counter()

    def look(key: str, text: str) -> str:
        found.update(each.kind for each in find_in_field("" if key in PLAIN else key, text, rules))
        return text

    walked(trajectory.model_dump(by_alias=True), look)
    return found


def _length(trajectory: Trajectory, window: Window) -> Iterator[Said]:
    tokens = window.count(trajectory)
    if tokens > window.tokens:
        yield "too-long", f"{tokens} tokens, {tokens - window.tokens} more than the {window.tokens} of {window.model}"
