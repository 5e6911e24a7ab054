from pathlib import Path

import pytest
import torch

from worldloom.lm.blocks import NAME, ROWS, _Attention, attend_in_blocks, attention, train_in_blocks
from worldloom.lm.hf import load_model

SCALE = 0.25


def whole(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(
        query[None], keys[None], values[None], is_causal=True, scale=SCALE, enable_gqa=True
    )[0]


def states(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(heads, 2 * ROWS + 7, 16, dtype=dtype, requires_grad=True) for heads in (6, 2, 2)]


def test_a_long_text_attends_to_itself_in_blocks_as_it_would_whole() -> None:
    query, keys, values = (x.detach() for x in states())
    expected = whole(query, keys, values)
    torch.testing.assert_close(attend_in_blocks(query * SCALE, keys, values), expected)
    short = attend_in_blocks((query * SCALE).bfloat16(), keys.bfloat16(), values.bfloat16())
    torch.testing.assert_close(short.float(), expected, atol=2e-2, rtol=0)


def test_gradients_are_those_of_attending_whole() -> None:
    blocks, plain = states(torch.float64), states(torch.float64)
    passed = torch.randn(6, 2 * ROWS + 7, 16, dtype=torch.float64)
    _Attention.apply(blocks[0] * SCALE, *blocks[1:]).backward(passed)
    whole(*plain).backward(passed)
    for mine, other in zip(blocks, plain, strict=True):
        torch.testing.assert_close(mine.grad, other.grad, atol=1e-5, rtol=1e-5)  # keys' are summed in float32


@pytest.mark.model
def test_a_model_learns_in_blocks_what_it_learns_whole(smollm2: Path) -> None:
    """Two texts of different lengths, padded on the right: loss and gradients, in bfloat16 against float32."""
    ids = torch.randint(0, 40_000, (2, ROWS + 40), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, 100:] = 0
    found = {}
    for kind in ("float32", "whole", "blocks"):
        model = load_model(smollm2)
        if kind == "blocks":
            train_in_blocks(model)
            assert model.config._attn_implementation == NAME
        with torch.autocast("cpu", torch.bfloat16, enabled=kind != "float32"):
            logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        said, wanted = logits[:, :-1][mask[:, 1:] == 1].float(), ids[:, 1:][mask[:, 1:] == 1]
        loss = torch.nn.functional.cross_entropy(said, wanted)
        loss.backward()
        found[kind] = (loss.item(), torch.cat([p.grad.flatten() for p in model.model.layers.parameters()]))
    assert found["blocks"][0] == pytest.approx(found["float32"][0], rel=2e-3)
    apart = {kind: (found[kind][1] - found["float32"][1]).norm() for kind in ("whole", "blocks")}
    assert apart["blocks"] < 1.5 * apart["whole"]  # bfloat16 rounds everywhere; blocks add little to it


def test_steps_with_a_cache_and_float32_attend_as_before() -> None:
    class Module:
        is_causal, training, num_key_value_groups = True, False, 3

    query, keys, values = (x.detach()[None] for x in states())
    out, _ = attention(Module(), query, keys, values, None, scaling=SCALE)
    torch.testing.assert_close(out[0].transpose(0, 1), whole(query[0], keys[0], values[0]))
    last, _ = attention(Module(), query[:, :, -1:].bfloat16(), keys.bfloat16(), values.bfloat16(), None, scaling=SCALE)
    torch.testing.assert_close(last[0, 0].float(), out[0, -1], atol=2e-2, rtol=0)
