# SPDX-License-Identifier: Apache-2.0
"""optim.py: torch.optim.Optimizer over engines of zoff.

An engine opens when it is needed: at the first step, for the parameters that have a gradient then; in load_state_dict(), for
those that have states; or in open(). Each step first looks for weights that have moved or changed, then hands over the gradients
that exist, and increments the version of the weights at its end, so that autograd sees them written."""
import contextlib
import errno
import json
import os
import tempfile
import threading
import warnings
from collections import defaultdict
from ctypes import byref, pointer, sizeof
from dataclasses import dataclass
from typing import Optional

import torch

from . import _api as api
from . import checkpoint
from ._load import lib
from .cohort import Cohort, Member, local
from .config import Config
from .errors import Error, check
from .overlap import Backward, Overlap

_NUMBERS = ("lr", "beta1", "beta2", "eps", "weight_decay", "momentum", "dampening", "lr_decay", "nesterov")  # of a group
_LEAST_BYTES = 128 << 10
_CLOSED = "this optimizer is closed"


def _total(structs, without=()):
    """The sums of the fields of structs, also of those inside of them."""
    total = {}
    for name, kind in structs[0]._fields_:
        values = [getattr(one, name) for one in structs]
        if name not in without:
            total[name] = _total(values) if hasattr(kind, "_fields_") else sum(values)
    return total


@dataclass(frozen=True)
class StepInfo:
    """A step: its number, the norm of the gradients before clipping, which is None where nothing needs it, and the factor of
    clipping.

    `skipped` says that a gradient was not finite, so that nothing has changed. The seconds are those in the library."""

    t: int
    norm: Optional[float]
    clip_factor: float
    skipped: bool
    seconds: float


class _Loaded:
    """The loaded states of a parameter, which torch would round to the type of the parameter."""

    def __init__(self, states):
        self.states = states


def _wrapped(_, state_dict):
    return {**state_dict, "state": {key: _Loaded(states) for key, states in state_dict["state"].items()}}


