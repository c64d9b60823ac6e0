"""The Ray session of a run: the cluster it is told of, or a local one of its own.

Inside a Ray job, and where RAY_ADDRESS is set, the driver joins that cluster. Otherwise it starts a
local one whose dashboard listens on 127.0.0.1 and ends with the driver. Token authentication is
off unless RAY_AUTH_MODE says otherwise, for server, driver and command line alike: Ray otherwise
turns it on when a token file happens to lie in the home folder.
"""

import logging
import os
import socket
from typing import Any

import ray

from core.errors import ConfigError

log = logging.getLogger(__name__)

_KNOCK_TIMEOUT_S = 10.0
_MAX_PORT = 65535


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
        _knock(address)
        return ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"got RAY_ADDRESS={address!r} with no Ray cluster there ({_first_line(error)}), wanted "
            "a running one: start it with `ray start --head`, correct the address, or unset "
            "RAY_ADDRESS for a local cluster of the run's own"
        ) from error


def _knock(address: str) -> None:
    """Raise when nobody listens at a ``host:port``: Ray itself would wait minutes to say so."""
    host, colon, port = address.rpartition(":")
    if colon and "/" not in address and port.isdigit():
        if int(port) > _MAX_PORT:
            raise ValueError(f"no port has the number {port}")
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_TIMEOUT_S).close()


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
