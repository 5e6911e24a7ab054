"""Each thing that can be wrong is told at its line, and nothing else is."""

import json
from pathlib import Path
from typing import Any

import pytest

from worldloom.cli import app
from worldloom.errors import DataError
from worldloom.lint.between import shingles
from worldloom.lint.episode import Window
from worldloom.lint.problems import RULES
from worldloom.lint.run import lint, model_window, summary
from worldloom.redact.rules import Rules
from worldloom.trajectory import EnvRef, Failure, Step, TaskRef, Trajectory, write

WORDS = [f"word{n}" for n in range(60)]


def episode(task: str, *texts: str, split: str | None = None, context: str | None = None, **more: Any) -> Trajectory:
    steps = [Step(action=f"do {text}", observation=text) for text in texts or (f"Room {task}.",)]
    given = {"initial_observation": f"Start of {task}.", "steps": steps, "initial_context": context, **more}
    return Trajectory(env=EnvRef(name="e"), task=TaskRef(id=task, split=split), **given)


def told(*paths: Path, **settings: Any) -> list[tuple[int, str]]:
    return [(problem.line, problem.rule) for problem in lint(paths, **{"near": None, **settings})]


def rows(path: Path, *trajectories: Trajectory) -> Path:
    write(path, trajectories)
    return path


def test_a_sound_file_has_no_problem(tmp_path: Path) -> None:
    path = rows(tmp_path / "t.jsonl", episode("1"), episode("2", "A", "B"))
    assert told(path, rules=Rules(), near=0.9, window=Window(lambda t: len(t.steps), 2, "m")) == []


def test_what_is_wrong_with_one_episode(tmp_path: Path) -> None:
    early = [Step(action="a", observation="b", terminal="success"), Step(action="c", observation="d")]
    path = rows(
        tmp_path / "t.jsonl",
        episode("early", steps=early),
        episode("as text", "Done. [SUCCESS]"),
        episode("inside", "It said [FAILURE] once", "so [FAILURE] on."),
        episode("none", steps=[]),
        episode("blank", steps=[Step(action=" ", observation="What?")]),
        episode("broken", error=Failure(kind="Timeout", message="60 s")),
        episode("secret", "password: Tulip_77", "mail ann@example.com"),
        episode("long", *"abc"),
    )
    found = told(path, rules=Rules(), window=Window(lambda t: 10 * len(t.steps), 20, "m"))
    assert found == [
        (1, "marker"), (2, "marker"), (3, "marker"), (3, "marker"), (4, "no-steps"), (5, "empty-action"), (6, "broken"),
        (7, "secret"), (8, "too-long"),
    ]  # fmt: skip
    assert set(RULES) >= {rule for _, rule in found}
    said = [problem.message for problem in lint([path], rules=Rules(), window=Window(lambda _: 25, 20, "m"))]
    assert "step 1 of 2 ends the task (success), and the episode goes on" in said
    assert "25 tokens, 5 more than the 20 of m" in said
    assert "2 EMAIL, 2 PASSWORD; `worldloom redact` replaces them" in said
    assert not any("Tulip" in text or "ann@" in text for text in said)


def test_rows_of_messages_are_linted_too_and_no_text_is_quoted(tmp_path: Path) -> None:
    act, answer = {"role": "user", "content": "Tulip_77"}, {"role": "assistant", "content": "Tulip_77"}
    lines = [
        json.dumps({"messages": [act, answer]}),
        json.dumps({"messages": [act, act, answer]}),
        json.dumps({"messages": [{"content": "Tulip_77"}]}),
        json.dumps({"messages": [act, {**answer, "content": "Tulip_77 [SUCCESS] [SUCCESS]"}]}),
        json.dumps({"messages": [act, {**answer, "content": "Yes [SUCCESS]"}, act, answer]}),
        '{"messages": [Tulip_77',
        '{"schema": "Tulip_77"}',
        "not JSON Tulip_77",
    ]
    path = tmp_path / "m.jsonl"
    path.write_text("\n".join(lines) + "\n")
    found = list(lint([path], near=None))
    assert [(p.line, p.rule) for p in found] == [
        (2, "role-order"), (3, "role-order"), (4, "marker"), (5, "marker"), (6, "unreadable"), (7, "unreadable"),
        (8, "unreadable"),
    ]  # fmt: skip
    assert not any("Tulip" in problem.message for problem in found)
    assert "message 2 is from 'user'; 'assistant' was to follow" in found[0].message


def test_what_two_splits_share(tmp_path: Path) -> None:
    path = rows(
        tmp_path / "t.jsonl",
        episode("1", "x", split="train"),
        episode("1", "y", split="test"),
        episode("2", "z", split="train", context="Ann has 3.", initial_observation="Hi"),
        episode("3", "v", split="test", context="Ann has 3.", initial_observation="Hi"),
        episode("4", "w", split="train", initial_observation="Hello"),
        episode("5", "u", split="test", initial_observation="Hello"),
        episode("1", "x", split="train"),
        episode("6", "x", split="test", initial_observation="Start of 1."),
    )
    assert told(path) == [
        (2, "leak-task"), (2, "same-start"), (4, "leak-state"), (6, "same-start"), (7, "duplicate"),
        (8, "same-start"), (8, "leak-duplicate"),
    ]  # fmt: skip


