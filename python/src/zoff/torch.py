# SPDX-License-Identifier: Apache-2.0
"""torch.py: a model whose weights an engine owns, in DRAM or in files (stage 3).

A parameter of the model has memory only while a module uses it. The engine lends its weights when the forward pass of the module
begins, or when the module reads a parameter of another one. The module returns them at its end. At other times all elements are
one NaN, so that the shape stays and a use is seen.

Lent memory belongs to a storage of torch, and goes back when the last tensor of this storage is freed. So no tensor can outlive
its memory, and a weight that the program still refers to is an error of the next step, which must not change it.

Autograd would keep the weights from a forward pass to its backward pass. By hooks it keeps their names instead, and the engine
lends them again when the backward pass needs them. Where other hooks for saved tensors are in use, as in a block that
torch.utils.checkpoint repeats, the memory is lent until these free it. They must not keep a parameter itself."""
import contextlib
import gc
import io
import sys
import weakref
from collections import deque, namedtuple
from ctypes import byref, c_char, c_void_p

import torch

from . import _api as api
from . import checkpoint, optim
from ._load import lib
from .cohort import DTYPES, Cohort, Member, local
from .errors import check

_BUFFERS = b"zoff.torch.buffers"
_NAMES = ("Adagrad", "Adam", "AdamW", "Lion", "Muon", "SGD")
_STAGE3 = "zero_optimization."
_COMPILED = "zoff.torch.Engine: the model is compiled, and compiled code does not borrow weights; leave torch.compile out"

_Saved = namedtuple("_Saved", "member generation shape stride offset")  # in place of a tensor that autograd keeps
_Running = namedtuple("_Running", "module frame loans hooks")


class _Member(Member):
    """A parameter whose weights the engine owns."""

    __slots__ = ("is_frozen", "users", "nothing", "seen", "lent", "address")
    is_owned = True

    def __init__(self, param, name, group, kinds, is_frozen):
        self.is_frozen = is_frozen
        super().__init__(param, name, group, kinds)
        if self.is_cut:
            raise ValueError(f"zoff: parameter {name} is cut over ranks, and zoff.torch.Engine has the weights of one rank; use zoff.AdamW")
        if self.device.type != "cpu":
            raise ValueError(f"zoff: parameter {name} is on {self.device}, and zoff.torch.Engine lends memory of the CPU; use zoff.AdamW")
        self.users = self.lent = 0
        self.nothing = torch.full((), float("nan"), dtype=self.dtype, device="cpu").expand(self.shape)

    def tensor(self):
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="cpu")


class _Cohort(Cohort):
    """The engine. Parameters do not show where its weights are."""

    generation = 0  # counts changes of the weights

    def changed(self):
        return []

    def written(self, members=None):
        self.generation += 1

    pushed = written


