"""How often each engine's winning plans win there, and which do not, with what they were told last.

    python -m benchmarks.gold [--env NAME ...]

ScienceWorld: one variation of each of its 30 tasks, drawn from the test split; TextWorld, which first has to make its
games: 30 of each family; elsewhere 200 tasks drawn from a split, or all that it has. Played by the agent ``gold``
without noise, as `worldloom collect` would. Tasks without a plan (of ToolBench, where no recorded run won) are counted.
Writes each environment's part of results/gold-plans/metrics.json, and leaves the others' as they are.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from worldloom.agents import AgentSpec
from worldloom.collect import TRAJECTORIES, plan, play
from worldloom.envs import EnvSpec
from worldloom.evaluate.stats import rate
from worldloom.origin import begin, provenance
from worldloom.runs import read_json, write_json
from worldloom.trajectory import Trajectory, read

OUT = Path("results/gold-plans/metrics.json")
MAX_STEPS = 400  # the longest of ScienceWorld's plans is of more than 200
SAID = 300  # characters of the last observation
NO_PLAN = "has no gold plan"


class Played(NamedTuple):
    """An environment with its options, and the split whose plans are tried."""

    env: EnvSpec
    split: str = "test"
    tasks: int = 200
    one_of_each: bool = False  # task ids are KIND/...: one of each kind


PLAYED = {
    "alfworld": Played(EnvSpec("alfworld", {"games": "composed"}), "valid_seen"),
    "scienceworld": Played(EnvSpec("scienceworld", {"gold": True}), one_of_each=True),
    "textworld": Played(EnvSpec("textworld"), tasks=30),
    "textworld-coin-collector": Played(EnvSpec("textworld-coin-collector"), tasks=30),
    "textworld-cooking": Played(EnvSpec("textworld-cooking"), tasks=30),
    "textworld-treasure-hunter": Played(EnvSpec("textworld-treasure-hunter"), tasks=30),
    "webshop": Played(EnvSpec("webshop")),
    "toolbench": Played(EnvSpec("toolbench"), "train"),
    "support": Played(EnvSpec("support"), "train"),
    "backoffice": Played(EnvSpec("backoffice"), "train"),
}


def chosen(played: Played) -> list[str]:
    """The tasks that are tried, drawn with a fixed seed."""
    with played.env.build() as env:
        ids = sorted(env.task_ids(played.split))
    draw = random.Random(0)
    if played.one_of_each:
        return [draw.choice(list(kind)) for _, kind in groupby(ids, key=lambda task: task.partition("/")[0])]
    return draw.sample(ids, min(played.tasks, len(ids)))


def lost(episode: Trajectory) -> dict[str, Any]:
    """A plan that did not win, and what the world said last."""
    said = episode.steps[-1].observation if episode.steps else episode.initial_observation
    told = {"task": episode.task.id, "outcome": episode.outcome, "steps": len(episode.steps), "last": said[-SAID:]}
    return told | ({"error": episode.error.message} if episode.error else {})


def tried(name: str, workers: int) -> dict[str, Any]:
    """How many plans of an environment win: a share with its interval, and those that do not."""
    played = PLAYED[name]
    jobs = plan(chosen(played), [AgentSpec("gold")], played.split, 1, 0, MAX_STEPS)
    with tempfile.TemporaryDirectory() as folder:
        play(Path(folder) / TRAJECTORIES, played.env, jobs, workers)
        episodes = sorted(read(Path(folder) / TRAJECTORIES), key=lambda episode: episode.task.id)
    planned = [episode for episode in episodes if not (episode.error and NO_PLAN in episode.error.message)]
    return {
        "split": played.split, "options": dict(played.env.options), "version": episodes[0].env.version,
        "wins": rate([float(episode.outcome == "success") for episode in planned], [1.0] * len(planned)),
        "lost": [lost(episode) for episode in planned if episode.outcome != "success"],
        "without_plan": len(episodes) - len(planned),
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", action="append", choices=sorted(PLAYED), help="all, if not given; repeatable")
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args(arguments)
    command = f"python -m benchmarks.gold {' '.join(sys.argv[1:])}".strip()
    for name in asked.env or PLAYED:
        begun, clock = begin(command), time.monotonic()
        found = tried(name, asked.workers)
        found["provenance"] = provenance(begun, time.monotonic() - clock)
        known: dict[str, Any] = read_json(OUT) if OUT.exists() else {"name": OUT.parent.name, "plans": {}}
        write_json(OUT, {**known, "plans": {**known["plans"], name: found}})
        print(f"{name}: {found['wins']['value']:.1%} of {found['wins']['n']} plans win")


if __name__ == "__main__":
    main()
