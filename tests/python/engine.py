# SPDX-License-Identifier: Apache-2.0
"""engine.py: models whose weights an engine owns train as models that have their weights, and cannot be used in a wrong way."""
import copy
import gc
import io
import os
import unittest
import weakref

import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import zoff
from models import Folders, distance, equal

WIDTH, TIME = 32, 16


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH, bias=False), torch.nn.Linear(WIDTH, WIDTH)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, 4, WIDTH // 4)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(torch.nn.Module):
    """A small language model with tied embeddings."""

    def __init__(self, recomputes=None, blocks=2):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(32, WIDTH), torch.nn.Parameter(0.1 * torch.randn(TIME, WIDTH))
        self.blocks = torch.nn.ModuleList(Block() for _ in range(blocks))
        self.head = torch.nn.Linear(WIDTH, 32, bias=False)
        self.head.weight = self.tokens.weight
        torch.nn.init.normal_(self.tokens.weight, std=0.2)
        self.recomputes = recomputes  # use_reentrant of checkpoint(); None: no recomputation

    def forward(self, text):
        x = self.tokens(text[:, :-1]) + self.places
        for block in self.blocks:
            x = block(x) if self.recomputes is None else checkpoint(block, x, use_reentrant=self.recomputes)
        return F.cross_entropy(self.head(x).float().flatten(0, 1), text[:, 1:].flatten())


class Others(torch.nn.Module):
    """Modules that do not just call those that have the parameters."""

    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(12, 2, batch_first=True)
        self.layer = torch.nn.TransformerEncoderLayer(12, 2, 24, dropout=0.0, batch_first=True)
        self.memory = torch.nn.LSTM(12, 12, batch_first=True)
        self.norm = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(12, 12))
        self.spread = torch.nn.Conv1d(12, 12, 3, padding=1)
        self.mean = torch.nn.BatchNorm1d(12)
        self.list = torch.nn.ParameterList([0.1 * torch.randn(12, 12).t() for _ in range(2)])
        self.unused = torch.nn.Linear(12, 12)
        self.empty, self.factor = torch.nn.Parameter(torch.ones(0)), torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        x = x + self.attention(x, x, x, need_weights=False)[0]
        x = self.memory(self.layer(x))[0]
        x = x + self.mean(self.spread(self.norm(x).transpose(1, 2))).transpose(1, 2)
        for weight in self.list:
            x = torch.tanh(x @ weight)
        return (F.linear(x, self.norm.weight[:3], self.unused.bias[:3]) * self.factor).square().mean()


def make(kind=GPT, dtype=torch.float32, **more):
    torch.manual_seed(5)
    return kind(**more).to(dtype)


def texts(steps, seed=0):
    chance = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        yield torch.randint(0, 5, (2, TIME + 1), generator=chance).cumsum(1) % 32


def lent(engine):
    """The parameters that are lent, after those were returned that nothing uses."""
    engine.optimizer._lender._drain()
    return [member.name for member in engine.optimizer._lender._lent.values()]


def weights_of(engine):
    with engine.gathered():
        return [param.detach().clone() for param in engine.model.parameters()]


class Engines(Folders, unittest.TestCase):
    def config(self, where, more=None, **others):
        """In files, few weights are in DRAM at a time."""
        small = {"stage3_param_persistence_threshold": 0, "offload_param": {"buffer_count": 2, "buffer_size": 4096}} if where == "nvme" else {}
        return zoff.Config({"zero_optimization": {**small, **(more or {})}}, threads=1,
                           **({"nvme": self.folder(), "host_memory": "1MiB", **others} if where == "nvme" else others))

    def engine(self, model=None, where="dram", lr=3e-3, **more):
        return zoff.torch.Engine(make() if model is None else model, lr=lr, config=self.config(where), **more)

    def train(self, engine, steps, seed=0):
        losses = []
        for text in texts(steps, seed):
            loss = engine.model(text)
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        return losses

    def plain(self, model, optimizer, steps, seed=0, clip=None):
        """As train(), with an optimizer."""
        losses = []
        for text in texts(steps, seed):
            loss = model(text)
            loss.backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses


