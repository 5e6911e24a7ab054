"""Which part of an episode a model speaks: the world's, or an agent's (a policy). Kept beside the weights.

A world is told the initial context, the first observation and then actions, and answers with observations. A policy
is told the instruction and observations, never the initial context, and answers with actions: alone, or in ReAct's
form ("Thought: ... Action: ...", Yao et al. 2023, arXiv 2210.03629), as the agents of Word2World write them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from worldloom.errors import ConfigError, DataError, ModelError
from worldloom.naming import FILE, NAME_LINE
from worldloom.runs import read_json, write_json
from worldloom.trajectory import Step

Learns = Literal["world", "policy"]
Says = Literal["actions", "react"]
WORDS = {"world": "a world model", "policy": "a policy"}


@dataclass(frozen=True)
class Role:
    """What a model is, and how a policy says its actions (``says``; a world has no use for it)."""

    learns: Learns = "world"
    says: Says = "actions"

    def answer(self, step: Step) -> str:
        """What a policy says at a step."""
        if self.says == "actions":
            return step.action
        return (f"Thought: {step.thought}\n" if step.thought else "") + f"Action: {step.action}"

    def record(self) -> dict[str, Any]:
        """As ``protocol.json`` and ``train.json`` keep it."""
        return {"learns": self.learns} if self.learns == "world" else {"learns": self.learns, "says": self.says}

    def save(self, folder: Path) -> None:
        """Add it to ``folder/protocol.json``."""
        path = folder / FILE
        write_json(path, {**(read_json(path) if path.is_file() else {}), **self.record()})

    @classmethod
    def load(cls, folder: Path) -> "Role | None":
        """What a model folder says; None if it was not trained by worldloom, so that it may be either. Models from
        before there were policies are worlds.

        Raises:
            ModelError: the file is broken.
        """
        path = folder / FILE
        if not path.is_file():
            return cls() if (folder / "replies.json").is_file() else None
        try:
            found = read_json(path)
            learns, says = found.get("learns", "world"), found.get("says", "actions")
            if learns not in get_args(Learns) or says not in get_args(Says):
                raise DataError(f"learns {learns!r}, says {says!r}")
        except (DataError, AttributeError) as error:
            raise ModelError(f"{path} is broken ({error!r}); copy it from the model's training run") from error
        return cls(learns, says)

    @classmethod
    def opened(cls, folder: Path, learns: Learns) -> "Role":
        """The role of a model that is to be used as a world or as a policy.

        Raises:
            ModelError: it was trained to be the other.
        """
        found = cls.load(folder) or cls(learns)
        if found.learns != learns:
            advice = "act with it (agent policy:model=...)" if found.learns == "policy" else "imagine with it"
            raise ModelError(f"{folder} is {WORDS[found.learns]}, not {WORDS[learns]}; {advice}, or give another model")
        return found


def check_change(now: Role, before: Role | None, allowed: bool, model: str) -> None:
    """Refuse to train a model on into another role, unless that is allowed.

    Raises:
        ConfigError: it would change from a world model into a policy, or the reverse.
    """
    if before is not None and before.learns != now.learns and not allowed:
        raise ConfigError(f"{model} is {WORDS[before.learns]}; to make it {WORDS[now.learns]}, say change_role=true")


def policy_system(instruction: str | None, first: str, env: str | None = None) -> str:
    """A policy's system message: the environment's name, if it is to be told, and the task, unless the first
    observation says it already."""
    named = NAME_LINE.format(env) if env is not None else ""
    return named + (instruction if instruction is not None and instruction not in first else "")
