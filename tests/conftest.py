"""What several tests need: the real default model, real data, and a tiny language model for mechanics."""

import os
import shutil
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no failure.
settings.register_profile("worldloom", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("worldloom")

# Threads that spin while they wait make torch many times slower beside any other work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
if "PYTEST_XDIST_WORKER" in os.environ:  # one of several that share the cores
    os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parents[1]
GAMES = "alfworld_games_2.1.2_all4027.tar.xz"


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The folder of the real SmolLM2-135M-Instruct."""
    from worldloom.errors import ModelError
    from worldloom.lm.hf import default_model

    try:
        return default_model()
    except ModelError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data for tests: ``$WORLDLOOM_DATA``, else shared/data beside the checkout."""
    folder = Path(os.environ.get("WORLDLOOM_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no test data at {folder}; set WORLDLOOM_DATA")
    return folder


@pytest.fixture(scope="session")
def alfworld_data(data_dir: Path) -> Path:
    """The official ALFWorld games, laid out as ``alfworld-download`` does; unpacked once into worldloom's cache."""
    from worldloom.lm.hf import cache_dir

    archive, folder = data_dir / "alfworld" / GAMES, cache_dir() / "test-alfworld"
    if not archive.is_file():
        pytest.skip(f"no ALFWorld games at {archive}")
    if not folder.exists():
        _unpack(archive, folder)
    return folder


@pytest.fixture(scope="session")
def toolbench_data(data_dir: Path) -> Path:
    """The folder of recorded ToolBench runs."""
    folder = data_dir / "toolbench"
    if not any(folder.glob("toolbench_runs*.jsonl*")):
        pytest.skip(f"no recorded ToolBench runs at {folder}")
    return folder


def _unpack(archive: Path, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix="unpack-"))
    with tarfile.open(archive) as games:
        games.extractall(draft, filter="data")
    try:
        draft.rename(folder)
    except OSError:  # another process was quicker
        shutil.rmtree(draft)


@pytest.fixture(scope="session")
def scienceworld() -> None:
    """ScienceWorld's package and Java, without which a test is skipped."""
    from worldloom.envs.scienceworld_engine import java, package
    from worldloom.errors import MissingDependency

    try:
        package()
        java()
    except MissingDependency as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def tiny_lm_folder(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A randomly initialised Llama of two layers with SmolLM2's tokenizer: for mechanics, never for claims."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("tiny-lm")
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
