"""Unit tests run without Ray: starting it is an error."""

import pytest


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        import ray
    except ImportError:
        return

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a unit test started Ray")

    monkeypatch.setattr(ray, "init", refuse)
