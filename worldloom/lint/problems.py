"""What a linter says: rules, their weight, and a problem at a place."""

from pathlib import Path
from typing import Final, Literal, NamedTuple

Weight = Literal["error", "warning"]

RULES: Final[dict[str, tuple[Weight, str]]] = {
    "unreadable": ("error", "the line is no trajectory and no messages row"),
    "role-order": ("error", "roles of a messages row out of order, or a message without text"),
    "marker": ("error", "an end before the last step, or an end's suffix in a text"),
    "secret": ("error", "a secret or an identifier is left; `worldloom redact` takes it out"),
    "too-long": ("error", "more tokens than the model's window holds"),
    "no-steps": ("warning", "nothing to learn from"),
    "empty-action": ("warning", "a step without an action"),
    "broken": ("warning", "the rollout broke; the last observation may be missing"),
    "duplicate": ("warning", "the same episode again in the same split"),
    "near-duplicate": ("warning", "nearly the same episode again in the same split"),
    "leak-duplicate": ("error", "the same episode in two splits"),
    "leak-near-duplicate": ("error", "nearly the same episode in two splits"),
    "leak-task": ("error", "the same task in two splits"),
    "leak-state": ("error", "the same initial state, its context included, in two splits"),
    "same-start": ("warning", "the same first observation in two splits, with no context that tells them apart"),
}
"""Rule -> how much it weighs, and what it means. An error fails a check; a warning is for a person to judge."""


class Problem(NamedTuple):
    """One thing that is wrong, and where. Texts of the data are never quoted: they may be secret."""

    path: Path
    line: int
    rule: str
    message: str

    @property
    def weight(self) -> Weight:
        """``error`` or ``warning``."""
        return RULES[self.rule][0]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.weight}: {self.rule}: {self.message}"
