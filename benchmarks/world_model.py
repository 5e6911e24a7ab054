"""Steps per second of a world model: the plain way, the engine alone and with many sessions, and the real engine.

    python -m benchmarks.world_model MODEL --data FILE --env alfworld -o games=official

All answer the actions of the same recorded episodes, in one run. The plain way reads the whole history anew at each
step, through transformers' ``generate``. Prints a table and writes results/speed-wm-ENV/metrics.json.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from worldloom.agents import AgentSpec
from worldloom.cli import pairs
from worldloom.envs import EnvSpec
from worldloom.envs.pool import EnvPool
from worldloom.envs.worker import Job
from worldloom.lm.base import MAX_NEW_TOKENS
from worldloom.lm.session import LocalLM, Session
from worldloom.runs import begin, provenance, write_json
from worldloom.trajectory import Trajectory, read

Told = list[list[str]]


def plain(lm: LocalLM, episode: Trajectory, steps: int) -> list[str]:
    """What the model answers by ``generate`` over the whole history, step by step."""
    ids, told = lm.chat.start(episode.initial_context, episode.initial_observation), []
    for number, action in enumerate(episode.actions[:steps]):
        ids += (lm.chat.after_answer if number else []) + lm.chat.action(action)
        given = torch.tensor([ids])
        with torch.inference_mode():
            found = lm.model.generate(
                given, attention_mask=torch.ones_like(given), do_sample=False, max_new_tokens=MAX_NEW_TOKENS,
                eos_token_id=lm.chat.end, pad_token_id=lm.chat.end,
            )  # fmt: skip
        told.append(lm.chat.decode(found[0, len(ids) :].tolist()))
        ids = found[0].tolist()
    return told


def begun(lm: LocalLM, episode: Trajectory) -> Session:
    return lm.session(episode.initial_context, episode.initial_observation)


def engine(lm: LocalLM, episode: Trajectory, steps: int) -> list[str]:
    """What a session answers."""
    session = begun(lm, episode)
    return [session.step(action) for action in episode.actions[:steps]]


def timed(play: Callable[[], Told]) -> tuple[Told, float]:
    """What was told, and steps per second."""
    start = time.monotonic()
    told = play()
    return told, sum(map(len, told)) / (time.monotonic() - start)


def together(lm: LocalLM, episodes: Sequence[Trajectory], steps: int, sessions: int) -> Told:
    with ThreadPoolExecutor(sessions) as threads:
        return list(threads.map(lambda episode: engine(lm, episode, steps), episodes))


def really(env: EnvSpec, episodes: Sequence[Trajectory], steps: int) -> tuple[Told, float]:
    """What the real engine answers in two processes, and steps per second: with resets, without their start."""
    jobs = [
        Job(e.task.id, AgentSpec("replay", {"actions": e.actions[:steps]}), 0, e.task.split or "train", steps)
        for e in episodes
    ]
    with EnvPool(env, workers=2) as pool:
        return timed(lambda: [[s.observation for s in f.result().steps] for f in [pool.submit(job) for job in jobs]])


def growth(lm: LocalLM, episodes: Sequence[Trajectory], steps: int) -> dict[int, float]:
    """Median seconds of a step by its index, one session at a time."""
    found: dict[int, list[float]] = {}
    for episode in episodes:
        session = begun(lm, episode)
        for number, action in enumerate(episode.actions[:steps], 1):
            start = time.monotonic()
            session.step(action)
            found.setdefault(number, []).append(time.monotonic() - start)
    return {number: sorted(seconds)[len(seconds) // 2] for number, seconds in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--env", default="alfworld")
    parser.add_argument("--option", "-o", action="append")
    parser.add_argument("--sessions", type=int, default=16)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--alone", type=int, default=3, help="episodes for the ways that take one at a time")
    asked = parser.parse_args()
    begun_at, started = begin(), time.monotonic()
    usable = [t for t in sorted(read(asked.data), key=lambda t: t.task.id) if len(t.steps) >= asked.steps]
    few, many = usable[: asked.alone], usable[: asked.sessions]
    lm, bare = LocalLM(asked.model), LocalLM(asked.model, draft=False)
    engine(lm, few[0], 2)  # whatever is done once, is done
    rates: dict[str, float] = {}
    told: dict[str, Any] = {}
    ways: dict[str, Callable[[], Told]] = {
        "plain": lambda: [plain(lm, e, asked.steps) for e in few],
        "kept": lambda: [engine(bare, e, asked.steps) for e in few],
        "single": lambda: [engine(lm, e, asked.steps) for e in few],
        "batched": lambda: together(lm, many, asked.steps, asked.sessions),
    }
    told["real"], rates["real"] = really(EnvSpec(asked.env, pairs(asked.option)), many, asked.steps)
    for name, play in ways.items():
        told[name], rates[name] = timed(play)
        print(f"{name:<8} {rates[name]:8.2f} steps/s   {rates[name] / rates['plain']:6.1f} x plain", flush=True)
    print(f"real     {rates['real']:8.2f} steps/s")
    report(asked, rates, told, lm, begun_at, started, growth(lm, few, 50))


def report(
    asked: Any, rates: dict[str, float], told: dict[str, Any], lm: LocalLM, begun_at: Any, started: float,
    by_step: dict[int, float],
) -> None:  # fmt: skip
    same = [
        a == b
        for left, right in zip(told["plain"], told["single"], strict=True)
        for a, b in zip(left, right, strict=True)
    ]
    speed = {
        "sessions": asked.sessions, "steps": asked.steps, "precision": str(lm.model.dtype).removeprefix("torch."),
        "wm_steps_per_second": {"single": rates["single"], "batched": rates["batched"], "reference": rates["plain"],
                                "single_without_drafts": rates["kept"]},
        "real_steps_per_second": rates["real"],
        "ratio_single_to_reference": rates["single"] / rates["plain"],
        "ratio_batched_to_reference": rates["batched"] / rates["plain"],
        f"ratio_batched_to_real_{asked.env}": rates["batched"] / rates["real"],
        "same_as_plain": {"n": len(same), "value": sum(same) / len(same)},
        "drafts": lm.engine.counts.report(),
        "seconds_by_step": by_step,
    }  # fmt: skip
    out = Path(f"results/speed-wm-{asked.env}/metrics.json")
    about = {"name": out.parent.name, "environment": asked.env, "model": asked.model, "speed": speed}
    write_json(out, {**about, "provenance": provenance(begun_at, time.monotonic() - started)})
    print(f"the same text as the plain way in {sum(same)} of {len(same)} steps; {lm.engine.counts.report()}")


if __name__ == "__main__":
    main()
