"""Whether what the engine says, drafted and with many sessions at once, is what plain greedy decoding says.

    python -m benchmarks.lossless MODEL --data FILE [--steps 300]

Sessions answer the actions of recorded episodes, with their own answers as history. Then transformers' ordinary
forward pass reads each imagined episode whole, with no cache and no draft: greedy decoding says the same if each token
of each answer is the likeliest after all that stands before it. In float32 all must be; in bfloat16, whose sums depend
on their order, each difference is reported with how much likelier (in logits) the other token was.
Writes results/lossless-ENV/metrics.json.
"""

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Any

import torch

from worldloom.lm.hf import load_model
from worldloom.lm.session import LocalLM, Session
from worldloom.origin import begin, provenance
from worldloom.runs import write_json
from worldloom.trajectory import Trajectory, read

SESSIONS = 16


def played(lm: LocalLM, episode: Trajectory) -> Session:
    """A session that has answered all actions of an episode."""
    session = lm.session(episode.initial_context, episode.initial_observation)
    for action in episode.actions:
        session.step(action)
    return session


def answers(session: Session) -> list[range]:
    """Where in the session's tokens each answer stands."""
    ends = [turn.length for turn in session.turns[1:]] + [len(session.ids)]
    return [range(turn.answer, end) for turn, end in zip(session.turns, ends, strict=True)]


@torch.inference_mode()
def gaps(model: Any, session: Session, spans: list[range]) -> list[float]:
    """For each answer: the most by which another token was likelier than one of its own; 0 if none was."""
    logits = model(input_ids=torch.tensor([session.ids])).logits[0].float()
    found = []
    for span in spans:
        rows = logits[span.start - 1 : span.stop - 1]
        said = torch.tensor(session.ids[span.start : span.stop])
        found.append(float((rows.max(-1).values - rows.gather(-1, said[:, None])[:, 0]).max()))
    return found


def compared(name: str, episodes: list[Trajectory], dtype: torch.dtype) -> dict[str, Any]:
    """How many answers are plain greedy decoding's, and by how much the others differ."""
    lm, reference = LocalLM(name, dtype), load_model(name, dtype).eval()
    with ThreadPoolExecutor(SESSIONS) as threads:
        sessions = list(threads.map(lambda episode: played(lm, episode), episodes))
    found = [g for s in sessions for g in gaps(reference, s, answers(s))]
    others = sorted(gap for gap in found if gap > 0)
    return {"n": len(found), "value": 1 - len(others) / len(found), "gaps": others, "drafts": lm.engine.counts.report()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=300, help="at least so many, in whole episodes")
    asked = parser.parse_args()
    begun, clock = begin(f"python -m benchmarks.lossless {' '.join(sys.argv[1:])}"), time.monotonic()
    known = sorted(read(asked.data), key=lambda t: t.task.id)
    before = accumulate((len(t.steps) for t in known), initial=0)
    episodes = [t for t, _ in takewhile(lambda pair: pair[1] < asked.steps, zip(known, before, strict=False))]
    same = {
        str(dtype).removeprefix("torch."): compared(asked.model, episodes, dtype)
        for dtype in (torch.float32, torch.bfloat16)
    }
    for precision, found in same.items():
        print(f"{precision}: {found['value']:.1%} of {found['n']} answers are greedy decoding's, gaps {found['gaps']}")
    out = Path(f"results/lossless-{episodes[0].env.name}/metrics.json")
    about = {"name": out.parent.name, "environment": episodes[0].env.name, "model": asked.model}
    metrics = {**about, "same_text_as_greedy": same, "provenance": provenance(begun, time.monotonic() - clock)}
    write_json(out, metrics)


if __name__ == "__main__":
    main()
