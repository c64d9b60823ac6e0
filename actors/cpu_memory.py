"""How a CPU learner asks the system for memory: glibc's allocator, told what training is like.

A training step allocates and frees the same large tensors over and over. By default glibc gives
each large one back at once, and the system has to clear fresh pages for the next: a million page
faults a step, a tenth to a half of its time. ``keep_freed_memory`` makes it keep them, also between
steps: the process then always holds what its largest step needed. Where there is no glibc it does
nothing.
"""

import ctypes
import logging

_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_NEVER = -1
"""As an unsigned number the largest there is."""

logger = logging.getLogger(__name__)


def keep_freed_memory() -> None:
    """Let tensors of any size come from memory that the process keeps when they are freed."""
    try:
        set_option = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        logger.debug("this C library has no mallopt")
        return
    set_option(_M_MMAP_MAX, 0)
    set_option(_M_TRIM_THRESHOLD, _NEVER)
