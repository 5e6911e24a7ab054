"""What a support agent would do next, by what it was told and has read: one plan for each of tau2's desks.

A plan yields calls, the most wanted first; the agent makes the first one that it has not made. ``bold`` yields what
could be done to any record, asked for or not.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from worldloom.envs.support_desk import Call

USER_ID = re.compile(r"\b[a-z]+_[a-z]+_\d{4}\b")
RESERVATION_ID = re.compile(r"\b(?!HAT\d)(?:(?=[A-Z0-9]*\d)[A-Z0-9]{6}|[A-Z]{6})\b")
ORDER_ID = re.compile(r"#W\d{7}")
EMAIL = re.compile(r"[\w.]+@[\w.]+\.\w+")
NAME = re.compile(r"[Nn]ame is ([A-Z]\w+) ([A-Z]\w+)|You are ([A-Z]\w+) ([A-Z]\w+)")
ZIP = re.compile(r"\b\d{5}\b")
PHONE = re.compile(r"\b\d{3}-\d{3}-\d{4}\b")
NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
BAGS = re.compile(r"(\w+) (?:more |extra |additional |checked )*(?:bag|suitcase)")
# A record is known by its id and by one more thing that only the whole record has.
KINDS = {
    "order_id": "fulfillments", "reservation_id": "passengers", "product_id": "variants", "customer_id": "line_ids",
    "line_id": "plan_id", "bill_id": "total_due", "user_id": "payment_methods",
}  # fmt: skip
WISHES = {
    "return": "return", "refund": "return", "exchange": "swap", "change": "swap", "modify": "swap", "switch": "swap",
    "replace": "swap", "upgrade": "swap", "cancel": "cancel",
}  # fmt: skip
NOW = "2024-05-15T15:00:00"  # at tau2's airline
TODAY = "2025-02-25"  # at tau2's telephone company


class Notes:
    """What the texts of one episode have told so far."""

    def __init__(self, scenario: str):
        self.scenario, self.lower = scenario, scenario.lower()
        self.records: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in KINDS}
        self.told: dict[str, str] = {}
        """The newest answer to each call."""
        self.words: dict[str, None] = {}
        """Names and ids in the order in which they came up."""
        for pattern in (USER_ID, RESERVATION_ID, ORDER_ID, EMAIL, ZIP, PHONE):
            self.words |= dict.fromkeys(pattern.findall(scenario))

    def hear(self, action: str, observation: str) -> None:
        """Take in an answer; text that says nothing new changes nothing."""
        self.told[action] = observation
        try:
            self._read(json.loads(observation))
        except ValueError:
            self.words |= dict.fromkeys(USER_ID.findall(observation))

    def _read(self, said: Any) -> None:
        if isinstance(said, str) and len(said) <= 40:
            self.words[said] = None
        for part in said.values() if isinstance(said, dict) else said if isinstance(said, list) else ():
            self._read(part)
        if isinstance(said, dict):
            kind = next((kind for kind, proof in KINDS.items() if kind in said and proof in said), None)
            if kind is not None:
                self.records[kind][said[kind]] = said

    def all(self, kind: str) -> list[dict[str, Any]]:
        """The records of a kind that were read; only those that the scenario names, by id or by way, if it does."""
        known = self.records[kind]
        named = [record for name, record in known.items() if name in self.scenario]
        ways = [r for r in known.values() if all(r.get(end, "?") in self.scenario for end in ("origin", "destination"))]
        return named or ways or list(known.values())

    def answer(self, name: str, **arguments: Any) -> str:
        """What a call was answered last; nothing if it was not made."""
        return self.told.get(Call(name, arguments).text, "")

    def wish(self, thing: str) -> str | None:
        """What is to be done with a thing: the verb of ``WISHES`` shortest before a mention, else the first after."""
        places = [found.start() for found in re.finditer(re.escape(self.called(thing)), self.lower)]
        verbs = [(found.start(), WISHES[found[0]]) for found in re.finditer("|".join(WISHES), self.lower)]
        before = [(place - at, wish) for place in places for at, wish in verbs if at < place]
        after = [(at - place, wish) for place in places for at, wish in verbs if at > place]
        return min(before or after, default=(0, None))[1]

    def called(self, thing: str) -> str:
        """How the scenario calls a thing: by its name or only by the last word of it."""
        name = thing.lower()
        return name if name in self.lower else name.rpartition(" ")[2]

    def says(self, value: str) -> bool:
        """The scenario has a value as a word of its own."""
        return re.search(rf"(?<!\w){re.escape(value.lower())}(?!\w)", self.lower) is not None

    def asks(self, *words: str) -> bool:
        """The scenario has one of the words."""
        return any(word in self.lower for word in words)


def airline(notes: Notes, bold: bool = False) -> Iterator[Call]:
    """Read the user and the reservations, then cancel, pack, upgrade or compensate as the scenario says."""
    users = [*USER_ID.findall(notes.scenario), *notes.records["user_id"]]
    yield from (Call("get_user_details", {"user_id": user}) for user in dict.fromkeys(users))
    named = RESERVATION_ID.findall(notes.scenario)
    listed = [name for user in notes.records["user_id"].values() for name in user["reservations"]]
    yield from (Call("get_reservation_details", {"reservation_id": name}) for name in named or listed)
    for reservation in notes.all("reservation_id"):
        yield from _journey(notes, reservation, bold)


def _journey(notes: Notes, reservation: dict[str, Any], bold: bool) -> Iterator[Call]:
    user = notes.records["user_id"].get(reservation["user_id"], {})
    cards = sorted(user.get("payment_methods", {}), key=lambda card: not card.startswith("credit"))
    this, first = {"reservation_id": reservation["reservation_id"]}, (reservation["flights"] or [None])[0]
    if bold or (notes.asks("cancel") and _may_be_cancelled(reservation)):
        yield Call("cancel_reservation", this)
    if cards and (bold or notes.asks("bag", "suitcase")):
        bags = reservation["total_baggages"] + _bags(notes)
        paid = {"nonfree_baggages": reservation["nonfree_baggages"], "payment_id": cards[0]}
        yield Call("update_reservation_baggages", {**this, "total_baggages": bags, **paid})
    if cards and (bold or notes.asks("business", "upgrade", "downgrade", "cabin")):
        cabin = "business" if bold or notes.asks("to business", "upgrade") else "economy"
        flights = [{key: flight[key] for key in ("flight_number", "date")} for flight in reservation["flights"]]
        yield Call("update_reservation_flights", {**this, "cabin": cabin, "flights": flights, "payment_id": cards[0]})
    if first and (bold or notes.asks("change", "delay", "earlier", "later", "nonstop", "direct")):
        yield Call("get_flight_status", {key: first[key] for key in ("flight_number", "date")})
        yield Call("search_direct_flight", {key: first[key] for key in ("origin", "destination", "date")})
    if bold or notes.asks("compensat"):
        yield Call(
            "send_certificate", {"user_id": reservation["user_id"], "amount": 50 * len(reservation["passengers"])}
        )


def _may_be_cancelled(reservation: dict[str, Any]) -> bool:
    """By the airline's rules: insured, in business, or booked within the last day."""
    fresh = reservation["created_at"] >= NOW.replace("-15T", "-14T")
    return bool(fresh or reservation["cabin"] == "business" or reservation["insurance"] == "yes")


