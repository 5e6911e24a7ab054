"""The pool against an environment that really hangs, really dies and really does not start."""

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import CancelledError, wait
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.envs.corridor import SPLITS, Corridor, Walker
from worldloom.agents import AgentSpec
from worldloom.envs import EnvSpec
from worldloom.envs.pool import EnvPool, Job
from worldloom.errors import ConfigError, EnvError
from worldloom.rollout import rollout
from worldloom.trajectory import Trajectory

WALKER = AgentSpec("tests.envs.corridor:Walker")
ROOT = Path(__file__).parents[2]


def unsafe(**options: object) -> EnvSpec:
    return EnvSpec("tests.envs.corridor:Unsafe", options)


def unbuildable(how: str) -> EnvSpec:
    return EnvSpec("tests.envs.corridor:Unbuildable", {"how": how})


def train(*numbers: int) -> list[Job]:
    return [Job(f"train-{n}", WALKER, split="train") for n in numbers]


def play(pool: EnvPool, jobs: list[Job]) -> list[Trajectory]:
    return [future.result(60) for future in [pool.submit(job) for job in jobs]]


def pid_of(trajectory: Trajectory) -> int:
    return int(re.search(r"pid=(\d+)", trajectory.initial_observation)[1])


def workers_of(process: psutil.Process) -> set[int]:
    found = set()
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # of which a zombie is one kind
            found |= {child.pid} if "spawn_main" in " ".join(child.cmdline()) else set()
    return found


def alive(pids: set[int]) -> set[int]:
    return {p.pid for p in psutil.process_iter(["status"]) if p.pid in pids and p.info["status"] != "zombie"}


def test_sixteen_jobs_on_four_workers_are_what_one_process_plays():
    jobs = [Job(f"train-{n}", WALKER, seed=n % 3, split="train") for n in range(16)]
    with EnvPool(EnvSpec("tests.envs.corridor:Corridor"), workers=4) as pool:
        assert pool.env_ref == Corridor().ref
        records = play(pool, jobs)
    alone = [rollout(Corridor(), Walker(), j.task_id, seed=j.seed, split="train") for j in jobs]
    assert records == alone
    assert {r.outcome for r in records} == {"success"}


def test_a_worker_keeps_its_environment_has_one_thread_and_no_torch(tmp_path: Path):
    log = tmp_path / "log"
    with EnvPool(unsafe(log=str(log)), workers=1) as pool:
        first, second = play(pool, train(0, 1))
        assert pid_of(first) == pid_of(second) != os.getpid()
        assert "threads=1 torch=False" in first.initial_observation
        assert not log.exists()  # nothing was closed between two episodes
    assert log.read_text() == f"closed {pid_of(first)}\n"


def test_a_death_is_recorded_after_a_second_try_and_touches_no_other_job():
    with EnvPool(unsafe(die="train-1", slow=0.02), workers=2) as pool:
        records = play(pool, train(0, 1, 2, 3))
    assert [r.outcome for r in records] == ["success", "error", "success", "success"]
    dead = records[1]
    assert (dead.error.kind, dead.env.version, dead.agent.name) == ("WorkerDied", "1", "walker")
    assert (dead.task.id, dead.task.split, dead.task.seed) == ("train-1", "train", 0)
    assert dead.error.message == "the worker died of SIGKILL (out of memory?); tried 2 times"


def test_a_death_that_does_not_happen_again_is_a_success(tmp_path: Path):
    with EnvPool(unsafe(die="train-1", once=str(tmp_path / "died")), workers=1) as pool:
        assert [r.outcome for r in play(pool, train(1, 2))] == ["success", "success"]
    assert (tmp_path / "died").exists()


def test_a_worker_killed_from_outside_is_replaced_even_when_all_are_idle():
    with EnvPool(unsafe(), workers=1) as pool:
        victim = pid_of(play(pool, train(0))[0])
        os.kill(victim, signal.SIGKILL)
        time.sleep(0.5)
        (record,) = play(pool, train(1))
        assert record.outcome == "success"
        assert pid_of(record) != victim
    assert not alive({victim, pid_of(record)})


@pytest.mark.parametrize("how", ["hang", "hold"])
def test_a_hang_is_recorded_within_the_limit(how: str):
    with EnvPool(unsafe(**{how: "train-0"}), workers=2, step_timeout=2.0) as pool:
        started = time.monotonic()
        records = play(pool, train(0, 1, 2, 3))
        seconds = time.monotonic() - started
    assert [r.outcome for r in records] == ["error", "success", "success", "success"]
    assert records[0].error.kind == "StepTimeout"
    assert re.search(r"step_timeout 2 s.*in _misbehave \(.*corridor\.py:\d+\)$", records[0].error.message)
    assert 2.0 <= seconds < 20.0


