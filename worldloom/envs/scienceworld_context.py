"""What a world model may know of a ScienceWorld game's beginning: its rooms, in the engine's own words."""

import re
from typing import Any

from worldloom.envs.scienceworld_engine import Engine

CURSORY, DETAILED = 0, 1  # EnvObject's modes: as in a list of things, and as when looked at
CLOSED = "door is closed"  # what a container says that hides what it holds
OPENED = "When opened:"


def rooms(engine: Engine) -> str:
    """Every room as it is now, what ``look around`` says there, and what the closed containers in it will show.

    The engine's objects are asked to describe themselves; nothing moves and no time passes.
    """
    with engine.asked():
        places = _contents(engine, engine.agent.universe())
        return "\n\n".join(_room(engine, place) for place in places if _is_room(place))


def _is_room(thing: Any) -> bool:
    return str(thing.getClass().getName()).startswith("scienceworld.objects.location.")


def _room(engine: Engine, room: Any) -> str:
    said = _said(room.getDescription(DETAILED))
    if CLOSED not in said:
        return said
    boxes = [thing for thing in _contents(engine, room) if CLOSED in thing.getDescription(CURSORY)]
    return "\n".join([said, OPENED, *sorted(f"\t{_when_opened(box)}" for box in boxes)])


def _when_opened(box: Any) -> str:
    """How a closed container describes itself when open; it is closed again before anybody can see it."""
    set_open = getattr(box.propContainer().get(), "isOpen_$eq")
    set_open(True)
    try:
        return _said(box.getDescription(CURSORY))
    finally:
        set_open(False)


def _contents(engine: Engine, place: Any, hidden: bool = False) -> list[Any]:
    convert = engine.jvm.scala.collection.JavaConverters
    return list(convert.setAsJavaSetConverter(place.getContainedObjects(hidden)).asJava())


def _said(description: str) -> str:
    """As the engine trims what it says to an action."""
    return re.sub(" +", " ", description.strip())


def word2world(engine: Engine, task: str, variation: int) -> str:
    """The context of Word2World (its released collection script), mistakes included, for comparison.

    The game is loaded with the teleport action; the goals, the actions (teleport among them), and what is seen after
    teleporting to each thing in the universe. The first three of these are no rooms, so the view stays where it was.
    """
    engine.load(task, variation, "teleportAction")
    with engine.asked():
        server = engine.server
        server.step("look around")
        parts = ["\n=== Goal Progress ===", server.getGoalProgressStr(), "\n=== Possible Actions ==="]
        parts += [f" - {action}" for action in engine.texts(server.getPossibleActions())]
        parts += ["\n=== Per-Room Observations ==="]
        for place in _contents(engine, engine.agent.universe(), hidden=True):
            server.step(f"teleport {place.name()}")
            view, things = server.freeActionLook().strip(), engine.texts(server.getPossibleObjects())
            parts += [f"== Room: {place.name()} ==", view, f"Possible Objects: {', '.join(things)}\n"]
        return "\n".join(parts)
