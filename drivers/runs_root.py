"""Where runs are kept: the config, else RATCHET_RUNS_DIR, else ``./runs``.

A Ray job's working folder is a temporary copy of what was uploaded, and goes away with the job. In
a job the default is therefore ``~/.ratchet/runs``, and a relative folder is refused: what a person
means by it lies on the machine that they submitted from.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from core.errors import ConfigError

RUNS_DIR_VARIABLE = "RATCHET_RUNS_DIR"

# Ray's job supervisor sets this for the entry point and for nothing else.
_JOB_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"


def runs_root(runs_dir: str | None = None, *, env: Mapping[str, str] | None = None) -> Path:
    """Return the absolute folder that holds this program's runs."""
    env = os.environ if env is None else env
    is_job = _JOB_VARIABLE in env
    name, chosen = "runs_dir", runs_dir
    if not chosen:
        name, chosen = RUNS_DIR_VARIABLE, env.get(RUNS_DIR_VARIABLE)
    if not chosen:
        return Path.home() / ".ratchet" / "runs" if is_job else Path.cwd() / "runs"
    try:
        if "\0" in chosen:
            raise ValueError("a zero byte")
        folder = Path(chosen).expanduser()
    except (RuntimeError, ValueError) as error:  # ~nobody/runs
        raise ConfigError(
            f"got {name}={chosen!r}, which names no folder ({error}), wanted a path: correct it"
        ) from None
    if is_job and not folder.is_absolute():
        raise ConfigError(
            f"got {name}={chosen!r} inside a Ray job, whose working folder is a temporary copy, "
            "wanted an absolute path (or none, for ~/.ratchet/runs)"
        )
    return folder.absolute()
