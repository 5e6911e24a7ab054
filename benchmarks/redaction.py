"""Recall and precision of redaction, by kind, on planted secrets; and its speed.

    python -m benchmarks.redaction [--each N] [--seed N]

Recall is the share of planted values of which nothing is left in the written line, or, for a private key, no line of
its body. Precision is the share of placeholders of a kind that stand for a planted value of a kind that is told so.
Prints a table and writes results/redaction/metrics.json.
"""

import argparse
import json
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.planted import FIRST, KINDS, LAST, UNSTRUCTURED, Case, Planted, corpus
from worldloom.evaluate.stats import rate
from worldloom.origin import begin, provenance
from worldloom.redact.find import find
from worldloom.redact.replace import Redactor, canonical
from worldloom.redact.rules import Rules
from worldloom.runs import write_json

OUT = Path("results/redaction/metrics.json")
RULES = Rules(names=tuple(f"{first} {last}" for first in FIRST for last in LAST))


def survives(secret: Planted, line: str) -> bool:
    """Whether a value, as it is or as JSON writes it, or a line of a private key, is still there."""
    return any(part in line for part in secret.value.split("\n") if not part.startswith("-----"))


def measure(cases: list[Case]) -> dict[str, Any]:
    """Recall and precision by kind, each with n and an interval over episodes."""
    missed: dict[str, list[int]] = {kind: [] for kind in KINDS}
    right: dict[str, list[int]] = {}
    told: dict[str, list[int]] = {}
    harmed = Counter[str]()
    redactor = Redactor(RULES)
    find("one text before the clock starts: 1234567890abcdefgh", RULES)
    begun, size = time.process_time(), 0
    for number, case in enumerate(cases):
        line = redactor(case.trajectory).to_json()
        size += len(case.trajectory.to_json())
        for secret in case.planted:
            missed[secret.kind].append(survives(secret, line))
        for name, texts in redactor.originals.items():
            kind = name[1 : name.rindex("_")]
            for found in (told, right):
                found.setdefault(kind, [0] * len(cases))
            told[kind][number] += 1
            right[kind][number] += _is_planted(case, kind, texts[0])
        harmed.update("kept" if text in line else "harmed" for text in case.innocent)
    seconds = time.process_time() - begun
    return {
        "recall": {kind: rate([not m for m in each], [1] * len(each)) for kind, each in missed.items()},
        "recall_structured": rate(*_by_case(missed, set(KINDS) - UNSTRUCTURED)),
        "recall_all": rate(*_by_case(missed, set(KINDS))),
        "precision": {kind: {**(rate(right[kind], told[kind]) or {}), "n": sum(told[kind])} for kind in sorted(told)},
        "innocent": {"n": harmed.total(), "left_as_they_are": harmed["kept"] / harmed.total()},
        "planted": sum(map(len, missed.values())),
        "megabytes_per_cpu_second": size / 1e6 / seconds,
    }


def _by_case(missed: dict[str, list[int]], kinds: set[str]) -> tuple[list[int], list[int]]:
    rows = list(zip(*(missed[kind] for kind in sorted(kinds)), strict=True))
    return [len(row) - sum(row) for row in rows], [len(row) for row in rows]


def _is_planted(case: Case, kind: str, text: str) -> bool:
    """Whether a placeholder of a kind stands for a planted value that may be told so, or for a part of one."""
    said = canonical(text, kind)
    values = (canonical(json.dumps(secret.value)[1:-1], kind) for secret in case.planted if kind in secret.told)
    return any(value in said or said in value for value in values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=100, help="planted values of each kind")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    begun, clock = begin(f"python -m benchmarks.redaction --each {args.each} --seed {args.seed}"), time.monotonic()
    found = measure(corpus(args.seed, args.each))
    for kind, recall in found["recall"].items():
        print(f"recall    {kind:<20} {recall['value']:.3f} (n={recall['n']})")
    for kind, precision in found["precision"].items():
        print(f"precision {kind:<20} {precision['value']:.3f} (n={precision['n']})")
    print({key: value for key, value in found.items() if key not in ("recall", "precision")})
    came_from = provenance(begun, time.monotonic() - clock)
    came_from["versions"] |= {name: version(name) for name in ("detect-secrets", "phonenumbers", "python-stdnum")}
    write_json(OUT, {"name": "redaction", "environment": "planted", "redaction": found, "provenance": came_from})


if __name__ == "__main__":
    main()
