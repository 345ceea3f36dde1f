#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_performance.py [--check]: write the tables of PERFORMANCE.md from the runs in bench/results.

A table stands between "<!-- figures: NAME -->" and "<!-- end of figures -->". --check only says whether the page is up to
date. The table "links" is computed by `zoff plan --sweep`, which wrote LINKS."""
import csv
import glob
import json
import os
import re
import sys

from written import DOCS, read, write

PAGE = os.path.join(DOCS, "PERFORMANCE.md")
RUN = os.path.join(DOCS, "..", "bench", "results", "*-{}-{}.json")
LINKS = os.path.join(DOCS, "..", "bench", "results", "computed-links.csv")
MACHINE = "epyc-zen4-2cpu"  # of runs that name none; "h200-16cpu:device" is a run of another one
BLOCK = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end of figures -->)", re.S)

# Each table: the headings of its columns, and (label, cell, ...). A cell is (run, figure) or (run, (race, contestant)), or None.
LARGE = "67108864"


def cells(run, *whats):
    return [(run, what) for what in whats]


AHEAD = "xeon-2cpu:step-ahead"
CODES = ("epyc-zen5-2cpu:cpu_adam-formats", "epyc-zen5-2cpu:cpu_adam-formats-avx2")
TABLES = {
    "rates": (["64 Mi parameters", "GB/s"], [
        (label, ("cpu_adam", (part, LARGE, name))) for label, part, name in (
            ("AdamW, fp32 in place", "step", "zoff_fp32"),
            ("AdamW, bf16 gradients, fp32 master, bf16 copy-out", "step", "zoff_bf16"),
            ("AdamW, bf16 weights in place", "step", "zoff_bf16_keep"),
            ("Adagrad, fp32", "others", "zoff_adagrad"),
            ("Lion, fp32", "others", "zoff_lion"),
            ("SGD with momentum, fp32", "others", "zoff_sgd_momentum"))
    ]),
    "update": (["zoff's speed to", "AVX-512", "AVX2"], [
        (label, ("cpu_adam", what), ("cpu_adam-avx2-quick", what) if both else None) for label, what, both in (
            ("a kernel with the same traffic and no arithmetic, fp32", "share_fp32", True),
            ("the same, bf16 gradients and copy-out", "share_bf16", True),
            ("the same, bf16 weights in place", "share_bf16_keep", False),
            ("one pass each for upcast, norm, scale, Adam, copy-out", "vs_chain", False),
            ("a plain C loop with OpenMP, geometric mean of 1 to 2^26 elements", "vs_plain_loop", True),
            ("the same, at the worst size", "vs_plain_loop_worst", False),
            ("2,000 tensors of 1,024 elements, one OpenMP region each", "list_vs_calls_1k", False),
            ("the same, plain loops on the calling thread", "list_vs_serial_calls_1k", False))
    ]),
    "formats": (["zoff's speed to", "bf16 moments", "split masters", "both"], [
        ("a kernel with the same traffic and no arithmetic",
         *cells("h200-16cpu:cpu_adam-quick", "share_bf16_moments", "share_split", "share_split_bf16")),
        ("one pass each for upcast, norm, scale, Adam, copy-out",
         *cells("h200-16cpu:cpu_adam-quick", "moments_vs_chain", "split_fp32_vs_chain", "split_bf16_vs_chain")),
    ]),
    "codes": (["split masters and", "AVX-512", "AVX2"], [
        (label, *((run, what) for run in CODES)) for label, what in (
            ("bf16 moments: speed to five passes of a norm and a step", "split_bf16_vs_chain"),
            ("m in 8 bits: the same", "split_m8v16_vs_chain"),
            ("both moments in 8 bits: the same", "split_q8_vs_chain"),
            ("bf16 moments: cycles a parameter in the first cache", "split_bf16_cycles"),
            ("m in 8 bits: the same", "split_m8v16_cycles"),
            ("both moments in 8 bits: the same", "split_q8_cycles"),
            ("both moments in 8 bits: time to the longer of its instructions and its bytes", "split_q8_over_limit"))
    ]),
    "matrices": (["matrices", "AVX-512", "AVX2"], [
        (label, *cells("muon", what), *(cells("muon-avx2", what) if both else [None])) for label, what, both in [
            (f"{rows} x {cols}: speed to the same iterations with OpenBLAS", f"openblas_{rows}x{cols}", True)
            for rows, cols in ((768, 768), (768, 3072), (3072, 768), (2048, 2048))
        ] + [
            (f"{rows} x {cols}: operations a second to those of multiply-adds in registers", f"peak_{rows}x{cols}", True)
            for rows, cols in ((768, 768), (768, 3072), (3072, 768), (2048, 2048))
        ] + [
            ("768 x 3072: time over the matrix to that over its Gram matrix", "gram_768x3072", True),
            ("768 x 768: two threads on one matrix to two that have one each", "two_threads", False),
            ("GPT-2, 124 M, states in files: time of a step to its matrices alone and a step of SGD", "step_over_parts", False)]
    ]),
    "disk": (["zoff's speed to fio's", "1 GiB", "16 MiB", "16 MiB, disk held at 1 GB/s each way"], [
        (label, *cells("aio", f"{key}_1gib", f"{key}_16mib", f"throttled_{key}_16mib"))
        for label, key in (("read", "read_vs_fio"), ("write", "write_vs_fio"), ("both at once", "mix_vs_fio"))
    ] + [("CPU seconds for each GB", None, ("aio", "cpu_s_per_gb_16mib"), None)]),
    "step": (["ratio of times", ""], [
        (label, ("step-quick", what)) for label, what in (
            ("zoff's step to its transfers alone, disk held at 1 GB/s each way", "wall_over_io_throttled"),
            ("zoff's step to its transfers alone, free disk", "wall_over_io"),
            ("half of the states in DRAM to none", "cached50_over_uncached"),
            ("with `persist` to without", "persist_over_plain"),
            ("DeepSpeed's default order of transfers over libaio to zoff's step", "vs_libaio_pattern"),
            ("DeepSpeed's pipelined order over libaio to zoff's step", "vs_libaio_pipelined"),
            ("the same with huge pages to zoff's step", "vs_libaio_pipelined_thp"),
            ("one drive of 300 MB/s each way to two", "two_paths_speedup"),
            ("1,024 chunks on the NVMe tier, all in DRAM, to the DRAM tier", "resident_over_dram"),
            ("a trainer's iteration with zoff to one with its own loop, worst of three sizes", "small_engine_vs_own_loop"),
            ("zoff's step of 124 M fp32 parameters in DRAM to a plain loop", "engine_vs_plain_loop"),
            ("MiB more of memory, beside weights and gradients, for ten times the model", "rss_growth_mib"))
    ] + [("bytes that the kernel counts for the disk to those that zoff counts", ("step-formats", "disk_over_library"))]),
    "step_formats": (["masters in two halves, with", "fp32 moments", "bf16 moments", "8-bit moments"], [
        ("bytes a parameter each way", *cells("step-formats", "split_bytes", "split_bf16_bytes", "split_q8_bytes")),
        ("time of a step to that with fp32 masters, over the ratio of their bytes",
         *cells("step-formats", "split_wall_over_bytes", "split_bf16_wall_over_bytes", "split_q8_wall_over_bytes")),
        ("time of DeepSpeed's default order, with gradients over the disk, to zoff's step", None,
         *cells("step-formats-rivals", "split_bf16_vs_libaio_pattern_grads", "split_q8_vs_libaio_pattern_grads")),
    ]),
    "step_hidden": (["visible, over the time of a plain step", ""], [
        (label, ("step-hidden", what)) for label, what in (
            ("step beside 1.2 steps of forward pass on a device, with a background thread", "visible_of_jit_over_update"),
            ("the same where the trainer computes on all cores", "visible_of_jit_busy_over_update"),
            ("the same on a device, without a background thread", "visible_of_jit_calls_over_update"),
            ("all of a step beside a forward pass of half its time on a device", "jit_half_over_update"))
    ]),
    "step_ahead": (["visible, over the time of a plain step", "states in files", "in DRAM"], [
        (label, *((AHEAD, what) if what else None for what in whats)) for label, *whats in (
            ("after a backward pass of 1.2 steps on a device", "visible_after_backward_over_update",
             "dram_visible_after_backward_over_update"),
            ("the same where the trainer computes on all cores", "visible_after_busy_backward_over_update", None),
            ("the same where the next forward pass waits for each weight", None, "dram_visible_of_both_over_update"),
            ("a step that is taken again", "visible_after_redo_over_update", "dram_visible_after_redo_over_update"),
            ("beside 1.2 steps of forward pass on a device", "visible_of_jit_over_update", None),
            ("the same with weights of the engine, in DRAM", "visible_of_lent_over_update", None),
            ("the same with weights of the engine, in files", "visible_of_lent_files_over_update", None))
    ]),
    "checkpoint": (["ratio", "free disk", "disk held"], [
        (label, *(("checkpoint", what) if what else None for what in whats)) for label, *whats in (
            ("speed of a save from DRAM to the queue that writes a new file", "save_host_vs_aio", "throttled_save_host_vs_aio"),
            ("speed of a save from files to a copy of the state file", "save_nvme_vs_copy", None),
            ("speed of a save from files to the queue that reads and writes as much", None, "throttled_save_nvme_vs_aio"),
            ("speed of a load into DRAM to the queue that reads as much", "load_host_vs_aio", "throttled_load_host_vs_aio"),
            ("speed of a load into files to the queue that reads and writes as much", "load_nvme_vs_aio",
             "throttled_load_nvme_vs_aio"),
            ("bytes that a save or a load moves to those of the states", "moved_over_state", None),
            ("time that a save adds to ten steps to the time of its bytes", "async_save_over_bytes",
             "async_save_over_bytes_throttled"),
            ("the same, half of the time is compute", "async_save_over_bytes_compute", None),
            ("the same on XFS, which shares blocks", None, "async_save_over_bytes_reflink"),
            ("seconds of a save from files on XFS, for each GiB", "save_nvme_reflink_seconds_per_gib", None),
            ("peak of memory in a save to the plan and 64 MiB", "save_peak_over_plan", None),
            ("peak of memory in a load to the plan, on the NVMe tier also one chunk", "load_peak_over_plan", None))
    ]),
    "ranks": (["zoff's speed to Open MPI's", "2 ranks", "4 ranks"], [
        (label, *((f"comm-{ranks}ranks", what) for ranks in (2, 4))) for label, what in [
            (f"{name}, {mib} MiB", f"{key}_vs_mpi_{mib}mib")
            for name, key in (("all-gather", "all_gather"), ("reduce-scatter", "reduce_scatter")) for mib in (1, 16, 64)
        ] + [("part of the exchange that is over at the last gradient", "hidden_share")]
    ]),
    "gpu": (["ratio", ""], [
        (label, ("h200-16cpu:device", what)) for label, what in (
            ("step without a backward pass / the longest of download, update, upload alone", "wall_over_slowest"),
            ("from the end of a backward pass to new weights / the update alone", "visible_over_update"),
            ("speed of gradients down, slice by slice, to one copy", "slices_over_memcpy_down"),
            ("speed of weights up, slice by slice, to one copy", "slices_over_memcpy_up"),
            ("speed of gradients down while the engine casts and uploads weights, to two plain copies", "duplex_over_memcpy"),
            ("part of the fetches of lent weights that is hidden", "fetches_hidden_share"))
    ]),
    "fetches": (["part of the fetches that is hidden", ""], [
        ("2 ranks, the trainer calls the engine each millisecond", ("comm-fetches", "fetches_hidden_share")),
        ("2 ranks, the engine's thread (`zoff_engine_opts.progress_thread`)", ("comm-fetches", "fetches_hidden_share_by_itself")),
        ("one rank, from DRAM to the emulated device", ("device-fetches", "fetches_hidden_share")),
    ]),
    "python": (["zoff's time to that of the other", ""], [
        (label, ("python-deepspeed" if what.startswith("deepspeed") else "python", what)) for label, what in (
            ("fp32, without clipping, to fused AdamW", "fp32"),
            ("fp32 with clipping, to `clip_grad_norm_()` and fused AdamW", "clip"),
            ("bf16 weights, fp32 moments, clipping, to the same on fp32 masters with casts", "bf16_moments_fp32"),
            ("the same with bf16 moments", "bf16_moments_bf16"),
            ("bf16 weights, fp32 moments, clipping, to the same with `DeepSpeedCPUAdam`", "deepspeed"),
            ("`zoff.deepspeed.CPUAdam` to `DeepSpeedCPUAdam`, the step alone, fp32", "deepspeed_fp32"),
            ("the same in bf16", "deepspeed_bf16"),
            ("microseconds of Python for a tensor in a step", "calls_us"),
            ("the same where each step has new gradients", "calls_new_buffers_us"))
    ]),
}


def load(run):
    machine, _, name = run.rpartition(":")
    newest = max(glob.glob(RUN.format(machine or MACHINE, name)))
    with open(newest, encoding="utf-8") as file:
        return json.load(file)


def figure(run, what):
    """10th percentile, median and 90th percentile; None where a figure is one number."""
    if isinstance(what, str):
        found = run["percentiles"].get(what, {})
        return found.get("p10"), run["ratios"][what], found.get("p90")
    part, label, name = what
    row = next(row for race in run["races"] if race["part"] == part and race["label"] == label
               for row in race["rows"] if row["name"] == name)
    moved = row["gb_per_s"] * row["seconds_median"]
    return moved / row["seconds_p90"], row["gb_per_s"], moved / row["seconds_p10"]


def void(run, what):
    """Why a figure proves nothing, as the benchmark says it; "" where it does."""
    reason = run["verdict"].get(what, {}).get("void") if isinstance(what, str) else None
    return f" (void: {reason.split(';')[0]})" if reason else ""


def shown(value):
    decimals = next(count for least, count in ((50, 0), (10, 1), (0.1, 2), (0, 4)) if abs(value) >= least)
    return f"{value:.{decimals}f}"


def field(cell):
    """The median and, where rounds were measured, the range of it."""
    if cell is None:
        return ""
    run, what = load(cell[0]), cell[1]
    low, median, high = figure(run, what)
    return shown(median) + (f" ({shown(low)}–{shown(high)})" if low is not None else "") + void(run, what)


def links():
    """Seconds of a step by route. Weights that the engine owns are fetched twice in it."""
    routes = ("flat", "levels", "levels, once a step")
    with open(LINKS, encoding="utf-8") as f:
        seconds = {(row["elements"], row["stage"], int(row["ranks"]), row["route"]):
                   sum(float(row[f"{part}_seconds"]) for part in ("reduce", "report", "gather", "fetch", "fetch"))
                   for row in csv.DictReader(f)}
    return "\n".join(["| {} |".format(" | ".join(("parameters, stage, ranks", *routes))), "|---|---|---|---|"] + [
        "| {} |".format(" | ".join((f"{model}, stage {stage}, {ranks:,}", *(shown(seconds[model, stage, ranks, r]) for r in routes))))
        for model in ("7B", "70B") for stage in "13" for ranks in (16, 64, 1024, 16384)])


def table(name):
    if name == "links":
        return links()
    headings, lines = TABLES[name]
    rows = [" | ".join(headings), "---|" * (len(headings) - 1) + "---"]
    rows += [" | ".join([label, *map(field, fields)]) for label, *fields in lines]
    return "\n".join(f"|{row}|" if row.startswith("---") else f"| {row} |" for row in rows)


def main():
    new = BLOCK.sub(lambda block: f"{block[1]}\n{table(block[2])}\n\n{block[3]}", read(PAGE))
    return write(PAGE, new, "bench/results", "docs/make_performance.py")


if __name__ == "__main__":
    sys.exit(main())
