"""What was said in one direction of an exchange: kept as text while its bytes pass on unchanged."""

import codecs
import hashlib
import re
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

IN_MEMORY: Final = 1 << 18  # bytes of a body; what is longer goes to an unnamed file
BLOCK: Final = 1 << 16  # bytes
READABLE: Final = ("gzip", "deflate", "identity", "x-gzip")  # content encodings
SHORTEST_SECRET: Final = 8  # characters; to hide "none" would mar the texts
HIDDEN: Final = "[hidden by worldloom]"
_TEXT = re.compile(r"\s*(text/|application/(json|x-ndjson|jsonl|[\w.-]+\+json|problem\+json)|$)", re.IGNORECASE)


class Body:
    """Collects a body; of one that is no text (or in an unreadable encoding) only its size and its SHA-256.

    Args:
        headers: the message's, names in lower case; ``content-type`` and ``content-encoding`` count.
    """

    def __init__(self, headers: Mapping[str, str]):
        encoding = headers.get("content-encoding", "identity").strip().lower()
        self.is_text = encoding in READABLE and bool(_TEXT.match(headers.get("content-type", "")))
        self.size = 0
        self._hash = hashlib.sha256()
        self._inflater = None if encoding == "identity" or not self.is_text else _Inflater()
        self._kept = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115  `close` closes it

    def add(self, raw: bytes) -> bytes:
        """Take bytes as they came; return what they say, without their encoding (nothing, if that is no text)."""
        self.size += len(raw)
        self._hash.update(raw)
        if not self.is_text:
            return b""
        try:
            said = self._inflater.inflate(raw) if self._inflater else raw
        except zlib.error:  # not in the encoding that its header names
            self.is_text = False
            return b""
        self._kept.write(said)
        return said

    @property
    def told(self) -> dict[str, str | int]:
        """Its size and hash, as it came."""
        return {"bytes": self.size, "sha256": self._hash.hexdigest()}

    def texts(self) -> Iterator[str]:
        """The text in pieces; bytes that are no UTF-8 become the replacement character."""
        self._kept.seek(0)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while block := self._kept.read(BLOCK):
            yield decoder.decode(block)
        yield decoder.decode(b"", final=True)

    def close(self) -> None:
        """Let go of what is kept."""
        self._kept.close()


class _Inflater:
    """gzip (of several members, too) and deflate, recognised by their first bytes."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(zlib.MAX_WBITS | 32)

    def inflate(self, raw: bytes) -> bytes:
        said = b""
        while raw:
            said += self._stream.decompress(raw)
            raw = self._stream.unused_data
            if self._stream.eof and raw:
                self._stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
        return said


def without(texts: Iterable[str], secrets: Iterable[str]) -> Iterator[str]:
    """The same texts with each secret hidden, one that lies across two pieces included."""
    hidden = [secret for secret in secrets if len(secret) >= SHORTEST_SECRET]
    overlap = max(map(len, hidden), default=1) - 1
    left = ""
    for text in texts:
        left += text
        for secret in hidden:
            left = left.replace(secret, HIDDEN)
        cut = len(left) - overlap
        if cut > 0:
            yield left[:cut]
            left = left[cut:]
    yield left
