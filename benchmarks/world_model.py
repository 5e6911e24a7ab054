"""Steps per second of a world model: the plain way, our engine, other engines, and the real environment.

    python -m benchmarks.world_model MODEL --data FILE --env alfworld -o games=official \\
        [--peers vllm,llama.cpp] [--real textworld,scienceworld]

All answer the actions of the same recorded episodes, in one run. The plain way reads the whole history anew at each
step, through transformers' ``generate``. Prints a table and writes results/NAME/metrics.json.
"""

import argparse
import contextlib
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.plain import PlainLM
from worldloom.agents import AgentSpec
from worldloom.cli_text import pairs
from worldloom.envs import EnvSpec, make
from worldloom.envs.pool import EnvPool
from worldloom.envs.worker import Job
from worldloom.errors import WorldloomError
from worldloom.lm.base import WorldLM
from worldloom.lm.engine import Counts
from worldloom.lm.hf import resolve
from worldloom.lm.server import ServerLM
from worldloom.lm.session import LocalLM
from worldloom.origin import begin, provenance
from worldloom.runs import write_json
from worldloom.trajectory import Trajectory, read

Told = list[list[str]]
Rates = dict[str, float]
OURS_IN_VLLM = "vllm with our guesses"


def plain(lm: PlainLM, episode: Trajectory, steps: int) -> list[str]:
    """What the model answers by ``generate`` over the whole history, step by step."""
    ids, told = lm.chat.start(episode.initial_context, episode.initial_observation), []
    for number, action in enumerate(episode.actions[:steps]):
        ids += (lm.chat.after_answer if number else []) + lm.chat.action(action)
        answer = lm.generate(ids)
        told.append(lm.chat.decode(answer))
        ids += answer
    return told


def imagined(lm: WorldLM, episode: Trajectory, steps: int) -> list[str]:
    """What a session answers."""
    session = lm.session(episode.initial_context, episode.initial_observation)
    return [session.step(action) for action in episode.actions[:steps]]


def together(lm: WorldLM, episodes: Sequence[Trajectory], steps: int, sessions: int) -> Told:
    """The same for many sessions at once."""
    with ThreadPoolExecutor(sessions) as threads:
        return list(threads.map(lambda episode: imagined(lm, episode, steps), episodes))


def timed(play: Callable[[], Told]) -> tuple[Told, float]:
    """What was told, and steps per second."""
    start = time.monotonic()
    told = play()
    return told, sum(map(len, told)) / (time.monotonic() - start)


def really(env: EnvSpec, jobs: Sequence[Job]) -> float:
    """Steps per second of the real engine in two processes, resets included, their start not."""
    with EnvPool(env, workers=2) as pool:
        return timed(lambda: [f.result().actions for f in [pool.submit(job) for job in jobs]])[1]


def replays(episodes: Sequence[Trajectory], steps: int) -> list[Job]:
    """The recorded actions once more."""
    return [
        Job(e.task.id, AgentSpec("replay", {"actions": e.actions[:steps]}), 0, e.task.split or "train", steps)
        for e in episodes
    ]


def scripted(name: str, count: int, steps: int) -> list[Job]:
    """Another environment's first tasks, for its own scripted agent."""
    with make(name) as env:
        tasks = env.task_ids("train")[:count]
    return [Job(task, AgentSpec(f"scripted-{name}", {"skill": 0.7}), 0, "train", steps) for task in tasks]


def real_rates(asked: Any, episodes: Sequence[Trajectory]) -> Rates:
    """The real environment's steps per second; ALFWorld's also as the package has it, without our keeping."""
    names = {asked.env: asked.env}
    if asked.env == "alfworld":
        names = {"alfworld": "benchmarks.alfworld_engine:PlainALFWorld", "alfworld_kept": "alfworld"}
    jobs = replays(episodes, asked.steps)
    rates = {name: really(EnvSpec(target, pairs(asked.option)), jobs) for name, target in names.items()}
    others = [name for name in asked.real.split(",") if name]
    return rates | {name: really(EnvSpec(name), scripted(name, len(episodes), asked.steps)) for name in others}


def ours(lm: LocalLM, few: Sequence[Trajectory], many: Sequence[Trajectory], asked: Any) -> tuple[Rates, Rates]:
    """Rates of the plain way and of our engine; and how often the text was the plain way's."""
    imagined(lm, few[0], 1)  # what is done once is done
    told, rates, reference = {}, {}, PlainLM(lm)
    told["reference"], rates["reference"] = timed(lambda: [plain(reference, e, asked.steps) for e in few])
    lm.draft = False
    told["undrafted"], rates["single_without_drafts"] = timed(lambda: [imagined(lm, e, asked.steps) for e in few])
    lm.draft, lm.engine.counts = True, Counts()
    told["single"], rates["single"] = timed(lambda: [imagined(lm, e, asked.steps) for e in few])
    _, rates["batched"] = timed(lambda: together(lm, many, asked.steps, asked.sessions))
    same = [a == b for a, b in zip(chain(*told["reference"]), chain(*told["single"]), strict=True)]
    return rates, {"n": len(same), "value": sum(same) / len(same)}


