# SPDX-License-Identifier: Apache-2.0
"""overlap.py: the step goes on behind the next forward pass, in which each module waits for its own weights, and may begin in the
backward pass.

A module's weights are new when its forward begins, and all weights when the forward of the whole model ends, because the backward
pass and the rest of the program may read any. A module that is called alone waits for all. Reading the states of the model or of
the optimizer ends the step, too."""
import functools
import warnings
import weakref

import torch
from torch.compiler import disable, is_compiling

from .errors import Error


class Overlap:
    """The hooks of a model. A copy of the model has hooks that wait for nothing, because no engine has its parameters."""

    def __init__(self, optimizer=None, model=None):
        self._optimizer, self._model = optimizer and weakref.ref(optimizer), None
        self._is_inside, self._called, self._more, self._is_compiled = False, weakref.WeakSet(), None, False
        if model is None:
            return
        model = getattr(model, "_orig_mod", model)  # of torch.compile()
        self._model = weakref.ref(model)
        model.register_forward_pre_hook(self._enter)
        for module in model.modules():
            if next(module.parameters(), None) is not None:
                module.register_forward_pre_hook(self._before)
            module.register_state_dict_pre_hook(self._whole)
        model.register_forward_hook(self._leave, always_call=True)

    def __reduce__(self):
        return Overlap, ()

    def params(self):
        """The ids of all parameters of the model, as long as it lives."""
        model = self._model()
        return None if model is None else set(map(id, model.parameters()))

    def _find(self):
        """The optimizer, if its step is open."""
        optimizer = self._optimizer and self._optimizer()
        return optimizer if optimizer and optimizer.is_stepping else None

    def _enter(self, *_):
        self._is_compiled = is_compiling()
        if is_compiling():
            return self._whole_outside()
        self._is_inside = True
        if not torch.is_grad_enabled():  # autograd would not tell of a weight that is used before its module's forward
            self._whole()

    @disable
    def _whole_outside(self):
        """End the step outside of compiled code, which a wait inside would cut at each module."""
        self._whole()

    def _before(self, module, *_):
        if is_compiling():
            return None if self._is_compiled else self._whole_outside()
        if self._more is None and self._optimizer:
            self._called.add(module)
        if optimizer := self._find():
            if self._is_inside and self._more is not None:
                optimizer.wait([*module.parameters(recurse=False), *self._more.get(module, ())])
            else:
                optimizer.wait()

    def _leave(self, model, *_):
        if is_compiling():
            return
        self._is_inside = False
        self._whole()
        if self._more is None and self._optimizer:
            self._more = weakref.WeakKeyDictionary()
            self._assign(model, model)

    def _assign(self, module, caller):
        """A module that the first pass does not call, as the projection inside torch's MultiheadAttention, has its parameters used by the
        nearest module around it that is called."""
        caller = module if module in self._called else caller
        if module is not caller:
            self._more.setdefault(caller, []).extend(module.parameters(recurse=False))
        for child in module.children():
            self._assign(child, caller)

    def _whole(self, *_):
        if optimizer := self._find():
            optimizer.wait()


class Backward:
    """Gradients that are handed over during the backward pass, each when it is complete.

    Nobody may change them then. If the program does so all the same, or adds up those of several passes, all of them are taken back, and
    step() hands them over as they are. The hooks rest from then on, because the program will do it again."""

    def __init__(self, optimizer, is_on):
        self._optimizer, self._is_on, self.syncs = weakref.ref(optimizer), is_on, True
        self.given = {}  # number of a member: its engine, itself, the gradient, its version and its checksum

    def watch(self, cohort):
        """Hand over the gradients of an engine. Hooks refer to it weakly, because nothing else would end it with its optimizer."""
        if not self._is_on:
            return
        for member in cohort.members:
            if member.param.requires_grad:
                hook = functools.partial(_ready, weakref.ref(self), weakref.ref(cohort), member.index)
                cohort.hooks.append(member.param.register_post_accumulate_grad_hook(hook))

    def ready(self, cohort, member):
        """The gradient of a parameter is complete."""
        optimizer = self._optimizer()
        if not (self._is_on and self.syncs and optimizer and optimizer.can_begin):
            return
        with optimizer.locked():
            before = self.given.get(id(member))
            if before:
                self.take_back()
                if before[2] is member.param.grad:
                    self._rest("gradients of several backward passes add up: call all passes but the last inside optimizer.no_sync()")
                    return
            optimizer.wait()
            grad = member.param.grad
            if grad is None or not member.fits(grad):
                return  # step() adapts it
            try:
                if not self.given:
                    optimizer.prepare()
                cohort.give(member, grad)
            except (Error, ValueError):
                self.take_back()  # step() raises the error, if it comes again
                return
            self.given[id(member)] = cohort, member, grad, grad._version, _sum(grad)

    def verify(self, cohorts):
        """Before the step: take the gradients back if they, or weights, are no longer what they were."""
        given = self.given.values()
        if sum(len(cohort.held) for cohort in cohorts) != len(given):  # an interrupt came while one was handed over
            self.take_back()
        elif any(member.param.grad is not grad for _, member, grad, *_ in given) or given and any(cohort.changed() for cohort in cohorts):
            self.take_back()
        elif given and (any(grad._version != version for *_, grad, version, _ in given)
                        or not torch.equal(*(torch.stack(sums) for sums in zip(*((_sum(grad), before) for *_, grad, _, before in given))))):
            # Both are compared, because GradScaler leaves the version as it is, and elements that change places leave the sum.
            self.take_back()
            self._rest("gradients were changed after the backward pass, as DistributedDataParallel, clip_grad_norm_() and GradScaler do")

    def take_back(self):
        """Drop all gradients of the next step."""
        optimizer = self._optimizer()
        if optimizer and optimizer.can_begin and not optimizer.is_stepping:
            optimizer.drop()

    def _rest(self, why):
        self._is_on = False
        warnings.warn(f"zoff: step() hands over all gradients from now on, because {why}", stacklevel=2)


def _sum(grad):
    """A checksum of a gradient, on its device."""
    return grad.view(torch.int32 if grad.dtype is torch.float32 else torch.int16).sum()


def _ready(backward, cohort, index, _):
    backward, cohort = backward(), cohort()
    if backward and cohort:
        backward.ready(cohort, cohort.members[index])
