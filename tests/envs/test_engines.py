"""Every engine that is installed here: whatever an agent says, and processes that are killed in the midst of a step.

``WORLDLOOM_TEST_WORKERS=16`` plays all sixteen episodes at once; four at a time is what a small machine holds.
"""

import gc
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.conftest import ROOT
from tests.envs.noise import anything
from tests.envs.test_pool import alive
from worldloom.agents import AgentSpec
from worldloom.envs import ENVIRONMENTS, Environment, EnvSpec
from worldloom.envs.pool import EnvPool, Job
from worldloom.envs.rules import is_over, step_faults
from worldloom.errors import MissingDependency
from worldloom.trajectory import Trajectory

pytestmark = pytest.mark.engine

EPISODES, STEPS, ACTIONS = 16, 8, 200
WORKERS = int(os.environ.get("WORLDLOOM_TEST_WORKERS", "4"))
ENGINES = [name for name in ENVIRONMENTS if not name.startswith("textworld-")]  # those are other games of one engine
MEMORY = 32 * 2**20  # bytes that Python may keep for later


def spec_of(name: str) -> EnvSpec:
    """An environment with the real data that there are for tests."""
    folder = Path(os.environ.get("WORLDLOOM_DATA") or ROOT.parent / "shared" / "data") / name
    has_own = name in ("toolbench", "webshop") and folder.is_dir()
    return EnvSpec(name, {"data": str(folder)} if has_own else {})


def built(spec: EnvSpec) -> Environment:
    try:
        return spec.build()
    except MissingDependency as error:
        pytest.skip(str(error))


def played(env: Environment, tasks: list[str], rng: random.Random) -> Iterator[str]:
    """Says anything ``ACTIONS`` times; what breaks the contract, with the action."""
    task, listed = iter(tasks * ACTIONS), []
    env.reset(next(task))
    for _ in range(ACTIONS):
        action = anything(rng, listed)
        result = env.step(action)
        yield from (f"{fault}, after {action[:80]!r}" for fault in step_faults(result))
        listed = result.info.get("admissible_actions") or []
        if is_over(result):
            env.reset(next(task))


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_whatever_is_said_is_answered(name: str) -> None:
    with built(spec_of(name)) as env:
        tasks = list(env.task_ids(env.splits[0])[:2])
        before = env.reset(tasks[0])
        assert list(played(env, tasks, random.Random(f"anything to {name}"))) == []
        assert env.reset(tasks[0]) == before


class Held(NamedTuple):
    """What this process holds."""

    memory: int
    files: int
    threads: int


def held() -> Held:
    gc.collect()
    process = psutil.Process()
    return Held(process.memory_info().rss, process.num_fds(), process.num_threads())


def children() -> set[int]:
    """All processes below this one, but Python's own that follows what spawned processes share."""
    found = set()
    for child in psutil.Process().children(recursive=True):
        try:
            found |= set() if "resource_tracker" in " ".join(child.cmdline()) else {child.pid}
        except psutil.NoSuchProcess:
            continue
    return found


def eventually(nothing: Callable[[], object], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while nothing() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not nothing()


def sixteen(tasks: list[str], folder: Path) -> list[Job]:
    """Of the agents, one is killed twice (once more than a job is tried again), one once."""
    agents = [AgentSpec("tests.envs.noise:Babbler")] * EPISODES
    for number, deaths in ((3, 2), (9, 1)):
        (folder / str(number)).mkdir()
        agents[number] = AgentSpec("tests.envs.noise:Doomed", {"marks": str(folder / str(number)), "deaths": deaths})
    return [
        Job(tasks[n % len(tasks)], agent, seed=n // len(tasks), max_steps=60 if n in (3, 9) else STEPS)
        for n, agent in enumerate(agents)
    ]


@pytest.mark.parametrize("name", ENGINES)
def test_kills_in_the_midst_of_a_step_cost_no_more_than_an_episode(name: str, tmp_path: Path) -> None:
    spec = spec_of(name)
    with built(spec) as env:
        jobs = sixteen(list(env.task_ids(env.splits[0])[:EPISODES]), tmp_path)
    EnvPool(EnvSpec("tests.envs.corridor:Corridor"), workers=1).close()  # what Python sets up once for all pools
    before, were = held(), children()
    with EnvPool(spec, workers=WORKERS) as pool:
        records = [future.result(300) for future in [pool.submit(job) for job in jobs]]
        mine = children() - were
    assert [record.task.id for record in records] == [job.task_id for job in jobs]
    broken = {number: record.error.kind for number, record in enumerate(records) if record.error}
    assert broken == {3: "WorkerDied"}
    assert records[3].error.message.startswith("the worker died of SIGKILL (out of memory?)")
    assert records[3].error.message.endswith("tried 2 times")
    assert all(record.steps and record.outcome for number, record in enumerate(records) if number != 3)
    assert [Trajectory.from_json(record.to_json()) for record in records] == records
    killed = {int(mark.name): json.loads(mark.read_text()) for mark in tmp_path.glob("*/*")}
    assert len(killed) == 3
    gone = mine | set(killed) | {child for below in killed.values() for child in below}
    assert eventually(lambda: alive(gone)), f"still there: {alive(gone)}"
    assert children() == were
    after = held()
    assert after.memory - before.memory < MEMORY
    assert (after.files, after.threads) == (before.files, before.threads)
