"""How a CPU learner asks the system for memory: glibc's allocator, told what training is like.

A training step allocates and frees the same large tensors over and over. By default glibc gives
each large one back at once, and the system has to clear fresh pages for the next: a quarter of a
step. ``keep_freed_memory`` makes it keep them; ``give_memory_back`` returns them when a call is
over, so that an engine on the same machine can have them. Where there is no glibc neither does
anything.
"""

import ctypes
import logging

_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_NEVER = 2**31 - 1

logger = logging.getLogger(__name__)


def keep_freed_memory() -> None:
    """Let tensors of any size come from memory that the process keeps when they are freed."""
    _call("mallopt", _M_MMAP_MAX, 0)
    _call("mallopt", _M_TRIM_THRESHOLD, _NEVER)


def give_memory_back() -> None:
    """Return all freed pages to the system."""
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> None:
    try:
        getattr(ctypes.CDLL("libc.so.6"), name)(*arguments)
    except (OSError, AttributeError):
        logger.debug("this C library has no %s", name)
