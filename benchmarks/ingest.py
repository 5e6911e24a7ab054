"""How fast logs are read, and in how much memory: made chats with tool calls, as Chat Completions rows.

    python -m benchmarks.ingest [--mb N]

Makes N megabytes (1,000 if not given) of logs in a temporary folder, ingests them in a process of its own, prints MB/s
and that process's peak memory, and writes results/ingest-speed/metrics.json.
"""

import argparse
import json
import multiprocessing
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from worldloom.origin import begin, provenance
from worldloom.runs import write_json

OUT = Path("results/ingest-speed/metrics.json")
WORDS = ["the", "order", "customer", "sent", "old", "address", "so", "refund", "it", "or", "send", "another", "please"]
TURNS = 8


def sentence(draw: random.Random, words: int) -> str:
    return " ".join(draw.choices(WORDS, k=words))


def conversation(number: int, draw: random.Random) -> dict[str, Any]:
    """A dialogue of some turns: the user asks, the agent calls a tool and answers."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": sentence(draw, 120)}]
    for turn in range(draw.randint(2, TURNS)):
        order = {"id": draw.randrange(10**6), "items": draw.choices(WORDS, k=draw.randint(5, 80)), "open": True}
        call = {"name": "get_order", "arguments": json.dumps({"id": order["id"]})}
        id_ = f"call_{turn}"
        messages += [
            {"role": "user", "content": sentence(draw, draw.randint(5, 60))},
            {"role": "assistant", "content": None, "tool_calls": [{"id": id_, "type": "function", "function": call}]},
            {"role": "tool", "tool_call_id": id_, "content": json.dumps(order)},
            {"role": "assistant", "content": sentence(draw, draw.randint(5, 60))},
        ]
    return {"id": f"chat-{number}", "model": "made", "messages": messages, "success": draw.random() < 0.5}


def rows(megabytes: float) -> Iterator[str]:
    draw, size, number = random.Random(0), 0, 0
    while size < megabytes * 1e6:
        line = json.dumps(conversation(number, draw)) + "\n"
        size, number = size + len(line), number + 1
        yield line


def measure(folder: str) -> dict[str, Any]:
    """The account, seconds and peak memory (resident, of this process) of ingesting a folder's logs."""
    from worldloom.ingest.run import ingest

    wall, cpu = time.monotonic(), time.process_time()
    account = ingest([Path(folder) / "logs"], Path(folder) / "out")
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"account": account, "seconds": wall, "cpu_seconds": cpu, "peak_memory_mib": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=1000)
    megabytes = parser.parse_args().mb
    begun, clock = begin(f"python -m benchmarks.ingest --mb {megabytes:g}"), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "logs").mkdir()
        with (Path(folder) / "logs" / "chats.jsonl").open("w") as file:
            file.writelines(rows(megabytes))
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found = pool.apply(measure, (folder,))
    account = found.pop("account")
    speed = {**found, "mb": account["bytes"] / 1e6, "mb_per_second": account["bytes"] / 1e6 / found["seconds"],
             "mb_per_cpu_second": account["bytes"] / 1e6 / found["cpu_seconds"]}  # fmt: skip
    for name, value in speed.items():
        print(f"{name:<20} {value:.2f}")
    kept = ("files", "episodes", "steps", "skipped", "unaccounted")
    write_json(OUT, {"name": "ingest-speed", "environment": "logs", "speed": speed,
                     "ingest": {key: account[key] for key in kept},
                     "provenance": provenance(begun, time.monotonic() - clock)})  # fmt: skip


if __name__ == "__main__":
    main()
