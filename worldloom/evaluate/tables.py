"""The README's tables and picture, and the docs' tables, made from the recorded results: ``python -m
worldloom.evaluate.tables``."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from worldloom.evaluate.paper import paper_table
from worldloom.evaluate.plots import BASELINES, PROMPTED, write_readme_plot
from worldloom.runs import read_json

Results = Mapping[str, Mapping[str, Any]]
README, EVALUATE = Path("README.md"), Path("docs") / "evaluate.md"
PICTURE = Path("docs") / "results.svg"
SHOWN = re.compile(
    r"demo|[a-z]+-smollm2-cpu(-unseen)?|[a-z-]+-logs"
)  # in the README; what else was recorded stands in the docs
STRATA = ("alfworld-composed", "alfworld")  # worlds whose exact match by kind of step stands in the docs
STUDIES = Path("docs") / "studies.md"
HEAD = (
    "| run | trained on | one-step exact match | best reply without a model | Real | WM | W2R | CR |\n"
    "|---|---|---|---|---|---|---|---|\n"
)
MODELS = {"smollm2-cpu": "fine-tuned", "retrieval": "retrieval", "few-shot": "few-shot", "zero-shot": "zero-shot"}
KINDS = {
    "state_changing": "changes the state", "no_change": "changes nothing", "invalid": "impossible action",
    "first_time": "action for the first time", "done_before": "action done before",
}  # fmt: skip
STUDY_HEAD = (
    "| study | arm | trained on | one-step exact match | nearest transition | Real | WM | W2R | CR |\n"
    "|---|---|---|---|---|---|---|---|---|\n"
)


def recorded(root: Path) -> dict[str, dict[str, Any]]:
    """All recorded results of world models, by name."""
    return _recorded(root, "one_step")


def recorded_studies(root: Path) -> dict[str, dict[str, Any]]:
    """All recorded studies, by name."""
    return _recorded(root, "study")


def _recorded(root: Path, part: str) -> dict[str, dict[str, Any]]:
    paths = sorted((root / "results").glob("*/metrics.json"))
    return {path.parent.name: found for path in paths if part in (found := read_json(path))}


def shown(results: Results) -> Results:
    """Those that stand in the README."""
    return {name: metrics for name, metrics in results.items() if SHOWN.fullmatch(name)}


def table(results: Results) -> str:
    """Results as a Markdown table; rates in percent with their 95 % intervals."""
    return HEAD + "".join(f"| {' | '.join(_cells(name, metrics))} |\n" for name, metrics in shown(results).items())


def study_table(results: dict[str, dict[str, Any]]) -> str:
    """Recorded studies as a Markdown table, a row an arm; nothing if there is none."""
    rows = (_arm(name, arm, of) for name, found in results.items() for arm, of in found["study"]["arms"].items())
    told = "".join(f"| {' | '.join(cells)} |\n" for cells in rows)
    return STUDY_HEAD + told if told else ""


def _arm(name: str, arm: str, of: dict[str, Any]) -> Iterator[str]:
    yield f"[{name}](../results/{name}/metrics.json)"
    yield arm
    yield f"{of['trajectories']} trajectories, {of['tokens'] / 1e6:.2f} M tokens, {of['minutes']:.0f} min"
    yield f"{_rate(of['em'])}, {of['n_steps']} steps of {of['n']} episodes"
    yield from (_rate(of.get(key)) for key in ("retrieval", "real", "wm", "w2r"))
    yield _ratio(of.get("cr"), of.get("n_tasks"), "tasks")


def _cells(name: str, metrics: Mapping[str, Any]) -> Iterator[str]:
    one, train = metrics["one_step"], metrics.get("train", {})
    yield f"[{name}](results/{name}/metrics.json)"
    yield f"{train['tokens_seen'] / 1e6:.2f} M tokens in {train['seconds'] / 60:.0f} min" if train else ""
    yield f"{_rate(one['em'])}, {one['n_steps']} steps of {one['n_episodes']} episodes"
    yield _best(one.get("baselines", {}))
    overall = metrics.get("consistency", {}).get("overall", {})
    yield from (_rate(overall.get(key)) for key in ("real", "wm", "w2r"))
    yield _ratio(overall.get("cr"), overall.get("n"))


def _ratio(cr: dict[str, float] | None, n: int | None, of: str = "") -> str:
    if not cr:
        return ""
    wins = f", {cr['of']} real wins" if "of" in cr else ""  # older results do not tell
    return f"{cr['value']:.2f} [{cr['low']:.2f}, {cr['high']:.2f}], n={n} {of}".rstrip() + wins


def _best(baselines: Mapping[str, Any]) -> str:
    """The baseline without a language model that is right most often, by name."""
    rated = {name: found["em"] for name, found in baselines.items() if found.get("em") and name != PROMPTED}
    name = max(rated, key=lambda each: rated[each]["value"], default="")
    return f"{_rate(rated[name])}, {BASELINES.get(name, name)}" if name else ""


def _rate(rate: Mapping[str, float] | None) -> str:
    return f"{rate['value']:.1%} [{rate['low']:.1%}, {rate['high']:.1%}]" if rate else ""


def strata_table(results: Results, env: str = "alfworld") -> str:
    """Exact match by kind of step as a Markdown table, a column a model of one environment: fine-tuned, retrieval,
    few-shot, zero-shot, as far as they were recorded on the same split; nothing if none was."""
    runs = {label: found for name, label in MODELS.items() if (found := results.get(f"{env}-{name}"))}
    split = next((found.get("split") for found in runs.values()), None)
    runs = {label: found for label, found in runs.items() if found.get("split") == split}
    if not runs:
        return ""
    head = f"| {env}, {split} | {' | '.join(runs)} |\n|---|{'---|' * len(runs)}\n"
    return head + "".join(f"| {' | '.join(row)} |\n" for row in _strata([found["one_step"] for found in runs.values()]))


def _strata(parts: list[Mapping[str, Any]]) -> Iterator[list[str]]:
    yield ["all steps", *(f"{_rate(part['em'])} of {part['n_steps']:,}" for part in parts)]
    for name, label in KINDS.items():
        cells = [f"{_rate(of['em'])} of {of['n']:,}" if (of := part["strata"].get(name)) else "" for part in parts]
        if any(cells):
            yield [label, *cells]


def filled(text: str, made: str, mark: str = "results") -> str:
    """A page with a table put between its two marks."""
    begin, end = f"<!-- {mark}: made by `make tables` -->\n", f"<!-- end of {mark} -->"
    return re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: begin + made + end, text, flags=re.DOTALL)


def pages(root: Path) -> dict[Path, dict[str, str]]:
    """What stands between the marks of each page, from the results recorded in a repository."""
    results = recorded(root)
    return {
        README: {"results": table(results), "paper": paper_table(results)},
        EVALUATE: {"strata": "\n".join(filter(None, (strata_table(results, world) for world in STRATA)))},
        STUDIES: {"results": study_table(recorded_studies(root))},
    }


def page(root: Path, path: Path, tables: Mapping[str, str]) -> str:
    """The text of a page with its tables filled in."""
    text = (root / path).read_text(encoding="utf-8")
    for mark, made in tables.items():
        text = filled(text, made, mark)
    return text


def main(root: Path = Path()) -> None:
    """Write the tables into README.md and the docs, and the picture to docs/results.svg."""
    for path, tables in pages(root).items():
        (root / path).write_text(page(root, path, tables), encoding="utf-8")
    results = recorded(root)
    write_readme_plot(root / PICTURE, {_short(name): metrics for name, metrics in shown(results).items()})


def _short(name: str) -> str:
    """What a run is called under its bars: ``alfworld-smollm2-cpu-unseen`` is "alfworld unseen"."""
    return name.replace("-smollm2-cpu", "").replace("-", " ")


if __name__ == "__main__":
    main()