def growth(lm: LocalLM, episodes: Sequence[Trajectory], steps: int = 50) -> dict[int, float]:
    """Median seconds of a step by its index, one session at a time."""
    found: dict[int, list[float]] = {}
    for episode in episodes:
        session = lm.session(episode.initial_context, episode.initial_observation)
        for number, action in enumerate(episode.actions[:steps], 1):
            start = time.monotonic()
            session.step(action)
            found.setdefault(number, []).append(time.monotonic() - start)
    return {number: sorted(seconds)[len(seconds) // 2] for number, seconds in found.items()}


def by_sessions(model: str, episodes: Sequence[Trajectory], counts: Sequence[int], steps: int = 6) -> dict[int, Rates]:
    """Steps per second with ever more sessions, the beginnings read included, and what their caches take."""
    found = {}
    for count in counts:
        lm = LocalLM(model)
        chosen = [episodes[n % len(episodes)] for n in range(count)]
        _, rate = timed(lambda lm=lm, chosen=chosen: together(lm, chosen, steps, len(chosen)))  # type: ignore[misc]
        found[count] = {"steps_per_second": rate, "peak_cache_gib": lm.engine.peak_bytes / 2**30}
        print(f"{count:>3} sessions {rate:6.2f} steps/s, caches {found[count]['peak_cache_gib']:.2f} GiB", flush=True)
    return found


def others(
    names: str, model: str, few: Sequence[Trajectory], many: Sequence[Trajectory], asked: Any
) -> Iterator[dict[str, Rates]]:
    """Rates of other engines so far, each with and without its own speculation, and of vLLM with our guesses."""
    found: dict[str, Rates] = {}
    for name, serving in _servers(names, Path(resolve(model)), asked.sessions):
        with contextlib.suppress(WorldloomError), serving as base_url:  # one that fails has no rate; its log says why
            lm = ServerLM(asked.sessions, base_url=base_url, model=peers.SERVED, timeout_s=600)
            imagined(lm, few[0], 1)
            single = timed(lambda lm=lm: [imagined(lm, e, asked.steps) for e in few])[1]  # type: ignore[misc]
            batched = timed(lambda lm=lm: together(lm, many, asked.steps, asked.sessions))[1]  # type: ignore[misc]
            found[name] = {"single": single, "batched": batched}
        print(f"{name:<22} {found.get(name, 'failed')}", flush=True)
        yield found


def _servers(names: str, folder: Path, sessions: int) -> Iterator[tuple[str, Any]]:
    logs = Path(tempfile.mkdtemp(prefix="worldloom-peers-"))
    if "vllm" in names:
        for name, speculation in (("vllm", None), ("vllm with n-grams", peers.NGRAMS), (OURS_IN_VLLM, peers.OURS)):
            yield name, peers.vllm(folder, logs / f"{name}.log", speculation=speculation)
    if "llama.cpp" in names:
        for name, ngrams in (("llama.cpp", False), ("llama.cpp with n-grams", True)):
            yield name, peers.llama_cpp(folder, logs / "q8.gguf", sessions=sessions, ngrams=ngrams)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--env", default="alfworld")
    parser.add_argument("--option", "-o", action="append")
    parser.add_argument("--sessions", type=int, default=16)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--alone", type=int, default=3, help="episodes for the ways that take one at a time")
    parser.add_argument("--scale", default="1,4,16,64,65", help="how many sessions at once, each in a run of its own")
    parser.add_argument("--name", help="of the folder under results; speed-wm-ENV if not given")
    parser.add_argument("--peers", default="", help="vllm,llama.cpp")
    parser.add_argument(
        "--real", default="", help="other environments whose real engines are timed: textworld,scienceworld"
    )
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    begun, clock = begin(f"python -m benchmarks.world_model {' '.join(sys.argv[1:])}"), time.monotonic()
    usable = [t for t in sorted(read(asked.data), key=lambda t: t.task.id) if len(t.steps) >= asked.steps]
    few, many = usable[: asked.alone], usable[: asked.sessions]
    long = [t for t in usable if len(t.steps) >= 50][: asked.alone]
    real = real_rates(asked, many)
    lm = LocalLM(asked.model)
    rates, same = ours(lm, few, many, asked)
    for name, rate in {**rates, **{f"real {name}": rate for name, rate in real.items()}}.items():
        print(f"{name:<22} {rate:7.2f} steps/s {rate / rates['reference']:7.1f} x the plain way", flush=True)
    speed = {
        "sessions": asked.sessions, "steps": asked.steps, "precision": str(lm.model.dtype).removeprefix("torch."),
        "wm_steps_per_second": rates, "real_steps_per_second": real,
        "ratio_single_to_reference": rates["single"] / rates["reference"],
        "ratio_batched_to_reference": rates["batched"] / rates["reference"],
        **{f"ratio_batched_to_real_{name}": rates["batched"] / rate for name, rate in real.items()},
        "same_text_as_reference": same, "drafts": lm.engine.counts.report(), "seconds_by_step": growth(lm, long),
        "by_sessions": by_sessions(asked.model, usable, [int(n) for n in asked.scale.split(",")]),
    }  # fmt: skip
    del lm
    speed["peak_memory_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    out = Path("results") / (asked.name or f"speed-wm-{asked.env}") / "metrics.json"
    about = {"name": out.parent.name, "environment": asked.env, "model": asked.model, "speed": speed}
    for found in chain([{}], others(asked.peers, asked.model, few, many, asked)):
        speed |= compared(rates, found)
        write_json(out, {**about, "provenance": provenance(begun, time.monotonic() - clock)})
    print(f"the plain way's text in {same['value']:.1%} of {same['n']} steps; {speed['drafts']}")


def compared(mine: Rates, found: dict[str, Rates]) -> dict[str, Any]:
    """Other engines' rates, and ours to the best of them."""
    if not found:
        return {}
    own = [rates for name, rates in found.items() if name != OURS_IN_VLLM]
    best = {way: max(rates[way] for rates in own) for way in ("single", "batched")}
    return {"engines": found} | {f"ratio_{way}_to_best_engine": mine[way] / rate for way, rate in best.items()}


if __name__ == "__main__":
    main()
