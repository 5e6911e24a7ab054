"""The smallest real environment that a policy can improve in: two doors, one step, and the right one is right."""

from collections.abc import Sequence

from worldloom.envs.base import Environment, Observation, StepResult
from worldloom.errors import EnvError


class Doors(Environment):
    """Whoever opens the right door has won; any other action loses."""

    name = "doors"
    version = "1"
    splits = ("train", "test")

    def __init__(self) -> None:
        self._open = False

    def task_ids(self, split: str) -> Sequence[str]:
        self.check_split(split)
        return [f"{split}-{n}" for n in range(8)]

    def reset(self, task_id: str, seed: int = 0) -> Observation:
        if not any(task_id in self.task_ids(split) for split in self.splits):
            raise EnvError(f"no task {task_id!r}")
        self._open = True
        return Observation(f"Hall {task_id.rpartition('-')[2]}. Two doors.", "Find the way out.", "Right leads out.")

    def step(self, action: str) -> StepResult:
        if not self._open:
            raise EnvError("the episode is over; call reset")
        self._open, won = False, action == "open right"
        text = "You are out." if won else "You are lost."
        return StepResult(text, float(won), True, False, {"terminal": "success" if won else "failure"})

    def close(self) -> None:
        self._open = False
