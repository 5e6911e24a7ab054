"""The recording proxy: an OpenAI-compatible server's stand-in that passes everything on and stores each exchange.

What passes through is not changed: method, path, query, headers and body go up as they came, and status, headers and
body come back as they came, piece by piece. Three things differ, as they must. Headers that concern one connection
(``Connection``, ``Transfer-Encoding``, ``Host``, ...) are made anew. ``X-Worldloom-...`` headers are labels of the
recording and stay here. ``Accept-Encoding`` is narrowed to what can be read here (gzip, deflate).

An exchange is on disk before the last byte of its answer goes to the client (``Holdback`` says which that is), so that
after a kill every answer that a client has whole is in the file, once.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, MutableMapping
from tempfile import SpooledTemporaryFile
from typing import Any, Final

import httpx2

from worldloom.recording.body import BLOCK, IN_MEMORY, READABLE, Body
from worldloom.recording.exchange import LABEL, Exchange
from worldloom.recording.exchange_log import ExchangeLog
from worldloom.recording.holdback import Holdback
from worldloom.trajectory import Failure

logger = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
RawHeaders = list[tuple[bytes, bytes]]

CONNECT_S: Final = 10.0
IDLE_S: Final = 2.0  # shorter than servers keep an idle connection, so that none is lost under a request
OF_ONE_CONNECTION: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"te", b"trailer",
     b"transfer-encoding", b"upgrade", b"host", b"expect")
)  # fmt: skip


class BrokenOff(Exception):
    """The answer cannot be completed; the server closes the client's connection, so that the client sees it too."""


