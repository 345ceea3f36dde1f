#!/usr/bin/env python3
"""make_performance.py [--check]: write the tables of PERFORMANCE.md from the runs in bench/results.

A table stands between "<!-- figures: NAME -->" and "<!-- end of figures -->". --check only says whether the page is up to
date."""
import glob
import json
import os
import re
import sys

from written import DOCS, read, write

PAGE = os.path.join(DOCS, "PERFORMANCE.md")
RUN = os.path.join(DOCS, "..", "bench", "results", "*-{}-{}.json")
MACHINE = "epyc-zen4-2cpu"  # of runs that name none; "h200-16cpu:device" is a run of another one
BLOCK = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end of figures -->)", re.S)

# Each table: the heading of its first column, and (label, run, figure) or (label, run, race and contestant).
LARGE = "67108864"
TABLES = {
    "rates": ("GB/s", [
        ("AdamW, fp32 in place", "cpu_adam", ("step", LARGE, "zoff_fp32")),
        ("AdamW, bf16 gradients, fp32 master, bf16 copy-out", "cpu_adam", ("step", LARGE, "zoff_bf16")),
        ("AdamW, bf16 weights in place", "cpu_adam", ("step", LARGE, "zoff_bf16_keep")),
        ("Adagrad, fp32", "cpu_adam", ("others", LARGE, "zoff_adagrad")),
        ("Lion, fp32", "cpu_adam", ("others", LARGE, "zoff_lion")),
        ("SGD with momentum, fp32", "cpu_adam", ("others", LARGE, "zoff_sgd_momentum")),
    ]),
    "update": ("zoff's speed to", [
        ("a kernel with the same traffic and no arithmetic, fp32", "cpu_adam", "share_fp32"),
        ("the same, bf16 gradients and copy-out", "cpu_adam", "share_bf16"),
        ("the same, bf16 weights in place", "cpu_adam", "share_bf16_keep"),
        ("one pass each for upcast, norm, scale, Adam, copy-out", "cpu_adam", "vs_chain"),
        ("a plain C loop with OpenMP, geometric mean of 1 to 2^26 elements", "cpu_adam", "vs_plain_loop"),
        ("the same, at the worst size", "cpu_adam", "vs_plain_loop_worst"),
        ("2,000 tensors of 1,024 elements, one OpenMP region each", "cpu_adam", "list_vs_calls_1k"),
        ("the same, plain loops on the calling thread", "cpu_adam", "list_vs_serial_calls_1k"),
    ]),
    "avx2": ("zoff's speed to", [
        ("a kernel with the same traffic and no arithmetic, fp32", "cpu_adam-avx2-quick", "share_fp32"),
        ("the same, bf16 gradients and copy-out", "cpu_adam-avx2-quick", "share_bf16"),
        ("a plain C loop with OpenMP, geometric mean of 1 to 2^26 elements", "cpu_adam-avx2-quick", "vs_plain_loop"),
    ]),
    "disk": ("zoff's speed to fio's", [
        ("read, 1 GiB", "aio", "read_vs_fio_1gib"),
        ("read, 16 MiB", "aio", "read_vs_fio_16mib"),
        ("write, 1 GiB", "aio", "write_vs_fio_1gib"),
        ("write, 16 MiB", "aio", "write_vs_fio_16mib"),
        ("both at once, 1 GiB", "aio", "mix_vs_fio_1gib"),
        ("both at once, 16 MiB", "aio", "mix_vs_fio_16mib"),
        ("read, 16 MiB, disk held at 1 GB/s", "aio", "throttled_read_vs_fio_16mib"),
        ("write, 16 MiB, disk held at 1 GB/s", "aio", "throttled_write_vs_fio_16mib"),
        ("both at once, 16 MiB, disk held at 1 GB/s each way", "aio", "throttled_mix_vs_fio_16mib"),
        ("CPU seconds for each GB, 16 MiB", "aio", "cpu_s_per_gb_16mib"),
    ]),
    "step": ("ratio of times", [
        ("zoff's step to its transfers alone, disk held at 1 GB/s each way", "step-quick", "wall_over_io_throttled"),
        ("zoff's step to its transfers alone, free disk", "step-quick", "wall_over_io"),
        ("half of the states in DRAM to none", "step-quick", "cached50_over_uncached"),
        ("with `persist` to without", "step-quick", "persist_over_plain"),
        ("DeepSpeed's default order of transfers over libaio to zoff's step", "step-quick", "vs_libaio_pattern"),
        ("DeepSpeed's pipelined order over libaio to zoff's step", "step-quick", "vs_libaio_pipelined"),
        ("the same with huge pages to zoff's step", "step-quick", "vs_libaio_pipelined_thp"),
        ("one drive of 300 MB/s each way to two", "step-quick", "two_paths_speedup"),
        ("1,024 chunks on the NVMe tier, all in DRAM, to the DRAM tier", "step-quick", "resident_over_dram"),
        ("a trainer's iteration with zoff to one with its own loop, worst of three sizes", "step-quick",
         "small_engine_vs_own_loop"),
        ("zoff's step of 124 M fp32 parameters in DRAM to a plain loop", "step-quick", "engine_vs_plain_loop"),
        ("MiB more of memory, beside weights and gradients, for ten times the model", "step-quick", "rss_growth_mib"),
    ]),
    "step_hidden": ("over the time of a plain step", [
        ("visible of a step beside 1.2 steps of forward pass on a device, with a background thread", "step-hidden",
         "visible_of_jit_over_update"),
        ("the same where the trainer computes on all cores", "step-hidden", "visible_of_jit_busy_over_update"),
        ("the same on a device, without a background thread", "step-hidden", "visible_of_jit_calls_over_update"),
        ("a step beside a forward pass of half its time on a device", "step-hidden", "jit_half_over_update"),
    ]),
    "step_ahead": ("over the time of a plain step", [
        ("visible of a step in files after a backward pass of 1.2 steps on a device", "xeon-2cpu:step-ahead",
         "visible_after_backward_over_update"),
        ("the same where the trainer computes on all cores", "xeon-2cpu:step-ahead", "visible_after_busy_backward_over_update"),
        ("visible of a step in files that is taken again", "xeon-2cpu:step-ahead", "visible_after_redo_over_update"),
        ("visible of a step in DRAM after a backward pass of 1.2 such steps on a device", "xeon-2cpu:step-ahead",
         "dram_visible_after_backward_over_update"),
        ("the same where the next forward pass waits for each weight", "xeon-2cpu:step-ahead",
         "dram_visible_of_both_over_update"),
        ("visible of a step in DRAM that is taken again", "xeon-2cpu:step-ahead", "dram_visible_after_redo_over_update"),
        ("visible of a step in files beside 1.2 steps of forward pass on a device", "xeon-2cpu:step-ahead",
         "visible_of_jit_over_update"),
        ("the same with weights that the engine owns, in DRAM", "xeon-2cpu:step-ahead", "visible_of_lent_over_update"),
        ("the same with weights that the engine owns, in files", "xeon-2cpu:step-ahead", "visible_of_lent_files_over_update"),
    ]),
    "step_formats": ("ratio or bytes", [
        ("bytes a parameter each way, masters in two halves", "step-formats", "split_bytes"),
        ("the same with moments in bf16", "step-formats", "split_bf16_bytes"),
        ("the same with moments in 8 bits", "step-formats", "split_q8_bytes"),
        ("bytes that the kernel counts for the disk to those that zoff counts", "step-formats", "disk_over_library"),
        ("step with split masters to one with fp32 masters, over the ratio of their bytes", "step-formats",
         "split_wall_over_bytes"),
        ("the same with moments in bf16", "step-formats", "split_bf16_wall_over_bytes"),
        ("the same with moments in 8 bits", "step-formats", "split_q8_wall_over_bytes"),
        ("DeepSpeed's default order with its gradients over the disk to zoff's step with split masters and bf16 moments",
         "step-formats-rivals", "split_bf16_vs_libaio_pattern_grads"),
        ("the same to zoff's step with moments in 8 bits", "step-formats-rivals", "split_q8_vs_libaio_pattern_grads"),
    ]),
    "checkpoint": ("ratio", [
        ("speed of a save from DRAM to the queue that writes a new file", "checkpoint", "save_host_vs_aio"),
        ("the same, disk held", "checkpoint", "throttled_save_host_vs_aio"),
        ("speed of a save from files to a copy of the state file", "checkpoint", "save_nvme_vs_copy"),
        ("speed of a save from files to the queue that reads and writes as much, disk held", "checkpoint",
         "throttled_save_nvme_vs_aio"),
        ("speed of a load into DRAM to the queue that reads as much", "checkpoint", "load_host_vs_aio"),
        ("the same, disk held", "checkpoint", "throttled_load_host_vs_aio"),
        ("speed of a load into files to the queue that reads and writes as much", "checkpoint", "load_nvme_vs_aio"),
        ("the same, disk held", "checkpoint", "throttled_load_nvme_vs_aio"),
        ("bytes that a save or a load moves to those of the states", "checkpoint", "moved_over_state"),
        ("time that a save adds to ten steps to the time of its bytes, free disk", "checkpoint", "async_save_over_bytes"),
        ("the same, disk held", "checkpoint", "async_save_over_bytes_throttled"),
        ("the same, half of the time is compute", "checkpoint", "async_save_over_bytes_compute"),
        ("the same on XFS, which shares blocks", "checkpoint", "async_save_over_bytes_reflink"),
        ("seconds of a save from files on XFS, for each GiB", "checkpoint", "save_nvme_reflink_seconds_per_gib"),
        ("peak of memory in a save to the plan and 64 MiB", "checkpoint", "save_peak_over_plan"),
        ("peak of memory in a load to the plan, on the NVMe tier also one chunk", "checkpoint", "load_peak_over_plan"),
    ]),
    "ranks": ("zoff's speed to Open MPI's", [
        (f"{name}, {ranks} ranks, {mib} MiB", f"comm-{ranks}ranks", f"{key}_vs_mpi_{mib}mib")
        for name, key in (("all-gather", "all_gather"), ("reduce-scatter", "reduce_scatter"))
        for ranks in (2, 4) for mib in (1, 16, 64)
    ] + [
        (f"part of the exchange that is over at the last gradient, {ranks} ranks", f"comm-{ranks}ranks", "hidden_share")
        for ranks in (2, 4)
    ]),
    "formats": ("zoff's speed to", [
        ("a kernel with the same traffic and no arithmetic, bf16 moments", "h200-16cpu:cpu_adam-quick", "share_bf16_moments"),
        ("the same, split masters", "h200-16cpu:cpu_adam-quick", "share_split"),
        ("the same, both", "h200-16cpu:cpu_adam-quick", "share_split_bf16"),
        ("one pass each for upcast, norm, scale, Adam, copy-out: bf16 moments", "h200-16cpu:cpu_adam-quick", "moments_vs_chain"),
        ("the same, split masters", "h200-16cpu:cpu_adam-quick", "split_fp32_vs_chain"),
        ("the same, both", "h200-16cpu:cpu_adam-quick", "split_bf16_vs_chain"),
    ]),
    "codes": ("ratio or cycles", [
        (f"{words}, {isa}", f"epyc-zen5-2cpu:cpu_adam-formats{end}", key)
        for isa, end in (("AVX-512", ""), ("AVX2", "-avx2"))
        for words, key in (("five passes to a norm and a step, split masters and bf16 moments", "split_bf16_vs_chain"),
                           ("the same with m in 8 bits", "split_m8v16_vs_chain"),
                           ("the same with both moments in 8 bits", "split_q8_vs_chain"),
                           ("cycles a parameter in the first cache, bf16 moments", "split_bf16_cycles"),
                           ("the same with m in 8 bits", "split_m8v16_cycles"),
                           ("the same with both moments in 8 bits", "split_q8_cycles"),
                           ("step with both in 8 bits to the longer of its instructions and its bytes", "split_q8_over_limit"))
    ]),
    "gpu": ("ratio", [
        ("step without a backward pass / the longest of download, update, upload alone", "h200-16cpu:device", "wall_over_slowest"),
        ("from the end of a backward pass to new weights / the update alone", "h200-16cpu:device", "visible_over_update"),
        ("speed of gradients down, slice by slice, to one copy", "h200-16cpu:device", "slices_over_memcpy_down"),
        ("speed of weights up, slice by slice, to one copy", "h200-16cpu:device", "slices_over_memcpy_up"),
        ("speed of gradients down while the engine casts and uploads weights, to two plain copies", "h200-16cpu:device", "duplex_over_memcpy"),
        ("part of the fetches of lent weights that is hidden", "h200-16cpu:device", "fetches_hidden_share"),
    ]),
    "fetches": ("part of the fetches that is hidden", [
        ("2 ranks, the trainer calls the engine each millisecond", "comm-fetches", "fetches_hidden_share"),
        ("2 ranks, the engine's thread (`zoff_engine_opts.progress_thread`)", "comm-fetches",
         "fetches_hidden_share_by_itself"),
        ("one rank, from DRAM to the emulated device", "device-fetches", "fetches_hidden_share"),
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
    if value is None:
        return ""
    decimals = next(count for least, count in ((50, 0), (10, 1), (0.1, 2), (0, 4)) if abs(value) >= least)
    return f"{value:.{decimals}f}"


def table(name):
    heading, lines = TABLES[name]
    rows = [f"| {heading} | p10 | median | p90 |", "|---|---|---|---|"]
    for label, run, what in lines:
        found = load(run)
        rows.append("| " + " | ".join([label + void(found, what), *map(shown, figure(found, what))]) + " |")
    return "\n".join(rows)


def main():
    new = BLOCK.sub(lambda block: f"{block[1]}\n{table(block[2])}\n\n{block[3]}", read(PAGE))
    return write(PAGE, new, "bench/results", "docs/make_performance.py")


if __name__ == "__main__":
    sys.exit(main())