class Optimizer(torch.optim.Optimizer):
    """The part that all optimizers have.

    `config` is a zoff.Config, the path of a ds_config file, or a dictionary of its form.

    `clip_norm` clips the norm of all gradients in the step itself. If ranks of torch.distributed have parts of the gradients,
    `norm_group` is their group.

    `ranks` are those over which the states are partitioned, for DistributedDataParallel: "auto", "ucx" or "mpi". All ranks have the same
    parameters and the same gradients. They call everything that takes a step, or reads or writes states, in the same order.

    `overlap` is the model behind whose next forward pass the step goes on (overlap.py).

    `state` is the content of state_dict(). "tensors" are those of torch, "mapped" ones are over unlinked files in the folder of the
    states, and "reference" names the checkpoint of the last save(). With "auto" they are mapped where the states are in files.

    `check_weights` finds changes of 16-bit weights that torch does not count, such as `param.data.fill_()`, by checksums after each
    step and before the next. Without it call pull() after these."""

    RULE = None  # ZOFF_OPTIMIZER_*
    TYPE = None  # optimizer.type of a configuration
    COHORT = Cohort

    def __init_subclass__(cls, **more):
        super().__init_subclass__(**more)
        if cls.__doc__:  # help() of a class shows no other
            cls.__doc__ += "\n" + Optimizer.__doc__.partition("\n")[2]

    def __init__(self, params, defaults, *, config=None, clip_norm=None, norm_group=None, ranks=None, overlap=None, state="auto",
                 check_weights=False, **unknown):
        for name in unknown:
            raise TypeError(f"zoff.{type(self).__name__} has no argument {name}; it has those of torch, and config, clip_norm, norm_group, ranks, "
                            "overlap, state, check_weights; zoff.Config has the settings of states")
        if state not in ("auto", "tensors", "mapped", "reference"):
            raise ValueError(f"state is {state!r}; it must be \"auto\", \"tensors\", \"mapped\" or \"reference\"")
        if clip_norm is not None and not clip_norm > 0:
            raise ValueError(f"clip_norm is {clip_norm}; it must be above 0, or None for no clipping")
        if norm_group is not None and not clip_norm:
            raise ValueError("norm_group is for clipping: give clip_norm, too")
        for name, other, why in (("norm_group", norm_group, "each rank has whole gradients"), ("overlap", overlap, "other ranks write weights, too")):
            if ranks is not None and other is not None:
                raise ValueError(f"{name} does not work together with ranks, because {why}; leave one of them out")
        if isinstance(defaults["lr"], Config):
            raise TypeError("lr is a zoff.Config; pass it as config=")
        if not isinstance(overlap, (torch.nn.Module, type(None))):
            raise TypeError(f"overlap is {overlap!r}; it must be the model")
        self._config, self._clip_norm, self._form = config if isinstance(config, Config) else Config(config), clip_norm, state
        self._norm_group, self._ranks, self._checks = norm_group, ranks, check_weights
        self._read_config()
        self._begin()
        super().__init__(params, defaults)
        if overlap is not None:
            self._overlap, self._backward = Overlap(self, overlap), Backward(self, self._works_ahead)

    def _begin(self):
        """The state of an optimizer that has taken no step."""
        self._lock = threading.RLock()
        self._cohorts, self._waiting, self._count = [], None, 0
        self._rest, self._why_not, self._info, self._saving, self._saved = [], None, None, None, None
        self._begun, self._overlap, self._backward = 0, None, Backward(self, False)

    def _read_config(self):
        """Refuse what the optimizer itself decides, and keep what it needs to know."""
        handle = self._config.open()
        keys = handle.keys()
        its = f"zoff.{type(self).__name__}"
        for key, (value, source) in keys.items():
            if key.startswith("optimizer.params.") and source != "default" and not source.startswith(("auto", "computed")):
                raise ValueError(f"{source}: {key} is {value}; pass it to {its} instead, and leave the key out")
        refused = [("scheduler.type", "null", "leave the section out and use torch.optim.lr_scheduler"),
                   ("fp16.enabled", "false", "set it to false and use torch.amp.GradScaler"),
                   ("gradient_accumulation_steps", "1", "set it to 1: gradients add up in .grad")]
        if keys["optimizer.type"][1] != "default":
            refused.append(("optimizer.type", json.dumps(self.TYPE), f"leave it out, because {its} is the optimizer"))
        for key, allowed, advice in refused:
            value, source = keys[key]
            if value != allowed:
                raise ValueError(f"{source}: {key} is {value}; {advice}")
        folders = next((json.loads(keys[key][0]) for key in ("zoff.nvme_paths", "zero_optimization.offload_optimizer.nvme_path")
                        if keys.get(key, ("null",))[0] != "null"), None)
        self._folder = folders[0] if isinstance(folders, list) else folders
        for folder in folders if isinstance(folders, list) else [folders] if folders else []:
            if not os.path.isdir(folder):
                raise OSError(errno.ENOTDIR if os.path.exists(folder) else errno.ENOENT,
                              "nvme must be a folder, which is not made here, because a disk may not be mounted there", folder)
        self._is_in_files = keys["zero_optimization.offload_optimizer.device"][0] == '"nvme"'
        self._persists = keys["zoff.persist"][0] != "false"
        self._works_ahead = handle.number("zoff.background_threads") > 0 or handle.number("zoff.speculation_memory") > 0
        memory = keys["zoff.host_memory"][0]
        self._host_bytes = int(memory) if memory.isdigit() else 0
        # A check of all gradients takes a third of a step, and torch has none, so it is made where the step needs it.
        is_needed = self._clip_norm or handle.number("gradient_clipping") > 0 or keys["zoff.moments"][0] in ('"q8"', '"m8v16"')
        sets_check = keys["zoff.skip_nonfinite"][1] == "default"
        self._sets = {"zoff.skip_nonfinite": "100" if is_needed else "false"} if sets_check else {}
        self._measures = bool(is_needed) or (not sets_check and keys["zoff.skip_nonfinite"][0] != "false")
        if self._ranks is not None:
            if keys["zero_optimization.stage"][1] == "default":
                self._sets["zero_optimization.stage"] = "1"
            self._sets["gradient_allreduce_op"] = "sum"  # the gradients are not divided by the number of ranks once more

    # ---- rules ----

    def _fill(self, hyper, group):
        """Set the numbers of a group; a rule adds its own."""
        hyper.lr, hyper.weight_decay = float(group["lr"]), float(group["weight_decay"])

    def _kinds(self, group):
        """The states that a parameter may have, by the names of torch."""
        raise NotImplementedError

    def _kept(self, kinds, cohort, member):
        """Those that it has."""
        return kinds

    def _loadable(self, kinds, states):
        """Those that these states, of a state dict, can be."""
        return kinds

    def _hypers(self):
        hypers = (api.zoff_optimizer_hyper * len(self.param_groups))()
        for hyper, group in zip(hypers, self.param_groups):
            lib.zoff_optimizer_hyper_init_sized(byref(hyper), sizeof(hyper), self.RULE)
            self._fill(hyper, group)
        return hypers

    # ---- parameters ----

    def add_param_group(self, param_group):
        params = param_group["params"] if isinstance(param_group, dict) else []
        if not isinstance(params, (torch.Tensor, set)):  # torch before 2.6 knows no names
            params = list(params)
            if params and all(isinstance(param, tuple) for param in params):
                param_group["param_names"] = [name for name, _ in params]
                params = [param for _, param in params]
            param_group["params"] = params
        super().add_param_group(param_group)
        hyper = api.zoff_optimizer_hyper()
        lib.zoff_optimizer_hyper_init_sized(byref(hyper), sizeof(hyper), self.RULE)
        try:
            self._fill(hyper, self.param_groups[-1])
            if lib.zoff_optimizer_step(byref(hyper), 1, 1.0, byref(api.zoff_optimizer_tensor())) < 0:
                raise ValueError(f"zoff.{type(self).__name__}: {lib.zoff_last_error().decode()}")
        except BaseException:
            self.param_groups.pop()
            raise
        self._waiting = None

    def _numbered(self):
        """(group, place in it, parameter) of all parameters."""
        for number, group in enumerate(self.param_groups):
            for place, param in enumerate(group["params"]):
                yield number, place, param

    def _find_waiting(self):
        """The parameters that no engine has."""
        owned = {id(member.param) for cohort in self._cohorts for member in cohort.members}
        self._waiting = [entry for entry in self._numbered() if id(entry[2]) not in owned]
        self._count = sum(len(group["params"]) for group in self.param_groups)

    def _name(self, number, place):
        names = self.param_groups[number].get("param_names")
        return names[place] if names else f"g{number}.p{place}"

    # ---- engines ----

    def _alive(self):
        if self._why_not:
            raise RuntimeError(self._why_not)
        if self._cohorts and self._cohorts[0].pid != os.getpid():
            raise RuntimeError("the engine of this optimizer belongs to the process that was forked; make a new optimizer in this one")

    def _make(self, entries, seal=True, opened=()):
        """An engine for parameters.  `opened`: numbers with which an engine was opened whose checkpoint this one loads, because a load
        warns of others. Steps have those of the groups."""
        members, places = [self._member(*entry) for entry in entries], {}
        first = self._cohorts[0].members[0] if self._cohorts else members[0]
        overlapped = self._overlap and self._overlap.params()
        for member in members:
            if member.device != first.device:
                raise ValueError(f"zoff: parameter {first.name} is on {first.device}, and {member.name} on {member.device}; make an optimizer for "
                                 "those of each device")
            if overlapped and id(member.param) not in overlapped:
                raise ValueError(f"zoff: parameter {member.name} is not in the model that overlap names, whose forward pass would not wait for it")
            other = places.setdefault(member.value, member)
            if other is not member and member.count:
                raise ValueError(f"zoff: parameters {other.name} and {member.name} have the same memory; make them one torch.nn.Parameter, or "
                                 "leave one of them out")
        config = self._config.open()
        for key, value in self._sets.items():
            config.set(key, value)
        # The steps have these, too, and the log shows them.
        config.set("optimizer.type", self.TYPE)
        config.set("optimizer.params.lr", str(float(self.param_groups[0]["lr"])))
        if self._clip_norm:
            config.set("gradient_clipping", str(float(self._clip_norm)))
        self._adjust(config)
        # Each engine takes its share of the budget, and one of few parameters what it needs for its slots.
        trained = sum(local(param).numel() for _, _, param in self._numbered() if param.requires_grad) or 1
        share = int(self._host_bytes * min(1.0, sum(member.count for member in members) / trained))
        hypers = self._hypers()
        for hyper, numbers in zip(hypers, opened):
            for name in _NUMBERS:
                if numbers.get(name) is not None:
                    setattr(hyper, name, numbers[name])
        cohort = self.COHORT(config, members, hypers, min(self._host_bytes, max(share, _LEAST_BYTES)), seal, self._checks, self._ranks)
        for member in members if seal else ():
            member.kinds = self._kept(member.kinds, cohort, member)
        return cohort

    def _member(self, number, place, param):
        member = Member(param, self._name(number, place), number, self._kinds(self.param_groups[number]))
        if self._ranks is not None and member.is_cut:
            raise ValueError(f"zoff: parameter {member.name} is cut over ranks already, so each rank has the states of its part; leave ranks out")
        if self._overlap and member.part is not member.param:
            raise ValueError(f"zoff: parameter {member.name} is cut over ranks, and its pieces are gathered before a module could wait for "
                             "them; leave overlap out")
        return member

    def _adjust(self, config):
        """Change the configuration of an engine; for a rule."""

    def _open(self, entries, opened=()):
        if self._persists and self._cohorts:
            raise RuntimeError(f"zoff: {self._name(*entries[0][:2])} gets its first gradient after {self._cohorts[0].t} steps. With zoff.persist "
                               "all parameters are in one engine: call open() before the first step")
        cohort = self._make(entries, opened=opened)
        self._cohorts.append(cohort)
        self._backward.watch(cohort)
        self._waiting = None
        self._mark()
        return cohort

    def open(self):
        """Open the engine for all parameters that require a gradient, and return the number of steps taken. With zoff.persist the
        weights become those of the last complete step in the files."""
        with self._lock:
            self._alive()
            self._find_waiting()
            entries = [entry for entry in self._waiting if entry[2].requires_grad]
            if entries:
                cohort = self._open(entries)
                if cohort.t:
                    cohort.push()
            return max((cohort.t for cohort in self._cohorts), default=0)

    def close(self):
        """End the engines and remove their files, unless zoff.persist keeps them. The weights stay."""
        with self._lock:
            if self.is_stepping and not self._why_not:
                self._finish()
            for cohort in self._cohorts:
                cohort.close()
            self._why_not = self._why_not or _CLOSED

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def plan(self):
        """Bytes and counts of the engines, by the names of zoff_plan_info; before the first step, those of one for all parameters
        that require a gradient."""
        with self._lock:
            cohorts = self._cohorts or [self._make([entry for entry in self._numbered() if entry[2].requires_grad], seal=False)]
            infos = [cohort.plan() for cohort in cohorts]
            if not self._cohorts:
                cohorts[0].close()
            alike = ("threads", "memory_free_bytes", "exact_sums", "sum_ranks", "sums_once")
            return {**_total(infos, ("struct_size", "tier", *alike)), **{name: getattr(infos[0], name) for name in alike}}

    # ---- the step ----

    def step(self, closure=None):
        """Take a step with the gradients that exist."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with self.locked():
            self._alive()
            self._finish()
            self._take()
            if self._saving and not self._rest:
                self._saving.done()
        return loss

    def _with_gradients(self):
        """The engines that have a step to take."""
        self._backward.verify(self._cohorts)
        if self._waiting is None or self._count != sum(len(group["params"]) for group in self.param_groups):
            self._find_waiting()
        late = [entry for entry in self._waiting if entry[2].grad is not None]
        if late:
            cohort = self._open(late)
            self._find_waiting()
            if t := cohort.t:
                self._forget(cohort)
                raise RuntimeError(f"zoff: the files in {self._folder} have the states of {t} steps. Call open() before the first forward "
                                   "pass, which sets the weights to those of the files, or use an empty folder")
        for cohort in self._cohorts:
            cohort.follow()
        return [cohort for cohort in self._cohorts if cohort.collect()]

    def _take(self):
        try:
            cohorts = self._with_gradients()
        except BaseException as error:
            if self._norm_group is not None:  # the other ranks wait
                self._gathered([], error)
            raise
        if not cohorts and self._norm_group is None:
            return
        self._args = self._arguments()
        norms, failure = [], None
        joins = len(cohorts) > 1 or self._norm_group is not None
        try:
            for cohort in cohorts:
                self._args.hyper_count = cohort.groups
                if joins:
                    cohort.prepare(self._args)
                cohort.hand_over(self._backward.given)
            self._backward.given = {}
            for cohort in cohorts if joins and self._measures else ():
                self._args.hyper_count = cohort.groups
                norms.append(cohort.measure(self._args))
        except BaseException as error:
            failure = error
        try:
            if self._norm_group is not None:
                norms = self._gathered(norms, failure)
            if failure:
                raise failure
            for norm in norms[1:]:
                check(lib.zoff_norm_sum_join(byref(norms[0]), byref(norm)))
        except BaseException:
            self.drop()
            raise
        self._norm = norms[0] if norms else None
        self._rest, self._steps, self._begun = [(cohort, api.zoff_step_info()) for cohort in cohorts], [], 0
        if not self._overlap:
            return self._finish()
        for cohort in cohorts:
            self._aim(cohort)
            try:
                cohort.begin(self._args)
            except Error:
                self._fail(api.ZOFF_OUTCOME_TORN if self._begun else api.ZOFF_OUTCOME_BEFORE)
                raise
            self._begun += 1

    def _arguments(self):
        """The arguments of the next step, but for those that differ by engine."""
        return api.zoff_step_args(hyper=self._hypers(), hyper_stride=sizeof(api.zoff_optimizer_hyper), clip_norm=self._clip_norm or 0)

    def prepare(self):
        """Tell the engines what the next step will use, before its first gradient."""
        self._args = self._arguments()
        for cohort in self._cohorts:
            cohort.follow()
            self._args.hyper_count = cohort.groups
            cohort.prepare(self._args)

    def _gathered(self, norms, failure):
        """The sums of all ranks of the group, which are exact, so that their order plays no part."""
        size = sizeof(api.zoff_norm_sum)
        for norm in norms[1:]:
            check(lib.zoff_norm_sum_join(byref(norms[0]), byref(norm)))
        mine = torch.zeros(1 + size, dtype=torch.uint8, device="cpu")
        mine[0] = 2 if failure else len(norms[:1])
        if norms:
            mine[1:] = torch.frombuffer(bytearray(norms[0]), dtype=torch.uint8)
        mine = mine.to(local(self.param_groups[0]["params"][0]).device)  # NCCL gathers nothing else
        theirs = [torch.empty_like(mine) for _ in range(torch.distributed.get_world_size(self._norm_group))]
        torch.distributed.all_gather(theirs, mine, group=self._norm_group)
        theirs = [its.cpu() for its in theirs]
        failed = [rank for rank, its in enumerate(theirs) if its[0] == 2]
        if failed and not failure:
            raise RuntimeError(f"the step is given up before anything was changed, because rank {failed[0]} of norm_group has failed in it")
        return [api.zoff_norm_sum.from_buffer_copy(bytes(its[1:].tolist())) for its in theirs if its[0] == 1]

    def _forget(self, cohort):
        cohort.close()
        self._cohorts.remove(cohort)
        self._waiting = None
        self._mark()

    def _mark(self):
        """Torch's functions for distributed checkpoints take a step to make states where they find none: show which parameters have
        some."""
        self.state = defaultdict(dict, {member.param: {} for cohort in self._cohorts for member in cohort.members
                                        if not member.is_frozen})

    def drop(self):
        """Drop the gradients of a step that has changed nothing."""
        for cohort in self._cohorts:
            if cohort.held:
                cohort.drop()
        self._rest, self._begun, self._backward.given = [], 0, {}

    def _aim(self, cohort):
        """Fit the arguments of the step to an engine."""
        self._args.hyper_count = cohort.groups
        self._args.norm_sum = self._norm and pointer(self._norm)

    def _finish(self, again=False):
        """Take the step of all engines that have not taken it. An interrupt may have come just after one has."""
        raised, has_changed = None, False
        while self._rest:
            cohort, info = self._rest[0]
            self._aim(cohort)
            try:
                if again or not info.t:
                    cohort.step(self._args, info, again, self._begun > 0)
            except Error as error:
                raised = error
                if info.outcome != api.ZOFF_OUTCOME_AFTER and error.status != api.ZOFF_ERR_OVERFLOW:  # otherwise the step is over
                    self._fail(info.outcome)
                    raise
            cohort.written(cohort.late.values() if self._begun else None)
            has_changed = cohort.let_go() or has_changed
            self._steps.append(info)
            self._info = self._steps
            self._rest.pop(0)
            self._begun, again = max(0, self._begun - 1), False
        if raised:
            raise raised
        if has_changed:
            raise RuntimeError("a gradient was changed between step() and the end of the step, which has used old or new numbers: call wait() "
                               "before, or optimizer.zero_grad()")

    def _fail(self, outcome):
        """After an error: the step has changed nothing and is given up, or retry() goes on with it."""
        if outcome == api.ZOFF_OUTCOME_BEFORE and not self._steps and self._begun <= 1:
            self.drop()
        else:
            self._rest[0] = self._rest[0][0], api.zoff_step_info()
            self._why_not = "the last step failed and is half done: call retry(), or load_state_dict()"

    @property
    def is_stepping(self):
        """Whether a step goes on: with `overlap`, from its begin to the end of the next forward pass, or to wait()."""
        return bool(self._rest) and self._cohorts[0].pid == os.getpid()

    def wait(self, params=None):
        """Wait until these weights are new; without `params`, until the step is over."""
        with self.locked():
            self._alive()
            if params is None:
                return self._finish()
            params = list(params)
            for cohort, _ in self._rest[:self._begun]:
                try:
                    cohort.wait_for(params)
                except Error:
                    self._finish()  # raises the error of the step
                    raise

    @property
    def can_begin(self):
        """Whether the engines can take gradients."""
        return not self._why_not and bool(self._cohorts) and self._cohorts[0].pid == os.getpid()

    @contextlib.contextmanager
    def locked(self):
        with self._lock, torch.no_grad():
            yield

    @contextlib.contextmanager
    def no_sync(self):
        """Add up gradients: those of a backward pass in here are not final. It matters only with `overlap`."""
        before, self._backward.syncs = self._backward.syncs, False
        try:
            yield
        finally:
            self._backward.syncs = before

    def zero_grad(self, set_to_none=True):
        if not set_to_none and self.is_stepping:
            self.wait()
        with self._lock:
            self._backward.take_back()
        super().zero_grad(set_to_none)

    def retry(self):
        """Go on with a step that failed half way, without repeating what is done."""
        with self._lock, torch.no_grad():
            if not self._rest:
                raise RuntimeError("no step has failed half way")
            self._why_not = None
            self._finish(again=True)

    @property
    def last(self):
        """The StepInfo of the last step; None before the first one."""
        if self.is_stepping:
            self.wait()
        if not self._info:
            return None
        first = self._info[0]
        return StepInfo(max(info.t for info in self._info), first.numbers.grad_norm if self._measures else None, first.numbers.clip_factor,
                        any(info.skipped for info in self._info), sum(info.seconds.total for info in self._info))

    def pull(self):
        """Take all weights as the new masters; after a change that torch does not count, such as that of `param.data`."""
        with self._lock:
            self._whole()
            for cohort in self._cohorts:
                cohort.pull()

    def push(self):
        """Set all weights from their masters."""
        with self._lock:
            self._whole()
            for cohort in self._cohorts:
                cohort.push()

    def _whole(self):
        """End the step, and take back gradients of the next one, because no state has them."""
        self._alive()
        self._finish()
        self._backward.take_back()

    def _settle(self):
        """End the step before states are loaded, which also help after one that has failed."""
        if self._why_not in (None, _CLOSED):
            self._whole()
        self._why_not = None

    # ---- states ----

    def _state_tensor(self, member, mapped):
        """A tensor for a state, in the layout of the parameter."""
        if not mapped or not member.count:
            return torch.empty_strided(member.shape, member.stride, dtype=torch.float32, device="cpu")
        file, path = tempfile.mkstemp(prefix="zoff-state-", dir=self._folder)
        try:
            os.posix_fallocate(file, 0, 4 * member.count)  # a full disk is an error here, and would be SIGBUS later
        except OSError as error:
            advice = f"state_dict() copies states of {member.name} into a file of {4 * member.count} bytes there; make room, or give the optimizer " \
                     "state=\"tensors\" or \"reference\""
            raise OSError(error.errno, f"{error.strerror}: {advice}", self._folder) from None
        else:
            try:
                storage = torch.UntypedStorage.from_file(path, shared=True, nbytes=4 * member.count)
            except RuntimeError as error:
                raise RuntimeError(f"zoff: a file in {self._folder} cannot be mapped ({error}): use state=\"tensors\"") from None
        finally:
            os.close(file)
            os.unlink(path)
        return torch.empty(0, dtype=torch.float32, device="cpu").set_(storage, 0, member.shape, member.stride)

    def _export(self):
        mapped = self._form == "mapped" or self._form == "auto" and self._is_in_files
        if mapped and not self._folder:
            raise ValueError("state=\"mapped\" needs a folder: give zoff.Config a folder by nvme=")
        found = {}
        for cohort in self._cohorts:
            cohort.follow()
            t = cohort.t
            for member in cohort.members:
                if member.is_frozen:
                    continue
                tensors = {name: self._state_tensor(member, mapped) for name in member.kinds}
                cohort.read(member, {member.kinds[name]: tensor.data_ptr() for name, tensor in tensors.items()})
                cut = {name: _as_cut(tensor, member.param) for name, tensor in tensors.items()}
                found[id(member.param)] = {"step": torch.tensor(float(t), device="cpu"), **cut}
        return {param: found[id(param)] for _, _, param in self._numbered() if id(param) in found}

    def state_dict(self):
        """The states as torch has them, with `master` for 16-bit weights; or a reference, as `state` says."""
        with self._lock, torch.no_grad():
            self._whole()
            if self._form == "reference":
                return self._reference()
            try:
                self.state.update(self._export())
                state_dict = super().state_dict()
                for group in state_dict["param_groups"]:
                    group.update({key: value for key, value in self._switches().items() if key not in group})
                return state_dict
            finally:
                self._mark()

    def _switches(self):
        """Further keys of the groups of torch's optimizer, which it expects in a distributed checkpoint."""
        rule = getattr(torch.optim, self.TYPE, None)
        return {key: value for key, value in rule([torch.zeros(1, 1, device="cpu")]).defaults.items() if key not in self.defaults} if rule else {}

    def load_state_dict(self, state_dict):
        """Load states of this optimizer, or of the one of torch with the same rule. Weights in 16 bits become the rounded masters,
        where the states have these."""
        with self._lock, torch.no_grad():
            self._settle()
            if "zoff" in state_dict:
                self._load_reference(state_dict)
                return
            groups = self.param_groups
            before = self.register_load_state_dict_pre_hook(_wrapped)
            after = self.register_load_state_dict_post_hook(Optimizer._import, prepend=True)
            try:
                super().load_state_dict(state_dict)
            except BaseException:
                self.param_groups = groups
                raise
            finally:
                before.remove()
                after.remove()
                self._mark()

    def _import(self):
        """Open engines for the states that torch has assigned to the parameters; those with other counts get engines of their
        own."""
        for group in self.param_groups:
            for key, value in self.defaults.items():
                group.setdefault(key, value)
        loaded, places = {}, {id(param): (number, place, param) for number, place, param in self._numbered()}
        for param, its in self.state.items():
            entry = places.get(id(param))
            if entry is None:
                raise ValueError(f"the state dict has states of {param}, which is no parameter of its groups")
            t, states = self._checked(entry, its.states if isinstance(its, _Loaded) else its)
            if t:
                loaded.setdefault(t, []).append((entry, states))
        if not loaded:
            if self._cohorts:
                raise ValueError(f"the state dict has no states, and this optimizer has those of {max(c.t for c in self._cohorts)} steps; make a "
                                 "new optimizer to begin anew")
            return
        if self._persists and len(loaded) > 1:
            raise ValueError(f"zoff: the states are of {len(loaded)} different steps. With zoff.persist all parameters are in one engine")
        without = [self._name(number, place) for number, place, param in self._numbered()
                   if param.requires_grad and not any(param is entry[2] for part in loaded.values() for entry, _ in part)]
        self._warn_of(without, "the state dict")
        with self._replaced():
            for t, part in sorted(loaded.items()):
                part.sort(key=lambda item: item[0][:2])
                cohort = self._open([entry for entry, _ in part])
                for member, (_, states) in zip(cohort.members, part):
                    if not states.keys() <= member.kinds.keys():
                        raise ValueError(f"{member.name} has the states {', '.join(states)}, and needs {', '.join(member.kinds)}")
                    tensors = {member.kinds[name]: self._in_layout(member, tensor) for name, tensor in states.items()}
                    cohort.write(member, {kind: tensor.data_ptr() for kind, tensor in tensors.items()})
                cohort.set_count(t)
                if any("master" in states for _, states in part):
                    cohort.push()

    def save(self, folder, *, name=None, keep=0, pinned=False, wait=True):
        """Save a checkpoint of zoff: weights, states and the numbers of the groups. With wait=False it is saved beside the next
        steps; call wait() of the result. `keep` is the number of checkpoints that stay in the folder, beside pinned ones; 0: all."""
        with self._lock:
            self._whole()
            if not self._cohorts:
                raise RuntimeError("there is nothing to save before the first step; call open() to save the first weights")
            self._refuse_cut()
            self._unnamed("saved")
            if self._saving:
                self._saving.wait()
            os.makedirs(folder, exist_ok=True)
            groups = [{key: value for key, value in group.items() if key in self.defaults} for group in self.param_groups]
            for group in groups:
                group["lr"] = float(group["lr"])
            name = name or f"step-{max(cohort.t for cohort in self._cohorts):010d}"
            self._saving = checkpoint.begin(self._cohorts, groups, os.path.abspath(folder), name, keep, pinned, self._more())
            self._saved = None
            if wait:
                self._saving.wait()
            return self._saving

    def _more(self):
        """Further bytes for a checkpoint, {name: bytes}."""
        return {}

    def _refuse_cut(self):
        """Each rank has an engine of its own, so ranks would replace each other's checkpoint."""
        for number, place, param in self._numbered():
            if local(param) is not param:
                raise RuntimeError(f"zoff: parameter {self._name(number, place)} is cut over ranks, and a checkpoint of zoff would have the part "
                                   "of one; use torch.distributed.checkpoint with get_state_dict()")

    def load(self, folder, *, name=None, allow="", weights_only=False):
        """Load a checkpoint of zoff: `name`, or the newest one in the folder. Weights, states and the numbers of the groups become
        those of the checkpoint. `allow` names parameters that may be missing, extra or different, as patterns such as "head.*". With
        `weights_only`, whatever optimizer has saved it, states and their counts begin anew, and the numbers of the groups stay."""
        with self._lock, torch.no_grad():
            self._refuse_cut()
            self._unnamed("matched")
            self._load(checkpoint.Reader(os.path.join(folder, name) if name else folder), allow, not weights_only, weights_only)

    def _load(self, reader, allow, with_groups=True, weights_only=False):
        self._settle()
        about, folder = reader.about(), reader.info.folder.decode()
        groups = self._groups_of(about, folder) if with_groups else []
        known = {self._name(number, place): (number, place, param) for number, place, param in self._numbered()}
        parts = []
        for part in (reader, *(checkpoint.part_of(reader, part) for part in about["parts"])):
            names = set(part.names())
            parts.append((part, [entry for name, entry in known.items() if name in names]))
            known = {name: entry for name, entry in known.items() if name not in names}
            if not parts[-1][1]:
                raise ValueError(f"{folder} has no parameter of this optimizer, which has {', '.join(list(known)[:3])}, ...")
        self._warn_of([name for name, (_, _, param) in known.items() if param.requires_grad], folder)
        with self._taking(groups), self._replaced():
            for part, entries in parts:
                checkpoint.load(self._open(entries, part.groups() if groups else ()), part, allow, weights_only)

    def _groups_of(self, about, folder):
        """The numbers of the groups in a checkpoint, which one of a C program does not have."""
        if about["groups"] and len(about["groups"]) != len(self.param_groups):
            raise ValueError(f"{folder} has {len(about['groups'])} parameter groups, and this optimizer has {len(self.param_groups)}")
        return about["groups"] or []

    @contextlib.contextmanager
    def _taking(self, loaded):
        """Take loaded numbers of the groups, and keep them if what follows succeeds."""
        groups = [dict(group) for group in self.param_groups]
        for group, numbers in zip(self.param_groups, loaded):
            group.update({key: tuple(value) if isinstance(value, list) else value for key, value in numbers.items()})
        try:
            yield
        except BaseException:
            for group, numbers in zip(self.param_groups, groups):
                group.update(numbers)
            raise

    @staticmethod
    def _warn_of(names, source):
        if names:
            warnings.warn(f"{source} has no states of {len(names)} parameters, such as {names[0]}: they begin anew", stacklevel=4)

    def _unnamed(self, what):
        if "param_names" not in self.param_groups[0]:
            warnings.warn(f"the parameters have no names, so their states are {what} by their order: pass model.named_parameters()", stacklevel=3)

    def _reference(self):
        """The last checkpoint in place of the states. It has no "state", so that torch's optimizers refuse it."""
        if self._saving:
            folder = self._saving.wait()
            self._saved = self._saved or checkpoint.Reader(folder).reference
        if not self._saved or self._saved["t"] != max((cohort.t for cohort in self._cohorts), default=0):
            raise RuntimeError("state=\"reference\" needs a checkpoint of this step: call save() before state_dict()")
        state_dict = super().state_dict()
        del state_dict["state"]
        return {"zoff": self._saved, **state_dict}

    def _load_reference(self, state_dict):
        wanted = state_dict["zoff"]
        reader = checkpoint.Reader(wanted["folder"])
        for key in ("id", "t"):
            if reader.reference[key] != wanted[key]:
                raise ValueError(f"the state dict refers to a checkpoint with {key} {wanted[key]}, and that in {wanted['folder']} has "
                                 f"{reader.reference[key]}")
        groups = self.param_groups
        super().load_state_dict({"state": {}, "param_groups": state_dict["param_groups"]})
        try:
            self._load(reader, "", with_groups=False)
        except BaseException:
            self.param_groups = groups
            raise

    @contextlib.contextmanager
    def _replaced(self):
        """End the present engines, and open others. If that fails, no step is possible until a load succeeds, because it would begin
        with moments of zero."""
        self._rest, self._info, self._begun = [], None, 0
        for cohort in list(self._cohorts):
            self._forget(cohort)
        try:
            yield
        except BaseException as error:
            for cohort in list(self._cohorts):
                self._forget(cohort)
            self._why_not = f"loading states failed and this optimizer has none: {error}. Load them again"
            raise

    def _checked(self, entry, its):
        """The number of steps and the states of a parameter in a state dict."""
        number, place, param = entry
        name, kinds = self._name(number, place), self._kinds(self.param_groups[number])
        states = {key: value for key, value in its.items() if key != "step" and value is not None}
        kinds = self._loadable(kinds, states)
        if param.dtype is not torch.float32:
            kinds["master"] = api.ZOFF_STATE_MASTER
        if "step" not in its and not states:
            return 0, {}
        unknown = sorted(set(states) - {*kinds, "master"})
        missing = sorted(set(kinds) - {"master"} - set(states))
        t = float(its.get("step", 1))  # torch's SGD counts no steps: those with a momentum have begun
        if unknown or (missing and t):
            raise ValueError(f"the states of {name} are no states of zoff.{type(self).__name__}: " +
                             (f"{', '.join(unknown)} cannot be used" if unknown else f"{', '.join(missing)} is missing"))
        if not (t >= 0 and t == int(t)):
            raise ValueError(f"the state dict has {t} as the number of steps of {name}")
        states = {key: states[key] for key in kinds if key in states}
        for key, value in states.items():
            if not isinstance(value, torch.Tensor) or value.shape != param.shape or local(value).shape != local(param).shape:
                raise ValueError(f"{key} of {name} has the shape {tuple(getattr(value, 'shape', ()))}; the parameter has {tuple(param.shape)}")
        return int(t), states

    @staticmethod
    def _in_layout(member, tensor):
        tensor = local(tensor)
        if tensor.dtype is torch.float32 and tensor.stride() == member.stride and tensor.device.type == "cpu":
            return tensor
        return torch.empty_strided(member.shape, member.stride, dtype=torch.float32, device="cpu").copy_(tensor)

    # ---- the optimizer as an object ----

    def __getstate__(self):
        if self._cohorts:
            raise TypeError("an optimizer of zoff that has taken a step cannot be copied or pickled; use state_dict()")
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_overlap", "_backward", "step")}

    def __setstate__(self, state):
        super().__setstate__(state)
        if "_lock" not in self.__dict__:
            self._begin()


