"""Where worldloom keeps what can be made again."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """``$WORLDLOOM_CACHE``, else ~/.cache/worldloom."""
    return Path(os.environ.get("WORLDLOOM_CACHE") or "~/.cache/worldloom").expanduser()
