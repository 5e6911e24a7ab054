"""Episodes of a support desk, a terminal and an API client with secrets planted in them, and with what is none.

All is drawn from a seed, and stays as it is drawn: a token may have no digit. Values have the forms that their issuers
publish; phone numbers are ``phonenumbers``' own examples, IBANs and cards get their check digits by
``python-stdnum``. The texts around them are written by hand.
"""

import base64
import json
import random
import string
import uuid
from collections.abc import Callable
from typing import NamedTuple

import phonenumbers
from stdnum import luhn
from stdnum.iban import calc_check_digits

from worldloom.trajectory import AgentRef, EnvRef, Step, TaskRef, Trajectory

LETTERS, UPPER, LOWER, DIGITS = string.ascii_letters, string.ascii_uppercase, string.ascii_lowercase, string.digits
ALNUM, HEX, URLSAFE = LETTERS + DIGITS, "0123456789abcdef", LETTERS + DIGITS + "-_"
FIRST = ("Mara", "Idris", "Noelle", "Tobias", "Xin", "Priya", "Soren", "Amadi")
LAST = ("Quillfeather", "Okonjo", "Lindqvist", "Marchetti", "Vandersloot", "Haverbrook", "Zielinski", "Tanabe")
REGIONS = ("US", "GB", "DE", "FR", "IN", "BR", "JP", "ZA", "AU", "MX", "NL", "IT")
IBANS = {"DE": 18, "GB": 18, "FR": 23, "NL": 14, "ES": 20, "CH": 17}


class Planted(NamedTuple):
    """One secret: its kind here, the value, and the placeholder kinds that say it right."""

    kind: str
    value: str
    told: frozenset[str]


class Case(NamedTuple):
    """One episode, what is planted in it, and the texts in it that are no secrets."""

    trajectory: Trajectory
    planted: tuple[Planted, ...]
    innocent: tuple[str, ...]


def drawn(rng: random.Random, letters: str, length: int) -> str:
    return "".join(rng.choices(letters, k=length))


def email(rng: random.Random) -> str:
    name = rng.choice([".", "_", "-", "+", ""]).join([rng.choice(FIRST), rng.choice(LAST)]) + rng.choice(
        ["", "7", "1984"]
    )
    domain = rng.choice(["example.com", "mail.example.co.uk", "shop-4.example.org", "firma.example.de"])
    return rng.choice([str.lower, str])(name) + "@" + domain


def phone(rng: random.Random) -> str:
    found = phonenumbers.example_number_for_type(rng.choice(REGIONS), phonenumbers.PhoneNumberType.MOBILE)
    digits = str(found.national_number)
    found.national_number = int(digits[:-3] + drawn(rng, DIGITS, 3))
    if found.country_code == 1 and rng.random() < 0.5:
        return phonenumbers.format_number(found, phonenumbers.PhoneNumberFormat.NATIONAL)
    form = rng.choice(["INTERNATIONAL", "E164"])
    return phonenumbers.format_number(found, getattr(phonenumbers.PhoneNumberFormat, form))


def card(rng: random.Random) -> str:
    start, length = rng.choice([("4", 16), ("51", 16), ("55", 16), ("2221", 16), ("6011", 16), ("34", 15), ("37", 15)])
    digits = start + drawn(rng, DIGITS, length - len(start) - 1)
    digits += luhn.calc_check_digit(digits)
    sizes = (4, 6, 5) if length == 15 else (4, 4, 4, 4)
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    separator = rng.choice(["", " ", "-"])
    return separator.join(digits[at : at + size] for at, size in zip(starts, sizes, strict=True))


def iban(rng: random.Random) -> str:
    country = rng.choice(list(IBANS))
    body = drawn(rng, UPPER, 4) + drawn(rng, DIGITS, 14) if country == "GB" else drawn(rng, DIGITS, IBANS[country])
    if country == "NL":
        body = "INGB" + body[4:]
    whole = country + calc_check_digits(f"{country}00{body}") + body
    return " ".join(whole[at : at + 4] for at in range(0, len(whole), 4)) if rng.random() < 0.5 else whole


def ssn(rng: random.Random) -> str:
    return f"{rng.randint(101, 649)}-{rng.randint(11, 99)}-{rng.randint(1001, 9999)}"


def private_key(rng: random.Random) -> str:
    name = rng.choice(["RSA PRIVATE KEY", "EC PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY"])
    body = "\n".join(drawn(rng, ALNUM + "+/", 64) for _ in range(rng.randint(4, 12)))
    return f"-----BEGIN {name}-----\n{body}\n{drawn(rng, ALNUM + '+/', 30)}==\n-----END {name}-----"