def test_a_context_that_all_episodes_have_tells_no_state(tmp_path: Path) -> None:
    same = {"context": "You are an agent.", "initial_observation": "Hi"}
    path = rows(tmp_path / "t.jsonl", episode("1", "x", split="train", **same), episode("2", "y", split="test", **same))
    assert told(path) == [(2, "same-start")]


def test_what_a_shared_start_is_does_not_depend_on_the_order_of_files(tmp_path: Path) -> None:
    ann = {"context": "Ann has 3.", "initial_observation": "Hi"}
    train, test = rows(tmp_path / "train.jsonl", episode("1", "x", **ann)), tmp_path / "test.jsonl"
    rows(test, episode("2", "y", **ann), episode("3", "z", context="Bob has 1.", initial_observation="Hi"))
    assert told(train, test) == told(test, train) == [(1, "leak-state")]


def test_the_file_is_the_split_where_no_episode_says_one(tmp_path: Path) -> None:
    train, test = rows(tmp_path / "train.jsonl", episode("1", "a")), rows(tmp_path / "test.jsonl", episode("1", "b"))
    assert told(train, test) == [(1, "leak-task"), (1, "same-start")]


def test_near_duplicates_are_told_with_their_similarity(tmp_path: Path) -> None:
    whole, changed = " ".join(WORDS), " ".join([*WORDS[:59], "other"])
    path = rows(
        tmp_path / "t.jsonl",
        episode("1", whole, split="train", steps=[Step(action="go", observation=whole)]),
        episode("2", split="train", steps=[Step(action="go", observation=changed)]),
        episode("3", split="test", steps=[Step(action="go", observation=changed + " end")]),
        episode("4", split="test", steps=[Step(action="go", observation=" ".join(reversed(WORDS)))]),
    )
    found = list(lint([path], near=0.8))
    assert [(p.line, p.rule) for p in found] == [(2, "near-duplicate"), (3, "leak-near-duplicate")]
    assert "the same as t.jsonl:1 (train)" in found[0].message


def test_shingles_are_five_words_long() -> None:
    row = episode("1", steps=[Step(action="a b", observation="c d"), Step(action="e", observation="f")])
    assert shingles(row) == {b"a b c d e", b"b c d e f"}
    assert shingles(episode("1", steps=[Step(action="a", observation="b")])) == {b"a b"}


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        list(lint([tmp_path / "none.jsonl"]))


def test_a_summary_counts_by_weight_and_rule(tmp_path: Path) -> None:
    found = summary(lint([rows(tmp_path / "t.jsonl", episode("1", "[SUCCESS]"), episode("2", steps=[]))]))
    assert (found["errors"], found["warnings"]) == (1, 1)
    assert found["rules"] == {"marker": 1, "no-steps": 1}
    assert found["problems"][1] == {
        "file": str(tmp_path / "t.jsonl"), "line": 2, "weight": "warning", "rule": "no-steps", "message": "no step",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code"), [([], 0), (["--strict"], 1), (["--json"], 0), (["--json", "--strict"], 1)]
)
def test_warnings_fail_only_a_strict_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int
) -> None:
    path = rows(tmp_path / "t.jsonl", episode("1", steps=[]))
    assert (app(["lint", str(path), *arguments], standalone_mode=False) or 0) == code
    out = capsys.readouterr().out
    if "--json" in arguments:
        assert json.loads(out)["rules"] == {"no-steps": 1}
    else:
        assert out == f"{path}:1: warning: no-steps: no step\n"


def test_errors_fail_a_check(tmp_path: Path) -> None:
    path = rows(tmp_path / "t.jsonl", episode("1", "mail ann@example.com"))
    assert app(["lint", str(path)], standalone_mode=False) == 1
    assert not app(["lint", str(path), "--no-secrets"], standalone_mode=False)


@pytest.mark.model
def test_lengths_are_exact_in_the_model_s_own_tokens(smollm2: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    row = episode("1", "You see a lamp.")
    window = model_window(str(smollm2), 10)
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    text = (
        "<|im_start|>system\nStart of 1.<|im_end|>\n<|im_start|>user\ndo You see a lamp.<|im_end|>\n"
        "<|im_start|>assistant\nYou see a lamp.<|im_end|>"
    )
    n = len(tokenizer(text, add_special_tokens=False)["input_ids"])
    assert window.count(row) == n
    assert told(rows(tmp_path / "t.jsonl", row), window=window) == [(1, "too-long")]
    assert model_window(str(smollm2)).tokens == 8192
