"""WebShop on its real catalogue of 1,000 products."""

import json
from fractions import Fraction
from pathlib import Path

import pytest

from worldloom.agents.gold import GoldFollower, Replay
from worldloom.envs import EnvSpec
from worldloom.envs.check import check_env
from worldloom.envs.webshop import WebShop
from worldloom.envs.webshop_catalogue import catalogue, fetch, product_of
from worldloom.envs.webshop_reward import colour, reward
from worldloom.errors import ConfigError, EnvError, MissingDependency
from worldloom.rollout import rollout

pytest.importorskip("bm25s", reason='WebShop\'s search is not installed: pip install "worldloom[webshop]"')
LAMP, TOP, SHOE = "B07Q87P8DQ-0002", "B089K79PQ1-0000", "B09HH6P68W-0009"


@pytest.fixture(scope="module")
def folder(data_dir: Path) -> str:
    return str(data_dir / "webshop")


@pytest.fixture
def shop(folder: str) -> WebShop:
    return WebShop(folder)


# Worked out by hand from the products' pages. The goals: a lamp (2 attributes, colour globe-antique, at most $120),
# a top (5 attributes, size medium, at most $40), a pair of shoes (4 attributes, size 11, at most $130).
BOUGHT = [
    (LAMP, "B07Q87P8DQ", {"color": "globe-antique"}, Fraction(1)),
    (LAMP, "B07Q87P8DQ", {}, Fraction(3, 4)),  # no colour chosen
    (LAMP, "B07Q87P8DQ", {"color": "oval-antique"}, Fraction(3, 4)),  # the wrong one
    (LAMP, "B07Q87P8DQ", {"color": "funnel-black"}, Fraction(1)),  # wrong, but its features name a black cord
    (LAMP, "B07ZBCF88X", {}, Fraction(1, 2)),  # $199.99; no colour
    (LAMP, "B07ZBCF88X", {"color": "black"}, Fraction(3, 4)),  # its title says black
    (LAMP, "B0928LGTVF", {}, Fraction(3, 4)),  # $113.99, a wall lamp: two categories and 3 of 14 nouns in common
    (LAMP, "B0928LGTVF", {"color": "2-light", "size": "2-pack"}, Fraction(1)),  # its title says 2-light
    (LAMP, "B0854JTZMT", {}, Fraction(0)),  # no attribute met, $169.99
    (LAMP, "B09HH6P68W", {}, Fraction(0)),  # shoes: no noun in common
    (TOP, "B089K79PQ1", {"size": "medium"}, Fraction(1)),
    (TOP, "B089K79PQ1", {}, Fraction(6, 7)),
    (TOP, "B089K79PQ1", {"size": "large"}, Fraction(6, 7)),
    (TOP, "B09PLBDCBY", {}, Fraction(3, 7)),  # to be washed by hand and cold; cheap
    (TOP, "B09PLBDCBY", {"size": "medium"}, Fraction(4, 7)),
    (SHOE, "B09HH6P68W", {"size": "11"}, Fraction(1)),
    (SHOE, "B09HH6P68W", {}, Fraction(5, 6)),
    (SHOE, "B082MT9162", {}, Fraction(1, 3)),  # a rubber sole; cheap
    (SHOE, "B082MT9162", {"size": "11"}, Fraction(1, 2)),
    (SHOE, "B07RPMCNKD", {}, Fraction(1, 20)),  # non slip, a rubber sole, cheap: 3/6; 1 of 15 nouns: a tenth of that
    (SHOE, "B07RPMCNKD", {"size": "11-12"}, Fraction(1, 20)),
    (SHOE, "B07Q87P8DQ", {}, Fraction(0)),
]


@pytest.mark.parametrize(("goal", "asin", "options", "worth"), BOUGHT)
def test_a_purchase_is_worth_what_the_published_formula_gives(
    folder: str, goal: str, asin: str, options: dict[str, str], worth: Fraction
) -> None:
    shop = catalogue(folder)
    assert reward(shop.products[asin], options, shop.goals[goal]).value == pytest.approx(float(worth))


def test_a_colour_is_the_first_that_is_named() -> None:
    assert [colour(text) for text in ("light blue", "black and brass", "globe-antique")] == [
        "blue", "black", "globe-antique",
    ]  # fmt: skip


