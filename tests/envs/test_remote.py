"""A real environment in another process: what it says, and what its death and its mistakes are told as."""

import os
import re
import signal

import pytest

from tests.envs.corridor import Corridor
from worldloom.envs import EnvSpec
from worldloom.envs.remote import RemoteEnv, RemoteEnvs
from worldloom.errors import ConfigError, EnvError

SPEC = EnvSpec("tests.envs.corridor:Unsafe", {"hang": "train-3"})


def test_it_says_what_the_environment_says_from_another_process() -> None:
    with RemoteEnv(EnvSpec("tests.envs.corridor:Corridor", {"longest": 4})) as env:
        here = Corridor(4)
        assert (env.name, env.version, env.options, env.splits) == ("corridor", "1", {"longest": 4}, ("train", "test"))
        assert env.task_ids("test") == here.task_ids("test")
        assert env.reset("train-1", 3) == here.reset("train-1", 3)
        assert env.step("go east") == here.step("go east")
        with pytest.raises(ConfigError, match="no split 'tets'"):
            env.task_ids("tets")
        with pytest.raises(EnvError, match="no task 'x'"):
            env.reset("x")
        assert env.step("look") == here.step("look")
    env.close()
    with pytest.raises(EnvError, match="is gone"):
        env.step("look")


def test_a_death_and_a_silence_are_errors() -> None:
    env = RemoteEnv(SPEC)
    env._seconds = 60
    pid = int(re.search(r"pid=(\d+)", env.reset("train-0").text)[1])
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EnvError, match=r"the process of .* is gone"):
        env.step("look")
    env.close()
    env = RemoteEnv(SPEC)
    env.reset("train-3")
    env.step("look")
    env._seconds = 0.5
    with pytest.raises(EnvError, match=r"was silent for 0\.5 s"):
        env.step("look")
    env.close()


def test_what_cannot_be_built_says_why() -> None:
    with pytest.raises(ConfigError, match="there is no map of that size"):
        RemoteEnv(EnvSpec("tests.envs.corridor:Unbuildable", {"how": "config"}))


def test_environments_are_lent_again_unless_they_were_closed() -> None:
    with RemoteEnvs(EnvSpec("tests.envs.corridor:Corridor")) as envs:
        with envs.one() as first:
            first.reset("train-0")
        with envs.one() as again:
            assert again is first
            again.close()
        with envs.one() as new:
            assert new is not first
            assert new.reset("train-0") == Corridor().reset("train-0")
    assert new.closed
