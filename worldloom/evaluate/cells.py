"""What stands in a report's tables: numbers as people read them.

A cell that has no value says "-", never 0.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from worldloom.evaluate.page import Table
from worldloom.evaluate.plots import BASELINES, PROMPTED, Rate

ABSENT = "-"
RATE_HEAD = ["what", "value, %", "interval, %", "n"]
EXACT = {
    "em": "exact match",
    "em_macro": "exact match, mean over episodes",
    "em_observation": "exact match of the observation alone",
    "em_without_counters": "exact match, counters set aside",
    "em_without_order": "exact match, order of lists set aside",
    "word_f1": "word F1",
    "reward_error": "reward error, mean",
}
TERMINAL = {
    "precision": "terminal precision",
    "recall": "terminal recall",
    "f1": "terminal F1",
    "false_success_rate": "false-success rate",
}
TOOL_ANSWERS = {"json": "answered with JSON, too", "schema_agreement": "keys and types in common"}
WORLDS = {"real": "Real", "wm": "WM", "w2r": "W2R", "cr": "CR", "cr_paired": "paired CR"}
RATIOS = {"CR", "paired CR"}  # quotients of two rates: 0.96, not 96 %
_WHOLE_FROM = 1000  # a larger number is shown without decimals


def rate_row(name: str, rate: Rate, n: int | None = None) -> list[str]:
    """A row under ``RATE_HEAD``."""
    return [name, value(rate), interval(rate) or ABSENT, size(rate, n)]


def size(rate: Rate, n: int | None = None) -> str:
    """Of how many a rate is: "41 in 38" is 41 steps in 38 episodes. Of older results the denominator is not known.

    Args:
        n: told where the rate itself has no number.
    """
    rows = number(n if rate.n is None else rate.n)
    return rows if rate.total in (None, rate.n) else f"{number(rate.total)} in {rows}"


def value(rate: Rate, ratio: bool = False) -> str:
    """A rate in percent; a quotient of two rates as it is: 0.96, not 96 %."""
    return f"{rate.value:z.2f}" if ratio else f"{100 * rate.value:z.1f}"


def interval(rate: Rate, ratio: bool = False) -> str:
    """The bounds of a rate, nothing if there are none; see ``value``."""
    if rate.low is None or rate.high is None:
        return ""
    return f"[{rate.low:z.2f}, {rate.high:z.2f}]" if ratio else f"[{100 * rate.low:z.1f}, {100 * rate.high:z.1f}]"


def rated(rate: Rate | None, ratio: bool = False) -> str:
    """A rate and its bounds in one cell; see ``value``."""
    return f"{value(rate, ratio)} {interval(rate, ratio)}".strip() if rate else ABSENT


def counted(rate: Rate | None, ratio: bool = False) -> str:
    """A rate, its bounds, and of how many it is, in one cell; see ``value`` and ``size``."""
    known = rate is not None and (rate.n or rate.total) is not None
    return f"{rated(rate, ratio)}, n = {size(rate)}" if rate and known else rated(rate, ratio)


def signed(rate: Rate | None) -> str:
    """A difference of two rates and its bounds, in percentage points."""
    if rate is None:
        return ABSENT
    bounds = "" if rate.low is None or rate.high is None else f" [{100 * rate.low:+z.1f}, {100 * rate.high:+z.1f}]"
    return f"{100 * rate.value:+z.1f}{bounds}"


def rates(found: Mapping[str, Any] | None, names: Mapping[str, str]) -> list[tuple[str, Rate]]:
    """Those of ``names`` (key -> what it is called) that were measured."""
    read = ((name, Rate.of((found or {}).get(key))) for key, name in names.items())
    return [(name, rate) for name, rate in read if rate]


def baselines(one_step: Mapping[str, Any]) -> Iterator[tuple[str, Rate]]:
    """What each baseline without a language model is called, and its exact match."""
    for name, found in (one_step.get("baselines") or {}).items():
        if name != PROMPTED and (rate := Rate.of(found.get("em"))):
            yield BASELINES.get(name, name), rate


def kind(name: str) -> str:
    """What a kind of step is called: ``state_changing`` is "state changing"."""
    return name.replace("_", " ")


def facts(caption: str, found: Mapping[str, Any]) -> Table:
    """A table of whatever there is, by its keys."""
    return Table(caption, ["what", "value"], [[name, number(value)] for name, value in _flat(found)])


def _flat(found: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in found.items():
        name = f"{above}{key}".replace("_", " ")
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}: ")
        elif isinstance(value, list):
            yield from _listed(name, value)
        elif value is not None:
            yield name, value


def _listed(name: str, values: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    parts = [(f"{name} {n}", value) for n, value in enumerate(values, 1) if isinstance(value, Mapping)]
    for part, value in parts:
        yield from _flat(value, f"{part}: ")
    if not parts:
        yield name, ", ".join(map(str, values))


def number(value: Any) -> str:
    """A number as people read it; anything else as it is."""
    if value is None:
        return ABSENT
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= _WHOLE_FROM else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
