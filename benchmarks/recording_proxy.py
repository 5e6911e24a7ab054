"""The recording proxy under a crowd of streaming clients on the loopback, with and without a kill in the midst.

    python -m benchmarks.recording_proxy [--clients N] [--seconds S] [--out metrics.json]

The same crowd talks to a small server directly, then through the proxy, then through one that is killed half-way and
started again. Prints a table and writes results/recording-proxy/metrics.json. Server, proxy and crowd share the
machine, so what is added includes what they take from each other.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.upstream import events
from worldloom.errors import ConfigError
from worldloom.origin import begin, provenance
from worldloom.runs import write_json

ROOT = Path(__file__).parent.parent
OUT = Path("results/recording-proxy/metrics.json")
PIECES = 20  # events of an answer
PAUSE = 0.02  # seconds before each
CLOSED_AGAIN_S = 0.2  # what a client waits after a failure
LEAST = 20  # answers
DONE = b"[DONE]\n\n"


class Proxy:
    """``worldloom record`` in a process of its own, as a person would start it."""

    def __init__(self, upstream: str, out: Path, port: int = 0):
        self.out = out
        command = [sys.executable, "-c", "from worldloom.cli import main; main()", "record", "--upstream", upstream]
        self.process = subprocess.Popen(
            [*command, "--out", str(out), "--port", str(port)], cwd=ROOT, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"},
        )  # fmt: skip
        assert self.process.stdout and self.process.stderr
        told = self.process.stdout.readline()
        assert told, self.process.stderr.read()
        self.base_url = told.split()[1]
        self.port = int(self.base_url.removesuffix("/v1").rpartition(":")[2])

    def stop(self, how: int = signal.SIGTERM) -> str:
        """End it; what it said on standard error."""
        self.process.send_signal(how)
        return self.process.communicate(timeout=60)[1]

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


@dataclass
class Heard:
    """What a crowd got: the whole answers by their tag, and seconds to the first byte and to the last."""

    whole: dict[str, bytes] = field(default_factory=dict)
    first: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)
    failed: int = 0


Reached = Callable[[], bool]


def after(seconds: float) -> Reached:
    """Whether so much time has passed from now on."""
    until = time.monotonic() + seconds
    return lambda: time.monotonic() >= until


async def talk(base_url: str, clients: int, enough: Reached, pieces: int, pause: float, heard: Heard) -> None:
    """Each client asks again as soon as it has its answer; every question has a tag of its own, ``client/turn``."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)

    async def one(number: int, client: httpx2.AsyncClient) -> None:
        turn = 0
        while not enough():
            try:
                await _ask(client, f"{number}/{turn}", pieces, pause, heard)
            except (httpx2.HTTPError, EOFError):
                heard.failed += 1
                await asyncio.sleep(CLOSED_AGAIN_S)
            turn += 1

    async with httpx2.AsyncClient(base_url=base_url, trust_env=False, limits=limits, timeout=60) as client:
        await asyncio.gather(*(one(number, client) for number in range(clients)))


async def _ask(client: httpx2.AsyncClient, tag: str, pieces: int, pause: float, heard: Heard) -> None:
    asked = {"tag": tag, "stream": True, "pieces": pieces, "pause": pause, "messages": [{"role": "user"}]}
    begun, first, body = time.monotonic(), 0.0, b""
    async with client.stream("POST", "/chat/completions", json=asked) as response:
        async for piece in response.aiter_raw():
            first = first or time.monotonic() - begun
            body += piece
    if response.status_code != 200 or not body.endswith(DONE):
        raise EOFError(tag)
    heard.whole[tag] = body
    heard.first.append(first)
    heard.last.append(time.monotonic() - begun)


def verified(out: Path, whole: dict[str, bytes], pieces: int) -> dict[str, int]:
    """What is wrong with a file of exchanges, given the answers that clients have whole; all counts should be 0."""
    lines = [json.loads(line) for line in out.read_bytes().splitlines()]
    lines = [line for line in lines if "error" not in line]
    tags = [json.loads(line["request_body"])["tag"] for line in lines]
    bodies = dict(zip(tags, (line["response_body"].encode() for line in lines), strict=True))
    turns = [(client, int(turn)) for client, _, turn in (tag.partition("/") for tag in tags)]
    latest: dict[str, int] = {}
    disordered = 0
    for client, turn in turns:
        disordered += turn < latest.get(client, -1)
        latest[client] = turn
    return {
        "lost": sum(tag not in bodies for tag in whole),
        "stored_twice": len(tags) - len(bodies),
        "stored_otherwise": sum(bodies.get(tag, body) != body for tag, body in whole.items()),
        "changed_on_the_way": sum(body != b"".join(events(tag, pieces)) for tag, body in whole.items()),
        "out_of_order": disordered,
    }