class Training(Engines):
    def test_fifty_steps_as_torch_and_with_the_bits_of_the_optimizer(self):
        theirs = make(blocks=6)
        self.plain(theirs, torch.optim.AdamW(theirs.parameters(), lr=3e-3), 50, clip=0.5)
        for dtype in (torch.float32, torch.bfloat16):
            ours = make(dtype=dtype, blocks=6)
            steps = 50 if dtype is torch.float32 else 10
            losses = self.plain(ours, zoff.AdamW(ours.named_parameters(), lr=3e-3, clip_norm=0.5), steps)
            for where in ("dram", "nvme"):
                with self.subTest(dtype=dtype, where=where):
                    engine = self.engine(make(dtype=dtype, blocks=6), where, clip_norm=0.5)
                    self.assertEqual(losses, self.train(engine, steps))
                    self.assertEqual(steps, engine.last.t)
                    self.assertTrue(equal(ours.parameters(), weights_of(engine)))
                    if dtype is torch.float32:
                        self.assertLess(losses[-1], 0.9 * losses[0])
                        self.assertLessEqual(distance(theirs.parameters(), weights_of(engine)), 1e-5)
                    if where == "nvme":
                        plan = engine.plan()
                        self.assertLess(plan["weight_host_bytes"], plan["weight_bytes"] * 0.6)
                        self.assertEqual(plan["weight_bytes"], sum(param.numel() * dtype.itemsize for param in ours.parameters()))

    def test_muon_over_weights_of_the_engine(self):
        for where in ("dram", "nvme"):
            ours, theirs = make(), make()
            engine, optimizer = self.engine(ours, where, optimizer="Muon", adam_lr=1e-3), zoff.Muon(theirs.named_parameters(), lr=3e-3, adam_lr=1e-3)
            self.assertEqual(self.plain(theirs, optimizer, 4), self.train(engine, 4))
            self.assertTrue(equal(theirs.parameters(), weights_of(engine)))
            self.assertIn("momentum_buffer", {key for its in engine.optimizer.state_dict()["state"].values() for key in its})

    def test_modules_that_use_parameters_of_others(self):
        x = torch.randn(5, 7, 12, generator=torch.Generator().manual_seed(3))
        for where in ("dram", "nvme"):
            ours, theirs = make(Others), make(Others)
            optimizer, engine = zoff.SGD(theirs.named_parameters(), lr=0.5, momentum=0.5), self.engine(ours, where, 0.5, optimizer="SGD", momentum=0.5)
            for t in range(4):
                losses = []
                for model, backward in ((theirs, torch.Tensor.backward), (ours, engine.backward)):
                    loss = model(x)
                    backward(loss)
                    losses.append(loss.item())
                self.assertEqual(*losses)
                optimizer.step()
                optimizer.zero_grad()
                engine.step()
            self.assertEqual([], lent(engine))
            self.assertTrue(equal(theirs.parameters(), weights_of(engine)))
            for how in (torch.no_grad, torch.inference_mode):
                with how():
                    self.assertEqual(theirs.eval()(x).item(), ours.eval()(x).item())
            engine.backward(ours(x))
            engine.step()
            self.assertTrue(bool(ours(x).isfinite()))

    def test_recomputed_blocks_have_the_same_gradients(self):
        for recomputes in (False, True):
            ours, theirs, text = make(recomputes=recomputes), make(recomputes=recomputes), next(texts(1))
            engine = self.engine(ours, "nvme")
            theirs(text).backward()
            engine.backward(ours(text))
            self.assertEqual([], lent(engine))
            self.assertTrue(equal(*([param.grad for param in model.parameters()] for model in (ours, theirs))))
            engine.step()

    def test_modules_that_are_called_in_other_ways(self):
        def part(model, text):
            x = model.blocks[1](model.tokens(text))
            return F.linear(x.square(), model.blocks[1].out(x)[0]).mean()

        def automatic(model, text):
            with torch.autocast("cpu", torch.bfloat16):
                return model(text)

        for call in (part, automatic, lambda model, text: checkpoint(model, text, use_reentrant=False)):
            ours, theirs, text = make(), make(), next(texts(1))
            engine = self.engine(ours, "nvme" if call in (part, automatic) else "dram")
            call(theirs, text).backward()
            engine.backward(call(ours, text))
            self.assertEqual([], lent(engine))
            self.assertTrue(equal(*([param.grad for param in model.parameters() if param.grad is not None] for model in (ours, theirs))))
            engine.step()

    def test_gradients_add_up_and_can_be_differentiated(self):
        ours, theirs = make(), make()
        engine = self.engine(ours)
        for text in texts(2):
            engine.backward(ours(text))
            theirs(text).backward()
        self.assertTrue(equal(*([param.grad for param in model.parameters()] for model in (ours, theirs))))
        norms = []
        for model in (ours, theirs):
            model.zero_grad()
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
                grads = torch.autograd.grad(model(text), tuple(model.parameters()), create_graph=True)
            sum(grad.square().sum() for grad in grads).backward()
            norms.append([param.grad for param in model.parameters()])
        self.assertTrue(equal(*norms))

    def test_groups_schedules_and_rates(self):
        ours, theirs = make(), make()

        def groups(model):
            return [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
                    {"params": [p for p in model.parameters() if p.dim() < 2], "lr": 1e-2}]

        engine = self.engine(ours, params=groups(ours))
        optimizer = zoff.AdamW(groups(theirs), lr=3e-3)
        schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(its, 6) for its in (engine.optimizer, optimizer)]
        for seed in range(5):
            self.assertEqual(self.train(engine, 1, seed), self.plain(theirs, optimizer, 1, seed))
            for schedule in schedules:
                schedule.step()
        self.assertTrue(equal(theirs.parameters(), weights_of(engine)))
        states = torch.optim.AdamW(groups(make()))
        states.load_state_dict(engine.optimizer.state_dict())
        found, wanted = states.state_dict()["state"], optimizer.state_dict()["state"]
        self.assertTrue(equal([found[key]["exp_avg"] for key in wanted], [its["exp_avg"] for its in wanted.values()]))

    def test_frozen_parameters_stay_and_have_no_states(self):
        for where in ("dram", "nvme"):
            ours, theirs = make(), make()
            for model in (ours, theirs):
                model.tokens.weight.requires_grad_(False)
                model.blocks[0].requires_grad_(False)
                model.count = torch.nn.Parameter(torch.ones(3, dtype=torch.int8), requires_grad=False)
            engine, optimizer = self.engine(ours, where), zoff.AdamW(theirs.named_parameters(), lr=3e-3)
            self.assertEqual(self.train(engine, 3), self.plain(theirs, optimizer, 3))
            for model in (ours, theirs):
                model.head.weight.requires_grad_(False)
                model.blocks[1].requires_grad_(False)
            self.assertEqual(self.train(engine, 3), self.plain(theirs, optimizer, 3))
            self.assertTrue(equal(theirs.parameters(), weights_of(engine)))
            self.assertEqual(optimizer.state_dict()["state"].keys(), engine.optimizer.state_dict()["state"].keys())
            ours.blocks[0].requires_grad_(True)
            with self.assertRaisesRegex(RuntimeError, "blocks.0.norm1.weight has a gradient and no states, because it was frozen"):
                self.train(engine, 1)
            self.assertTrue(equal(theirs.parameters(), weights_of(engine)))

    def test_a_model_that_never_trains(self):
        ours = make().requires_grad_(False)
        engine, text = self.engine(ours, "nvme"), next(texts(1))
        self.assertEqual(make()(text).item(), ours(text).item())
        self.assertEqual([], lent(engine))


