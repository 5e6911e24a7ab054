"""The recording proxy as a process: what goes through it is unchanged, and what went through is on disk."""

import asyncio
import gzip
import hashlib
import itertools
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from benchmarks.peers import free_port
from benchmarks.recording_proxy import Heard, Proxy, killed_and_restarted, talk, verified
from benchmarks.upstream import REFUSED, Upstream, completion, events, words
from tests.recording.running import stored, upstream

MAIN = [sys.executable, "-c", "from worldloom.cli import main; main()"]
KEY = "sk-test-0123456789abcdef"


@pytest.fixture(scope="module")
def server() -> Iterator[Upstream]:
    with upstream() as found:
        yield found


@pytest.fixture(scope="module")
def proxy(server: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with Proxy(server.address, tmp_path_factory.mktemp("proxy") / "logs" / "exchanges.jsonl") as found:
        yield found


@pytest.fixture
def client(proxy: Proxy) -> Iterator[httpx2.Client]:
    headers = {"authorization": f"Bearer {KEY}", "x-worldloom-episode": "e"}
    with httpx2.Client(base_url=proxy.base_url, headers=headers, trust_env=False, timeout=60) as found:
        yield found


def raw(client: httpx2.Client, method: str, path: str, **request: Any) -> tuple[int, bytes]:
    """Status and body, the body as it came over the wire."""
    with client.stream(method, path, **request) as response:
        return response.status_code, b"".join(response.iter_raw())


def test_a_request_arrives_as_it_was_sent(proxy: Proxy, server: Upstream) -> None:
    head = (
        "POST /v1/echo?q=a%2Fb&key=hush-hush-hush HTTP/1.1\r\nHost: model.example\r\n"
        f"Authorization: Bearer {KEY}\r\nX-Worldloom-Task: t1\r\nX-Twice: 1\r\nX-Twice: 2\r\n"
        "Accept-Encoding: br;q=1.0, gzip;q=0.8, zstd\r\nConnection: close, X-Mine\r\nX-Mine: for this hop\r\n"
        "Content-Type: application/json\r\nContent-Length: 13\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", proxy.port)) as connection:
        connection.sendall(head.encode() + b'{"a": "\xc3\xa9" }\n')
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    told, _, body = answer.partition(b"\r\n\r\n")
    first, headers, sent = json.loads(body)
    assert first == "POST /v1/echo?q=a%2Fb&key=hush-hush-hush HTTP/1.1"
    assert sent.encode("latin-1") == b'{"a": "\xc3\xa9" }\n'
    assert sorted((name.lower(), value) for name, value in headers) == [
        ("accept-encoding", "gzip;q=0.8"),
        ("authorization", f"Bearer {KEY}"),
        ("content-length", "13"),
        ("content-type", "application/json"),
        ("host", server.address.removeprefix("http://")),
        ("x-twice", "1"),
        ("x-twice", "2"),
    ]
    lines = told.decode("latin-1").split("\r\n")
    assert lines[0] == "HTTP/1.1 200 OK"
    assert {"set-cookie: a=1", "set-cookie: b=2", "x-odd: \xe9", "server: upstream/1", "date: yesterday"} <= {*lines}
    (line,) = [one for one in stored(proxy.out) if one["request"]["path"] == "/v1/echo"]
    assert line["labels"] == {"task": "t1"}
    assert line["request_body"] == '{"a": "é" }\n'
    assert "hush-hush-hush" not in json.dumps(line) and KEY not in json.dumps(line)  # not even where it was echoed
    assert "[hidden by worldloom]" in line["response_body"]