class Adam(Optimizer):
    """torch.optim.Adam."""

    RULE, TYPE = api.ZOFF_OPTIMIZER_ADAM, "Adam"
    DECAY = api.ZOFF_DECAY_L2

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, *, foreach=None, fused=None, maximize=False,
                 capturable=False, differentiable=False, **own):
        _refuse(type(self).__name__, amsgrad=amsgrad, maximize=maximize, capturable=capturable, differentiable=differentiable)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}, **own)

    def _fill(self, hyper, group):
        super()._fill(hyper, group)
        hyper.beta1, hyper.beta2 = map(float, group["betas"])
        hyper.eps, hyper.decay = group["eps"], self.DECAY

    def _kinds(self, group):
        return {"exp_avg": api.ZOFF_STATE_M, "exp_avg_sq": api.ZOFF_STATE_V}


class AdamW(Adam):
    """torch.optim.AdamW."""

    TYPE, DECAY = "AdamW", api.ZOFF_DECAY_DECOUPLED

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, **more):
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **more)


class Adagrad(Optimizer):
    """torch.optim.Adagrad."""

    RULE, TYPE = api.ZOFF_OPTIMIZER_ADAGRAD, "Adagrad"

    def __init__(self, params, lr=1e-2, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10, foreach=None, *, maximize=False,
                 differentiable=False, fused=None, **own):
        _refuse("Adagrad", maximize=maximize, differentiable=differentiable)
        self._initial = initial_accumulator_value
        super().__init__(params, {"lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay}, **own)

    def _fill(self, hyper, group):
        super()._fill(hyper, group)
        hyper.lr_decay, hyper.eps = group["lr_decay"], group["eps"]

    def _kinds(self, group):
        return {"sum": api.ZOFF_STATE_V}

    def _adjust(self, config):
        config.set("optimizer.params.initial_accumulator_value", str(self._initial))


class Lion(Optimizer):
    """Lion, by algorithm 2 of Chen et al. 2023."""

    RULE, TYPE = api.ZOFF_OPTIMIZER_LION, "Lion"

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0, **own):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay}, **own)

    def _fill(self, hyper, group):
        super()._fill(hyper, group)
        hyper.beta1, hyper.beta2 = map(float, group["betas"])

    def _kinds(self, group):
        return {"exp_avg": api.ZOFF_STATE_M}