class Memory(Engines):
    def test_the_model_gives_its_memory_away(self):
        model, seen = make(), []
        for param in model.parameters():
            memory = (torch.frombuffer(bytearray(4 * param.numel()), dtype=torch.float32)).view(param.shape).copy_(param.detach())
            param.data = memory
            seen.append(weakref.ref(memory.untyped_storage()))
        del memory
        engine = self.engine(model)
        gc.collect()
        self.assertEqual([None] * len(seen), [one() for one in seen])
        self.assertTrue(all(bool(param.isnan().all()) for param in model.parameters()))
        self.assertTrue(equal(make().parameters(), weights_of(engine)))
        file = os.path.join(self.folder(), "model.pt")
        torch.save(make().state_dict(), file)
        with torch.device("meta"):
            model = make()
        model.load_state_dict(torch.load(file, mmap=True), assign=True)
        model.head.weight = model.tokens.weight
        self.assertTrue(equal(make().parameters(), weights_of(self.engine(model))))

    def test_few_weights_are_lent_at_a_time(self):
        for recomputes in (None, False):
            most = 0
            engine = self.engine(make(recomputes=recomputes, blocks=6), "nvme")
            lender = engine.optimizer._lender

            def count(member, borrow=lender._borrow):
                nonlocal most
                tensor = borrow(member)
                most = max(most, sum(its.count for its in lender._lent.values()))
                return tensor

            lender._borrow = count
            self.train(engine, 2)
            self.assertLess(most, sum(param.numel() for param in engine.model.parameters()) * (0.08 if recomputes is None else 0.25), recomputes)

    def test_a_pass_that_fails_gives_back_what_was_lent(self):
        for error in (RuntimeError, KeyboardInterrupt):
            ours = make()
            engine, reference = self.engine(ours, "nvme"), make()
            fails = True

            def fail(*_):
                if fails:
                    raise error("stop")

            ours.blocks[1].norm2.register_forward_pre_hook(fail)
            for _ in range(3):
                with self.assertRaises(error):
                    ours(next(texts(1)))
                if error is RuntimeError:
                    self.assertEqual([], lent(engine))
            fails = False
            text = next(texts(1))
            loss = ours(text)
            self.assertEqual([], lent(engine))
            self.assertEqual(reference(text).item(), loss.item())
            torch.ones(1, requires_grad=True).square()  # no hook of the engine is left
            fails = True
            with self.assertRaises(error):
                ours(text)
            fails = False
            engine.backward(loss)
            engine.step()
            self.assertEqual(1, engine.last.t)

            def fail_in_backward(grad):
                raise error("stop")

            loss = ours(text)
            handle = ours.blocks[1].mlp[0].register_full_backward_hook(lambda *_: fail_in_backward(None))
            with self.assertRaises(error):
                engine.backward(ours(text))
            handle.remove()
            ours.zero_grad()
            engine.backward(loss)
            self.assertEqual([], lent(engine))
            engine.step()

    def test_a_view_of_a_weight_keeps_its_memory_and_stops_the_step(self):
        ours = make()
        ours.blocks[1].mlp[0].register_forward_hook(lambda module, *_: kept.append(module.weight[:2]))
        kept, engine = [], self.engine(ours, "nvme")
        folder = self.folder()
        engine.save(folder)
        engine.backward(ours(next(texts(1))))
        for call in (engine.step, lambda: engine.load(folder), engine.close):
            with self.assertRaisesRegex(RuntimeError, r"\(\) cannot change parameter blocks.1.mlp.0.weight, because a tensor of the program"):
                call()
            self.assertTrue(torch.equal(kept[0], make().blocks[1].mlp[0].weight[:2]))
        kept.clear()
        engine.step()
        self.assertEqual(1, engine.last.t)

    def test_a_model_keeps_its_engine(self):
        engine = self.engine()
        model, seen = engine.model, weakref.ref(engine.optimizer._cohorts[0])
        del engine
        gc.collect()
        self.assertTrue(bool(model(next(texts(1))).isfinite()))
        del model
        gc.collect()
        self.assertIsNone(seen())


