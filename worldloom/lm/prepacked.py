"""Weights laid out once as oneDNN multiplies them; without that a CPU lays them out anew in each pass.

It is what torch's own compiler does to frozen weights (``torch.ops.mkldnn._linear_pointwise``). The products are the
same to the bit; those of few rows, as when one session is answered, are about twice as fast.
"""

from collections.abc import Mapping
from typing import Any

import torch

ROWS = 32  # about what a drafted answer has; the layout serves any number


class PrepackedLinear(torch.nn.Module):
    """A linear layer for inference, from (..., inputs) to (..., outputs), in bfloat16 on a CPU."""

    def __init__(self, linear: torch.nn.Linear):
        super().__init__()
        self.bias = linear.bias
        self.lay(linear.weight.detach())

    def lay(self, weight: torch.Tensor) -> None:
        """Take a weight, (outputs, inputs)."""
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return found


@torch.inference_mode()
def prepack(model: Any) -> None:
    """Replace a model's linear layers, if it is in bfloat16 on a CPU that oneDNN knows how to use; else do nothing.

    The model can then no longer be trained or saved.
    """
    if model.dtype != torch.bfloat16 or model.device.type != "cpu" or not _supported():
        return
    linear = [name for name, module in model.named_modules() if type(module) is torch.nn.Linear]
    for name in linear:
        model.set_submodule(name, PrepackedLinear(model.get_submodule(name)))


@torch.no_grad()
def load_weights(model: Any, weights: Mapping[str, torch.Tensor]) -> None:
    """Give a model other weights, whether its layers are laid out or not.

    Raises:
        KeyError: one is missing.
    """
    for name, held in model.state_dict().items():
        held.copy_(weights[name])
    for name, module in model.named_modules():
        if isinstance(module, PrepackedLinear):
            module.lay(weights[f"{name}.weight"].to(torch.bfloat16).contiguous())


def _supported() -> bool:
    """Whether torch was built with oneDNN, and oneDNN multiplies bfloat16 on this CPU."""
    asked = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return asked is not None and bool(asked())
