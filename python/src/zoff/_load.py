# SPDX-License-Identifier: Apache-2.0
"""_load.py: finds libzoff, and compares its version with that of the declarations."""
import ctypes
import os

from . import _api

_HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "libzoff.so.0")


def _load():
    """Load ZOFF_LIBRARY, the library inside the package, or the one of the system, whichever comes first."""
    path = os.environ.get("ZOFF_LIBRARY") or (_HERE if os.path.exists(_HERE) else "libzoff.so.0")
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"zoff cannot load its library {path}: {error}. Install zoff, or set ZOFF_LIBRARY to the path of libzoff.so.0") from None
    try:
        library.zoff_version.restype = ctypes.c_uint
        number = library.zoff_version()
    except AttributeError:
        raise ImportError(f"{path} is no library of zoff; set ZOFF_LIBRARY to the path of libzoff.so.0") from None
    if number // 100 != _api.ZOFF_VERSION_NUMBER // 100:
        version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
        raise ImportError(f"{path} has version {version}, and the Python package has version {_api.VERSION}: install the same version of both, "
                          "or set ZOFF_LIBRARY to another libzoff.so.0")
    try:
        _api.declare(library)
    except AttributeError as error:
        raise ImportError(f"{path} is another build of zoff {_api.VERSION} than this package: {error}") from None
    return library


lib = _load()
