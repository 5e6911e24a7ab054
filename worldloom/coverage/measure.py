"""Episodes -> coverage: kinds of actions and their outcomes, states, novelty over time, and what is missing."""

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from worldloom.coverage.steps import TEXT, form_of, form_of_action, kind_of, offered, outcomes_of
from worldloom.evaluate.stats import rate
from worldloom.trajectory import Trajectory

BINS = 40
POOLS = 1000  # rows of a bootstrap; more episodes are pooled, so that memory stays small
ENOUGH = 20  # steps of a kind, to say that one of its outcomes is missing
RARE = 5
FEW_FAILURES = 0.05
MUCH_NEW, LITTLE_NEW = 0.2, 0.02
_FROM_CALLS = 0.2  # share of calls from which other actions are texts, not commands


@dataclass
class KindCount:
    """How often a kind of action was seen, and what came of it."""

    call: bool = False
    steps: int = 0
    failed: int = 0
    episodes: int = 0
    replies: set[int] = field(default_factory=set)
    forms: Counter[int] = field(default_factory=Counter)
    last: int = -1  # the episode that it was seen in last

    def add(self, episode: int, reply: int, form: int, failed: bool) -> None:
        """Count one more step."""
        self.steps, self.failed = self.steps + 1, self.failed + failed
        self.episodes, self.last = self.episodes + (self.last != episode), episode
        self.replies.add(reply)
        self.forms[form] += 1

    @property
    def once(self) -> int:
        """How many of its forms were seen but once."""
        return sum(n == 1 for n in self.forms.values())


@dataclass
class Coverage:
    """What was seen so far; a form of a transition is kept as 32 bits."""

    outcomes: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, KindCount] = field(default_factory=dict)
    texts: KindCount = field(default_factory=KindCount)  # all that is no call, together
    offered: set[str] = field(default_factory=set)
    told_by: Counter[str] = field(default_factory=Counter)
    tasks: Counter[tuple[str, str]] = field(default_factory=Counter)
    states: set[int] = field(default_factory=set)
    exact: set[int] = field(default_factory=set)
    forms: Counter[int] = field(default_factory=Counter)
    first_at: dict[int, int] = field(default_factory=dict)  # form -> the episode that showed it first
    sizes: list[int] = field(default_factory=list)  # steps of each episode
    failures: list[int] = field(default_factory=list)
    news: list[int] = field(default_factory=list)  # forms of each episode that no earlier one had

    def add(self, trajectory: Trajectory) -> None:
        """Count one more episode."""
        number = len(self.sizes)
        self.outcomes[trajectory.outcome or "unknown"] += 1
        self.tasks[trajectory.env.name, trajectory.task.id] += 1
        self.offered |= offered(trajectory)
        self.states.add(_hash(trajectory.initial_observation))
        found = outcomes_of(trajectory)
        self.sizes.append(len(found))
        self.failures.append(sum(outcome.failed for outcome in found))
        self.told_by.update(outcome.by for outcome in found)
        self.news.append(0)
        for step, outcome in zip(trajectory.steps, found, strict=True):
            self._step(number, step.action, step.observation, outcome.failed)

    def _step(self, episode: int, action: str, observation: str, failed: bool) -> None:
        kind = kind_of(action)
        reply = form_of(observation)
        form = _hash(form_of_action(action) + "\0" + reply)
        for count in (self.kinds.setdefault(kind.name, KindCount(kind.call)), *([] if kind.call else [self.texts])):
            count.add(episode, _hash(reply), form, failed)
        self.states.add(_hash(observation))
        self.exact.add(_hash(action + "\0" + observation))
        self.forms[form] += 1
        self.news[episode] += form not in self.first_at
        self.first_at.setdefault(form, episode)

    def named_kinds(self) -> dict[str, KindCount]:
        """Kinds by how often they were seen. Where tools are called, other actions are one kind: texts."""
        calls = sum(count.steps for count in self.kinds.values() if count.call)
        if calls < _FROM_CALLS * sum(self.sizes) or not calls:
            found = dict(self.kinds)
        else:
            found = {name: count for name, count in self.kinds.items() if count.call}
            found |= {TEXT: self.texts} if self.texts.steps else {}
        return dict(sorted(found.items(), key=lambda item: (-item[1].steps, item[0])))


