"""Files -> problems."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from worldloom.errors import DataError, ProtocolError
from worldloom.lint.between import Place, Seen, contexts_differ
from worldloom.lint.episode import Window, episode_problems
from worldloom.lint.problems import RULES, Problem
from worldloom.protocol import trajectory_of_row
from worldloom.redact.rules import Rules
from worldloom.trajectory import Trajectory, numbered_lines

NEAR = 0.9
_MESSAGES = re.compile(rb'"messages"\s*:\s*\[')


def lint(
    paths: Sequence[Path], *, rules: Rules | None = None, window: Window | None = None, near: float | None = NEAR
) -> Iterator[Problem]:
    """All that is wrong with files of trajectories or of ``messages`` rows, in order, read line by line.

    The files are read twice, the first time up to the first two contexts that differ. The split of an episode is what
    its task says, else the name of its file.

    Args:
        rules: what counts as a secret; secrets are not looked for if not given.
        window: the model's window; lengths are not checked if not given.
        near: the similarity from which two episodes are near-duplicates; None does not compare them.

    Raises:
        DataError: a file cannot be read.
    """
    seen = Seen(near, contexts_differ(_readable(paths)))
    for path in paths:
        for number, raw in numbered_lines(path):
            try:
                trajectory = _trajectory(raw, path, number)
            except ProtocolError as error:
                yield Problem(path, number, _rule(str(error)), str(error))
                continue
            except DataError as error:
                yield Problem(path, number, "unreadable", error.reason)
                continue
            place = Place(path, number, trajectory.task.split or path.stem)
            for rule, message in (*episode_problems(trajectory, rules, window), *seen.problems(trajectory, place)):
                yield Problem(path, number, rule, message)


def _readable(paths: Sequence[Path]) -> Iterator[Trajectory]:
    for path in paths:
        for number, raw in numbered_lines(path):
            with suppress(ProtocolError, DataError):
                yield _trajectory(raw, path, number)


def _trajectory(raw: bytes, path: Path, number: int) -> Trajectory:
    if _MESSAGES.search(raw[:200_000]) and b'"schema"' not in raw:
        return trajectory_of_row(raw, path.stem, f"{path.stem}/{number}")
    return Trajectory.from_json(raw)


def _rule(reason: str) -> str:
    """Which rule a row breaks that cannot be parsed."""
    return "unreadable" if "JSON" in reason else "marker" if "suffix" in reason else "role-order"


def model_window(model: str, tokens: int | None = None) -> Window:
    """The window of a model, or a narrower one, with exact counts by its own tokenizer and chat format.

    Raises:
        ModelError: the model cannot be found or fetched.
    """
    from transformers import AutoConfig

    from worldloom.lm.hf import load_tokenizer, resolve
    from worldloom.tokens import ChatFormat

    chat = ChatFormat(load_tokenizer(model))
    most = tokens or int(getattr(AutoConfig.from_pretrained(resolve(model)), "max_position_embeddings", None) or 4096)
    return Window(lambda trajectory: len(chat.encode(trajectory, 10**9).input_ids), most, model)


def summary(problems: Iterable[Problem]) -> dict[str, Any]:
    """Problems as JSON: ``errors`` and ``warnings`` are counts, ``rules`` counts by rule, ``problems`` all of them."""
    found = list(problems)
    weights = Counter(problem.weight for problem in found)
    return {
        "errors": weights["error"],
        "warnings": weights["warning"],
        "rules": {rule: n for rule in RULES if (n := sum(problem.rule == rule for problem in found))},
        "problems": [
            {"file": str(p.path), "line": p.line, "weight": p.weight, "rule": p.rule, "message": p.message}
            for p in found
        ],
    }


def as_json(problems: Iterable[Problem]) -> str:
    """``summary`` as text."""
    return json.dumps(summary(problems), indent=1, ensure_ascii=False)
