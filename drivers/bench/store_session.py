"""A local Ray session of a benchmark: own short folder, no dashboard, nothing left behind."""

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def ray_session(num_cpus: int = 2, *, has_serve: bool = False) -> Iterator[str]:
    """Start a local Ray (and Serve without a proxy); yield a folder that goes with it.

    Both end and the folder is removed, whatever happens.
    """
    import ray
    from ray import serve

    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    logging.getLogger("ray.serve").setLevel(logging.WARNING)  # its own log files have the rest
    folder = tempfile.mkdtemp(prefix="rb-")
    root = str(Path(__file__).resolve().parents[2])
    try:
        ray.init(
            address="local",
            num_cpus=num_cpus,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.WARNING,
            object_store_memory=200 * 2**20,
            # vLLM's sockets go where the folder goes: a killed engine leaves them
            runtime_env={"env_vars": {"PYTHONPATH": root, "VLLM_RPC_BASE_PATH": folder}},
            _temp_dir=f"{folder}/ray",
        )
        if has_serve:
            serve.start(proxy_location="Disabled")
        yield folder
    finally:
        if ray.is_initialized():
            if has_serve:
                serve.shutdown()
            ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
