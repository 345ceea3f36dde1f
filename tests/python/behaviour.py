# SPDX-License-Identifier: Apache-2.0
"""behaviour.py: what an optimizer does beside its arithmetic: refusals, failures, copies, forks, and the end of the process."""
import copy
import gc
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
import weakref

import torch

import zoff
from models import FULL, Folders, Gradients, copies, distance, equal, named, weights


def trained(steps=2, **more):
    model, gradients = weights(), Gradients()
    optimizer = zoff.AdamW(named(model), **more)
    for _ in range(steps):
        gradients.give(model)
        optimizer.step()
    return model, optimizer, gradients


class Arguments(Folders, unittest.TestCase):
    def test_what_the_optimizer_decides_is_refused_in_a_configuration(self):
        for words, source in (
            (r"configuration:1:\d+: optimizer.params.lr is 0.1; pass it to zoff.AdamW instead", {"optimizer": {"params": {"lr": 0.1}}}),
            ('optimizer.type is "SGD"; leave it out, because zoff.AdamW is the optimizer', {"optimizer": {"type": "SGD"}}),
            ("scheduler.type is \"WarmupLR\"; leave the section out and use torch.optim.lr_scheduler", {"scheduler": {"type": "WarmupLR"}}),
            ("fp16.enabled is true; set it to false and use torch.amp.GradScaler", {"fp16": {"enabled": True}}),
            ("gradient_accumulation_steps is 4; set it to 1: gradients add up in .grad", {"gradient_accumulation_steps": 4}),
        ):
            with self.subTest(source=source), self.assertRaisesRegex(ValueError, words):
                zoff.AdamW(named(weights()), config=source)
        zoff.AdamW(named(weights()), config={"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, "gradient_accumulation_steps": "auto"})

    def test_arguments_out_of_range_are_refused_at_once(self):
        for words, more in (("lr is -1", {"lr": -1}), ("beta", {"betas": (1.5, 0.9)}), ("clip_norm is -1", {"clip_norm": -1}),
                            ("zoff.AdamW has no amsgrad; leave it out", {"amsgrad": True}), ("no maximize", {"maximize": True}),
                            ("state is 'lazy'", {"state": "lazy"})):
            with self.subTest(more=more), self.assertRaisesRegex(ValueError, words):
                zoff.AdamW(named(weights()), **more)
        optimizer = zoff.AdamW(named(weights()), fused=True, foreach=False)
        with self.assertRaisesRegex(ValueError, "lr is -2"):
            optimizer.add_param_group({"params": [("more", weights()[0])], "lr": -2})
        self.assertEqual(1, len(optimizer.param_groups))

    def test_arguments_of_another_kind_are_named(self):
        for words, more in (("lr is a zoff.Config; pass it as config=", {"lr": zoff.Config()}), ("overlap is True; it must be the model", {"overlap": True}),
                            ("zoff.AdamW has no argument nvme; it has those of torch, and config, clip_norm", {"nvme": "."})):
            with self.subTest(more=more), self.assertRaisesRegex(TypeError, words):
                zoff.AdamW(named(weights()), **more)
        self.assertIn("`clip_norm` clips", zoff.AdamW.__doc__)
        self.assertIsNone(type("Own", (zoff.AdamW,), {}).__doc__)
        self.assertIn("'zoff.threads': '1'", repr(zoff.Config(threads=1)))

    def test_muon_refuses_what_it_would_not_train_rightly(self):
        matrix, cut = weights(shapes=[(4, 6)]), weights(shapes=[(4, 6)])[0]
        cut._local_tensor = cut.detach()[:2]  # as of a parameter that ranks share
        for words, kind, call in (
            ("w is cut over ranks, and Muon needs whole matrices; use zoff.AdamW", ValueError, lambda: zoff.Muon([("w", cut)]).open()),
            ("a parameter of the shape \\(1537,\\) has no name, and names decide", ValueError, lambda: zoff.Muon(weights())),
            ("eps is 1e-08; zoff.Muon divides by a norm plus 1e-07", ValueError, lambda: zoff.Muon(matrix, eps=1e-8)),
            ("ns_coefficients is \\(1, 2, 3\\); zoff.Muon has \\(3.4445", ValueError, lambda: zoff.Muon(matrix, ns_coefficients=(1, 2, 3))),
            ("adjust_lr_fn is 'none'; zoff.Muon has None, 'original'", ValueError, lambda: zoff.Muon(matrix, adjust_lr_fn="none")),
            ("momentum is 1; it must lie in", ValueError, lambda: zoff.Muon(matrix, momentum=1)),
            ("adam_lr is 0.1 and lr is 0; adam_lr", ValueError, lambda: zoff.Muon(matrix, lr=0, adam_lr=0.1)),
            ("zoff.muon_scale is \"spectral\"; pass it to zoff.Muon as adjust_lr_fn", ValueError,
             lambda: zoff.Muon(matrix, config=zoff.Config().set("zoff.muon_scale", "spectral"))),
            ("w has its rows and columns in another order in memory", ValueError,
             lambda: zoff.Muon([("w", torch.nn.Parameter(torch.ones(4, 6).T))]).open()),
            ("w has 5 dimensions.*zoff.adam_params", zoff.Error, lambda: zoff.Muon([("w", torch.nn.Parameter(torch.ones(2, 2, 2, 2, 2)))]).open()),
        ):
            with self.subTest(words=words), self.assertRaisesRegex(kind, words):
                call()

    def test_both_rates_of_muon_follow_a_scheduler_and_groups(self):
        model = {"fc": weights(shapes=[(4, 6)])[0], "bias": weights(shapes=[(6,)])[0]}
        optimizer = zoff.Muon([{"params": list(model.items()), "lr": 0.1}], lr=1.0, adam_lr=0.02)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
        for step in range(3):
            hyper = optimizer._hypers()[0]
            self.assertAlmostEqual(0.1 * 0.5**step, hyper.lr)
            self.assertAlmostEqual(0.02 * 0.5**step, hyper.adam_lr)
            Gradients().give(list(model.values()))
            optimizer.step()
            schedule.step()
        self.assertEqual(0.02, zoff.Muon(weights(shapes=[(4, 6)]), lr=0.02)._hypers()[0].adam_lr)

    def test_a_folder_is_looked_for_at_once(self):
        folder = self.folder()
        for missing, kind in ((os.path.join(folder, "missing"), FileNotFoundError), (__file__, NotADirectoryError)):
            with self.assertRaisesRegex(kind, "nvme must be a folder.*" + re.escape(missing)):
                zoff.AdamW(named(weights()), config=zoff.Config(nvme=[folder, missing]))

    def test_messages_have_the_names_of_python(self):
        for words, call in (
            (r"but host_memory is 1\.0 KiB: raise it to \d+ bytes, or give a folder by nvme$", lambda: trained(config=zoff.Config(host_memory=1024))),
            ("^zoff.Config: zoff.moments: \"q9\" is not known", lambda: zoff.Config(moments="q9")),
            ("^name is '../x'; expected", lambda: trained()[1].save(self.folder(), name="../x")),
        ):
            with self.assertRaisesRegex(zoff.Error, words):
                call()

    def test_parameters_that_zoff_cannot_train_are_named(self):
        for words, param in (
            ("w: it is of torch.float64; zoff trains", torch.nn.Parameter(torch.ones(3, dtype=torch.float64))),
            ("w: it is of torch.complex64; zoff trains", torch.nn.Parameter(torch.ones(3, dtype=torch.complex64))),
            ("w has gaps or overlaps in memory", torch.nn.Parameter(torch.ones(4, 4)[:, :2])),
            ("w: it is on the device meta; give it memory by model.to_empty", torch.nn.Parameter(torch.ones(3, device="meta"))),
        ):
            with self.subTest(words=words), self.assertRaisesRegex(ValueError, words):
                param.grad = torch.ones_like(param)
                zoff.AdamW([("w", param)]).step()
        param = torch.nn.Parameter(torch.ones(3, 3))
        param.grad = torch.ones(3, 3).to_sparse()
        with self.assertRaisesRegex(ValueError, "w: its gradient is sparse"):
            zoff.AdamW([("w", param)]).step()
        shared = torch.nn.Parameter(param.data)
        param.grad = shared.grad = torch.ones(3, 3)
        with self.assertRaisesRegex(ValueError, "one and other have the same memory"):
            zoff.AdamW([("one", param), ("other", shared)]).step()
        with self.assertRaisesRegex(zoff.Error, "parameters 0 and 1 are both named 'w'"):
            zoff.AdamW([("w", param), ("w", weights()[0])]).open()

    def test_parameters_on_two_devices_are_named_and_change_nothing(self):
        model, gradients = weights(), Gradients()
        far = torch.nn.Parameter(torch.ones(3, device="meta"))
        optimizer = zoff.AdamW([*named(model), ("far", far)])
        for steps in (0, 2):  # in the first engine, and in one of its own
            before = copies(model)
            gradients.give(model)
            far.grad = torch.ones_like(far)
            with self.assertRaisesRegex(ValueError, "parameter far: it is on the device meta"):
                optimizer.step()
            self.assertTrue(equal(model, before))
            far.grad = None
            for _ in range(2):
                optimizer.step()
            self.assertEqual(steps + 2, optimizer.last.t)

    def test_a_gradient_of_another_kind_is_named_and_changes_nothing(self):
        model, optimizer, gradients = trained()
        before = copies(model)
        model[1].grad = torch.ones(1537).to_sparse()
        with self.assertRaisesRegex(ValueError, "the gradient of p1 is of torch.float32, torch.sparse_coo"):
            optimizer.step()
        self.assertTrue(equal(model, before))
        gradients.give(model)
        optimizer.step()
        self.assertEqual(3, optimizer.last.t)

    def test_a_parameter_that_has_become_another_is_named(self):
        model, optimizer, _ = trained()
        model[1].data = torch.ones(7)
        with self.assertRaisesRegex(ValueError, r"parameter p1 has become torch.float32, \(7,\).*it was torch.float32, \(1537,\)"):
            optimizer.step()


class Following(Folders, unittest.TestCase):
    """Weights that a program moves or changes."""

    def both(self, change, dtype=torch.float32, where="dram", own=(), **more):
        """Distances and values after a change in the middle, beside torch in fp32."""
        ours, gradients = weights(dtype), Gradients()
        theirs = copies(ours, torch.float32)
        first, second = zoff.AdamW(named(ours), config=self.config(where, **more), **dict(own)), torch.optim.AdamW(theirs)
        for t in range(6):
            if t == 3:
                change(ours)
                change(theirs)
            gradients.give(ours, theirs)
            first.step()
            second.step()
        return ours, theirs, first

    def test_weights_changed_in_place(self):
        def change(model):
            with torch.no_grad():
                model[0].fill_(5)
                model[1].mul_(0.5)

        for where in ("dram", "nvme"):
            for dtype, most in ((torch.float32, 2e-6), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)):
                with self.subTest(dtype=dtype, where=where):
                    ours, theirs, _ = self.both(change, dtype, where)
                    self.assertLessEqual(distance(ours, theirs), most)

    def test_weights_in_other_memory(self):
        def change(model):
            for number, param in enumerate(model):
                param.data = param.data.clone() if number else torch.full_like(param, 0.25)

        for dtype, more, most in ((torch.float32, {}, 1e-6), (torch.bfloat16, {"master": "fp32"}, 2e-3), (torch.bfloat16, {}, 2e-3), (torch.float16, {}, 1e-3)):
            with self.subTest(dtype=dtype, more=more):
                ours, theirs, _ = self.both(change, dtype, **more)
                self.assertLessEqual(distance(ours, theirs), most)

    def test_moved_weights_keep_their_masters(self):
        def change(model):
            for param in model:
                param.data = param.data.clone()

        for dtype, more in ((torch.bfloat16, {"master": "fp32"}), (torch.bfloat16, {}), (torch.float16, {})):
            with self.subTest(dtype=dtype, more=more):
                moved, _, first = self.both(change, dtype, **more)
                stayed, _, second = self.both(lambda model: None, dtype, **more)
                self.assertTrue(equal(moved, stayed))
                for number in range(4):
                    self.assertTrue(equal(first.state_dict()["state"][number].values(), second.state_dict()["state"][number].values()))

    def test_masters_between_two_weights_are_kept(self):
        model = [torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))]
        masters = torch.tensor([1 + 2**-8, -1 - 2**-8, 1 + 3 * 2**-8, 1.0])  # ties, which zoff rounds away from zero
        optimizer = zoff.AdamW(named(model), config=zoff.Config(master="fp32"))
        states = {"step": 1, "exp_avg": torch.zeros(4), "exp_avg_sq": torch.zeros(4), "master": masters}
        optimizer.load_state_dict({**optimizer.state_dict(), "state": {0: states}})
        self.assertEqual([1 + 2**-7, -1 - 2**-7, 1 + 2**-6, 1], model[0].tolist())
        model[0].data = model[0].data.clone()
        self.assertTrue(torch.equal(masters, optimizer.state_dict()["state"][0]["master"]))

    def test_checksums_find_changes_that_torch_does_not_count(self):
        def change(model):
            model[0].data.fill_(5)
            model[2].data.mul_(0.5)

        ways = (("dram", torch.float16, {}), ("nvme", torch.bfloat16, {"master": "fp32"}), ("dram", torch.bfloat16, {"master": "split"}))
        for where, dtype, more in ways:
            for checks in (True, False):
                with self.subTest(dtype=dtype, more=more, checks=checks):
                    ours, theirs, _ = self.both(change, dtype, where, {"check_weights": checks}, **more)
                    (self.assertLessEqual if checks else self.assertGreater)(distance(ours, theirs), 2e-2 if checks or more != {"master": "split"} else 0)

    def test_pull_takes_weights_that_torch_does_not_count(self):
        model = weights(torch.float16)
        optimizer, gradients = zoff.AdamW(named(model)), Gradients()
        gradients.give(model)
        optimizer.step()
        model[0].data.fill_(5)
        optimizer.pull()
        self.assertEqual(5, float(optimizer.state_dict()["state"][0]["master"].max()))
        model[0].data.fill_(6)
        optimizer.push()
        self.assertEqual(5, float(model[0].detach().max()))

    def test_autograd_sees_the_step(self):
        model, optimizer, gradients = trained()
        loss = (model[0] ** 2).sum()
        gradients.give(model)
        optimizer.step()
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()

    def test_gradients_are_free_after_the_step(self):
        model, optimizer, gradients = trained()
        gradients.give(model)
        seen = [weakref.ref(param.grad) for param in model]
        optimizer.step()
        optimizer.zero_grad()
        gc.collect()
        self.assertEqual([None] * len(model), [one() for one in seen])

    def test_a_gradient_with_other_strides_is_adapted(self):
        ours, theirs = [torch.nn.Parameter(torch.ones(4, 6).mul_(0.5))], [torch.nn.Parameter(torch.ones(4, 6).mul_(0.5))]
        first, second = zoff.AdamW(named(ours)), torch.optim.AdamW(theirs)
        for number in range(3):
            grad = torch.arange(24.0).view(6, 4).t() if number else torch.arange(24.0).view(4, 6)
            ours[0].grad, theirs[0].grad = grad, grad.clone()
            first.step()
            second.step()
        self.assertLessEqual(distance(ours, theirs), 1e-7)


