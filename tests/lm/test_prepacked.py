"""Linear layers laid out for oneDNN: the same products, to the bit."""

import pytest
import torch

from worldloom.lm.prepacked import PrepackedLinear, prepack


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


def test_all_linear_layers_are_replaced_in_bfloat16_only() -> None:
    single, half = Model(torch.float32), Model(torch.bfloat16)
    prepack(single)
    prepack(half)
    assert kinds(single) == ["Linear", "ReLU", "Linear"]
    assert kinds(half) == ["PrepackedLinear", "ReLU", "PrepackedLinear"]
