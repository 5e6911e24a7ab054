"""Servers on the loopback for tests: a real model behind ``transformers serve``, and recorded answers over HTTP."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import peers


class Served(NamedTuple):
    """A running ``transformers serve``; it leads a process group of its own."""

    base_url: str
    model: str
    pid: int

    def kill(self) -> None:
        """End it at once, as a crash would."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


@contextlib.contextmanager
def serve(folder: Path, log: Path) -> Iterator[Served]:
    """Serve a local model folder with no network; ready when yielded, ended (the whole group) afterwards."""
    port = peers.free_port()
    cache = log.parent / "empty-hub-cache"
    cache.mkdir(exist_ok=True)
    # Threads that spin while they wait make a forward pass twenty times slower on a machine with other work.
    env = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(cache), "OMP_WAIT_POLICY": "passive"}
    where = ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    with log.open("w") as out:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("transformers"), "serve", folder, *where],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )
    served = Served(f"http://127.0.0.1:{port}/v1", str(folder), process.pid)
    try:
        peers.wait_until_ready(f"http://127.0.0.1:{port}/health", process, log)
        yield served
    finally:
        peers.end_group(process)


class Answer(NamedTuple):
    """What to send back; ``trickle`` keeps the connection alive with blanks and never ends."""

    body: Any
    status: int = 200
    trickle: bool = False


class Recorded(NamedTuple):
    """A server that answers with recorded bodies, and the requests that it got: (method and path, headers, JSON)."""

    base_url: str
    requests: list[tuple[str, dict[str, str], Any]]

    @property
    def chats(self) -> list[Any]:
        """The bodies of the chat requests."""
        return [body for where, _, body in self.requests if where == "POST /v1/chat/completions"]


@contextlib.contextmanager
def recorded(answer: Callable[[str, Any], Answer]) -> Iterator[Recorded]:
    """Answer each request with ``answer(method and path, JSON body)``."""
    stopped = threading.Event()
    requests: list[tuple[str, dict[str, str], Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def do_GET(self) -> None:
            self._answer(None)

        def _answer(self, body: Any) -> None:
            where = f"{self.command} {self.path}"
            requests.append((where, dict(self.headers), body))
            sent = answer(where, body)
            text = sent.body if isinstance(sent.body, str) else json.dumps(sent.body)
            self.send_response(sent.status)
            self.send_header("content-type", "text/html" if isinstance(sent.body, str) else "application/json")
            self.send_header("retry-after-ms", "10")
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                while sent.trickle and not stopped.wait(0.05):
                    self.wfile.write(b" ")
                self.wfile.write(text.encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Recorded(f"http://127.0.0.1:{server.server_port}/v1", requests)
    finally:
        stopped.set()
        server.shutdown()
        server.server_close()


def completion(text: str, finish: str = "stop") -> dict[str, Any]:
    """The body of a chat completion, as every such server sends it."""
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
    }
