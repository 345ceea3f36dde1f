# SPDX-License-Identifier: Apache-2.0
"""adapters.py: the programs of examples/python train the same with zoff, by the patches beside them, which have few lines."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "..", "..", "examples", "python")
LINES = {"script": 2, "trainer": 2, "accelerated": 2, "lightning_module": 2, "fsdp2": 3, "script_hidden": 5, "titan": 2, "script_engine": 2}


# DDP adds up gradients after the hooks of parameters, so those that were handed over in the backward pass are taken back.
DDP = """
import sys, torch, zoff
import torch.distributed as dist
dist.init_process_group("gloo")

def train(make):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 24), torch.nn.Tanh(), torch.nn.Linear(24, 1))
    parallel, chance = torch.nn.parallel.DistributedDataParallel(model), torch.Generator().manual_seed(dist.get_rank())
    optimizer = make(parallel)
    for _ in range(20):
        x = torch.randn(16, 8, generator=chance)
        loss = (parallel(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    parallel.state_dict()
    return torch.cat([param.detach().flatten() for param in model.parameters()])

config = zoff.Config(nvme=sys.argv[1], background_threads=1, speculation_memory="1MiB")
plain = train(lambda model: torch.optim.AdamW(model.parameters(), lr=1e-2))
for more in ({}, {"overlap": True}):
    found = train(lambda model: zoff.AdamW(model.named_parameters(), lr=1e-2, config=config, **{key: model for key in more}))
    print(float((found - plain).abs().max()), flush=True)
dist.barrier()
dist.destroy_process_group()
"""

# A container of torchtitan takes the steps of zoff.Muon, and goes on from its checkpoint.
TITAN_MUON = """
import copy
import torch
import zoff.torchtitan
from torchtitan.components.optimizer import ParamGroupConfig

def build(model, name="Muon"):
    group = ParamGroupConfig(pattern=".*", optimizer_name=name, optimizer_kwargs={"lr": 0.02, "adam_lr": 1e-3})
    return zoff.torchtitan.Optimizers.Config(param_groups=[group]).build(model_parts=[model])

def step(optimizer, model, number):
    x = torch.randn(64, 16, generator=torch.Generator().manual_seed(number))
    (model(x) - x[:, :1]).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()

torch.manual_seed(7)
models = [torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.Tanh(), torch.nn.Linear(24, 1))]
models += [copy.deepcopy(models[0]), copy.deepcopy(models[0])]
plain, container = zoff.Muon(models[0].named_parameters(), lr=0.02, adam_lr=1e-3), build(models[1])
for number in range(6):
    step(plain, models[0], number)
    step(container, models[1], number)
    if number == 2:
        models[2].load_state_dict(models[1].state_dict())
        later = build(models[2])
        later.load_state_dict(container.state_dict())
    if number > 2:
        step(later, models[2], number)
weights = [torch.cat([param.detach().flatten() for param in model.parameters()]) for model in models]
print(torch.equal(weights[0], weights[1]), torch.equal(weights[0], weights[2]))
try:
    build(models[0], "Lamb")
except ValueError as error:
    print(error)
"""


def numbers(text):
    """The numbers of each line, {what comes before the colon: number}."""
    return {key: float(value) for key, value in re.findall(r"^((?:step|epoch)[^:]*): loss (\S+)$", text, re.M)}


class Adapters(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.getcwd())
        self.addCleanup(folder.cleanup)
        self.work = folder.name

    def run_program(self, path, *arguments, ranks=0):
        start = [sys.executable] + (["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks else [])
        env = {**os.environ, "PYTHONPATH": os.path.join(HERE, "..", "..", "python", "src"), "OMP_NUM_THREADS": "1",
               "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run([*start, path, *arguments], cwd=self.work, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(0, done.returncode, done.stdout[-2000:] + done.stderr[-4000:])
        return done.stdout

    def patched(self, name, patch=None):
        """A copy of a program with the lines of its patch."""
        path, patch = os.path.join(self.work, f"{name}_zoff.py"), patch or name
        shutil.copy(os.path.join(EXAMPLES, name + ".py"), path)
        most, patch = LINES[patch], os.path.join(EXAMPLES, patch + ".diff")
        subprocess.run(["patch", "--silent", path, patch], check=True)
        with open(patch, encoding="utf-8") as file:
            lines = [line for line in file if line[0] in "+-" and line[:3] not in ("+++", "---")]
        self.assertLessEqual(max(sum(line[0] == sign for line in lines) for sign in "+-"), most, patch)
        return path

    def config(self, tier, ahead=0):
        path = os.path.join(self.work, tier + ".json")
        with open(path, "w", encoding="utf-8") as file:
            device = {"device": "nvme", "nvme_path": self.work} if tier == "nvme" else {"device": "cpu"}
            json.dump({"zero_optimization": {"offload_optimizer": device}, "zoff": {"threads": 1, "background_threads": ahead,
                                                                                            "speculation_memory": ahead << 20}}, file)
        return path

    def compare(self, name, first, tolerance, patch=None, ahead=0, **more):
        plain = numbers(self.run_program(os.path.join(EXAMPLES, name + ".py"), first, **more))
        self.assertGreater(len(plain), 3)
        path, found = self.patched(name, patch), []
        for tier in ("cpu", "nvme"):
            offloaded = numbers(self.run_program(path, first, self.config(tier, ahead), **more))
            found.append(offloaded)
            self.assertEqual(plain.keys(), offloaded.keys())
            for key, value in plain.items():
                self.assertAlmostEqual(value, offloaded[key], delta=tolerance, msg=f"{name}: {key}")
        self.assertEqual(*found, "the tier shows")

    def folder(self, name):
        path = os.path.join(self.work, name)
        os.makedirs(path, exist_ok=True)
        return path

    def test_plain_loop(self):
        self.compare("script", "30", 2e-4)

    def test_plain_loop_with_a_hidden_step(self):
        self.compare("script", "30", 2e-4, "script_hidden", ahead=1)

    def test_plain_loop_with_weights_of_an_engine(self):
        self.compare("script", "30", 2e-4, "script_engine")

    def test_accelerate(self):
        needs("accelerate")
        self.compare("accelerated", self.folder("state"), 2e-5)

    def test_lightning(self):
        needs("lightning")
        self.compare("lightning_module", self.folder("state"), 2e-5)

    def test_trainer(self):
        needs("transformers")
        needs("accelerate")
        self.compare("trainer", self.folder("run"), 2e-5)

    def test_models_of_transformers_with_weights_of_an_engine(self):
        needs("transformers")
        import torch
        import transformers
        import zoff

        small = {"vocab_size": 96, "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4}
        gpt2 = transformers.GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **small)
        mixtral = transformers.MixtralConfig(intermediate_size=48, num_key_value_heads=2, num_local_experts=3, **small)
        for kind, config in ((transformers.GPT2LMHeadModel, gpt2), (transformers.MixtralForCausalLM, mixtral)):
            for repeats in (False, True):
                found = []
                for where in (None, {"threads": 1}, {"threads": 1, "nvme": self.work, "host_memory": "1MiB"}):
                    torch.manual_seed(3)
                    model = kind(config).train()
                    if repeats:
                        model.gradient_checkpointing_enable()
                    optimizer = zoff.AdamW(model.named_parameters()) if where is None else zoff.torch.Engine(
                        model, config=zoff.Config({"zero_optimization": {"stage3_param_persistence_threshold": 0}}, **where)).optimizer
                    for _ in range(3):
                        text = torch.randint(96, (2, 16))
                        loss = model(input_ids=text, labels=text).loss
                        loss.backward()
                        optimizer.step()
                        optimizer.zero_grad()
                    words = model.eval().generate(text[:, :4], max_new_tokens=4, do_sample=False, pad_token_id=0)
                    found.append((loss.item(), words.tolist()))
                self.assertEqual(found[0], found[1], (kind, repeats))
                self.assertEqual(found[0], found[2], (kind, repeats))

    def test_trainer_resumes_with_the_same_bits(self):
        needs("transformers")
        needs("accelerate")
        path, folder = self.patched("trainer"), self.folder("run")
        for tier in ("cpu", "nvme"):
            whole = self.run_program(path, folder, self.config(tier)).splitlines()[-1]
            resumed = self.run_program(path, folder, self.config(tier), "--resume").splitlines()[-1]
            self.assertRegex(whole, r"^sum of the weights -?\d")
            self.assertEqual(whole, resumed)

    def test_fsdp2_on_two_ranks(self):
        self.compare("fsdp2", "20", 2e-5, ranks=2)

    def test_torchtitan_on_two_ranks(self):
        needs("torchtitan")
        self.compare("titan", self.folder("state"), 2e-5, ranks=2)

    def test_torchtitan_has_muon(self):
        needs("torchtitan")
        path = os.path.join(self.work, "titan_muon.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(TITAN_MUON)
        out = self.run_program(path).splitlines()
        self.assertEqual("True True", out[0])
        self.assertRegex(out[1], 'optimizer_name is "Lamb"; it must be one of AdamW, .*Muon')

    def test_overlap_is_refused_for_parameters_that_are_cut(self):
        path = self.patched("fsdp2")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace("norm_group=", "overlap=model, norm_group="))
        with self.assertRaisesRegex(AssertionError, "parameter 0.weight is cut over ranks.*leave overlap out"):
            self.run_program(path, "1", self.config("cpu"), ranks=1)

    def test_a_checkpoint_of_zoff_is_refused_for_parameters_that_are_cut(self):
        path = self.patched("fsdp2")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for call in ("save", "load"):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace("    optimizer.zero_grad()", f"    optimizer.{call}('checkpoints')"))
            with self.assertRaisesRegex(AssertionError, "parameter 0.weight is cut over ranks, and a checkpoint.*get_state_dict"):
                self.run_program(path, "1", self.config("cpu"), ranks=1)
            self.assertFalse(os.path.exists(os.path.join(self.work, "checkpoints")))

    def test_ddp_keeps_its_numbers(self):
        path = os.path.join(self.work, "ddp.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(DDP)
        for line in self.run_program(path, self.work, ranks=2).splitlines():
            self.assertLess(float(line), 1e-5)

    def test_an_error_of_one_rank_ends_the_step_of_all(self):
        path = self.patched("fsdp2")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace("    optimizer.step()\n", """
    if dist.get_rank() == 1 and step == 2:
        optimizer.param_groups[0]["lr"] = -1.0
    try:
        optimizer.step()
    except (RuntimeError, ValueError) as error:
        print(f"rank {dist.get_rank()}, step {step}:", error)
        break
"""))
        out = self.run_program(path, "4", self.config("cpu"), ranks=2)
        self.assertIn("rank 0, step 2: the step is given up before anything was changed, because rank 1 of norm_group has failed", out)
        self.assertRegex(out, "rank 1, step 2: .*lr is -1")

    def test_fsdp2_on_four_ranks(self):
        self.compare("fsdp2", "10", 2e-5, ranks=4)

    def checkpoint(self, config, folder, first, last, verb, dtype="float32", ranks=2):
        out = self.run_program(os.path.join(HERE, "checkpoint_program.py"), config, folder, first, last, verb, dtype, ranks=ranks)
        digest, weights = (re.search(f"^{key} (.*)$", out, re.M).group(1) for key in ("digest", "weights"))
        return digest, [float(text) for text in weights.split()]

    def near(self, one, other):
        self.assertEqual(len(one), len(other))
        for a, b in zip(one, other):
            self.assertAlmostEqual(a, b, delta=1e-5)

    def test_a_distributed_checkpoint_goes_on_with_the_same_bits_and_on_other_ranks(self):
        for tier, dtype in (("cpu", "float32"), ("nvme", "bfloat16")):
            folder = os.path.join(self.work, dtype)
            digest, weights = self.checkpoint(self.config(tier), folder, "0", "12", "save", dtype)
            self.assertEqual(digest, self.checkpoint(self.config(tier), folder, "6", "12", "load", dtype)[0])
            if dtype == "float32":  # gradients in 16 bits are rounded in the sum of ranks
                self.near(weights, self.checkpoint(self.config(tier), folder, "6", "12", "load", dtype, ranks=1)[1])

    def test_a_distributed_checkpoint_goes_to_torch_and_comes_from_it(self):
        for first, second in (("torch", self.config("cpu")), (self.config("cpu"), "torch")):
            folder = os.path.join(self.work, "to-" + os.path.basename(second))
            weights = self.checkpoint(first, folder, "0", "12", "save")[1]
            self.near(weights, self.checkpoint(second, folder, "6", "12", "load")[1])


def needs(module):
    """Skip where a package is missing; a full run installs it."""
    try:
        __import__(module)
    except ImportError:
        if os.environ.get("ZOFF_TEST_FULL", "0") == "0":
            raise unittest.SkipTest(f"{module} is not installed, and only a full run installs it") from None
        done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", module], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise unittest.SkipTest(f"{module} cannot be installed: {done.stdout.strip().splitlines()[-1]}") from None
