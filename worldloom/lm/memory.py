"""Keep large freed blocks in the process: training on a CPU else spends much of its time on page faults."""

import ctypes
import functools
import logging
import sys

logger = logging.getLogger(__name__)

# glibc's malloc.h
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
KEEP_BYTES = 2**31 - 1


@functools.cache
def keep_freed_memory() -> bool:
    """Tell glibc's allocator to reuse freed blocks of any size; False where there is no glibc."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        logger.info("this C library has no mallopt; memory is handled as usual")
        return False
    settings = ((M_MMAP_THRESHOLD, KEEP_BYTES // 2), (M_TRIM_THRESHOLD, KEEP_BYTES), (M_TOP_PAD, 2**28))
    return all(mallopt(name, value) for name, value in settings)
