"""The README's table and picture, and the studies' table, made from the recorded results: ``python -m
worldloom.evaluate.tables``."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from worldloom.evaluate.plots import write_readme_plot
from worldloom.runs import read_json

BEGIN, END = "<!-- results: made by `make tables` -->\n", "<!-- end of results -->"
STUDIES = Path("docs") / "studies.md"
HEAD = (
    "| run | trained on | one-step exact match | say the same again | nothing happens | Real | WM | W2R | CR |\n"
    "|---|---|---|---|---|---|---|---|---|\n"
)
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


def table(results: dict[str, dict[str, Any]]) -> str:
    """Results as a Markdown table; rates in percent with their 95 % intervals."""
    return HEAD + "".join(f"| {' | '.join(_cells(name, metrics))} |\n" for name, metrics in results.items())


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


def _cells(name: str, metrics: dict[str, Any]) -> Iterator[str]:
    one, train = metrics["one_step"], metrics.get("train", {})
    yield f"[{name}](results/{name}/metrics.json)"
    yield f"{train['tokens_seen'] / 1e6:.2f} M tokens in {train['seconds'] / 60:.0f} min" if train else ""
    yield f"{_rate(one['em'])}, {one['n_steps']} steps of {one['n_episodes']} episodes"
    yield from (_rate(one.get("baselines", {}).get(key, {}).get("em")) for key in ("repeat_last", "nothing_happens"))
    overall = metrics.get("consistency", {}).get("overall", {})
    yield from (_rate(overall.get(key)) for key in ("real", "wm", "w2r"))
    yield _ratio(overall.get("cr"), overall.get("n"))


def _ratio(cr: dict[str, float] | None, n: int | None, of: str = "") -> str:
    return f"{cr['value']:.2f} [{cr['low']:.2f}, {cr['high']:.2f}], n={n} {of}".rstrip() if cr else ""


def _rate(rate: dict[str, float] | None) -> str:
    return f"{rate['value']:.1%} [{rate['low']:.1%}, {rate['high']:.1%}]" if rate else ""


def filled(text: str, made: str) -> str:
    """A page with the table put between its two marks."""
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: BEGIN + made + END, text, flags=re.DOTALL)


def main(root: Path = Path()) -> None:
    """Write the tables into README.md and docs/studies.md, and the picture to docs/results.svg."""
    results = recorded(root)
    for page, made in ((root / "README.md", table(results)), (root / STUDIES, study_table(recorded_studies(root)))):
        page.write_text(filled(page.read_text(encoding="utf-8"), made), encoding="utf-8")
    write_readme_plot(root / "docs" / "results.svg", results)


if __name__ == "__main__":
    main()
