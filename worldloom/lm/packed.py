"""One forward pass over the new tokens of many sessions, each attending to its own cache; nothing is padded.

The tokens stand behind one another in one row, so that a matrix product serves all sessions. Attention goes session
by session. A session may bring several drafts of what comes next: they stand behind one another too, each blind to
the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from worldloom.errors import ModelError
from worldloom.lm.blocks import ROWS, attend_in_blocks
from worldloom.lm.cache import KVCache

NAME = "worldloom_packed"


@dataclass
class Chunk:
    """New tokens of one session: what is certain, then drafts that each go on from there."""

    cache: KVCache
    certain: Sequence[int]
    drafts: Sequence[Sequence[int]] = ()
    keep: Sequence[int] | None = None
    """Rows of ``certain`` whose logits are wanted; None is the last. Those of drafts always are."""
    start: int = field(init=False, default=0)
    mask: torch.Tensor | None = field(init=False, default=None)

    @property
    def ids(self) -> list[int]:
        return [*self.certain, *(token for draft in self.drafts for token in draft)]

    @property
    def size(self) -> int:
        return len(self.certain) + sum(map(len, self.drafts))

    def positions(self) -> list[int]:
        """Where each token stands in its own text."""
        begin = self.cache.length + len(self.certain)
        drafted = [begin + n for draft in self.drafts for n in range(len(draft))]
        return [*range(self.cache.length, begin), *drafted]

    def rows(self) -> list[int]:
        """Rows of ``ids`` whose logits are wanted."""
        certain = [len(self.certain) - 1] if self.keep is None else list(self.keep)
        return [*certain, *range(len(self.certain), self.size)]

    def prepare(self, groups: int, dtype: torch.dtype) -> None:
        """Reserve room, and say who may see whom (nothing to say for a whole text: that is causal)."""
        self.start = self.cache.length
        self.cache.reserve(self.start + self.size)
        whole = self.start == 0 and not self.drafts
        self.mask = None if whole or self.size == 1 else self._seen(dtype).repeat(groups, 1)

    def _seen(self, dtype: torch.dtype) -> torch.Tensor:
        total, common = self.start + self.size, self.start + len(self.certain)
        seen = torch.ones(self.size, total, dtype=torch.bool).tril(self.start)
        row = common
        for draft in self.drafts:
            seen[row - self.start : row - self.start + len(draft), common:row] = False
            row += len(draft)
        device = self.cache.buffer.tensor.device
        return torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, float("-inf")).to(device)


def prepare_model(model: Any) -> None:
    """Let a model attend in packed passes; its ordinary passes stay as they are.

    Raises:
        ModelError: it attends in ways that these passes do not know.
    """
    kinds = set(getattr(model.config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise ModelError(
            f"{model.config.model_type} attends by {', '.join(sorted(kinds))}, the local engine by full attention "
            "only; serve the model with vLLM and name the server instead"
        )
    AttentionInterface.register(NAME, attention)
    model.set_attn_implementation(NAME)


def new_cache(model: Any) -> KVCache:
    """An empty cache for a model."""
    config = model.config
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return KVCache(config.num_hidden_layers, _key_heads(config), size, model.dtype, model.device)


def _key_heads(config: Any) -> int:
    return int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)


@torch.inference_mode()
def forward(model: Any, chunks: Sequence[Chunk]) -> list[torch.Tensor]:
    """Logits at the wanted rows of each chunk, (rows, vocabulary) in float32.

    The caches take the certain tokens in; the drafts' keys and values stand behind them, for the caller to keep.
    """
    groups = model.config.num_attention_heads // _key_heads(model.config)
    for chunk in chunks:
        chunk.prepare(groups, model.dtype)
    ids = torch.tensor([[i for chunk in chunks for i in chunk.ids]], device=model.device)
    positions = torch.tensor([[p for chunk in chunks for p in chunk.positions()]], device=model.device)
    starts = [sum(chunk.size for chunk in chunks[:n]) for n in range(len(chunks))]
    wanted = torch.tensor([at + row for at, chunk in zip(starts, chunks, strict=True) for row in chunk.rows()])
    logits = model(
        input_ids=ids, position_ids=positions, use_cache=False, logits_to_keep=wanted.to(model.device), packed=chunks
    ).logits[0]
    for chunk in chunks:
        chunk.cache.length = chunk.start + len(chunk.certain)
    return list(logits.float().split([len(chunk.rows()) for chunk in chunks]))


def attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, *, packed: Any = None, **kwargs: Any
) -> tuple[torch.Tensor, None]:
    """transformers' attention interface: from states (1, heads, tokens, head size) to (1, tokens, heads, head size)."""
    if packed is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)  # type: ignore[no-any-return]
    out, at = torch.empty_like(query), 0
    for chunk in packed:
        part = slice(at, at + chunk.size)
        keys, values = chunk.cache.write(module.layer_idx, chunk.start, key[0, :, part], value[0, :, part])
        out[0, :, part] = _attend(query[0, :, part], keys, values, chunk.mask, kwargs["scaling"])
        at = part.stop
    return out.transpose(1, 2), None


def _attend(query: Any, keys: Any, values: Any, mask: Any, scale: float) -> torch.Tensor:
    """The heads that share keys stand behind one another as rows, so that keys need not be repeated."""
    heads, rows, size = query.shape
    if mask is None and rows > ROWS and query.device.type == "cpu" and query.dtype == torch.bfloat16:
        return attend_in_blocks(query * scale, keys, values)
    if mask is None and rows > 1:
        whole = torch.nn.functional.scaled_dot_product_attention(
            query[None], keys[None], values[None], is_causal=True, scale=scale, enable_gqa=heads != keys.shape[0]
        )
        return whole[0]
    grouped = query.reshape(1, keys.shape[0], -1, size)
    found = torch.nn.functional.scaled_dot_product_attention(
        grouped, keys[None], values[None], attn_mask=mask, scale=scale
    )
    return found.reshape(heads, rows, size)
