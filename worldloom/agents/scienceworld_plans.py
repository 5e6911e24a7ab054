"""How to go about ScienceWorld's tasks: plans that are made as they go, from an instruction and what the texts tell."""

import re
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from worldloom.agents.scienceworld_notes import HOUSE, Notes

YOUNG = ("baby", "hatchling", "juvenile", "adult")
LIFE_SPANS = (  # longest first
    "giant tortoise", "parrot", "elephant", "crocodile", "brown bear", "turtle", "beaver", "wolf", "chipmunk", "toad",
    "rabbit", "hedgehog", "chameleon", "mouse", "dragonfly", "ant",
)  # fmt: skip
PAINTS = {"green": ("blue", "yellow"), "orange": ("red", "yellow"), "violet": ("red", "blue")}
SOURCES = {"renewable": ("solar panel", "wind generator"), "nonrenewable": ("nuclear generator", "gas generator")}
FIXED = ("sink", "toilet", "bathtub", "freezer", "stove", "oven", "fridge", "furnace", "box", "fountain", "ground")


class Step(NamedTuple):
    """An action to take in a room; going there comes first."""

    room: str
    action: str


Plan = Iterator[Step]


def plan_for(instruction: str, notes: Notes, rng: Random) -> Plan:
    """The plan for an instruction; for one that no plan is known for, a tour of the house.

    A plan is asked for its next step only when the last one is done or given up, and reads ``notes`` then.
    """
    for pattern, make in PLANS:
        if match := re.search(pattern, instruction):
            said = {key: value for key, value in match.groupdict().items() if value is not None}
            return make(notes, **said)
    return tour(notes, rng)


def tour(notes: Notes, rng: Random) -> Plan:
    """Every room in turn: look, open what is closed, look into it, take something along. Nothing is focused on."""
    while True:
        for room in rng.sample(list(HOUSE), len(HOUSE)):
            yield Step(room, "look around")
            for box in notes.closed(room):
                yield Step(room, f"open {box}")
                yield Step(room, f"look in {box}")
            loose = [name for name in notes.things(room)[1:] if not name.endswith(FIXED)]
            if loose:
                yield Step(room, f"examine {rng.choice(loose)}")
                yield Step(room, f"pick up {rng.choice(loose)}")


def find(notes: Notes, kind: str, box: str, place: str) -> Plan:
    """Something living, not living, a plant or an animal: pick it up, focus on it, put it into the box."""
    source = {"plant": "greenhouse", "non-living thing": place}.get(kind, "outside")
    yield Step(source, "look around")
    choices = {"plant": _potted_plants, "non-living thing": _dead_things}.get(kind, _animals)(notes, source)
    for carried, focus in choices:
        before = set(notes.held)
        yield Step(source, f"pick up {carried}")
        if set(notes.held) <= before:
            continue
        carried = next(name for name in notes.held if name not in before)
        yield Step(source, f"focus on {focus}")
        yield from _put(notes, carried, box, place)


def _put(notes: Notes, thing: str, box: str, place: str) -> Plan:
    """Bring a thing into a box; one that was dropped on the way is fetched."""
    for _ in range(3):
        if thing not in notes.held:
            yield Step(notes.left.get(thing, place), f"pick up {thing}")
        yield Step(place, f"move {thing} to {box}")


def _animals(notes: Notes, room: str) -> list[tuple[str, str]]:
    kinds = [re.sub(rf"^(?:{'|'.join(YOUNG)}) | egg$", "", name) for name in _living(notes, room)]
    return [(kind, kind) for kind in kinds]


def _living(notes: Notes, room: str) -> list[str]:
    changed = ("caterpillar", "tadpole")
    return [n for n in notes.things(room) if n.endswith(" egg") or n.startswith(YOUNG) or n in changed]


def _potted_plants(notes: Notes, room: str) -> list[tuple[str, str]]:
    pattern = re.compile(r"a (flower pot \d) \(containing .*?\b([a-z]+ (?:tree|plant)) in the")
    return [(match[1], match[2]) for line in notes.lines(room) if (match := pattern.match(line))]


def _dead_things(notes: Notes, room: str) -> list[tuple[str, str]]:
    names = [name for name in notes.things(room) if not name.endswith(FIXED) and name not in _living(notes, room)]
    return [(name, name) for name in sorted(names, key=lambda n: n.startswith(("table", "bed", "chair", "counter")))]


def life_span(notes: Notes, which: str, then: str | None = None) -> Plan:
    """Focus on the animal that lives longest or shortest, by what is known of animals."""
    yield Step("outside", "look around")
    for extreme in filter(None, (which, then)):
        known = [(rank, n) for n in notes.things("outside") for rank, a in enumerate(LIFE_SPANS) if _is_a(n, a)]
        if known:
            yield Step("outside", f"focus on {(min(known) if extreme == 'longest' else max(known))[1]}")


