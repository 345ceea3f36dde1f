# SPDX-License-Identifier: Apache-2.0
"""states.py: states go out and come back: as tensors, mapped files, references and checkpoints of zoff, and to PyTorch and back."""
import errno
import io
import os
import shutil
import unittest
import warnings
from ctypes import byref, c_size_t
from unittest import mock

import torch

import zoff
from zoff import _api as api
from zoff._load import lib
from zoff.checkpoint import Reader
from zoff.errors import check
from models import MATRICES, TORCH, Folders, Gradients, copies, distance, equal, named, weights, with_matrices

HOW = ("tensors", "mapped", "reference", "save")


def through_a_file(state_dict):
    file = io.BytesIO()
    torch.save(state_dict, file)
    file.seek(0)
    return torch.load(file)


class RoundTrips(Folders, unittest.TestCase):
    def trained(self, dtype, where, how, **more):
        model = weights(dtype)
        optimizer = zoff.AdamW(named(model), config=self.config(where), clip_norm=1.0, state=how if how != "save" else "auto", **more)
        gradients = Gradients()
        for t in range(5):
            gradients.give(model, without=(1,) if t < 2 else ())  # the second parameter comes late
            optimizer.step()
        return model, optimizer, gradients

    def again(self, model, optimizer, dtype, where, how, to="dram"):
        """A second optimizer with the states of the first one."""
        folder = self.folder()
        other = copies(model)
        second = zoff.AdamW(named(other), config=self.config(to), clip_norm=1.0)
        if how in ("reference", "save"):
            saving = optimizer.save(folder, wait=False)
        if how == "save":
            saving.wait()
            for param in other:
                param.data.zero_()
            second.load(folder)
        else:
            second.load_state_dict(through_a_file(optimizer.state_dict()))
        return other, second

    def test_the_next_steps_have_the_same_bits(self):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for number, how in enumerate(HOW):
                where, to = ("nvme", "dram") if (number + len(str(dtype))) % 2 else ("dram", "nvme")
                where = "nvme" if how == "mapped" else where
                with self.subTest(dtype=dtype, how=how, where=where, to=to):
                    model, optimizer, gradients = self.trained(dtype, where, how)
                    other, second = self.again(model, optimizer, dtype, where, how, to)
                    self.assertTrue(equal(model, other))
                    for _ in range(20):
                        gradients.give(model, other)
                        optimizer.step()
                        second.step()
                        self.assertEqual(optimizer.last.norm, second.last.norm)
                    self.assertTrue(equal(model, other))
                    self.assertEqual([23.0, 25.0], sorted({float(its["step"]) for its in second.state_dict()["state"].values()}))

    def test_weights_that_are_loaded_once_more_keep_the_bits(self):
        for dtype in (torch.bfloat16, torch.float16):
            model, optimizer, gradients = self.trained(dtype, "dram", "tensors")
            other, second = self.again(model, optimizer, dtype, "dram", "tensors")
            with torch.no_grad():
                for mine, its in zip(other, model):
                    mine.copy_(its)
            gradients.give(model, other)
            optimizer.step()
            second.step()
            self.assertTrue(equal(second.state_dict()["state"][0].values(), optimizer.state_dict()["state"][0].values()))

    def test_torch_goes_on_with_states_of_zoff_and_back(self):
        for kind in TORCH:
            with self.subTest(kind=kind.__name__):
                more = {"momentum": 0.9} if kind is zoff.SGD else {}
                ours, gradients = weights(), Gradients()
                straight = copies(ours)
                first, reference = kind(named(ours), **more), TORCH[kind](straight, **more)
                for _ in range(10):
                    gradients.give(ours, straight)
                    first.step()
                    reference.step()
                theirs = copies(ours)
                second = TORCH[kind](theirs, **more)
                second.load_state_dict(through_a_file(first.state_dict()))
                back = copies(ours)
                for _ in range(10):
                    gradients.give(theirs, straight)
                    second.step()
                    reference.step()
                back = copies(theirs)
                third = kind(named(back), **more)
                third.load_state_dict(through_a_file(second.state_dict()))
                for _ in range(10):
                    gradients.give(back, straight)
                    third.step()
                    reference.step()
                self.assertLessEqual(distance(back, straight), 1e-6)
                expected = reference.state[straight[0]]
                self.assertLessEqual(distance([third.state_dict()["state"][0][name] for name in expected], expected.values()), 1e-5)

    def test_muon_goes_on_with_its_states_and_with_those_of_torch(self):
        for dtype in (torch.float32, torch.bfloat16):
            ours, gradients = with_matrices(dtype), Gradients()
            first = zoff.Muon(ours, lr=0.02, adam_lr=1e-3)
            params = [param for _, param in ours]
            for _ in range(3):
                gradients.give(params)
                first.step()
            other = list(zip(MATRICES, copies(params)))
            second = zoff.Muon(other, lr=1.0, config=self.config("nvme"))
            second.load_state_dict(through_a_file(first.state_dict()))
            again = [param for _, param in other]
            for _ in range(2):
                gradients.give(params, again)
                first.step()
                second.step()
            self.assertTrue(equal(again, params))
            self.assertEqual(0.05, second.param_groups[0]["adam_lr_ratio"])
        if hasattr(torch.optim, "Muon"):
            theirs, mine = weights(shapes=[(33, 17), (12, 80)]), weights(shapes=[(33, 17), (12, 80)])
            torchs, its = torch.optim.Muon(theirs), zoff.Muon(mine)
            for optimizer, model in ((torchs, theirs), (its, mine)):
                gradients = Gradients()
                gradients.give(model)
                optimizer.step()
            moments = [state["momentum_buffer"] for state in torchs.state.values()]
            loaded = torch.optim.Muon(copies(mine))
            loaded.load_state_dict(through_a_file(its.state_dict()))
            self.assertLessEqual(distance([state["momentum_buffer"] for state in loaded.state.values()], moments), 1e-7)
            loaded.step()
            back = zoff.Muon(copies(theirs))
            back.load_state_dict(through_a_file(torchs.state_dict()))
            self.assertTrue(equal([state["momentum_buffer"] for state in back.state_dict()["state"].values()], moments))

    def test_a_checkpoint_of_muon_goes_on_and_is_no_other_optimizers(self):
        model, gradients, folder = with_matrices(torch.bfloat16), Gradients(), self.folder()
        first, params = zoff.Muon(model, lr=0.02, adam_lr=1e-3, ns_coefficients="quintic", adjust_lr_fn="spectral"), [param for _, param in model]
        for _ in range(3):
            gradients.give(params)
            first.step()
        first.save(folder)
        again = [torch.nn.Parameter(torch.zeros_like(param)) for param in params]
        second = zoff.Muon(list(zip(MATRICES, again)), lr=1.0, config=self.config("nvme"))
        second.load(folder)
        self.assertTrue(equal(again, params))
        for _ in range(2):
            gradients.give(params, again)
            first.step()
            second.step()
        self.assertTrue(equal(again, params))
        other = zoff.AdamW(list(zip(MATRICES, again)))
        with self.assertRaisesRegex(zoff.Error, "'fc.weight' has the moments of muon, here of AdamW"):
            other.load(folder)
        other.load(folder, weights_only=True)

    def test_states_of_a_matrix_are_not_those_of_another_parameter(self):
        model = with_matrices()
        first = zoff.Muon(model)
        Gradients().give([param for _, param in model])
        first.step()
        config = zoff.Config().set("zoff.adam_params", ["fc.weight"])
        second = zoff.Muon(list(zip(MATRICES, copies([param for _, param in model]))), config=config)
        with self.assertRaisesRegex(ValueError, "fc.weight has the states momentum_buffer, and needs exp_avg, exp_avg_sq"):
            second.load_state_dict(first.state_dict())

    def test_a_mapped_state_is_in_files_without_a_name(self):
        model, optimizer, _ = self.trained(torch.bfloat16, "nvme", "auto")
        state = optimizer.state_dict()["state"][1]
        with open("/proc/self/maps", encoding="utf-8") as file:
            places = [line.split() for line in file if "zoff-state-" in line]
        for name in ("exp_avg", "exp_avg_sq", "master"):
            self.assertTrue(any(int(at[0].split("-")[0], 16) == state[name].data_ptr() and "(deleted)" in at for at in places), name)
        self.assertFalse([name for name in os.listdir(optimizer._folder) if name.startswith("zoff-state-")])

    def test_a_full_disk_is_named(self):
        model, folder = weights(), self.folder()
        optimizer = zoff.AdamW(named(model), config=zoff.Config(nvme=folder))
        optimizer.open()
        with mock.patch("os.posix_fallocate", side_effect=OSError(errno.ENOSPC, "No space left")), self.assertRaises(OSError) as caught:
            optimizer.state_dict()
        self.assertEqual((errno.ENOSPC, folder), (caught.exception.errno, caught.exception.filename))
        self.assertIn("a file of 2244 bytes there; make room, or give the optimizer state=\"tensors\"", str(caught.exception))
        self.assertEqual([], os.listdir(folder))

    def test_a_mapped_state_takes_no_anonymous_memory(self):
        def anonymous():
            with open("/proc/self/status", encoding="utf-8") as file:
                return next(int(line.split()[1]) >> 10 for line in file if line.startswith("RssAnon"))

        model = weights(torch.bfloat16, shapes=((1 << 22,), (1 << 22,)))
        optimizer = zoff.AdamW(named(model), config=zoff.Config(nvme=self.folder(), host_memory="4MiB"))
        Gradients().give(model)
        optimizer.step()
        before = anonymous()
        kept = optimizer.state_dict()
        self.assertEqual(96 << 20, sum(tensor.nbytes for its in kept["state"].values() for tensor in its.values() if tensor.dim()))
        self.assertLessEqual(anonymous() - before, 16)

    def test_a_reference_is_of_one_checkpoint(self):
        model, optimizer, gradients = self.trained(torch.float32, "dram", "reference")
        with self.assertRaisesRegex(RuntimeError, r"call save\(\) before state_dict\(\)"):
            optimizer.state_dict()
        folder = self.folder()
        optimizer.save(folder, name="one")
        state_dict = optimizer.state_dict()
        with self.assertRaises(KeyError):
            torch.optim.AdamW(copies(model)).load_state_dict(state_dict)
        gradients.give(model)
        optimizer.step()
        optimizer.save(folder, name="one")
        second = zoff.AdamW(named(copies(model)))
        with self.assertRaisesRegex(ValueError, "refers to a checkpoint with id .*, and that in .*one has"):
            second.load_state_dict(state_dict)
        second.load_state_dict(optimizer.state_dict())

    def test_rates_of_a_checkpoint_are_those_of_its_engine(self):
        model, gradients, folder = weights(), Gradients(), self.folder()
        optimizer = zoff.AdamW(named(model), lr=0.5)
        gradients.give(model)
        optimizer.step()
        optimizer.save(folder)
        optimizer.param_groups[0]["lr"] = 0.25
        optimizer.load(folder)
        self.assertEqual(0.5, optimizer.param_groups[0]["lr"])
        other = zoff.AdamW(named(model[:2]), lr=0.25)
        with self.assertRaisesRegex(zoff.Error, r"is in the checkpoint only. allow names parameters"):
            other.load(folder)
        self.assertEqual(0.25, other.param_groups[0]["lr"])

    def test_a_checkpoint_has_names_and_numbers(self):
        model, optimizer, _ = self.trained(torch.float32, "dram", "auto")
        folder = self.folder()
        optimizer.param_groups[0]["lr"] = 0.25
        optimizer.save(folder)
        backwards = copies(model)
        second = zoff.AdamW(named(backwards)[::-1])  # by name, so in any order
        second.load(folder)
        self.assertEqual(0.25, second.param_groups[0]["lr"])
        self.assertEqual((0.9, 0.999), second.param_groups[0]["betas"])
        self.assertTrue(equal(model, backwards))
        with self.assertRaisesRegex(ValueError, "has no parameter of this optimizer"):
            zoff.AdamW([("other", weights()[0])]).load(folder)
        with self.assertWarnsRegex(UserWarning, "no states of 1 parameters, such as new: they begin anew"):
            zoff.AdamW([*named(copies(model)), ("new", weights()[0])]).load(folder)
        with self.assertWarnsRegex(UserWarning, "pass model.named_parameters"):
            unnamed = zoff.AdamW(weights())
            unnamed.open()
            unnamed.save(self.folder())

    def test_weights_alone_go_to_another_optimizer_from_a_checkpoint_that_is_pinned(self):
        model, optimizer, gradients = self.trained(torch.float32, "dram", "save")
        folder, best = self.folder(), copies(model)
        optimizer.save(folder, keep=1, pinned=True)
        for _ in range(2):
            gradients.give(model)
            optimizer.step()
            optimizer.save(folder, keep=1)
        self.assertEqual(["step-0000000005", "step-0000000007"], sorted(name for name in os.listdir(folder) if name.startswith("step")))
        other, anew = copies(model), copies(best)
        with self.assertRaisesRegex(zoff.Error, "weights_only"):
            zoff.SGD(named(copies(model)), lr=0.1, momentum=0.9).load(folder, name="step-0000000005")
        loaded, fresh = (zoff.SGD(named(params), lr=0.1, momentum=0.9) for params in (other, anew))
        loaded.load(folder, name="step-0000000005", weights_only=True)
        self.assertTrue(equal(other, best))
        self.assertEqual(0.1, loaded.param_groups[0]["lr"])
        for t in range(1, 4):
            gradients.give(other, anew)
            loaded.step()
            fresh.step()
            self.assertEqual(t, loaded.last.t)
        self.assertTrue(equal(other, anew))

    def test_parts_of_two_saves_are_refused(self):
        folders = [self.folder(), self.folder()]
        for folder in folders:
            _, optimizer, _ = self.trained(torch.float32, "dram", "save")
            optimizer.save(folder, name="one")
        part = "cohort-1.one"
        shutil.rmtree(os.path.join(folders[0], part))
        shutil.copytree(os.path.join(folders[1], part), os.path.join(folders[0], part))
        with self.assertRaisesRegex(ValueError, "cohort-1.one and .*one are of two saves"):
            optimizer.load(folders[0])

    def test_channels_last_and_transposed_parameters_keep_their_layout(self):
        model = weights(shapes=((4, 3, 5, 5), (6, 4)))
        model = [torch.nn.Parameter(model[0].detach().to(memory_format=torch.channels_last)), torch.nn.Parameter(model[1].detach().t())]
        theirs, gradients, folder = copies(model), Gradients(), self.folder()
        ours, reference = zoff.AdamW(named(model)), torch.optim.AdamW(theirs)
        for _ in range(5):
            gradients.give(model, theirs)
            ours.step()
            reference.step()
        self.assertLessEqual(distance(model, theirs), 1e-6)
        self.assertEqual(model[0].stride(), ours.state_dict()["state"][0]["exp_avg"].stride())
        for param in range(2):
            self.assertLessEqual(distance([ours.state_dict()["state"][param]["exp_avg"]], [reference.state[theirs[param]]["exp_avg"]]), 1e-6)
        reader, about = Reader(ours.save(folder).wait()), api.zoff_checkpoint_param()
        for param, order in ((0, [0, 2, 3, 1]), (1, [1, 0])):
            check(lib.zoff_checkpoint_reader_param(reader.handle, param, byref(about)))
            dims = (c_size_t * about.dim_count).from_address(about.dims)
            self.assertEqual([model[param].shape[d] for d in order], list(dims))
            self.assertEqual(order, reader.about()["orders"][f"p{param}"])
        other = copies(model)
        second = zoff.AdamW(named(other))
        second.load(folder)
        gradients.give(model, other)
        ours.step()
        second.step()
        self.assertTrue(equal(model, other))

    def test_states_that_persist_are_continued(self):
        folder, model, gradients = self.folder(), weights(torch.bfloat16), Gradients()
        straight = copies(model)
        reference = zoff.AdamW(named(straight))
        with zoff.AdamW(named(model), config=zoff.Config(nvme=folder, persist=True)) as optimizer:
            self.assertEqual(0, optimizer.open())
            for _ in range(3):
                gradients.give(model, straight)
                optimizer.step()
                reference.step()
        late = weights(torch.bfloat16)
        careless = zoff.AdamW(named(late), config=zoff.Config(nvme=folder, persist=True))
        Gradients().give(late)
        with self.assertRaisesRegex(RuntimeError, r"have the states of 3 steps. Call open\(\)"):
            careless.step()
        with zoff.AdamW(named(late), config=zoff.Config(nvme=folder, persist=True)) as optimizer:
            self.assertEqual(3, optimizer.open())
            self.assertTrue(equal(late, straight))
            gradients.give(late, straight)
            optimizer.step()
            reference.step()
            self.assertTrue(equal(late, straight))
            with self.assertRaisesRegex(RuntimeError, "all parameters are in one engine"):
                optimizer.add_param_group({"params": [("more", weights()[0])]})
                optimizer.param_groups[-1]["params"][0].grad = torch.ones(33, 17)
                optimizer.step()


