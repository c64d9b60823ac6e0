"""The project's own exceptions, one per boundary.

``ConfigError`` is what a person gave (a command catches it and ends with exit code 2); the others
name a boundary that failed at run time. All take one message and stay picklable, since they cross
process boundaries. A message says what was got, what was wanted, and what to do.
"""


class ConfigError(ValueError):
    """A config, data file or command line that a person can correct."""


class WriterReplyError(RuntimeError):
    """A rubric writer's reply that is not a usable edit; its text is fed back to the writer."""


class RolloutError(RuntimeError):
    """Generation failed for a request after its retries."""


class StaleVersionError(RuntimeError):
    """Something was done with a rubric or policy version that is no longer current."""


class WeightSyncError(RuntimeError):
    """Weights of the wanted version could not be published or loaded."""


class RunStopped(RuntimeError):
    """The run ended itself for a stated reason: non-finite loss, too many judge failures."""