def _bags(notes: Notes) -> int:
    said = BAGS.search(notes.lower)
    return NUMBERS.get(said[1], int(said[1]) if said[1].isdigit() else 1) if said else 1


def retail(notes: Notes, bold: bool = False) -> Iterator[Call]:
    """Find the user, read their orders and the products spoken of, then cancel, return, exchange or modify."""
    yield from _retail_user(notes)
    listed = [name for user in notes.records["user_id"].values() for name in user["orders"]]
    named = ORDER_ID.findall(notes.scenario)
    yield from (Call("get_order_details", {"order_id": name}) for name in dict.fromkeys([*named, *listed]))
    for order in notes.all("order_id"):
        for item in _spoken_of(notes, order, bold):
            yield Call("get_product_details", {"product_id": item["product_id"]})
    for order in notes.all("order_id"):
        yield from _purchase(notes, order, bold)


def _retail_user(notes: Notes) -> Iterator[Call]:
    ids = [word for word in notes.words if USER_ID.fullmatch(word)]
    for email in [] if ids else EMAIL.findall(notes.scenario):
        yield Call("find_user_id_by_email", {"email": email})
    name, code = NAME.search(notes.scenario), ZIP.search(notes.scenario)
    if name and code and not ids:
        first, last = [part for part in name.groups() if part]
        yield Call("find_user_id_by_name_zip", {"first_name": first, "last_name": last, "zip": code[0]})
    yield from (Call("get_user_details", {"user_id": name}) for name in ids[:1])


def _spoken_of(notes: Notes, order: dict[str, Any], bold: bool) -> list[dict[str, Any]]:
    return [item for item in order["items"] if bold or notes.called(item["name"]) in notes.lower]


def _purchase(notes: Notes, order: dict[str, Any], bold: bool) -> Iterator[Call]:
    this, paid = {"order_id": order["order_id"]}, order["payment_history"][:1]
    how = {"payment_method_id": paid[0]["payment_method_id"]} if paid else {}
    wishes = [(item, notes.wish(item["name"])) for item in _spoken_of(notes, order, bold)]
    delivered, pending = bold or order["status"] == "delivered", bold or order["status"] == "pending"
    cancel = "cancel" in [wish for _, wish in wishes] or notes.wish(order["order_id"]) == "cancel"
    if pending and (bold or cancel):
        reason = "ordered by mistake" if notes.asks("mistake") else "no longer needed"
        yield Call("cancel_pending_order", {**this, "reason": reason})
    swaps = [(item["item_id"], _variant(notes, item)) for item, wish in wishes if bold or wish == "swap"]
    pairs = [(old, new) for old, new in swaps if new]
    swap = {"item_ids": [old for old, _ in pairs], "new_item_ids": [new for _, new in pairs], **how}
    if pairs and delivered:
        yield Call("exchange_delivered_order_items", {**this, **swap})
    if pairs and pending:
        yield Call("modify_pending_order_items", {**this, **swap})
    back = [item["item_id"] for item, wish in wishes if bold or wish == "return"]
    if back and delivered:
        yield Call("return_delivered_order_items", {**this, "item_ids": back, **how})