def _hash(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def measured(episodes: Iterable[Trajectory]) -> dict[str, Any]:
    """What episodes cover, as JSON.

    Rates are fractions with n and a 95 % interval over episodes. ``novelty.next`` is Good and Turing's estimate
    (Good 1953) of the share of further steps like these that would show a form not seen before: the share of forms
    seen once; ``kinds[...].new`` is the same for steps of a kind. A form is action and observation with numbers and
    quoted values masked; names of fields and the action's kind stay.
    """
    seen = Coverage()
    for trajectory in episodes:
        seen.add(trajectory)
    steps = sum(seen.sizes)
    return {
        "episodes": len(seen.sizes),
        "steps": steps,
        "outcomes": dict(seen.outcomes.most_common()),
        "tasks": {"n": len(seen.tasks), "played_more_than_once": sum(n > 1 for n in seen.tasks.values())},
        "failed_steps": pooled_rate(seen.failures, seen.sizes),
        "failures_told_by": dict(seen.told_by.most_common()),
        "states": {"observations": len(seen.states), "transitions": len(seen.exact), "forms": len(seen.forms)},
        "kinds": {name: _kind(count) for name, count in seen.named_kinds().items()},
        "novelty": {"next": pooled_rate(_once(seen), seen.sizes), "over_time": list(_over_time(seen))},
        "missing": list(_missing(seen)),
    }


def _kind(count: KindCount) -> dict[str, Any]:
    return {
        "steps": count.steps,
        "episodes": count.episodes,
        "failed": count.failed,
        "reply_forms": len(count.replies),
        "new": count.once / count.steps,
    }


def _once(seen: Coverage) -> list[int]:
    """For each episode, how many of the forms that were seen but once are its own."""
    found = [0] * len(seen.sizes)
    for form, n in seen.forms.items():
        found[seen.first_at[form]] += n == 1
    return found


def pooled_rate(hits: Sequence[int], totals: Sequence[int]) -> dict[str, Any] | None:
    """A rate over steps with its interval over episodes; of more than a thousand episodes, over a thousand pools."""
    found = rate(*([sum(column[at::POOLS]) for at in range(min(POOLS, len(column)))] for column in (hits, totals)))
    return {**found, "n": sum(totals)} if found else None


def _over_time(seen: Coverage) -> Iterator[dict[str, Any]]:
    """In the order of the file, the share of steps that showed a form for the first time."""
    episodes = len(seen.sizes)
    edges = sorted({round(episodes * n / BINS) for n in range(BINS + 1)})
    for start, stop in pairwise(edges):
        if steps := sum(seen.sizes[start:stop]):
            yield {"episodes": stop, "steps": steps, "new": sum(seen.news[start:stop]) / steps}


def _missing(seen: Coverage) -> Iterator[str]:
    """What a model of these episodes could not know, in sentences."""
    episodes, steps = len(seen.sizes), sum(seen.sizes)
    if not steps:
        yield "there is no step to learn from"
        return
    for end in ("success", "failure"):
        if not seen.outcomes[end]:
            yield f"no episode of {episodes:,} ends in {end}, so a model could not say when a task does"
    kinds = seen.named_kinds()
    yield from _missing_outcomes(kinds, episodes)
    if never := sorted(seen.offered - set(kinds)):
        yield f"offered, and never tried: {', '.join(never[:20])}" + (
            f" and {len(never) - 20} more" * (len(never) > 20)
        )
    if rare := [name for name, count in kinds.items() if count.steps < RARE]:
        told = ", ".join(rare[:20]) + (f" and {len(rare) - 20} more" * (len(rare) > 20))
        yield f"seen fewer than {RARE} times: {told}"
    if sum(seen.failures) < FEW_FAILURES * steps:
        yield (
            f"only {sum(seen.failures):,} of {steps:,} steps fail; what an action needs is learnt from those that are "
            "refused"
        )
    if all(n == 1 for n in seen.tasks.values()):
        yield "every task was played once, so no state shows what another action would have done"
    yield from _worth({name: count for name, count in kinds.items() if name != TEXT})


def _missing_outcomes(kinds: dict[str, KindCount], episodes: int) -> Iterator[str]:
    for name, count in kinds.items():
        if name == TEXT or count.steps < ENOUGH:
            continue
        if not count.failed:
            yield f"no failed `{name}` in {count.steps:,} of them in {episodes:,} episodes"
        elif count.failed == count.steps:
            yield f"no `{name}` that did not fail in {count.steps:,} of them in {episodes:,} episodes"


def _worth(kinds: dict[str, KindCount]) -> Iterator[str]:
    """Whether more of the same log is worth it; what people say to each other, always new, is set aside."""
    new = sum(count.once for count in kinds.values()) / (sum(count.steps for count in kinds.values()) or 1)
    if new >= MUCH_NEW:
        yield f"of the next 100 steps like these about {100 * new:.0f} would show a form not seen yet: record more"
    elif kinds and new <= LITTLE_NEW:
        yield (
            f"of the next 100 steps like these about {100 * new:.1f} would show a form not seen yet: more of the same "
            "teaches little; record other tasks, other agents, more mistakes"
        )
