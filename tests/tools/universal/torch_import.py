#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch_import.py: state_dicts of PyTorch and the states of torch.optim arrive bit by bit, and an engine goes on from them.

torch_import.py ZOFF LIBZOFF API_JSON VENV_DIR

1. Checkpoints as nanoGPT saves them, folders as the Trainer of Hugging Face writes them, and others, after some steps: weights,
   moments and step of the import have the bits of PyTorch.
2. An engine that loads the checkpoint takes a step, whose weights are those of PyTorch's next step.
3. Files that cannot be imported are refused, and the ways that the messages name work.

PyTorch is that of the Python that runs this script, or the one that ZOFF_TEST_DEEPSPEED_PYTHON names, or of VENV_DIR, where the
test beside DeepSpeed installs it in full runs. Exits with 77 and a reason if there is none."""
import ctypes
import json
import os
import subprocess
import sys
import tempfile

from deepspeed_universal import STATES, Zoff, expect_equal, skip

WORDS, WIDTH, CONTEXT, STEPS, RATE = 19, 8, 6, 3, 1e-2


def has_torch(python):
    return os.path.exists(python) and subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0


def find_torch(venv):
    for python in (sys.executable, os.environ.get("ZOFF_TEST_DEEPSPEED_PYTHON", ""), os.path.join(venv, "bin", "python")):
        if has_torch(python):
            return python
    return skip(f"PyTorch is not installed; name a Python that has it in ZOFF_TEST_DEEPSPEED_PYTHON, or make {venv}")


def make_model(torch, tied=True):
    """A model with a mask, a counter, and weights that are not contiguous."""

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1 = torch.nn.LayerNorm(WIDTH)
            self.c_attn = torch.nn.Linear(WIDTH, WIDTH)
            self.c_proj = torch.nn.Linear(WIDTH, WIDTH, bias=False)
            self.register_buffer("bias", torch.tril(torch.ones(CONTEXT, CONTEXT)).view(1, 1, CONTEXT, CONTEXT))
            self.register_buffer("masked", torch.tensor([True, False]))

        def forward(self, x):
            mask = self.bias[0, 0].to(x.dtype)
            return x + self.c_proj(torch.tanh(mask @ self.c_attn(self.ln_1(x))))

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = torch.nn.Embedding(WORDS, WIDTH)
            self.h = torch.nn.ModuleList(Block() for _ in range(2))
            self.conv = torch.nn.Conv2d(2, 4, 2).to(memory_format=torch.channels_last)
            self.turned = torch.nn.Parameter(torch.randn(WIDTH, 3).t())
            self.ln_f = torch.nn.LayerNorm(WIDTH)
            self.lm_head = torch.nn.Linear(WIDTH, WORDS, bias=False)
            if tied:
                self.wte.weight = self.lm_head.weight

        def forward(self, words):
            x = self.wte(words)
            for block in self.h:
                x = block(x)
            x = x + self.turned.sum(0)
            picture = x[:, :4].reshape(-1, 2, 4, 4).to(memory_format=torch.channels_last)
            return self.lm_head(self.ln_f(x)) + self.conv(picture).sum()

    torch.manual_seed(5)
    return Model()


def backward(torch, model, step):
    chance = torch.Generator().manual_seed(step)
    words, wanted = (torch.randint(0, WORDS, (2, CONTEXT), generator=chance) for _ in range(2))
    model.zero_grad(set_to_none=True)
    torch.nn.functional.cross_entropy(model(words).flatten(0, 1).float(), wanted.flatten()).backward()


def train(torch, model, optimizer):
    for step in range(STEPS):
        backward(torch, model, step)
        optimizer.step()


def two_groups(model):
    """Matrices decay, and vectors do not."""
    params = [p for p in model.parameters() if p.requires_grad]
    return [{"params": [p for p in params if p.dim() >= 2], "weight_decay": 0.1}, {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0}]


def compare(torch, zoff, wrong, words, model, optimizer, folder, names=("exp_avg", "exp_avg_sq"), steps=STEPS):
    """The checkpoint has the weights, moments and step of PyTorch, bit by bit."""
    params = dict(model.named_parameters())
    kinds = {STATES.index({"momentum_buffer": "exp_avg", "sum": "exp_avg_sq"}.get(name, name)): name for name in names}
    found, manifest = zoff.read(torch, folder, params, sorted({0, *kinds}))
    for name, param in params.items():
        whole = param.detach().float().reshape(found[name]["fp32"].shape)
        expect_equal(torch, wrong, f"{words}: {name}", whole, found[name]["fp32"])
        for kind, key in kinds.items():
            want = optimizer.state[param][key].float().reshape(whole.shape)
            expect_equal(torch, wrong, f"{words}: {key} of {name}", want, found[name][STATES[kind]])
    if manifest["step"] != steps:
        wrong.append(f"{words}: the step is {manifest['step']}")
    return manifest


class Engine:
    """An engine of the library over the parameters of a model, by the layouts of API_JSON."""

    def __init__(self, zoff, api, model, owners, patterns):
        self.zoff, self.structs = zoff, json.load(open(api, encoding="utf-8"))["structs"]
        library, config, self.handle = zoff.library, ctypes.c_void_p(), ctypes.c_void_p()
        text = json.dumps({"optimizer": {"type": "AdamW", "params": {"lr": RATE, "weight_decay": 0.1}}, "zoff": {"no_decay": patterns}}).encode()
        zoff.check(library.zoff_config_open(None, ctypes.byref(config)))
        zoff.check(library.zoff_config_read_text(config, text, ctypes.c_size_t(len(text)), None))
        self.kept, described = [], b""
        self.weights = {}
        for name, param in model.named_parameters(remove_duplicate=False):
            owner = owners.get(name, name)
            if owner == name:
                self.weights[name] = param.detach().clone().contiguous()
            weights = self.weights[owner]
            text_of = ctypes.create_string_buffer(name.encode())
            gradients = param.grad.contiguous() if owner == name else None
            dims = (ctypes.c_size_t * param.dim())(*param.shape)
            self.kept += [text_of, gradients, dims]
            described += self.struct("zoff_param_desc", name=ctypes.addressof(text_of), value=weights.data_ptr(), count=weights.numel(),
                                     grad=gradients.data_ptr() if gradients is not None else 0, dims=ctypes.addressof(dims), dim_count=param.dim())
        opts = self.struct("zoff_engine_opts", struct_size=self.structs["zoff_engine_opts"]["size"], config=config.value)
        stride = self.structs["zoff_param_desc"]["size"]
        zoff.check(library.zoff_engine_open_sized(opts, described, ctypes.c_size_t(stride), ctypes.c_size_t(len(described) // stride), ctypes.byref(self.handle)))
        library.zoff_config_close(config)

    def struct(self, which, **values):
        about, out = self.structs[which], bytearray(self.structs[which]["size"])
        for field in about["fields"]:
            if field["name"] in values:
                out[field["offset"]:field["offset"] + field["size"]] = values.pop(field["name"]).to_bytes(field["size"], "little")
        assert not values, values
        return bytes(out)

    def step_from(self, folder):
        self.zoff.check(self.zoff.library.zoff_checkpoint_load(self.handle, folder.encode(), None))
        self.zoff.check(self.zoff.library.zoff_step(self.handle, None, None))
        self.zoff.library.zoff_engine_destroy(self.handle)


def compare_step(torch, zoff, api, wrong, words, model, optimizer, folder):
    """An engine goes on from the checkpoint as PyTorch goes on from its own states."""
    backward(torch, model, STEPS)
    vectors = [name for name, param in model.named_parameters() if param.dim() < 2]
    engine = Engine(zoff, api, model, {"lm_head.weight": "wte.weight"}, vectors)
    engine.step_from(folder)
    before = {name: param.detach().clone() for name, param in model.named_parameters()}
    optimizer.step()
    for name, param in model.named_parameters():
        moved = (param.detach() - before[name]).abs().max()
        apart = (param.detach() - engine.weights[name]).abs().max()
        if not apart <= 1e-5 * moved + 1e-7:
            wrong.append(f"{words}: after a step of the engine {name} is {apart} from PyTorch's, which has moved by {moved}")


def all_models(torch, zoff, api, folder, wrong):
    count = 0
    for count, (words, tied, make, save, extra) in enumerate(cases(torch), 1):
        model = make_model(torch, tied)
        optimizer, names = make(model)
        train(torch, model, optimizer)
        to, source = os.path.join(folder, f"to{count}"), os.path.join(folder, f"from{count}")
        os.mkdir(source)
        has_step = "exp_avg" in names or "sum" in names
        zoff.run("import", "torch", *save(model, optimizer, source), *extra, "-o", to, *([] if has_step else ["--step", str(STEPS)]))
        manifest = compare(torch, zoff, wrong, words, model, optimizer, to, names)
        ties = {param["name"]: param["tied_to"] for param in manifest["params"] if "tied_to" in param}
        if ties != ({"lm_head.weight": "wte.weight"} if tied else {}):
            wrong.append(f"{words}: the checkpoint has the ties {ties}")
        if names == ("exp_avg", "exp_avg_sq") and tied and words != "bf16":  # PyTorch rounds each step of an update to bf16
            compare_step(torch, zoff, api, wrong, words, model, optimizer, to)
    return count


def cases(torch):
    """(words, tied, make an optimizer and the names of its moments, save files and return arguments, more arguments)"""
    adam = ("exp_avg", "exp_avg_sq")
    masks = ["--skip", "h.?.bias"]

    def nanogpt(model, optimizer, to):
        state = {"_orig_mod." + name: tensor for name, tensor in model.state_dict().items()}
        torch.save({"model": state, "optimizer": optimizer.state_dict(), "model_args": {"n_layer": 2, "dropout": 0.0}, "iter_num": STEPS,
                    "best_val_loss": torch.tensor(1e9), "config": {"device": "cpu", "compile": True, "out_dir": "out"}}, to + "/ckpt.pt")
        return [to + "/ckpt.pt"]

    def trainer(model, optimizer, to):
        for group in optimizer.param_groups:  # as a scheduler of the rate leaves it
            group["initial_lr"] = RATE
        torch.save(model.state_dict(), to + "/pytorch_model.bin")
        torch.save(optimizer.state_dict(), to + "/optimizer.pt")
        torch.save({"lr": RATE}, to + "/training_args.bin")
        return [to, "--optimizer", to + "/optimizer.pt"]

    def shards(model, optimizer, to):
        state = list(model.state_dict().items())
        parts, tied = [dict(state[:9]), dict(state[9:])], "lm_head.weight"
        if tied in parts[1] and parts[1][tied].data_ptr() == parts[0]["wte.weight"].data_ptr():
            parts[0][tied] = parts[1].pop(tied)
        names = [f"pytorch_model-{i + 1:05}-of-00002.bin" for i in range(2)]
        for name, part in zip(names, parts):
            torch.save(part, os.path.join(to, name))
        index = {"weight_map": {key: name for name, part in zip(names, parts) for key in part}}
        with open(to + "/pytorch_model.bin.index.json", "w", encoding="utf-8") as file:
            json.dump(index, file, sort_keys=True)
        torch.save(optimizer.state_dict(), to + "/optimizer.pt")
        return [to, "--optimizer", to + "/optimizer.pt"]

    def parallel(model, optimizer, to):
        torch.save({"state_dict": {"module." + name: tensor for name, tensor in model.state_dict().items()},
                    "optimizer_states": [optimizer.state_dict()], "epoch": 1}, to + "/last.ckpt")
        return [to + "/last.ckpt"]

    def one_group(make, names):
        return lambda model: (make(model.parameters()), names)

    def named(model):
        params = list(model.named_parameters())[::-1]  # another order than that of the model
        return torch.optim.AdamW([{"params": params[::2], "weight_decay": 0.1}, {"params": params[1::2], "weight_decay": 0.1}], lr=RATE), adam

    yield "as nanoGPT", True, lambda model: (torch.optim.AdamW(two_groups(model), lr=RATE), adam), nanogpt, masks
    yield "as the Trainer", True, lambda model: (torch.optim.AdamW(two_groups(model), lr=RATE), adam), trainer, masks
    yield "in shards", True, lambda model: (torch.optim.AdamW(two_groups(model), lr=RATE, foreach=True), adam), shards, masks
    yield "untied", False, lambda model: (torch.optim.AdamW(two_groups(model), lr=RATE), adam), shards, []
    yield "as Lightning", False, one_group(lambda p: torch.optim.Adam(p, lr=RATE), adam), parallel, []
    yield "SGD", True, one_group(lambda p: torch.optim.SGD(p, lr=RATE, momentum=0.9), ("momentum_buffer",)), trainer, []
    yield "Adagrad", True, one_group(lambda p: torch.optim.Adagrad(p, lr=RATE), ("sum",)), trainer, []
    if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 6):
        yield "with names", False, named, nanogpt, []
    yield "bf16", True, lambda model: (torch.optim.AdamW(two_groups(model.bfloat16()), lr=RATE), adam), trainer, []


def compare_types(torch, zoff, folder, wrong):
    """Weights of each type, and views of one storage."""
    torch.manual_seed(9)
    base = torch.randn(40)
    tensors = {"half": torch.randn(5, 3).half(), "brain": torch.randn(7).bfloat16(), "double": torch.randn(4, 4, dtype=torch.float64),
               "first": base[:12].view(3, 4), "last": base[12:].view(4, 7).t(), "every": base[::3], "scalar": torch.tensor(2.5),
               "empty": torch.zeros(0, 3), "turned": torch.randn(6, 5).bfloat16().t(), "cube": torch.randn(3, 4, 5).permute(2, 0, 1)}
    beside = {"whole": torch.arange(3), "flags": torch.tensor([True]), "bytes": torch.zeros(2, dtype=torch.uint8)}
    path, to = os.path.join(folder, "types.pt"), os.path.join(folder, "types")
    torch.save({**tensors, **beside}, path)
    zoff.run("import", "torch", path, "-o", to)
    found, manifest = zoff.read(torch, to, tensors, [0])
    for name, tensor in tensors.items():
        expect_equal(torch, wrong, name, tensor.float().reshape(found[name]["fp32"].shape), found[name]["fp32"])
    types = {param["name"]: param["dtype"] for param in manifest["params"]}
    if (types["half"], types["brain"], types["double"], types["turned"]) != ("fp16", "bf16", "fp32", "bf16") or len(types) != len(tensors):
        wrong.append(f"the checkpoint has the types {types}")


def refusals(torch, zoff, folder, wrong):
    """Files of PyTorch that zoff cannot read are refused, and the ways that the messages name work."""
    import torch.distributed.checkpoint
    model, at = make_model(torch), lambda name: os.path.join(folder, name)
    state = model.state_dict()
    torch.save(state, at("legacy.pt"), _use_new_zipfile_serialization=False)
    torch.save(torch.nn.Linear(2, 2), at("module.pt"))
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), at("script.pt"))
    torch.save({"a": torch.zeros(2).to(torch.float8_e4m3fn)}, at("eight.pt"))
    torch.save({"a": torch.zeros(1).expand(4)}, at("expanded.pt"))
    torch.save([torch.zeros(2)], at("list.pt"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, amsgrad=True)
    train(torch, model, optimizer)
    torch.save({"model": state, "optimizer": optimizer.state_dict()}, at("amsgrad.pt"))
    torch.distributed.checkpoint.save({"model": state}, checkpoint_id=at("dcp"), no_dist=True)
    for name, words in {"legacy.pt": "in the format from before PyTorch 1.6; load it in Python and torch.save it again",
                        "module.pt": "a model as an object of its class", "script.pt": "is a TorchScript file",
                        "eight.pt": 'the type "torch.float8_e4m3fn"', "expanded.pt": "save it with .clone()",
                        "list.pt": "without a model that zoff finds", "amsgrad.pt": 'a state "max_exp_avg_sq"',
                        "dcp": "dcp_to_torch FOLDER model.pt"}.items():
        done = subprocess.run([zoff.tool, "import", "torch", at(name), "-o", at("refused")], capture_output=True, text=True, check=False)
        if done.returncode != 1 or words not in done.stderr or os.path.exists(at("refused")):
            wrong.append(f"{name}: exit {done.returncode}, {done.stderr}")
    torch.save(torch.load(at("legacy.pt")), at("again.pt"))
    torch.save(torch.load(at("module.pt"), weights_only=False).state_dict(), at("dict.pt"))
    torch.save(torch.jit.load(at("script.pt")).state_dict(), at("unscripted.pt"))
    command = [sys.executable, "-m", "torch.distributed.checkpoint.format_utils", "dcp_to_torch", at("dcp"), at("from_dcp.pt")]
    subprocess.run(command, capture_output=True, check=True)
    for name in ("again.pt", "dict.pt", "unscripted.pt", "from_dcp.pt"):
        zoff.run("import", "torch", at(name), "-o", at(name + ".zoff"))
    zoff.run("import", "torch", at("amsgrad.pt"), "--optimizer", "adam", "-o", at("amsgrad.zoff"))


def main():
    tool, library, api, venv = map(os.path.abspath, sys.argv[1:5])
    python = find_torch(venv)
    if python != sys.executable:
        os.execv(python, [python, os.path.abspath(__file__), tool, library, api, venv])
    import torch
    zoff, wrong = Zoff(tool, library), []
    with tempfile.TemporaryDirectory(dir=".") as folder:
        folder = os.path.abspath(folder)
        count = all_models(torch, zoff, api, folder, wrong)
        compare_types(torch, zoff, folder, wrong)
        refusals(torch, zoff, folder, wrong)
    for words in wrong:
        print("FAILED:", words)
    print(f"PyTorch {torch.__version__}: {count} models with optimizers, each tensor bit by bit")
    sys.exit(1 if wrong else 0)


main()