class Reading(Engines):
    def test_gathered_weights_are_copies_to_be_read(self):
        engine = self.engine(where="nvme")
        self.train(engine, 2)
        model, before = engine.model, weights_of(engine)
        with engine.gathered(model.blocks[0]):
            self.assertTrue(bool(model.blocks[0].qkv.weight.isfinite().all()))
            self.assertTrue(bool(model.blocks[1].qkv.weight.isnan().all()))
            with engine.gathered(), self.assertRaisesRegex(RuntimeError, r"step\(\) inside gathered\(\): leave it first"):
                self.train(engine, 1)
            model.zero_grad()
        with self.assertRaisesRegex(RuntimeError, "has written to parameter blocks.0.qkv.weight, whose weights zoff.torch.Engine owns"):
            with engine.gathered(), torch.no_grad():
                model.blocks[0].qkv.weight.zero_()
        with self.assertRaises(ArithmeticError), engine.gathered():
            raise ArithmeticError
        with engine.gathered():
            states, twin = model.state_dict(), copy.deepcopy(model)
        self.assertTrue(equal(before, weights_of(engine)))
        text = next(texts(1))
        plain = make()
        plain.load_state_dict(states)
        self.assertEqual(plain(text).item(), twin(text).item())
        self.plain(twin, zoff.AdamW(twin.named_parameters()), 2)
        self.assertTrue(equal(before, weights_of(engine)))

    def test_the_state_of_the_model_is_told_where_it_is(self):
        engine = self.engine()
        for model in (engine.model, engine.model.blocks[1]):
            with self.assertRaisesRegex(RuntimeError, r"are in zoff.torch.Engine: call save\(\) of the engine, or use .with engine.gathered"):
                model.state_dict()
        with self.assertRaisesRegex(RuntimeError, r"load them before it is made, or call load\(\) of the engine"):
            engine.model.load_state_dict(make().state_dict())
        for call in (copy.deepcopy, lambda model: torch.save(model, io.BytesIO())):
            with self.assertRaisesRegex(TypeError, "is copied or pickled inside .with engine.gathered"):
                call(engine.model)
        with self.assertRaisesRegex(RuntimeError, r"loads states together with weights: call load\(\) of the engine"):
            engine.optimizer.load_state_dict({})

    def test_weights_that_change_at_a_wrong_time(self):
        engine = self.engine()
        text = next(texts(1))
        late = engine.model(text)
        self.train(engine, 1)
        with self.assertRaisesRegex(RuntimeError, "has changed between the forward pass and this backward pass"):
            engine.backward(late)
        engine.model.zero_grad()
        engine.model.places.data = torch.zeros(3)
        with self.assertRaisesRegex(ValueError, r"parameter places has become torch.float32, \(3,\); it was torch.float32, \(16, 32\)"):
            engine.model(text)
        engine = self.engine(torch.nn.Sequential(torch.nn.Embedding(5, 3, max_norm=0.1)))
        with self.assertRaisesRegex(RuntimeError, "has written to parameter 0.weight"):
            engine.model(torch.ones(2, dtype=torch.long))