def jwt(rng: random.Random) -> str:
    def part(data: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")

    claims = {"sub": drawn(rng, DIGITS, 10), "name": rng.choice(FIRST), "iat": rng.randint(10**9, 2 * 10**9)}
    return f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}.{drawn(rng, URLSAFE, 43)}"


def connection(rng: random.Random) -> str:
    scheme = rng.choice(["postgres", "postgresql+psycopg2", "mysql", "mongodb+srv", "redis", "amqp", "https"])
    word = drawn(rng, ALNUM + "!*-_.~%"[: rng.randint(0, 6)], 14)
    user = "" if scheme == "redis" else rng.choice(["app", "svc-orders", "root"])
    return f"{scheme}://{user}:{word}@db-{rng.randint(1, 9)}.internal.example:{rng.randint(1000, 9999)}/orders?ssl=true"


def password(rng: random.Random) -> str:
    words = [rng.choice(["Winter", "harbour", "Tulip", "kestrel", "Copper"]), drawn(rng, DIGITS, 3)]
    plain = rng.choice(["", "_", "!"]).join(words) + rng.choice(["", "!", "#"])
    return rng.choice([plain, drawn(rng, ALNUM + "!#%&*+-=?@^_~", 12)])


def slack(rng: random.Random) -> str:
    return f"xox{rng.choice('bp')}-{drawn(rng, DIGITS, 12)}-{drawn(rng, DIGITS, 12)}-{drawn(rng, ALNUM, 24)}"


def basic(rng: random.Random) -> str:
    return base64.b64encode(f"{rng.choice(FIRST).lower()}:{drawn(rng, ALNUM, 12)}".encode()).decode()


def cookie(rng: random.Random) -> str:
    """The id of a session, as Express, PHP and other web frameworks draw it."""
    express = f"s%3A{drawn(rng, URLSAFE, 32)}.{drawn(rng, ALNUM, 40)}"
    return rng.choice([express, drawn(rng, LOWER + DIGITS, 26), drawn(rng, LETTERS, 32), drawn(rng, URLSAFE, 43)])


def named(rng: random.Random) -> str:
    return f"{rng.choice(FIRST)} {rng.choice(LAST)}"


Make = Callable[[random.Random], str]

AS_IT_IS = (  # texts that any value may stand in
    "I can give it to you: {}. Does that help?",
    "{}",
    "Output of step 3:\n  value = {}\n  done in 0.31 s",
    "> {} (pasted by the customer)\n",
    '{{"status": "ok", "data": "{}", "took_ms": 12}}',
    "curl -s https://api.shop.example/v2/check --data '{}'",
    "| 7 | {} | 2024-05-20 |",
)
KEYED = {
    "account": (
        "account number: {}", '{{"account_number": "{}"}}', "Acct #{}", "my bank account is {}", "routing number {}",
    ),
    "password": (
        "password: {}", '{{"user": "ops", "password": "{}"}}', "export DB_PASSWORD={}", "My password is {}",
        "mysql -u root --password={} orders", "login(user='ops', password='{}')", '{{\\"passwd\\": \\"{}\\"}}',
        "Server=tcp:db.example,1433;User ID=app;Password={};Encrypt=True",
    ),
    "api_key": (
        "API key: {}", '{{"api_key": "{}"}}', "X-Api-Key: {}", "export SERVICE_SECRET={}", "?access_token={}&page=2",
        "client_secret = '{}'", '{{\\"secretKey\\": \\"{}\\"}}', "tool --token {} --verbose",
    ),
    "aws_secret": ("aws_secret_access_key = {}", '{{"SecretAccessKey": "{}"}}', "AWS_SECRET_ACCESS_KEY={}"),
    "bearer_token": ("Authorization: Bearer {}", "curl -H 'Authorization: Bearer {}' https://api.example/v1"),
    "cookie": (
        "Cookie: session={}; theme=dark", "Set-Cookie: connect.sid={}; Path=/; HttpOnly; Max-Age=3600",
        '{{"headers": {{"Cookie": "lang=en-GB; PHPSESSID={}"}}}}', "curl -H 'Cookie: theme=dark; sid={}' https://x.example",
        '{{\\"set-cookie\\": \\"sessionid={}; Expires=Wed, 21 Oct 2026 07:28:00 GMT; Secure\\"}}',
    ),
    "basic_auth": ("Authorization: Basic {}", '{{"headers": {{"Authorization": "Basic {}"}}}}'),
    "phone": (
        "Call me at {} after six.", '{{"phone": "{}"}}', "tel: {}", "My mobile number is {}, thanks",
        "phone={}; sms=yes",
    ),
}  # fmt: skip


