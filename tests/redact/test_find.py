"""What is found in a text, and what is not."""

import time

import pytest

from worldloom.errors import ConfigError
from worldloom.redact.find import find, find_in_field
from worldloom.redact.rules import Rules

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7bq1\nZm9vYmFy\n-----END RSA PRIVATE KEY-----"
LETTERS = "kQzRBtxWNvmLpSdFGhJcYuEooIaTrbqZ"  # 32, drawn
FOUND = {
    "a quote inside a JSON text": (r'"password": "p\"x y9"', "PASSWORD", r"p\"x y9"),
    "JSON inside JSON": (r"{\"api_key\": \"abcd1234efgh\"}", "SECRET", "abcd1234efgh"),
    "an environment variable": ("export DB_PASSWORD=kestrel_77 # prod", "PASSWORD", "kestrel_77"),
    "a query": ("GET /v1?access_token=a1b2c3d4e5&page=2", "SECRET", "a1b2c3d4e5"),
    "an ampersand in a password": ("password=c4&qzI4X", "PASSWORD", "c4&qzI4X"),
    "a password that begins like a variable": ("password=$up3rS3cret", "PASSWORD", "$up3rS3cret"),
    "a word inside a password": ('"password": "tea-and-77"', "PASSWORD", "tea-and-77"),
    "words between": ("The password for the guest wifi is Tulip_77, I think", "PASSWORD", "Tulip_77"),
    "a short key": ("user ops pw: hunter22", "PASSWORD", "hunter22"),
    "prose": ("My password is Tulip_77.", "PASSWORD", "Tulip_77"),
    "a command line": ("tool --token 8f14e45fceea167a", "SECRET", "8f14e45fceea167a"),
    "curl's user": ("curl -u admin:hunter2 https://api.example", "PASSWORD", "hunter2"),
    "a passphrase": ('the passphrase "correct horse battery staple"', "PASSWORD", "correct horse battery staple"),
    "a pin": ("My PIN is 4321.", "PIN", "4321"),
    "a URL with a password": ("use redis://:s3cr3t@cache:6379/0 now", "CONNECTION_STRING", "redis://:s3cr3t@cache:6379/0"),
    "a password after a colon": ("Password is: Winter2025", "PASSWORD", "Winter2025"),
    "a password two lines on": ("The password for the portal was:\n\nTulip_77", "PASSWORD", "Tulip_77"),
    "a Hugging Face token": (f"export HF_TOKEN=hf_{LETTERS}xy", "HUGGINGFACE_TOKEN", f"hf_{LETTERS}xy"),
    "a GitLab token without digits": (f"glpat-{LETTERS[:20]}", "GITLAB_TOKEN", f"glpat-{LETTERS[:20]}"),
    "an npm token without digits": (f"_authToken: npm_{LETTERS}abCd", "NPM_TOKEN", f"npm_{LETTERS}abCd"),
    "an AWS key without digits": ("id AKIAQWERTYUIOPASDFGH", "AWS_ACCESS_KEY", "AKIAQWERTYUIOPASDFGH"),
    "a bearer without digits": (f"Authorization: Bearer {LETTERS}", "BEARER_TOKEN", LETTERS),
    "a bearer with a digit": ("Authorization: Bearer abcdefghijk1", "BEARER_TOKEN", "abcdefghijk1"),
    "a secret without digits": (f"api_key: {LETTERS[:9]}-{LETTERS[9:]}", "SECRET", f"{LETTERS[:9]}-{LETTERS[9:]}"),
    "basic auth": ("Authorization: Basic YWRtaW46aHVudGVyMg==", "BASIC_AUTH", "YWRtaW46aHVudGVyMg=="),
    "a whole private key": (f"cat key\n{PEM}\n$", "PRIVATE_KEY", PEM),
    "a private key in JSON": (PEM.replace("\n", "\\n"), "PRIVATE_KEY", PEM.replace("\n", "\\n")),
    "a private key cut off": (PEM[:56] + " and so on", "PRIVATE_KEY", PEM[:56]),
    "an address after an escaped line break": (r"from:\nann@example.com", "EMAIL", "ann@example.com"),
    "an address in a URL": ("?user=ann%40example.com&x=1", "EMAIL", "ann%40example.com"),
    "an address of another script": ("ünal@münchen.de", "EMAIL", "ünal@münchen.de"),
    "a card": ("card 4111-1111-1111-1111 exp 12/30", "CARD", "4111-1111-1111-1111"),
    "an Amex card": ("pay with 3782 822463 10005", "CARD", "3782 822463 10005"),
    "an IBAN before words in capitals": ("GB82 WEST 1234 5698 7654 32 AND MORE", "IBAN", "GB82 WEST 1234 5698 7654 32"),
    "a phone number with brackets": ("call (415) 555-2671", "PHONE", "(415) 555-2671"),
    "a phone number from abroad": ("+44 20 7946 0958", "PHONE", "+44 20 7946 0958"),
    "a phone number before another number": ("+44 20 7946 0958 1234567", "PHONE", "+44 20 7946 0958"),
    "bare digits named a phone": ("phone number: 4155552671", "PHONE", "4155552671"),
    "a social-security number": ("it is 123-45-6789", "SSN", "123-45-6789"),
    "an account": ("account number: 000123456789", "ACCOUNT", "000123456789"),
}  # fmt: skip
NOTHING = [
    "The token count is 12345 and secret santa", "passwords must be 8 characters", "password: required",
    '"token_type": "bearer"', "order 112-3456789-1234567", "UUID 550e8400-e29b-41d4-a716-446655440000", "1234567890",
    "0.4111111111111111", "basic economy1 fares", '"key": "abc123def456"', "password_file=/etc/app/pw.txt",
    "token=get_token()", 'secret_name: "prod/db1"', "x = tokens[5]; y = tokens1234", "monkey: bananas123",
    "SELECT password FROM users", "HAT136 leaves on 2024-05-20", "IP 415.555.2671.8", "git@github.com:a/b.git",
    "<EMAIL_1> password: <PASSWORD_1>", '"password": "<PASSWORD_2>"', "4111 1111 1111 1112",
    "GB82 WEST 1234 5698 7654 33",
    'if "-----BEGIN PRIVATE KEY-----" in text:', "password=${DB_PASSWORD}",
    "password=$DB_PASSWORD", '"password": "Enter your password"', "password: %(password)s", "max_tokens=1234567a", "",
    "password is: required", "bearer authentication is needed", "Authorization: Bearer MyAccessTokenProviderFactory",
    "Bearer YOUR_ACCESS_TOKEN_HERE", "see sk-learn-documentation-stable-modules-generated-index.html",
    "sk-learn-documentation-v1-2-stable-modules-generated-index", "from hf_AutoModelForSequenceClassificationHead",
    "APACHEHttpComponentsClient", "AIzaSy" + "X" * 33, "hf_" + "x" * 34, "AKIAXXXXXXXXXXXXXXXX",
    "token = DefaultAzureCredentialBuilderFactory", "0ae21e83f7b6273181802522057c67532753af28",
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "value"), FOUND.values(), ids=FOUND.keys())
def test_found(text: str, kind: str, value: str) -> None:
    assert [(each.kind, text[each.start : each.stop]) for each in find(text, Rules())] == [(kind, value)]


