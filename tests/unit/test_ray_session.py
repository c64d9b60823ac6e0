"""An address without a cluster is refused in seconds; no cluster is started here."""

import socket

import pytest

from core.errors import ConfigError
from drivers import ray_session


def closed_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "127.0.0.1:99999", "nonsense", "http://x"])
def test_an_address_without_a_cluster_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    def init(**given: object) -> None:
        assert given["address"] in ("nonsense", "http://x"), "asked though nobody listens there"
        raise ValueError("Invalid address format")

    monkeypatch.setattr(ray_session.ray, "init", init)
    monkeypatch.setenv("RAY_ADDRESS", address.format(port=closed_port()))
    with pytest.raises(ConfigError, match=r"with no Ray cluster there .* or unset RAY_ADDRESS"):
        ray_session.start_ray()
