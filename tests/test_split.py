"""Splits share nothing that would leak, do not depend on chance, and are recorded."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from worldloom.cli import app
from worldloom.errors import ConfigError, DataError
from worldloom.redact.replace import Redactor
from worldloom.runs import read_json
from worldloom.split import SplitConfig, grouped, split
from worldloom.trajectory import EnvRef, Step, TaskRef, Trajectory, read, write

HALVES = (("train", 0.5), ("test", 0.5))


def episode(task: str, text: str = "x", **more: Any) -> Trajectory:
    step = Step(action="look", observation=f"{task} {text}", terminal="success")
    return Trajectory(env=EnvRef(name="e"), task=TaskRef(id=task), initial_observation="Hi", steps=[step], **more)


def made(folder: Path, rows: list[Trajectory], **settings: Any) -> dict[str, list[Trajectory]]:
    write(folder / "t.jsonl", rows)
    found = split(folder / "t.jsonl", folder / "out", SplitConfig(**settings))
    return {name: read(folder / "out" / each["file"]) for name, each in found["splits"].items() if each["episodes"]}


def test_no_task_is_in_two_splits_and_every_episode_in_one(tmp_path: Path) -> None:
    rows = [episode(f"t{n % 40}", str(n)) for n in range(120)]
    found = made(tmp_path, rows)
    tasks = {name: {row.task.id for row in own} for name, own in found.items()}
    assert {name: len(own) for name, own in tasks.items()} == {"train": 32, "valid": 4, "test": 4}
    assert len(set().union(*tasks.values())) == 40
    assert all(row.task.split == name for name, own in found.items() for row in own)
    said = sorted(row.steps[0].observation for own in found.values() for row in own)
    assert said == sorted(row.steps[0].observation for row in rows)


def test_a_stable_split_of_a_task_is_its_hash_s_and_stays_when_episodes_are_added(tmp_path: Path) -> None:
    def expected(task: str) -> str:
        name = f"7 task={('e', task)!r}"
        place = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64
        return "train" if place < 0.5 else "test"

    few, many = ([episode(f"t{n}") for n in range(size)] for size in (20, 60))
    (tmp_path / "few").mkdir(), (tmp_path / "many").mkdir()
    for folder, rows in (("few", few), ("many", many)):
        for name, own in made(tmp_path / folder, rows, fractions=HALVES, seed=7, stable=True).items():
            assert all(expected(row.task.id) == name for row in own)


def test_episodes_tied_by_any_key_stay_together(tmp_path: Path) -> None:
    rows = [episode(f"t{n // 2}", str(n), customer={"id": (n + 1) // 2}, shop=n // 20) for n in range(80)]
    assert len(set(grouped(rows, ["task", "customer.id"]))) == 1
    assert len(set(grouped(rows, ["customer.id"]))) == 41
    assert len(set(grouped(rows, ["shop"]))) == 4
    apart = [episode(f"t{n}", customer=n // 3) for n in range(60)]
    found = made(tmp_path, apart, by=("customer", "task"), fractions=HALVES)
    customers = [{row.model_extra["customer"] for row in own} for own in found.values()]
    assert customers[0].isdisjoint(customers[1])


def test_by_time_the_earliest_train(tmp_path: Path) -> None:
    rows = [episode(f"t{n}", at=f"2024-05-{28 - n:02}T10:00:00") for n in range(20)]
    found = made(tmp_path, rows, time="at", fractions=(("train", 0.75), ("test", 0.25)))
    assert sorted(row.model_extra["at"][8:10] for row in found["test"]) == ["24", "25", "26", "27", "28"]
    assert len(found["train"]) == 15


def test_a_leak_is_refused_or_left_out(tmp_path: Path) -> None:
    rows = [episode(f"t{n % 9}", str(n), at=n) for n in range(12)]
    write(tmp_path / "t.jsonl", rows)
    config = {"time": "at", "fractions": (("train", 0.75), ("test", 0.25))}
    with pytest.raises(
        DataError, match=r"3 share their task; split --by what they share too, or give --leaks leave_out"
    ):
        split(tmp_path / "t.jsonl", tmp_path / "out", SplitConfig(**config))
    assert not (tmp_path / "out").exists()
    found = made(tmp_path, rows, **config, leaks="leave_out")
    assert {name: [row.model_extra["at"] for row in own] for name, own in found.items()} == {
        "train": [3, 4, 5, 6, 7, 8], "test": [9, 10, 11], "left_out": [0, 1, 2],
    }  # fmt: skip


def test_the_same_episode_or_initial_state_under_two_names_is_a_leak(tmp_path: Path) -> None:
    same = [episode(f"t{n}").model_copy(update={"steps": [Step(action="a", observation="b")]}) for n in range(20)]
    with pytest.raises(DataError, match="share all that was said"):
        made(tmp_path, same, fractions=HALVES)
    contexts = [episode(f"t{n}", initial_context=f"Home {n % 2}.") for n in range(20)]
    with pytest.raises(DataError, match="share their initial state"):
        made(tmp_path, contexts, fractions=HALVES)
    made(tmp_path, [episode(f"t{n}", initial_context="You are an agent.") for n in range(20)], fractions=HALVES)


def test_the_split_is_recorded_and_another_one_is_refused(tmp_path: Path) -> None:
    rows = [episode(f"t{n}", customer=n) for n in range(20)]
    made(tmp_path, rows, fractions=HALVES)
    found = read_json(tmp_path / "out" / "splits.json")
    assert (found["by"], found["seed"], found["fractions"]) == (["task"], 0, {"train": 0.5, "test": 0.5})
    digest = hashlib.sha256((tmp_path / "t.jsonl").read_bytes()).hexdigest()
    assert found["source"] == {"file": "t.jsonl", "sha256": digest}
    train = found["splits"]["train"]
    assert train["episodes"] == train["groups"] == train["outcomes"]["success"]
    assert train["sha256"] == hashlib.sha256((tmp_path / "out" / "train.jsonl").read_bytes()).hexdigest()
    again = made(tmp_path, rows, fractions=HALVES)
    assert read_json(tmp_path / "out" / "splits.json") == found and len(again["train"]) == train["episodes"]
    with pytest.raises(ConfigError, match="holds a run with other settings"):
        made(tmp_path, rows, fractions=HALVES, seed=1)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"fractions": (("a", 0.5), ("b", 0.6))}, ConfigError, "must add up to 1"),
        ({"fractions": (("a", 0.5), ("a", 0.5))}, ConfigError, "different single words"),
        ({"fractions": (("left_out", 1.0),)}, ConfigError, "give the split another name"),
        ({"by": ()}, ConfigError, "name at least one key"),
        ({"by": ("customer.id",)}, DataError, "task 't0' has no 'customer.id'"),
        ({"by": ("mail",)}, DataError, "was redacted, and another episode's same placeholder is another value"),
        ({"time": "mail"}, DataError, "was redacted"),
        ({"time": "task.id"}, DataError, "is no time; give ISO 8601 or seconds"),
        ({"fractions": (("a", 0.999), ("b", 0.001))}, ConfigError, "nothing falls to b"),
    ],
)
def test_what_cannot_be_split_is_told(tmp_path: Path, settings: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        made(tmp_path, [episode(f"t{n}", mail="<EMAIL_1>") for n in range(5)], **settings)


def test_placeholders_of_a_whole_file_are_names(tmp_path: Path) -> None:
    rows = [episode(f"t{n}", mail=f"<EMAIL_{n % 4 + 1}>") for n in range(8)]
    found = made(tmp_path, rows, by=("mail",), placeholders="file", fractions=HALVES)
    mails = {name: {row.mail for row in own} for name, own in found.items()}  # type: ignore[attr-defined]
    assert [len(own) for own in mails.values()] == [2, 2] and not mails["train"] & mails["test"]
    assert read_json(tmp_path / "out" / "splits.json")["placeholders"] == "file"


def test_redacted_tasks_are_split_or_refused(tmp_path: Path) -> None:
    redactor = Redactor()
    rows = [redactor(episode(f"ann{n % 10}@example.com", str(n))) for n in range(20)]
    found = made(tmp_path, rows, fractions=HALVES)
    tasks = [{row.task.id for row in own} for own in found.values()]
    assert [len(own) for own in tasks] == [5, 5] and not tasks[0] & tasks[1]
    for settings in ({}, {"by": ("customer",)}, {"by": ("task.id",)}):
        with pytest.raises(DataError, match=r"'task(\.id)?' was redacted, .*redact with --scope file"):
            made(tmp_path, [episode("<EMAIL_1>", customer=n) for n in range(5)], **settings)


def test_a_file_without_episodes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"t\.jsonl: holds no episode to split"):
        made(tmp_path, [])


def test_split_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "t.jsonl", [episode(f"t{n}") for n in range(20)])
    arguments = ["--fraction", "train=0.5", "--fraction", "test=0.5", "--by", "task"]
    app(["split", str(tmp_path / "t.jsonl"), "--out", str(tmp_path / "o"), *arguments], standalone_mode=False)
    assert json.loads(capsys.readouterr().out) == read_json(tmp_path / "o" / "splits.json")
    with pytest.raises(ConfigError, match="'train' is not NAME=SHARE"):
        app(["split", "t", "--out", "o", "--fraction", "train"], standalone_mode=False)
