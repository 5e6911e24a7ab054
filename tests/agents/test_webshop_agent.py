"""The WebShop agent on the real shop, and what it makes of texts."""

from pathlib import Path

import pytest

from worldloom.agents import Start, make
from worldloom.agents.webshop import Page, Wish
from worldloom.envs.webshop import WebShop
from worldloom.errors import ConfigError
from worldloom.rollout import rollout

pytest.importorskip("bm25s", reason='WebShop\'s search is not installed: pip install "worldloom[webshop]"')


@pytest.fixture(scope="module")
def shop(data_dir: Path) -> WebShop:
    return WebShop(str(data_dir / "webshop"))


def test_an_instruction_is_understood() -> None:
    wish = Wish.parse(
        "Find me loose fit women's tops with short sleeve with color: c5-black, and size: x-large, "
        "and price lower than 50.00 dollars"
    )
    assert wish.options == ("c5-black", "x-large")
    assert wish.most == 50.0
    assert wish.words == {"loose", "fit", "women", "top", "short", "sleeve"}
    assert Wish.parse("Find me a lamp") == Wish(frozenset({"lamp"}), (), float("inf"))


@pytest.mark.parametrize("layout", ["sep", "plain"])
def test_a_page_is_understood_in_either_layout(data_dir: Path, layout: str) -> None:
    shop = WebShop(str(data_dir / "webshop"), layout=layout)
    assert Page(shop.reset("B07Q87P8DQ-0002").text).is_search
    results = Page(shop.step("search[Permo chandelier]").observation)
    assert results.is_results
    assert ("B07Q87P8DQ", 94.99) in [(code, price) for code, _, price in results.products()]
    item = Page(shop.step("click[b07q87p8dq]").observation)
    assert item.is_item
    assert item.values() == ["color", *shop.catalogue.products["B07Q87P8DQ"].options["color"]]
    assert Page(shop.step("click[features]").observation).is_sub


def test_skill_decides_how_often_it_wins(shop: WebShop) -> None:
    tasks = shop.task_ids("valid")[:30]
    won = {}
    for skill in (1.0, 0.5, 0.0):
        outcomes = [rollout(shop, make("scripted-webshop", skill=skill), t, max_steps=40).outcome for t in tasks]
        won[skill] = outcomes.count("success")
    assert won[1.0] >= 20
    assert won[1.0] > won[0.5] > won[0.0]


def test_the_same_task_and_seed_give_the_same_episode(shop: WebShop) -> None:
    task = shop.task_ids("valid")[0]
    episodes = [rollout(shop, make("scripted-webshop", skill=0.3), task, max_steps=20).actions for _ in range(2)]
    assert episodes[0] == episodes[1]
    assert episodes[0] != rollout(shop, make("scripted-webshop", skill=0.3), task, seed=1, max_steps=20).actions


PAGE = (
    "Instruction: [SEP] {} [SEP] Back to Search [SEP] < Prev [SEP] color [SEP] red [SEP] blue [SEP] A lamp [SEP] "
    "Price: $5.00 [SEP] Rating: 5 [SEP] Description [SEP] Features [SEP] Reviews [SEP] Attributes [SEP] Buy Now"
)


def test_a_purchase_that_was_held_back_is_mended_or_given_up() -> None:
    wish = "Find me a lamp with color: blue, and price lower than 10.00 dollars"
    page = PAGE.format(wish)
    agent = make("hasty-webshop", forgets=1.0)
    agent.begin(Start("t", wish, wish, 0))
    agent.open, agent.seen, agent.final = "B000000001", {"B000000001": 0.5}, "B000000001"
    assert agent.act(page).action == "click[buy now]"  # it forgets the colour
    assert agent.held_back("click[buy now]", page).action == "click[blue]"
    assert agent.act(page).action == "click[buy now]"
    assert agent.held_back("click[buy now]", page).action == "click[< prev]"  # nothing is missing: another product
    assert agent._best() is None


def test_a_hasty_shopper_mostly_buys_and_often_wrongly(shop: WebShop) -> None:
    tasks = shop.task_ids("valid")[:30]
    found = [rollout(shop, make("hasty-webshop", forgets=0.0), t, max_steps=8).outcome for t in tasks]
    assert found.count("success") + found.count("failure") == 30
    assert 5 <= found.count("success") <= 15


def test_how_hasty_is_checked() -> None:
    with pytest.raises(ConfigError, match="looks is 0; it must be at least 1"):
        make("hasty-webshop", looks=0)
