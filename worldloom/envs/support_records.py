"""What a world model may know of a support task at its start: the records that can be reached from its customer.

Each record stands in the words of the tool that shows it, so that predicting the tool's answer is copying. The
customer is found by what the scenario itself says of them; nothing is taken from the gold actions.
"""

import json
import re
from collections.abc import Callable, Iterator
from inspect import signature
from itertools import chain
from typing import Any, NamedTuple

from worldloom.envs.support_desk import Call, Desk

USER_ID = re.compile(r"\b[a-z]+_[a-z]+_\d{4}\b")
RESERVATION_ID = re.compile(r"\b[A-Z0-9]{6}\b")
ORDER_ID = re.compile(r"#W\d{7}")


class Record(NamedTuple):
    """Something that a tool shows of the untouched database."""

    name: str
    arguments: dict[str, Any]


def initial_context(desk: Desk, scenario: str, most: int) -> str:
    """The customer's records, one a line, as ``tool argument ...: result``, at most ``most`` characters in all.

    Records come in the order of ``RULES``: what the scenario names, with all that hangs on it, comes before what it
    does not name. Each is there whole or, where it does not fit into what is left, not at all; a smaller one after it
    still may be.
    """
    lines: list[str] = []
    left = most
    for line in _lines(desk, scenario):
        if len(line) + 1 <= left:
            lines.append(line)
            left -= len(line) + 1
    return "\n".join(lines)


def _lines(desk: Desk, scenario: str) -> Iterator[str]:
    said: set[str] = set()
    if desk.world.user_tools is not None:
        phone = desk.world.user_tools.db.model_dump(mode="json", exclude_none=True)
        yield f"phone: {json.dumps(phone, separators=(',', ':'))}"
    for record in chain(_phone(desk.world.user_tools), RULES[desk.domain](desk.world.tools.db, scenario)):
        said_as = " ".join([record.name, *(str(value) for value in record.arguments.values())])
        if said_as not in said:
            said.add(said_as)
            yield f"{said_as}: {desk.call(Call(*record))}"


def _phone(kit: Any) -> Iterator[Record]:
    """What the phone's tools show that read it and ask for nothing."""
    if kit is not None:
        shows = [
            name for name, tool in kit.tools.items() if kit.tool_type(name) == "read" and not signature(tool).parameters
        ]
        yield from (Record(name, {}) for name in sorted(shows))


def _airline(db: Any, scenario: str) -> Iterator[Record]:
    """The user; reservations, the state of their flights, and what else flies there on those days."""
    named = [name for name in RESERVATION_ID.findall(scenario) if name in db.reservations]
    users = [name for name in USER_ID.findall(scenario) if name in db.users]
    users = list(dict.fromkeys(users + [db.reservations[name].user_id for name in named]))
    yield from (Record("get_user_details", {"user_id": user}) for user in users)
    mine = [name for user in users for name in db.users[user].reservations if name in db.reservations]
    for names in _parts(mine, named):
        yield from (Record("get_reservation_details", {"reservation_id": name}) for name in names)
        flights = [flight for name in names for flight in db.reservations[name].flights]
        yield from (Record("get_flight_status", {"flight_number": f.flight_number, "date": f.date}) for f in flights)
        ways = [{"origin": f.origin, "destination": f.destination, "date": f.date} for f in flights]
        yield from (Record("search_direct_flight", way) for way in ways)


def _retail(db: Any, scenario: str) -> Iterator[Record]:
    """The user; orders, and the products in them, the ones that the scenario speaks of first."""
    named = [name for name in ORDER_ID.findall(scenario) if name in db.orders]
    users = [user.user_id for user in db.users.values() if _is_retail_user(user, scenario)]
    users = list(dict.fromkeys(users + [db.orders[name].user_id for name in named]))
    yield from (Record("get_user_details", {"user_id": user}) for user in users)
    mine = [name for user in users for name in db.users[user].orders if name in db.orders]
    for names in _parts(mine, named):
        yield from (Record("get_order_details", {"order_id": name}) for name in names)
        items = [item for name in names for item in db.orders[name].items]
        items.sort(key=lambda item: item.name.lower() not in scenario.lower())
        yield from (Record("get_product_details", {"product_id": item.product_id}) for item in items)


def _is_retail_user(user: Any, scenario: str) -> bool:
    text, name = scenario.lower(), f"{user.name.first_name} {user.name.last_name}".lower()
    return user.user_id in text or user.email.lower() in text or (name in text and user.address.zip in text)


def _telecom(db: Any, scenario: str) -> Iterator[Record]:
    """The customer, their lines, bills, the lines' plans, the devices, then the other plans."""
    for customer in db.customers:
        lines = [line for line in db.lines if line.line_id in customer.line_ids]
        numbers = [customer.phone_number, *(line.phone_number for line in lines)]
        number = next((number for number in numbers if number in scenario), None)
        if number is None:
            continue
        yield Record("get_customer_by_phone", {"phone_number": number})
        lines = sorted(lines, key=lambda line: line.phone_number not in scenario)
        ids = [*(line.line_id for line in lines), *customer.bill_ids]
        ids += [*(line.plan_id for line in lines), *(line.device_id for line in lines if line.device_id)]
        for name in [*ids, *(plan.plan_id for plan in db.plans)]:
            yield Record("get_details_by_id", {"id": name})


def _parts(names: list[str], named: list[str]) -> Iterator[list[str]]:
    """The names that the scenario has, if any, then the others."""
    yield [name for name in names if name in named]
    yield [name for name in names if name not in named]


RULES: dict[str, Callable[[Any, str], Iterator[Record]]] = {
    "airline": _airline,
    "retail": _retail,
    "telecom": _telecom,
}
