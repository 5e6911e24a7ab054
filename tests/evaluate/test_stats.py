import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom

from worldloom.evaluate.stats import difference, interval, quotient, rate, ratio, unseen, word_f1


def test_nothing_to_measure_is_no_number() -> None:
    assert rate([], []) is None
    assert rate([0, 0], [0, 0]) is None


def test_one_row_says_nothing_of_others() -> None:
    assert rate([3], [4]) == {
        "value": 0.75, "low": pytest.approx(0.025 * 0.75), "high": pytest.approx(0.99375), "n": 1, "of": 4,
    }  # fmt: skip
    assert rate([1], [1]) == {"value": 1.0, "low": pytest.approx(0.025), "high": 1.0, "n": 1}


@pytest.mark.parametrize("rows", [3, 8, 30, 200])
def test_rows_that_are_all_alike_have_the_bounds_of_clopper_and_pearson(rows: int) -> None:
    """Were more than ``1 - 0.025 ** (1 / n)`` of the rows otherwise, n rows without one were seen in 2.5 % of cases."""
    few = 1 - 0.025 ** (1 / rows)
    never, always = rate([0] * rows, [5] * rows), rate([5] * rows, [5] * rows)
    assert never == {"value": 0.0, "low": 0.0, "high": pytest.approx(few), "n": rows, "of": 5 * rows}
    assert always == {"value": 1.0, "low": pytest.approx(1 - few), "high": 1.0, "n": rows, "of": 5 * rows}
    assert binom.pmf(0, rows, never["high"]) == pytest.approx(0.025)
    assert unseen(rows) == pytest.approx(few)
    assert few < 3.7 / rows  # the "rule of three", which is one-sided


def test_rows_that_are_all_alike_in_between_may_have_others_beside_them() -> None:
    few = 1 - 0.025 ** (1 / 8)
    assert rate([9] * 8, [10] * 8) == {
        "value": 0.9, "low": pytest.approx(0.9 - few * 0.9), "high": pytest.approx(0.9 + few * 0.1), "n": 8, "of": 80,
    }  # fmt: skip


def test_rows_without_a_total_are_no_rows_of_a_rate() -> None:
    found = rate([2, 0, 0], [2, 0, 0])
    assert (found["low"], found["n"], found["of"]) == (pytest.approx(0.025), 1, 2)
    assert "of" not in rate([1, 0, 0], [1, 0, 1])  # the denominator is the two rows that have one


def test_a_difference_of_the_same_rows_by_hand() -> None:
    # 30 of 100 rows are won by both, 20 by the left one alone, 10 by the right one alone: 0.1 apart.
    left, right = [1] * 30 + [1] * 20 + [0] * 10 + [0] * 40, [1] * 30 + [0] * 20 + [1] * 10 + [0] * 40
    found = difference(left, right, [1] * 100)
    assert found["value"] == pytest.approx(0.1)
    deviation = math.sqrt((0.3 - 0.1**2) / 100)  # of the mean of 1 (20 times), -1 (10 times) and 0
    assert found["low"] == pytest.approx(0.1 - 1.96 * deviation, abs=0.02)
    assert found["high"] == pytest.approx(0.1 + 1.96 * deviation, abs=0.02)
    swapped = difference(right, left, [1] * 100)
    assert swapped["value"] == -found["value"]
    same = difference(left, left, [1] * 100)
    assert (same["value"], same["high"], same["low"]) == (0.0, unseen(100), -unseen(100))
    assert difference([], [], []) is None


@pytest.mark.parametrize(("again", "won"), [(6, 7), (0, 5), (5, 5), (20, 40)])
def test_a_quotient_of_a_part_of_single_episodes_has_the_interval_of_jeffreys(again: int, won: int) -> None:
    found = quotient([1.0] * again + [0.0] * (50 - again), [1.0] * won + [0.0] * (50 - won))
    low, high = beta.ppf([0.025, 0.975], again + 0.5, won - again + 0.5)
    assert (found["value"], found["n"]) == (again / won, won)
    assert found["low"] == pytest.approx(low if again else 0.0, abs=0.03)
    assert found["high"] == pytest.approx(high if again < won else 1.0, abs=0.03)