async def killed_and_restarted(
    proxy: Proxy, upstream: str, clients: int, halfway: Reached, enough: Reached, pieces: int, pause: float,
    heard: Heard,
) -> Proxy:  # fmt: skip
    """A crowd whose proxy is killed half-way, and started again on the same port and file."""
    talking = asyncio.create_task(talk(proxy.base_url, clients, enough, pieces, pause, heard))
    while not halfway():
        await asyncio.sleep(0.01)
    await asyncio.to_thread(proxy.stop, signal.SIGKILL)
    again = await asyncio.to_thread(Proxy, upstream, proxy.out, proxy.port)
    await talking
    return again


@contextlib.contextmanager
def upstream() -> Iterator[str]:
    """The server that answers, in a process of its own; its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.upstream"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def told(seconds: list[float]) -> dict[str, float]:
    """Median and tail.

    Raises:
        ConfigError: there were too few answers.
    """
    if len(seconds) < LEAST:
        raise ConfigError(f"{len(seconds)} answers came in time, of which a tail cannot be told; raise --seconds")
    cuts = statistics.quantiles(seconds, n=100)
    return {"median": cuts[49], "p95": cuts[94], "p99": cuts[98]}


def added(direct: list[float], through: list[float]) -> dict[str, dict[str, float]]:
    """Both, and how much more the second is at each of these."""
    one, other = told(direct), told(through)
    return {"direct": one, "through_proxy": other, "added": {key: other[key] - one[key] for key in one}}


def measure(clients: int, seconds: float) -> dict[str, Any]:
    """All three crowds."""
    direct, through, broken = Heard(), Heard(), Heard()
    with upstream() as address, tempfile.TemporaryDirectory() as folder:
        asyncio.run(talk(f"{address}/v1", clients, after(seconds), PIECES, PAUSE, direct))
        with Proxy(address, Path(folder) / "whole.jsonl") as proxy:
            asyncio.run(talk(proxy.base_url, clients, after(seconds), PIECES, PAUSE, through))
        one = verified(proxy.out, through.whole, PIECES)
        with (
            Proxy(address, Path(folder) / "killed.jsonl") as first,
            asyncio.run(
                killed_and_restarted(first, address, clients, after(seconds / 2), after(seconds), PIECES, PAUSE, broken)
            ),
        ):
            other = verified(first.out, broken.whole, PIECES)
    return {
        "clients": clients,
        "seconds": seconds,
        "events_per_answer": PIECES + 2,
        "seconds_between_events": PAUSE,
        "exchanges": {"direct": len(direct.whole), "through_proxy": len(through.whole), "killed": len(broken.whole)},
        "failed": {"direct": direct.failed, "through_proxy": through.failed, "killed": broken.failed},
        "seconds_to_first_byte": added(direct.first, through.first),
        "seconds_to_last_byte": added(direct.last, through.last),
        "wrong": {"through_proxy": one, "killed": other},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    command = f"python -m benchmarks.recording_proxy --clients {asked.clients} --seconds {asked.seconds:g}"
    begun, clock = begin(command), time.monotonic()
    found = measure(asked.clients, asked.seconds)
    for name in ("seconds_to_first_byte", "seconds_to_last_byte"):
        for way, values in found[name].items():
            print(f"{name:<22} {way:<14}" + "".join(f" {key} {1000 * value:8.1f} ms" for key, value in values.items()))
    print(f"exchanges {found['exchanges']}, failed {found['failed']}, wrong {found['wrong']}")
    write_json(asked.out, {"name": "recording-proxy", "environment": "loopback", "speed": found,
                           "provenance": provenance(begun, time.monotonic() - clock)})  # fmt: skip


if __name__ == "__main__":
    main()
