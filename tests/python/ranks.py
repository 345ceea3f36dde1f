# SPDX-License-Identifier: Apache-2.0
"""ranks.py: under DistributedDataParallel, optimizers whose states are partitioned over ranks train as one process does with the same gradients."""
import copy
import os
import pickle
import random
import signal
import socket
import traceback
import unittest
from ctypes import byref, c_void_p

import torch
from torch.nn.parallel import DistributedDataParallel

import zoff
from zoff import _api as api, cohort
from zoff._load import lib
from zoff.errors import check
from models import Folders, equal

ADAM = {"lr": 1e-2, "clip_norm": 0.05}
PLUGIN = os.path.join(os.path.dirname(os.environ.get("ZOFF_LIBRARY", "")), "zoff", "libzoff_ucx.so")


class Net(torch.nn.Module):
    """A model whose last layer joins in the third step."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.late = torch.nn.Linear(64, 200), torch.nn.Linear(200, 64), torch.nn.Linear(64, 40)
        self.to(dtype)

    def forward(self, x, is_late):
        x = self.second(torch.tanh(self.first(x)))
        return self.late(x) if is_late else x


class Trainer:
    """A rank: a model under DistributedDataParallel, and copies of it that get the same averaged gradients."""

    def __init__(self, kind, config=None, dtype=torch.float32, **more):
        self.net = Net(dtype)
        self.parallel = DistributedDataParallel(self.net, find_unused_parameters=True)
        self.alone = copy.deepcopy(self.net)
        self.optimizer = kind(self.net.named_parameters(), config=config, ranks="ucx", **more)
        self.reference = kind(self.alone.named_parameters(), **more)
        self.chance, self.t = torch.Generator().manual_seed(torch.distributed.get_rank()), 0

    def grads(self):
        self.net.zero_grad()
        x = torch.randn(8, 64, generator=self.chance).to(next(self.net.parameters()).dtype)
        self.parallel(x, self.t >= 2).square().mean().backward()
        for param, same in zip(self.net.parameters(), self.alone.parameters()):
            same.grad = None if param.grad is None else param.grad.clone()
        self.t += 1

    def train(self, steps):
        for _ in range(steps):
            self.grads()
            self.optimizer.step()
            self.reference.step()
        assert equal(self.net.parameters(), self.alone.parameters()), f"step {self.t} has other bits"

    def same_states(self):
        """The states of all ranks, which are those of one process."""
        found, wanted = self.optimizer.state_dict(), self.reference.state_dict()
        assert found["param_groups"] == wanted["param_groups"] and found["state"].keys() == wanted["state"].keys()
        for number, states in wanted["state"].items():
            assert all(torch.equal(found["state"][number][name], state) for name, state in states.items()), number
        return found


def digest(model):
    return [float(param.detach().double().sum()) for param in model.parameters()]


def raised(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def free_port():
    """A port that is free as the next one is, at which ranks meet; below those that the kernel gives to connections."""
    while True:
        port = random.randrange(10000, 30000, 2)
        try:
            with socket.create_server(("127.0.0.1", port)), socket.create_server(("127.0.0.1", port + 1)):
                return port
        except OSError:
            continue


@unittest.skipUnless(os.path.exists(PLUGIN), "this build has no plug-in for UCX")
class Ranks(Folders, unittest.TestCase):
    def over(self, size, work, **variables):
        """Run work(rank) in processes of their own; return what each has returned, and None for one that has ended before."""
        port = free_port()
        store, pipes = os.path.join(self.folder(), "store"), []
        for rank in range(size):
            out, into = os.pipe()
            process = os.fork()
            if not process:
                try:
                    signal.alarm(100)
                    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), **variables)
                    torch.distributed.init_process_group("gloo", init_method=f"file://{os.path.abspath(store)}", rank=rank, world_size=size)
                    found = work(rank)
                    cohort._close_all()  # as at the end of a program
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
                os.write(into, pickle.dumps(found))
                os._exit(0)
            os.close(into)
            pipes.append((process, out))
        found = []
        for process, out in pipes:
            with os.fdopen(out, "rb") as file:
                text = file.read()
            _, status = os.waitpid(process, 0)
            self.assertIn(status, (0, 3 << 8), "a rank has failed")
            found.append(pickle.loads(text) if text else None)
        return found

    def test_ranks_have_the_bits_of_one_process(self):
        cases = [(zoff.AdamW, "nvme", torch.float32, ADAM), (zoff.Muon, "dram", torch.float32, {"lr": 0.02, "adam_lr": 1e-3}),
                 (zoff.SGD, "dram", torch.bfloat16, {"lr": 0.1, "momentum": 0.9})]
        for size in (2, 3):
            configs = [self.config(where) for _, where, _, _ in cases]

            def work(rank):
                found = []
                for config, (kind, _, dtype, more) in zip(configs, cases):
                    trainer = Trainer(kind, config, dtype, **more)
                    theirs = copy.deepcopy(trainer.net)
                    plan = trainer.optimizer.plan()["state_bytes"], trainer.reference.plan()["state_bytes"]
                    trainer.train(5)
                    states = trainer.same_states()
                    assert trainer.optimizer.last.norm == trainer.reference.last.norm
                    if kind is zoff.AdamW:
                        trainer.optimizer.load_state_dict(states)
                        torch.optim.AdamW(theirs.named_parameters()).load_state_dict(states)
                    trainer.train(2)
                    trainer.optimizer.close()
                    found.append((plan, digest(trainer.net)))
                return found

            for case, *ranks in zip(cases, *self.over(size, work)):
                with self.subTest(size=size, kind=case[0].__name__):
                    self.assertEqual(sum(own for (own, _), _ in ranks), ranks[0][0][1])
                    self.assertLess(max(own for (own, _), _ in ranks), 1.3 / size * ranks[0][0][1])
                    self.assertTrue(all(weights == ranks[0][1] for _, weights in ranks))

    def test_it_is_near_torch(self):
        def work(rank):
            trainer = Trainer(zoff.AdamW, lr=1e-2)
            trainer.reference = torch.optim.AdamW(trainer.alone.parameters(), lr=1e-2)
            for _ in range(5):
                trainer.grads()
                trainer.optimizer.step(lambda: trainer.reference.step())
            return all(torch.allclose(a, b, atol=1e-6) for a, b in zip(trainer.net.parameters(), trainer.alone.parameters()))

        self.assertEqual([True, True], self.over(2, work))

    def test_a_checkpoint_of_ranks_goes_on_on_others(self):
        folder, states = self.folder(), self.folder()

        def work(rank):
            trainer = Trainer(zoff.AdamW, zoff.Config(nvme=states, host_memory="1MiB"), state="reference", **ADAM)
            trainer.train(4)
            saving = trainer.optimizer.save(folder, wait=False)
            before = copy.deepcopy(trainer.net)
            trainer.train(1)
            assert saving.wait()
            assert "refers" in raised(ValueError, lambda: trainer.optimizer.load_state_dict({"zoff": {"folder": folder, "id": "", "t": 4}}))
            trainer.optimizer.load(folder)
            assert equal(trainer.net.parameters(), before.parameters())
            assert trainer.optimizer.state_dict()["zoff"]["t"] == 4
            trainer.reference.load(folder)
            trainer.train(2)
            return digest(trainer.net)

        self.assertEqual(*self.over(2, work))

        def later(rank):
            trainer = Trainer(zoff.AdamW, **ADAM)
            trainer.optimizer.load(folder)
            trainer.reference.load(folder)
            trainer.t = 4
            trainer.train(2)

        self.over(3, later)

    def test_ranks_go_on_from_their_files(self):
        states = self.folder()

        def work(rank):
            config = zoff.Config(nvme=states, host_memory="1MiB", persist=True)
            trainer = Trainer(zoff.AdamW, config, **ADAM)
            trainer.t = 2  # all parameters have gradients
            trainer.train(3)
            trainer.optimizer.close()
            with torch.no_grad():
                for param in trainer.net.parameters():
                    param.zero_()
            trainer.optimizer = zoff.AdamW(trainer.net.named_parameters(), config=config, ranks="ucx", **ADAM)
            assert trainer.optimizer.open() == 3
            trainer.train(2)
            trainer.optimizer.close()

        self.over(2, work)

    def test_a_scaler_skips_on_all_ranks_and_a_child_leaves_the_step_alone(self):
        def work(rank):
            trainer = Trainer(zoff.AdamW, lr=1e-2)
            trainer.t = 2
            scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
            for step in range(4):
                trainer.optimizer.zero_grad(set_to_none=False)
                loss = trainer.parallel(torch.randn(8, 64, generator=trainer.chance), True).square().mean()
                scaler.scale(loss * (float("inf") if rank and step == 2 else 1)).backward()
                scaler.step(trainer.optimizer)
                scaler.update()
            child = os.fork()
            if not child:
                os._exit("belongs to the process" not in raised(RuntimeError, trainer.optimizer.step))
            assert os.waitpid(child, 0)[1] == 0
            trainer.grads()
            trainer.optimizer.step()
            return trainer.optimizer.last.t

        self.assertEqual([4, 4], self.over(2, work))

    def test_gradients_and_calls_that_differ_are_named(self):
        def work(rank):
            trainer = Trainer(zoff.AdamW, **ADAM)
            trainer.train(2)
            trainer.grads()
            trainer.net.first.bias.grad += rank
            before = copy.deepcopy(trainer.net)
            first = raised(zoff.Error, trainer.optimizer.step)
            assert equal(trainer.net.parameters(), before.parameters())
            trainer.t = 2
            trainer.train(2)
            return first, raised(zoff.Comm, trainer.optimizer.state_dict if rank else trainer.optimizer.push)

        for different, order in self.over(2, work):
            self.assertRegex(different, r"the gradient of first.bias \(ranks\) is .* on rank 0 and .* on rank 1.*: wrap the model in Dist.*, or leave ranks out.*; "
                                        "repeat the step")
            self.assertIn("every rank must make the", order)

    def test_a_rank_that_is_lost_is_named(self):
        def work(ends):
            def lost(rank):
                comm = c_void_p()
                check(lib.zoff_comm_open(byref(api.zoff_comm_opts(backend=b"ucx", timeout_seconds=2)), byref(comm)))
                cohort._comms["ucx", os.getpid()] = comm
                trainer = Trainer(zoff.AdamW, **ADAM)
                trainer.train(2)
                trainer.grads()
                return ends() if rank == 1 else raised(zoff.Comm, trainer.optimizer.step)

            return lost

        for ends in (lambda: os._exit(3), lambda: None):  # without a word, and as after an exception
            first, _, third = self.over(3, work(ends))
            for found in (first, third):
                self.assertRegex(found, r"ranks? (\d, )*1\b")

    def test_other_arguments_that_cut_a_step_are_refused(self):
        model = torch.nn.Linear(4, 4)
        for more, words in (({"overlap": model}, "overlap does not work together with ranks, because other ranks write weights, too; leave one"),
                            ({"clip_norm": 1.0, "norm_group": object()}, "norm_group does not work together with ranks, because each rank has whole")):
            with self.subTest(more=more), self.assertRaisesRegex(ValueError, words):
                zoff.AdamW(model.parameters(), ranks="auto", **more)
        model.weight._local_tensor = model.weight.detach()[:2]
        with self.assertRaisesRegex(ValueError, "parameter weight is cut over ranks already, .* leave ranks out"):
            zoff.AdamW(model.named_parameters(), ranks="auto").open()
