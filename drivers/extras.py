"""Packages that only some commands need, and the sentence for who does not have them."""

from importlib.util import find_spec

from core.errors import ConfigError

_PACKAGES = {"eval": ("scipy", "statsmodels", "krippendorff"), "offline": ("trl",)}


def need_extra(name: str) -> None:
    """Raise ConfigError, before anything is spent, when the extra's packages are not there."""
    missing = [package for package in _PACKAGES[name] if find_spec(package) is None]
    if missing:
        raise ConfigError(
            f"got no {', '.join(missing)}, wanted the packages of the extra {name!r}: "
            f"pip install 'ratchet-rl[{name}]' (or make install)"
        )
