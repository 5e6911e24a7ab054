"""ScienceWorld without its Java process: options, missing parts, ends, what the engine hears."""

import sys
from pathlib import Path

import pytest

import worldloom.envs
from worldloom.envs.scienceworld import ScienceWorld, ending, speakable
from worldloom.envs.scienceworld_engine import Answer
from worldloom.errors import ConfigError, EnvError, MissingDependency


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"simplifications": "esay"}, "did you mean 'easy'"),
        ({"simplifications": "openDoors,teleport"}, "did you mean 'teleportAction'"),
        ({"context": "room"}, "did you mean 'rooms'"),
        ({"limit": 3}, "known options: simplifications, context, gold, admissible"),
    ],
)
def test_wrong_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        worldloom.envs.make("scienceworld", **options)


def test_options_build_the_same_environment(scienceworld: None) -> None:
    made = ScienceWorld("openDoors,teleportAction", context="none", gold=True)
    assert ScienceWorld(**made.options).options == made.options
    assert made.version == "1.2.3"


def test_step_before_reset(scienceworld: None) -> None:
    with pytest.raises(EnvError, match="reset"):
        ScienceWorld().step("look around")


def test_no_java(scienceworld: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingDependency, match=rf"needs Java 17 or newer, and JAVA_HOME={tmp_path} has no bin/java"):
        ScienceWorld()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependency, match=r"needs Java 17 or newer: install it .* or set JAVA_HOME"):
        ScienceWorld()


@pytest.mark.parametrize("name", ["py4j", "scienceworld"])
def test_no_package(scienceworld: None, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependency, match=rf'package {name!r}: pip install "worldloom\[scienceworld\]"'):
        ScienceWorld()


@pytest.mark.parametrize(
    ("score", "completed", "terminal"),
    [(0.3, False, None), (1.0, True, "success"), (-1.0, False, "failure"), (-1.0, True, "failure"), (0.9, True, None)],
)
def test_ending(score: float, completed: bool, terminal: str | None) -> None:
    assert ending(Answer("", score, completed)) == terminal


@pytest.mark.parametrize(
    ("said", "heard"), [("  go \t to\nkitchen ", "go to kitchen"), ("é", "é"), ("a\ud800b", "a?b"), (" \n", "")]
)
def test_speakable(said: str, heard: str) -> None:
    assert speakable(said) == heard