def test_every_goal_of_the_data_is_there_in_three_disjoint_splits(shop: WebShop) -> None:
    ids = {split: shop.task_ids(split) for split in shop.splits}
    assert {split: len(found) for split, found in ids.items()} == {"train": 5410, "valid": 1000, "test": 500}
    assert len({task for found in ids.values() for task in found}) == 6910
    with pytest.raises(ConfigError, match="no split 'tset'"):
        shop.task_ids("tset")


def test_the_way_to_a_purchase(shop: WebShop) -> None:
    first = shop.reset(LAMP)
    wanted = (
        "Find me pendants and chandeliers with glass shade, clear glass with color: globe-antique, "
        "and price lower than 120.00 dollars"
    )
    head = f"Instruction: [SEP] {wanted} [SEP] "
    assert first.text == f"WebShop [SEP] {head}Search"
    assert first.instruction == wanted
    assert first.initial_context is None
    assert shop.step("click[back to search]").observation == first.text  # cannot be done here: the page again
    found = shop.step("search[Permo chandelier]")
    assert found.observation.startswith(f"{head}Back to Search [SEP] Page 1 (Total results: ")
    assert "B07Q87P8DQ [SEP] Permo Vintage Rustic" in found.observation
    assert shop.step("search[again]").observation == found.observation
    item = shop.step("click[b07q87p8dq]").observation
    assert item.startswith(
        f"{head}Back to Search [SEP] < Prev [SEP] color [SEP] funnel-antique [SEP] funnel-black [SEP] globe-antique"
    )
    assert item.endswith(
        "[SEP] Price: $94.99 [SEP] Rating: N.A. [SEP] Description [SEP] Features [SEP] Reviews [SEP] Attributes "
        "[SEP] Buy Now"
    )
    assert shop.step("click[attributes]").observation.endswith(
        "< Prev [SEP] glass shade [SEP] clear glass [SEP] kitchen island [SEP] garden [SEP] pendants and chandeliers "
        "[SEP] Tools & Home Improvement › Lighting & Ceiling Fans › Ceiling Lights › Pendant Lights"
    )
    assert shop.step("click[< prev]").observation == item
    assert shop.step("click[globe-antique]").observation == item
    end = shop.step("click[buy now]")
    assert end.observation == "Thank you for shopping with us! [SEP] Your score (min 0.0, max 1.0) [SEP] 1"
    assert (end.reward, end.terminated, end.info["terminal"]) == (1.0, True, "success")
    with pytest.raises(EnvError, match="the episode has ended"):
        shop.step("click[back to search]")


def test_what_a_click_changes_is_more_than_the_page_shows(shop: WebShop) -> None:
    shop.reset(LAMP)
    done = [
        ("click[search]", False, True),  # the button is there, but what is searched has to be said
        ("look", False, True),
        ("search[Permo chandelier]", True, False),
        ("search[again]", False, True),
        ("click[b07q87p8dq]", True, False),
        ("click[globe-antique]", True, False),
        ("click[globe-antique]", False, False),  # it is chosen already
        ("click[funnel-black]", True, False),
        ("click[moon]", False, True),
        ("click[features]", True, False),
        ("click[buy now]", False, True),  # not on this page
        ("click[< prev]", True, False),
        ("click[buy now]", True, False),
    ]
    infos = [(action, shop.step(action).info) for action, _, _ in done]
    assert [(action, info["changed"], info["refused"]) for action, info in infos] == done


def test_a_poor_purchase_is_a_failure_and_tells_nothing_of_what_was_wanted(shop: WebShop) -> None:
    shop.reset(LAMP)
    for action in ("search[Permo chandelier]", "click[B07Q87P8DQ]", "click[oval-antique]"):
        shop.step(action)
    end = shop.step("click[buy now]")
    assert end.observation == "Thank you for shopping with us! [SEP] Your score (min 0.0, max 1.0) [SEP] 0.75"
    assert (end.reward, end.info["terminal"]) == (0.75, "failure")


def test_going_back_to_the_results_forgets_what_was_chosen(shop: WebShop) -> None:
    shop.reset(LAMP)
    for action in ("search[Permo chandelier]", "click[b07q87p8dq]", "click[globe-antique]", "click[< prev]"):
        shown = shop.step(action)
    assert "Page 1 (" in shown.observation
    shop.step("click[b07q87p8dq]")
    assert shop.step("click[buy now]").reward == 0.75


