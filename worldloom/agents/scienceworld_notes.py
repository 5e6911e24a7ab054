"""What the texts of a ScienceWorld episode have told: rooms, doors, things, what is carried and focused on."""

import re

# The house is the same in every variation; only what stands in it differs.
HOUSE = {
    "hallway": ("kitchen", "living room", "bedroom", "workshop", "greenhouse", "art studio"),
    "kitchen": ("hallway", "bathroom", "outside"),
    "greenhouse": ("hallway", "outside"),
    "outside": ("kitchen", "greenhouse", "foundry"),
    "living room": ("hallway",),
    "bedroom": ("hallway",),
    "workshop": ("hallway",),
    "art studio": ("hallway",),
    "bathroom": ("kitchen",),
    "foundry": ("outside",),
}
ROOM = re.compile(r"This (?:room|outside location) is called the ([a-z ]+)\. ?")
WENT = re.compile(r"You (?:move|teleport) to the ([a-z ]+)\.")
DOOR = re.compile(r"A door to the ([a-z ]+) \(that is (open|closed)\)")
MOVED = re.compile(r"You move the (.+?) to the ([^.\n]+)\.")
PIECE = re.compile(r" \((?:containing|called) | is: |, (?!which)|\)|\. ")
NAME = re.compile(
    r"(?:an? |the |(?=unknown ))(?:substance called )?([a-z][\w' -]*?)(?= in the [a-z]+ stage| with an? |[,.(]|$)"
)
CLOSED = re.compile(r"The ([a-z ]+) door is closed")
DEVICES = ("sink", "stove", "oven", "bathtub", "stopwatch", "blast furnace", "lighter", "toilet", "shovel", "axe")


class Notes:
    """Take in each observation with ``hear``; text that says nothing new changes nothing."""

    def __init__(self) -> None:
        self.room: str | None = None
        self.seen: dict[str, list[str]] = {}
        self.doors: dict[frozenset[str], bool] = {}
        self.held: dict[str, None] = {}
        self.left: dict[str, str] = {}
        self.focused: list[str] = []
        self.temperature: int | None = None
        self.heard = ""

    def hear(self, text: str, action: str = "") -> None:
        """Take in what was said to ``action``."""
        self.heard = text
        if went := WENT.fullmatch(text.strip()):
            self.room = went[1] if went[1] in HOUSE else self.room
        if room := ROOM.search(text):
            self.room = room[1]
            inside = text[room.end() :].partition("You also see:")[0]
            self.seen[room[1]] = [line.strip() for line in inside.split("\n")[1:] if line.strip()]
            for beyond, state in DOOR.findall(text):
                self.doors[frozenset((room[1], beyond))] = state == "open"
        self._hear_of_doors(text, action)
        self._hear_of_things(text)

    def _hear_of_doors(self, text: str, action: str) -> None:
        beyond = action.rpartition(" to ")[2]
        if self.room and beyond in HOUSE.get(self.room, ()):
            if text in ("The door is now open.", "The door is already open."):
                self.doors[frozenset((self.room, beyond))] = True
            elif text in ("The door is not open.", "The door is now closed."):
                self.doors[frozenset((self.room, beyond))] = False

    def _hear_of_things(self, text: str) -> None:
        if text.startswith("In your inventory, you see:"):
            self.held = {names[0]: None for line in text.split("\n")[1:] if (names := names_in(line.strip()))}
        if (moved := MOVED.search(text)) and not WENT.fullmatch(text.strip()):
            self.held.pop(moved[1], None)
            self.left.pop(moved[1], None)
            if moved[2] == "inventory":
                self.held[moved[1]] = None
            elif self.room:
                self.left[moved[1]] = self.room
        if focus := re.search(r"You focus on the (.+)\.", text):
            self.focused.append(focus[1])
        if degrees := re.search(r"measures a temperature of (-?\d+) degrees", text):
            self.temperature = int(degrees[1])

    def lines(self, room: str) -> list[str]:
        """What was last seen in a room, one thing (and what is in it) a line."""
        return self.seen.get(room, [])

    def things(self, room: str) -> list[str]:
        """The names of the things last seen in a room, those in and on others included."""
        return list(dict.fromkeys(name for line in self.lines(room) for name in names_in(line)))

    def boxes(self, room: str) -> list[str]:
        """What can be opened or closed there."""
        known = ("cupboard", "freezer", "fridge", "oven", "closet", "drawer", "blast furnace", "bee hive", "jar")
        return [name for name in self.things(room) if name.endswith(known)]

    def closed(self, room: str) -> list[str]:
        """What was last seen closed there."""
        return [shut[1] for line in self.lines(room) if (shut := CLOSED.search(line))]

    def devices(self, room: str) -> list[str]:
        """What can be switched there."""
        return [name for name in self.things(room) if name.endswith(DEVICES)]

    def is_open(self, beyond: str) -> bool:
        """The door from here is not known to be closed."""
        return self.doors.get(frozenset((self.room or "", beyond)), True)

    def reach(self, room: str) -> str | None:
        """The next action on the way to a room, opening doors and looking around there; None if it is seen."""
        if self.room not in HOUSE or (self.room == room and room not in self.seen):
            return "look around"
        if self.room == room or room not in HOUSE:
            return None
        step = next_room(self.room, room)
        return f"go to {step}" if self.is_open(step) else f"open door to {step}"


def next_room(start: str, goal: str) -> str:
    """The room after ``start`` on a shortest way through the house."""
    first_steps = {room: room for room in HOUSE[start]}
    for room in (queue := list(first_steps)):
        for beyond in HOUSE[room]:
            if beyond not in first_steps:
                first_steps[beyond] = first_steps[room]
                queue.append(beyond)
    return first_steps[goal]


def names_in(line: str) -> list[str]:
    """The names in a line of a room: "a bowl (containing an orange)" tells of a "bowl" and an "orange"."""
    found = [match[1].strip() for piece in PIECE.split(line) if (match := NAME.match(piece.strip()))]
    return [name for name in found if name not in ("agent", "air")]
