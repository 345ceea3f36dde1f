# SPDX-License-Identifier: Apache-2.0
"""cohort.py: parameters that count their steps together, and the engine that takes these steps.

Torch counts the steps of each parameter from its first gradient on, and an engine has one count. So the parameters whose first
gradient comes in the same step share an engine. Parameters that come later get a second one."""
import atexit
import os
import weakref
import zlib
from ctypes import addressof, byref, c_char, c_int64, c_size_t, c_void_p, sizeof

import torch

from . import _api as api
from ._load import lib
from ._messages import progress
from .errors import check

DTYPES = {torch.float32: api.ZOFF_F32, torch.bfloat16: api.ZOFF_BF16, torch.float16: api.ZOFF_F16}
_open = weakref.WeakSet()
try:
    increment_versions = torch.autograd.graph.increment_version
    increment_versions([])
except RuntimeError:  # older versions of torch take one tensor

    def increment_versions(tensors):
        for tensor in tensors:
            torch.autograd.graph.increment_version(tensor)


@atexit.register
def _close_all():
    """Engines end before Python does, because their files and threads would outlive the memory that they use."""
    for cohort in list(_open):
        cohort.close()
    for (_, pid), comm in _comms.items():
        if pid == os.getpid():
            lib.zoff_comm_close(comm)


def local(tensor):
    """The part of a tensor that this rank has: a DTensor, such as a parameter of FSDP2, is cut over ranks."""
    return getattr(tensor, "_local_tensor", tensor)


def storage_order(param):
    """The dimensions of a tensor from the slowest to the fastest in memory."""
    if param.is_contiguous():
        return list(range(param.dim()))
    return sorted(range(param.dim()), key=lambda d: -param.stride(d))