class Life(Folders, unittest.TestCase):
    def test_it_is_copied_before_its_first_step_only(self):
        model = weights()
        optimizer = zoff.AdamW(named(model), lr=0.25, config=zoff.Config(threads=1))
        same, twin = copy.deepcopy((model, optimizer))
        Gradients().give(same)
        twin.step()
        self.assertEqual(1, twin.last.t)
        self.assertIsNone(optimizer.last)
        self.assertEqual(0.25, pickle.loads(pickle.dumps(optimizer)).param_groups[0]["lr"])
        for call in (copy.deepcopy, pickle.dumps):
            with self.assertRaisesRegex(TypeError, r"cannot be copied or pickled; use state_dict\(\)"):
                call(twin)

    def test_a_closed_optimizer_refuses_steps(self):
        model, optimizer, gradients = trained()
        before = copies(model)
        with optimizer:
            pass
        gradients.give(model)
        for call in (optimizer.step, optimizer.state_dict, optimizer.open, optimizer.pull):
            with self.assertRaisesRegex(RuntimeError, "this optimizer is closed"):
                call()
        self.assertTrue(equal(model, before))
        optimizer.close()

    def test_a_child_leaves_the_engine_alone(self):
        folder = self.folder()
        model, optimizer, gradients = trained(config=zoff.Config(nvme=folder))
        gradients.give(model)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                optimizer.step()
            except RuntimeError as error:
                code = 0 if "belongs to the process that was forked" in str(error) else 2
            optimizer.close()
            del optimizer
            gc.collect()
            os._exit(code)
        self.assertEqual(0, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        optimizer.step()
        self.assertEqual(3, optimizer.last.t)

    def test_the_process_ends_with_engines_open(self):
        code = ("import torch, zoff\nw = torch.nn.Parameter(torch.ones(1000))\no = zoff.AdamW([('w', w)], config=zoff.Config(nvme='.'))\n"
                "w.grad = torch.ones(1000)\no.step()\n")
        folder = self.folder()
        ends = ("o.keep = o", "", "del w, o", "import sys; sys.exit(0)", "import gc; o = None; gc.collect()")
        for end in ends if FULL else ends[:1]:  # torch takes seconds to import
            done = subprocess.run([sys.executable, "-c", code + end], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, cwd=folder,
                                  capture_output=True, text=True, check=False)
            self.assertEqual((0, ""), (done.returncode, done.stderr), end)
            self.assertEqual([], os.listdir(folder))

    def test_an_optimizer_without_owner_is_freed(self):
        _, optimizer, _ = trained()
        seen = weakref.ref(optimizer._cohorts[0])
        del optimizer, _
        gc.collect()
        self.assertIsNone(seen())

    def test_an_interrupt_leaves_a_whole_step(self):
        model = [torch.nn.Parameter(torch.zeros(1 << 22)) for _ in range(2)]
        optimizer = zoff.SGD(named(model), lr=1.0)
        model[0].grad = torch.ones(1 << 22)
        optimizer.step()
        for param in model:
            param.grad = torch.ones(1 << 22)
        optimizer.step()  # two engines from here on
        expected = [2, 1]
        previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            for delay in (0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.007):
                try:
                    signal.setitimer(signal.ITIMER_REAL, delay)
                    optimizer.step()
                    time.sleep(0.05)
                except KeyboardInterrupt:
                    pass
                optimizer.state_dict()  # finishes what was interrupted
                values = [float(param.min()) for param in model]
                self.assertEqual(values, [float(param.max()) for param in model])
                self.assertIn([values[0] + expected[0], values[1] + expected[1]], ([0, 0], [-1, -1]))
                expected = [-value for value in values]
        finally:
            signal.signal(signal.SIGALRM, previous)

    def test_an_exception_of_a_closure_changes_nothing(self):
        model, optimizer, gradients = trained()
        before = copies(model)

        def closure():
            gradients.give(model)
            raise ArithmeticError("no loss")

        with self.assertRaises(ArithmeticError):
            optimizer.step(closure)
        self.assertTrue(equal(model, before))

    def test_a_closure_computes_gradients(self):
        ours = [torch.nn.Parameter(torch.ones(5))]
        theirs = copies(ours)
        for model, optimizer in ((ours, zoff.AdamW(named(ours))), (theirs, torch.optim.AdamW(theirs))):
            def closure():
                optimizer.zero_grad()
                loss = (model[0] ** 2).sum()
                loss.backward()
                return loss

            self.assertEqual(5.0, float(optimizer.step(closure).detach()))
            optimizer.step(closure)
        self.assertLessEqual(distance(ours, theirs), 1e-7)

    def test_steps_of_two_threads_come_one_after_the_other(self):
        model, optimizer, gradients = trained(0)
        gradients.give(model)
        threads = [threading.Thread(target=lambda: [optimizer.step() for _ in range(20)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(80, optimizer.last.t)


class Steps(Folders, unittest.TestCase):
    def test_a_step_that_is_not_finite_is_skipped_where_it_clips(self):
        model, optimizer, gradients = trained(clip_norm=1.0)
        before = copies(model)
        gradients.give(model)
        model[1].grad[3] = float("inf")
        optimizer.step()
        self.assertTrue(optimizer.last.skipped)
        self.assertTrue(equal(model, before))
        gradients.give(model)
        optimizer.step()
        self.assertFalse(optimizer.last.skipped)
        self.assertEqual(3, optimizer.last.t)

    def test_torch_and_zoff_do_not_check_where_nothing_clips(self):
        model, optimizer, gradients = trained()
        gradients.give(model)
        model[1].grad[3] = float("nan")
        optimizer.step()
        self.assertTrue(bool(model[1][3].isnan()))
        self.assertEqual(1, sum(int(param.isnan().sum()) for param in model))
        self.assertIsNone(optimizer.last.norm)

    def test_engines_skip_together(self):
        model, optimizer, gradients = trained(0, clip_norm=1.0)
        gradients.give(model, without=(1,))
        optimizer.step()
        gradients.give(model)
        optimizer.step()
        self.assertEqual(2, len(optimizer._cohorts))
        before = copies(model)
        gradients.give(model)
        model[0].grad[3] = float("inf")
        optimizer.step()
        self.assertTrue(optimizer.last.skipped)
        self.assertTrue(equal(model, before))

    def test_a_hundred_skipped_steps_in_a_row_are_an_error(self):
        model, optimizer, gradients = trained(0, clip_norm=1.0)
        for without in ((1,), ()):  # two engines
            gradients.give(model, without=without)
            optimizer.step()
        before = copies(model)
        for param in model:
            param.grad = torch.full_like(param, float("nan"))
        for _ in range(99):
            optimizer.step()
        with self.assertRaises(zoff.Error):
            optimizer.step()
        self.assertTrue(equal(model, before))
        gradients.give(model)
        optimizer.step()
        self.assertFalse(optimizer.last.skipped)
        self.assertEqual(3, optimizer.last.t)

    def test_the_scaler_of_torch(self):
        ours, theirs = weights(), weights()
        for model, optimizer in ((ours, zoff.AdamW(named(ours))), (theirs, torch.optim.AdamW(theirs))):
            scaler, gradients = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2), Gradients()
            for t in range(6):
                optimizer.zero_grad()
                factors = [torch.randn(param.shape, generator=gradients.chance) for param in model]
                loss = sum((param * factor).sum() for param, factor in zip(model, factors))
                scaler.scale(loss * (float("inf") if t == 3 else 1)).backward()
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model, 1.0)
                scaler.step(optimizer)
                scaler.update()
            self.assertEqual(16.0, scaler.get_scale())
        self.assertLessEqual(distance(ours, theirs), 1e-7)

    def test_errors_of_the_disk_come_before_the_step(self):
        folder = os.path.join(self.folder(), "missing")
        os.mkdir(folder)
        model, optimizer, _ = trained(0, config=zoff.Config(nvme=folder))
        os.rmdir(folder)
        before = copies(model)
        Gradients().give(model)
        with self.assertRaisesRegex(zoff.Error, "missing"):
            optimizer.step()
        self.assertTrue(equal(model, before))

    def test_a_rate_that_one_engine_refuses_changes_nothing(self):
        model, gradients = weights(), Gradients()
        first, second = named(model[:2]), named(model)[2:]
        optimizer = zoff.AdamW([{"params": first}, {"params": second}])
        for without in ((2, 3), ()):
            gradients.give(model, without=without)
            optimizer.step()
        before = copies(model)
        gradients.give(model)
        optimizer.param_groups[1]["lr"] = -1
        with self.assertRaisesRegex(zoff.Error, "group 1: lr is -1"):
            optimizer.step()
        self.assertTrue(equal(model, before))
        optimizer.param_groups[1]["lr"] = 1e-3
        optimizer.step()
        self.assertEqual(3, optimizer.last.t)

    def test_the_plan_is_known_before_the_first_step(self):
        model, optimizer, gradients = trained(0, config=zoff.Config(host_memory="1MiB"))
        plan = optimizer.plan()
        self.assertEqual([], optimizer._cohorts)
        self.assertEqual(sum(param.numel() for param in model), plan["elements"])
        gradients.give(model)
        optimizer.step()
        self.assertEqual(plan["state_bytes"], optimizer.plan()["state_bytes"])

    def test_the_budget_is_shared_by_engines(self):
        model, gradients = weights(shapes=((1 << 17,), (1 << 17,))), Gradients()
        optimizer = zoff.AdamW(named(model), config=self.config("nvme"))  # 1 MiB, and states of 2 MiB
        for without in ((1,), ()):
            gradients.give(model, without=without)
            optimizer.step()
        self.assertEqual(2, len(optimizer._cohorts))
        self.assertLessEqual(optimizer.plan()["host_bytes"], 1 << 20)

    def test_a_save_goes_beside_steps(self):
        model, optimizer, gradients = trained()
        folder, then = self.folder(), copies(model)
        saving = optimizer.save(folder, wait=False)
        for _ in range(3):
            gradients.give(model)
            optimizer.step()
        path = saving.wait()
        self.assertTrue(saving.done())
        other = copies(weights(seed=9))
        zoff.AdamW(named(other)).load(folder, name=os.path.basename(path))
        self.assertTrue(equal(other, then))
        with self.assertRaisesRegex(RuntimeError, "nothing to save before the first step"):
            zoff.AdamW(named(weights())).save(folder)
