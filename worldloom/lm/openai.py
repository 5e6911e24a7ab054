"""A client for any server of the OpenAI chat API: vLLM, SGLang, llama.cpp, ``transformers serve``, a vendor's."""

import asyncio
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from worldloom.errors import ConfigError, ContextOverflow, ModelError, WorldloomError

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

logger = logging.getLogger(__name__)

CONNECT_S = 5.0  # a server that is there accepts within this
LISTED = 10  # models named in an error message
SHOWN = 300  # characters of a server's answer quoted in one
OVERFLOW = re.compile(
    r"context[ _](length|size|window|limit)"  # OpenAI, vLLM, SGLang, llama.cpp, Anthropic
    r"|maximum model length"  # vLLM's decoder prompt check
    r"|prompt is too long"
    r"|token count .{0,40}exceeds",
    re.IGNORECASE,
)
START_ONE = "start one, e.g. `vllm serve MODEL` or `transformers serve MODEL` (both on port 8000), or correct base_url"


class Message(TypedDict):
    """One turn of a conversation; ``role`` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, kw_only=True)
class ChatServer:
    """One model on one server, and how it is sampled. Holds no connection, so it can be sent to another process.

    Args:
        base_url: where the API is, as a rule ending in ``/v1``.
        model: its name on the server.
        api_key: by default the environment variable OPENAI_API_KEY; a server of one's own needs none.
        temperature: 0 is greedy.
        max_tokens: longest reply; None leaves it to the server.
        timeout_s: hard limit in seconds for one ``chat``, retries and their back-off included.
        retries: how often a lost connection, an overloaded server (429) or its own failure (5xx) is tried again.
        window: the model's context in tokens, for servers that do not refuse what does not fit
            (``transformers serve``): more than that in prompt and reply is an overflow. None trusts the server.
        extra: further fields of the request, for what only one kind of server knows.

    Raises:
        ConfigError: a value is out of range, or ``base_url`` is no http(s) address.
    """

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    temperature: float = 1.0
    max_tokens: int | None = 512
    timeout_s: float = 120.0
    retries: int = 2
    window: int | None = None
    extra: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")):
            raise ConfigError(f"base_url is {self.base_url!r}; it must begin with http:// or https://")
        for name, low in {"temperature": 0, "retries": 0, "timeout_s": 0.1, "max_tokens": 1, "window": 1}.items():
            value = getattr(self, name)
            if value is not None and value < low:
                raise ConfigError(f"{name} is {value}; it must be at least {low}")

    def chat(self, messages: Sequence[Message], *, seed: int | None = None, stop: Sequence[str] | None = None) -> str:
        """Send a conversation that ends on a user turn; return the assistant's reply, as it is.

        Args:
            messages: the whole conversation, oldest first.
            seed: of the server's sampling, where the server heeds it.
            stop: strings that end the reply.

        Raises:
            ContextOverflow: the conversation and its reply do not fit into the model's window.
            ModelError: the server is absent, slow, refuses, fails, or does not know the model.
        """
        try:
            from anyio.from_thread import start_blocking_portal
        except ImportError as error:
            raise _no_package() from error
        with start_blocking_portal() as portal:  # a loop of its own, so that it also works inside a notebook's
            completion = portal.call(self._complete, self._request(messages, seed, stop))
        return self._reply(completion)

    def _request(self, messages: Sequence[Message], seed: int | None, stop: Sequence[str] | None) -> dict[str, Any]:
        """The fields of the request; what is None is left out."""
        fields = {
            "model": self.model,
            "messages": list(messages),
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "seed": seed,
            "stop": list(stop) if stop else None,
            "extra_body": dict(self.extra) if self.extra else None,
        }
        return {name: value for name, value in fields.items() if value is not None}

    async def _complete(self, request: Mapping[str, Any]) -> Any:
        try:
            from openai import AsyncOpenAI, OpenAIError, Timeout
        except ImportError as error:
            raise _no_package() from error
        key = self.api_key or os.environ.get("OPENAI_API_KEY") or "none"
        limits = Timeout(self.timeout_s, connect=min(CONNECT_S, self.timeout_s))
        async with AsyncOpenAI(base_url=self.base_url, api_key=key, timeout=limits, max_retries=self.retries) as client:
            try:
                async with asyncio.timeout(self.timeout_s):  # the package's own limit is for each read and each try
                    return await client.chat.completions.create(**request)
            except (OpenAIError, TimeoutError) as error:
                raise await self._explain(client, error) from error

    async def _explain(self, client: "AsyncOpenAI", error: Exception) -> WorldloomError:
        """Say what was wrong and what to do, asking the server for its models where that helps."""
        import openai

        match error:
            case TimeoutError() | openai.APITimeoutError():
                reason = f"no answer within {self.timeout_s:g} s; raise timeout_s or lower max_tokens"
            case openai.APIConnectionError():
                reason = f"no server answers ({error.__cause__ or error}); {START_ONE}"
            case openai.APIStatusError() if OVERFLOW.search(f"{error.code} {_said(error)}"):
                return self._overflow(_said(error))
            case openai.AuthenticationError() | openai.PermissionDeniedError():
                reason = f"it refuses the key ({_said(error)}); set OPENAI_API_KEY or pass api_key"
            case openai.NotFoundError() | openai.BadRequestError() | openai.UnprocessableEntityError():
                listing = await _list_models(client)
                reason = f"it refuses the model {self.model!r} or the request ({_said(error)}); {listing}"
            case openai.APIStatusError():
                reason = f"it still fails after {self.retries} retries ({_said(error)}); see the server's log"
            case _:
                reason = str(error)
        return ModelError(f"{self.base_url}: {reason}")

    def _overflow(self, said: str) -> ContextOverflow:
        return ContextOverflow(
            f"{self.base_url}: the conversation does not fit into {self.model!r} ({said}); "
            "shorten it, lower max_tokens, or serve the model with a longer context"
        )

    def _reply(self, completion: Any) -> str:
        """The text of a completion that is whole and fits."""
        if not getattr(completion, "choices", None):
            shown = str(completion)[:SHOWN]
            if OVERFLOW.search(shown):
                raise self._overflow(shown)
            raise ModelError(f"{self.base_url}: the answer is no chat completion ({shown}); {START_ONE}")
        used = completion.usage.total_tokens if completion.usage else 0
        if self.window is not None and used > self.window:
            raise self._overflow(f"{used} tokens with the reply, window {self.window}")
        if completion.choices[0].finish_reason == "length":
            logger.warning("%s: a reply was cut at max_tokens=%s", self.model, self.max_tokens)
        return completion.choices[0].message.content or ""


def _said(error: "APIStatusError") -> str:
    """The server's own words: the package keeps only those of OpenAI's shape in its message."""
    body = error.body
    text = (body.get("message") or body.get("detail") or body) if isinstance(body, Mapping) else body
    return f"HTTP {error.status_code}: {str(text)[:SHOWN]}"


async def _list_models(client: "AsyncOpenAI") -> str:
    """What the server offers, for an error message."""
    import openai

    try:
        page = await client.with_options(timeout=CONNECT_S, max_retries=0).models.list()
    except openai.OpenAIError:
        return "it gives no list of its models; base_url as a rule ends in /v1"
    names = sorted(model.id for model in getattr(page, "data", None) or [])
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"the server lists: {', '.join(names[:LISTED]) or 'nothing'}{more}"


def _no_package() -> ModelError:
    return ModelError("the package openai is not installed; `pip install openai`")
