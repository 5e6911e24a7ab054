"""What a rehearsal has to show before an agent may go live: limits, from a YAML file."""

from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from worldloom.config import load_yaml
from worldloom.errors import ConfigError, suggest


class Limits(BaseModel):
    """Shares are fractions. A limit that is null is not asked for; one that cannot be measured is not met.

    ``min_success``, ``min_success_low``: imagined success, and the lower end of its 95 % interval.
    ``max_idle_success``: of an agent that does nothing of use, in the same world: what it wins, the world gives away.
    ``max_swapped_success``: of the agent's own actions for another task: what they win does not depend on the task.
    ``max_unsure``: share of steps to whose answer the world gives a probability below ``unsure_below``.
    ``max_new_actions``: share of actions of a kind that the world was never shown.
    ``max_unfinished``: share of episodes that the world itself broke off, for lack of room or of confidence.
    ``max_errors``: share of episodes in which the agent broke.
    ``max_false_success``: share of imagined successes that the real environment, where there is one, refutes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_success: float | None = Field(0.5, ge=0.0, le=1.0)
    min_success_low: float | None = Field(None, ge=0.0, le=1.0)
    max_idle_success: float | None = Field(0.05, ge=0.0, le=1.0)
    max_swapped_success: float | None = Field(0.5, ge=0.0, le=1.0)
    max_unsure: float | None = Field(0.3, ge=0.0, le=1.0)
    unsure_below: float = Field(0.5, ge=0.0, le=1.0)
    max_new_actions: float | None = Field(0.05, ge=0.0, le=1.0)
    max_unfinished: float | None = Field(0.1, ge=0.0, le=1.0)
    max_errors: float | None = Field(0.0, ge=0.0, le=1.0)
    max_false_success: float | None = Field(None, ge=0.0, le=1.0)


class Verdict(NamedTuple):
    """One limit: its name, the bound, what was measured (None: it could not be), and whether it is met."""

    limit: str
    bound: float
    measured: float | None
    met: bool


MEASURES = {
    "min_success": "success", "min_success_low": "success_low", "max_idle_success": "idle_success",
    "max_swapped_success": "swapped_success", "max_unsure": "unsure", "max_new_actions": "new_actions",
    "max_unfinished": "unfinished", "max_errors": "errors", "max_false_success": "false_success",
}  # fmt: skip


def judged(limits: Limits, measured: dict[str, float | None]) -> list[Verdict]:
    """Every limit that is asked for, against what was measured (by the names in ``MEASURES``)."""
    found = []
    for limit, name in MEASURES.items():
        bound = getattr(limits, limit)
        if bound is None:
            continue
        value = measured.get(name)
        met = value is not None and (value >= bound if limit.startswith("min_") else value <= bound)
        found.append(Verdict(limit, bound, value, met))
    return found


def read_limits(path: Path | None) -> Limits:
    """Limits of a YAML file; the defaults for what it does not name, and without a file.

    Raises:
        ConfigError: it cannot be read, a key is unknown, or a value is out of range; names the key.
    """
    if path is None:
        return Limits()
    settings = load_yaml(path)
    for key in settings:
        if key not in Limits.model_fields:
            raise ConfigError(f"{path}: unknown limit {key!r}{suggest(str(key), Limits.model_fields)}")
    try:
        return Limits.model_validate(settings)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ConfigError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
