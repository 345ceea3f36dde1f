#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ceilings.py ROOT: no benchmark demands more than the ceiling of its own measurement.

A limit of a figure stands in bench/*.c. Its ceiling is the value of a zoff that is as fast as the yardstick beside it, in the runs of
bench/results. A demand above its ceiling would be missed for ever, whatever zoff did."""
import glob
import json
import os
import re
import sys

ONE = lambda time: 1.0   # zoff is compared with the yardstick that bounds it, or with itself
NONE = lambda time: 0.0  # a time that is seen, or bytes beside those that are needed: there may be none


def over(slower, *bounds):
    """The slower one's time over that of the longest bound."""
    return lambda time: time(slower) / max(time(bound) for bound in bounds)


CEILINGS = {
    # bench/cpu_adam
    "share_(bf16|fp32)|scaling_1_to_2|layout_worst_over_best|list_vs_one_tensor|split_(bf16|m8v16|q8)_over_limit": ONE,
    "bf16_vs_fp32_bytes": lambda time: time("nomath_fp32") / time("nomath_bf16"),
    "bf16_keep_vs_fp32_bytes": lambda time: 22 / 28 * time("nomath_fp32") / time("nomath_keep"),
    "vs_chain": over("chain", "nomath_norm_step"),
    "split_fp32_vs_chain": over("chain", "nomath_norm_split"),
    "split_bf16_vs_chain": over("chain", "nomath_norm_split_bf16"),
    "split_q8_vs_chain": over("chain", "nomath_norm_split_q8"),
    "vs_plain_loop|vs_plain_loop_worst": ONE,  # where memory bounds both
    "list_vs_calls_1k": over("plain_calls", "nomath_list"),
    # bench/step
    "wall_over_io(_throttled)?|split(_bf16|_q8)?_wall_over_bytes|disk_over_library|resident_over_dram|jit_half_over_update": ONE,
    "looking_over_step": lambda time: 32 / 28,  # by the bytes
    "(windows|kinds)_(read|write)_over_state|engine_vs_plain_loop|small_engine_vs_own_loop": ONE,
    "(persist_)?cached50_over_uncached": lambda time: 0.5,  # half of the transfers
    "split_bytes": lambda time: 10.0,
    "split_bf16_bytes": lambda time: 6.0,
    "split_q8_bytes": lambda time: 4 + 2 * 64 / 1024,  # with the headers of blocks
    "vs_libaio_pattern": over("libaio_pattern", "io_only", "update_only"),
    "vs_libaio_pipelined": over("libaio_pipelined", "io_only", "update_only"),
    "vs_libaio_pipelined_thp": over("libaio_pipelined_thp", "io_only", "update_only"),
    "split_bf16_vs_libaio_pattern_grads": lambda time: time("libaio_pattern_grads") / (time("io_only") * 6 / 12),
    "split_q8_vs_libaio_pattern_grads": lambda time: time("libaio_pattern_grads") / (time("io_only") * 4.125 / 12),
    "two_paths_speedup": lambda time: 2.0,
    "rss_growth_mib|small_engine_step_us|(dram_)?visible_.*": NONE,
    # bench/aio, checkpoint, comm, device
    "(throttled_)?(read|write|mix|%s)_vs_fio_.*|(throttled_)?(save|load)_.*vs_(aio|copy)|load_vs_aio|moved_over_state": ONE,
    "async_save_over_bytes(_throttled|_compute)?|(save|load)_peak_over_plan": ONE,
    "cpu_s_per_gb_.*|async_save_over_bytes_reflink|save_nvme_reflink_seconds_per_gib": NONE,
    "(all_gather|reduce_scatter)_(vs_mpi|bytes)_.*|(fetches_)?hidden_share(_by_itself)?|wall_over_slowest|slices_over_memcpy_both": ONE,
    "bytes_per_parameter": lambda time: 4.0,
    "pageable_copies|bounced_bytes": NONE,
    "exact_vs_ordered": ONE,
    "(exact|exact_memory|join|onto)_ns": NONE,
    # bench/muon
    "openblas_.*|peak_.*|two_threads|step_over_parts": ONE,
    "gram_.*": lambda time: 65 / 38,  # by the operations, m = 4 n
}


def demands(root):
    """(file, name, sense, limit) of each line of a table of figures; a name with %s stands for several."""
    for path in sorted(glob.glob(os.path.join(root, "bench/*.c"))):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for name, sense, limit in re.findall(r'"([a-z0-9_%]+)",\s*(-?1),\s*([0-9./ ]+),\s*(?:"|[A-Z])', text):
            top, _, below = limit.partition("/")
            yield os.path.basename(path), name, int(sense), float(top) / (float(below) if below else 1)


def strangers(root):
    """Names in formulas of figures that no contestant of the same benchmark has: such a figure would never be measured."""
    for table in sorted(glob.glob(os.path.join(root, "bench/*.c"))):
        benchmark = re.match("cpu_adam|[a-z]+", os.path.basename(table))[0]
        text = "".join(open(path, encoding="utf-8").read() for path in sorted(glob.glob(os.path.join(root, f"bench/{benchmark}*.c"))))
        contestants = set(re.findall(r'\{"([a-z0-9_]+)",\s', text))
        with open(table, encoding="utf-8") as file:
            for formula in re.findall(r'"[a-z_]+(?:/[^"]*)?",\s*"([^"=]* [-/*] [^"=]*)"', file.read()):
                for name in set(re.findall(r"(?<![.\w])[a-z]\w*(?!\()\b", formula)) - contestants:
                    yield f"{os.path.basename(table)}: no contestant is called {name}: {formula}"


def runs(root):
    """The medians of the contestants of each race."""
    for path in sorted(glob.glob(os.path.join(root, "bench/results/*.json"))):
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        for run in [found] + [program.get("json") for program in found.get("programs", []) if isinstance(program, dict)]:
            for race in run.get("races", []) if isinstance(run, dict) else []:
                if race["label"].isdigit() and int(race["label"]) < 1 << 24:
                    continue  # a step on data in a cache: its figures have no limits
                medians = {row["name"]: row["seconds_median"] for row in race["rows"]}
                yield f"{os.path.basename(path)} ({race['part']} {race['label']})", medians


def complaints(found, measured, ceilings=None):
    for file, name, sense, limit in found:
        formulas = [f for pattern, f in (ceilings or CEILINGS).items() if re.fullmatch(pattern, name)]
        if not formulas:
            yield f"{file}: {name} has a limit and no ceiling in ceilings.py"
            continue
        ceilings_of = {}
        for run, medians in measured:
            try:
                ceilings_of[run] = formulas[0](medians.__getitem__)
            except KeyError:
                continue  # another race
        run = min(ceilings_of, key=lambda run: sense * ceilings_of[run], default=None)
        if run and sense * limit > sense * ceilings_of[run]:
            yield f"{file}: {name} asks for {limit:.3g}, and by {run} {ceilings_of[run]:.3g} is all that can be had"


def main():
    root = sys.argv[1]
    found, measured = list(demands(root)), list(runs(root))
    assert len(found) > 60 and len(measured) > 50, (len(found), len(measured))
    # The check has to fail for a limit above its ceiling, and for one without a ceiling.
    broken = list(complaints([("a.c", "slices_over_memcpy_both", 1, 1.01), ("a.c", "bytes_per_parameter", -1, 3.0), ("a.c", "new", 1, 0.5)], measured))
    assert len(broken) == 3, broken
    wrong = list(complaints(found, measured)) + list(strangers(root))
    print("\n".join(wrong) or f"{len(found)} limits are within their ceilings in {len(measured)} races")
    sys.exit(bool(wrong))


main()
