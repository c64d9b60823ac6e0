"""How a command over a run's files ends: an exit code, and one sentence about what is wrong.

0 when it did what it was asked for (or what it found so far is enough, as for ``head``); what the
command itself returns otherwise; 1 when the machine or another process stood in the way; 2 when
what was given is wrong, which a file that is not a run's is too.
"""

import io
import os
import signal
import sqlite3
import sys
from collections.abc import Callable

from core.errors import ConfigError, RunStopped
from drivers.rubrics_text import shown

_BROKEN = (LookupError, TypeError, ValueError, AttributeError, AssertionError, RecursionError)
"""What reading a record of another shape raises, wherever in it the wrong part stands."""

_MACHINE = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY,
)
"""SQLite's errors that say nothing about what stands in the file."""

_MAX_SHOWN = 400


def exit_code(command: Callable[[], int], run: object) -> int:
    """Return what ``command`` does, or the code and the message of what it raised.

    ``run`` is how a person named the run.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        return command()
    except ConfigError as error:
        return _end(2, f"error: {error}")
    except (RunStopped, TimeoutError) as error:
        return _end(1, f"stopped: {error}")
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (*_BROKEN, sqlite3.DatabaseError) as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _MACHINE:
            return _end(1, f"stopped: got {error} from SQLite, wanted to read and write its file")
        what = f"got a record in {run} that is not a run's ({type(error).__name__}: {error})"
        return _end(2, f"error: {what[:_MAX_SHOWN]}, wanted the files that drivers.train writes")
    except OSError as error:
        what = f"got {error.strerror} ({error.filename or 'while writing'})"
        return _end(1, f"stopped: {what}, wanted a run's folder that can be read and written")
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _end(code: int, message: str) -> int:
    sys.stderr.write(shown(message) + "\n")
    return code
