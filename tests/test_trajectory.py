import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldloom.errors import DataError
from worldloom.trajectory import BadLine, EnvRef, Step, TaskRef, Trajectory, read, scan, write

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
EXTRA = st.dictionaries(st.sampled_from(["x_note", "x_trace", "x_é"]), ANY_JSON, max_size=2)


def record(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A JSON object of the schema with unknown keys beside the known ones."""
    known = st.fixed_dictionaries(required, optional=optional)
    return st.tuples(known, EXTRA).map(lambda both: {**both[1], **both[0]})


OPTIONS = st.dictionaries(TEXT, ANY_JSON, max_size=2)
STEP = record(
    {"action": TEXT, "observation": TEXT},
    {
        "thought": TEXT,
        "reward": st.floats(allow_nan=False, allow_infinity=False),
        "terminal": st.sampled_from(["success", "failure", "truncated"]),
        "admissible_actions": st.lists(TEXT, max_size=3),
        "changed": st.booleans(),
        "refused": st.booleans(),
    },
)
ROW = record(
    {
        "schema": st.just("worldloom/1"),
        "env": record({"name": TEXT, "options": OPTIONS}, {"version": TEXT}),
        "task": record({"id": TEXT}, {"split": TEXT, "seed": st.integers(-9, 9), "instruction": TEXT}),
        "initial_observation": TEXT,
        "steps": st.lists(STEP, max_size=3),
    },
    {
        "initial_context": TEXT,
        "agent": record({"name": TEXT, "params": OPTIONS}, {}),
        "error": record({"kind": TEXT, "message": TEXT}, {}),
    },
)


def episode(number: int = 1, **changes: Any) -> Trajectory:
    step = Step(action="look", observation="A room.", terminal="success")
    return Trajectory(
        **{"env": EnvRef(name="e"), "task": TaskRef(id=f"t{number}"), "initial_observation": "Hi", "steps": [step]},
        **changes,
    )


@given(ROW)
def test_every_known_and_unknown_field_survives_a_round_trip(row: dict[str, Any]) -> None:
    line = Trajectory.from_json(json.dumps(row)).to_json()
    assert "\n" not in line
    assert json.loads(line) == row


@given(st.lists(ROW, max_size=4))
def test_files_give_back_what_was_written(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> None:
    path = tmp_path_factory.mktemp("rows") / "t.jsonl"
    told = [Trajectory.from_json(json.dumps(row)) for row in rows]
    assert write(path, told) == len(rows)
    assert read(path, strict=True) == told


def test_absent_values_are_left_out_and_the_schema_is_said() -> None:
    assert json.loads(episode().to_json()) == {
        "schema": "worldloom/1",
        "env": {"name": "e", "options": {}},
        "task": {"id": "t1"},
        "initial_observation": "Hi",
        "steps": [{"action": "look", "observation": "A room.", "terminal": "success"}],
    }


GOOD = episode().to_json()
BAD = {
    "not JSON": (b"{nonsense", "JSON"),
    "truncated": (GOOD[:-20].encode(), "JSON"),
    "no task": (GOOD.replace('"task"', '"tsak"').encode(), "task: Field required"),
    "a wrong terminal": (GOOD.replace('"success"', '"won"').encode(), "steps.0.terminal"),
    "an action that is no text": (GOOD.replace('"look"', "3").encode(), "steps.0.action"),
    "another schema": (GOOD.replace("worldloom/1", "worldloom/2").encode(), "schema"),
    "another kind of JSON": (b"[1, 2]", "object"),
    "not UTF-8": (b'{"schema": "\xff"}', "JSON|UTF-8|utf-8"),
}


@pytest.mark.parametrize(("line", "reason"), BAD.values(), ids=BAD.keys())
def test_a_bad_line_is_named_by_file_and_number_and_the_others_are_read(
    tmp_path: Path, line: bytes, reason: str
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"\n".join([GOOD.encode(), b"", line, episode(2).to_json().encode()]) + b"\n")
    first, bad, last = scan(path)
    assert (first, last) == (episode(), episode(2))
    assert isinstance(bad, BadLine) and (bad.path, bad.line) == (path, 3)
    with pytest.warns(UserWarning, match=rf"{path}:3: .*({reason})"):
        assert read(path) == [episode(), episode(2)]
    with pytest.raises(DataError, match=rf"{path}:3: .*({reason})") as caught:
        read(path, strict=True)
    assert (caught.value.path, caught.value.line) == (path, 3)


def test_a_file_cut_off_in_its_last_line_gives_what_was_whole(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write(path, [episode(n) for n in range(3)])
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.warns(UserWarning, match=r"t\.jsonl:3: "):
        assert [t.task.id for t in read(path)] == ["t0", "t1"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.jsonl: cannot be read: No such file"):
        read(tmp_path / "none.jsonl")


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "t.jsonl"
    write(path, [episode(1)])

    def broken() -> Iterator[Trajectory]:
        yield episode(2)
        raise RuntimeError("the source dried up")

    with pytest.raises(RuntimeError):
        write(path, broken())
    assert read(path) == [episode(1)]


def test_line_separators_inside_texts_do_not_split_a_line(tmp_path: Path) -> None:
    odd = episode(initial_context="a\u2028b\x85c\rd\x0b\n")
    write(tmp_path / "t.jsonl", [odd])
    assert read(tmp_path / "t.jsonl", strict=True) == [odd]


@pytest.mark.parametrize(
    ("steps", "error", "expected"),
    [
        ([], None, None),
        ([Step(action="a", observation="b")], None, None),
        ([Step(action="a", observation="b", terminal="truncated")], None, "truncated"),
        ([Step(action="a", observation="b", terminal="failure")], None, "failure"),
        ([Step(action="a", observation="b", terminal="success")], {"kind": "E", "message": "m"}, "error"),
    ],
)
def test_outcomes(steps: list[Step], error: dict[str, str] | None, expected: str | None) -> None:
    row = Trajectory(env=EnvRef(name="e"), task=TaskRef(id="1"), initial_observation="", steps=steps, error=error)
    assert row.outcome == expected
    assert row.actions == [step.action for step in steps]


STEPS = [  # what the environment tells, what was admissible after it, and what that makes of the step
    ({"changed": True, "refused": False}, ["go"], "state_changing"),
    ({"changed": True, "refused": False}, ["go"], "state_changing"),  # though the same can be done as before
    ({"changed": False, "refused": False}, ["stay"], "no_change"),  # though it was not listed, and other things are now
    ({"changed": False, "refused": True}, ["go"], "invalid"),
    ({"refused": False}, ["go"], "no_change"),  # what is not told, the admissible actions tell
    ({"refused": False}, None, "state_changing"),
    ({"refused": False}, None, None),
    ({"refused": True}, None, "invalid"),
    ({}, ["go"], None),
    ({}, ["stay"], "state_changing"),
    ({}, ["stay"], "invalid"),
    ({"not_recorded": True}, ["stay"], None),
]


def test_what_an_action_did() -> None:
    steps = [Step(action="go", observation="o", admissible_actions=listed, **told) for told, listed, _ in STEPS]
    row = Trajectory(env=EnvRef(name="e"), task=TaskRef(id="1"), initial_observation="", steps=steps)
    assert [row.effect(number) for number in range(len(steps))] == [effect for _, _, effect in STEPS]


def test_a_file_from_before_environments_told_what_an_action_did() -> None:
    steps = (
        ', "steps": ['
        + ", ".join(
            f'{{"action": "{action}", "observation": "o", "admissible_actions": ["go", "{more}"]}}'
            for action, more in (("go", "a"), ("go", "a"), ("go", "b"), ("fly", "b"))
        )
        + "]}"
    )
    old = Trajectory.from_json(
        '{"schema": "worldloom/1", "env": {"name": "e"}, "task": {"id": "1"}, "initial_observation": "x"' + steps
    )
    assert [old.effect(number) for number in range(4)] == [None, "no_change", "state_changing", "invalid"]
    assert "changed" not in old.to_json() and "refused" not in old.to_json()


def test_half_a_surrogate_pair_survives_and_a_reward_is_a_number(tmp_path: Path) -> None:
    step = Step(action="say \udfff", observation="\ud800")
    told = Trajectory(env=EnvRef(name="e"), task=TaskRef(id="t"), initial_observation="x", steps=[step])
    write(tmp_path / "t.jsonl", [told])
    assert b"\\ud800" in (tmp_path / "t.jsonl").read_bytes()
    assert read(tmp_path / "t.jsonl", strict=True) == [told]
    line = told.to_json().replace('"\ud800"', '"", "reward": NaN')
    with pytest.raises(DataError, match=r"steps\.0\.reward: Input should be a finite number"):
        Trajectory.from_json(line)
