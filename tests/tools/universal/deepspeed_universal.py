#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""deepspeed_universal.py: checkpoints move from DeepSpeed to zoff and back, bit by bit.

deepspeed_universal.py ZOFF LIBZOFF VENV_DIR [--install]

1. Files of torch.save() with every kind of tensor become a checkpoint with the same numbers, and torch.load() reads the export.
2. A universal checkpoint that DeepSpeed has written, trained on the CPU, becomes a checkpoint with the same states and step.
3. DeepSpeed loads the export of it after the pattern of an earlier step, and has the same states, step and loss scale.
4. Models of Hugging Face's transformers, with tied weights and without, in one file and in several: imported, exported and read
   again, their weights and outputs have the same bits. A shard alone is refused.

ZOFF_TEST_INTEROP_CELLS=1,3 runs these cells of 3 alone.

PyTorch and DeepSpeed are taken from the Python that runs this script or the one that ZOFF_TEST_DEEPSPEED_PYTHON names, otherwise
from VENV_DIR. With --install, or in a full run (ZOFF_TEST_FULL), what is missing is installed from PyPI into VENV_DIR, which takes
gigabytes. Exits with 77 and a reason if there is no DeepSpeed."""
import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

SKIP = 77
INSTALL_SECONDS = 1500
DISK_BYTES = 14 << 30  # PyPI's wheel of PyTorch for x86-64 includes GPU libraries
PACKAGES = (["torch", "numpy", "setuptools", "wheel", "ninja", "safetensors", "transformers"], ["--no-build-isolation", "deepspeed"])
# ZeRO stage, type of the weights or "offload", tied, and ranks. All pairs of values; a run without ZOFF_TEST_FULL has the first two.
CELLS = [(2, "fp16", True, 1), (3, "bf16", True, 2), (1, "bf16", True, 1), (1, "fp16", False, 2), (1, "offload", True, 2),
         (2, "bf16", False, 2), (2, "offload", False, 1), (3, "fp16", True, 1), (3, "offload", False, 2), (1, "fp32", False, 1)]
FIRST_CELLS = 2
STATES = ("fp32", "exp_avg", "exp_avg_sq")     # in the order of zoff_state_kind
HERE = os.path.dirname(os.path.abspath(__file__))


def skip(reason):
    print("SKIPPED:", reason)
    sys.exit(SKIP)


def is_full():
    return os.environ.get("ZOFF_TEST_FULL", "0") not in ("", "0")


def can_import(python):
    environment = dict(os.environ, DS_ACCELERATOR="cpu")
    return subprocess.run([python, "-c", "import torch, deepspeed"], capture_output=True, env=environment, check=False).returncode == 0


def install(venv, may_install):
    """Return the Python of VENV_DIR, with PyTorch and DeepSpeed installed in it."""
    python = os.path.join(venv, "bin", "python")
    if os.path.exists(python) and can_import(python):
        return python
    if not may_install:
        skip(f"DeepSpeed is not installed; a full run installs it into {venv}, or name a Python in ZOFF_TEST_DEEPSPEED_PYTHON")
    os.makedirs(venv, exist_ok=True)
    if shutil.disk_usage(venv).free < DISK_BYTES:
        skip(f"DeepSpeed is not installed, and {venv} has less than {DISK_BYTES >> 30} GiB free")
    started = time.monotonic()
    pip = [python, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    commands = ([] if os.path.exists(python) else [[sys.executable, "-m", "venv", venv]]) + [pip + packages for packages in PACKAGES]
    environment = dict(os.environ, DS_ACCELERATOR="cpu", DS_BUILD_OPS="0")
    for command in commands:
        left = INSTALL_SECONDS - (time.monotonic() - started)
        try:
            done = subprocess.run(command, timeout=left, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, check=False)
        except subprocess.TimeoutExpired:
            skip(f"DeepSpeed is not installed, and installing it took more than {INSTALL_SECONDS} s")
        if done.returncode:
            lines = [line for line in done.stdout.strip().splitlines() if line.strip()] or ["no output"]
            skip(f"DeepSpeed is not installed, and '{' '.join(command)}' failed: {lines[-1]}")
    if not can_import(python):
        skip("DeepSpeed from PyPI was installed but does not import")
    return python


class Zoff:
    """The command, and the reader of checkpoints in the library."""

    def __init__(self, tool, library):
        self.tool = tool
        self.library = ctypes.CDLL(library)
        self.library.zoff_last_error.restype = ctypes.c_char_p

    def run(self, *arguments):
        done = subprocess.run([self.tool, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            print("FAILED:", arguments, done.stdout)
            sys.exit(1)

    def check(self, status):
        if status < 0:
            print("FAILED:", self.library.zoff_last_error().decode())
            sys.exit(1)

    def read(self, torch, folder, names, kinds=range(len(STATES))):
        """Return {name: {state: tensor}} and the manifest of the newest checkpoint."""
        reader, found = ctypes.c_void_p(), {}
        self.check(self.library.zoff_checkpoint_reader_open(folder.encode(), None, ctypes.byref(reader)))
        length = ctypes.c_size_t()
        self.check(self.library.zoff_checkpoint_reader_manifest(reader, None, ctypes.c_size_t(0), ctypes.byref(length)))
        text = ctypes.create_string_buffer(length.value + 1)
        self.check(self.library.zoff_checkpoint_reader_manifest(reader, text, ctypes.c_size_t(length.value + 1), None))
        manifest = json.loads(text.value)
        about = {urllib.parse.unquote(param["name"]): param for param in manifest["params"]}
        for name in names:
            index, count = ctypes.c_size_t(), 1
            self.check(self.library.zoff_checkpoint_reader_find(reader, name.encode(), ctypes.byref(index)))
            for dim in about[name]["dims"]:
                count *= dim
            found[name] = {}
            for kind in kinds:
                values = torch.empty(count)
                self.check(self.library.zoff_checkpoint_reader_read(reader, index, kind, ctypes.c_size_t(0), ctypes.c_size_t(count),
                                                                    ctypes.c_void_p(values.data_ptr())))
                found[name][STATES[kind]] = values.reshape(about[name]["dims"])
        self.library.zoff_checkpoint_reader_close(reader)
        return found, manifest


def bits(torch, tensor):
    """The elements as integers: NaN and the sign of zero count."""
    return tensor.detach().contiguous().view(-1).view({4: torch.int32, 2: torch.int16}[tensor.element_size()])


def expect_equal(torch, wrong, words, want, have):
    if want.shape != have.shape or want.dtype != have.dtype or not torch.equal(bits(torch, want), bits(torch, have)):
        wrong.append(f"{words}: {have.dtype} {list(have.shape)} {have.flatten()[:4].tolist()} is not "
                     f"{want.dtype} {list(want.shape)} {want.flatten()[:4].tolist()}")


def load(torch, path):
    """The tensor of a file, and the dict around it without the tensor."""
    found = torch.load(path, weights_only=True)
    if isinstance(found, dict):
        return found["param"], {key: value for key, value in found.items() if key != "param"}
    return torch.as_tensor(found), None


def universal_states(torch, folder):
    """{name: {state: tensor}} of a universal folder."""
    zero = os.path.join(folder, "zero")
    names = [name for name in os.listdir(zero) if os.path.exists(os.path.join(zero, name, "exp_avg.pt"))]  # not tied ones
    return {name: {state: load(torch, os.path.join(zero, name, state + ".pt"))[0] for state in STATES} for name in names}


# ---- 1. torch.save() ----


def random_bits(torch, shape, kind):
    """Every pattern of bits, NaN included."""
    count = 1
    for dim in shape:
        count *= dim
    whole = {torch.float32: torch.int32}.get(kind, torch.int16)
    limits = torch.iinfo(whole)
    return torch.randint(limits.min, limits.max, (count,), dtype=whole).view(kind).reshape(shape)


def saved_tensors(torch):
    """{name: tensor}: whole ones, views, parameters."""
    tensors = {f"shape.{i}": random_bits(torch, shape, torch.float32)
               for i, shape in enumerate([(3, 5), (1,), (0, 4), (2, 1, 3, 1), (1500, 1100), ()])}
    tensors["rows"] = random_bits(torch, (9, 4), torch.float32)[2:7]  # the file has all nine
    tensors["one.column"] = random_bits(torch, (6, 1), torch.float32).t()
    tensors["parameter"] = torch.nn.Parameter(torch.randn(4, 2))
    tensors["grad"] = torch.randn(5, requires_grad=True)
    tensors["\u00e9\"\\ %"] = torch.randn(2)
    return tensors


def write_saved(torch, folder, tensors, step):
    for name, tensor in tensors.items():
        at = os.path.join(folder, "zero", name)
        os.makedirs(at)
        for state in STATES:
            torch.save({"cat_dim": 0, "param": tensor, "vocab_tensor": True}, os.path.join(at, state + ".pt"))
        torch.save(step, os.path.join(at, "step.pt"))
    torch.save({"param_groups": [{"lr": 0.1, "step": step}], "ds_version": "0"}, os.path.join(folder, "zero", "optimizer_state.pt"))
    torch.save({"module": {}, "param_shapes": []}, os.path.join(folder, "mp_rank_00_model_states.pt"))


def compare_saved(torch, zoff, folder, wrong):
    """Tensors of torch.save() arrive, and torch.load() reads the export, also mapped."""
    torch.manual_seed(3)
    tensors = saved_tensors(torch)
    source, pattern, back = (os.path.join(folder, name) for name in ("source", "pattern", "back"))
    write_saved(torch, source, tensors, 3000000001)
    write_saved(torch, pattern, {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}, 1)
    zoff.run("import", "universal", source, "-o", os.path.join(folder, "saved"))
    found, manifest = zoff.read(torch, os.path.join(folder, "saved"), tensors)
    zoff.run("export", "universal", os.path.join(folder, "saved"), "-o", back, "--like", pattern)
    for name, tensor in tensors.items():
        whole = tensor.reshape(1) if tensor.dim() == 0 else tensor
        for state in STATES:
            expect_equal(torch, wrong, f"{name} of torch.save()", whole, found[name][state])
            path = os.path.join(back, "zero", name, state + ".pt")
            have, around = load(torch, path)
            expect_equal(torch, wrong, f"{name} of torch.load()", tensor, have)
            mapped = torch.load(path, weights_only=True, mmap=True)["param"]
            expect_equal(torch, wrong, f"{name} mapped", tensor, mapped)
            if mapped.numel() and mapped.untyped_storage().data_ptr() % 64:
                wrong.append(f"{name}: elements begin at {mapped.untyped_storage().data_ptr() % 64} of 64 bytes")
            if around != {"cat_dim": 0, "vocab_tensor": True}:
                wrong.append(f"{name}: the dict has {around}")
        step = torch.load(os.path.join(back, "zero", name, "step.pt"), weights_only=True)
        if step != 3000000001:
            wrong.append(f"{name}: the step is {step}")
    if manifest["step"] != 3000000001:
        wrong.append(f"the step of torch.save() arrives as {manifest['step']}")
    return len(tensors)


def compare_halves(torch, zoff, folder, wrong):
    """16-bit states are widened."""
    for kind in (torch.bfloat16, torch.float16):
        source, to = os.path.join(folder, f"{kind}"), os.path.join(folder, f"{kind}.zoff")
        tensor = random_bits(torch, (300, 7), kind)
        tensor = torch.where(tensor.isnan(), torch.ones_like(tensor), tensor)  # zoff makes a NaN quiet
        write_saved(torch, source, {"half": tensor}, 1)
        zoff.run("import", "universal", source, "-o", to)
        expect_equal(torch, wrong, f"{kind}", tensor.float(), zoff.read(torch, to, ["half"])[0]["half"]["fp32"])


# ---- 2. and 3. DeepSpeed ----


def side(ranks, *arguments):
    """Run deepspeed_side.py as these ranks, with a port of their own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = dict(os.environ, MASTER_PORT=str(port), TORCH_EXTENSIONS_DIR=os.path.join(sys.prefix, "torch-extensions"),
                       WORLD_SIZE=str(ranks), OMP_NUM_THREADS="1")
    environment["PATH"] = os.path.join(sys.prefix, "bin") + os.pathsep + environment.get("PATH", "")
    command = [sys.executable, os.path.join(HERE, "deepspeed_side.py"), *map(str, arguments)]
    with tempfile.TemporaryFile("w+") as output:
        jobs = [subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=dict(environment, RANK=str(rank))) for rank in range(ranks)]
        try:
            failed = any([job.wait(timeout=600) for job in jobs])
        finally:
            for job in jobs:
                job.kill()
        output.seek(0)
        if failed:
            print("FAILED: DeepSpeed:", arguments, output.read()[-4000:])
            sys.exit(1)


