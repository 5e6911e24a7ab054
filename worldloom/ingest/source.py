"""A log file as a stream of UTF-8 bytes: decompressed and recoded on the way, never read whole."""

import codecs
import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from worldloom.errors import ConfigError, DataError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16's, which begins alike
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
OTHER = {b"PK\x03\x04": "a zip archive", b"PAR1": "a Parquet file", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
CHUNK = 1 << 16
BROKEN = (OSError, EOFError, UnicodeError, zlib.error, zstd.ZstdError)
"""What reading may raise where a file is damaged or not in the encoding that it is read in."""


@dataclass
class Stream:
    """The text of a file as UTF-8 bytes, and how many bytes of the file itself have been read."""

    text: IO[bytes]
    file: IO[bytes]

    @property
    def bytes_read(self) -> int:
        """Bytes of the file, compressed as it may be."""
        return self.file.tell()


@contextmanager
def opened(path: Path, encoding: str | None = None) -> Iterator[Stream]:
    """Open a file: .gz and .zst by their first bytes, UTF-16 and UTF-32 by their mark, else UTF-8 or ``encoding``.

    Raises:
        DataError: the file cannot be opened, or is an archive of another kind.
        ConfigError: there is no such encoding.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", path) from error
    with file:
        text = _decompressed(file, path)
        yield Stream(_recoded(text, encoding), file)


def _decompressed(file: io.BufferedReader, path: Path) -> io.BufferedReader:
    head = file.peek(8)[:8]
    for magic, kind in OTHER.items():
        if head.startswith(magic):
            raise DataError(f"is {kind}: unpack it first (.gz and .zst are read as they are)", path)
    if head.startswith(GZIP):
        return io.BufferedReader(gzip.GzipFile(fileobj=file), CHUNK)
    if head.startswith(ZSTD):
        return io.BufferedReader(zstd.ZstdFile(file), CHUNK)
    return file


def _recoded(text: io.BufferedReader, encoding: str | None) -> IO[bytes]:
    head = text.peek(4)[:4]
    found = next((name for bom, name in BOMS if head.startswith(bom)), encoding or "utf-8")
    try:
        name = codecs.lookup(found).name
    except LookupError as error:
        raise ConfigError(f"there is no encoding {found!r}; give one that Python knows, such as cp1252") from error
    if name == "utf-8-sig":
        text.read(len(codecs.BOM_UTF8))
    if name in ("utf-8", "utf-8-sig"):
        return text  # each line is checked where it is parsed, so that a bad byte costs one line
    return io.BufferedReader(_Recoded(text, name), CHUNK)


class _Recoded(io.RawIOBase):
    """Another encoding read as UTF-8."""

    def __init__(self, text: IO[bytes], encoding: str):
        self._text, self._decoder, self._left = text, codecs.getincrementaldecoder(encoding)(), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            raw = self._text.read(CHUNK)
            self._left = self._decoder.decode(raw, final=not raw).encode()
            if not raw:
                break
        part, self._left = self._left[: len(buffer)], self._left[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)
