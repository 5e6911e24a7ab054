"""Whose episode comes when, by hand."""

import itertools
import math
from collections import Counter
from fractions import Fraction
from types import SimpleNamespace

import pytest
from accelerate.data_loader import BatchSamplerShard, SkipBatchSampler
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler

from worldloom.errors import ConfigError
from worldloom.mixture import MixedOrder, alternation, check_weights, shares
from worldloom.trainer import _Epochs


def epochs(order: MixedOrder, *numbers: int) -> list[list[int]]:
    found = []
    for number in numbers:
        order.set_epoch(number)
        found.append(list(order))
    return found


def test_two_to_one_by_hand() -> None:
    """Due times are a: 1.5, 3, 4.5, 6 and b: 3, 6; who is not ahead and due first has its turn."""
    assert "".join(itertools.islice(alternation(shares({"a": 2, "b": 1})), 9)) == "aabaabaab"
    assert "".join(itertools.islice(alternation(shares({"a": 0.1, "b": 0.2, "c": 0.3})), 6)) == "cbcabc"


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(1, 80))
def test_any_number_of_episodes_has_its_shares_rounded_up_or_down(weights: list[int], count: int) -> None:
    parts = shares({str(n): weight for n, weight in enumerate(weights)})
    found = Counter(itertools.islice(alternation(parts), count))
    for name, part in parts.items():
        assert math.floor(part * count) <= found[name] <= math.ceil(part * count)


def test_decimals_are_taken_as_written() -> None:
    assert shares({"a": 0.1, "b": 0.2}) == {"a": Fraction(1, 3), "b": Fraction(2, 3)}


def test_without_weights_an_epoch_has_every_episode_once() -> None:
    order = MixedOrder({"a": 5, "b": 3}, None, seed=0)
    first, second = epochs(order, 0, 1)
    assert sorted(first) == sorted(second) == list(range(8))
    assert first != second


def test_with_weights_nothing_comes_again_before_all_has_come() -> None:
    order = MixedOrder({"a": 4, "b": 4}, {"b": 1, "a": 3}, seed=0)
    assert len(order) == 8
    both = list(itertools.chain(*epochs(order, 0, 1)))  # 12 of a: three passes; 4 of b: one
    of_a = [place for place in both if place < 4]
    assert [sorted(of_a[n : n + 4]) for n in (0, 4, 8)] == [[0, 1, 2, 3]] * 3
    assert sorted(place for place in both if place >= 4) == [4, 5, 6, 7]
    assert [sum(place < 4 for place in both[n : n + 4]) for n in (0, 4, 8, 12)] == [3] * 4


def test_an_epoch_depends_on_its_number_and_the_seed_alone() -> None:
    sizes, weights = {"a": 4, "b": 4}, {"a": 1, "b": 1}
    first, second, third = epochs(MixedOrder(sizes, weights, 7), 0, 1, 2)
    assert epochs(MixedOrder(sizes, weights, 7), 2, 0) == [third, first]
    assert [drawn.place for drawn in itertools.islice(MixedOrder(sizes, weights, 7).drawn(), 16)] == first + second
    assert epochs(MixedOrder(sizes, weights, 8), 0) != [first]


def test_two_processes_that_go_on_in_the_midst_of_an_epoch_are_in_its_order() -> None:
    """As accelerate cuts it, whose loader does not tell the order its epoch there; the callback does."""
    order = MixedOrder({"a": 8, "b": 4}, {"a": 1, "b": 3}, 0)
    told = _Epochs(order, batch=4)
    whole = [drawn.place for drawn in itertools.islice(order.drawn(), 36)]
    told.on_epoch_begin(None, SimpleNamespace(global_step=4), None)  # an epoch is three steps
    shards = [SkipBatchSampler(BatchSamplerShard(BatchSampler(order, 1, False), 2, n), 2) for n in (0, 1)]
    assert [row for pair in zip(*shards, strict=True) for batch in pair for row in batch] == whole[16:24]


def test_weights_have_to_fit_the_data() -> None:
    check_weights(None, ["alfworld"])
    check_weights({"alfworld": 1}, ["alfworld"])
    with pytest.raises(ConfigError, match=r"weight for 'alfwrld', of which the data .*; did you mean 'alfworld'"):
        check_weights({"alfwrld": 1, "webshop": 1}, ["alfworld", "webshop"])
    with pytest.raises(ConfigError, match="no weight for textworld, webshop; give one, or leave out that data"):
        check_weights({"alfworld": 1}, ["alfworld", "webshop", "textworld"])