def compare_deepspeed(torch, zoff, folder, cell, wrong):
    stage, kind, tied, ranks = cell
    words = f"stage {stage}, {kind}, {'tied' if tied else 'untied'}, {ranks} ranks"
    side(ranks, "train", stage, kind, int(tied), 3, folder)
    want = universal_states(torch, os.path.join(folder, "uni3"))
    checkpoints = os.path.join(folder, "zoff")
    zoff.run("import", "universal", folder, "-o", checkpoints)  # latest_universal names uni3
    have, manifest = zoff.read(torch, checkpoints, want)
    for name, states in want.items():
        for state, tensor in states.items():
            shaped = tensor.reshape(have[name][state].shape) if stage == 3 else tensor  # flat there
            expect_equal(torch, wrong, f"{words}: {name} {state} arrives", shaped, have[name][state])
    shapes = {param["name"]: (param["dims"], param["dtype"]) for param in manifest["params"]}
    ties = {param["name"]: param["tied_to"] for param in manifest["params"] if "tied_to" in param}
    if ties != ({"head.weight": "words.weight"} if tied else {}) or len(manifest["params"]) != len(want) + tied:
        wrong.append(f"{words}: the checkpoint has the ties {ties} and {len(manifest['params'])} parameters")
    if shapes["words.weight"] != ([37, 12], kind.replace("offload", "bf16")) or manifest["step"] != 3:
        wrong.append(f"{words}: the checkpoint says {shapes['words.weight']} after {manifest['step']} steps")
    zoff.run("export", "universal", checkpoints, "-o", os.path.join(folder, "back"), "--like", os.path.join(folder, "uni2"))
    side(ranks, "load", stage, kind, int(tied), folder, os.path.join(folder, "loaded"))  # latest_universal names back
    loaded = torch.load(os.path.join(folder, "loaded"), weights_only=True)
    if sorted(loaded["states"]) != sorted(want):
        wrong.append(f"{words}: DeepSpeed has {sorted(loaded['states'])}")
    for name, states in want.items():
        for state, tensor in states.items():
            expect_equal(torch, wrong, f"{words}: {name} {state} in DeepSpeed", tensor.reshape(loaded["states"][name][state].shape),
                         loaded["states"][name][state].float())
        if name in loaded["weights"]:
            weights = loaded["weights"][name]
            expect_equal(torch, wrong, f"{words}: weights of {name}", states["fp32"].reshape(weights.shape).to(weights.dtype), weights)
    if loaded["steps"] != [3.0]:
        wrong.append(f"{words}: DeepSpeed has the steps {loaded['steps']}")
    if kind == "fp16":
        kept = manifest["loss_scaler"]
        scaler = {"cur_scale": 256.0, "cur_iter": 3.0, "last_overflow_iter": -1.0, "cur_hysteresis": 2.0}  # 2^6, doubled by steps 2 and 3
        if loaded["scaler"] != scaler or kept["scale"] != 256:
            wrong.append(f"{words}: DeepSpeed has the loss scale {loaded['scaler']}, zoff {kept}")
    return len(want)


