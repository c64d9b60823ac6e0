"""Which counter measures the lengths of Arena-Hard's answers on this machine.

The authors count with tiktoken's o200k_base, whose vocabulary tiktoken fetches over the network and
keeps. It is used where tiktoken is installed and the vocabulary is kept already; a command never
fetches it on its own. Else the stand-in counts, and outcomes say so.
"""

import hashlib
import os
import tempfile
from pathlib import Path

from core.benchmarks.arena_style import AUTHORS_COUNTER, STAND_IN, TokenCounter

_VOCABULARY = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"


def token_counter() -> TokenCounter:
    """Return the authors' counter if it can be had without network, else the stand-in."""
    try:
        import tiktoken  # pyright: ignore[reportMissingImports]
    except ImportError:
        return STAND_IN
    if not _kept_vocabulary().is_file():
        return STAND_IN
    encoding = tiktoken.get_encoding("o200k_base")

    def count(text: str) -> int:
        return len(encoding.encode(text, disallowed_special=()))

    return TokenCounter(name=AUTHORS_COUNTER, count=count)


def _kept_vocabulary() -> Path:
    """Return where tiktoken keeps the vocabulary (tiktoken/load.py)."""
    folder = next(
        (f for name in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR") if (f := os.environ.get(name))),
        os.path.join(tempfile.gettempdir(), "data-gym-cache"),
    )
    return Path(folder) / hashlib.sha1(_VOCABULARY.encode()).hexdigest()