def _is_a(name: str, animal: str) -> bool:
    return re.search(rf"\b{animal}\b", name) is not None


def animal_stages(notes: Notes, animal: str) -> Plan:
    """Focus on an animal whenever it has changed."""
    forms = {"frog": "tadpole", "butterfly": "caterpillar", "moth": "caterpillar"}
    while True:
        yield Step("outside", "look around")
        shown = [n for n in _living(notes, "outside") + notes.things("outside") if _is_a(n, animal)]
        shown += [n for n in notes.things("outside") if n == forms.get(animal)]
        if shown and shown[0] not in notes.focused:
            yield Step("outside", f"focus on {shown[0]}")
        else:
            yield from [Step("outside", "wait1")] * 5


def plant_stages(notes: Notes, plant: str) -> Plan:
    """Focus on the plants in pots in the order of their stages, waiting for a stage that is not there yet."""
    stages = ["seed", *(f"(?:tree|plant) in the {stage} stage" for stage in ("seedling", "adult", "reproducing"))]
    for stage in stages:
        done = len(notes.focused)
        while len(notes.focused) == done:
            yield Step("outside", "look around")
            pattern = re.compile(rf"a ([a-z ]*flower pot \d) \(containing .*?\b({plant} {stage})")
            found = [match for line in notes.lines("outside") if (match := pattern.match(line))]
            yield Step("outside", f"focus on {found[0][2]} in {found[0][1]}" if found else "wait1")


def thermometer(notes: Notes, thing: str, place: str, limit: str, above: str, below: str, boxes: str) -> Plan:
    """Measure a thing and put it into the box that its temperature asks for."""
    yield Step("kitchen", "pick up thermometer")
    yield Step("kitchen", "focus on thermometer")
    yield Step(place, f"pick up {thing}")
    yield Step(place, f"focus on {thing}")
    while notes.temperature is None:
        yield Step(place, f"use thermometer on {thing}")
    yield from _put(notes, thing, above if notes.temperature > float(limit) else below, boxes)


def power(notes: Notes, component: str, source: str | None = None) -> Plan:
    """Focus on a component and power it by a battery, or by a generator of a kind (outside, if that needs the sky)."""
    yield Step("workshop", "look around")
    yield Step("workshop", f"focus on {component}")
    generators = [n for n in notes.things("workshop") if n in SOURCES.get(source or "", ("battery",))]
    generator, wires = (generators or ["battery"])[0], _wires(notes)
    site = "outside" if source == "renewable" else "workshop"
    if site == "outside":
        parts = [generator, component, *wires[:2]]
        yield from (Step("workshop", f"pick up {part}") for part in parts)
        yield from (Step(site, f"drop {part}") for part in parts)
    ends = (f"cathode on {component}", f"anode on {component}")
    yield from (Step(site, joint) for joint in _circuit(generator, wires, ends))
    yield Step(site, f"activate {generator}")
    yield from [Step(site, "wait1")] * 3


def _wires(notes: Notes) -> list[str]:
    return [name for name in notes.things("workshop") if name.endswith(" wire")]


def _circuit(generator: str, wires: list[str], ends: tuple[str, str]) -> Iterator[str]:
    for pole, wire, end in zip(("anode", "cathode"), wires, ends, strict=False):
        yield f"connect {pole} on {generator} to terminal 1 on {wire}"
        yield f"connect terminal 2 on {wire} to {end}"


def conductivity(notes: Notes, thing: str, place: str, yes: str, no: str) -> Plan:
    """Put a thing into a circuit with a lamp, and then into the box that the lamp's light asks for."""
    yield Step(place, f"pick up {thing}")
    yield Step(place, f"focus on {thing}")
    yield Step("workshop", f"drop {thing}")
    yield Step("workshop", "look around")
    bulbs, wires = [n for n in notes.things("workshop") if n.endswith("light bulb")], _wires(notes)
    if bulbs and len(wires) > 2:
        ends = (f"cathode on {bulbs[0]}", f"terminal 1 on {thing}")
        yield from (Step("workshop", joint) for joint in _circuit("battery", wires, ends))
        yield Step("workshop", f"connect terminal 2 on {thing} to terminal 1 on {wires[2]}")
        yield Step("workshop", f"connect terminal 2 on {wires[2]} to anode on {bulbs[0]}")
        yield from [Step("workshop", "wait1")] * 2
        yield Step("workshop", "look around")
    lit = any(f"{bulb}, which is on" in line for bulb in bulbs for line in notes.lines("workshop"))
    yield Step("workshop", f"move {thing} to {yes if lit else no}")


