/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_judge.c: the figures of a run, with the limit of each and the reasons that make one worthless. */
#include "checkpoint_bench.h"

#include <math.h>

struct checkpoint_found checkpoint;
static const double LEAST_BYTES = 1 << 30; /* least bytes of states for a verdict */

/* A figure is about the queue: one whose memory the kernel pins for each request is a slower yardstick. */
enum { QUEUE = 1, ROUNDS = CHECKPOINT_ROUNDS };

/* clang-format off */
static const bench_asked FIGURES[] = {
    {"save_host_vs_aio", 1, 0.9, "speed of a save from DRAM / of the queue that writes a new file, both durable", "save/host", "aio_new_file / save_host", QUEUE, ROUNDS},
    {"save_nvme_vs_copy", 1, 0.9, "speed of a save from files / of a plain copy of the state file, both durable", "save/nvme", "copy / save_nvme", 0, ROUNDS},
    {"load_host_vs_aio", 1, 0.9, "speed of a load into DRAM / of the queue that reads the same bytes", "load/host", "aio_read / load_host", QUEUE, ROUNDS},
    {"load_nvme_vs_aio", 1, 0.9, "speed of a load into files / of the queue that reads and writes as many bytes at once", "load/nvme", "aio_mix / load_nvme", QUEUE, ROUNDS},
    {"throttled_save_host_vs_aio", 1, 0.9, "save_host_vs_aio on a disk held at 1 GB/s each way", "throttled_save/host", "aio_new_file / save_host", QUEUE, ROUNDS},
    {"throttled_save_nvme_vs_aio", 1, 0.9, "speed of a save from files / of the queue that reads and writes as many bytes at once, on that disk", "throttled_save/nvme", "aio_mix / save_nvme", QUEUE, ROUNDS},
    {"throttled_load_host_vs_aio", 1, 0.9, "load_host_vs_aio on that disk", "throttled_load/host", "aio_read / load_host", QUEUE, ROUNDS},
    {"throttled_load_nvme_vs_aio", 1, 0.9, "load_nvme_vs_aio on that disk", "throttled_load/nvme", "aio_mix / load_nvme", QUEUE, ROUNDS},
    {"load_vs_aio", 1, 0.9, "the lower of load_host_vs_aio and load_nvme_vs_aio", NULL, NULL, QUEUE, ROUNDS},
    {"moved_over_state", -1, 1.02, "bytes of files over those of the states, the most of each way of saves and loads"},
    {"async_save_over_bytes", -1, 1.15, "time that a save adds to ten steps / time of its bytes, while the disk has no pause", "async/the disk has no pause", "(steps_and_save - steps) / aio_mix", QUEUE, ROUNDS},
    {"async_save_over_bytes_throttled", -1, 1.15, "the same on a disk held at 1 GB/s each way", "async/the disk is held at 1 GB/s each way", "(steps_and_save - steps) / aio_mix", QUEUE, ROUNDS},
    {"async_save_over_bytes_compute", -1, 1.15, "the same where half of the time is compute", "async/half of the time is compute", "(steps_and_save - steps) / aio_mix", QUEUE, ROUNDS},
    {"async_save_over_bytes_reflink", -1, 0.15, "the same on XFS, which shares blocks", "reflink", "(steps_and_save - steps) / aio_mix", QUEUE, ROUNDS},
    {"save_nvme_reflink_seconds_per_gib", -1, 0.5, "seconds of a save from files on XFS, which shares blocks, for each GiB", "reflink", "save_reflink * 1073741824 / (12 * save_reflink.elements)", 0, ROUNDS},
    {"save_peak_over_plan", -1, 1.02, "peak of memory in a save / the plan and 64 MiB, the most of both tiers", "memory"},
    {"load_peak_over_plan", -1, 1.02, "peak of memory in a load / the plan, and on the NVMe tier one chunk", "memory"}};
/* clang-format on */

/* Set the value to that of the tier with more. A limit holds for both tiers, so one alone is no value. */
static void set_most(const char *name, double host, double nvme)
{
    bench_figure *f = bench_figures_find(name);
    if (host > 0 && nvme > 0)
        bench_figures_set(f, fmax(host, nvme), 1);
    else if ((host > 0 || nvme > 0) && f->missing == bench_figures.missing)
        bench_figures_excuse(f, "only one of the two tiers was measured");
}

/* Bytes that must move: a save writes all, a load reads all; from and to files as many the other way. */
static double moved(const checkpoint_costs *t)
{
    if (!(t->saved[1] > 0 && t->loaded[0] > 0)) /* on each tier a save writes and a load reads; host saves read nothing */
        return NAN;
    return fmax(fmax(t->saved[0], t->saved[1]), fmax(t->loaded[0], t->loaded[1]));
}

void checkpoint_judge(void)
{
    const double bytes = 12.0 * (double)disk.elements;
    const checkpoint_costs *t = checkpoint.tiers;
    bench_figures.missing = "not among the parts of this run, or no round of it ended in its time";
    bench_figures_add(FIGURES, BENCH_COUNT(FIGURES));
    const bench_figure *loads[] = {bench_figures_find("load_host_vs_aio"), bench_figures_find("load_nvme_vs_aio")};
    bench_figure *lower = bench_figures_find("load_vs_aio");
    if (bench_figures_measured(loads[0]) && bench_figures_measured(loads[1]))
        bench_figures_set(lower, fmin(loads[0]->value, loads[1]->value),
                          loads[0]->rounds < loads[1]->rounds ? loads[0]->rounds : loads[1]->rounds);
    set_most("moved_over_state", moved(&t[0]), moved(&t[1]));
    set_most("save_peak_over_plan", t[0].save_peak, t[1].save_peak);
    set_most("load_peak_over_plan", t[0].load_peak, t[1].load_peak);
    if (disk.busy != DISK_ALONE)
        bench_figures_void(0, "measured beside other work (--busy)");
    if (bytes < LEAST_BYTES)
        bench_figures_void(0, bench_text("the model has %.0f MiB of states; a verdict needs 1 GiB or more", bytes / (1 << 20)));
    if (disk.in_memory)
        bench_figures_void(0, "the folder is in memory, not on a disk");
    if (checkpoint.unregistered)
        bench_figures_void(QUEUE,
                           "the memory of the yardstick was not registered; raise the limit of locked memory (ulimit -l)");
    bench_figures_check_rounds();
    bench_figures_check_quiet("other processes used the CPUs");
    for (unsigned i = 0; i < 2; i++) {
        if (loads[i]->spoilt[0])
            bench_figures_spoil(lower, loads[i]->spoilt);
    }
}
