"""Files as streams of records: compression, encodings, forms, limits, damage."""

import gzip
import json
from pathlib import Path

import pytest
from backports import zstd

from tests.ingest.samples import otlp_export, span
from worldloom.errors import ConfigError, DataError
from worldloom.ingest.records import Record, Skip, kind_of, records
from worldloom.ingest.source import BROKEN, opened

LIMIT = 10_000
ROWS = [{"a": 1, "b": "é\u0000"}, {"a": 2.5, "b": ["x", None]}]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)


def found(
    folder: Path, name: str, content: bytes, limit: int = LIMIT, encoding: str | None = None, table: bool = False
) -> list[Record | Skip]:
    path = folder / name
    path.write_bytes(content)
    with opened(path, encoding) as stream:
        kind = kind_of(stream.text, path, limit, table)
    with opened(path, encoding) as stream:
        return list(records(stream.text, path, kind, limit))


def values(items: list[Record | Skip]) -> list[object]:
    return [item.value for item in items if isinstance(item, Record)]


def reasons(items: list[Record | Skip]) -> list[tuple[int, str]]:
    return [(item.place, item.reason) for item in items if isinstance(item, Skip)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", LINES.encode()),
        ("a.jsonl.gz", gzip.compress(LINES.encode(), mtime=0)),
        ("a.jsonl.zst", zstd.compress(LINES.encode())),
        ("two-frames.zst", b"".join(zstd.compress(line.encode()) for line in LINES.splitlines(keepends=True))),
        ("wrong-name.txt", gzip.compress(LINES.encode(), mtime=0)),
        ("bom.jsonl", LINES.encode("utf-8-sig")),
        ("utf16.jsonl", LINES.encode("utf-16")),
        ("utf32.jsonl", LINES.encode("utf-32")),
        ("crlf.jsonl", LINES.replace("\n", "\r\n\r\n").encode()),
        ("no-last-break.json", LINES.strip().encode()),
        ("array.json", json.dumps(ROWS).encode()),
        ("pretty.json", json.dumps(ROWS, indent=2).encode()),
        ("blank-first.json", b"\n \r\n" + json.dumps(ROWS, indent=2).encode()),
        ("pretty.json.gz", gzip.compress(json.dumps(ROWS, indent=2).encode(), mtime=0)),
        ("documents.json", "".join(json.dumps(row, indent=2) + "\n" for row in ROWS).encode()),
        ("in-a-container.json", json.dumps({"runs": ROWS, "more": 1}, indent=1).encode()),
        ("in-a-container.jsonl", json.dumps({"runs": ROWS}).encode()),
    ],
)
def test_the_same_records_in_every_form(name: str, content: bytes, tmp_path: Path) -> None:
    items = found(tmp_path, name, content)
    assert (values(items), reasons(items)) == (ROWS, [])


def test_lines_of_lists_are_lines(tmp_path: Path) -> None:
    assert values(found(tmp_path, "a.json", b'[{"role": "user"}]\n[{"role": "ai"}]\n')) == [
        [{"role": "user"}],
        [{"role": "ai"}],
    ]


def test_an_encoding_can_be_named(tmp_path: Path) -> None:
    content = '{"a": "é"}\n'.encode("cp1252")
    assert values(found(tmp_path, "a.jsonl", content, encoding="cp1252")) == [{"a": "é"}]
    assert reasons(found(tmp_path, "a.jsonl", content)) == [(1, "is not JSON in UTF-8")]
    with pytest.raises(ConfigError, match="no encoding 'klingon'"):
        found(tmp_path, "a.jsonl", content, encoding="klingon")


def test_spans_are_the_records_of_otlp(tmp_path: Path) -> None:
    spans = [span("a", 1, {"x": 1}), span("b", 2, {})]
    odd = {"resourceSpans": [{"scopeSpans": [{"spans": spans}, 3]}, "x"]}
    items = found(tmp_path, "a.jsonl", json.dumps(odd).encode())
    assert values(items) == [*spans, 3, "x"]  # what has not the form is left for the format to refuse
    assert found(tmp_path, "b.jsonl", json.dumps(otlp_export([])).encode()) == [
        Skip(1, "holds no records", None, 1, lost=False)
    ]