def _kinds() -> dict[str, tuple[Make, frozenset[str]]]:
    """Each kind: how a value is made, and as which kinds it may be told."""
    table: dict[str, tuple[Make, str]] = {
        "email": (email, "EMAIL"),
        "phone": (phone, "PHONE"),
        "card": (card, "CARD"),
        "iban": (iban, "IBAN"),
        "account": (lambda rng: drawn(rng, DIGITS, rng.randint(8, 12)), "ACCOUNT"),
        "ssn": (ssn, "SSN"),
        "private_key": (private_key, "PRIVATE_KEY"),
        "jwt": (jwt, "JWT"),
        "connection_string": (connection, "CONNECTION_STRING"),
        "password": (password, "PASSWORD"),
        "api_key": (lambda rng: drawn(rng, rng.choice([ALNUM, HEX, URLSAFE]), rng.randint(20, 40)), "SECRET"),
        "aws_access_key": (lambda rng: "AKIA" + drawn(rng, UPPER + "234567", 16), "AWS_ACCESS_KEY"),
        "aws_secret": (lambda rng: drawn(rng, ALNUM + "/+", 40), "SECRET"),
        "github_token": (_github, "GITHUB_TOKEN"),
        "gitlab_token": (lambda rng: "glpat-" + drawn(rng, URLSAFE, 20), "GITLAB_TOKEN"),
        "slack_token": (slack, "SLACK_TOKEN"),
        "stripe_key": (lambda rng: rng.choice(["sk_live_", "rk_test_"]) + drawn(rng, ALNUM, 24), "STRIPE_ACCESS_KEY"),
        "openai_key": (lambda rng: rng.choice(["sk-", "sk-proj-"]) + drawn(rng, ALNUM, 48), "OPENAI_TOKEN"),
        "google_key": (lambda rng: "AIza" + drawn(rng, URLSAFE, 35), "GOOGLE_KEY"),
        "huggingface_token": (lambda rng: "hf_" + drawn(rng, LETTERS, 34), "HUGGINGFACE_TOKEN"),
        "npm_token": (lambda rng: "npm_" + drawn(rng, ALNUM, 36), "NPM_TOKEN"),
        "sendgrid_key": (lambda rng: f"SG.{drawn(rng, URLSAFE, 22)}.{drawn(rng, URLSAFE, 43)}", "SENDGRID_API_KEY"),
        "bearer_token": (lambda rng: drawn(rng, URLSAFE, 32), "BEARER_TOKEN"),
        "cookie": (cookie, "COOKIE"),
        "basic_auth": (basic, "BASIC_AUTH"),
        "name": (named, "NAME"),
    }
    return {kind: (make, frozenset({told})) for kind, (make, told) in table.items()}


def _github(rng: random.Random) -> str:
    return rng.choice(
        [
            f"gh{rng.choice('pousr')}_{drawn(rng, ALNUM, 36)}",
            f"github_pat_{drawn(rng, ALNUM, 22)}_{drawn(rng, ALNUM, 59)}",
        ]
    )


KINDS = _kinds()
UNSTRUCTURED = {"password", "api_key", "aws_secret", "bearer_token", "basic_auth", "cookie", "account", "name"}
"""Kinds whose values have no form of their own: a key beside them, or the configuration, gives them away."""

