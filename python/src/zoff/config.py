# SPDX-License-Identifier: Apache-2.0
"""config.py: the configuration of an engine, which is that of DeepSpeed with a section "zoff"."""
import json
import os
from ctypes import byref, c_double, c_size_t, c_void_p, create_string_buffer

from ._load import lib
from .errors import check

_OFFLOAD = "zero_optimization.offload_optimizer."


class Handle:
    """A zoff_config, closed when it is no longer used."""

    def __init__(self):
        self.pointer = c_void_p()
        check(lib.zoff_config_open(None, byref(self.pointer)))

    def __del__(self):
        lib.zoff_config_close(self.pointer)

    def set(self, key, value):
        check(lib.zoff_config_set(self.pointer, key.encode(), value.encode()))

    def number(self, key):
        value = c_double()
        check(lib.zoff_config_number(self.pointer, key.encode(), byref(value)))
        return value.value

    def dump(self):
        """The text of all keys, after they were resolved for one rank."""
        count = c_size_t()
        check(lib.zoff_config_resolve(self.pointer, 1))
        check(lib.zoff_config_dump(self.pointer, None, 0, byref(count)))
        text = create_string_buffer(count.value + 1)
        check(lib.zoff_config_dump(self.pointer, text, len(text), byref(count)))
        return text.value.decode()

    def keys(self):
        """All keys of the text: {key: (value, its source)}."""
        found = {}
        for line in self.dump().splitlines()[1:]:
            key, _, rest = line.partition(" = ")
            value, _, source = rest.rpartition(" # ")
            found[key] = (value.strip(), source)
        return found


class Config:
    """Where states are, and how they are stored.

    `source` is the path of a ds_config file, or a dictionary of the same form. The keywords set its keys for states.

    `nvme` is a folder or a list of folders for files, and `persist` keeps these. `host_memory` is the DRAM for states, such as
    "2GiB".

    `moments` is "fp32", "bf16", "m8v16" or "q8", and `master` is "fp32" or "split". `threads` are those of the update. With `overlap`
    in an optimizer, `background_threads` update beside the passes, and `speculation_memory` is the DRAM for updates in the backward
    pass."""

    def __init__(self, source=None, *, nvme=None, host_memory=None, moments=None, master=None, threads=None, persist=None,
                 background_threads=None, speculation_memory=None):
        self._text, self._name, self._settings = None, "configuration", {}
        if isinstance(source, (str, os.PathLike)):
            self._name = os.fspath(source)
            with open(source, encoding="utf-8") as file:
                self._text = file.read()
        elif source is not None:
            self._text = json.dumps(source)
        if nvme is not None:
            folders = [nvme] if isinstance(nvme, (str, os.PathLike)) else nvme
            self._settings[_OFFLOAD + "device"] = "nvme"
            self._settings[_OFFLOAD + "nvme_path"] = json.dumps([os.fspath(folder) for folder in folders])
        for key, value in (("host_memory", host_memory), ("moments", moments), ("master", master), ("threads", threads), ("persist", persist),
                           ("background_threads", background_threads), ("speculation_memory", speculation_memory)):
            if value is not None:
                self._settings["zoff." + key] = _text(value)
        self.open()

    def set(self, key, value):
        """Set one key, such as ("zoff.verify", "sample"). It wins over the file."""
        before = self._settings
        self._settings = {**before, key: _text(value)}
        try:
            self.open()
        except Exception:
            self._settings = before
            raise
        return self

    def open(self):
        """Make a handle."""
        handle = Handle()
        for key, value in self._settings.items():
            handle.set(key, value)
        if self._text is not None:
            text = self._text.encode()
            check(lib.zoff_config_read_text(handle.pointer, text, len(text), self._name.encode()))
        return handle

    def __str__(self):
        return self.open().dump()

    def __repr__(self):
        return f"zoff.Config({self._name!r}, {self._settings})"


def _text(value):
    return value if isinstance(value, str) else os.fspath(value) if isinstance(value, os.PathLike) else json.dumps(value)
