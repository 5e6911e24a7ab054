"""What may pass before an answer is stored: never its end, and all else at once."""

import gzip
import itertools
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.upstream import events
from worldloom.recording.body import HIDDEN, IN_MEMORY, Body, without
from worldloom.recording.holdback import Holdback

STREAM = b"".join(events("t", 3))


def passed(holdback: Holdback, pieces: list[bytes]) -> list[bytes]:
    return [holdback.pass_on(piece, piece) for piece in pieces]


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_wherever_a_stream_is_cut_its_end_is_held_and_nothing_is_lost(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in itertools.pairwise(places)]
    holdback = Holdback(events=True, length=None)
    sent = b"".join(passed(holdback, pieces))
    assert sent + holdback.held == STREAM
    assert b"[DONE]" not in sent
    before = [piece for piece, end in zip(pieces, places[1:], strict=True) if end <= STREAM.index(b"data: [DONE]")]
    assert sent.startswith(b"".join(before))  # none waits for the end


def test_an_end_that_somebody_only_speaks_of_is_none() -> None:
    spoken = b'data: {"content": "say data: [DONE] and event: response.completed"}\n\n'
    long = b'data: {"content": "' + b"x" * 100
    holdback = Holdback(events=True, length=None)
    assert passed(holdback, [spoken, long, b'data: [DONE]"}\n\n']) == [spoken, long, b'data: [DONE]"}\n\n']
    assert holdback.held == b""


@pytest.mark.parametrize("name", ["response.completed", "response.failed", "response.incomplete", "message_stop"])
def test_events_that_end_a_stream(name: str) -> None:
    holdback = Holdback(events=True, length=None)
    assert passed(holdback, [b"event: other\r\ndata: 1\r\n\r\n", b"event: " + name.encode() + b"\r\n", b"data: 2"]) == [
        b"event: other\r\ndata: 1\r\n\r\n", b"", b"",
    ]  # fmt: skip
    assert holdback.held == b"event: " + name.encode() + b"\r\ndata: 2"


def test_of_an_answer_of_known_length_the_last_piece_and_of_others_the_newest_is_held() -> None:
    assert passed(Holdback(False, 6), [b"ab", b"cd", b"ef"]) == [b"ab", b"cd", b""]
    assert passed(Holdback(False, None), [b"ab", b"cd", b"ef"]) == [b"", b"ab", b"cd"]


TEXT = "a ☃ text, " * 5000


@pytest.mark.parametrize(
    ("encoding", "raw"),
    [
        ("identity", TEXT.encode()),
        ("gzip", gzip.compress(TEXT.encode(), mtime=0)),
        ("gzip", gzip.compress(TEXT[:100].encode(), mtime=0) + gzip.compress(TEXT[100:].encode(), mtime=0)),
        ("deflate", zlib.compress(TEXT.encode())),
    ],
    ids=["plain", "gzip", "two members", "deflate"],
)
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_a_body_is_read_however_it_comes(encoding: str, raw: bytes, step: int) -> None:
    body = Body({"content-type": "application/json", "content-encoding": encoding})
    said = b"".join(body.add(raw[start : start + step]) for start in range(0, len(raw), step))
    assert said.decode() == TEXT == "".join(body.texts())
    assert body.told["bytes"] == len(raw)
    body.close()


def test_what_is_not_in_its_encoding_or_no_text_is_measured_only() -> None:
    for headers in ({"content-encoding": "gzip"}, {"content-encoding": "br"}, {"content-type": "image/png"}):
        body = Body(headers)
        assert (body.add(b"\x00nonsense"), body.is_text, body.size) == (b"", False, 9)


def test_bytes_that_are_no_text_are_replaced() -> None:
    body = Body({})
    body.add(b"caf\xe9 \xe2\x98")
    body.add(b"\x83")
    assert "".join(body.texts()) == "caf\ufffd ☃"


def test_a_long_body_is_not_kept_in_memory() -> None:
    body, piece = Body({}), b"x" * 65536
    tracemalloc.start()
    for _ in range(400):
        body.add(piece)
    assert sum(map(len, body.texts())) == 400 * 65536
    assert tracemalloc.get_traced_memory()[1] < 8 * IN_MEMORY
    tracemalloc.stop()


@given(st.lists(st.integers(0, 80), max_size=10))
def test_a_secret_is_hidden_wherever_a_text_is_cut(cuts: list[int]) -> None:
    text = "the key sk-12345678, again sk-12345678sk-12345678, and a longer one: Bearer sk-12345678."
    places = [0, *sorted(cuts), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(places)]
    hidden = "".join(without(pieces, ["Bearer sk-12345678", "sk-12345678", "none"]))
    assert hidden == f"the key {HIDDEN}, again {HIDDEN}{HIDDEN}, and a longer one: {HIDDEN}."
