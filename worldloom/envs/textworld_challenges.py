"""TextWorld's challenges, each an environment of its own: cooking, the coin collector, the treasure hunter.

Games, splits, cache and the way the text looks are those of ``worldloom.envs.textworld``; every challenge also takes
its ``context``, ``admissible`` and ``banner``.
"""

from typing import Any, ClassVar

from worldloom.envs.textworld import TextWorld
from worldloom.envs.textworld_families import game_options


class Challenge(TextWorld):
    """One family of games under its own name."""

    of: ClassVar[str]

    def __init__(self, *, context: str = "none", admissible: bool = True, banner: bool = False, **game: Any):
        options = game_options(self.of, game)
        super().__init__(self.of, context=context, admissible=admissible, banner=banner, **options)

    @property
    def options(self) -> dict[str, Any]:
        """What ``worldloom.make`` needs to build this environment again."""
        return {name: value for name, value in super().options.items() if name != "family"}


class Cooking(Challenge):
    """Read the recipe in the kitchen, fetch the food, cut and cook it as the recipe says, prepare the meal, eat it.

    The game of "First TextWorld Problems" (tw-cooking). What the recipe wants is drawn by the game's seed. Test games
    have foods that no training game has, and prepare the others in ways that no training game does: the generator's
    own splits. The game is lost when something that the recipe wants is burned, cut or cooked in another way, or
    eaten before the meal.

    Args:
        recipe: ingredients of the recipe, 1 to 5 (2).
        take: how many of them must be found (2); the others are carried from the start.
        go: rooms: 1, 6 (default), 9 (adds a backyard with a grill, a garden and a shed) or 12 (adds a supermarket).
        open: whether doors and containers are closed at first (True).
        cook: whether food must be cooked (True); if not, it already is as the recipe says.
        cut: whether food must be cut (True); if not, it already is as the recipe says.
        drop: whether only as many things can be carried as the recipe has ingredients (False).
    """

    name, of = "textworld-cooking", "cooking"


class CoinCollector(Challenge):
    """Find the coin in a chain of rooms that holds nothing else; taking it wins, and nothing loses (tw-coin_collector).

    Args:
        level: 1 to 100: as many rooms, in a chain (10). 101 to 150: a chain of ``level - 100`` rooms, each with a dead
            end beside it. 201 to 233: a chain of ``level - 200`` rooms, each with two.
    """

    name, of = "textworld-coin-collector", "coin-collector"


class TreasureHunter(Challenge):
    """Find the thing that the objective names in a maze; taking it wins, taking the other thing loses.

    TextWorld's tw-treasure_hunter, after Parisotto and Salakhutdinov, "Neural Map" (arXiv 1702.08360).

    Args:
        level: 1 to 10: five rooms, the things in sight (5). 11 to 20: ten rooms with doors and containers, which may be
            closed. 21 to 30: twenty rooms, locked doors and containers too, with their keys. The walk grows with the
            level, from 1, 2 and 3 actions to 5, 10 and 20.
    """

    name, of = "textworld-treasure-hunter", "treasure-hunter"