class Checkpoints(Engines):
    def model(self, seed=5):
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(6, 24), torch.nn.BatchNorm1d(24), torch.nn.Tanh(), torch.nn.Linear(24, 1))

    def batch(self, engine, steps, seed=1):
        chance = torch.Generator().manual_seed(seed)
        for _ in range(steps):
            engine.backward(engine.model(torch.randn(16, 6, generator=chance)).square().mean())
            engine.step()

    def state(self, engine):
        states = engine.optimizer.state_dict()["state"]
        return [*weights_of(engine), *engine.model.buffers(), *(value for its in states.values() for value in its.values())]

    def test_training_goes_on_with_the_same_bits(self):
        for dtype in (torch.float32, torch.bfloat16):
            folder, first = self.folder(), self.engine(make(dtype=dtype), "nvme")
            self.train(first, 4)
            first.optimizer.param_groups[0]["lr"] = 1e-3
            saving = first.save(folder, wait=False)
            self.train(first, 3, 1)
            saving.wait()
            for where in ("nvme", "dram"):
                second = self.engine(make(dtype=dtype).requires_grad_(True), where)
                self.train(second, 1)
                second.load(folder)
                self.train(second, 3, 1)
                self.assertEqual(first.last.t, second.last.t)
                self.assertTrue(equal(self.state(first), self.state(second)))
            model = make(dtype=dtype)
            optimizer = zoff.AdamW(model.named_parameters(), lr=1.0)
            optimizer.load(folder)
            self.plain(model, optimizer, 3, 1)
            self.assertTrue(equal(weights_of(first), model.parameters()))

    def test_buffers_are_saved(self):
        folder, first, second = self.folder(), self.engine(self.model()), self.engine(self.model(6))
        self.batch(first, 3)
        first.save(folder)
        with self.assertRaisesRegex(ValueError, r"has a buffer 1.running_mean of the shape \(24,\), which this model does not have"):
            self.engine(torch.nn.Sequential(torch.nn.Linear(6, 24))).load(folder, allow="*")
        second.load(folder)
        for engine in (first, second):
            self.batch(engine, 3, 2)
        self.assertTrue(equal(self.state(first), self.state(second)))
        third = self.engine(self.model(7), optimizer="Lion")
        third.load(folder, weights_only=True)
        self.batch(third, 1)
        self.assertEqual(1, third.last.t)

    def test_a_checkpoint_of_several_engines_is_refused(self):
        model, folder, engine = self.model(), self.folder(), self.engine(self.model())
        optimizer = zoff.AdamW(model.named_parameters())
        for params in ([model[0].weight], model.parameters()):
            for param in params:
                param.grad = torch.ones_like(param)
            optimizer.step()
        optimizer.save(folder)
        before = weights_of(engine)
        with self.assertRaisesRegex(ValueError, "has 2 engines, because parameters had their first gradients in different steps"):
            engine.load(folder)
        self.assertTrue(equal(before, weights_of(engine)))
        self.batch(engine, 1)

    def test_persistent_files_go_on(self):
        folder = self.folder()
        first = zoff.torch.Engine(self.model(), lr=0.1, config=zoff.Config(nvme=folder, persist=True))
        self.batch(first, 3)
        weights = weights_of(first)
        first.close()
        second = zoff.torch.Engine(self.model(6), lr=0.1, config=zoff.Config(nvme=folder, persist=True))
        self.assertEqual(3, second.optimizer.open())
        self.assertTrue(equal(weights, weights_of(second)))
        second.close()