# ---- 4. transformers ----


def compare_transformers(torch, zoff, folder, wrong):
    """The number of models, or why there are none."""
    try:
        import transformers
    except ImportError as error:
        return f"transformers cannot be imported ({error}), so no model of it was tried"
    tokens, models = torch.arange(12).reshape(2, 6), 0
    for tied in (True, False):
        for shards in (False, True):
            torch.manual_seed(5)
            config = transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2, tie_word_embeddings=tied,
                                             attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)
            model = transformers.GPT2LMHeadModel(config).eval()
            source, to, back = (os.path.join(folder, f"{name}.{tied}.{shards}") for name in ("model", "checkpoints", "back"))
            model.save_pretrained(source, max_shard_size="40KB" if shards else "1GB")
            zoff.run("import", "safetensors", source, "-o", to)
            zoff.run("export", to, "-o", back)
            config.save_pretrained(back)
            again = transformers.GPT2LMHeadModel.from_pretrained(back).eval()
            for (name, want), (_, have) in zip(model.named_parameters(), again.named_parameters()):
                expect_equal(torch, wrong, f"transformers, tied {tied}, shards {shards}: {name}", want, have)
            with torch.no_grad():
                expect_equal(torch, wrong, "outputs", model(tokens).logits, again(tokens).logits)
            first = sorted(name for name in os.listdir(source) if name.endswith(".safetensors"))[0]
            alone = subprocess.run([zoff.tool, "import", "safetensors", os.path.join(source, first), "-o", to + ".alone"],
                                   capture_output=True, text=True, check=False)
            if (alone.returncode != 0) != shards or (shards and "files of this model are given" not in alone.stderr):
                wrong.append(f"{first} alone: exit {alone.returncode}, {alone.stderr}")
            models += 1
    return f"{models} models of transformers {transformers.__version__}"


