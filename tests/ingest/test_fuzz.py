"""Whatever a log holds: an even account and no crash, in bounded memory."""

import copy
import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.ingest import samples as made
from worldloom.ingest.run import Settings, ingest
from worldloom.trajectory import read

LOGS: dict[str, list[Any]] = {
    "openai-chat": [made.OPENAI, made.OPENAI_MESSAGES],
    "openai-responses": [made.RESPONSES],
    "anthropic": [made.ANTHROPIC],
    "sharegpt": [made.SHAREGPT],
    "messages": [made.MESSAGES],
    "tau-bench": [made.TAU],
    "swe-agent": [made.SWE],
    "otel": [made.otlp_export(made.OTEL_SPANS)],
    "langsmith": [made.LANGSMITH],
    "toolbench": [made.TOOLBENCH],
    "table": made.TABLE,
    "calls": [
        {
            "request": {"messages": made.OPENAI_MESSAGES[:4]},
            "response": {"choices": [{"message": made.OPENAI_MESSAGES[4]}]},
        }
    ],
}
KEYS = st.sampled_from(["role", "type", "id", "x"])
PUT_IN = [b"\x00", b"\xff\xfe", b"\n", b"[" * 1000, b'"', b"{", "é".encode("utf-16"), b"\xed\xa0\x80"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
QUIET = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))


def check(content: bytes, name: str, **how: Any) -> None:
    """Ingest a file; the account is even, each loss is named, and what is written reads back."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / name, Path(folder) / "out"
        path.write_bytes(content)
        account = ingest([path], out, Settings(**how))
        assert account["unaccounted"] == 0
        assert len(read(out / "trajectories.jsonl", strict=True)) == account["episodes"]
        told = [json.loads(line) for line in (out / "skipped.jsonl").read_text("utf-8").splitlines()]
        assert sum(line["records"] for line in told if line["lost"]) == sum(account["skipped"].values())
        assert all(line["file"] == str(path) and line["reason"] and ("line" in line or "item" in line) for line in told)
        assert [p.name for p in out.iterdir() if p.name.endswith(".part")] == []


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all values within a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, each in inner for place in paths_of(each, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    value[path[0]] = replaced(value[path[0]], path[1:], new)
    return value


@QUIET
@given(st.data(), st.sampled_from(sorted(LOGS)))
def test_values_of_wrong_types(data: st.DataObject, name: str) -> None:
    rows = copy.deepcopy(LOGS[name])
    for _ in range(data.draw(st.integers(1, 3))):
        rows = replaced(rows, data.draw(st.sampled_from(paths_of(rows))), data.draw(JSON))
    rows = rows if isinstance(rows, list) else [rows]
    check("".join(json.dumps(row) + "\n" for row in rows).encode(), "log.jsonl", format=name)


@QUIET
@given(st.data(), st.sampled_from(sorted(LOGS)), st.sampled_from(["jsonl", "json", "jsonl.gz"]))
def test_bytes_that_are_cut_changed_or_put_in(data: st.DataObject, name: str, form: str) -> None:
    rows = LOGS[name]
    text = json.dumps(rows, indent=1) if form == "json" else "\n".join(map(json.dumps, rows))
    content = text.encode()
    content = gzip.compress(content) if form.endswith("gz") else content
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content)))
        new = data.draw(st.sampled_from(PUT_IN))
        drop = data.draw(st.sampled_from([0, 1, 50]))
        content = content[:at] + new + content[at + drop :]
    cut = data.draw(st.integers(0, len(content)))
    check(content[:cut] if data.draw(st.booleans()) else content, f"log.{form}")


@QUIET
@given(st.binary(max_size=300), st.sampled_from(["x.jsonl", "x.json", "x.csv", "x", "x.gz", "x.zst"]))
def test_any_bytes(content: bytes, name: str) -> None:
    check(content, name)


WORST: dict[str, Callable[[], bytes]] = {
    "one line of 50 MB": lambda: b'{"messages": [{"role": "user", "content": "' + b"x" * 50_000_000 + b'"}]}',
    "nested 1,000 deep": lambda: (b'{"a":' * 1_000) + b"1" + b"}" * 1_000,
    "nested without end": lambda: b"[\n" + b"[" * 3_000_000,
    "lists, lists": lambda: b"[" + b"[]," * 5_000_000 + b"[]]",
    "lists in one record": lambda: b"[\n[" + b"[]," * 5_000_000 + b"[]]]",
    "a gzip that swells": lambda: gzip.compress(b"x" * 100_000_000, 1),
}
MEASURE = """
import re, sys; from pathlib import Path; from worldloom.ingest.run import ingest
account = ingest([Path(sys.argv[1])], Path(sys.argv[2]))
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]  # ru_maxrss is the parent's, too
print(account["unaccounted"], account["episodes"], int(peak) // 1024)
"""


@pytest.mark.parametrize("name", WORST)
def test_the_memory_of_the_worst_files_is_bounded(name: str, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_bytes(WORST[name]())
    command = [sys.executable, "-c", MEASURE, str(path), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    unaccounted, episodes, megabytes = map(int, done.stdout.split())
    assert (unaccounted, episodes) == (0, 0)
    assert megabytes < 800, name