class RecordingProxy:
    """An ASGI application.

    Args:
        upstream: the server's address; whether it ends in ``/v1`` makes no difference to ``/v1/...`` paths.
        log: where exchanges are stored; whoever opened it closes it, after the server's end.
    """

    def __init__(self, upstream: str, log: ExchangeLog):
        self.upstream, self.log = httpx2.URL(upstream.rstrip("/")), log
        self.working: set[asyncio.Task[None]] = set()
        self.shown = f"{self.upstream.scheme}://{self.upstream.netloc.decode()}{self.upstream.path.rstrip('/')}"

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one connection's request, or the server's start and end."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=IDLE_S)
        timeout = httpx2.Timeout(None, connect=CONNECT_S)  # how long an answer may take is the client's to say
        async with httpx2.AsyncClient(limits=limits, timeout=timeout, follow_redirects=False) as self.client:
            await send({"type": "lifespan.startup.complete"})
            await receive()
            if self.working:  # cut off, and not yet stored
                await asyncio.wait(self.working)
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        """Work on a request until it is answered or the client is gone."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        with SpooledTemporaryFile(IN_MEMORY) as asked:
            exchange = Exchange(
                scope["method"], scope["path"], scope["query_string"].decode("latin-1"), headers, Body(headers)
            )
            if not await _read(receive, exchange.request, asked):
                return  # the client left before it had asked
            await self._while_wanted(Answer(self, scope, exchange, asked, send).give(), receive)

    async def _while_wanted(self, answer: Coroutine[Any, Any, None], receive: Receive) -> None:
        """Do the work, or stop it when the client is gone."""
        work, gone = asyncio.create_task(answer), asyncio.create_task(_gone(receive))
        self.working.add(work)
        work.add_done_callback(self.working.discard)
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            work.cancel()
            await asyncio.wait({work})
        if not work.cancelled():
            work.result()


class Answer:
    """One exchange on its way: asked upstream, passed on, stored."""

    def __init__(
        self,
        proxy: RecordingProxy,
        scope: Message,
        exchange: Exchange,
        asked: "SpooledTemporaryFile[bytes]",
        send: Send,
    ):
        self._proxy, self._scope, self._exchange, self._asked, self._send = proxy, scope, exchange, asked, send
        self._started, self._stored = False, False
        self._start: Message = {}

    async def give(self) -> None:
        """Do it all.

        Raises:
            BrokenOff: a part is sent and the rest will not come.
        """
        try:
            response = await self._proxy.client.send(self._request(), stream=True)
            async with contextlib.aclosing(response):
                rest = await self._relay(response)
            await self._store()
            await self._pass(rest, more=False)
        except httpx2.HTTPError as error:
            await self._fail(error)
        except OSError as error:
            logger.error("an exchange is not recorded: %s", error)
            await self._refuse(500, "recording_failed", f"the exchange cannot be recorded: {error.strerror}")
        except asyncio.CancelledError:
            await self._store(Failure(kind="Cancelled", message="the client left, or the proxy was stopped"))
            raise
        except Exception as error:
            logger.exception("an exchange broke off")
            await self._store(_failure(error))
            raise

    def _request(self) -> httpx2.Request:
        """What the client asked, for the server."""
        raw = [(name, value) for name, value in self._scope["headers"] if not name.lower().startswith(LABEL.encode())]
        headers = [(name, _readable(value) if name == b"accept-encoding" else value) for name, value in _lasting(raw)]
        size = self._exchange.request.size
        headers = [(name, value) for name, value in headers if name != b"content-length"]
        if size or any(name == b"content-length" for name, _ in raw):
            headers.append((b"content-length", str(size).encode()))
        target = _target(self._proxy.upstream, self._scope["raw_path"], self._scope["query_string"])
        return httpx2.Request(
            self._scope["method"], self._proxy.upstream, headers=headers, content=self._blocks() if size else None,
            extensions={"target": target},
        )  # fmt: skip

    async def _blocks(self) -> AsyncIterator[bytes]:
        self._asked.seek(0)
        while block := self._asked.read(BLOCK):
            yield block

    async def _relay(self, response: httpx2.Response) -> bytes:
        """Pass the answer on as it comes; what is held back of it is returned."""
        exchange = self._exchange
        exchange.status, exchange.response_headers = response.status_code, dict(response.headers)
        exchange.response = Body(exchange.response_headers)
        self._start = {
            "type": "http.response.start",
            "status": response.status_code,
            "headers": _lasting([(name.lower(), value) for name, value in response.headers.raw]),
        }
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if events := kind == "text/event-stream":
            await self._begin()
        length = response.headers.get("content-length", "")
        holdback = Holdback(events, int(length) if length.isdigit() else None)
        try:
            async for raw in response.aiter_raw():
                if exchange.seconds_to_first_byte is None:
                    exchange.seconds_to_first_byte = exchange.since()
                if now := holdback.pass_on(raw, exchange.response.add(raw)):
                    await self._pass(now)
        except httpx2.HTTPError as error:
            if self._started and holdback.held:  # which may be the end of an answer, so not before it is stored
                await self._store(_failure(error))
                await self._pass(holdback.held)
            raise
        return holdback.held

    async def _begin(self) -> None:
        if not self._started:
            self._started = True
            await self._send(self._start)

    async def _pass(self, raw: bytes, more: bool = True) -> None:
        await self._begin()
        await self._send({"type": "http.response.body", "body": raw, "more_body": more})

    async def _store(self, error: Failure | None = None) -> None:
        """Have the exchange stored; the first call counts."""
        if not self._stored:
            self._stored, self._exchange.error = True, error
            await self._proxy.log.add(self._exchange)

    async def _fail(self, error: httpx2.HTTPError) -> None:
        """The server is not there, or left in the midst of its answer."""
        failure = _failure(error)
        reason = failure.message
        logger.warning("%s: %s", self._proxy.shown, reason)
        try:
            await self._store(failure)
        except OSError as unwritten:
            reason = f"{reason}; and this could not be recorded: {unwritten.strerror}"
        came = "no whole answer came from" if self._exchange.status else "there is no answer from"
        await self._refuse(502, "upstream_unreachable", f"{came} {self._proxy.shown}: {reason}")

    async def _refuse(self, status: int, code: str, reason: str) -> None:
        """Answer with an error of OpenAI's shape, unless an answer has begun."""
        if self._started:
            raise BrokenOff(reason)
        told = {"message": f"worldloom record: {reason}", "type": "proxy_error", "param": None, "code": code}
        body = json.dumps({"error": told}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        self._start = {"type": "http.response.start", "status": status, "headers": headers}
        await self._pass(body, more=False)


def _failure(error: Exception) -> Failure:
    return Failure(kind=type(error).__name__, message=str(error) or type(error).__name__)


async def _read(receive: Receive, body: Body, whole: "SpooledTemporaryFile[bytes]") -> bool:
    """Read the request's body; False if the client left."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return False
        piece = message.get("body", b"")
        body.add(piece)
        whole.write(piece)
        more = message.get("more_body", False)
    return True


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _lasting(headers: RawHeaders) -> RawHeaders:
    """The headers that are meant for the other end, not for this connection."""
    named = {part.strip().lower() for name, value in headers if name == b"connection" for part in value.split(b",")}
    return [(name, value) for name, value in headers if name not in OF_ONE_CONNECTION | named]


def _readable(accepted: bytes) -> bytes:
    """An ``Accept-Encoding`` with what can be read here."""
    offers = [offer.strip() for offer in accepted.decode("latin-1").split(",")]
    kept = [offer for offer in offers if offer.partition(";")[0].strip().lower() in READABLE]
    return (", ".join(kept) or "identity").encode("latin-1")


def _target(upstream: httpx2.URL, raw_path: bytes, query: bytes) -> bytes:
    """Where upstream the request goes, byte for byte as the client wrote it."""
    base = upstream.raw_path.partition(b"?")[0].rstrip(b"/")
    path = raw_path.partition(b"?")[0]
    if base.endswith(b"/v1") and (path == b"/v1" or path.startswith(b"/v1/")):
        path = path.removeprefix(b"/v1")
    return base + path + (b"?" + query if query else b"")
