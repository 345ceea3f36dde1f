#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""json_schema.py ZOFF LIBZOFF ROOT: the schema that `zoff schema` prints accepts and refuses what `zoff check` does, at the same key.

The configurations are those below, each key of the schema with each of some values, the files of the repository, and those of
the folder ZOFF_DS_CONFIGS, where it is set."""
import ctypes
import glob
import json
import os
import re
import subprocess
import sys

try:
    import jsonschema
except ImportError:
    print("skipped: jsonschema is missing: apt-get install python3-jsonschema")
    sys.exit(77)

TOOL, LIBRARY, ROOT = sys.argv[1:]

# A configuration, and the key that both name.
BROKEN = [
    ('{"train_batch_size": "many"}', "train_batch_size"),
    ('{"train_batch_size": 0}', "train_batch_size"),
    ('{"gradient_accumulation_steps": 1.5}', "gradient_accumulation_steps"),
    ('{"gradient_clip": 1}', "gradient_clip"),
    ('{"optimizer": "AdamW"}', "optimizer"),
    ('{"optimizer": {"type": "AdamX"}}', "optimizer.type"),
    ('{"optimizer": {"type": "Lamb"}}', "optimizer.type"),
    ('{"optimizer": {"params": {"lr": -1e-3}}}', "optimizer.params.lr"),
    ('{"optimizer": {"params": {"learning_rate": 1e-3}}}', "optimizer.params.learning_rate"),
    ('{"optimizer": {"params": {"betas": [0.9, 1]}}}', "optimizer.params.betas"),
    ('{"optimizer": {"params": {"betas": [0.9]}}}', "optimizer.params.betas"),
    ('{"optimizer": {"params": {"amsgrad": true}}}', "optimizer.params.amsgrad"),
    ('{"optimizer": {"params": {"max_grad_norm": 1}}}', "optimizer.params.max_grad_norm"),
    ('{"scheduler": {"type": "CosineAnnealingLR"}}', "scheduler.type"),
    ('{"bf16": {"enabled": "maybe"}}', "bf16.enabled"),
    ('{"fp16": {"enabled": true}, "bf16": {"enabled": 1}}', "fp16.enabled"),
    ('{"zero_optimization": {"stage": 4}}', "zero_optimization.stage"),
    ('{"zero_optimization": 2}', "zero_optimization"),
    ('{"zero_optimization": {"offload_optimizer": {"device": "gpu"}}}', "zero_optimization.offload_optimizer.device"),
    ('{"zero_optimization": {"offload_optimizer": {"nvme_path": []}}}', "zero_optimization.offload_optimizer.nvme_path"),
    ('{"zero_optimization": {"offload_optimizer": {}, "cpu_offload": false}}', "zero_optimization.cpu_offload"),
    ('{"zero_optimization": {"stage3_max_live_parameters": 1, "max_live_parameters": 1}}', "zero_optimization.max_live_parameters"),
    ('{"bf16": {}, "bfloat16": {}}', "bfloat16"),
    ('{"bfloat16": {"enable": true}}', "bfloat16.enable"),
    ('{"quantize_training": {"quantize_groups": 8}}', "quantize_training"),
    ('{"aio": {"block_size": "2 MiX"}}', "aio.block_size"),
    ('{"zoff": {"skip_nonfinite": 0.5}}', "zoff.skip_nonfinite"),
    ('{"zoff": {"persist": "required"}}', "zoff.persist"),
]
FINE = [
    '{}',
    '{"$schema": "./zoff.schema.json", "_note": 1, "//": "a remark", "#": 2}',
    '{"zero_optimization": {"sub_group_size": 0.9e7, "reduce_bucket_size": "5e8", "offload_optimizer": {"device": "CPU"}}}',
    '{"zero_optimization": true, "bfloat16": {"enabled": "on"}, "aio": "auto"}',
    '{"zoff": {"host_memory": "64 MiB", "persist": false, "skip_nonfinite": 7, "fp32_moments": ["*.bias", "wte"]}}',
    '{"quantize_training": {"enabled": false, "quantize_groups": 8}, "sparse_attention": {}, "amp": {"opt_level": "O1"}}',
    '{"compression_training": {"weight_quantization": {"shared_parameters": {"enabled": "off"}, "different_groups": {}}}}',
]
# Only `zoff check` sees these: each is a part of the schema's $comment.
GAPS = [
    '{"train_batch_size": 3, "train_micro_batch_size_per_gpu": 2}',
    '{"zero_optimization": {"stage": "4"}}',
    '{"gradient_accumulation_steps": "1.5"}',
    '{"optimizer": {"params": {"lr": 1e39}}}',
    '{"optimizer": {"type": "SGD", "params": {"betas": [0.9, 0.99]}}}',
    '{"optimizer": {"type": "SGD", "params": {"nesterov": true}}}',
    '{"scheduler": {"type": "WarmupDecayLR"}}',
    '{"fp16": {"enabled": true, "hysteresis": 0}}',
    '{"zero_optimization": {"offload_optimizer": {"device": "nvme"}}}',
    '{"zoff": {"skip_nonfinite": false}, "fp16": {"enabled": true}}',
]
# These pass with a warning, and are marked by the schema.
MARKED = ['{"zoff": {"strict": false}, "optimizer": {"typ": 1}}', '{"my_own_dataset_folder": "here"}']
VALUES = [None, "auto", "Auto", True, False, 0, 1, 2, 3, -1, 0.5, 1.5, 1e30, 1e300, -1e300, "", "x", "0", "1", "on", "OFF", "true", "7", " 8 ", "5e8",
          "64MiB", "1 kb", "7 MiX", "require", "Require", "none", "NVMe", "AdamW", "lamb", "WarmupLR", "fp32", "log", [], ["a"],
          ["", "a"], [1], [0.5, 0.5], [0.5, 1], ["0.5", "0.5"], {}, {"enabled": False}, {"enabled": 0}, {"enabled": "no"}, {"enabled": "x"},
          {"enabled": {"enabled": False}}, {"a": {}}, {"a": {"b": 1}}, {"shared_parameters": {"enabled": True}}, {"shared_parameters": {"a": 1}}]


def places(validator, value):
    """The keys at which a value does not fit."""
    found = set()
    for error in validator.iter_errors(value):
        path = [str(part) for part in error.absolute_path]
        extra = [""]
        if error.validator == "additionalProperties":
            remark = re.compile("|".join(error.schema["patternProperties"]))
            extra = [key for key in error.instance if key not in error.schema["properties"] and not remark.search(key)]
        found |= {".".join(path + [key] if key else path) for key in extra}
    return found


def check(text):
    """(the exit status of `zoff check`, the key that it names, its message)."""
    for ranks in ("1", "2", "4", "8"):
        done = subprocess.run([TOOL, "check", "-", "--ranks", ranks], input=text, capture_output=True, text=True, check=False)
        if done.returncode == 0 or "(ranks)" not in done.stderr:
            break
    named = re.search(r"^error: \S+: ([\w.$]+): ", done.stderr, re.M)
    return done.returncode, named and named[1], done.stderr.strip()


def keys(schema, root, path=()):
    for key, value in schema.get("properties", {}).items():
        while isinstance(value, dict) and "$ref" in value:
            target = value["$ref"]
            value = root
            for part in target[2:].split("/"):
                value = value[part]
        yield path + (key,)
        yield from keys(value, root, path + (key,))


def each_key_and_value(schema, validator, wrong):
    """Every key of the schema with every value, read by the library itself, because a process for each takes too long."""
    library = ctypes.CDLL(LIBRARY)
    library.zoff_last_error.restype = ctypes.c_char_p
    quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    library.zoff_log_set(quiet, None)
    config, tried, refused = ctypes.c_void_p(), 0, 0
    assert library.zoff_config_open(None, ctypes.byref(config)) == 0
    for path in keys(schema, schema):
        for value in VALUES:
            nested = value
            for part in reversed(path):
                nested = {part: nested}
            text = json.dumps(nested).encode()
            passes = library.zoff_config_read_text(config, text, ctypes.c_size_t(len(text)), None) == 0
            fits = validator.is_valid(nested)
            tried, refused = tried + 1, refused + (not passes)
            quoted = isinstance(value, str) or isinstance(value, list) and any(isinstance(part, str) for part in value)
            if passes != fits and not (fits and quoted and re.search(b"out of range|such a number", library.zoff_last_error())):
                wrong.append(f"{text.decode()}: {'passes' if passes else library.zoff_last_error().decode()}, but the schema "
                             f"{'accepts' if fits else 'refuses'} it")
    print(f"{tried} keys with values, of which {refused} are refused")
    if tried < 10000 or not 0.2 < refused / tried < 0.8:
        wrong.append(f"{tried} keys with values, of which {refused} are refused: these values prove too little")


def plain(text):
    """JSON without the comments that zoff allows, or None for a template."""
    try:
        return json.loads(re.sub(r'("(?:\\.|[^"\\])*")|(?://|#)[^\n]*', lambda match: match[1] or "", text))
    except ValueError:
        return None


def each_file(paths, validator, wrong):
    accepted = refused = 0
    for path in paths:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        value = plain(text)
        status, named, message = check(text)
        found = places(validator, value) if value is not None else {None}
        accepted, refused = accepted + (status == 0), refused + (status != 0)
        if (status == 0) != (not found) or (named and named not in found):
            wrong.append(f"{path}: {message or 'passes'}; the schema marks {found}")
    print(f"{len(paths)} files: {accepted} fit, {refused} are refused")


def is_config(path):
    """Whether a JSON file of the repository is a configuration."""
    with open(path, encoding="utf-8") as file:
        value = plain(file.read())
    return isinstance(value, dict) and bool({"optimizer", "zero_optimization", "zoff"} & set(value))


def main():
    wrong = []
    schema = json.loads(subprocess.run([TOOL, "schema"], capture_output=True, check=True).stdout)
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)
    for text, place in BROKEN:
        _, named, message = check(text)
        found = places(validator, json.loads(text))
        if named != place or found != {place}:
            wrong.append(f"{text}: expected {place}, not {message or 'nothing'} and {found}")
    for group, passes, fits in ((FINE, True, True), (GAPS, False, True), (MARKED, True, False)):
        for text in group:
            status, _, message = check(text)
            found = places(validator, json.loads(text))
            if (status == 0, not found) != (passes, fits):
                wrong.append(f"{text}: {message or 'passes'}; the schema marks {found or 'nothing'}")
    each_key_and_value(schema, validator, wrong)
    own = [path for folder in ("examples", "tests/golden", "bench") for path in sorted(glob.glob(f"{ROOT}/{folder}/**/*.json", recursive=True))]
    own = [path for path in own if is_config(path)]
    if len(own) < 10:
        wrong.append(f"only {len(own)} configurations in the repository")
    each_file(own, validator, wrong)
    folder = os.environ.get("ZOFF_DS_CONFIGS", "")
    published = sorted(glob.glob(f"{folder}/*.json")) if folder else []
    if published:
        each_file(published, validator, wrong)
    else:
        print("not tried: published configurations: set ZOFF_DS_CONFIGS to their folder")
    for words in wrong:
        print("FAILED:", words)
    sys.exit(1 if wrong else 0)


main()
