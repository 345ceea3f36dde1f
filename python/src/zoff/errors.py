"""errors.py: exceptions with the message of the library."""
from . import _api
from ._load import lib


class Error(RuntimeError):
    """A call of zoff failed. `status` is its zoff_status; `message` says what happened, where, and what to do."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status, self.message = status, message

    def __reduce__(self):
        return type(self), (self.status, self.message)


class NoMemory(Error):
    """DRAM, or a budget of memory, is exhausted."""


class NoSpace(Error):
    """The storage is full."""


class Corrupt(Error):
    """Stored data are not what was written."""


class Io(Error):
    """The storage failed."""


class Comm(Error):
    """Another rank failed, or did not answer in time."""


class Unsupported(Error):
    """This build or this machine cannot do it."""


_CLASSES = {_api.ZOFF_ERR_NO_MEMORY: NoMemory, _api.ZOFF_ERR_NO_SPACE: NoSpace, _api.ZOFF_ERR_CORRUPT: Corrupt, _api.ZOFF_ERR_IO: Io,
            _api.ZOFF_ERR_COMM: Comm, _api.ZOFF_ERR_UNSUPPORTED: Unsupported}


def check(status):
    """Raise the error of a call; return its status otherwise."""
    if status < 0:
        raise _CLASSES.get(status, Error)(status, lib.zoff_last_error().decode(errors="replace"))
    return status
