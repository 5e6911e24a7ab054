"""Secrets: tokens by the form that their makers gave them, private keys, URLs with passwords, and assigned values.

Most forms are those of ``detect-secrets``; what it has not, or finds only in part (it stops before a JWT's
signature and after a private key's first line), is here.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from functools import cache

from worldloom.redact.chance import drawn_letters, mixed, words
from worldloom.redact.rules import PLACEHOLDER, Found

_HEAD, _END = (rf"-----{word} [A-Z0-9 ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----" for word in ("BEGIN", "END"))
PRIVATE_KEY = re.compile(  # whole, or cut off somewhere in its body
    rf"{_HEAD}(?:(?:[^-]|-(?!----)){{1,20000}}{_END}|(?:(?:\\[rn]|\s)*[A-Za-z0-9+/=]{{16,}})+(?:(?:\\[rn]|\s)*[A-Za-z0-9+/=]+)?)"
)
JWT = re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,3}")
URL = re.compile(
    r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.-]{1,24}://[^\s/?#:@\"'<>\\]{0,100}:[^\s/?#\"'<>\\]{1,200}@[^\s\"'<>\\`,;)}\]]+"
)
BEARER = re.compile(r"(?i)\bbearer[\s:]{1,3}(?P<value>[A-Za-z0-9+/_.~=-]{12,})")
BASIC = re.compile(r"(?i)\bbasic\s{1,3}(?P<value>[A-Za-z0-9+/]{8,}={0,2})")
USER = re.compile(r"(?<!\S)(?:-u|--user)[ =][\"']?[\w.@-]{1,60}:(?P<value>[^\s\"'\\]{4,200})")

LONG = re.compile(r"[A-Za-z0-9_\-./+=:](?<![A-Za-z0-9_\-./+=:].)[A-Za-z0-9_\-./+=:]{15,}+")
LONGEST = 4_000  # a longer word is an encoded file, not a token
VENDORS = (
    "artifactory.ArtifactoryDetector", "aws.AWSKeyDetector", "azure_storage_key.AzureStorageKeyDetector",
    "discord.DiscordBotTokenDetector", "github_token.GitHubTokenDetector", "gitlab_token.GitLabTokenDetector",
    "mailchimp.MailchimpDetector", "openai.OpenAIDetector", "pypi_token.PypiTokenDetector",
    "sendgrid.SendGridDetector", "slack.SlackDetector", "square_oauth.SquareOAuthDetector",
    "stripe.StripeDetector", "telegram_token.TelegramBotTokenDetector", "twilio.TwilioKeyDetector",
)  # fmt: skip
NEWER = {
    "ANTHROPIC_KEY": r"sk-ant-[A-Za-z0-9_-]{20,}",
    "OPENAI_TOKEN": r"sk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{32,}",
    "GOOGLE_KEY": r"AIza[A-Za-z0-9_-]{35}|GOCSPX-[A-Za-z0-9_-]{28}|ya29\.[A-Za-z0-9_-]{20,}",
    "GITHUB_TOKEN": r"github_pat_[A-Za-z0-9_]{40,}",
    "HUGGINGFACE_TOKEN": r"hf_[A-Za-z0-9]{30,}",
    "NPM_TOKEN": r"npm_[A-Za-z0-9]{36}",
    "SLACK_TOKEN": r"xox[a-z]-[A-Za-z0-9-]{10,}|xapp-\d-[A-Za-z0-9-]{10,}",
    "STRIPE_ACCESS_KEY": r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9]{24,}",
    "DIGITALOCEAN_TOKEN": r"do[opr]_v1_[a-f0-9]{64}",
    "DATABRICKS_TOKEN": r"dapi[a-f0-9]{32}",
}
LOOSE = {"ARTIFACTORY_CREDENTIALS", "DISCORD_BOT_TOKEN", "TWILIO_API_KEY"}  # forms that words may have: with a digit


def secrets(text: str) -> Iterator[Found]:
    """Secrets that show by their own form, the surest first; findings may overlap."""
    if "-----BEGIN" in text:
        yield from (Found(*m.span(), "PRIVATE_KEY") for m in PRIVATE_KEY.finditer(text))
    if "eyJ" in text:
        yield from (Found(*m.span(), "JWT") for m in JWT.finditer(text))
    if "://" in text and "@" in text:
        yield from (Found(*m.span(), "CONNECTION_STRING") for m in URL.finditer(text) if not PLACEHOLDER.search(m[0]))
    yield from _vendor_tokens(text)
    if "-u" in text:
        yield from (Found(*m.span("value"), "PASSWORD") for m in USER.finditer(text))
    small = text.lower()
    if "bearer" in small:
        bearers = (m for m in BEARER.finditer(text) if mixed(m["value"]) or drawn_letters(m["value"]))
        yield from (Found(*m.span("value"), "BEARER_TOKEN") for m in bearers)
    if "basic" in small:
        yield from (Found(*m.span("value"), "BASIC_AUTH") for m in BASIC.finditer(text) if _is_basic(m["value"]))


def _vendor_tokens(text: str) -> Iterator[Found]:
    for word in LONG.finditer(text):
        may_be = len(word[0]) <= LONGEST and (mixed(word[0]) or not word[0].islower())
        if may_be and _any_vendor().search(word[0]):
            for kind, pattern in _vendors():
                found = (m for m in pattern.finditer(word[0]) if _token(kind, m[0]))
                yield from (Found(word.start() + m.start(), word.start() + m.end(), kind) for m in found)


def _token(kind: str, value: str) -> bool:
    """Whether what has a maker's form looks drawn, too, and is neither words nor a mask such as ``AIzaXXXX``."""
    if not mixed(value) and (kind in LOOSE or len(set(value)) < 8):
        return False
    return value.startswith("AKIA") or not words(value)


@cache
def _any_vendor() -> re.Pattern[str]:
    """One search instead of many, as nearly all long words are no token."""
    return re.compile("|".join(f"(?{'i' * bool(p.flags & re.I)}:{p.pattern})" for _, p in _vendors()))


@cache
def _vendors() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """(kind, pattern) of each maker; a pattern of detect-secrets may hold several."""
    from importlib import import_module

    found = [(kind, re.compile(rf"(?<![A-Za-z0-9])(?:{pattern})")) for kind, pattern in NEWER.items()]
    for place in VENDORS:
        module, _, name = place.partition(".")
        plugin = getattr(import_module(f"detect_secrets.plugins.{module}"), name)()
        kind = re.sub(r"\W+", "_", plugin.secret_type).upper()
        found += [(kind, pattern) for pattern in plugin.denylist]
    return tuple(found)


def _is_basic(value: str) -> bool:
    """Whether a text is USER:PASSWORD in base 64 (RFC 7617)."""
    try:
        return b":" in base64.b64decode(value, validate=True)
    except binascii.Error:
        return False
