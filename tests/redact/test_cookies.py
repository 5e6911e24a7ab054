"""Cookies: values that look drawn are found in headers as they are and in JSON; plain ones stay."""

import pytest

from worldloom.redact.find import find, find_in_field
from worldloom.redact.rules import Rules

SID = "8f2kq9x7c1"
FOUND = {
    "a request": f"Cookie: session={SID}; theme=dark",
    "an answer": f"Set-Cookie: connect.sid={SID}; Path=/; HttpOnly",
    "not the first": f"cookie: theme=dark; lang=en; sid={SID}",
    "JSON": f'{{"headers": {{"Cookie": "lang=en; sid={SID}"}}}}',
    "JSON inside JSON": rf"{{\"Set-Cookie\": \"sid={SID}; Path=/\"}}",
    "a list": f'"set-cookie": ["theme=dark; Path=/", "sid={SID}; Secure"]',
    "after a date": f"Set-Cookie: a=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT; Path=/, sid={SID}",
    "in quotes": f'Cookie: sid="{SID}"; x=2',
    "a command line": f"curl --cookie 'sid={SID}' https://x.example",
    "after the word": f"The cookie banner is gone. Cookie: sid={SID}",
    "after a placeholder": f"Cookie: session=<COOKIE_1>; sid={SID}",
}
NOTHING = [
    "Set-Cookie: theme=dark; Path=/v2/orders; Max-Age=3600; Domain=shop2.example.com; SameSite=Lax; Secure",
    "Set-Cookie: lang=en; Expires=Wed, 21 Oct 2026 07:28:00 GMT; HttpOnly",
    "Cookie: seen=2026-10-21T07:28:00Z; n=123456789; consent=no", "Cookie: session={session_id1}",
    "Cookie: session=${SESSION_ID1}", "cookies=dict(session_id=abc12345)", "cookie: sid=new_session1()",
    "Cookie: next=https%3A%2F%2Fshop1.example%2Fa1", "the cookie recipe2 needs 100g sugar", f"session={SID}",
]  # fmt: skip


@pytest.mark.parametrize("text", FOUND.values(), ids=FOUND.keys())
def test_found(text: str) -> None:
    assert [(each.kind, text[each.start : each.stop]) for each in find(text, Rules())] == [("COOKIE", SID)]


@pytest.mark.parametrize("text", NOTHING)
def test_not_found(text: str) -> None:
    assert find(text, Rules()) == ()


def test_a_field_s_name_tells_of_cookies_however_many_there_are() -> None:
    text = f"{'theme=dark; ' * 40}sid={SID}"
    (found,) = find_in_field("Cookie", text, Rules())
    assert (found.kind, text[found.start : found.stop]) == ("COOKIE", SID)
    assert find_in_field("note", text, Rules()) == ()