CASES: dict[str, tuple[str, str, dict[str, Any] | None, int, bytes]] = {
    "models": ("GET", "/models", None, 200, b'{"object":"list","data":[{"id":"m","object":"model"}]}'),
    "a completion": ("POST", "/chat/completions", {"tag": "one"}, 200, completion({"content": "one"})),
    "in chunks": ("POST", "/chat/completions", {"tag": "c", "chunked": True}, 200, completion({"content": "c"})),
    "a tool call": (
        "POST", "/chat/completions", {"reply": {"tool_calls": [{"id": "x", "function": {"arguments": "{}"}}]}}, 200,
        completion({"tool_calls": [{"id": "x", "function": {"arguments": "{}"}}]}),
    ),
    "a stream": (
        "POST", "/chat/completions", {"tag": "s", "stream": True, "pieces": 30}, 200, b"".join(events("s", 30))
    ),
    "an error": ("POST", "/busy", {}, 429, REFUSED),
    "no such path": ("DELETE", "/files/7", None, 404, b'{"error": {"message": "there is no such path"}}'),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_an_answer_comes_back_as_it_was_and_is_stored(client: httpx2.Client, proxy: Proxy, case: str) -> None:
    method, path, asked, status, expected = CASES[case]
    before = len(stored(proxy.out))
    assert raw(client, method, path, json=asked) == (status, expected)
    (line,) = stored(proxy.out)[before:]
    assert line["schema"] == "worldloom-exchange/1"
    assert line["request"] | {"headers": {}} == {"method": method, "path": f"/v1{path}", "headers": {}}
    assert json.loads(line["request_body"] or "null") == asked
    assert (line["response"]["status"], line["response_body"]) == (status, expected.decode())
    assert line["labels"] == {"episode": "e"}
    assert 0 <= line["seconds_to_first_byte"] <= line["seconds"]
    assert "error" not in line


def test_a_zipped_stream_passes_zipped_and_is_stored_readable(client: httpx2.Client, proxy: Proxy) -> None:
    _, body = raw(client, "POST", "/zipped", json={"tag": "z", "pieces": 400})
    assert gzip.decompress(body) == b"".join(events("z", 400))
    assert stored(proxy.out)[-1]["response_body"].encode() == b"".join(events("z", 400))


def test_of_what_is_no_text_the_size_and_hash_are_stored(client: httpx2.Client, proxy: Proxy) -> None:
    _, body = raw(client, "GET", "/picture")
    assert body == bytes(range(256)) * 10
    expected = {"bytes": 2560, "sha256": hashlib.sha256(body).hexdigest()}
    assert stored(proxy.out)[-1]["response_body"] == expected


def test_a_stream_is_passed_on_while_it_comes(client: httpx2.Client) -> None:
    asked = {"tag": "slow", "stream": True, "pieces": 4, "pause": 0.4}
    with client.stream("POST", "/chat/completions", json=asked) as response:
        times = [time.monotonic() for _ in response.iter_raw()]
    assert len(times) >= 5
    assert all(later - earlier > 0.1 for earlier, later in itertools.pairwise(times[:5]))


def test_the_responses_api(client: httpx2.Client, proxy: Proxy) -> None:
    _, body = raw(client, "POST", "/responses", json={"tag": "hello", "stream": True})
    assert b"event: response.completed\n" in body and body.endswith(b"\n\n")
    assert stored(proxy.out)[-1]["response_body"].encode() == body


@pytest.mark.parametrize("stated_end", [False, True])
def test_an_upstream_that_breaks_off_is_seen_and_stored(client: httpx2.Client, proxy: Proxy, stated_end: bool) -> None:
    received, asked = b"", {"tag": "b", "pieces": 3, "stated_end": stated_end}
    with (
        pytest.raises(httpx2.RemoteProtocolError),
        client.stream("POST", "/breaks", json=asked) as response,
    ):
        for piece in response.iter_raw():
            received += piece
    sent = b"".join(events("b", 3, stated_end))
    assert received == sent
    line = stored(proxy.out)[-1]
    assert (line["error"]["kind"], line["response_body"].encode()) == ("RemoteProtocolError", sent)


def test_an_upstream_that_says_nothing_is_a_502(client: httpx2.Client, proxy: Proxy) -> None:
    status, body = raw(client, "POST", "/breaks", json={"pieces": 0})
    assert (status, json.loads(body)["error"]["code"]) == (502, "upstream_unreachable")
    assert "response" not in stored(proxy.out)[-1]


def test_a_client_that_leaves_ends_the_call_and_is_stored(
    client: httpx2.Client, proxy: Proxy, server: Upstream
) -> None:
    before = len(stored(proxy.out))
    asked = {"tag": "left", "stream": True, "pieces": 500, "pause": 0.05}
    with client.stream("POST", "/chat/completions", json=asked) as response:
        next(response.iter_raw())
    deadline = time.monotonic() + 20
    while (len(stored(proxy.out)) == before or not server.cut_off) and time.monotonic() < deadline:
        time.sleep(0.05)
    (line,) = stored(proxy.out)[before:]
    assert line["error"] == {"kind": "Cancelled", "message": "the client left, or the proxy was stopped"}
    assert line["response_body"].startswith('data: {"id": "left"')
    assert server.cut_off == 1


def test_a_long_body_takes_no_memory(proxy: Proxy, client: httpx2.Client) -> None:
    process = psutil.Process(proxy.process.pid)
    raw(client, "GET", "/models")
    before = process.memory_info().rss
    text = "x" * (20 << 20)
    status, body = raw(client, "POST", "/chat/completions", json={"tag": text})
    assert (status, body) == (200, completion({"content": text}))
    line = stored(proxy.out)[-1]
    assert json.loads(line["response_body"])["choices"][0]["message"]["content"] == text
    assert process.memory_info().rss - before < 10 << 20


def test_an_openai_client_works_through_it(proxy: Proxy) -> None:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=proxy.base_url, api_key=KEY, max_retries=1) as client:
        assert [model.id for model in client.models.list()] == ["m"]
        chunks = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True,
            extra_body={"tag": "openai", "pieces": 5}, extra_headers={"X-Worldloom-Episode": "e7"},
        )  # fmt: skip
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == words("openai", 5)
        with pytest.raises(openai.RateLimitError, match="slow down"):
            client.post("/busy", body={}, cast_to=object)
    lines = stored(proxy.out)[-4:]
    assert lines[1]["labels"] == {"episode": "e7"}
    assert [line["response"]["status"] for line in lines] == [200, 200, 429, 429]
    counts = [line["request"]["headers"]["x-stainless-retry-count"] for line in lines]
    assert counts == ["0", "0", "0", "1"]
    assert KEY not in proxy.out.read_text()