@pytest.mark.parametrize("text", NOTHING)
def test_not_found(text: str) -> None:
    assert find(text, Rules()) == ()


def test_a_field_s_name_tells_what_its_value_is() -> None:
    rules = Rules()
    assert [each.kind for each in find_in_field("password", 'two "words"', rules)] == ["PASSWORD"]
    assert [each.kind for each in find_in_field("phone", "4155552671", rules)] == ["PHONE"]
    assert [each.kind for each in find_in_field("userToken", "abc12345xyz", rules)] == ["SECRET"]
    assert find_in_field("max_tokens", "12345678", rules) == ()
    assert find_in_field("phone", "the one on the desk", rules) == ()
    assert find_in_field("password", 'two "words"', Rules(keep=frozenset({"PASSWORD"}))) == ()


def test_names_and_own_patterns_are_found_where_they_are_configured() -> None:
    rules = Rules(
        names=("Mara Okonjo",), name_keys=("first_name",), patterns=(("CUSTOMER", r"\b[a-z]+_[a-z]+_\d{4}\b"),)
    )
    text = 'MARA OKONJO or Mara Okonjo, "first_name": "Xin", mia_li_3668; Mara Okonjos'
    found = [(each.kind, text[each.start : each.stop]) for each in find(text, rules)]
    assert found == [("NAME", "MARA OKONJO"), ("NAME", "Mara Okonjo"), ("NAME", "Xin"), ("CUSTOMER", "mia_li_3668")]
    assert find(text, Rules()) == ()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"patterns": (("customer", "x"),)}, "kind 'customer' must be capitals"),
        ({"patterns": (("A", "("),)}, "the pattern of A is no regular expression"),
        ({"patterns": (("A", "x*"),)}, "matches the empty text"),
        ({"names": (" ",)}, "a name or a key of names is empty"),
        ({"keep": frozenset({"e-mail"})}, "kind 'e-mail' must be capitals"),
    ],
)
def test_rules_that_make_no_sense_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Rules(**settings)


UNITS = [
    "a", "1", "a1", "1-", "password ", "password=", "-----BEGIN RSA PRIVATE KEY-----\n", "http://a:", "http://a:b@",
    "A1 ", "GB82 ", "+1 ", "a.", "@a.", "eyJabcdefghi.", 'token: "', "phone: +", '\\"', "a-", "sk-", "(415) ",
    "ann@x.io ", "cookie a=b; ", "cookie=", "sk-A-", "cookie: a,",
]  # fmt: skip


@pytest.mark.parametrize("unit", UNITS)
def test_no_text_takes_time_out_of_proportion(unit: str) -> None:
    find("warm up 1234567890abcdefgh", Rules())
    seconds = []
    for size in (25_000, 100_000):
        begun = time.process_time()
        find(unit * (size // len(unit)) + " ", Rules())
        seconds.append(time.process_time() - begun)
    assert seconds[1] < 12 * seconds[0] + 0.1
