"""Pack the runs that ToolBench releases, one JSON file each, into the one file that the environment reads.

    python -m worldloom.envs.toolbench_pack data/answer [OUT.jsonl.gz]

Understood are ToolBench's own files of a chain ("CoT", under ``trys``) and of a tree of attempts ("DFS", under
``tree``), from which every path to a leaf becomes a run; ``answer_generation`` has ``query`` and ``function``.
StableToolBench's files look the same, but a cache and a simulator answered there: no record of a real world.
"""

import gzip
import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from worldloom.cache import cache_dir
from worldloom.errors import DataError
from worldloom.progress import progress

logger = logging.getLogger(__name__)

Node = Mapping[str, Any]
GAVE_ANSWER = 3  # ToolBench's code of a step that ended with an answer


def pack(answers: Path, out: Path) -> tuple[int, int]:
    """Write the runs of all files below a folder; return how many runs, and how many files were passed over.

    Files that are no runs of ToolBench's are logged by name and passed over.

    Raises:
        DataError: there is no run at all.
    """
    files = sorted(answers.rglob("*.json"))
    out.parent.mkdir(parents=True, exist_ok=True)
    draft, runs, bad = out.with_name(out.name + ".part"), 0, 0
    with gzip.open(draft, "wt", encoding="utf-8") as lines, progress("pack", len(files), "files") as advance:
        for path in files:
            rows = _rows(path)
            lines.writelines(json.dumps(row) + "\n" for row in rows)
            runs, bad = runs + len(rows), bad + (not rows)
            advance(1, f"{runs} runs")
    if not runs:
        draft.unlink()
        raise DataError(f"none of {len(files)} JSON files is a run of ToolBench's", answers)
    draft.replace(out)
    return runs, bad


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        return rows_of(json.loads(path.read_bytes()), path.stem)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        logger.warning("%s is no run of ToolBench's: %r", path, error)
        return []


def rows_of(answer: Mapping[str, Any], name: str = "") -> list[dict[str, Any]]:
    """The runs of one of ToolBench's files, in the form of ``worldloom.envs.toolbench_record``.

    Raises:
        KeyError, TypeError, AttributeError: it is none of those files.
    """
    about = answer["answer_generation"]
    head = {"id": name, "query": about["query"], "functions": about["function"]}
    chains = [attempt["chain"] for attempt in answer["trys"]] if "trys" in answer else paths(answer["tree"]["tree"])
    runs = [steps for chain in chains if (steps := list(steps_of(chain)))]
    return [head | {"win": steps[-1]["code"] == GAVE_ANSWER, "steps": steps} for steps in runs]


def paths(node: Node) -> Iterator[list[Node]]:
    """Every way from a tree's root to a leaf."""
    children = node.get("children") or []
    for child in children:
        yield from ([node, *path] for path in paths(child))
    if not children:
        yield [node]


def steps_of(chain: Sequence[Node]) -> Iterator[dict[str, Any]]:
    """The calls of a chain of nodes: a name, then an input with what was observed."""
    name = None
    for node in chain:
        if node["node_type"] == "Action":
            name = node["description"]
        elif node["node_type"] == "Action Input" and name is not None and "observation" in node:
            yield {
                "action": name,
                "input": node["description"],
                "observation": node["observation"],
                "code": node["observation_code"],
            }
            name = None


def main(arguments: Sequence[str]) -> str:
    """The command; returns what it did."""
    if not 1 <= len(arguments) <= 2:
        raise SystemExit("usage: python -m worldloom.envs.toolbench_pack ANSWER_FOLDER [OUT.jsonl.gz]")
    out = Path(arguments[1]) if len(arguments) == 2 else cache_dir() / "toolbench" / "toolbench_runs.jsonl.gz"
    runs, bad = pack(Path(arguments[0]), out)
    return f"{out}: {runs} runs" + (f"; {bad} files passed over" if bad else "")


if __name__ == "__main__":
    from rich import print

    print(main(sys.argv[1:]))
