"""The pages in a real browser, light and dark, wide and narrow: nothing is loaded, nothing fails, all can be read.

Screenshots are kept in ``build/screenshots`` (or ``$WORLDLOOM_SCREENSHOTS``), to be looked at.
"""

import json
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.evaluate.test_compare import worlds
from tests.evaluate.test_known_answers import one_step, right, wrong_in_a_tenth
from worldloom.evaluate.comparison import compare
from worldloom.evaluate.metrics import measured, report
from worldloom.evaluate.report import write_report
from worldloom.runs import write_json

pytestmark = [pytest.mark.browser, pytest.mark.timeout(1200)]
ROOT = Path(__file__).parents[2]
SHOTS = Path(os.environ.get("WORLDLOOM_SCREENSHOTS") or ROOT / "build" / "screenshots")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
PATIENCE = 300_000  # milliseconds; a busy machine is no failure


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Debian's chromium (or another one on the path), with a profile of its own that is thrown away."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium is installed (Debian: apt-get install chromium)")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=program, args=FLAGS, timeout=PATIENCE)
        yield found
        found.close()


class Seen:
    """A page as a reader sees it, and what went on behind it."""

    def __init__(self, browser: Any, path: Path, scheme: str = "light", width: int = 1200):
        self.context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.told: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.told.append(message.text))
        self.page.on("pageerror", lambda error: self.told.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.url = path.as_uri()
        self.page.goto(self.url)

    def shot(self, name: str) -> Path:
        SHOTS.mkdir(parents=True, exist_ok=True)
        path = SHOTS / f"{name}.png"
        self.page.screenshot(path=path, full_page=True)
        return path

    def __enter__(self) -> "Seen":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three finished evaluations of synthetic models that say how sure they are."""
    folder = tmp_path_factory.mktemp("runs")
    models = {
        "oracle": right,
        "wrong-in-a-tenth": wrong_in_a_tenth,
        "claims-success": lambda e, n, s: f"{s.observation} [SUCCESS]",
    }
    for place, (name, says) in enumerate(models.items()):
        records = one_step(says)
        for number, step in enumerate(step for record in records for step in record["steps"]):
            chance = (0.2 + 0.79 * (number % 10) / 10) / (1 if step["correct"] else 2)
            step["confidence"] = {"logprob": math.log(chance), "lowest": math.log(chance), "tokens": 5}
        bought = worlds([1] * 10, [1] * 10)
        for record in bought:
            record["wm"]["steps"] *= 5
            record["wm"]["steps"][0] = record["wm"]["steps"][0] | {"anchored": True}
        plays = worlds([1] * (10 - 2 * place) + [0] * 2 * place, [1] * (10 - 3 * place) + [0] * 3 * place)
        anchored = [{**r, "kind": "anchored", "anchor": "every=5", "key": f"every=5|{r['key']}"} for r in bought]
        records += [*plays, *anchored]
        (folder / name).mkdir()
        (folder / name / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        told = {"name": name, "environment": "e", "split": "test", "model": f"models/{name}", **measured(records)}
        told["provenance"] = {"command": "worldloom evaluate models/" + name, "git_commit": "0" * 40}
        write_json(folder / name / "metrics.json", told)
    return folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("kind", ["report", "comparison"])
def test_a_page_loads_nothing_and_can_be_read(browser: Any, run: Path, kind: str, width: int, scheme: str) -> None:
    names = ["oracle", "wrong-in-a-tenth", "claims-success"]
    path = report(run / names[1]) if kind == "report" else compare([run / n for n in names], run / "comparison.html")
    with Seen(browser, path, scheme, width) as seen:
        image = seen.shot(f"{kind}-{scheme}-{width}").read_bytes()
        assert image.startswith(b"\x89PNG") and int.from_bytes(image[16:20], "big") == width
        assert (seen.told, seen.asked) == ([], [seen.url])
        wide, plots = seen.page.evaluate(
            "[document.documentElement.scrollWidth, document.querySelectorAll('svg').length]"
        )
        assert wide == width  # only what is too wide scrolls, not the page
        assert plots >= 5
        paper, ink = seen.page.evaluate(
            "[getComputedStyle(document.documentElement).backgroundColor, getComputedStyle(document.body).color]"
        )
        assert (
            brightness(paper) > 200 > 60 > brightness(ink)
            if scheme == "light"
            else (brightness(paper) < 60 < 200 < brightness(ink))
        )
        # No column of words is squeezed to a letter a line: no row is higher than a few lines.
        assert seen.page.evaluate("Math.max(...[...document.querySelectorAll('tr')].map((r) => r.offsetHeight))") < 240


def brightness(colour: str) -> float:
    """Of a computed colour, from 0 to 255."""
    return sum(float(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")) / 3


def test_a_table_is_copied_as_tab_separated_values(browser: Any, run: Path) -> None:
    with Seen(browser, report(run / "wrong-in-a-tenth")) as seen:
        seen.context.grant_permissions(["clipboard-read", "clipboard-write"])
        seen.page.locator("button.copy").first.click()
        assert seen.page.locator("button.copy").first.inner_text() == "copied"
        lines = seen.page.evaluate("navigator.clipboard.readText()").splitlines()
    assert lines[:2] == ["what\tvalue, %\tinterval, %\tn", "exact match\t90.0\t[62.2, 93.1]\t10"]
    assert all(line.count("\t") == 3 for line in lines)


def test_the_viewer_opens_at_the_first_difference(browser: Any, tmp_path: Path) -> None:
    same = {
        "gold": "You see nothing special here. " * 20,
        "predicted": "You see nothing special here. " * 20,
        "correct": True,
    }
    other = {"gold": "a pen", "predicted": "a mug", "correct": False}
    rows = [{"index": n, "action": f"act {n}", **(same if n < 41 else other)} for n in range(1, 45)]
    records = [
        {"kind": "one_step", "key": task, "task_id": task, "steps": steps}
        for task, steps in (("a", rows), ("b", rows[40:]))
    ]
    path = write_report(tmp_path / "report.html", title="a run", metrics={}, records=records)
    with Seen(browser, path) as seen:
        shown = seen.page.locator(".episode:visible")
        assert shown.count() == 1
        inside = """(box) => { const step = box.querySelector(".differs").getBoundingClientRect();
            const frame = box.getBoundingClientRect();
            return step.top >= frame.top && step.bottom <= frame.bottom + 1; }"""
        assert shown.locator(".steps").evaluate(inside)
        assert shown.locator(".steps").evaluate("(box) => box.scrollTop") > 500  # forty steps lie before it
        seen.page.get_by_role("button", name="next").click()
        assert shown.locator("h3").inner_text().startswith("b ")
        assert seen.told == []