def chosen_cells():
    numbers = os.environ.get("ZOFF_TEST_INTEROP_CELLS")
    if numbers is not None:
        return [CELLS[int(number)] for number in numbers.split(",") if number]
    return CELLS if is_full() else CELLS[:FIRST_CELLS]


def main():
    tool, library, venv = map(os.path.abspath, sys.argv[1:4])
    if not can_import(sys.executable):
        if os.environ.get("ZOFF_TEST_DEEPSPEED_VENV") == venv:
            skip("DeepSpeed does not import from its own virtual environment")
        named = os.environ.get("ZOFF_TEST_DEEPSPEED_PYTHON")
        python = named if named and can_import(named) else install(venv, "--install" in sys.argv or is_full())
        os.environ["ZOFF_TEST_DEEPSPEED_VENV"] = venv
        os.execv(python, [python, os.path.abspath(__file__), tool, library, venv])
    import torch
    zoff, wrong, params = Zoff(tool, library), [], 0
    cells = chosen_cells()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        folder = os.path.abspath(folder)
        tensors = compare_saved(torch, zoff, folder, wrong)
        compare_halves(torch, zoff, folder, wrong)
        models = compare_transformers(torch, zoff, folder, wrong)
        for cell in cells:
            params = compare_deepspeed(torch, zoff, os.path.join(folder, ".".join(map(str, cell))), cell, wrong)
    for words in wrong:
        print("FAILED:", words)
    print(f"PyTorch {torch.__version__}: {tensors} tensors of torch.save(), and {params} parameters of {len(cells)} runs of DeepSpeed, both ways; {models}")
    if not wrong and "no model" in models:  # not a pass: a part of the test did not run
        skip(models)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
