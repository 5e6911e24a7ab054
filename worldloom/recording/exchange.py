"""One request and its answer, as a line of JSON that is written in pieces, so that a long one needs no memory."""

import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl

from worldloom.recording.body import HIDDEN, SHORTEST_SECRET, Body, without
from worldloom.runs import now
from worldloom.trajectory import Failure

SCHEMA: Final = "worldloom-exchange/1"
LABEL: Final = "x-worldloom-"
CREDENTIALS: Final = re.compile(r"auth|key|token|secret|cookie|passw|credential|signature|\bsig\b", re.IGNORECASE)
STORED: Final = re.compile(
    r"content-(type|encoding)|user-agent|retry-after(-ms)?|x-request-id|openai-(model|version|processing-ms|beta)|"
    r"x-stainless-retry-count|accept"
)  # headers that are no secret and help to understand an exchange; no other is written


@dataclass
class Exchange:
    """A request, and what came of it so far.

    ``labels`` are the client's own ``X-Worldloom-...`` headers; ``error`` is set where no whole answer came.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    request: Body
    response: Body | None = None
    status: int | None = None
    response_headers: Mapping[str, str] = field(default_factory=dict)
    error: Failure | None = None
    seconds_to_first_byte: float | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    started: str = field(default_factory=lambda: now().isoformat(timespec="milliseconds"))
    clock: float = field(default_factory=time.monotonic)

    def since(self) -> float:
        """Seconds since it began."""
        return round(time.monotonic() - self.clock, 4)

    @property
    def labels(self) -> dict[str, str]:
        """What the client says of the exchange: its ``X-Worldloom-...`` headers, without that beginning."""
        return {k.removeprefix(LABEL): v for k, v in self.headers.items() if k.startswith(LABEL)}

    @property
    def secrets(self) -> Sequence[str]:
        """What the client proves itself with, in headers or the query; longest first."""
        said = [*self.headers.items(), *parse_qsl(self.query)]
        values = {value for name, value in said if CREDENTIALS.search(name)}
        values |= {part for value in values for part in re.split(r"[\s;,]+", value)}
        parts = values | {value.partition("=")[2] for value in values}
        return sorted((part for part in parts if len(part) >= SHORTEST_SECRET), key=len, reverse=True)

    def line(self) -> Iterator[bytes]:
        """The line, in pieces, its line break included."""
        secrets = self.secrets
        head = json.dumps(self._head(), ensure_ascii=False)
        for secret in secrets:
            head = head.replace(secret, HIDDEN)
        yield head[:-1].encode("utf-8", "replace")
        for name, body in (("request_body", self.request), ("response_body", self.response)):
            if body is None:
                continue
            if not body.is_text:
                yield f', "{name}": {json.dumps(body.told)}'.encode()
                continue
            yield f', "{name}": "'.encode()
            for text in without(body.texts(), secrets):
                yield json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "replace")
            yield b'"'
        yield b"}\n"

    def _head(self) -> dict[str, Any]:
        answer = {"status": self.status, "headers": _stored(self.response_headers)} if self.status else None
        head = {
            "schema": SCHEMA,
            "id": self.id,
            "started": self.started,
            "seconds": self.since(),
            "seconds_to_first_byte": self.seconds_to_first_byte,
            "labels": self.labels or None,
            "request": {"method": self.method, "path": self.path, "headers": _stored(self.headers)},
            "response": answer,
            "error": self.error.model_dump() if self.error else None,
        }
        return {key: value for key, value in head.items() if value is not None}

    def close(self) -> None:
        """Let go of the bodies."""
        for body in (self.request, self.response):
            if body is not None:
                body.close()


def _stored(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if STORED.fullmatch(name)}
