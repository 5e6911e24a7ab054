"""worldloom's own trajectories: passed through."""

from collections.abc import Mapping
from typing import Any

from worldloom.trajectory import SCHEMA, Trajectory


def matches(record: Any) -> bool:
    """Lines of this schema."""
    return isinstance(record, Mapping) and record.get("schema") == SCHEMA


def read(record: Any) -> Trajectory:
    """One episode."""
    return Trajectory.model_validate(record)