def _variant(notes: Notes, item: dict[str, Any]) -> str | None:
    """The other variant on sale that has most of what is asked for, then most of what the item has."""
    product = notes.records["product_id"].get(item["product_id"], {"variants": {}})
    fits = []
    for name, variant in product["variants"].items():
        if variant["available"] and name != item["item_id"]:
            options, old = variant["options"], item["options"]
            wanted = sum(notes.says(value) for key, value in options.items() if old.get(key) != value)
            fits.append((wanted, sum(old.get(key) == value for key, value in options.items()), name))
    return max(fits)[2] if fits else None


def telecom(notes: Notes, bold: bool = False) -> Iterator[Call]:
    """Find the customer's line, look at the phone, mend what is out of order, test."""
    for number in PHONE.findall(notes.scenario)[:1]:
        yield Call("get_customer_by_phone", {"phone_number": number})
    for customer in notes.records["customer_id"].values():
        yield from (Call("get_details_by_id", {"id": name}) for name in customer["line_ids"])
    yield from (Call(name, {}) for name in LOOKS)
    yield Call("check_app_permissions", {"app_name": "messaging"})
    lines = [line for line in notes.records["line_id"].values() if bold or line["phone_number"] in notes.scenario]
    ended = any(line["status"] != "Active" and line["contract_end_date"] < TODAY for line in lines)
    if not bold and (ended or "locked" in notes.answer("check_sim_status")):
        yield Call("transfer_to_human_agents", {"summary": "This cannot be mended here."})
        return
    for line in lines:
        yield from _line(notes, line, bold)
    for look, sign, mending in MENDING:
        if bold or (sign in notes.answer(look) and _is_due(notes, mending)):
            yield Call(mending, {"mode": "4g_5g_preferred"} if mending == "set_network_mode_preference" else {})
    for permission in ("storage", "sms"):
        known = notes.answer("check_app_permissions", app_name="messaging")
        if bold or (known and permission not in known):
            yield Call("grant_app_permission", {"app_name": "messaging", "permission": permission})
    if bold or notes.answer("reset_apn_settings") or notes.answer("make_payment"):
        yield Call("reboot_device", {})
    yield from (Call(name, {}) for name in ("check_status_bar", "run_speed_test", "can_send_mms"))


LOOKS = (
    "check_network_status", "check_sim_status", "check_network_mode_preference", "check_data_restriction_status",
    "check_vpn_status", "check_apn_settings", "check_wifi_calling_status",
)  # fmt: skip
MENDING = (
    ("check_network_status", "Airplane Mode: ON", "toggle_airplane_mode"),
    ("check_network_status", "SIM Card Status: missing", "reseat_sim_card"),
    ("check_network_status", "Mobile Data Enabled: No", "toggle_data"),
    ("check_network_status", "Data Roaming Enabled: No", "toggle_roaming"),
    ("check_network_mode_preference", "_only", "set_network_mode_preference"),
    ("check_data_restriction_status", "is ON", "toggle_data_saver_mode"),
    ("check_vpn_status", "is ON", "disconnect_vpn"),
    ("check_apn_settings", "Not Set", "reset_apn_settings"),
    ("check_apn_settings", "broken", "reset_apn_settings"),
    ("check_wifi_calling_status", "turned ON", "toggle_wifi_calling"),
)


def _is_due(notes: Notes, mending: str) -> bool:
    """Roaming only matters abroad, Wi-Fi calling only for picture messages."""
    if mending == "toggle_roaming":
        return notes.asks("abroad")
    return mending != "toggle_wifi_calling" or notes.asks("mms")


def _line(notes: Notes, line: dict[str, Any], bold: bool) -> Iterator[Call]:
    for customer_id in list(notes.records["customer_id"])[:1]:
        this = {"customer_id": customer_id, "line_id": line["line_id"]}
        yield Call("get_data_usage", this)
        usage = notes.answer("get_data_usage", **this)
        if bold or _used_up(usage):
            yield Call("refuel_data", {**this, "gb_amount": 2.0})
        if bold or (not line["roaming_enabled"] and notes.asks("abroad")):
            yield Call("enable_roaming", this)
        if bold or line["status"] == "Suspended":
            yield Call("get_bills_for_customer", {"customer_id": customer_id})
            for bill in notes.records["bill_id"].values():
                if bold or bill["status"] == "Overdue":
                    yield Call("send_payment_request", {"customer_id": customer_id, "bill_id": bill["bill_id"]})
                    yield from (Call("check_payment_request", {}), Call("make_payment", {}))
            yield Call("resume_line", this)


def _used_up(usage: str) -> bool:
    try:
        said = json.loads(usage)
        return bool(float(said["data_used_gb"]) > float(said["data_limit_gb"]) + float(said["data_refueling_gb"]))
    except (ValueError, KeyError, TypeError):
        return False


PLANS = {"airline": airline, "shop": retail, "telephone": telecom}