def test_bad_lines_cost_only_themselves(tmp_path: Path) -> None:
    bad = [b'{"a": ', b'{"a": "\xff"}', b"\x00\x00", b'{"a": 1}\x00', b"[" * 1000 + b"]" * 1000, b'{"b": "\\ud800"}']
    items = found(tmp_path, "a.jsonl", b'{"a": 1}\n' + b"\n".join(bad) + b'\n{"a": 2}\n')
    assert values(items) == [{"a": 1}, {"a": 2}]
    assert reasons(items) == [(number, "is not JSON in UTF-8") for number in range(2, 8)]


def test_a_line_over_the_limit_is_passed_over(tmp_path: Path) -> None:
    long = json.dumps({"a": "x" * 3 * LIMIT}).encode()
    items = found(tmp_path, "a.jsonl", b'{"a": 1}\n' + long + b'\n{"a": 2}\n' + long)
    assert values(items) == [{"a": 1}, {"a": 2}]
    assert reasons(items) == [(2, "longer than the limit; see --max-mb"), (4, "longer than the limit; see --max-mb")]


def test_a_document_s_record_over_the_limit_ends_it(tmp_path: Path) -> None:
    limit = 200_000  # a document is read in larger pieces than lines are
    content = json.dumps([{"a": 1}, {"b": "x" * 1_000_000}, {"a": 2}], indent=1).encode()
    items = found(tmp_path, "a.json", content, limit)
    assert values(items) == [{"a": 1}]
    assert reasons(items) == [(2, "longer than the limit, and where it ends cannot be told; see --max-mb")]


@pytest.mark.parametrize("depth", [1_000, 300_000])
def test_a_document_nested_too_deeply_ends(depth: int, tmp_path: Path) -> None:
    items = found(tmp_path, "a.json", b'[\n{"a": 1},\n' + b"[" * depth + b"]" * depth + b"]", 1_000_000)
    assert values(items) == [{"a": 1}]
    assert [place for place, _ in reasons(items)] == [2]


def test_what_is_not_a_record_is_passed_over_however_long(tmp_path: Path) -> None:
    document = {"timestamp": 1, "environment_info": [["x"] * 50] * 2000, "simulations": [{"a": [1]}, 2], "z": [[]]}
    assert values(found(tmp_path, "a.json", json.dumps(document, indent=1).encode(), 10_000)) == [{"a": [1]}, 2]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cut.json", json.dumps(ROWS, indent=2).encode()[:-40]),
        ("cut.jsonl.gz", gzip.compress(LINES.encode(), mtime=0)[:-12]),
        ("cut.jsonl.zst", zstd.compress(LINES.encode())[:-6]),
        ("nul.json", b'[\n{"a": 1},\n\x00\x00\n]'),
        ("bytes.json", b'[\n{"a": 1},\n{"b": "\xff\xfe"}]'),
        ("cut-utf16.jsonl", LINES.encode("utf-16")[:-1]),
    ],
)
def test_damage_ends_a_file_with_a_reason(name: str, content: bytes, tmp_path: Path) -> None:
    try:
        items = found(tmp_path, name, content)
    except BROKEN:
        return  # so early that not even the form can be told; ``run.examine`` makes a skip of it
    assert isinstance(items[-1], Skip) and "from here on" in items[-1].reason


def test_csv_rows(tmp_path: Path) -> None:
    content = b'a,b\n1,"x\ny"\n2\n\xff,3\n"4",5\n'
    items = found(tmp_path, "a.csv", content)
    assert items == [
        Record(3, {"a": "1", "b": "x\ny"}),
        Skip(4, "has not as many fields as the header (2)", "1 fields"),
        Skip(5, "is not text in UTF-8", items[2].detail),  # type: ignore[union-attr]
        Record(6, {"a": "4", "b": "5"}),
    ]
    assert values(found(tmp_path, "a.tsv", b"a\tb\n1\t2\n")) == [{"a": "1", "b": "2"}]
    assert values(found(tmp_path, "a.txt", b"a,b\n1,2\n", table=True)) == [{"a": "1", "b": "2"}]


def test_a_csv_quote_that_is_never_closed_is_bounded(tmp_path: Path) -> None:
    items = found(tmp_path, "a.csv", b'a,b\n1,2\n3,"' + b"x\n" * LIMIT)
    assert values(items) == [{"a": "1", "b": "2"}]
    assert "from here on" in reasons(items)[-1][1]


@pytest.mark.parametrize(("content", "kind"), [(b"PK\x03\x04....", "a zip archive"), (b"PAR1....", "a Parquet file")])
def test_archives_are_named(content: bytes, kind: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"is {kind}: unpack it first"):
        found(tmp_path, "a.jsonl", content)