class SGD(Optimizer):
    """torch.optim.SGD."""

    RULE, TYPE = api.ZOFF_OPTIMIZER_SGD, "SGD"

    def __init__(self, params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, *, maximize=False, foreach=None,
                 differentiable=False, fused=None, **own):
        _refuse("SGD", maximize=maximize, differentiable=differentiable)
        super().__init__(params, {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov}, **own)

    def _fill(self, hyper, group):
        super()._fill(hyper, group)
        hyper.momentum, hyper.dampening, hyper.nesterov = group["momentum"], group["dampening"], group["nesterov"]

    def _kinds(self, group):
        return {"momentum_buffer": api.ZOFF_STATE_M} if group["momentum"] else {}


class Muon(Optimizer):
    """torch.optim.Muon for matrices, and AdamW for all other parameters.

    Each parameter with two dimensions or more is a matrix, or a stack of matrices, unless its name has "embed", "lm_head", "wte" or
    "wpe" in it. The keys zoff.muon_params, zoff.adam_params and zoff.muon_rows of the configuration change that. Without names all
    parameters must have two dimensions.

    `adam_lr` is the rate of the others, and None is that of matrices. Its ratio to `lr` stays, so a scheduler changes both.
    `adam_betas` and `adam_eps` are theirs, too.

    `ns_coefficients` are those of torch, or "quintic", "polar_express", "cans" or "deepseekv4". `ns_method` is "gram" or "standard".
    `adjust_lr_fn` has the values of torch, and "spectral"."""

    RULE, TYPE = api.ZOFF_OPTIMIZER_MUON, "Muon"
    SIMPLE, EPS = (3.4445, -4.775, 2.0315), 1e-7
    CHOICES = {
        "ns_coefficients": {SIMPLE: api.ZOFF_MUON_SIMPLE, "simple": api.ZOFF_MUON_SIMPLE, "quintic": api.ZOFF_MUON_QUINTIC,
                            "polar_express": api.ZOFF_MUON_POLAR_EXPRESS, "cans": api.ZOFF_MUON_CANS, "deepseekv4": api.ZOFF_MUON_DEEPSEEKV4},
        "ns_method": {"gram": api.ZOFF_MUON_GRAM, "standard": api.ZOFF_MUON_STANDARD},
        "adjust_lr_fn": {None: api.ZOFF_MUON_SCALE_ORIGINAL, "original": api.ZOFF_MUON_SCALE_ORIGINAL,
                         "match_rms_adamw": api.ZOFF_MUON_SCALE_MATCH_RMS_ADAMW, "spectral": api.ZOFF_MUON_SCALE_SPECTRAL,
                         "spectral_unclamped": api.ZOFF_MUON_SCALE_UNIT_RMS_NORM}}

    def __init__(self, params, lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True, ns_coefficients=SIMPLE, eps=EPS, ns_steps=5,
                 adjust_lr_fn=None, *, adam_lr=None, adam_betas=(0.9, 0.95), adam_eps=1e-10, ns_method="gram", **own):
        self._adam_lr = adam_lr
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
                                  "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn,
                                  "adam_lr_ratio": 1.0, "adam_betas": adam_betas, "adam_eps": adam_eps, "ns_method": ns_method}, **own)

    def _read_config(self):
        super()._read_config()
        for key, argument in (("zoff.muon_coefficients", "ns_coefficients"), ("zoff.muon_scale", "adjust_lr_fn")):
            value, source = self._config.open().keys()[key]
            if source != "default":
                raise ValueError(f"{source}: {key} is {value}; pass it to zoff.Muon as {argument} instead, and leave the key out")

    def add_param_group(self, param_group):
        param_group = dict(param_group)
        adam_lr, lr = param_group.pop("adam_lr", self._adam_lr), float(param_group.get("lr", self.defaults["lr"]))
        if adam_lr is not None and "adam_lr_ratio" not in param_group:
            if not (lr > 0 and adam_lr >= 0):
                raise ValueError(f"adam_lr is {adam_lr} and lr is {lr:g}; adam_lr must not be negative, and is kept as a multiple of lr, which must "
                                 "be above 0")
            param_group["adam_lr_ratio"] = adam_lr / lr
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        odd = [] if "param_names" in group else [param for param in group["params"] if param.dim() != 2]
        if odd:
            self.param_groups.pop()
            raise ValueError(f"zoff.Muon: a parameter of the shape {tuple(odd[0].shape)} has no name, and names decide which parameters are "
                             "matrices: pass model.named_parameters()")

    def _fill(self, hyper, group):
        super()._fill(hyper, group)
        chosen = {}
        for key, choices in self.CHOICES.items():
            value = tuple(group[key]) if isinstance(group[key], list) else group[key]
            if value not in choices:
                raise ValueError(f"{key} is {value!r}; zoff.Muon has {', '.join(map(repr, choices))}")
            chosen[key] = choices[value]
        if group["eps"] != self.EPS:
            raise ValueError(f"eps is {group['eps']}; zoff.Muon divides by a norm plus {self.EPS}: leave it out, or pass adam_eps for AdamW")
        hyper.momentum, hyper.nesterov, hyper.ns_steps = group["momentum"], group["nesterov"], group["ns_steps"]
        hyper.coefficients, hyper.ns_method, hyper.scale = chosen["ns_coefficients"], chosen["ns_method"], chosen["adjust_lr_fn"]
        hyper.adam_lr, hyper.eps = hyper.lr * group["adam_lr_ratio"], group["adam_eps"]
        hyper.beta1, hyper.beta2 = map(float, group["adam_betas"])

    def _member(self, number, place, param):
        member = super()._member(number, place, param)
        if param.dim() > 1 and member.part.shape != param.shape:
            raise ValueError(f"zoff: parameter {member.name} is cut over ranks, and Muon needs whole matrices; use zoff.AdamW")
        if param.dim() > 1 and member.order != list(range(param.dim())) and (param.dim() < 4 or member.order[0] != 0):
            raise ValueError(f"zoff: parameter {member.name} has its rows and columns in another order in memory (strides {member.stride}), and "
                             "Muon's rate depends on it; make it contiguous, for example by param.data = param.data.contiguous()")
        return member

    def _kinds(self, group):
        return {"momentum_buffer": api.ZOFF_STATE_M, "exp_avg": api.ZOFF_STATE_M, "exp_avg_sq": api.ZOFF_STATE_V}

    def _kept(self, kinds, cohort, member):
        return self._of_a_matrix(kinds, not cohort.has(member, api.ZOFF_STATE_V))

    def _loadable(self, kinds, states):
        return self._of_a_matrix(kinds, "momentum_buffer" in states)

    @staticmethod
    def _of_a_matrix(kinds, is_matrix):
        return {key: kind for key, kind in kinds.items() if key == "master" or (key == "momentum_buffer") == is_matrix}


def _as_cut(tensor, param):
    """A state as a tensor that is cut over ranks as its parameter is."""
    if local(param) is param:
        return tensor
    return type(param.data).from_local(tensor, param.device_mesh, param.placements, run_check=False, shape=param.shape, stride=param.stride())


def _refuse(name, **switches):
    """Arguments of torch's optimizers with which zoff has another result. `foreach` and `fused` choose among equal results."""
    for switch, value in switches.items():
        if value:
            raise ValueError(f"zoff.{name} has no {switch}; leave it out")