class _Owning:
    """The part of an optimizer whose engine has the weights, all in one engine."""

    COHORT, _lender = _Cohort, None

    def _read_config(self):
        super()._read_config()
        stage, source = self._config.open().keys()[_STAGE3 + "stage"]
        if stage != "3" and source != "default":
            raise ValueError(f"{source}: {_STAGE3}stage is {stage}; zoff.torch.Engine is stage 3: set it to 3, or leave the key out")

    def _adjust(self, config):
        super()._adjust(config)
        keys = self._config.open().keys()
        wanted = {"stage": "3", "stage3_max_live_parameters": str(self._live), "offload_param.max_in_cpu": "0"}
        if self._is_in_files:
            wanted["offload_param.device"] = "nvme"
        for key, value in wanted.items():
            if keys[_STAGE3 + key][1] == "default":
                config.set(_STAGE3 + key, value)

    def own(self, model):
        """Open the engine with all parameters of the model, and take their memory away."""
        groups, names = {id(param): number for number, _, param in self._numbered()}, dict(model.named_parameters())
        known = {id(param) for param in names.values()}
        if not groups.keys() <= known:
            raise ValueError("zoff.torch.Engine: a parameter of params is none of the model")
        # At work are a module and those around it, or all of a block whose forward pass is repeated in the backward pass. There is
        # room for twice as much, so that the next weights are read ahead.
        self._live = max(1, 2 * max(_deepest(model), _largest_block(model)))
        cohort = self._open([(groups.get(id(param)), name, param) for name, param in names.items()
                             if id(param) in groups and param.requires_grad or param.dtype in DTYPES])
        if cohort.t:
            cohort.push()
        self._lender = _Lender(model, self, cohort)

    def _member(self, group, name, param):
        is_frozen = group is None or not param.requires_grad
        return _Member(param, name, group or 0, {} if is_frozen else self._kinds(self.param_groups[group]), is_frozen)

    def add_param_group(self, param_group):
        if self._lender:
            raise ValueError("zoff.torch.Engine has the parameters that its model had when it was made; make a new engine")
        super().add_param_group(param_group)

    def _with_gradients(self):
        self._lender.settle("step()")
        for member in self._cohorts[0].members:
            if member.is_frozen and member.param.grad is not None:
                raise RuntimeError(f"zoff: parameter {member.name} has a gradient and no states, because it was frozen when zoff.torch.Engine was "
                                   "made; make a new engine")
        return super()._with_gradients()

    def close(self):
        if self._lender and self._cohorts[0].handle:
            self._lender.settle("close()")
        super().close()

    def _unnamed(self, what):
        """The names are those of the model."""

    def _more(self):
        buffers = self._lender.buffers()
        file = io.BytesIO()
        torch.save(buffers, file)
        return {_BUFFERS: file.getvalue()} if buffers else {}

    def load_state_dict(self, state_dict):
        raise RuntimeError("zoff.torch.Engine loads states together with weights: call load() of the engine")

    def _load(self, reader, allow, with_groups=True, weights_only=False):
        if not self._cohorts[0].handle:
            self._alive()
        self._lender.settle("load()")
        self._settle()
        about, folder = reader.about(), reader.info.folder.decode()
        if about["parts"]:
            raise ValueError(f"{folder} has {1 + len(about['parts'])} engines, because parameters had their first gradients in different steps; "
                             "zoff.torch.Engine has one, so load it into the optimizer that has saved it")
        groups = self._groups_of(about, folder) if with_groups else []
        data, mine = reader.data(_BUFFERS), self._lender.buffers()
        buffers = torch.load(io.BytesIO(data), weights_only=True) if data else {}
        for name, value in buffers.items():
            if name not in mine or mine[name].shape != value.shape:
                raise ValueError(f"{folder} has a buffer {name} of the shape {tuple(value.shape)}, which this model does not have")
        self._rest, self._info, self._begun = [], None, 0
        with self._taking(groups):
            checkpoint.load(self._cohorts[0], reader, allow, weights_only)
        self._cohorts[0].let_go()
        for name, value in buffers.items():
            mine[name].copy_(value)


class _Parameters(dict):
    """The parameters of a module. To read one in a forward pass lends it to the module that runs."""

    def __init__(self, params, lender):
        super().__init__(params)
        self._lender = lender

    def __getitem__(self, name):
        param = super().__getitem__(name)
        self._lender.touch(param)
        return param

    def __reduce_ex__(self, protocol):
        return dict, (dict(self),)


