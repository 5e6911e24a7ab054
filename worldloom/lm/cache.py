"""The keys and values of one session's tokens: cut back at no cost, and shared by forks until one of them writes."""

from typing import Any
from weakref import WeakSet

import torch

BLOCK = 256  # tokens by which the room for a session grows


class Buffer:
    """Room for keys and values, shape (layers, 2, kv heads, capacity, head size), and the caches that use it."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor
        self.users: WeakSet[KVCache] = WeakSet()

    @property
    def capacity(self) -> int:
        return int(self.tensor.shape[3])


class KVCache:
    """``length`` tokens are held; what lies behind them is free room. ``used`` says when it last was, for eviction."""

    def __init__(self, layers: int, heads: int, size: int, dtype: torch.dtype, device: Any = "cpu"):
        self.length, self.used = 0, 0
        self.buffer = Buffer(torch.empty((layers, 2, heads, 0, size), dtype=dtype, device=device))
        self.buffer.users.add(self)

    def _take(self, buffer: Buffer) -> None:
        self.buffer.users.discard(self)
        self.buffer = buffer
        buffer.users.add(self)

    def _alone_with(self, length: int) -> bool:
        return len(self.buffer.users) == 1 and length <= self.buffer.capacity

    def bytes_for(self, length: int) -> int:
        """Bytes that ``reserve`` would take beyond those in use."""
        if self._alone_with(length):
            return 0
        layers, two, heads, _, size = self.buffer.tensor.shape
        room = layers * two * heads * size * _rounded(length) * self.buffer.tensor.element_size()
        return room - (self.buffer.tensor.nbytes if len(self.buffer.users) == 1 else 0)

    def reserve(self, length: int) -> None:
        """Make room of its own for ``length`` tokens; what is held is kept."""
        if self._alone_with(length):
            return
        old = self.buffer.tensor
        room = old.new_empty((*old.shape[:3], _rounded(length), old.shape[4]))
        room[:, :, :, : self.length] = old[:, :, :, : self.length]
        self._take(Buffer(room))

    def write(
        self, layer: int, start: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Put down keys and values, each (kv heads, n, head size), from token ``start`` on; give all up to there."""
        stop = start + keys.shape[1]
        room = self.buffer.tensor[layer]
        room[0, :, start:stop], room[1, :, start:stop] = keys, values
        return room[0, :, :stop], room[1, :, :stop]

    @torch.inference_mode()  # the room may have been made in a pass, and nothing else may write into it then
    def move(self, source: int, count: int) -> None:
        """Hold ``count`` more tokens: those that stand from ``source`` on."""
        room, stop = self.buffer.tensor, self.length + count
        if source != self.length:
            room[:, :, :, self.length : stop] = room[:, :, :, source : source + count].clone()
        self.length = stop

    def adopt(self, other: "KVCache", length: int) -> None:
        """Hold the first ``length`` tokens of another cache, sharing its room until one of both writes."""
        buffer, held = other.buffer, other.length  # in this order: the other may be dropped in between
        self._take(buffer)
        self.length = min(length, held)

    def fork(self) -> "KVCache":
        """The same tokens once more; see ``adopt``."""
        layers, _, heads, _, size = self.buffer.tensor.shape
        twin = KVCache(layers, heads, size, self.buffer.tensor.dtype, self.buffer.tensor.device)
        twin.adopt(self, self.length)
        return twin

    def drop(self) -> None:
        """Forget everything and give the room back."""
        old = self.buffer.tensor
        self._take(Buffer(old.new_empty((*old.shape[:3], 0, old.shape[4]))))
        self.length = 0


def _rounded(length: int) -> int:
    return -(-length // BLOCK) * BLOCK
