# SPDX-License-Identifier: Apache-2.0
"""errors.py: exceptions with the message of the library."""
import re

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


# Names of the C library, and those of the package. The first two are the advice for a budget that is too small.
_NAMES = (("zoff_engine_opts.host_bytes", "host_memory"), ("set offload_optimizer.device to \"nvme\"", "give a folder by nvme"),
          (r"nvme_path \(of offload_optimizer, or of offload_param\)", "nvme"), (r"(?<![.\w\"])nvme_path\b", "nvme"), (r"\bzoff_\w+_opts\.", ""),
          (r"reduce the gradient over all ranks before zoff_grad_ready\(\), or leave zoff_param_desc.reduced false",
           "wrap the model in DistributedDataParallel, or leave ranks out"), (r"call zoff_grads_drop\(\) on every rank, and repeat", "repeat"),
          ("let zoff reduce its gradients, or open a communicator of the host", "use ranks=\"ucx\""),
          (r"zoff_param_desc\.reduced", "ranks"), (r"\bzoff_(?:step|checkpoint)_(wait|retry|load)\(\)", r"\1()"), (r"^api: ", "zoff.Config: "))


def in_python(message):
    """A message of the library with the names that a program in Python has used."""
    for pattern, name in _NAMES:
        message = re.sub(pattern, name, message)
    return message


def check(status):
    """Raise the error of a call; return its status otherwise."""
    if status < 0:
        raise _CLASSES.get(status, Error)(status, in_python(lib.zoff_last_error().decode(errors="replace")))
    return status
