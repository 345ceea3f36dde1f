"""overlapped.py: steps that go on behind the next forward pass have the bits of others."""
import copy
import pickle
import unittest

import torch

import zoff
from models import Folders, equal


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
    def pair(self, where="dram", steps=2, **more):
        """(model, optimizer) twice, the first one overlapped, after steps in which a parameter comes late."""
        found = []
        for overlaps in (True, False):
            model = make()
            optimizer = zoff.AdamW(model.named_parameters(), lr=1e-2, config=self.config(where), overlap=model if overlaps else None, **more)
            found.append((model, optimizer))
            model[1].scale.requires_grad_(False)
            self.losses(model, optimizer, 1)
            model[1].scale.requires_grad_(True)
            self.losses(model, optimizer, steps)
        return found

    def losses(self, model, optimizer, steps, seed=0, set_to_none=True):
        chance, found = torch.Generator().manual_seed(seed), []
        for _ in range(steps):
            x = torch.randn(16, 8, generator=chance)
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad(set_to_none)
            loss.backward()
            optimizer.step()
            found.append(float(loss.detach()))
        return found

    def test_losses_and_weights_have_the_same_bits(self):
        for where in ("dram", "nvme"):
            for clip in (None, 0.5):
                for set_to_none in (True, False):
                    with self.subTest(where=where, clip=clip, set_to_none=set_to_none):
                        (one, first), (other, second) = self.pair(where, clip_norm=clip)
                        self.assertTrue(first.is_open)
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
                self.assertTrue(optimizer.is_open)
                self.assertFalse(equal(model.parameters(), other.parameters()))
                ends(model, optimizer)
                self.assertFalse(optimizer.is_open)
                self.assertTrue(equal(model.parameters(), other.parameters()))

    def test_a_module_waits_for_its_own_weights(self):
        (model, optimizer), (other, _) = self.pair()
        seen = []
        model[0].register_forward_hook(lambda *_: seen.append([torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters())]))
        model(torch.ones(1, 8))
        self.assertEqual(([True, True], False), (seen[0][:2], all(seen[0])))
        self.assertFalse(optimizer.is_open)

    def test_a_module_that_is_called_alone_waits_for_all(self):
        (model, optimizer), _ = self.pair()
        model[3](torch.ones(1, 24)).sum().backward()
        self.assertFalse(optimizer.is_open)

    def test_a_forward_that_fails_ends_the_step(self):
        (model, optimizer), (other, _) = self.pair()
        with self.assertRaises(RuntimeError):
            model(torch.ones(1, 5))
        self.assertFalse(optimizer.is_open)
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
        self.assertTrue(optimizer.is_open)
        for other in (twin, second):
            other(torch.ones(1, 8))
        self.assertTrue(optimizer.is_open)
        del optimizer
        model(torch.ones(1, 8))
