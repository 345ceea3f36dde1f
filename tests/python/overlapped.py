# SPDX-License-Identifier: Apache-2.0
"""overlapped.py: steps that go on behind the next forward pass have the bits of others."""
import contextlib
import copy
import gc
import itertools
import pickle
import unittest
import warnings
import weakref

import torch
from torch._dynamo.utils import counters

import zoff
from models import Folders, equal


AHEAD = ("zoff.background_threads", 1), ("zoff.speculation_memory", "1MiB")


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.scale = torch.nn.Linear(24, 24), torch.nn.Parameter(torch.ones(24))

    def forward(self, x):
        return torch.tanh(self.inner(x)) * self.scale


def make():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(8, 24), Block(), torch.nn.LayerNorm(24), torch.nn.Linear(24, 1))


class Overlapped(Folders, unittest.TestCase):
    def pair(self, where="dram", steps=2, ahead=(), **more):
        """(model, optimizer) twice, the first one overlapped, after steps in which a parameter comes late. `ahead` are settings with
        which the step begins in the backward pass."""
        found = []
        for overlaps in (True, False):
            model, config = make(), self.config(where)
            for key, value in ahead if overlaps else ():
                config.set(key, value)
            optimizer = zoff.AdamW(model.named_parameters(), lr=1e-2, config=config, overlap=model if overlaps else None, **more)
            found.append((model, optimizer))
            model[1].scale.requires_grad_(False)
            self.losses(model, optimizer, 1)
            model[1].scale.requires_grad_(True)
            self.losses(model, optimizer, steps)
        return found

    def losses(self, model, optimizer, steps, seed=0, set_to_none=True, passes=1, between=None):
        """`between` is called with the model and the optimizer between the backward pass and the step."""
        chance, found = torch.Generator().manual_seed(seed), []
        for _ in range(steps):
            optimizer.zero_grad(set_to_none)
            for number in range(passes):
                x = torch.randn(16, 8, generator=chance)
                with optimizer.no_sync() if number < passes - 1 else contextlib.nullcontext():
                    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
                    loss.backward()
            if between:
                between(model, optimizer)
            optimizer.step()
            found.append(float(loss.detach()))
        return found

    def given(self, optimizer):
        return len(optimizer._backward.given)

    def test_a_step_that_begins_in_the_backward_pass_has_the_same_bits(self):
        ways = list(itertools.product(("dram", "nvme"), (None, 0.5), (1, 3), (True, False), (AHEAD, AHEAD[:1], AHEAD[1:])))
        for where, clip, passes, set_to_none, ahead in ways:
            with self.subTest(where=where, clip=clip, passes=passes, set_to_none=set_to_none, ahead=ahead):
                counts = []
                (one, first), (other, second) = self.pair(where, ahead=ahead, clip_norm=clip)
                self.assertEqual(self.losses(one, first, 12, 1, set_to_none, passes, lambda _, optimizer: counts.append(self.given(optimizer))),
                                 self.losses(other, second, 12, 1, set_to_none, passes))
                self.assertEqual([len(list(one.parameters()))] * 12, counts)
                self.assertEqual(str(first.last.norm), str(second.last.norm))
                self.assertTrue(equal(one.parameters(), other.parameters()))

    def test_gradients_that_change_after_the_backward_pass_are_taken_back(self):
        def scale(model, _):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-2)

        def turn(model, _):  # elements that change places leave the sum as it is
            for param in model.parameters():
                param.grad.copy_(param.grad.flatten().flip(0).view_as(param.grad))

        def unscale(model, optimizer):
            scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
            scaler.scale(torch.ones(1))
            scaler.unscale_(optimizer)

        def add(model, _):
            (model(torch.ones(2, 8)).sum() + sum(param.sum() for param in model.parameters())).backward()

        for name, between, reason in (("scale", scale, "changed after the backward pass"), ("turn", turn, "changed after the backward pass"),
                                      ("unscale", unscale, "changed after the backward pass"), ("add", add, "several backward passes")):
            with self.subTest(name=name):
                (one, first), (other, second) = self.pair(ahead=AHEAD)
                with self.assertWarnsRegex(UserWarning, reason):
                    self.losses(one, first, 1, 1, between=between)
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    self.losses(one, first, 3, 2, between=between)
                self.assertEqual(0, self.given(first))
                self.losses(other, second, 1, 1, between=between)
                self.losses(other, second, 3, 2, between=between)
                first.wait()
                self.assertTrue(equal(one.parameters(), other.parameters()))

    def test_gradients_are_taken_back_where_the_step_is_another(self):
        def dropped(model, optimizer):
            optimizer.zero_grad(set_to_none=False)
            model(torch.ones(3, 8)).sum().backward()

        def dropped_by_the_model(model, _):
            model.zero_grad()
            model(torch.ones(3, 8)).sum().backward()

        def without(model, _):
            model[0].bias.grad = None

        def replaced(model, _):
            model[0].bias.grad = torch.ones(24)

        def weights(model, _):
            with torch.no_grad():
                model[0].weight.add_(1)

        def states(_, optimizer):
            optimizer.load_state_dict(optimizer.state_dict())

        def rate(_, optimizer):
            optimizer.param_groups[0]["lr"] = 0.5

        def saved(_, optimizer):
            optimizer.save(self.folder())

        for between in (dropped, dropped_by_the_model, without, replaced, weights, states, rate, saved):
            for where in ("dram", "nvme"):
                with self.subTest(name=between.__name__, where=where), warnings.catch_warnings():
                    warnings.simplefilter("error")
                    (one, first), (other, second) = self.pair(where, ahead=AHEAD, clip_norm=5.0)
                    for model, optimizer in ((one, first), (other, second)):
                        self.losses(model, optimizer, 1, 4, between=between)
                        self.losses(model, optimizer, 2, 5)
                        optimizer.wait()
                    self.assertTrue(equal(one.parameters(), other.parameters()))
                    (model, optimizer) = (one, first)
                    model(torch.ones(2, 8)).sum().backward()
                    self.assertTrue(self.given(optimizer))

    def test_an_exception_in_the_backward_pass_leaves_a_step_that_can_be_taken(self):
        (one, first), (other, second) = self.pair(ahead=AHEAD)

        def fail(_):
            raise KeyboardInterrupt

        for model, optimizer in ((one, first), (other, second)):
            handle = model[0].weight.register_hook(fail)
            with self.assertRaises(KeyboardInterrupt):
                self.losses(model, optimizer, 1, 6)
            handle.remove()
            self.losses(model, optimizer, 3, 7)
            optimizer.wait()
        self.assertTrue(equal(one.parameters(), other.parameters()))

    def test_an_interrupt_while_a_gradient_is_handed_over_leaves_a_step_that_can_be_taken(self):
        class Interrupted(dict):
            def __setitem__(self, key, value):
                raise KeyboardInterrupt

        for drops in (True, False):
            with self.subTest(drops=drops):
                (one, first), (other, second) = self.pair(ahead=AHEAD)
                first.wait()
                first._backward.given = Interrupted()
                for model in (one, other):
                    model.zero_grad()
                    with self.assertRaises(KeyboardInterrupt) if model is one else contextlib.nullcontext():
                        model(torch.ones(2, 8)).sum().backward()
                if drops:
                    self.losses(one, first, 2, 7)
                    self.losses(other, second, 2, 7)
                else:  # the first gradient that is complete is that of the last layer
                    for param in other.parameters():
                        param.grad = None if param is not other[3].weight and param is not other[3].bias else param.grad
                    for param in one.parameters():
                        param.grad = None if param is not one[3].weight and param is not one[3].bias else param.grad
                    for a, b in zip(one[3].parameters(), other[3].parameters()):
                        a.grad = b.grad.clone()
                    first.step()
                    second.step()
                first.wait()
                self.assertTrue(equal(one.parameters(), other.parameters()))

    def test_an_engine_ends_its_step_with_its_optimizer(self):
        (model, optimizer), (other, _) = self.pair(ahead=AHEAD)
        cohort = weakref.ref(optimizer._cohorts[0])
        gc.disable()
        self.addCleanup(gc.enable)
        del optimizer
        self.assertIsNone(cohort())
        self.assertTrue(equal(model.parameters(), other.parameters()))
        model(torch.ones(2, 8)).sum().backward()

    def test_losses_and_weights_have_the_same_bits(self):
        for where in ("dram", "nvme"):
            for clip in (None, 0.5):
                for set_to_none in (True, False):
                    with self.subTest(where=where, clip=clip, set_to_none=set_to_none):
                        (one, first), (other, second) = self.pair(where, clip_norm=clip)
                        self.assertTrue(first.is_stepping)
                        self.assertEqual(2, len(first._cohorts))
                        self.assertEqual(*(self.losses(model, optimizer, 20, 1, set_to_none) for model, optimizer in ((one, first), (other, second))))
                        self.assertEqual(first.last.t, second.last.t)
                        self.assertEqual(str(first.last.norm), str(second.last.norm))
                        self.assertTrue(equal(one.parameters(), other.parameters()))

    def test_what_reads_weights_or_states_ends_the_step(self):
        for name, ends in (("last", lambda model, optimizer: optimizer.last), ("wait", lambda model, optimizer: optimizer.wait()),
                           ("close", lambda model, optimizer: optimizer.close()),
                           ("zeros", lambda model, optimizer: optimizer.zero_grad(set_to_none=False)), ("model", lambda model, optimizer: model.state_dict()),
                           ("part", lambda model, optimizer: model[1].inner.state_dict()), ("states", lambda model, optimizer: optimizer.state_dict()),
                           ("save", lambda model, optimizer: optimizer.save(self.folder())), ("pull", lambda model, optimizer: optimizer.pull()),
                           ("load", lambda model, optimizer: optimizer.load_state_dict(optimizer.state_dict()))):
            with self.subTest(name=name):
                (model, optimizer), (other, _) = self.pair()
                self.assertTrue(optimizer.is_stepping)
                self.assertFalse(equal(model.parameters(), other.parameters()))
                ends(model, optimizer)
                self.assertFalse(optimizer.is_stepping)
                self.assertTrue(equal(model.parameters(), other.parameters()))

    def test_a_module_waits_for_its_own_weights(self):
        (model, optimizer), (other, _) = self.pair()
        seen = []
        model[0].register_forward_hook(lambda *_: seen.append([torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters())]))
        model(torch.ones(1, 8))
        self.assertEqual(([True, True], False), (seen[0][:2], all(seen[0])))
        self.assertFalse(optimizer.is_stepping)

    def test_a_module_waits_for_weights_of_modules_that_it_does_not_call(self):
        class Inner(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.attend = torch.nn.Embedding(5, 8), torch.nn.MultiheadAttention(8, 2)

            def forward(self, x):
                y = torch.nn.functional.embedding((x[:, 0] > 0).long(), self.words.weight) + x
                return self.attend(y, y, y)[0]

        found = []
        for overlaps in (True, False):
            torch.manual_seed(4)
            model = torch.nn.Sequential(Inner(), torch.nn.Linear(8, 1))
            optimizer = zoff.AdamW(model.named_parameters(), lr=1e-2, config=self.config("nvme"), overlap=model if overlaps else None)
            found.append((self.losses(model, optimizer, 10), model, optimizer))
        self.assertTrue(found[0][2].is_stepping)
        self.assertEqual(found[0][0], found[1][0])

    def test_a_pass_without_gradients_waits_for_all(self):
        (model, optimizer), _ = self.pair()
        seen = []
        model[0].register_forward_hook(lambda *_: seen.append(optimizer.is_stepping))
        with torch.no_grad():
            model(torch.ones(1, 8))
        self.assertEqual([False], seen)

    def test_a_model_without_the_parameters_is_refused(self):
        model = make()
        for other in (make(), model[0]):
            optimizer = zoff.AdamW(model.named_parameters(), overlap=other)
            with self.assertRaisesRegex(ValueError, "is not in the model that overlap names"):
                self.losses(model, optimizer, 1)

    def test_a_compiled_model_is_cut_at_its_begin_only(self):
        for parts, wraps in ((False, False), (False, True), (True, False)):
            found = []
            for overlaps in (False, True):
                torch._dynamo.reset()
                counters.clear()
                model = make()
                whole = torch.compile(model, backend="eager")
                optimizer = zoff.AdamW(model.named_parameters(), lr=1e-2, overlap=(whole if wraps else model) if overlaps else None)
                compiled = model if parts else whole
                if parts:
                    model[1].compile(backend="eager")
                found.append((self.losses(compiled, optimizer, 8), counters["stats"]["unique_graphs"]))
            (plain, _), (overlapped, graphs) = found
            self.assertEqual(plain, overlapped)
            self.assertLessEqual(graphs, 4)

    def test_a_module_that_is_called_alone_waits_for_all(self):
        (model, optimizer), _ = self.pair()
        model[3](torch.ones(1, 24)).sum().backward()
        self.assertFalse(optimizer.is_stepping)

    def test_a_forward_that_fails_ends_the_step(self):
        (model, optimizer), (other, _) = self.pair()
        with self.assertRaises(RuntimeError):
            model(torch.ones(1, 5))
        self.assertFalse(optimizer.is_stepping)
        self.assertTrue(equal(model.parameters(), other.parameters()))

    def test_a_gradient_that_changes_meanwhile_is_told(self):
        (model, optimizer), _ = self.pair()
        model[0].weight.grad.mul_(2)
        with self.assertRaisesRegex(RuntimeError, r"a gradient was changed between step\(\) and the end of the step"):
            optimizer.wait()
        self.losses(model, optimizer, 1)

    def test_a_weight_that_is_used_elsewhere_is_told_by_autograd(self):
        (model, optimizer), _ = self.pair()
        model[0].register_forward_pre_hook(lambda module, x: (x[0] * model[3].weight.square().sum(),))
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            model(torch.ones(1, 8)).sum().backward()

    def test_copies_of_the_model_have_no_engine(self):
        (model, optimizer), _ = self.pair()
        optimizer.wait()
        twin, second = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
        self.losses(model, optimizer, 1)
        self.assertTrue(optimizer.is_stepping)
        for other in (twin, second):
            other(torch.ones(1, 8))
        self.assertTrue(optimizer.is_stepping)
        del optimizer
        model(torch.ones(1, 8))
