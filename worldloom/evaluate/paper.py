"""What "From Word to World" (Word2World, arXiv 2512.18832) reports, beside what was measured here.

Its one-step figures are those of Qwen2.5-7B fine-tuned; its rates of success are the mean over seven language-model
agents in the same model. Tasks, agents and sizes are not ours: a reader is told so beside every figure.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

SIZE = "7 B (Qwen2.5)"


class Reported(NamedTuple):
    """One environment's line in the paper; percents as printed, None where it has none."""

    name: str
    em: float
    word_f1: float | None
    rates: tuple[float, float, float, float] | None  # Real, WM, W2R in percent; CR
    trajectories: int


PAPER = {
    "alfworld": Reported("ALFWorld", 99.87, None, (61.51, 58.16, 59.19, 0.96), 40_000),
    "scienceworld": Reported("ScienceWorld", 98.60, None, (45.43, 42.10, 41.13, 0.91), 40_000),
    "textworld": Reported("TextWorld", 70.60, None, (99.47, 99.92, 91.58, 0.92), 40_000),
    "webshop": Reported("WebShop", 79.05, None, (30.17, 21.79, 20.13, 0.67), 70_000),
    "toolbench": Reported("StableToolBench", 48.90, 79.15, None, 160_000),
}
OTHERS = {"support": "support desk", "backoffice": "back office"}  # not in the paper
SUFFIX = "-smollm2-cpu"
HEAD = (
    "| world | parameters, episodes learnt from | exact match | Real | WM | W2R | CR |\n|---|---|---|---|---|---|---|\n"
)


def paper_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """A Markdown table with our line and the paper's for every environment that was measured, in the paper's order."""
    named = {env: of.name for env, of in PAPER.items()} | OTHERS
    rows = (
        row for env, name in named.items() if (found := results.get(env + SUFFIX)) for row in _rows(env, name, found)
    )
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _rows(env: str, name: str, found: Mapping[str, Any]) -> Iterator[list[str]]:
    yield [f"[{name}](results/{env}{SUFFIX}/metrics.json)", *_ours(env, found)]
    if paper := PAPER.get(env):
        exact = f"{paper.em:.2f}%" + (f", word F1 {paper.word_f1:.2f}%" if paper.word_f1 is not None else "")
        rates = [f"{value:.2f}%" for value in paper.rates[:3]] + [f"{paper.rates[3]:.2f}"] if paper.rates else [""] * 4
        yield [f"{name}, the paper's", f"{SIZE}, {paper.trajectories:,}", exact, *rates]


def _ours(env: str, found: Mapping[str, Any]) -> Iterator[str]:
    train, one = found["train"], found["one_step"]
    yield f"{train['trainable_parameters'] / 1e6:.0f} M, {train['trajectories_seen']:,}"
    yield _percent(one["em"]) + (f", word F1 {_percent(one['word_f1'])}" if env == "toolbench" else "")
    overall = (found.get("consistency") or {}).get("overall") or {}
    yield from (_percent(overall.get(key)) for key in ("real", "wm", "w2r"))
    yield f"{overall['cr']['value']:.2f}" if overall.get("cr") else ""


def _percent(rate: Mapping[str, float] | None) -> str:
    return f"{rate['value']:.1%}" if rate else ""
