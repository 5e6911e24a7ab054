"""Whether an imagined episode ends: by how likely the model holds an end, against a threshold chosen on real episodes.

Greedy decoding ends an episode where an end is likelier than none. Ends are rare, one step in many, so that a model of
few episodes tells the right steps apart long before it holds their ends likely.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from worldloom.errors import DataError, ModelError
from worldloom.protocol import MARKERS
from worldloom.runs import read_json
from worldloom.tokens import ChatFormat

FILE = "ends.json"


@dataclass(frozen=True)
class Ending:
    """What may follow when all of an observation is said.

    Args:
        none: the token that ends an answer: the episode goes on.
        suffix: the token that a suffix begins with: the episode ends.
        least: the chance of an end, of these two, from which on it ends.
    """

    none: int
    suffix: int
    least: float = 0.5

    def chances(self, rows: torch.Tensor) -> torch.Tensor:
        """Of an end, for rows of logits (rows, vocabulary)."""
        return (rows[:, self.suffix] - rows[:, self.none]).float().sigmoid()

    def greedy(self, rows: torch.Tensor) -> torch.Tensor:
        """The likeliest token of each row; where that is one of the two, the chance of an end decides between them."""
        best = rows.argmax(-1)
        either = (best == self.none) | (best == self.suffix)
        decided = torch.where(self.chances(rows) >= self.least, self.suffix, self.none)
        return torch.where(either, decided, best)

    @classmethod
    def of(cls, chat: ChatFormat, least: float = 0.5) -> "Ending":
        """For a chat format.

        Raises:
            ModelError: its tokenizer begins " [SUCCESS]" and " [FAILURE]" with different tokens.
        """
        plain = chat.answer("Done.")[:-1]
        firsts = {chat.answer("Done." + marker)[len(plain)] for marker in MARKERS.values()}
        if len(firsts) > 1 or any(chat.answer("Done." + m)[: len(plain)] != plain for m in MARKERS.values()):
            raise ModelError(
                "the tokenizer has no token that both suffixes of an end begin with, so none can be weighed"
            )
        return cls(chat.end, firsts.pop(), least)

    @classmethod
    def load(cls, folder: Path, chat: ChatFormat) -> "Ending | None":
        """What ``worldloom calibrate`` chose for a model; None if it was not asked.

        Raises:
            ModelError: the file is broken.
        """
        path = folder / FILE
        if not path.is_file():
            return None
        try:
            found: dict[str, Any] = read_json(path)
            least = float(found["least"])
        except (DataError, KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{path} is broken ({error!r}); delete it, or run `worldloom calibrate` again") from error
        if not 0 < least < 1:
            raise ModelError(f"{path}: least is {least}; it must be above 0 and below 1")
        return cls.of(chat, least)
