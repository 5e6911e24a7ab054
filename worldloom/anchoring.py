"""Anchoring: the real environment answers some steps of an imagined episode, and the world model the others.

Which ones is the knob: the first k (``first=3``), every k-th (``every=5``), one kind of action (``action=search[*]``),
or those of which the world model is unsure (``unsure=0.9``: whose probability is below).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from worldloom.envs.base import Environment, Observation, StepInfo, StepResult
from worldloom.errors import ConfigError, EnvError, suggest
from worldloom.world import WorldModelEnv

KINDS = ("first", "every", "action", "unsure")


@dataclass(frozen=True)
class Anchor:
    """Which steps the real environment answers; ``value`` is as it was written."""

    kind: str
    value: str

    @classmethod
    def parse(cls, text: str) -> "Anchor":
        """Read ``first=K``, ``every=K``, ``action=PATTERN`` (``*`` stands for anything) or ``unsure=P``.

        Raises:
            ConfigError: it is none of them.
        """
        kind, found, value = text.partition("=")
        if kind not in KINDS:
            raise ConfigError(f"unknown anchor {text!r}{suggest(kind, KINDS)}")
        if not found or not value:
            raise ConfigError(f"anchor {text!r} has no value; write for example {kind}=3")
        anchor = cls(kind, value)
        anchor._check()
        return anchor

    def _check(self) -> None:
        try:
            fine = self.kind == "action" or (0 < float(self.value) < 1 if self.kind == "unsure" else self._count >= 1)
        except ValueError:
            fine = False
        if not fine:
            wanted = "a probability between 0 and 1" if self.kind == "unsure" else "a whole number, 1 or more"
            raise ConfigError(f"anchor {self}: the value must be {wanted}")

    def __str__(self) -> str:
        return f"{self.kind}={self.value}"

    @property
    def _count(self) -> int:
        return int(self.value)

    @property
    def least_confidence(self) -> float | None:
        """The probability below which the world model hands a step over; None for the other kinds."""
        return float(self.value) if self.kind == "unsure" else None

    def asks(self, number: int, action: str) -> bool:
        """Whether a step is the real environment's by its number (from 1) or its action."""
        if self.kind == "first":
            return number <= self._count
        if self.kind == "every":
            return number % self._count == 0
        if self.kind == "action":
            return fits(self.value, action)
        return False


def fits(pattern: str, text: str) -> bool:
    """Whether a text is what a pattern says; ``*`` in it stands for anything."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), text, re.DOTALL) is not None


class AnchoredEnv(Environment):
    """A world model whose real counterpart takes every action too, and answers those steps that the anchor names.

    What it answers goes into the world model's history. Once the real episode has ended, the world model is alone:
    the real environment has no answer then.

    Args:
        world: it takes its least confidence from the anchor.
        real: the environment that it imagines; closed with this one.
    """

    def __init__(self, world: WorldModelEnv, real: Environment, anchor: Anchor):
        self.world, self.real, self.anchor = world, real, anchor
        world.least_confidence = anchor.least_confidence
        self.name, self.version = world.name, world.version
        self._number, self._real_over = 0, True

    @property
    def options(self) -> dict[str, Any]:
        return {**self.world.options, "anchor": str(self.anchor)}

    @property
    def splits(self) -> tuple[str, ...]:
        return self.world.splits

    def task_ids(self, split: str) -> Sequence[str]:
        return self.world.task_ids(split)

    def reset(self, task_id: str, seed: int = 0) -> Observation:
        first, really = self.world.reset(task_id, seed), self.real.reset(task_id, seed)
        if really.text != first.text:
            raise EnvError(
                f"task {task_id!r} begins otherwise in the real environment (seed {seed}) than in the world model; "
                "take the world's starts from real episodes of the same version and seed"
            )
        self._number, self._real_over = 0, False
        return first

    def step(self, action: str) -> StepResult:
        self._number += 1
        really = None if self._real_over else self._really(action)
        if really is not None and self.anchor.asks(self._number, action):
            return self.world.hear(action, really)
        result = self.world.step(action)
        if really is None or result.info.get("reason") != "unsure":
            return result
        told = self.world.hear(action, really)
        return told._replace(info=StepInfo(**{**told.info, "confidence": result.info["confidence"]}))

    def _really(self, action: str) -> StepResult:
        result = self.real.step(action)
        self._real_over = result.terminated or result.truncated
        return result

    def close(self) -> None:
        self.world.close()
        self.real.close()