class _Lender:
    """The hooks of a model, and the weights that are lent to it. The model refers to it, so the engine lives as long as the model.

    A copy of the model has memory of its own, and hooks that do nothing."""

    def __init__(self, model=None, optimizer=None, cohort=None):
        self._model, self._optimizer, self._cohort = model, optimizer, cohort
        if model is None:
            return
        self._members = {id(member.param): member for member in cohort.members}
        self._running, self._lent, self._back = [], {}, deque()
        for module in model.modules():
            module._parameters = _Parameters(module._parameters, self)
            module.register_forward_pre_hook(self._before, prepend=True)
            module.register_forward_hook(self._after, always_call=True)
            module.register_state_dict_pre_hook(self._reads_states)
            module._register_load_state_dict_pre_hook(self._loads_states)
        for member in cohort.members:
            member.param.data = member.nothing

    def __reduce__(self):
        if self._model is not None and not all(member.users for member in self._members.values()):
            raise TypeError("a model whose weights are in zoff.torch.Engine is copied or pickled inside \"with engine.gathered():\"")
        return _Lender, ()

    # ---- forward passes ----

    def _before(self, module, *_):
        if self._model is None:
            return
        if _compiles():
            raise RuntimeError(_COMPILED)
        while self._running and not _is_inside(self._running[-1].frame):  # an interrupt has ended it without its hook
            self._leave()
        hooks = None
        if not self._running and not _has_hooks():
            hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
            hooks.__enter__()
        self._running.append(_Running(module, sys._getframe(1), [], hooks))
        for param in module._parameters.values():
            self.touch(param)

    def _after(self, module, *_):
        if self._model is not None and any(running.module is module for running in self._running):
            while self._leave().module is not module:  # an interrupt has left modules behind
                pass

    def _leave(self):
        running = self._running.pop()
        if running.hooks:
            running.hooks.__exit__()
        self.take_back(running.loans)
        return running

    def touch(self, param):
        """Lend a parameter to the module that runs."""
        member = self._members.get(id(param))
        if member and self._running and member not in self._running[-1].loans:
            self.lend(member, self._borrow)
            self._running[-1].loans.append(member)

    # ---- weights ----

    def lend(self, member, how):
        """Let a parameter have its weights for one more user; the first one decides how."""
        if not member.users:
            param = member.param
            if param.shape != member.shape or param.dtype is not member.dtype:
                raise ValueError(f"zoff: parameter {member.name} has become {param.dtype}, {tuple(param.shape)}; it was {member.dtype}, "
                                 f"{tuple(member.shape)} when zoff.torch.Engine was made. Make a new engine")
            param.data = how(member)
            member.seen = param._version
        member.users += 1

    def take_back(self, members, tells=True):
        changed = None
        for member in members:
            member.users -= 1
            if not member.users:
                changed = changed or (member.param._version != member.seen and member.name)
                member.param.data = member.nothing
        if changed and tells:
            raise RuntimeError(f"zoff: the program has written to parameter {changed}, whose weights zoff.torch.Engine owns and lends to be read; "
                               "load a checkpoint, because they may have changed")

    def copy(self, member):
        tensor = member.tensor()
        with self._optimizer._lock:
            self._optimizer._alive()
            if member.count:
                check(lib.zoff_param_read(self._cohort.handle, member.index, 0, member.count, tensor.data_ptr()))
        return tensor

    def _borrow(self, member):
        """A tensor over memory of the engine."""
        if not member.count:
            return member.tensor()
        with self._optimizer._lock:
            self._optimizer._alive()
            self._drain()
            at = c_void_p()
            check(lib.zoff_param_fetch(self._cohort.handle, member.index, 0, None, byref(at)))
            memory = (c_char * (member.count * member.dtype.itemsize)).from_address(at.value)
            member.lent, member.address = member.lent + 1, at.value
            self._lent[at.value] = member
            weakref.finalize(memory, self._comes_back, member).atexit = False
        return torch.frombuffer(memory, dtype=member.dtype).as_strided(member.shape, member.stride)

    def _comes_back(self, member):
        self._back.append(member)  # any thread may be here, inside a call of the engine

    def _drain(self):
        while self._back:
            member = self._back.popleft()
            member.lent -= 1
            if not member.lent:
                del self._lent[member.address]
            check(lib.zoff_param_release(self._cohort.handle, member.index, 0, None))

    def settle(self, call):
        """Before weights change or go: refuse it while something refers to them."""
        with self._optimizer._lock:
            while self._running:
                self._leave()
            self._drain()
            if self._lent:
                gc.collect()
                self._drain()
            if any(member.users for member in self._members.values()):
                raise RuntimeError(f"zoff: {call} inside gathered(): leave it first")
            if kept := [member.name for member in self._lent.values()]:
                raise RuntimeError(f"zoff: {call} cannot change parameter {kept[0]}{' and others' if kept[1:] else ''}, because a tensor of the program "
                                   "is a view of it, such as an output of the model: delete it, or make it a copy by clone()")

    # ---- backward passes ----

    def _pack(self, tensor):
        is_plain = tensor.layout is torch.strided and type(tensor) in (torch.Tensor, torch.nn.Parameter)
        member = is_plain and self._lent.get(tensor.untyped_storage().data_ptr())
        if not member or tensor.dtype is not member.dtype:
            return tensor.detach()  # an output of its own node would keep the node for ever
        return _Saved(member, self._cohort.generation, tensor.shape, tensor.stride(), tensor.storage_offset())

    def _unpack(self, saved):
        if not isinstance(saved, _Saved):
            return saved
        if saved.generation != self._cohort.generation:
            raise RuntimeError(f"zoff: parameter {saved.member.name} has changed between the forward pass and this backward pass: step() comes "
                               "after backward()")
        return self._borrow(saved.member).as_strided(saved.shape, saved.stride, saved.offset)

    # ---- the state of the model ----

    def _reads_states(self, module, *_):
        for param in module._parameters.values():
            member = self._model is not None and self._members.get(id(param))
            if member and not member.users:
                raise RuntimeError("the weights of this model are in zoff.torch.Engine: call save() of the engine, or use "
                                   "\"with engine.gathered():\" around state_dict()")

    def _loads_states(self, *_):
        if self._model is not None:
            raise RuntimeError("the weights of this model are in zoff.torch.Engine: load them before it is made, or call load() of the engine")

    def buffers(self):
        """The buffers that are part of the model's state."""
        return {f"{prefix}.{name}".lstrip("."): buffer for prefix, module in self._model.named_modules()
                for name, buffer in module._buffers.items() if buffer is not None and name not in module._non_persistent_buffers_set}


