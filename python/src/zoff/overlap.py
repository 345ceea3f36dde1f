"""overlap.py: the step goes on behind the next forward pass, in which each module waits for its own weights.

A module's weights are new when its forward begins, and all weights when the forward of the whole model ends, because the backward
pass and the rest of the program may read any. A module that is called alone waits for all. Reading the states of the model or of
the optimizer ends the step, too."""
import weakref


class Overlap:
    """The hooks of a model. A copy of the model has hooks that wait for nothing, because no engine has its parameters."""

    def __init__(self, optimizer=None, model=None):
        self._optimizer = optimizer and weakref.ref(optimizer)
        self._is_inside = False
        if model is None:
            return
        model.register_forward_pre_hook(self._enter)
        for module in model.modules():
            if next(module.parameters(recurse=False), None) is not None:
                module.register_forward_pre_hook(self._before)
            module.register_state_dict_pre_hook(self._whole)
        model.register_forward_hook(self._leave, always_call=True)

    def __reduce__(self):
        return Overlap, ()

    def _find(self):
        """The optimizer, if its step is open."""
        optimizer = self._optimizer and self._optimizer()
        return optimizer if optimizer and optimizer.is_open else None

    def _enter(self, *_):
        self._is_inside = True

    def _before(self, module, *_):
        if optimizer := self._find():
            if self._is_inside:
                optimizer.wait(module.parameters(recurse=False))
            else:
                optimizer.wait()

    def _leave(self, *_):
        self._is_inside = False
        self._whole()

    def _whole(self, *_):
        if optimizer := self._find():
            optimizer.wait()
