"""A WebShop agent that buys soon, rightly or wrongly: what a world model learns the worth of a purchase from."""

from worldloom.agents.base import chances
from worldloom.agents.webshop import BUY, Page, WebShopAgent
from worldloom.errors import ConfigError


class HastyShopper(WebShopAgent):
    """Like ``scripted-webshop``, but takes the best of the first few products and may forget what to choose there.

    Args:
        skill, invalid: as there.
        looks: after how many products it buys the best of them.
        forgets: chance at each choice (size, colour, ...) to buy without making it.

    Raises:
        ConfigError: a chance is not within 0 and 1, or ``looks`` is below 1.
    """

    name = "hasty-webshop"

    def __init__(self, skill: float = 1.0, invalid: float = 0.15, looks: int = 1, forgets: float = 0.3):
        super().__init__(skill, invalid)
        (self.forgets,) = chances(forgets=forgets)
        if looks < 1:
            raise ConfigError(f"looks is {looks}; it must be at least 1")
        self.looks = looks

    def _judge(self, page: Page) -> str:
        if self.final is None and len(self._wanted()) >= self.looks:
            self.final = self._best()
        action = super()._judge(page)
        choosing = action.removeprefix("click[").removesuffix("]") in self.wish.options
        return BUY if choosing and self.random.random() < self.forgets else action