def test_a_quotient_where_no_row_differs() -> None:
    """Six of ten tasks are won in reality, and the same six again: neither a loss nor a gain can be excluded."""
    won = [1.0] * 6 + [0.0] * 4
    found = quotient(won, won, [1.0] * 10)
    assert (found["value"], found["n"], found["of"]) == (1.0, 10, 6)
    assert found["low"] < 0.75 and found["high"] > 1.3
    assert found["low"] == pytest.approx(1 / found["high"], rel=0.05)  # a loss is as likely as a gain
    none = quotient([0.0] * 10, won, [1.0] * 10)
    assert (none["value"], none["low"]) == (0.0, 0.0) and 0 < none["high"] < 1
    assert quotient(won, [0.0] * 10, [1.0] * 10) is None


def test_where_only_gains_were_seen_a_quotient_below_one_is_not_excluded() -> None:
    found = quotient([1.0] * 8 + [0.0] * 4, [1.0] * 7 + [0.0] * 5, [1.0] * 12)
    assert found["value"] == pytest.approx(8 / 7)
    assert found["low"] < 0.95


def test_agents_that_fare_alike_are_no_more_rows() -> None:
    """Four copies of an agent tell as much as one; four agents that differ here and there tell more."""
    again, won = [1.0] * 6 + [0.0] * 6, [1.0] * 8 + [0.0] * 4
    once = quotient(again, won, [1.0] * 12)
    copies = quotient([4 * each for each in again], [4 * each for each in won], [4.0] * 12)
    assert copies == pytest.approx(once | {"of": 32})
    spread = quotient([3.0] * 8 + [1.0] * 4, [4.0] * 8 + [1.0] * 4, [4.0] * 12)
    assert spread["high"] - spread["low"] < (copies["high"] - copies["low"]) / 2


def test_a_share_of_tasks_has_the_interval_of_its_binomial() -> None:
    """Resampling n zeros and ones is drawing Binomial(n, p): the percentiles are known exactly."""
    found = rate([1] * 30 + [0] * 70, [1] * 100)
    assert found["value"] == 0.3
    assert found["low"] == pytest.approx(binom.ppf(0.025, 100, 0.3) / 100, abs=0.0101)
    assert found["high"] == pytest.approx(binom.ppf(0.975, 100, 0.3) / 100, abs=0.0101)


def test_the_rate_is_over_steps_and_the_interval_over_episodes() -> None:
    """Ten episodes of 50 steps, five all right and five all wrong: as wide as ten coins, not as 500."""
    found = rate([50, 0] * 5, [50] * 10)
    assert found["value"] == 0.5
    assert found["low"] == binom.ppf(0.025, 10, 0.5) / 10 == 0.2
    assert found["high"] == 0.8
    long_and_right = rate([90, 0], [90, 10])  # a mean of the episodes' own rates would say 0.5
    assert long_and_right["value"] == 0.9


def test_resamples_without_a_denominator_do_not_count() -> None:
    found = interval(ratio, [[1.0, 0.0], [1.0, 0.0]])  # a quarter of the resamples is 0/0
    assert found == {"value": 1.0, "low": 1.0, "high": 1.0, "n": 2}


def test_the_same_data_gives_the_same_interval() -> None:
    data = [[n * 7919 % 101 for n in range(60)], [101 + n for n in range(60)]]
    assert interval(ratio, data) == interval(ratio, data)
    assert interval(ratio, data, seed=1) != interval(ratio, data, seed=2)


def test_ratio_sums_before_it_divides() -> None:
    top, bottom = np.array([[1.0, 2.0], [0.0, 0.0]]), np.array([[2.0, 4.0], [0.0, 0.0]])
    found = ratio(top, bottom, axis=-1)
    assert found[0] == 0.5
    assert math.isnan(found[1])


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("", "", 1.0),
        ("", "a", 0.0),
        ("a b", "a b", 1.0),
        ("b  a", "a b\n", 1.0),
        ("a a", "a", 2 / 3),  # precision 1/2, recall 1
        ("a b c d", "a b x", 4 / 7),  # precision 2/4, recall 2/3
        ("You open it.", "You open it", 2 / 3),  # words are split at white space alone
    ],
)
def test_word_f1(left: str, right: str, expected: float) -> None:
    assert word_f1(left, right) == pytest.approx(expected)


@given(st.text("ab ", max_size=12), st.text("ab ", max_size=12))
def test_word_f1_is_symmetric_and_a_share(left: str, right: str) -> None:
    assert word_f1(left, right) == word_f1(right, left)
    assert 0 <= word_f1(left, right) <= 1