def is_dense(param):
    """Whether the elements of a tensor fill one piece of memory."""
    expected = 1
    for stride, size in sorted(zip(param.stride(), param.shape)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


class Place:
    """The memory in which parameters are: that of the CPU."""

    accel = stream = None

    def finish(self):
        """Wait for work that writes weights."""


class Gpu(Place):
    """The memory of a GPU. The engine's copies and the program's work wait for each other in streams."""

    def __init__(self, device):
        self._device, self.accel = device, c_void_p()
        check(lib.zoff_accel_open(b"cuda", device.index, byref(self.accel)))

    @property
    def stream(self):
        return torch.cuda.current_stream(self._device).cuda_stream or api.ZOFF_STREAM_DEFAULT

    def finish(self):
        torch.cuda.current_stream(self._device).synchronize()


_places = {torch.device("cpu"): Place()}


def place_of(device):
    if device not in _places:
        _places[device] = Gpu(device)  # open until the end of the process, because engines use it
    return _places[device]


_comms = {}  # {(name, process): communicator}, which all engines of the process share


def comm_of(ranks):
    """Join the ranks, once in a process, because they meet while all of them run."""
    key = ranks, os.getpid()
    if key not in _comms:
        comm = c_void_p()
        check(lib.zoff_comm_open(byref(api.zoff_comm_opts(backend=ranks.encode())), byref(comm)))
        _comms[key] = comm
    return _comms[key]


class Member:
    """A parameter, and what its engine knows of it."""

    __slots__ = ("param", "name", "group", "index", "kinds", "entry", "count", "dtype", "stride", "shape", "device", "grad_dtype", "value",
                 "version", "grad", "pushed", "is_cut", "order")
    is_owned = is_frozen = False  # of the engine's description

    def __init__(self, param, name, group, kinds):
        whole, param, grad = param, local(param), local(param.grad)
        self.is_cut = param is not whole
        if whole.grad is not None and getattr(whole.grad, "placements", None) != getattr(whole, "placements", None):
            raise ValueError(f"zoff: parameter {name} is cut over ranks as {getattr(whole, 'placements', None)}, and its gradient as "
                             f"{getattr(whole.grad, 'placements', None)}; reduce the gradient to the cut of the parameter")
        for tensor, what in ((param, "it"), (grad, "its gradient")):
            if tensor is None:
                continue
            if tensor.layout is not torch.strided:
                raise ValueError(f"zoff: parameter {name}: {what} is sparse; zoff needs dense tensors")
            if tensor.device.type not in ("cpu", "cuda"):
                advice = "give it memory by model.to_empty(), and load weights, before zoff gets it" if tensor.is_meta else \
                         "zoff trains parameters in the memory of the CPU and of NVIDIA's GPUs"
                raise ValueError(f"zoff: parameter {name}: {what} is on the device {tensor.device}; {advice}")
            if tensor.dtype not in DTYPES:
                raise ValueError(f"zoff: parameter {name}: {what} is of {tensor.dtype}; zoff trains float32, bfloat16 and float16")
        if not is_dense(param):
            raise ValueError(f"zoff: parameter {name} has gaps or overlaps in memory (shape {tuple(param.shape)}, strides {param.stride()}); "
                             "make it dense, for example by param.data = param.data.contiguous()")
        self.param, self.name, self.group, self.kinds = whole, name, group, kinds
        self.count, self.dtype, self.stride, self.shape, self.device = param.numel(), param.dtype, param.stride(), param.shape, param.device
        self.grad_dtype = self.dtype if grad is None else grad.dtype
        self.value, self.version, self.order = param.data_ptr(), param._version, storage_order(param)
        if not (self.is_frozen or self.dtype is torch.float32):
            kinds["master"] = api.ZOFF_STATE_MASTER
        self.grad = self.pushed = None

    @property
    def part(self):
        """The part of the parameter that this rank has."""
        return self.param._local_tensor if self.is_cut else self.param

    def add_to(self, engine, index, is_reduced):
        """Register the parameter. `is_reduced`: all ranks have the same gradient."""
        dims = (c_size_t * len(self.shape))(*(self.shape[d] for d in self.order))
        description = api.zoff_param_desc(value=self.value, count=self.count, dtype=DTYPES[self.dtype], grad_dtype=DTYPES[self.grad_dtype],
                                          group=self.group, frozen=self.is_frozen, engine_owned=self.is_owned, reduced=is_reduced, name=self.name.encode(),
                                          dims=addressof(dims) if dims else None, dim_count=len(dims))
        check(lib.zoff_engine_add_param(engine, byref(description), None))
        self.index = index

    def fits(self, grad):
        """Whether a gradient has the form that the engine has been told."""
        return grad.layout is torch.strided and grad.stride() == self.stride and grad.dtype is self.grad_dtype and grad.device == self.device

    def adapt(self, grad):
        """A gradient in the form that the engine has been told."""
        if grad.layout is not torch.strided or grad.device != self.device or grad.dtype is not self.grad_dtype:
            raise ValueError(f"zoff: the gradient of {self.name} is of {grad.dtype}, {grad.layout}, on {grad.device}; the first one was of "
                             f"{self.grad_dtype}, {torch.strided}, on {self.device}")
        return torch.empty_strided(self.shape, self.stride, dtype=grad.dtype, device=self.device).copy_(grad)

    def sum(self):
        """A checksum of the weights."""
        host = self.part.detach().cpu()
        return zlib.crc32((c_char * (self.count * host.element_size())).from_address(host.data_ptr())) if self.count else 0


class Cohort:
    """An engine and its parameters."""

    def __init__(self, config, members, hypers, host_bytes, seal=True, checks=False, ranks=None):
        self.members, self.pid, self.handle, self.hooks = members, os.getpid(), c_void_p(), []
        self.held, self.versions = [], []  # gradients that the engine may read, and their versions when the step began
        self.groups, self.place, self.checks = len(hypers), place_of(members[0].device), checks
        with progress() as self._show:  # the engine has its address
            self._open(config, hypers, host_bytes, seal, ranks)
        self.entries, self.stream = (api.zoff_handover * len(members))(), None
        for member, entry in zip(members, self.entries):
            entry.struct_size, entry.param, member.entry = sizeof(entry), member.index, entry
        # Elements: all kinds of one range stay in a slot. Ranks read the same ranges, and their chunks differ.
        self.range_count = 1 << 18 if ranks is not None else max(1024, self.plan().chunk_bytes // 8 // 1024 * 1024)
        self._remember(members if checks else ())
        _open.add(self)

    def _open(self, config, hypers, host_bytes, seal, ranks):
        opts = api.zoff_engine_opts(config=config.pointer, comm=comm_of(ranks) if ranks is not None else None, host_bytes=host_bytes,
                                    progress=self._show, accel=self.place.accel)
        check(lib.zoff_engine_create(byref(opts), byref(self.handle)))
        try:
            for group, hyper in enumerate(hypers):
                check(lib.zoff_engine_set_group(self.handle, group, byref(hyper)))
            for index, member in enumerate(self.members):
                member.add_to(self.handle, index, ranks is not None)
            if seal:
                self.place.finish()
                check(lib.zoff_engine_seal(self.handle))
        except BaseException:
            self.close()
            raise

    def close(self):
        """Destroy the engine, after the end of a step that was begun; a child of the process that has opened it leaves it alone."""
        if self.handle and self.pid == os.getpid():
            if self.versions:
                lib.zoff_step_wait(self.handle, None)
            lib.zoff_engine_destroy(self.handle)
        self.handle = None
        self.let_go()
        while self.hooks:
            self.hooks.pop().remove()

    __del__ = close

    def plan(self):
        info = api.zoff_plan_info()
        check(lib.zoff_engine_plan(self.handle, byref(info)))
        return info

    @property
    def t(self):
        """The number of steps taken."""
        count = c_int64()
        check(lib.zoff_step_count(self.handle, byref(count)))
        return count.value

    # ---- weights ----

    def changed(self):
        """The members whose weights have moved or changed since the last step. Torch does not count all changes of 16-bit weights."""
        found = []
        for member in self.members:
            param = member.param._local_tensor if member.is_cut else member.param  # as .part, which takes longer
            if param.data_ptr() != member.value or param._version != member.version or self.checks and member.pushed not in (None, member.sum()):
                found.append(member)
        return found

    def follow(self):
        """Tell the engine of weights that have moved or changed."""
        for member in self.changed():
            self._follow(member)

    def _follow(self, member):
        param = member.part
        if param.shape != member.shape or param.stride() != member.stride or param.dtype is not member.dtype or param.device != member.device:
            raise ValueError(f"zoff: parameter {member.name} has become {param.dtype}, {tuple(param.shape)}, strides {param.stride()}, on "
                             f"{param.device}; it was {member.dtype}, {tuple(member.shape)}, strides {member.stride}, on {member.device}. "
                             "Make a new optimizer")
        moved = param.data_ptr() != member.value
        if moved:
            check(lib.zoff_param_bind_opts(self.handle, member.index, param.data_ptr(), None, api.ZOFF_BIND_MOVED))
            member.value = param.data_ptr()
        # The state of a step counts more than weights that are its rounded masters, as after both were loaded.
        same = self._are_masters(member) if moved and param._version == member.version else member.pushed == member.sum()
        if not same:
            self.place.finish()
            check(lib.zoff_param_pull(self.handle, member.index))
            self._remember([member] if self.checks else ())
        member.version = param._version

    def _are_masters(self, member):
        """Whether 16-bit weights, which are elsewhere now, are the rounded masters. Weights in fp32 are their own masters."""
        if member.dtype is torch.float32 or not member.count:
            return True
        masters = torch.empty(member.count, device="cpu")
        self.read(member, {api.ZOFF_STATE_MASTER: masters.data_ptr()})
        if member.dtype is torch.float16:
            masters = masters.half()
        else:  # as zoff rounds, ties away from zero
            masters = ((masters.view(torch.int32) + 0x8000) >> 16).to(torch.int16).view(torch.bfloat16)
        return torch.equal(masters, member.part.detach().as_strided((member.count,), (1,)).cpu())

    def written(self, members=None):
        """Tell autograd that the engine has written the weights, of all members or of some."""
        members = self.members if members is None else members
        increment_versions([member.part for member in members])
        for member in members:
            member.version = member.part._version
        self._remember(members if self.checks else ())

    def pull(self):
        self.follow()
        self.place.finish()
        check(lib.zoff_params_pull(self.handle))

    def push(self):
        """Set the weights from the masters."""
        self.follow()
        self.place.finish()
        check(lib.zoff_params_push(self.handle))
        self.pushed()

    def pushed(self):
        """Remember 16-bit weights that are their rounded masters now: if a program loads them once more, they need no pull."""
        self.written()
        self._remember(self.members)

    def _remember(self, members):
        for member in members:
            member.pushed = member.sum() if member.dtype is not torch.float32 else None

    # ---- the step ----

    def collect(self):
        """List the gradients, and hold them. Returns whether there is one."""
        held = []
        for member in self.members:
            grad = member.param.grad
            if member.is_cut:
                grad = local(grad)
            if grad is None:
                at = api.ZOFF_NO_GRAD
            else:
                if not member.fits(grad):
                    grad = member.adapt(grad)
                held.append(grad)
                at = grad.data_ptr() or None
            if at != member.grad:
                member.entry.grad = member.grad = at
        self.held = held
        return bool(held)

    def let_go(self):
        """After the step: hold the gradients no longer. Returns whether one has changed since begin()."""
        held, versions, self.held, self.versions = self.held, self.versions, [], []
        return bool(versions) and versions != [grad._version for grad in held]

    def give(self, member, grad):
        """Hand over one gradient before the others."""
        self.held.append(grad)
        member.entry.grad = member.grad = grad.data_ptr()
        check(lib.zoff_param_bind(self.handle, member.index, None, member.grad))
        check(lib.zoff_grad_ready(self.handle, member.index, 0, self.place.stream))

    def hand_over(self, given):
        """Hand over all gradients that are not `given`."""
        entries, stream = self.entries, self.place.stream
        if stream != self.stream:
            for entry in entries:
                entry.native_stream = stream
            self.stream = stream
        if given:
            rest = [member.entry for member in self.members if id(member) not in given]
            entries = (api.zoff_handover * len(rest))(*rest)
        check(lib.zoff_grads_hand_over(self.handle, entries, sizeof(api.zoff_handover), len(entries)))

    def prepare(self, args):
        """Check the arguments of a step."""
        check(lib.zoff_step_prepare(self.handle, byref(args)))

    def measure(self, args):
        norm = api.zoff_norm_sum()
        check(lib.zoff_step_measure(self.handle, byref(args), byref(norm)))
        return norm

    def begin(self, args):
        """Begin the step. Until its end, `late` has the members whose weights may be old."""
        self.late = {id(member.param): member for member in self.members}
        self.versions = [grad._version for grad in self.held]
        check(lib.zoff_step_begin(self.handle, byref(args)))

    def wait_for(self, params):
        """Wait until these parameters are new, as far as they are members."""
        members = [member for member in map(self.late.get, map(id, params)) if member]
        for member in members:
            check(lib.zoff_param_wait(self.handle, member.index, 0, self.place.stream))
            del self.late[id(member.param)]
        self.written(members)

    def step(self, args, info, again, is_begun):
        """Take the step, end it if it was begun, or go on with one that has failed."""
        if again or is_begun:
            check((lib.zoff_step_retry if again else lib.zoff_step_wait)(self.handle, byref(info)))
        else:
            check(lib.zoff_step(self.handle, byref(args), byref(info)))

    def drop(self):
        lib.zoff_grads_drop(self.handle)
        self.let_go()

    # ---- states ----

    def _ranges(self, member):
        for first in range(0, member.count, self.range_count):
            yield first, min(self.range_count, member.count - first)

    def has(self, member, kind):
        """Whether a parameter has a state."""
        return lib.zoff_state_read(self.handle, member.index, kind, 0, 0, None) >= 0

    def read(self, member, addresses):
        """Copy states to memory, {kind: address}: all kinds of one range before the next, which reads each chunk once."""
        for first, count in self._ranges(member):
            for kind, address in addresses.items():
                check(lib.zoff_state_read(self.handle, member.index, kind, first, count, address + 4 * first))

    def write(self, member, addresses):
        for first, count in self._ranges(member):
            for kind, address in addresses.items():
                check(lib.zoff_state_write(self.handle, member.index, kind, first, count, address + 4 * first))

    def set_count(self, t):
        check(lib.zoff_step_count_set(self.handle, t))
