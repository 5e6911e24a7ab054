"""A page of numbers: one HTML file that needs nothing else, not even a network. Reports say what stands on it."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from worldloom.evaluate.plots import colours


class Headline(NamedTuple):
    """One number at the top of the page."""

    name: str
    value: str
    interval: str
    of: str


class Table(NamedTuple):
    """A table as texts. ``folded`` ones, the data of a plot, open at a click; ``texts`` are broken into lines."""

    caption: str
    head: list[str]
    rows: list[list[str]]
    folded: bool = False
    texts: bool = False


class Section(NamedTuple):
    """A heading, and under it a sentence, an SVG element and tables, each optional."""

    heading: str
    note: str = ""
    plot: Markup = Markup()
    tables: tuple[Table, ...] = ()


def write_page(
    path: Path,
    *,
    title: str,
    subtitle: str = "",
    headlines: Sequence[Headline] = (),
    sections: Sequence[Section] = (),
    episodes: Sequence[Any] = (),
    left_out: int = 0,
) -> Path:
    """Write the page, replacing the file in one move, and return its path.

    Args:
        path: The HTML file to write; its folder is made.
        title: The heading.
        subtitle: A line under it.
        headlines: The numbers at the top.
        sections: What follows, in order.
        episodes: Episodes to look through, as ``viewer.select`` gives them.
        left_out: How many more of them there are.
    """
    page = _template().render(
        title=title, light=colours(0), dark=colours(1), subtitle=subtitle, headlines=headlines, sections=sections,
        episodes=episodes, left_out=left_out,
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".part")
    draft.write_text(page, encoding="utf-8")
    draft.replace(path)
    return path


@cache
def _template() -> Template:
    loader = PackageLoader("worldloom.evaluate", "templates")
    found = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return found.get_template("report.html.j2")
