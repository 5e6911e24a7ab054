import pytest

from worldloom.errors import ConfigError
from worldloom.practice.threshold import Judged, by_gain, by_refusals, described, discrimination

# Five actions, two of them right: q = 0.4.
FIVE = [Judged(0.1, False, "a"), Judged(0.2, True, "b"), Judged(0.3, False, "c"), Judged(0.6, False, "d"),
        Judged(0.9, True, "e")]  # fmt: skip


def test_the_threshold_with_the_largest_expected_gain() -> None:
    # Below 0.15: 0.4. Below 0.25: 0.4 - 0.6. Below 0.45: 0.2. Below 0.75: 0.6. All: 0.
    assert by_gain(FIVE) == pytest.approx(0.75)
    assert by_gain(FIVE[:1] + FIVE[4:]) == pytest.approx(0.5)
    assert by_gain([Judged(0.9, False), Judged(0.1, True)]) == 0.0  # chances the wrong way round gain nothing
    assert by_gain([Judged(0.5, False), Judged(0.5, True)]) == 0.0  # equal chances cannot be told apart
    assert by_gain([Judged(0.5, True)]) == 0.0


def test_the_threshold_that_rarely_holds_back_what_is_right() -> None:
    right = [Judged(n / 10, True) for n in range(1, 10)]  # nine: floor(0.2 * 10) = 2, the second lowest
    assert by_refusals([*right, Judged(0.05, False)], 0.2) == 0.2
    assert by_refusals(right, 0.05) == 0.0  # floor(0.5) = 0: too few to promise it
    with pytest.raises(ConfigError, match="must be between 0 and 1"):
        by_refusals(right, 1.0)
    with pytest.raises(ConfigError, match="no action of the declared kinds"):
        by_gain([])


def test_what_is_told_of_a_threshold() -> None:
    told = described(FIVE, 0.75)
    assert {k: told[k] for k in ("threshold", "n", "right", "refusals")} == {
        "threshold": 0.75, "n": 5, "right": 2, "refusals": {"right": 3, "wrong": 1},
    }  # fmt: skip
    # Of six pairs (wrong, right) the wrong one is lower in (.1,.2) (.1,.9) (.3,.9) (.6,.9).
    assert told["auroc"]["value"] == pytest.approx(4 / 6)
    assert discrimination([Judged(0.5, True)]) is None
