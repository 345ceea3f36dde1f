# SPDX-License-Identifier: Apache-2.0
"""_messages.py: lines of the library go to Python's logging, and its long calls show a progress bar."""
import atexit
import contextlib
import logging
import os
import sys

from . import _api as api
from ._load import lib
from .errors import in_python

_LEVELS = {api.ZOFF_LOG_ERROR: logging.ERROR, api.ZOFF_LOG_WARN: logging.WARNING, api.ZOFF_LOG_INFO: logging.INFO}


@api.zoff_log_fn
def _log(level, room, line, _):
    logging.getLogger(f"zoff.{room.decode()}").log(_LEVELS.get(level, logging.DEBUG), "%s", in_python(line.decode(errors="replace")))


def begin():
    """Send lines to the loggers "zoff.ROOM". With ZOFF_LOG_LEVEL they go to stderr, as those of a C program."""
    if "ZOFF_LOG_LEVEL" not in os.environ:
        lib.zoff_log_set(_log, None)
        atexit.register(lib.zoff_log_set, api.zoff_log_fn(), None)  # runs after the engines are closed


@contextlib.contextmanager
def progress():
    """A zoff_progress_fn with a bar of tqdm, which fits terminals and notebooks, where tqdm is installed. It appears after two
    seconds. An interrupt ends the call of the library, because Python sees it in the callback."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        tqdm = None
    bars, raised, before = {}, [], sys.unraisablehook

    def show(what, done, total, _):
        if tqdm and what not in bars:
            bars[what] = tqdm(desc=f"zoff: {what.decode()}", total=total, unit="B", unit_scale=True, delay=2, leave=False)
        if tqdm:
            bars[what].update(done - bars[what].n)
        return not raised

    def keep(unraisable):
        """Ctypes does not pass on an exception, which may come before the first line of the callback, too, and returns anything."""
        if unraisable.object is show or repr(show) in (unraisable.err_msg or ""):  # Python 3.13 has no object
            raised.append(unraisable.exc_value)
        else:
            before(unraisable)

    sys.unraisablehook = keep
    try:
        yield api.zoff_progress_fn(show)
    except Exception:
        if not raised:
            raise
    finally:
        sys.unraisablehook = before
        for bar in bars.values():
            bar.close()
    if raised:
        raise raised[0]