def paint(notes: Notes, colour: str) -> Plan:
    """Mix a secondary colour of two primary ones, and a tertiary one of a secondary and a primary one."""
    second = next((part for part in colour.split("-") if part in PAINTS), "green")
    yield Step("art studio", "look around")
    bowl = next((n for n in notes.things("art studio") if n in ("bowl", "glass cup", "jug")), "bowl")
    yield from (Step("art studio", f"pour wood cup containing {part} paint in {bowl}") for part in PAINTS[second])
    yield Step("art studio", f"mix {bowl}")
    yield Step("art studio", f"focus on {second} paint")
    for first in (part for part in colour.split("-") if part not in PAINTS):
        yield from (Step("art studio", f"open {box}") for box in notes.closed("art studio"))
        yield Step("art studio", f"pour wood cup containing {first} paint in {bowl}")
        yield Step("art studio", f"mix {bowl}")
        yield Step("art studio", f"focus on paint in {bowl}")


def change_of_state(notes: Notes, thing: str, how: str = "change") -> Plan:
    """Get a substance into the metal pot, focus on it, and cool it in the freezer or heat it on stove and furnace."""
    yield Step("kitchen", "look around")
    yield from (Step("kitchen", f"open {box}") for box in notes.closed("kitchen"))
    yield Step("kitchen", "look around")
    yield Step("kitchen", "pick up metal pot")
    yield from _fill(notes) if thing == "water" else _into_pot(notes, thing)
    yield Step("kitchen", f"focus on {'substance in metal pot' if thing == 'water' else thing}")
    if how == "freeze" or (how, thing) == ("melt", "water"):
        yield Step("kitchen", "move metal pot to freezer")
        while not any("containing a substance called ice" in line for line in notes.lines("kitchen")):
            yield from (Step("kitchen", "wait"), Step("kitchen", "look around"))
        yield Step("kitchen", "pick up metal pot")
    yield from _heat(notes)


def _fill(notes: Notes) -> Plan:
    for room in ("kitchen", "bathroom", "foundry"):
        yield from (Step(room, f"{deed} sink") for deed in ("move metal pot to", "activate", "deactivate"))
        yield Step(room, "pick up metal pot")
        yield Step(room, "look in metal pot")
        if "water" in notes.heard:
            return


def _into_pot(notes: Notes, thing: str) -> Plan:
    """Put a substance into the pot: food is in the kitchen, metal in the workshop; a liquid is poured from its cup."""
    seen = any(re.search(rf"\b{thing}\b(?! cup)", line) for line in notes.lines("kitchen"))
    room = "kitchen" if seen else "workshop"
    yield Step(room, f"move {thing} to metal pot")
    if "liquid" in notes.heard:
        cup = re.compile(rf"([a-z]+ [a-z]+) \(containing (?:a substance called )?{thing}\)")
        found = [match for line in notes.lines(room) if (match := cup.search(line))]
        yield from (Step(room, f"pour {match[1].removeprefix('a ')} in metal pot") for match in found)


def _heat(notes: Notes) -> Plan:
    for room, device in (("kitchen", "stove"), ("foundry", "blast furnace")):
        if "metal pot" not in notes.held:
            yield Step("kitchen", "pick up metal pot")
        if room == "foundry":
            yield Step(room, f"open {device}")
        yield Step(room, f"move metal pot to {device}")
        yield Step(room, f"activate {device}")
        if "broken" not in notes.heard:
            yield from [Step(room, "wait1"), Step(room, "look in metal pot")] * 5


KIND = r"(?P<kind>(?:non-)?living thing|plant|animal)"
PLANS: tuple[tuple[str, Callable[..., Plan]], ...] = (
    (rf"find a\(n\) {KIND}\. .* move it to the (?P<box>[a-z ]+ box) in the (?P<place>[a-z ]+)\.", find),
    (r"with the (?P<which>longest|shortest) life span(?:, then the (?P<then>[a-z]+) life span)?\.", life_span),
    (r"life stages of the (?P<plant>[a-z ]+) plant, starting", plant_stages),
    (r"life stages of the (?P<animal>[a-z ]+), starting", animal_stages),
    (
        r"measure the temperature of (?P<thing>.+?), which is located around the (?P<place>[a-z ]+)\. .* above "
        r"(?P<limit>[-\d.]+) degrees celsius, place it in the (?P<above>[a-z ]+)\. .* below .* place it in the "
        r"(?P<below>[a-z ]+)\. The boxes are located around the (?P<boxes>[a-z ]+)\.",
        thermometer,
    ),
    (r"turn on the (?P<component>[a-z ]+?)(?: by powering it using a (?P<source>\w+) power source)?\. First", power),
    (
        r"determine if (?P<thing>.+?) is electrically conductive\. .* located around the (?P<place>[a-z ]+)\. .* "
        r"conductive, place it in the (?P<yes>[a-z ]+)\. .* nonconductive, place it in the (?P<no>[a-z ]+)\.",
        conductivity,
    ),
    (r"create (?P<colour>[a-z-]+) paint\.", paint),
    (r"task is to (?P<how>boil|melt|freeze) (?P<thing>[a-z ]+)\.", change_of_state),
    (r"change the state of matter of (?P<thing>[a-z ]+)\.", change_of_state),
)
