"""Many writers, and processes that are killed: every episode becomes one whole line."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import worldloom
from worldloom.errors import DataError
from worldloom.recording.appending import append, write_whole
from worldloom.recording.journal import folder_of, recover
from worldloom.trajectory import read

ROOT = Path(__file__).parents[2]


def start(code: str, *arguments: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


MANY = """
import sys, threading, worldloom
recorder = worldloom.record(sys.argv[1], env="crowd", agent=sys.argv[2])
def talk(thread):
    for number in range(6):
        with recorder.episode(task=f"{sys.argv[2]}/{thread}/{number}") as episode:
            for turn in range(4):
                episode.step(f"{turn}", "x" * 20_000)
threads = [threading.Thread(target=talk, args=[n]) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_threads_of_several_processes_write_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    processes = [start(MANY, path, name) for name in "abc"]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    found = read(path, strict=True)
    assert sorted(t.task.id for t in found) == sorted(f"{p}/{t}/{n}" for p in "abc" for t in range(4) for n in range(6))
    assert {tuple(t.actions) for t in found} == {("0", "1", "2", "3")}
    assert list(folder_of(path).iterdir()) == []


KILLED = """
import sys, worldloom
from pathlib import Path
recorder = worldloom.record(sys.argv[1], env="shop", agent="bot")
with recorder.episode(task="whole") as episode:
    episode.step("look", "A shop.")
episode = recorder.episode(task="half", observation="Good morning.")
number = 0
while True:
    episode.step(f"count {number}", "n" * 500)
    print(number, flush=True)  # acknowledged
    number += 1
"""


def killed_after(path: Path, steps: int) -> int:
    """The number of the last step that a process acknowledged before ``kill -9``."""
    process = start(KILLED, path)
    for _ in range(steps):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().split()
    process.wait(10)
    process.stdout.close()
    return int(rest[-1]) if rest else steps - 1


def test_a_killed_process_loses_no_step_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    last = killed_after(path, 200)
    assert [t.task.id for t in read(path, strict=True)] == ["whole"]
    assert recover(path) == 1
    _, half = read(path, strict=True)
    assert (half.task.id, half.initial_observation, half.outcome) == ("half", "Good morning.", "error")
    assert (half.error.kind, half.env.name, half.agent.name) == ("Interrupted", "shop", "bot")
    assert len(half.steps) - (last + 1) in (0, 1)  # one more may have been written and not yet told
    assert half.actions == [f"count {n}" for n in range(len(half.steps))]
    assert recover(path) == 0
    assert list(folder_of(path).iterdir()) == []


def test_recording_again_recovers_what_was_killed_and_leaves_alone_what_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    with worldloom.record(path, task="mine") as mine:
        mine.step("look", "A room.")
        killed_after(path, 3)
        worldloom.record(path)
        assert [t.task.id for t in read(path, strict=True)] == ["whole", "half"]
        mine.step("wait", "Time passes.")
    assert [(t.task.id, len(t.steps)) for t in read(path, strict=True)][2:] == [("mine", 2)]


def test_a_kill_between_the_line_and_the_end_of_its_journal_gives_no_second_line(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    episode = worldloom.record(path, task="t").episode()
    episode.step("look", "A room.")
    (journal,) = folder_of(path).iterdir()
    kept = journal.read_bytes()
    episode.end("success")
    journal.write_bytes(kept + b'{"end": {"terminal": "success"}}\n')
    assert recover(path) == 0
    assert [t.outcome for t in read(path, strict=True)] == ["success"]
    assert not journal.exists()


@pytest.mark.parametrize("cut", [1, 40])
def test_the_step_in_flight_is_all_that_a_torn_journal_lacks(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "episodes.jsonl"
    episode = worldloom.record(path, task="t").episode()
    episode.step("one", "1")
    episode.step("two", "2" * 50)
    (journal,) = folder_of(path).iterdir()
    left = journal.read_bytes()[:-cut]
    episode.end()
    path.unlink()
    journal.write_bytes(left)
    assert recover(path) == 1
    (found,) = read(path, strict=True)
    assert (found.actions, found.error.kind) == (["one"], "Interrupted")


def test_a_broken_journal_is_named(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    folder_of(path).mkdir()
    (folder_of(path) / "x.jsonl").write_text('{"head": {}}\nnonsense\n{"step": {}}\n')
    with pytest.raises(DataError, match=r"x\.jsonl:2: is not JSON"):
        recover(path)


def test_a_fork_does_not_end_its_parents_episode(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    code = (
        "import os, sys, worldloom\n"
        "with worldloom.record(sys.argv[1], task='t') as episode:\n"
        "    episode.step('look', 'A room.')\n"
        "    if os.fork() == 0: sys.exit(0)\n"
        "    os.wait()\n"
        "    episode.step('wait', 'Time passes.', terminal='success')\n"
    )
    assert start(code, path).wait(30) == 0
    (found,) = read(path, strict=True)
    assert (found.actions, found.outcome) == (["look", "wait"], "success")


def test_lines_are_added_after_a_torn_one_was_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append(path, "one")
    with path.open("ab") as file:
        file.write(b"two, te")
    append(path, "three")
    assert path.read_text() == "one\nthree\n"
    assert path.with_name("lines.torn").read_text() == "two, te\n"
    assert {stat.st_mode & 0o777 for stat in (path.stat(), path.with_name("lines.torn").stat())} == {0o600}


def test_a_line_that_does_not_fit_on_the_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    code = (
        "import resource, signal, sys; from pathlib import Path; from worldloom.recording.appending import append\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "append(Path(sys.argv[1]), 'a' * 3000)\n"
        "try: append(Path(sys.argv[1]), 'b' * 3000)\n"
        "except OSError as error: print(error.errno)\n"
        "append(Path(sys.argv[1]), 'c' * 1000)\n"
    )
    process = start(code, path)
    assert process.communicate(timeout=30)[0].strip() == "27"  # EFBIG, which a full disk's ENOSPC resembles
    assert path.read_text() == "a" * 3000 + "\n" + "c" * 1000 + "\n"


def test_pieces_that_break_off_leave_nothing(tmp_path: Path) -> None:
    def pieces():
        yield b"half of a "
        raise ValueError("no more")

    file = os.open(tmp_path / "f", os.O_RDWR | os.O_APPEND | os.O_CREAT)
    write_whole(file, [b"whole\n"])
    with pytest.raises(ValueError, match="no more"):
        write_whole(file, pieces())
    os.close(file)
    assert (tmp_path / "f").read_bytes() == b"whole\n"


def test_appending_from_threads(tmp_path: Path) -> None:
    path, lines = tmp_path / "lines", [json.dumps({"n": n, "x": "y" * 5000}) for n in range(100)]
    threads = [
        threading.Thread(target=lambda part: [append(path, line) for line in part], args=[lines[n::4]])
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(path.read_text().splitlines()) == sorted(lines)
