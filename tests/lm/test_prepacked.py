"""Linear layers laid out for oneDNN: the same products, to the bit."""

import pytest
import torch

from worldloom.lm.prepacked import PrepackedLinear, prepack

fast = pytest.mark.skipif(
    not (torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()),
    reason="this processor has no instructions for bfloat16",
)


@fast
@pytest.mark.parametrize("rows", [1, 7, 32, 300])
@pytest.mark.parametrize("bias", [False, True])
def test_products_are_the_same_bits(rows: int, bias: bool) -> None:
    linear = torch.nn.Linear(96, 160, bias=bias).bfloat16().requires_grad_(False)
    given = torch.randn(1, rows, 96).bfloat16()
    with torch.inference_mode():
        assert torch.equal(PrepackedLinear(linear)(given), linear(given))


class Model(torch.nn.Module):
    """What ``prepack`` looks at."""

    def __init__(self, dtype: torch.dtype):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)).to(dtype)
        self.dtype, self.device = dtype, torch.device("cpu")


def kinds(model: Model) -> list[str]:
    return [type(layer).__name__ for layer in model.inner]


@fast
def test_all_linear_layers_are_replaced_in_bfloat16() -> None:
    model = Model(torch.bfloat16)
    prepack(model)
    assert kinds(model) == ["PrepackedLinear", "ReLU", "PrepackedLinear"]


def test_in_float32_nothing_is_replaced() -> None:
    model = Model(torch.float32)
    prepack(model)
    assert kinds(model) == ["Linear", "ReLU", "Linear"]


def test_where_the_processor_cannot_nothing_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worldloom.lm.prepacked._supported", lambda: False)
    model = Model(torch.bfloat16)
    prepack(model)
    assert kinds(model) == ["Linear", "ReLU", "Linear"]
