"""Run the recording proxy as a server of its own."""

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from worldloom.errors import ConfigError, MissingDependency
from worldloom.recording.exchange_log import ExchangeLog

GRACE_S = 5  # for answers that are under way when the proxy is asked to stop
IDLE_S = 75  # for which a connection is kept: agents think between two questions


def serve(
    upstream: str, out: Path, *, host: str = "127.0.0.1", port: int = 8080, ready: Callable[[str], Any] = lambda _: None
) -> None:
    """Record until interrupted (SIGINT or SIGTERM); ``ready`` is told the proxy's address once it can be called.

    Args:
        port: 0 takes a free one.

    Raises:
        ConfigError: ``upstream`` is no http(s) address, the port is not free, or ``out`` cannot be written.
        MissingDependency: the server's packages are not installed.
    """
    try:
        import uvicorn

        from worldloom.recording.proxy import RecordingProxy
    except ImportError as error:
        raise MissingDependency(f"{error.name} is not installed; `pip install worldloom[record]`") from error
    if not upstream.startswith(("http://", "https://")):
        raise ConfigError(f"upstream is {upstream!r}; it must begin with http:// or https://")
    log = _opened(out)
    config = uvicorn.Config(
        RecordingProxy(upstream, log), log_level="critical", access_log=False, server_header=False, date_header=False,
        lifespan="on", ws="none", timeout_graceful_shutdown=GRACE_S, timeout_keep_alive=IDLE_S,
    )  # fmt: skip
    with contextlib.closing(log), _listening(host, port) as taken:
        shown = f"[{host}]" if ":" in host else host
        ready(f"http://{shown}:{taken.getsockname()[1]}/v1")
        uvicorn.Server(config).run(sockets=[taken])


def _listening(host: str, port: int) -> socket.socket:
    try:
        taken = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ConfigError(f"cannot listen on {host}:{port}: {reason}; choose another --port") from error
    return taken


def _opened(out: Path) -> ExchangeLog:
    try:
        return ExchangeLog(out)
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}") from error
