"""A scripted agent for TextWorld's cooking games, which acts from text alone, with a skill knob."""

import re
from typing import NamedTuple

from worldloom.agents.base import Start
from worldloom.agents.textworld_explorer import Explorer

CUTS = {"chop": "chopped", "slice": "sliced", "dice": "diced"}
HEATS = {"fry": "fried", "roast": "roasted", "grill": "grilled"}
APPLIANCES = {"fry": "stove", "roast": "oven", "grill": "BBQ"}
STATES = CUTS | HEATS
KITCHEN = "Kitchen"

_RECIPE = re.compile(r"Ingredients:\n(.+?)\n\nDirections:\n(.+?)(?:\n\n|\Z)", re.DOTALL)
_STEP = re.compile(rf"({'|'.join(STATES)}) the (.+)")
_DEED = re.compile(rf"You ({'|'.join([*CUTS, *HEATS.values()])}) the ([\w' -]+?)\.")


class Task(NamedTuple):
    """One direction of a recipe: what to do with a food."""

    verb: str
    food: str


class Recipe(NamedTuple):
    """What a cookbook says."""

    foods: tuple[str, ...]
    tasks: tuple[Task, ...]

    @classmethod
    def parse(cls, text: str) -> "Recipe | None":
        """The recipe in a text; None if there is none."""
        match = _RECIPE.search(text)
        if match is None:
            return None
        foods, steps = ([line.strip() for line in part.splitlines()] for part in match.groups())
        return cls(tuple(foods), tuple(Task(*found.groups()) for step in steps if (found := _STEP.fullmatch(step))))


class CookAgent(Explorer):
    """Reads the recipe, collects what it wants, cuts and cooks each as it says, prepares the meal and eats it."""

    name = "scripted-textworld-cooking"

    def begin(self, start: Start) -> None:
        """An episode begins."""
        super().begin(start)
        self.recipe: Recipe | None = None
        self.served = False
        self.done: set[Task] = set()
        self.full, self.aside = False, set[str]()

    def notice(self, observation: str) -> None:
        """Take in what the last action was answered."""
        super().notice(observation)
        if self.recipe is None and (recipe := Recipe.parse(observation)):
            self.recipe = recipe
            self._see("\n".join(self.house.told.values()))
        self._see(observation)
        if observation.startswith("Adding the meal"):
            self.served, self.house.held = True, {"meal": None}
        self.full = "carrying too many" in observation or (
            self.full and not observation.startswith(("You drop", "You put"))
        )

    def _see(self, text: str) -> None:
        """Note what was done, and what is seen to be already as the recipe wants it."""
        verbs = {state: verb for verb, state in HEATS.items()}
        self.done |= {Task(verbs.get(did, did), food) for did, food in _DEED.findall(text)}
        for task in self.recipe.tasks if self.recipe else ():
            if re.search(rf"\b{STATES[task.verb]}(?: \w+)? {re.escape(task.food)}\b", text):
                self.done.add(task)

    def purpose(self) -> str | None:
        """The next action towards the meal."""
        if self.recipe is None:
            return self.seek("cookbook") or "examine cookbook"
        if not self.house.counted:
            return "inventory"
        if self.served:
            return self._hold("meal", set()) or "eat meal"
        return self._pick_up(self.recipe) or self._work(self.recipe) or self._serve(self.recipe)

    def _pick_up(self, recipe: Recipe) -> str | None:
        """Take what the recipe wants where it is seen."""
        here = [food for food in recipe.foods if self.house.tells_of(self.house.room, food)]
        missing = [food for food in here if food not in self.house.held and food not in self.aside]
        return f"take {missing[0]}" if missing and not self.full else None

    def _work(self, recipe: Recipe) -> str | None:
        """Do the next thing that the recipe says; None if all is done."""
        for task in recipe.tasks:
            if task not in self.done:
                return self._cut(task) if task.verb in CUTS else self._heat(task)
        return None

    def _cut(self, task: Task) -> str | None:
        keep = {task.food, "knife"}
        return self._hold(task.food, keep) or self._hold("knife", keep) or f"{task.verb} {task.food} with knife"

    def _heat(self, task: Task) -> str | None:
        appliance = APPLIANCES[task.verb]
        return self._hold(task.food, {task.food}) or self.seek(appliance) or f"cook {task.food} with {appliance}"

    def _hold(self, thing: str, keep: set[str]) -> str | None:
        """What brings a thing into the hands, which may have to drop another first; None if it is there."""
        if thing in self.house.held:
            return None
        spare = [other for other in self.house.held if other not in keep]
        if self.full and spare:
            self.aside.add(spare[-1])
            return f"drop {spare[-1]}"
        return self.seek(thing) or f"take {thing}"

    def _serve(self, recipe: Recipe) -> str | None:
        for food in recipe.foods:
            if action := self._hold(food, set(recipe.foods)):
                return action
        return self.house.way_to(lambda room: room == KITCHEN) or "prepare meal"

    def stray(self) -> str:
        """Now and then a deed of the kitchen, whatever the recipe says."""
        foods = list(self.recipe.foods) if self.recipe else list(self.house.held)
        if not foods or self.random.random() > 0.3:
            return super().stray()
        food, verb = self.random.choice(foods), self.random.choice(list(CUTS))
        deeds = {
            f"cook {food} with {self.random.choice(list(APPLIANCES.values()))}": 4,
            f"{verb} {food} with knife": 4,
            f"take {food}": 4,
            "take knife": 2,
            "examine cookbook": 2,
            "prepare meal": 2,
            f"eat {food}": 1,
        }
        return self.random.choices(list(deeds), list(deeds.values()))[0]