class Engine:
    """A model whose weights, states and steps belong to zoff.

        engine = zoff.torch.Engine(model, lr=1e-3, config=zoff.Config(nvme="/mnt/nvme", host_memory="2GiB"))
        for x, y in data:
            engine.backward(loss_of(model(x), y))
            engine.step()

    `optimizer` is the name of the rule; further arguments are those of zoff's optimizer of this name. `params` are its parameters or
    groups of them, by default all of the model. Others, and those that require no gradient, are owned as well and never change.

    `config` says where states and weights are: both in files with `nvme`. See docs/how-to/train-with-pytorch.md.

    The attribute `optimizer` is the optimizer, for schedulers of torch and for state_dict()."""

    def __init__(self, model, optimizer="AdamW", *, params=None, config=None, clip_norm=None, **more):
        if optimizer not in _NAMES:
            raise ValueError(f"optimizer is {optimizer!r}; it must be one of {', '.join(_NAMES)}")
        for name in ("overlap", "norm_group", "ranks", "state", "check_weights"):
            if name in more:
                raise ValueError(f"zoff.torch.Engine has no {name}; leave it out")
        for module in model.modules():
            _refuse(module)
        kind = type("torch.Engine", (_Owning, getattr(optim, optimizer)), {"__module__": "zoff"})
        self.model = model
        self.optimizer = kind(model.named_parameters() if params is None else params, config=config, clip_norm=clip_norm, **more)
        self.optimizer.own(model)

    def backward(self, loss, **more):
        """loss.backward(). Gradients of several calls add up until the step."""
        loss.backward(**more)

    def step(self):
        """Take a step with the gradients that exist, and free them."""
        self.optimizer.step()
        self.optimizer.zero_grad()

    @property
    def last(self):
        """The StepInfo of the last step; None before the first one."""
        return self.optimizer.last

    @contextlib.contextmanager
    def gathered(self, *modules):
        """Let the parameters of modules, or of the whole model, have copies of the weights, to be read."""
        lender, copied = self.optimizer._lender, []
        params = dict.fromkeys(param for module in modules or (self.model,) for param in module.parameters())
        try:
            for param in params:
                if member := lender._members.get(id(param)):
                    lender.lend(member, lender.copy)
                    copied.append(member)
            yield
        except BaseException:
            lender.take_back(copied, tells=False)
            raise
        lender.take_back(copied)

    def save(self, folder, *, name=None, keep=0, pinned=False, wait=True):
        """Save a checkpoint of zoff, with the buffers of the model; otherwise as save() of an optimizer."""
        return self.optimizer.save(folder, name=name, keep=keep, pinned=pinned, wait=wait)

    def load(self, folder, *, name=None, allow="", weights_only=False):
        """Load weights, states, rates and buffers from a checkpoint of zoff, as load() of an optimizer."""
        self.optimizer.load(folder, name=name, allow=allow, weights_only=weights_only)

    def plan(self):
        """Bytes and counts of the engine, by the names of zoff_plan_info."""
        return self.optimizer.plan()

    def close(self):
        """End the engine and remove its files, unless zoff.persist keeps them. The model has no weights from then on."""
        self.optimizer.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _is_inside(frame):
    """Whether a frame of Python is among the callers."""
    caller = sys._getframe(1)
    while caller is not None and caller is not frame:
        caller = caller.f_back
    return caller is frame


def _compiles():
    """Whether torch.compile() compiles what this thread calls. The setter returns it, and torch before 2.6 has no other way."""
    if torch.compiler.is_compiling():
        return True
    callback = torch._C._dynamo.eval_frame.set_eval_frame(None)
    torch._C._dynamo.eval_frame.set_eval_frame(callback)
    return callback is not None


def _has_hooks():
    """Whether autograd has hooks for saved tensors now: then it refuses to do without."""
    try:
        with torch.autograd.graph.disable_saved_tensors_hooks("in use"):
            return False
    except RuntimeError:
        return True


def _deepest(module):
    """The most elements of parameters that a module and those that it calls have at a time, if each uses its own."""
    own = sum(param.numel() for param in module.parameters(recurse=False))
    return own + max(map(_deepest, module.children()), default=0)


def _largest_block(model):
    """The most elements of a module that is in a list, as the blocks of a transformer are, and has no list itself."""
    blocks = [block for module in model.modules() if isinstance(module, torch.nn.ModuleList) for block in module
              if not any(isinstance(inner, torch.nn.ModuleList) for inner in block.modules())]
    return max((sum(param.numel() for param in block.parameters()) for block in blocks), default=0)


def _refuse(module):
    """Modules that use parameters in ways that no hook sees."""
    kind = type(module).__name__
    if isinstance(module._parameters, _Parameters):
        raise ValueError("zoff.torch.Engine: the model is in an engine already; close that one and make a new model")
    if hasattr(module, "_orig_mod") or module._compiled_call_impl is not None:
        raise ValueError(_COMPILED)
    if isinstance(module, (torch.nn.parallel.DistributedDataParallel, torch.jit.ScriptModule)) or kind == "FullyShardedDataParallel":
        raise ValueError(f"zoff.torch.Engine: the model has a {kind}; give the module itself, and train it on one rank and without torch.jit")