class Refusals(Engines):
    def test_models_that_it_cannot_own(self):
        class FullyShardedDataParallel(torch.nn.Linear):
            pass

        class OnGpu(torch.nn.Parameter):
            device = torch.device("cuda", 0)

        elsewhere = torch.nn.Linear(2, 2)
        elsewhere.weight = OnGpu(elsewhere.weight.data)
        tied = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
        tied[1].weight = torch.nn.Parameter(tied[0].weight.data)
        compiled = torch.nn.Linear(3, 3)
        compiled.compile(backend="eager")
        for words, model, more in (
            ("optimizer is 'Rprop'; it must be one of Adagrad, Adam,", make(), {"optimizer": "Rprop"}),
            ("zoff.torch.Engine has no overlap; leave it out", make(), {"overlap": make()}),
            ("zoff.torch.Engine has no amsgrad; leave it out", make(), {"amsgrad": True}),
            ("the model is compiled.*leave torch.compile out", torch.compile(make(), backend="eager"), {}),
            ("the model is compiled.*leave torch.compile out", torch.nn.Sequential(compiled), {}),
            ("the model has a FullyShardedDataParallel; give the module itself", FullyShardedDataParallel(2, 2), {}),
            ("the model is in an engine already", self.engine().model.blocks, {}),
            ("parameters 0.weight and 1.weight have the same memory; make them one torch.nn.Parameter", tied, {}),
            ("a parameter of params is none of the model", make(), {"params": make().parameters()}),
            ("parameter 0.weight: it is on the device meta; give it memory by", torch.nn.Sequential(torch.nn.Linear(2, 2, device="meta")), {}),
            ("parameter weight is on cuda:0, and zoff.torch.Engine lends memory of the CPU", elsewhere, {}),
            ("parameter weight: it is of torch.float64", torch.nn.Linear(2, 2).double(), {}),
        ):
            with self.subTest(words=words), self.assertRaisesRegex(ValueError, words):
                self.engine(model, **more)
        model = self.engine().model
        for compiled in (torch.compile(model, backend="eager"), model):
            with self.assertRaisesRegex(RuntimeError, "leave torch.compile out"):
                compiled(next(texts(1)))
            model.compile(backend="eager")
        with self.assertRaisesRegex(ValueError, "zero_optimization.stage is 2; zoff.torch.Engine is stage 3"):
            zoff.torch.Engine(make(), config={"zero_optimization": {"stage": 2}})

    def test_a_model_that_was_refused_is_as_before(self):
        model, text = make(), next(texts(1))
        with self.assertRaisesRegex(zoff.Error, "stage3_max_live_parameters is 100: it could never be fetched; raise that key"):
            zoff.torch.Engine(model, config=self.config("nvme", {"stage3_max_live_parameters": 100}))
        self.assertEqual(make()(text).item(), model(text).item())
        self.assertEqual(sorted(make().state_dict()), sorted(model.state_dict()))
        self.train(self.engine(model), 1)

    def test_a_closed_engine_and_new_parameters(self):
        folder, engine = self.folder(), self.engine()
        with self.assertRaisesRegex(ValueError, "has the parameters that its model had when it was made"):
            engine.optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]})
        with engine:
            self.train(engine, 1)
            engine.save(folder)
        for call in (engine.step, lambda: engine.model(next(texts(1))), lambda: engine.load(folder), lambda: weights_of(engine)):
            with self.assertRaisesRegex(RuntimeError, "closed"):
                call()

    def test_a_budget_that_is_too_small_names_its_key(self):
        engine = zoff.torch.Engine(make(), config=self.config("nvme", {"stage3_max_live_parameters": 4500}))
        with self.assertRaisesRegex(zoff.NoMemory, "release unused slices, or raise stage3_max_live_parameters, which is 4500"):
            engine.model(next(texts(1)))
        self.assertEqual([], lent(engine))
