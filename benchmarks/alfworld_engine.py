"""ALFWorld's engine with kept results against the plain one, on the same games and actions, each in its own process.

    python -m benchmarks.alfworld_engine [--games N]

Prints a table of CPU seconds and ratios and writes results/speed-alfworld-engine/metrics.json.
"""

import argparse
import multiprocessing
import statistics
import time
from pathlib import Path
from typing import Any

from worldloom.envs.alfworld import ALFWorld
from worldloom.origin import begin, provenance
from worldloom.runs import write_json

OUT = Path("results/speed-alfworld-engine/metrics.json")
STEPS = 15


class PlainALFWorld(ALFWorld):
    """ALFWorld on its engine as the package has it, with nothing kept."""

    def __init__(self, **options: Any):
        from worldloom.envs import alfworld_engine

        alfworld_engine.keep_results = lambda: None
        super().__init__(**options)


def lean(task_id: str) -> dict[str, Any]:
    """A composed game as it is."""
    from worldloom.envs.alfworld_compose import compose

    return dict(compose(task_id))


def all_types(task_id: str) -> dict[str, Any]:
    """The same game with every kind of thing and receptacle of the domain declared, as the official files do."""
    from worldloom.envs.alfworld_rooms import knowledge

    game = lean(task_id)
    holds = knowledge().holds
    declared = [f"{kind}Type - rtype" for kind in sorted(holds)]
    declared += [f"{kind}Type - otype" for kind in sorted(set().union(*holds.values()))]
    missing = [line for line in declared if line.split()[0] not in game["pddl_problem"]]
    game["pddl_problem"] = game["pddl_problem"].replace("(:objects", "(:objects\n" + "\n".join(missing), 1)
    return game


def measure(variant: str, task_ids: list[str]) -> dict[str, float]:
    """Median CPU seconds of load and reset, and of a step, over the games."""
    from worldloom.envs import alfworld_engine

    if variant == "plain":
        alfworld_engine.keep_results = lambda: None
    engine = alfworld_engine.new_engine()
    resets, steps = [], []
    for task_id in task_ids:
        game = all_types(task_id) if variant == "all types" else lean(task_id)
        begun = time.process_time()
        engine.load(game)
        state = engine.reset()
        resets.append(time.process_time() - begun)
        begun = time.process_time()
        for number in range(STEPS):
            state, _, _ = engine.step(state.admissible_commands[number % len(state.admissible_commands)])
        steps.append((time.process_time() - begun) / STEPS)
    return {"reset_seconds": statistics.median(resets), "step_seconds": statistics.median(steps)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=12)
    games = parser.parse_args().games
    begun, clock = begin(f"python -m benchmarks.alfworld_engine --games {games}"), time.monotonic()
    task_ids = [f"composed/valid_seen/{number:05d}" for number in range(games)]
    found = {}
    for variant in ("plain", "kept", "all types"):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found[variant] = pool.apply(measure, (variant, task_ids))
        print(
            f"{variant:<10} reset {found[variant]['reset_seconds']:.3f} s   step {found[variant]['step_seconds']:.4f} s"
        )
    ratios = {
        "kept_to_plain_reset": found["plain"]["reset_seconds"] / found["kept"]["reset_seconds"],
        "kept_to_plain_step": found["plain"]["step_seconds"] / found["kept"]["step_seconds"],
        "lean_to_all_types_reset": found["all types"]["reset_seconds"] / found["kept"]["reset_seconds"],
    }
    for name, ratio in ratios.items():
        print(f"{name:<26} {ratio:.2f} x")
    speed = {"games": games, "steps_per_game": STEPS, "cpu_seconds": found, **ratios}
    write_json(OUT, {"name": "speed-alfworld-engine", "environment": "alfworld", "speed": speed,
                     "provenance": provenance(begun, time.monotonic() - clock)})  # fmt: skip


if __name__ == "__main__":
    main()
