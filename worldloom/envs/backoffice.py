"""Back-office work on BFCL's multi-turn APIs (Patil et al. 2025): files, tickets, trades, trips, messages, a car.

The agent reads all requests of a BFCL task at once, in order, calls functions that run for real, and says when it is
done.
"""

import hashlib
import importlib.util
import json
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from worldloom.envs.backoffice_apis import ERROR, INSTALL, MALFORMED, Call, Office, version
from worldloom.envs.base import Environment, Observation, StepInfo, StepResult
from worldloom.errors import EnvError, MissingDependency
from worldloom.trajectory import Terminal

CATEGORIES = ("base", "miss_param")
SPLITS = ("train", "test")
ONE_IN = 5  # of the initial states is for the test
ORDER = 20  # the seed of the order of a split's tasks, so that any first part of it mixes the APIs
DONE = "done"
CLOSED = "The work is handed over."
FORM = "Act by one call with literal arguments, as in mv(source='a', destination='b'). When all is done: done()."


class BackOffice(Environment):
    """Do what a list of requests asks for, by function calls; then say so by ``done()``.

    An action is one call as BFCL writes it, ``mv(source='a', destination='b')``, read with literals only and never
    evaluated; its observation is what BFCL's own executor gives: JSON of a dict, else the text of the result, or
    ``Error during execution: ...``. ``done()`` ends the episode: a success (reward 1) if each API ends in the state
    that the gold calls leave, as BFCL's state check compares it, else a failure.

    A task id is ``<category>/<BFCL's number>``, for instance ``base/17``. ``base`` says everything at once,
    ``miss_param`` leaves a detail to a later request. Tasks with one number share a world, and so a split; tasks with
    one initial state do too.

    Raises:
        MissingDependency: BFCL's package is not installed.
    """

    name = "backoffice"

    def __init__(self) -> None:
        self.version = version()
        self._office: Office | None = None
        self._seen: Any = None
        self._task: Any = None

    @property
    def splits(self) -> tuple[str, ...]:
        """``train`` and ``test``: about one in five initial states."""
        return SPLITS

    def task_ids(self, split: str) -> Sequence[str]:
        self.check_split(split)
        ids = [task_id for task_id, row in _tasks().items() if row["split"] == split]
        random.Random(ORDER).shuffle(ids)
        return ids

    def reset(self, task_id: str, seed: int = 0) -> Observation:
        """Start a task. ``seed`` changes nothing: what is drawn at random, BFCL's scenario decides."""
        self._office = None
        if task_id not in _tasks():
            raise EnvError(f"the back office has no task {task_id!r}; ids are like base/17")
        task = self._task = _tasks()[task_id]
        self._office = _opened(task)
        self._seen = _state_of(self._office)
        requests = [" ".join(said["content"] for said in turn) for turn in task["question"]]
        instruction = "\n".join(f"{n}. {text}" for n, text in enumerate(requests, 1))
        gold = [call for turn in task["ground_truth"] for call in turn]
        text = self._welcome(self._office, task.get("excluded_function") or (), instruction)
        return Observation(text, instruction, self._office.context(), (*gold, f"{DONE}()"))

    def _welcome(self, office: Office, without: Sequence[str], instruction: str) -> str:
        apis = [f"{name}: {', '.join(calls)}" for name, calls in office.signatures(without).items()]
        return "\n".join(["You do back-office work. Functions:", *apis, FORM, "Requests, in order:", instruction])

    def step(self, action: str) -> StepResult:
        if self._office is None:
            raise EnvError("the episode has ended or none was started: call reset first")
        call = Call.parse(action)
        if call != Call(DONE, [], {}):
            said = self._office.call(call) if call else MALFORMED
            return StepResult(said, 0.0, False, False, self._info(self._office, said))
        ending: Terminal = "success" if self._office.same_state(_worked_through(self._task)) else "failure"
        self._office = None
        info = StepInfo(terminal=ending, changed=False, refused=False)
        return StepResult(CLOSED, float(ending == "success"), True, False, info)

    def _info(self, office: Office, said: str) -> StepInfo:
        before, self._seen = self._seen, _state_of(office)
        if before is None or self._seen is None:
            return StepInfo(terminal=None)
        changed = self._seen != before
        return StepInfo(terminal=None, changed=changed, refused=not changed and is_error(said))

    def close(self) -> None:
        self._office, self._seen, self._task = None, None, None


def is_error(said: str) -> bool:
    """Whether an answer says that a call failed: in the executor's words, or in a field of an API's own."""
    if '"error"' not in said:
        return said.startswith((ERROR, "[{'error': "))
    try:
        answer = json.loads(said)
    except ValueError:
        return said.startswith(ERROR)
    return isinstance(answer, dict) and bool(answer.get("error"))


def _state_of(office: Office) -> Any:
    """All that functions show of the APIs, and the folders that somebody stands in; None if it cannot be told, as with
    a folder within itself."""
    try:
        return office.context(), [id(vars(api).get("_current_dir")) for api in office.apis.values()]
    except (AttributeError, TypeError, ValueError, RecursionError):  # an argument put into it what JSON does not have
        return None


def _opened(task: Any) -> Office:
    return Office(task["involved_classes"], task["initial_config"])


def _worked_through(task: Any) -> Office:
    """The office after the gold calls."""
    office = _opened(task)
    for turn in task["ground_truth"]:
        for text in turn:
            call = Call.parse(text)
            if call is not None:
                office.call(call)
    return office


@cache
def _tasks() -> dict[str, Any]:
    """All tasks by id, in BFCL's order; each knows its split and its gold calls (``ground_truth``)."""
    worlds = [_world(row) for row in _rows("BFCL_v4_multi_turn_base.json")]
    found = {}
    for category in CATEGORIES:
        name = f"BFCL_v4_multi_turn_{category}.json"
        for row, gold, world in zip(_rows(name), _rows(f"possible_answer/{name}"), worlds, strict=True):
            task_id = f"{category}/{row['id'].rpartition('_')[2]}"
            found[task_id] = {**row, "ground_truth": gold["ground_truth"], "split": _split(world)}
    return found


def _world(row: Any) -> str:
    """What the initial state of a task is, so that equal ones are known."""
    return json.dumps(
        {name: row["initial_config"].get(name) for name in sorted(row["involved_classes"])}, sort_keys=True
    )


def _split(world: str) -> str:
    return "test" if hashlib.sha256(world.encode()).digest()[0] % ONE_IN == 0 else "train"


def _rows(name: str) -> list[Any]:
    spec = importlib.util.find_spec("bfcl_eval")
    if spec is None or spec.origin is None:
        raise MissingDependency(f"the back office needs BFCL's data: {INSTALL}")
    path = Path(spec.origin).parent / "data" / name
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise EnvError(f"{path}: cannot be read ({error}); install bfcl-eval again") from error