def test_pages_of_results_can_be_turned(shop: WebShop) -> None:
    shop.reset(LAMP)
    first = shop.step("search[women shoes]").observation
    assert "Page 1 (Total results: 50) [SEP] Next >" in first
    assert "< Prev" not in first
    second = shop.step("click[next >]").observation
    assert "Page 2 (Total results: 50) [SEP] < Prev [SEP] Next >" in second
    codes = [set(part for part in page.split(" [SEP] ") if part.startswith("B0")) for page in (first, second)]
    assert [len(found) for found in codes] == [10, 10]
    assert not codes[0] & codes[1]
    assert shop.step("click[< prev]").observation == first
    for _ in range(9):
        last = shop.step("click[next >]")
    assert "Page 5 (Total results: 50) [SEP] < Prev [SEP] B0" in last.observation
    assert "click[next >]" not in last.info["admissible_actions"]


def test_a_search_that_finds_nothing(shop: WebShop) -> None:
    shop.reset(LAMP)
    assert shop.step("search[zzzz qqqq]").observation.endswith("Back to Search [SEP] Page 1 (Total results: 0)")


def test_the_plain_layout_and_the_context(folder: str) -> None:
    shop = WebShop(folder, layout="plain", context="results")
    first = shop.reset(LAMP)
    assert first.text.splitlines()[0] == "WebShop"
    assert first.text.splitlines()[-1] == "[Search]"
    assert first.initial_context.splitlines()[0].startswith("[B0")
    assert len(first.initial_context.splitlines()) == 60  # 20 products: code, title, price
    assert WebShop(folder).options == {"layout": "sep", "context": "none"}
    with pytest.raises(ConfigError, match="layout='odd'"):
        WebShop(folder, layout="odd")


def test_the_contract_holds(folder: str) -> None:
    actions = ("search[shoes]", "click[next >]", "click[buy now]", "search[]", "click[]", "buy", "search[a[b]c]")
    report = check_env(EnvSpec("webshop", {"data": folder}), actions=actions)
    assert report.ok
    assert "determinism" in report.rules


def test_the_gold_plan_wins(shop: WebShop) -> None:
    for task in shop.task_ids("test")[:40]:
        assert rollout(shop, GoldFollower(), task, max_steps=20).outcome == "success"
    assert rollout(shop, Replay(["click[buy now]"]), LAMP, max_steps=1).outcome == "truncated"


def test_a_product_is_the_same_from_the_file_as_its_authors_offer_it() -> None:
    raw = {
        "asin": "B000000001", "name": "Red Mug", "full_description": "Holds tea.", "pricing": "$5.00 - $9.50",
        "small_description": "Dishwasher safe", "category": "garden", "query": " Mugs ",
        "product_category": "Home › Mugs", "customization_options": {"Color": [{"value": " Red/Blue "}], "Size": None},
    }  # fmt: skip
    product = product_of(raw)
    assert product.options == {"color": ("red | blue",)}
    assert product.price_tag == "$5.0 to $9.5"
    assert 5.0 <= product.price <= 9.5
    assert (product.query, product.categories, product.features) == ("mugs", ("Home", "Mugs"), ("Dishwasher safe",))
    assert product_of({**raw, "pricing": None}).price == 100.0


def test_missing_and_broken_data(tmp_path: Path) -> None:
    with pytest.raises(MissingDependency, match="run `worldloom fetch webshop`, or set WEBSHOP_DATA"):
        WebShop(str(tmp_path / "nowhere"))
    (tmp_path / "items_shuffle_1000.json").write_text("[{")
    with pytest.raises(EnvError, match=r"items_shuffle_1000.json: cannot be read .*; fetch it again"):
        WebShop(str(tmp_path))


def test_fetching_without_a_network_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "worldloom.envs.webshop_catalogue.OFFICIAL", {"items_ins_v2_1000.json": "http://127.0.0.1:9/items"}
    )
    with pytest.raises(MissingDependency, match="fetch it where there is a network and put it into"):
        fetch(tmp_path)
    monkeypatch.setattr("worldloom.envs.webshop_catalogue.OFFICIAL", {"goals.json": (tmp_path / "here.json").as_uri()})
    (tmp_path / "here.json").write_text(json.dumps({"a": 1}))
    assert json.loads((fetch(tmp_path / "to") / "goals.json").read_text()) == {"a": 1}