def test_an_error_of_the_engine_is_a_record_and_the_engine_is_built_anew(tmp_path: Path):
    log = tmp_path / "log"
    with EnvPool(unsafe(log=str(log)), workers=1) as pool:
        broke, whole = play(pool, train(19, 0))
        assert (broke.error.kind, broke.error.message, len(broke.steps)) == ("ValueError", "the engine tripped", 1)
        assert log.read_text() == f"closed {pid_of(broke)}\n"
        assert whole.outcome == "success"


def test_a_job_that_cannot_begin_is_a_record():
    with EnvPool(unsafe(), workers=1) as pool:
        no_task, no_agent = play(pool, [Job("train-99", WALKER), Job("train-0", AgentSpec("wlaker"))])
    assert (no_task.error.kind, no_task.error.message) == ("EnvError", "no task 'train-99'")
    assert no_agent.error.kind == "ConfigError"
    assert "unknown agent 'wlaker'" in no_agent.error.message
    assert no_agent.agent.name == "wlaker"


def test_workers_are_replaced_after_max_tasks():
    with EnvPool(unsafe(), workers=1, max_tasks=2) as pool:  # the start-up check is the first worker's first task
        pids = [pid_of(record) for record in play(pool, train(0, 1, 2))]
    assert pids[0] != pids[1] == pids[2]


@pytest.mark.parametrize(
    ("spec", "kind", "message"),
    [
        (unbuildable("error"), EnvError, "FileNotFoundError: corridor.map is missing"),
        (unbuildable("config"), ConfigError, "there is no map of that size"),
        (unbuildable("crash"), EnvError, r"died of SIGSEGV in __init__ \(.*corridor\.py"),
        (unbuildable("never"), EnvError, "silent for too long .*start_timeout 1 s"),
        (EnvSpec("tests.envs.corridor:Corridr"), ConfigError, "has no 'Corridr'; did you mean 'Corridor'"),
        (EnvSpec("alfwrld"), ConfigError, "did you mean 'alfworld'"),
        (unsafe(lenght=3), ConfigError, "unexpected keyword argument 'lenght'; known options: hang, hold"),
    ],
)
def test_what_cannot_be_built_fails_once_and_clearly(spec: EnvSpec, kind: type[Exception], message: str):
    before = workers_of(psutil.Process())
    with pytest.raises(kind, match=f"cannot be built: .*{message}") as caught:
        EnvPool(spec, workers=1, start_timeout=1.0)
    assert caught.type is kind
    assert workers_of(psutil.Process()) == before


def test_settings_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="workers"):
        EnvPool(unsafe(), workers=0)


def test_close_waits_for_what_was_submitted_and_leaves_no_child():
    before = workers_of(psutil.Process())
    pool = EnvPool(unsafe(slow=0.05), workers=2)
    futures = [pool.submit(job) for job in train(0, 1, 2, 3)]
    assert len(workers_of(psutil.Process()) - before) == 2
    pool.close()
    pool.close()
    assert workers_of(psutil.Process()) == before
    assert all(future.done() for future in futures)
    with pytest.raises(EnvError, match="closed"):
        pool.submit(train(0)[0])


def test_an_interrupt_ends_quickly_even_where_the_engine_holds_the_lock():
    def interrupted() -> list:
        with EnvPool(unsafe(hold="train-0"), workers=1) as pool:
            futures.extend(pool.submit(job) for job in train(0, 1))
            wait(futures, timeout=1.0)
            started.append(time.monotonic())
            raise KeyboardInterrupt

    futures, started = [], []
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - started[0] < 20.0
    for future in futures:
        with pytest.raises(CancelledError):
            future.result(0)


@pytest.mark.parametrize("option", ["slow=0.2", "hold='train-0'"])
def test_workers_do_not_outlive_a_killed_parent(option: str):
    script = (
        "import time\n"
        "from tests.envs.test_pool import *\n"
        f"pool = EnvPool(unsafe({option}), workers=2, step_timeout=3.0)\n"
        "for job in train(0, 1, 2, 3): pool.submit(job)\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "ready\n"
        workers = workers_of(psutil.Process(parent.pid))
        assert len(workers) == 2
        parent.kill()
        deadline = time.monotonic() + 30
        while alive(workers) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not alive(workers)


def test_the_corridor_is_winnable_by_its_own_plan():
    env = Corridor()
    for task in [f"{split}-{n}" for split, count in SPLITS.items() for n in range(count)]:
        plan = env.reset(task).gold_actions
        results = [env.step(action) for action in plan]
        assert [r.terminated for r in results] == [False] * (len(plan) - 1) + [True]
        assert results[-1].info["terminal"] == "success"