def test_nobody_upstream_is_a_502_and_a_failed_exchange(tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}/v1"
    with Proxy(nobody, tmp_path / "exchanges.jsonl") as proxy:
        answer = httpx2.post(f"{proxy.base_url}/chat/completions", json={"n": 1}, trust_env=False, timeout=60)
        assert answer.status_code == 502
        error = answer.json()["error"]
        assert error["message"].startswith(f"worldloom record: there is no answer from {nobody}: ")
        assert (error["type"], error["code"]) == ("proxy_error", "upstream_unreachable")
        (line,) = stored(proxy.out)
        assert (line["error"]["kind"], line["request_body"]) == ("ConnectError", '{"n":1}')
        assert "there is no answer" not in proxy.stop()


def test_an_answer_that_cannot_be_stored_is_not_completed(server: Upstream, tmp_path: Path) -> None:
    out = tmp_path / "exchanges.jsonl"
    with (
        Proxy(server.address, out) as proxy,
        httpx2.Client(base_url=proxy.base_url, trust_env=False, timeout=60) as client,
    ):
        out.unlink()
        out.mkdir()  # where nothing can be added
        status, body = raw(client, "POST", "/chat/completions", json={"tag": "one"})
        assert (status, json.loads(body)["error"]["code"]) == (500, "recording_failed")
        with pytest.raises(httpx2.RemoteProtocolError):
            raw(client, "POST", "/chat/completions", json={"tag": "two", "stream": True, "pieces": 3})
        out.rmdir()
        assert raw(client, "POST", "/chat/completions", json={"tag": "three"})[0] == 200
        assert [json.loads(line["request_body"])["tag"] for line in stored(out)] == ["three"]
        assert "an exchange is not recorded: [Errno 21] Is a directory" in proxy.stop()


def test_what_is_under_way_when_it_is_stopped_is_stored_as_cut_off(server: Upstream, tmp_path: Path) -> None:
    asked = {"tag": "long", "stream": True, "pieces": 2000, "pause": 0.05}
    with (
        Proxy(server.address, tmp_path / "exchanges.jsonl") as proxy,
        httpx2.Client(base_url=proxy.base_url, trust_env=False, timeout=60) as client,
        client.stream("POST", "/chat/completions", json=asked) as response,
    ):
        next(response.iter_raw())
        proxy.stop()
    (line,) = stored(proxy.out)
    assert line["error"]["kind"] == "Cancelled"
    assert line["response_body"].startswith('data: {"id": "long"')


def test_what_cannot_be_started_says_why(tmp_path: Path) -> None:
    def said(*arguments: str) -> str:
        return subprocess.run([*MAIN, "record", *arguments], capture_output=True, text=True, timeout=120).stderr

    out = str(tmp_path / "e.jsonl")
    assert "upstream is 'api.openai.com'; it must begin with http://" in said(
        "--upstream", "api.openai.com", "--out", out
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        told = said("--upstream", "http://127.0.0.1:9", "--out", out, "--port", port)
        assert f"error: cannot listen on 127.0.0.1:{port}: Address already in use; choose another --port" in told
    assert f"error: {tmp_path} cannot be written: Is a directory" in said(
        "--upstream", "http://127.0.0.1:9", "--out", str(tmp_path), "--port", "0"
    )


@pytest.mark.parametrize("killed", [False, True], ids=["undisturbed", "killed and restarted"])
def test_fifty_clients_stream_at_once(server: Upstream, tmp_path: Path, killed: bool) -> None:
    """The benchmark's crowds, until they have so many answers."""
    pieces, pause, heard = 8, 0.02, Heard()

    def have(answers: int) -> Callable[[], bool]:
        return lambda: len(heard.whole) >= answers

    async def played(proxy: Proxy) -> Proxy:
        if killed:
            return await killed_and_restarted(proxy, server.address, 50, have(75), have(150), pieces, pause, heard)
        await talk(proxy.base_url, 50, have(100), pieces, pause, heard)
        return proxy

    with Proxy(server.address, tmp_path / "exchanges.jsonl") as first, asyncio.run(played(first)) as last:
        assert last.process.poll() is None
    assert set(verified(first.out, heard.whole, pieces).values()) == {0}
    assert (heard.failed > 0) == killed