class WrongStates(Folders, unittest.TestCase):
    def setUp(self):
        self.model, self.gradients = weights(), Gradients()
        self.optimizer = zoff.AdamW(named(self.model), lr=0.5)
        self.gradients.give(self.model)
        self.optimizer.step()
        self.good = through_a_file(self.optimizer.state_dict())

    def changed(self, change):
        state_dict = through_a_file(self.good)
        change(state_dict)
        return state_dict

    def test_a_wrong_state_dict_is_refused_and_changes_nothing(self):
        for words, change in (
            ("has no states, and this optimizer has those of 1 steps", lambda sd: sd["state"].clear()),
            ("exp_avg_sq is missing", lambda sd: sd["state"][0].pop("exp_avg_sq")),
            ("max_exp_avg_sq cannot be used", lambda sd: sd["state"][0].update(max_exp_avg_sq=torch.zeros(33, 17))),
            (r"exp_avg of p1 has the shape \(2,\); the parameter has \(1537,\)", lambda sd: sd["state"][1].update(exp_avg=torch.zeros(2))),
            ("has 1.5 as the number of steps of p2", lambda sd: sd["state"][2].update(step=1.5)),
            ("different number of parameter groups", lambda sd: sd["param_groups"].append({"params": []})),
            ("doesn't match the size", lambda sd: sd["param_groups"][0]["params"].pop()),
        ):
            with self.subTest(words=words):
                state_dict = self.changed(change)
                for group in state_dict["param_groups"]:
                    group["lr"] = 0.125
                with self.assertRaisesRegex(ValueError, words):
                    self.optimizer.load_state_dict(state_dict)
                self.assertEqual(0.5, self.optimizer.param_groups[0]["lr"])
                self.assertTrue(equal(self.good["state"][0].values(), self.optimizer.state_dict()["state"][0].values()))
        self.gradients.give(self.model)
        self.optimizer.step()

    def test_states_of_another_rule_are_refused(self):
        with self.assertRaisesRegex(ValueError, "are no states of zoff.SGD"):
            zoff.SGD(named(copies(self.model)), momentum=0.9).load_state_dict(self.good)

    def test_parameters_without_states_are_named(self):
        with self.assertWarnsRegex(UserWarning, "the state dict has no states of 1 parameters, such as p3: they begin anew"):
            self.optimizer.load_state_dict(self.changed(lambda sd: sd["state"].pop(3)))
        self.gradients.give(self.model)
        self.optimizer.step()
        self.assertEqual([1.0, 2.0], sorted({float(its["step"]) for its in self.optimizer.state_dict()["state"].values()}))

    def test_a_load_that_fails_half_way_allows_no_step(self):
        folder = os.path.join(self.folder(), "missing")
        os.mkdir(folder)
        optimizer = zoff.AdamW(named(copies(self.model)), config=zoff.Config(nvme=folder))
        os.rmdir(folder)
        with self.assertRaises(zoff.Error):
            optimizer.load_state_dict(self.good)
        with self.assertRaisesRegex(RuntimeError, "loading states failed and this optimizer has none.*Load them again"):
            optimizer.step()

    def test_an_empty_state_dict_opens_nothing(self):
        fresh = zoff.AdamW(named(copies(self.model)))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fresh.load_state_dict(fresh.state_dict())
        self.assertEqual([], fresh._cohorts)

    def test_loaded_tensors_are_copied(self):
        other = copies(self.model)
        second = zoff.AdamW(named(other), lr=0.5)
        second.load_state_dict(self.good)
        for its in self.good["state"].values():
            its["exp_avg"].fill_(7)
        self.gradients.give(self.model, other)
        self.optimizer.step()
        second.step()
        self.assertTrue(equal(self.model, other))
