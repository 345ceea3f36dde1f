# SPDX-License-Identifier: Apache-2.0
"""checkpoint.py: checkpoints of zoff.

The first engine saves without a label. Its bytes of the program "zoff.torch" are JSON: the other parts, and the numbers of the
parameter groups. They also have the order of dimensions of parameters that are not contiguous, because the checkpoint has these as
they are in memory. Each further engine saves alone, as the label "cohort-N", before the first one. So a checkpoint without a label is complete. The same
token in all parts tells those of two saves apart."""
import json
import os
from ctypes import byref, c_size_t, c_void_p, cast, create_string_buffer

from . import _api as api
from ._load import lib
from .errors import check

_DATA, _FORMAT = b"zoff.torch", 1


class Saving:
    """A checkpoint that is being saved. Until it is complete, only steps may change the weights."""

    def __init__(self, cohort, folder, name, opts):
        self._cohort, self._part, self._path = cohort, c_void_p(), os.path.join(folder, name)
        self._kept = [member.part.detach() for member in cohort.members]  # a save reads weights from where they were
        check(lib.zoff_checkpoint_begin(cohort.handle, folder.encode(), byref(opts), byref(self._part)))

    def __repr__(self):
        return f"<zoff checkpoint {self._path}>"

    def done(self):
        """Whether the save has ended; it goes on meanwhile."""
        return not self._part or not self._cohort.handle or lib.zoff_checkpoint_poll(self._part) != api.ZOFF_PENDING

    def wait(self):
        """Wait until the checkpoint is complete, and return its folder."""
        part, self._part = self._part, None
        if part and not self._cohort.handle:
            raise RuntimeError(f"{self._path} is not complete, because the optimizer was closed")
        if part:
            check(lib.zoff_checkpoint_wait(part))
        self._kept = None
        return self._path


class Reader:
    """A checkpoint that is open for reading."""

    def __init__(self, folder, label=None):
        self.handle, self.info = c_void_p(), api.zoff_checkpoint_info()
        check(lib.zoff_checkpoint_reader_open(folder.encode(), label and label.encode(), byref(self.handle)))
        check(lib.zoff_checkpoint_reader_info(self.handle, byref(self.info)))

    def __del__(self):
        lib.zoff_checkpoint_reader_close(self.handle)

    def names(self):
        param = api.zoff_checkpoint_param()
        for index in range(self.info.param_count):
            check(lib.zoff_checkpoint_reader_param(self.handle, index, byref(param)))
            yield param.name.decode()

    def about(self):
        """The JSON that the optimizer has written, or what stands for it in a checkpoint of another program."""
        text = self.data(_DATA)
        if text is None:
            return {"parts": [], "groups": None}
        about = json.loads(text)
        if about["format"] != _FORMAT:
            raise ValueError(f"the checkpoint is of a newer zoff for Python (format {about['format']})")
        return about

    def data(self, name):
        """Bytes of the program; None where there are none by this name."""
        count = c_size_t()
        if lib.zoff_checkpoint_reader_data(self.handle, name, 0, None, 0, byref(count)) < 0:
            return None
        data = create_string_buffer(count.value)
        check(lib.zoff_checkpoint_reader_data(self.handle, name, 0, data, count, byref(count)))
        return data.raw

    def groups(self):
        """The numbers with which the groups of the engine were opened, by their names in zoff_optimizer_hyper: untrusted."""
        count = c_size_t()
        check(lib.zoff_checkpoint_reader_manifest(self.handle, None, 0, byref(count)))
        text = create_string_buffer(count.value + 1)
        check(lib.zoff_checkpoint_reader_manifest(self.handle, text, len(text), None))
        return json.loads(text.value).get("groups", [])

    @property
    def reference(self):
        return {"format": _FORMAT, "folder": os.path.abspath(self.info.folder.decode()), "id": self.info.id.decode(), "t": self.info.t}


def part_of(reader, part):
    """Another engine's part of a checkpoint, whose first one is open."""
    root, name = os.path.split(reader.info.folder.decode())
    found = Reader(os.path.join(root, f"{part['label']}.{name}"), part["label"])
    if found.about()["token"] != reader.about()["token"]:
        raise ValueError(f"{found.info.folder.decode()} and {reader.info.folder.decode()} are of two saves")
    return found


def begin(cohorts, groups, folder, name, keep, pinned, more):
    """Save all engines but the first, and begin to save that one.  `groups`: numbers of the parameter groups.  `more`: further
    bytes of each engine, {name: bytes}."""
    token, saving = os.urandom(8).hex(), None
    parts = [{"label": f"cohort-{number}" if number else None} for number in range(len(cohorts))]
    for cohort, part in reversed(list(zip(cohorts, parts))):
        orders = {member.name: member.order for member in cohort.members if member.order != sorted(member.order)}
        text = json.dumps({"format": _FORMAT, "token": token, "parts": parts[1:], "groups": groups, "orders": orders}).encode()
        entries = [api.zoff_checkpoint_data(name=key, bytes=cast(value, c_void_p), count=len(value)) for key, value in {_DATA: text, **more}.items()]
        data = (api.zoff_checkpoint_data * len(entries))(*entries)
        cohort.follow()
        if saving:
            saving.wait()
        saving = Saving(cohort, folder, name, api.zoff_checkpoint_opts(data=data, data_count=len(data), name=name.encode(), keep=keep, pinned=pinned,
                                                                       label=part["label"] and part["label"].encode()))
    return saving


def load(cohort, reader, allow, weights_only):
    """Load an engine from a part of a checkpoint, with its weights."""
    opts = api.zoff_checkpoint_opts(label=reader.info.label or None, allow=allow.encode() or None, weights_only=weights_only)
    cohort.place.finish()
    check(lib.zoff_checkpoint_load(cohort.handle, reader.info.folder, byref(opts)))
    cohort.pushed()
