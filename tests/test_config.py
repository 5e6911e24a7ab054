from dataclasses import asdict
from pathlib import Path

import pytest

from worldloom.config import train_config
from worldloom.errors import ConfigError
from worldloom.train import TrainConfig

ROOT = Path(__file__).parents[1]


def test_without_file_and_values_it_is_the_default() -> None:
    assert train_config() == TrainConfig()


def test_values_go_over_the_file_and_the_file_over_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("learning_rate: 1e-5\nbatch: 8\nlora_rank: 16\n")
    config = train_config(path, {"batch": 2, "minutes": 1.5})
    changed = {"learning_rate": 1e-5, "batch": 2, "lora_rank": 16, "minutes": 1.5}
    assert asdict(config) == asdict(TrainConfig()) | changed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lerning_rate: 1", r"unknown training setting 'lerning_rate'; did you mean 'learning_rate'"),
        ("zzz: 1", r"unknown training setting 'zzz'; known: batch, change_role, episodes, "),
        ("7: 1", r"unknown training setting 7"),
        ("batch: many", r"training setting batch: .*integer"),
        ("schedule: triangular", r"training setting schedule: .*'constant', 'linear' or 'cosine'"),
        ("overflow: trim", r"training setting overflow: .*'cut', 'window' or 'drop'"),
        ("- batch", r"c\.yaml: must hold KEY: VALUE lines"),
        ("", r"c\.yaml: must hold KEY: VALUE lines"),
        ("batch: [", r"c\.yaml: is not YAML"),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        train_config(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        train_config(tmp_path / "none.yaml")


def test_every_shipped_config_can_be_read() -> None:
    found = sorted((ROOT / "configs").glob("*.yaml"))
    shipped = [path for path in found if not path.name.startswith("accelerate")]  # those are for accelerate launch
    assert shipped
    shown = {path: train_config(path) for path in shipped}
    assert any("Qwen2.5-7B" in config.model for config in shown.values())


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_bytes(b"model: \xff\xfe")
    with pytest.raises(ConfigError, match=r"c\.yaml: is not YAML"):
        train_config(tmp_path / "c.yaml")
