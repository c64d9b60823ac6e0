"""A local Ray session of a benchmark: own short folder, no dashboard, nothing left behind."""

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import ray


@contextmanager
def ray_session(num_cpus: int = 2) -> Iterator[None]:
    """Start a local Ray; shut it down and remove its folder, whatever happens."""
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    folder = tempfile.mkdtemp(prefix="rb-", dir="/tmp" if os.path.isdir("/tmp") else None)
    ray.init(
        address="local",
        num_cpus=num_cpus,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.WARNING,
        _temp_dir=folder,
    )
    try:
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
