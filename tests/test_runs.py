import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from worldloom.errors import ConfigError, DataError
from worldloom.runs import Log, now, open_run, read_json, read_records, write_json

ROOT = Path(__file__).parents[1]


def test_a_torn_last_line_is_set_aside_and_the_log_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "run" / "records.jsonl"
    with Log(path) as log:
        log.append('{"n": 1}')
        log.append('{"n": 2}')
    with path.open("ab") as file:
        file.write(b'{"n": 3, "te')
    assert list(read_records(path)) == [{"n": 1}, {"n": 2}]  # the torn line is no record
    with Log(path) as log:
        log.append('{"n": "dr\u00ef"}')
    assert list(read_records(path)) == [{"n": 1}, {"n": 2}, {"n": "dr\u00ef"}]
    assert path.with_name("records.jsonl.torn").read_bytes() == b'{"n": 3, "te\n'


@pytest.mark.parametrize("content", [b"", b'{"n": 1}\n', b'{"n": 1}\n{"n": 2}\n'])
def test_a_whole_log_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(content)
    Log(path).close()
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_log_that_is_one_torn_line_becomes_empty(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(b'{"n"')
    with Log(path) as log:
        log.append('{"n": 1}')
    assert list(read_records(path)) == [{"n": 1}]


def test_no_log_has_no_records_and_a_broken_line_is_named(tmp_path: Path) -> None:
    assert list(read_records(tmp_path / "none.jsonl")) == []
    (tmp_path / "r.jsonl").write_bytes(b'{"n": 1}\n{"n": \n{"n": 3}\n')
    with pytest.raises(DataError, match=r"r\.jsonl:2: is not JSON .*; restore the file or start a new run"):
        list(read_records(tmp_path / "r.jsonl"))


CONFIG: dict[str, Any] = {"stage": "collect", "seed": 0, "agents": [{"name": "gold", "params": {"noise": 0.1}}]}


def test_a_run_goes_on_with_the_same_settings_and_refuses_others_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert open_run(folder, {**CONFIG, "shape": (1, 2)}) == folder
    before = (folder / "config.json").read_bytes()
    open_run(folder, {**CONFIG, "shape": [1, 2]})  # what JSON cannot tell apart is the same
    with pytest.raises(ConfigError) as caught:
        open_run(folder, {**CONFIG, "shape": [1, 2], "seed": 3, "tasks": 9})
    assert str(caught.value) == (
        f"{folder} holds a run with other settings (seed: 0 there, 3 now; tasks: None there, 9 now); "
        "choose another folder"
    )
    with pytest.raises(ConfigError, match=r"\(shape: \[1, 2\] there, None now\)"):
        open_run(folder, CONFIG)
    assert (folder / "config.json").read_bytes() == before


def test_processes_that_begin_a_run_together_do_not_trip_over_each_other(tmp_path: Path) -> None:
    """As the processes of ``accelerate launch`` do."""
    code = (
        "import sys, time; from pathlib import Path; from worldloom.runs import write_json\n"
        "time.sleep(max(0.0, float(sys.argv[2]) - time.time()))\n"
        "for n in range(100): write_json(Path(sys.argv[1]), {'n': list(range(200))})"
    )
    start = str(now().timestamp() + 0.7)
    path = tmp_path / "config.json"
    writers = [subprocess.Popen([sys.executable, "-c", code, path, start], cwd=ROOT) for _ in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert read_json(path) == {"n": list(range(200))}
    assert list(tmp_path.iterdir()) == [path]


def test_readers_never_see_half_a_file(tmp_path: Path) -> None:
    path, stop, seen = tmp_path / "m.json", threading.Event(), []
    write_json(path, list(range(2000)))

    def reader() -> None:
        while not stop.is_set():
            seen.append(len(json.loads(path.read_text())))

    thread = threading.Thread(target=reader)
    thread.start()
    for _ in range(30):
        write_json(path, list(range(2000)))
    stop.set()
    thread.join()
    assert set(seen) == {2000}


def test_what_is_no_json_is_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    with pytest.raises(DataError, match=r"m\.json: cannot be read: No such file"):
        read_json(path)
    path.write_text('{"a": 1,\n "b": }')
    with pytest.raises(DataError, match=r"m\.json:2: is not JSON"):
        read_json(path)


HOLDER = (
    "import sys; from pathlib import Path; from worldloom.runs import open_run\n"
    "open_run(Path(sys.argv[1]), {'n': 1}); print('open', flush=True); sys.stdin.read()"
)


def holder(folder: Path, **env: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, folder], cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True,
        env={**os.environ, **env},
    )  # fmt: skip


def test_a_run_is_one_processes_own_until_it_dies(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with holder(folder) as first:
        assert first.stdout.readline() == "open\n"
        with pytest.raises(ConfigError, match=f"another process is at work in {folder}; wait until it ends, or choose"):
            open_run(folder, {"n": 1})
        first.kill()
    open_run(folder, {"n": 1})
    open_run(folder, {"n": 1})  # a stage within a stage of the same process
    with holder(folder) as late:
        assert "another process is at work" in late.communicate(timeout=60)[1]
    with holder(folder, RANK="1") as launched:  # beside the main process of `accelerate launch`
        assert launched.communicate("", timeout=60)[0] == "open\n"


def test_a_file_is_no_folder_and_what_json_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(ConfigError, match="f is a file; give a folder for the run"):
        open_run(tmp_path / "f", CONFIG)
    with pytest.raises(ConfigError, match="where of a run cannot be written down"):
        open_run(tmp_path / "run", {"where": Path("x")})


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"[1]", "does not hold a run's settings"), (b"\xff{}", "is not JSON"), (b"[" * 100_000, "is not JSON")],
)
def test_damaged_settings_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(DataError, match=rf"config\.json: {message}"):
        open_run(tmp_path, CONFIG)


def test_half_a_surrogate_pair_is_written_as_json_has_it(tmp_path: Path) -> None:
    with Log(tmp_path / "r.jsonl") as log:
        log.append(json.dumps({"said": "\ud800!"}, ensure_ascii=False))
    write_json(tmp_path / "m.json", {"said": "\udc00"})
    assert (tmp_path / "r.jsonl").read_bytes() == b'{"said": "\\ud800!"}\n'
    assert list(read_records(tmp_path / "r.jsonl")) == [{"said": "\ud800!"}]
    assert read_json(tmp_path / "m.json") == {"said": "\udc00"}


def test_a_full_disk_names_the_file_and_keeps_what_was_whole(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: a write that meets it is cut, the next one refused."""
    code = (
        "import resource, sys; from pathlib import Path; from worldloom.runs import Log\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)); log = Log(Path(sys.argv[1]))\n"
        "log.append('1' * 40)\n"
        "try: log.append('2' * 40)\n"
        "except OSError as error: print(error.filename)"
    )
    path = tmp_path / "r.jsonl"
    done = subprocess.run([sys.executable, "-c", code, path], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == f"{path}\n"
    Log(path).close()
    assert path.read_text() == "1" * 40 + "\n"
    assert path.with_name("r.jsonl.torn").read_text() == "2" * 23 + "\n"
