"""The Ray session of a run: the cluster it is told of, or a local one of its own.

Inside a Ray job, and where RAY_ADDRESS is set, the driver joins that cluster. Otherwise it starts a
local one whose dashboard listens on 127.0.0.1 and ends with the driver. Token authentication is
off unless RAY_AUTH_MODE says otherwise, for server, driver and command line alike: Ray otherwise
turns it on when a token file happens to lie in the home folder.
"""

import logging
import os
from typing import Any

import ray

from core.errors import ConfigError

log = logging.getLogger(__name__)


def start_ray(num_cpus: int | None = None) -> str:
    """Connect or start; returns the dashboard's address, or an empty text when it has none."""
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    os.environ.setdefault("RAY_SERVE_QUEUE_LENGTH_RESPONSE_DEADLINE_S", "2")
    address = os.environ.get("RAY_ADDRESS") or "local"
    if address == "local":
        context = ray.init(
            address="local",
            num_cpus=num_cpus,
            include_dashboard=True,
            dashboard_host="127.0.0.1",
            log_to_driver=False,
            logging_level=logging.WARNING,
        )
    else:
        context = _joined(address)
    dashboard = context.dashboard_url
    return f"http://{dashboard}" if dashboard else ""


def _joined(address: str) -> Any:
    try:
        return ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
    except ConnectionError as error:
        raise ConfigError(
            f"got RAY_ADDRESS={address!r} with no Ray cluster there ({_first_line(error)}), wanted "
            "a running one: start it with `ray start --head`, correct the address, or unset "
            "RAY_ADDRESS for a local cluster of the run's own"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
