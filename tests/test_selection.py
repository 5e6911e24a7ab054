"""Which episodes are learnt from."""

import pytest

from worldloom.config import TrainConfig
from worldloom.errors import ConfigError, DataError
from worldloom.selection import is_imagined, select
from worldloom.trajectory import EnvRef, Step, TaskRef, Trajectory


def episode(number: int, imagined: bool = False, end: str = "success") -> Trajectory:
    return Trajectory(
        env=EnvRef(name="world-model:e" if imagined else "e"),
        task=TaskRef(id=str(number)),
        initial_observation="x",
        steps=[Step.model_validate({"action": "a", "observation": "o", "terminal": end})],
        imagined=imagined or None,
    )


REAL = [episode(n) for n in range(10)]
DREAMT = [episode(n, imagined=True) for n in range(6)]


def shares(chosen: list[Trajectory]) -> tuple[int, int]:
    return sum(not is_imagined(t) for t in chosen), sum(map(is_imagined, chosen))


def test_all_are_taken_as_they_come() -> None:
    assert select([*REAL, *DREAMT], TrainConfig()) == [*REAL, *DREAMT]


def test_winners_only() -> None:
    lost = episode(11, end="failure")
    assert select([lost, *REAL], TrainConfig(keep="success")) == REAL
    with pytest.raises(DataError, match="none of 1 episodes ended in success"):
        select([lost], TrainConfig(keep="success"))


@pytest.mark.parametrize(
    ("share", "count", "expected"),
    [(0.5, None, (6, 6)), (0.25, None, (10, 3)), (0.5, 8, (4, 4)), (1.0, None, (0, 6)), (0.0, None, (10, 0)),
     (0.5, 5, (3, 2))],
)  # fmt: skip
def test_one_ratio_of_imagined_to_all(share: float, count: int | None, expected: tuple[int, int]) -> None:
    """A quarter imagined: 10 real ones go with 10/3 imagined ones, 13 in all, of which a quarter is 3."""
    chosen = select([*REAL, *DREAMT], TrainConfig(imagined=share, episodes=count))
    assert shares(chosen) == expected


def test_fewer_are_part_of_more() -> None:
    some, more = (select(REAL, TrainConfig(episodes=n)) for n in (3, 6))
    assert [t for t in more if t in some] == some
    assert len(more) == 6
    assert select(REAL, TrainConfig(episodes=3, seed=1)) != some


def test_more_than_there_are_is_refused() -> None:
    with pytest.raises(ConfigError, match="11 episodes are asked for, but there are 10"):
        select(REAL, TrainConfig(episodes=11))
    with pytest.raises(ConfigError, match="7 imagined episodes are asked for, but there are 6"):
        select([*REAL, *DREAMT], TrainConfig(episodes=14, imagined=0.5))
    with pytest.raises(ConfigError, match=r"imagined=0.5 cannot be had of 10 real and 0 imagined"):
        select(REAL, TrainConfig(imagined=0.5))