INNOCENT: tuple[tuple[str, Make], ...] = (
    ("Your order is {}.", lambda rng: f"#W{drawn(rng, DIGITS, 7)}"),
    ("order {} was shipped", lambda rng: f"{drawn(rng, DIGITS, 3)}-{drawn(rng, DIGITS, 7)}-{drawn(rng, DIGITS, 7)}"),
    ('{{"order_id": "{}"}}', lambda rng: "1" + drawn(rng, DIGITS, 9)),
    ("Flight {} leaves at noon.", lambda rng: f"HAT{drawn(rng, DIGITS, 3)}"),
    ("Reservation {} was found", lambda rng: drawn(rng, UPPER + DIGITS, 6)),
    ("HEAD is now at {}", lambda rng: drawn(rng, HEX, 40)),
    ("commit {}\nDate:   Mon Nov 30", lambda rng: drawn(rng, HEX, 12)),
    ('{{"request_id": "{}"}}', lambda rng: str(uuid.UUID(int=rng.getrandbits(128), version=4))),
    ("sha256:{}", lambda rng: drawn(rng, HEX, 64)),
    ("That costs {} in all.", lambda rng: f"${rng.randint(1, 99)},{rng.randint(100, 999)}.{rng.randint(10, 99)}"),
    ("It leaves on {} and returns later.", lambda rng: f"2024-{rng.randint(10, 12)}-{rng.randint(10, 28)}"),
    ("[{}] GET /v1/orders 200", lambda rng: f"2024-05-{rng.randint(10, 28)}T{rng.randint(10, 23)}:17:00Z"),
    ("epoch {}", lambda rng: f"17{drawn(rng, DIGITS, 8)}"),
    ("listening on {}", lambda rng: f"10.{rng.randint(1, 9)}.0.{rng.randint(2, 250)}:{rng.randint(1024, 9999)}"),
    ("pandas=={} is installed", lambda rng: f"{rng.randint(1, 9)}.{rng.randint(10, 20)}.{rng.randint(0, 9)}"),
    ('{{"total_tokens": {}}}', lambda rng: drawn(rng, "123456789", 5)),
    ("the next_page_token is {}", lambda rng: drawn(rng, ALNUM, 16)),
    ("Your password is {}.", lambda rng: rng.choice(["incorrect", "too short", "not set", "required", "expired"])),
    ("def login(user: str, password: {}) -> None:", lambda rng: rng.choice(["str", "Optional[str]", "SecretText"])),
    ("token = {}", lambda rng: rng.choice(["tokenizer.next()", "self.token", "os.environ['TOKEN']", "s.read_token()"])),
    ("pages {} and more", lambda rng: f"sk-learn-documentation-{rng.randint(1, 9)}-stable-modules-generated-index"),
    ("Authorization: Bearer {}", lambda rng: rng.choice(["MyAccessTokenProviderFactory", "YOUR_ACCESS_TOKEN_HERE"])),
    ("use bearer {} there", lambda rng: rng.choice(["authentication", "token-authentication", "tokens"])),
    ("Cookie: {}", lambda rng: f"theme=dark; seen=2024-05-{rng.randint(10, 28)}; n={drawn(rng, DIGITS, 9)}"),
    ("Set-Cookie: lang=en; {}", lambda rng: f"Path=/v{rng.randint(1, 9)}/a; Domain=shop{rng.randint(1, 9)}.example"),
    ('{{"cookie": "consent=no; {}"}}', lambda rng: f"Expires=Wed, {rng.randint(10, 28)} Oct 2026 07:28:00 GMT; Secure"),
    ("git clone {}", lambda rng: f"git@code.example.com:team/repo{rng.randint(1, 99)}.git"),
    ("see https://docs.example.com/{}/index.html", lambda rng: drawn(rng, ALNUM, 10)),
    ("@@ -{} +1,8 @@", lambda rng: f"{rng.randint(100, 999)},{rng.randint(10, 99)}"),
    ("ISBN {}", lambda rng: f"978-{rng.randint(1, 9)}-{drawn(rng, DIGITS, 4)}-{drawn(rng, DIGITS, 4)}-7"),
    ("Your payment method is {}.", lambda rng: f"credit_card_{drawn(rng, DIGITS, 7)}"),
    ("Tracking number {}", lambda rng: f"1Z{drawn(rng, UPPER + DIGITS, 16)}"),
    ("account status: {}", lambda rng: rng.choice(["closed", "open since 2019", "gold"])),
    ("Coordinates {}", lambda rng: f"{rng.randint(10, 89)}.{drawn(rng, DIGITS, 6)}, -3.{drawn(rng, DIGITS, 6)}"),
)  # fmt: skip


def corpus(seed: int, each: int) -> list[Case]:
    """Episodes with ``each`` planted values of every kind, one of each kind in an episode, and as many innocents.

    A value stands in one or two steps, in the instruction, or in an unknown field; where its kind has no form of its
    own, a key stands beside it at least once.
    """
    return [_case(random.Random(f"planted {seed} {number}"), number) for number in range(each)]


def _case(rng: random.Random, number: int) -> Case:
    planted = [Planted(kind, make(rng), told) for kind, (make, told) in KINDS.items()]
    texts = [said for secret in planted for said in _said(rng, secret)]
    innocent = []
    for text, make in rng.sample(INNOCENT, k=len(INNOCENT)):
        innocent.append(make(rng))
        texts.append(text.format(innocent[-1]))
    rng.shuffle(texts)
    trajectory = Trajectory(
        env=EnvRef(name="planted"),
        task=TaskRef(id=f"planted/{number}", instruction=texts.pop()),
        initial_context=texts.pop(),
        initial_observation=texts.pop(),
        agent=AgentRef(name="planted", params={"note": texts.pop()}),
        steps=[
            Step(action=action, observation=observation, raw={"log": [observation]})
            for action, observation in zip(texts[::2], texts[1::2], strict=False)
        ],
        left=texts[-1],
    )
    return Case(trajectory, tuple(planted), tuple(innocent))


def _said(rng: random.Random, secret: Planted) -> list[str]:
    """The texts that a value stands in; a line break in it is written as JSON does where the text is JSON."""
    forms = rng.sample(AS_IT_IS, k=rng.randint(0, 2) if secret.kind in KEYED else rng.randint(1, 2))
    if secret.kind in KEYED:
        forms.append(rng.choice(KEYED[secret.kind]))
    return [form.format(_in_json(secret.value) if form.startswith("{{") else secret.value) for form in forms]


def _in_json(value: str) -> str:
    return json.dumps(value)[1:-1]
