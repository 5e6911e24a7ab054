"""A real server of models behind the proxy, a real client before it; what the model says does not matter."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.recording_proxy import Proxy
from tests.lm.serving import Served, serve
from tests.recording.running import stored
from worldloom.recording.conversations import conversations


@pytest.fixture(scope="module")
def served(tiny_lm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tiny_lm_folder, tmp_path_factory.mktemp("serve") / "log") as found:
        yield found


@pytest.mark.model
def test_a_real_server_is_recorded(served: Served, tmp_path: Path) -> None:
    openai = pytest.importorskip("openai")
    said = []
    messages = [{"role": "user", "content": "Say a word."}]
    with (
        Proxy(served.base_url, tmp_path / "exchanges.jsonl") as proxy,
        openai.OpenAI(base_url=proxy.base_url, api_key="sk-of-nobody-at-all", timeout=300) as client,
    ):
        asked = {"model": served.model, "temperature": 0, "max_tokens": 4}
        chunks = client.chat.completions.create(messages=messages, stream=True, **asked)
        said.append("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices))
        messages += [{"role": "assistant", "content": said[0]}, {"role": "user", "content": "And another."}]
        said.append(client.chat.completions.create(messages=messages, **asked).choices[0].message.content)
        with pytest.raises(openai.NotFoundError):
            client.post("/no/such/path", body={}, cast_to=object)
    assert len(stored(proxy.out)) == 3
    assert "sk-of-nobody" not in proxy.out.read_text()
    (row,) = conversations(proxy.out)
    assert [message["content"] for message in row["messages"]] == [
        "Say a word.", said[0], "And another.", said[1],
    ]  # fmt: skip
