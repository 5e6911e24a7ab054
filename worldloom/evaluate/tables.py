"""The README's table and picture, made from the recorded results: ``python -m worldloom.evaluate.tables``."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from worldloom.evaluate.plots import write_readme_plot
from worldloom.runs import read_json

BEGIN, END = "<!-- results: made by `make tables` -->\n", "<!-- end of results -->"
HEAD = (
    "| run | trained on | one-step exact match | say the same again | nothing happens | Real | WM | W2R | CR |\n"
    "|---|---|---|---|---|---|---|---|---|\n"
)


def recorded(root: Path) -> dict[str, dict[str, Any]]:
    """All recorded results of world models, by name."""
    paths = sorted((root / "results").glob("*/metrics.json"))
    return {path.parent.name: found for path in paths if "one_step" in (found := read_json(path))}


def table(results: dict[str, dict[str, Any]]) -> str:
    """Results as a Markdown table; rates in percent with their 95 % intervals."""
    return HEAD + "".join(f"| {' | '.join(_cells(name, metrics))} |\n" for name, metrics in results.items())


def _cells(name: str, metrics: dict[str, Any]) -> Iterator[str]:
    one, train = metrics["one_step"], metrics.get("train", {})
    yield f"[{name}](results/{name}/metrics.json)"
    yield f"{train['tokens_seen'] / 1e6:.2f} M tokens in {train['seconds'] / 60:.0f} min" if train else ""
    yield f"{_rate(one['em'])}, {one['n_steps']} steps of {one['n_episodes']} episodes"
    yield from (_rate(one.get("baselines", {}).get(key, {}).get("em")) for key in ("repeat_last", "nothing_happens"))
    overall = metrics.get("consistency", {}).get("overall", {})
    yield from (_rate(overall.get(key)) for key in ("real", "wm", "w2r"))
    cr = overall.get("cr")
    yield f"{cr['value']:.2f} [{cr['low']:.2f}, {cr['high']:.2f}], n={overall['n']}" if cr else ""


def _rate(rate: dict[str, float] | None) -> str:
    return f"{rate['value']:.1%} [{rate['low']:.1%}, {rate['high']:.1%}]" if rate else ""


def filled(text: str, made: str) -> str:
    """A page with the table put between its two marks."""
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: BEGIN + made + END, text, flags=re.DOTALL)


def main(root: Path = Path()) -> None:
    """Write the table into README.md and the picture to docs/results.svg."""
    results = recorded(root)
    readme = root / "README.md"
    readme.write_text(filled(readme.read_text(encoding="utf-8"), table(results)), encoding="utf-8")
    write_readme_plot(root / "docs" / "results.svg", results)


if __name__ == "__main__":
    main()
