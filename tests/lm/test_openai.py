import asyncio
import json
import logging
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lm.serving import Answer, Recorded, Served, completion, recorded, serve
from worldloom.errors import ConfigError, ContextOverflow, ModelError
from worldloom.lm.openai import ChatServer, Message

HELLO: list[Message] = [{"role": "user", "content": "Say hi"}]

# Bodies as these servers send them, from their issue trackers.
OVERFLOWS = {
    "OpenAI": Answer(
        {
            "error": {
                "message": "This model's maximum context length is 8192 tokens. However, your messages resulted in "
                "8227 tokens. Please reduce the length of the messages.",
                "type": "invalid_request_error",
                "param": "messages",
                "code": "context_length_exceeded",
            }
        },
        400,
    ),
    "vLLM": Answer(
        {
            "object": "error",
            "message": "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context "
            "length is 8192 tokens and your request has 1210 input tokens (8192 > 8192 - 1210).",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
        400,
    ),
    "SGLang": Answer(
        {
            "object": "error",
            "message": "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
        400,
    ),
    "llama.cpp": Answer(
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size. try increasing the context size or enable "
                "context shift",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 14429,
                "n_ctx": 8192,
            }
        },
        400,
    ),
    "Anthropic": Answer(
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease input "
                "length or `max_tokens` and try again",
            },
        },
        400,
    ),
    "any, by its code alone": Answer(
        {"error": {"message": "Please reduce the length of the messages.", "code": "context_length_exceeded"}}, 400
    ),
    "llama.cpp, a version that says 200": Answer(
        {"error": {"code": 400, "message": "the request exceeds the available context size", "n_ctx": 8192}}, 200
    ),
}


def server_at(base_url: str, **settings: Any) -> ChatServer:
    return ChatServer(**{"base_url": base_url, "model": "m", "timeout_s": 10.0, **settings})


@pytest.fixture
def cheerful() -> Iterator[Recorded]:
    with recorded(lambda where, body: Answer(completion("Hi."))) as server:
        yield server


def test_request_carries_the_settings_and_nothing_else(cheerful: Recorded) -> None:
    server = server_at(cheerful.base_url, api_key="sesame", temperature=0.5, max_tokens=9, extra={"top_k": 3})
    assert server.chat(HELLO, seed=11, stop=["\n"]) == "Hi."
    assert cheerful.chats == [
        {"model": "m", "messages": HELLO, "temperature": 0.5, "max_tokens": 9, "seed": 11, "stop": ["\n"], "top_k": 3}
    ]
    assert cheerful.requests[0][1]["authorization"] == "Bearer sesame"


