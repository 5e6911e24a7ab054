"""Consistency with anchored worlds: how much of it a share of real answers buys."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from worldloom.anchoring import Anchor, AnchoredEnv
from worldloom.collect import imagine
from worldloom.envs import EnvSpec
from worldloom.envs.remote import RemoteEnvs
from worldloom.envs.worker import Job
from worldloom.errors import ConfigError
from worldloom.evaluate.agreement import wins
from worldloom.evaluate.consistency import Realities, rates, triples
from worldloom.evaluate.stats import difference, interval, ratio
from worldloom.rollout import rollout
from worldloom.rollouts import Play
from worldloom.trajectory import Trajectory
from worldloom.world import Start, WorldModelEnv

Record = dict[str, Any]
NONE = "none"


def check_anchors(anchors: Sequence[Anchor], lm: Any = None) -> None:
    """Refuse what cannot be told apart, or cannot be known.

    Raises:
        ConfigError: two anchors would share their files, or one needs a confidence that the model does not tell.
    """
    names = [_slug(anchor) for anchor in anchors]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"two anchors are alike ({', '.join(twice)}); give each once, in a run of its own if need be")
    if lm is not None and any(a.least_confidence for a in anchors) and not hasattr(lm, "engine"):
        raise ConfigError(f"{lm.name} does not tell how sure it is, so `unsure` cannot be an anchor; use a local model")


def _slug(anchor: Anchor) -> str:
    return re.sub(r"[^\w.]+", "-", str(anchor)).strip("-")


def run_anchored(out: Path, lm: Any, anchor: Anchor, realities: Realities) -> list[Record]:
    """Imagine every episode once more with an anchor, replay it, and give one record for each.

    ``out`` gets ``wm-ANCHOR.jsonl`` and ``w2r-ANCHOR.jsonl``; stopped at any moment, it goes on where it was.
    """
    wm, w2r = (out / f"{kind}-{_slug(anchor)}.jsonl" for kind in ("wm", "w2r"))
    workers = realities.workers
    with _player(realities.env, workers, lm, anchor, realities.starts) as play_one:
        imagine(wm, realities.jobs, play_one, workers)
    marked = {"kind": "anchored", "anchor": str(anchor)}
    return [r | marked | {"key": f"{anchor}|{r['key']}"} for r in triples(realities, wm, w2r)]


@contextmanager
def _player(env: EnvSpec, workers: int, lm: Any, anchor: Anchor, starts: dict[str, Start]) -> Iterator[Play]:
    """What plays one job in an anchored world; as many at once as there are workers, a real environment each."""
    with RemoteEnvs(env) as reals:

        def play_one(job: Job) -> Trajectory:
            with reals.one() as real:
                world, agent = AnchoredEnv(WorldModelEnv(lm, starts, env.name), real, anchor), job.agent.build()
                played = rollout(world, agent, job.task_id, seed=job.seed, split=job.split, max_steps=job.max_steps)
                if played.error is not None:  # an engine that broke is not used again
                    real.close()
            return played

        yield play_one


def anchoring_metrics(anchored: Sequence[Record], plain: Sequence[Record]) -> Record:
    """The ``anchoring`` part of ``metrics.json``: for each anchor, and for none, the share of steps that the real
    environment answered (absent where nothing was imagined), the rates of consistency, and ``cr_gain``, how far CR is
    above that of none (paired by task; absent where no real episode succeeded), in the order of these shares."""
    found = {NONE: _with_share(plain)} if plain else {}
    for anchor in dict.fromkeys(r["anchor"] for r in anchored):
        records = [r for r in anchored if r["anchor"] == anchor]
        gain = _gain(records, plain) if plain else None
        found[anchor] = _with_share(records) | ({"cr_gain": gain} if gain else {})
    return dict(sorted(found.items(), key=lambda item: item[1].get("share_real", {"value": 1.0})["value"]))


def _gain(anchored: Sequence[Record], plain: Sequence[Record]) -> Record | None:
    """CR with an anchor less CR without, of the same real episodes, resampled by task."""
    tasks = sorted({r["task_id"] for r in plain})
    with_it, without = (wins(records, tasks, ["w2r"]) for records in (anchored, plain))
    return difference(with_it, without, wins(plain, tasks, ["real"]))


def _with_share(records: Sequence[Record]) -> Record:
    tasks = sorted({r["task_id"] for r in records})
    steps = {task: [s for r in records if r["task_id"] == task for s in r["wm"]["steps"]] for task in tasks}
    answered = [float(sum(bool(s.get("anchored")) for s in steps[task])) for task in tasks]
    share = interval(ratio, [answered, [float(len(steps[task])) for task in tasks]])
    return ({"share_real": share} if share else {}) | rates(records)
