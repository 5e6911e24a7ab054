"""A small HTTP server of the OpenAI kind whose every byte is known beforehand: what a proxy is tested and timed with.

    python -m benchmarks.upstream    # prints its port, and serves until it is ended

What a request gets is said by its JSON body: ``tag`` is repeated in the answer, ``pieces`` and ``pause`` are the
number of a stream's events and the seconds before each. ``/v1/echo`` tells the request as it came.
"""

import asyncio
import contextlib
import gzip
import json
from collections.abc import Iterator
from typing import Any

REFUSED = b'{"error": {"message": "slow down, \xe2\x9d\x84", "type": "rate_limit", "param": null, "code": "429"}}'


def events(tag: str, pieces: int, stated_end: bool = True) -> Iterator[bytes]:
    """The events of a chat completion that says ``tag`` and numbers, one a piece."""
    for number in range(pieces):
        delta = {"role": "assistant", "content": tag} if number == 0 else {"content": f" {number} \u2603"}
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        yield _event({"id": tag, "object": "chat.completion.chunk", "choices": [choice]})
    ending = {"index": 0, "delta": {}, "finish_reason": "stop"}
    yield _event({"id": tag, "object": "chat.completion.chunk", "choices": [ending]})
    if stated_end:
        yield b"data: [DONE]\n\n"


def words(tag: str, pieces: int) -> str:
    """What these events add up to."""
    return tag + "".join(f" {number} \u2603" for number in range(1, pieces))


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


def completion(said: dict[str, Any], finish: str = "stop") -> bytes:
    """A chat completion with this message."""
    choice = {"index": 0, "message": {"role": "assistant", **said}, "finish_reason": finish}
    return json.dumps({"id": "c1", "object": "chat.completion", "choices": [choice]}, indent=2).encode()


class Upstream:
    """The server; ``address`` once it is started."""

    def __init__(self) -> None:
        self.address = ""
        self.cut_off = 0  # answers that a client did not wait for
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._one(reader, writer):
                await writer.drain()
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether the connection goes on."""
        raw = await reader.readuntil(b"\r\n\r\n")
        first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
        headers = [line.split(": ", 1) for line in lines]
        size = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
        body = await reader.readexactly(size)
        path = first.split(" ")[1].partition("?")[0]
        asked = json.loads(body) if path.startswith("/v1/") and path != "/v1/echo" and body else {}
        return await getattr(self, path.strip("/").replace("/", "_").removeprefix("v1_"), self._nothing)(
            writer, asked, [first, headers, body.decode("latin-1")]
        )

    async def _nothing(self, writer: asyncio.StreamWriter, asked: Any, request: Any) -> bool:
        return self._whole(writer, b'{"error": {"message": "there is no such path"}}', "404 Not Found")

    async def echo(self, writer: asyncio.StreamWriter, asked: Any, request: Any) -> bool:
        more = ("set-cookie: a=1", "set-cookie: b=2", "x-odd: \xe9", "server: upstream/1", "date: yesterday")
        return self._whole(writer, json.dumps(request).encode(), more=more)

    async def models(self, writer: asyncio.StreamWriter, asked: Any, request: Any) -> bool:
        return self._whole(writer, b'{"object":"list","data":[{"id":"m","object":"model"}]}')

    async def busy(self, writer: asyncio.StreamWriter, asked: Any, request: Any) -> bool:
        return self._whole(writer, REFUSED, "429 Too Many Requests", more=("retry-after-ms: 10",))

    async def picture(self, writer: asyncio.StreamWriter, asked: Any, request: Any) -> bool:
        return self._whole(writer, bytes(range(256)) * 10, kind="image/png")

    async def zipped(self, writer: asyncio.StreamWriter, asked: Any, request: Any) -> bool:
        whole = gzip.compress(b"".join(events(asked["tag"], asked["pieces"])), mtime=0)
        self._head(writer, "text/event-stream", ("content-encoding: gzip",))
        for start in range(0, len(whole), 37):
            _chunk(writer, whole[start : start + 37])
        _chunk(writer, b"")
        return True

    async def responses(self, writer: asyncio.StreamWriter, asked: Any, request: Any) -> bool:
        item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": asked["tag"]}]}
        response = {"id": f"resp_{asked['tag']}", "object": "response", "status": "completed", "output": [item]}
        self._head(writer, "text/event-stream")
        for kind in ("response.created", "response.output_text.delta", "response.completed"):
            data = {"type": kind, "delta": asked["tag"]} if "delta" in kind else {"type": kind, "response": response}
            _chunk(writer, b"event: " + kind.encode() + b"\n" + _event(data))
        _chunk(writer, b"")
        return True

    async def breaks(self, writer: asyncio.StreamWriter, asked: Any, request: Any) -> bool:
        """A stream (with or without its stated end) that the connection ends in, or nothing at all."""
        if asked["pieces"]:
            self._head(writer, "text/event-stream")
            for event in events(asked["tag"], asked["pieces"], asked["stated_end"]):
                _chunk(writer, event)
            await writer.drain()
        return False

    async def chat_completions(self, writer: asyncio.StreamWriter, asked: Any, request: Any) -> bool:
        if not asked.get("stream"):
            reply = asked.get("reply") or {"content": asked.get("tag", "")}
            return self._whole(writer, completion(reply), chunked=asked.get("chunked", False))
        self._head(writer, "text/event-stream; charset=utf-8")
        try:
            for event in events(asked["tag"], asked["pieces"]):
                await asyncio.sleep(asked.get("pause", 0))
                _chunk(writer, event)
                await writer.drain()
        except ConnectionError:
            self.cut_off += 1
            raise
        _chunk(writer, b"")
        return True

    def _whole(
        self, writer: asyncio.StreamWriter, body: bytes, status: str = "200 OK", *, kind: str = "application/json",
        more: tuple[str, ...] = (), chunked: bool = False,
    ) -> bool:  # fmt: skip
        if chunked:
            self._head(writer, kind, more)
            for start in range(0, len(body), 20):
                _chunk(writer, body[start : start + 20])
            _chunk(writer, b"")
        else:
            head = "\r\n".join((f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}", *more))
            writer.write(head.encode("latin-1") + b"\r\n\r\n" + body)
        return True

    def _head(self, writer: asyncio.StreamWriter, kind: str, more: tuple[str, ...] = ()) -> None:
        lines = ("HTTP/1.1 200 OK", f"content-type: {kind}", "transfer-encoding: chunked", *more)
        writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")


def _chunk(writer: asyncio.StreamWriter, piece: bytes) -> None:
    writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")


async def main() -> None:
    upstream = Upstream()
    await upstream.start()
    print(upstream.address, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