def test_what_is_unset_is_left_to_the_server(cheerful: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
    server_at(cheerful.base_url, max_tokens=None).chat(HELLO)
    assert cheerful.chats == [{"model": "m", "messages": HELLO, "temperature": 1.0}]
    assert cheerful.requests[0][1]["authorization"] == "Bearer from-the-environment"


def test_a_server_of_ones_own_needs_no_key(cheerful: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert server_at(cheerful.base_url).chat(HELLO) == "Hi."


def test_can_be_called_where_a_loop_is_running(cheerful: Recorded) -> None:
    async def notebook_cell() -> str:
        return server_at(cheerful.base_url).chat(HELLO)

    assert asyncio.run(notebook_cell()) == "Hi."


def test_passing_failures_are_tried_again() -> None:
    answers = [Answer({}, 503), Answer({}, 429), Answer(completion("At last."))]
    with recorded(lambda where, body: answers.pop(0)) as busy:
        assert server_at(busy.base_url, retries=2).chat(HELLO) == "At last."
    assert len(busy.chats) == 3


def test_retries_are_bounded() -> None:
    with recorded(lambda where, body: Answer({"error": {"message": "out of memory"}}, 500)) as broken:
        with pytest.raises(ModelError, match=r"after 1 retries.*out of memory.*log"):
            server_at(broken.base_url, retries=1).chat(HELLO)
        assert len(broken.chats) == 2


def test_time_limit_holds_for_a_server_that_only_keeps_the_line_open() -> None:
    with recorded(lambda where, body: Answer(completion("never"), trickle=True)) as slow:
        began = time.monotonic()
        with pytest.raises(ModelError, match=r"within 0\.5 s; raise timeout_s"):
            server_at(slow.base_url, timeout_s=0.5).chat(HELLO)
        assert time.monotonic() - began < 3


def test_time_limit_includes_retries() -> None:
    with recorded(lambda where, body: Answer({}, 503)) as broken:
        began = time.monotonic()
        with pytest.raises(ModelError, match=r"within 0\.5 s"):
            server_at(broken.base_url, timeout_s=0.5, retries=10_000).chat(HELLO)
        assert time.monotonic() - began < 3


def test_absent_server() -> None:
    with recorded(lambda where, body: Answer({})) as gone:
        pass
    with pytest.raises(ModelError, match=r"no server answers.*vllm serve") as caught:
        server_at(gone.base_url, retries=0).chat(HELLO)
    assert gone.base_url in str(caught.value)


def test_unknown_model_names_those_there_are() -> None:
    def vllm(where: str, body: Any) -> Answer:
        if where == "GET /v1/models":
            return Answer({"object": "list", "data": [{"id": n, "object": "model"} for n in ("qwen", "llama")]})
        error = {"object": "error", "message": f"The model `{body['model']}` does not exist.", "code": 404}
        return Answer(error, 404)

    with recorded(vllm) as server, pytest.raises(ModelError, match=r"does not exist.*the server lists: llama, qwen"):
        server_at(server.base_url, model="quen").chat(HELLO)


def test_wrong_path_points_at_the_base_url() -> None:
    with (
        recorded(lambda where, body: Answer({"detail": "Not Found"}, 404)) as server,
        pytest.raises(ModelError, match=r"Not Found.*no list of its models.*/v1"),
    ):
        server_at(server.base_url.removesuffix("/v1")).chat(HELLO)


@pytest.mark.parametrize("whose", OVERFLOWS)
def test_overflow_is_recognised(whose: str) -> None:
    with (
        recorded(lambda where, body: OVERFLOWS[whose]) as full,
        pytest.raises(
            ContextOverflow, match=r"(maximum context|available context|61709 tokens|199759|reduce).*shorten it"
        ),
    ):
        server_at(full.base_url).chat(HELLO)


def test_refused_key_is_not_repeated_in_the_message() -> None:
    with (
        recorded(lambda where, body: Answer({"error": {"message": "no such key"}}, 401)) as locked,
        pytest.raises(ModelError, match="OPENAI_API_KEY") as caught,
    ):
        server_at(locked.base_url, api_key="sk-secret").chat(HELLO)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("body", ["<html>Welcome to nginx</html>", {"choices": []}, {"error": {"message": "odd"}}])
def test_an_answer_that_is_no_completion(body: Any) -> None:
    with recorded(lambda where, _: Answer(body)) as other, pytest.raises(ModelError, match="no chat completion"):
        server_at(other.base_url).chat(HELLO)


def test_a_cut_reply_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with recorded(lambda where, body: Answer(completion("Thought: I", "length"))) as server:
        assert server_at(server.base_url, max_tokens=3).chat(HELLO) == "Thought: I"
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING] == [
        "m: a reply was cut at max_tokens=3"
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"base_url": "localhost:8000"}, "must begin with http"),
        ({"temperature": -0.1}, "temperature is -0.1"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"retries": -1}, "retries is -1"),
        ({"window": 0}, "window is 0"),
    ],
)
def test_settings_out_of_range(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ChatServer(**{"base_url": "http://127.0.0.1:1/v1", "model": "m", **settings})


def test_can_be_sent_to_another_process_and_hides_its_key() -> None:
    server = server_at("http://127.0.0.1:1/v1", api_key="sk-secret")
    assert pickle.loads(pickle.dumps(server)) == server
    assert "secret" not in repr(server)


def test_importing_is_light() -> None:
    check = "import sys, worldloom.lm.openai; print({'openai', 'anyio', 'torch'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout == "set()\n"


@pytest.fixture(scope="module")
def served(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(smollm2, tmp_path_factory.mktemp("serve") / "log.txt") as server:
        yield server


@pytest.fixture(scope="module")
def greeting(served: Served) -> str:
    return asked(served, temperature=0).chat(HELLO)


def asked(served: Served, **settings: Any) -> ChatServer:
    return ChatServer(**{"base_url": served.base_url, "model": served.model, "max_tokens": 8, **settings})


@pytest.mark.model
def test_temperature_zero_is_greedy_decoding(greeting: str, smollm2: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    model = AutoModelForCausalLM.from_pretrained(smollm2)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Say hi"}], add_generation_prompt=True, tokenize=False
    )
    before, ids = tokenizer(prompt)["input_ids"], tokenizer(greeting)["input_ids"]
    assert len(ids) == 8
    with torch.inference_mode():  # a reply is greedy exactly when each token is the likeliest after those before it
        likeliest = model(torch.tensor([before + ids])).logits[0].argmax(-1).tolist()
    assert likeliest[len(before) - 1 : -1] == ids


@pytest.mark.model
def test_the_seed_decides_a_sampled_reply(served: Served) -> None:
    sampling = {"generation_config": json.dumps({"do_sample": True, "eos_token_id": 2})}
    hot = asked(served, temperature=1, extra=sampling)
    replies = [hot.chat(HELLO, seed=seed) for seed in (1, 2, 1)]
    assert replies[0] == replies[2] != replies[1]


@pytest.mark.model
def test_stop_ends_the_reply(served: Served, greeting: str) -> None:
    first, second, *_ = greeting.split()
    assert asked(served, temperature=0).chat(HELLO, stop=[second]) == f"{first} {second}"


@pytest.mark.model
def test_wrong_model_name(served: Served) -> None:
    with pytest.raises(ModelError, match=r"'gpt-4'.*pinned to .*the server lists: nothing") as caught:
        asked(served, model="gpt-4").chat(HELLO)
    assert served.model in str(caught.value)


@pytest.mark.model
def test_window_is_kept_on_a_server_that_does_not(served: Served) -> None:
    small = asked(served, temperature=0, max_tokens=2, window=64)
    assert small.chat(HELLO)
    with pytest.raises(ContextOverflow, match="window 64"):
        small.chat([{"role": "user", "content": "apple " * 70}])
