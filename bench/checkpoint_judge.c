/* checkpoint_judge.c: compute the figures of a run, with the limit of each and the reasons that make one worthless. */
#include "checkpoint_bench.h"

#include <math.h>

static const double LEAST_BYTES = 1 << 30;    /* of states, for a verdict */
enum { SAVE_NVME = 1, LOAD_HOST, LOAD_NVME }; /* indices of figures */

static void check(const checkpoint_options *options, const checkpoint_found *found, bench_figure *f)
{
    const double bytes = 12.0 * (double)options->elements;
    f->enough = CHECKPOINT_ROUNDS;
    if (options->busy != UINT64_MAX)
        bench_figures_spoil(f, "measured beside other work (--busy)");
    if (bytes < LEAST_BYTES)
        bench_figures_spoil(f, "the model has %.0f MiB of states; a verdict needs 1 GiB or more", bytes / (1 << 20));
    if (found->in_memory)
        bench_figures_spoil(f, "the folder is in memory, not on a disk");
}

/* A queue whose memory the kernel pins for each request is a slower yardstick. */
static void check_queue(const checkpoint_found *found, bench_figure *f)
{
    if (!found->registered)
        bench_figures_spoil(f, "the memory of the yardstick was not registered; raise the limit of locked memory (ulimit -l)");
}

/* Set the value to the median of the rounds in which nobody was disturbed. If those are too few, of all, and it is void. */
static void set_value(bench_figure *f, const race *r, race_value_fn value)
{
    double clean[RACE_ROUNDS], all[RACE_ROUNDS];
    const unsigned rounds = r ? r->rounds : 0;
    for (unsigned k = 0; k < rounds; k++) {
        bool disturbed = false;
        for (const race_entry *e = r->entries; e < r->entries + r->count; e++)
            disturbed = disturbed || e->other[k] > 0;
        all[k] = value(r, k);
        clean[k] = disturbed ? NAN : all[k];
    }
    const bench_spread quiet = bench_spread_of(clean, rounds), any = bench_spread_of(all, rounds);
    bench_figures_set_median(f, quiet.count < f->enough ? any : quiet);
    if (any.count && any.count < f->enough)
        bench_figures_spoil(f, "%u rounds ended in time; a verdict needs %u: raise --seconds or --rounds", any.count,
                            f->enough);
    else if (any.count && quiet.count < f->enough)
        bench_figures_spoil(f, "other processes used the CPUs in %u of %u rounds; run again on a quieter machine",
                            any.count - quiet.count, any.count);
}

/* Time of the yardstick, which is the last entry, over that of zoff. */
static double speed(const race *r, unsigned round)
{
    return r->entries[r->count - 1].seconds[round] / r->entries[0].seconds[round];
}

static void judge_duels(const checkpoint_options *options, const checkpoint_found *found, bench_figures *out)
{
    static const struct {
        bench_asked asked;
        const char *part, *label;
    } ASKED[] = {
        {{"save_host_vs_aio", 1, 0.9, "speed of a save from DRAM / of the queue that writes a new file, both durable", NULL,
          NULL},
         "save",
         "host"},
        {{"save_nvme_vs_copy", 1, 0.9, "speed of a save from files / of a plain copy of the state file, both durable", NULL,
          NULL},
         "save",
         "nvme"},
        {{"load_host_vs_aio", 1, 0.9, "speed of a load into DRAM / of the queue that reads the same bytes", NULL, NULL},
         "load",
         "host"},
        {{"load_nvme_vs_aio", 1, 0.9, "speed of a load into files / of the queue that reads and writes as many bytes at once",
          NULL, NULL},
         "load",
         "nvme"},
        {{"throttled_save_host_vs_aio", 1, 0.9, "save_host_vs_aio on a disk held at 1 GB/s each way", NULL, NULL},
         "throttled_save",
         "host"},
        {{"throttled_save_nvme_vs_aio", 1, 0.9,
          "speed of a save from files / of the queue that reads and writes as many bytes at once, on that disk", NULL, NULL},
         "throttled_save",
         "nvme"},
        {{"throttled_load_host_vs_aio", 1, 0.9, "load_host_vs_aio on that disk", NULL, NULL}, "throttled_load", "host"},
        {{"throttled_load_nvme_vs_aio", 1, 0.9, "load_nvme_vs_aio on that disk", NULL, NULL}, "throttled_load", "nvme"}};
    for (unsigned i = 0; i < sizeof ASKED / sizeof ASKED[0]; i++) {
        bench_figure *f = bench_figures_add(out, &ASKED[i].asked, NULL);
        check(options, found, f);
        if (i != SAVE_NVME) /* its yardstick is a copy */
            check_queue(found, f);
        set_value(f, race_of(&found->book, ASKED[i].part, ASKED[i].label), speed);
        bench_figures_excuse(f, i > LOAD_NVME ? found->no_throttle : "");
    }
}

/* The lower of the two tiers counts. */
static void judge_load(const checkpoint_options *options, const checkpoint_found *found, bench_figures *out)
{
    static const bench_asked ASKED = {"load_vs_aio", 1, 0.9, "the lower of load_host_vs_aio and load_nvme_vs_aio", NULL, NULL};
    const bench_figure *tiers = &out->list[LOAD_HOST]; /* and LOAD_NVME */
    bench_figure *f = bench_figures_add(out, &ASKED, NULL);
    if (bench_figures_measured(&tiers[0]) && bench_figures_measured(&tiers[1]))
        bench_figures_set(f, fmin(tiers[0].value, tiers[1].value),
                          tiers[0].rounds < tiers[1].rounds ? tiers[0].rounds : tiers[1].rounds);
    check(options, found, f);
    for (unsigned i = 0; i < 2; i++) {
        if (tiers[i].spoilt[0])
            bench_figures_spoil(f, "%s", tiers[i].spoilt);
    }
}

/* Set the value to that of the tier with more. A limit holds for both tiers, so one alone is no value. */
static void set_most(bench_figure *f, const double values[CHECKPOINT_TIERS])
{
    const bool measured[CHECKPOINT_TIERS] = {values[0] > 0, values[1] > 0};
    if (measured[0] && measured[1])
        bench_figures_set(f, fmax(values[0], values[1]), 1);
    else if (measured[0] || measured[1])
        bench_figures_excuse(f, "only one of the two tiers was measured");
}

/* Bytes that must move: a save writes all, a load reads all; from and to files as many the other way. */
static void judge_moved(const checkpoint_options *options, const checkpoint_found *found, bench_figures *out)
{
    static const bench_asked ASKED = {"moved_over_state",
                                      -1,
                                      1.02,
                                      "bytes of files over those of the states, the most of each way of saves and loads",
                                      NULL,
                                      NULL};
    double most[CHECKPOINT_TIERS];
    for (unsigned tier = 0; tier < CHECKPOINT_TIERS; tier++) {
        const checkpoint_tier_found *t = &found->tiers[tier];
        most[tier] = fmax(fmax(t->saved[0], t->saved[1]), fmax(t->loaded[0], t->loaded[1]));
        if (!(t->saved[1] > 0 && t->loaded[0] > 0)) /* on each tier a save writes and a load reads; host saves read nothing */
            most[tier] = NAN;
    }
    bench_figure *f = bench_figures_add(out, &ASKED, NULL);
    set_most(f, most);
    check(options, found, f);
}

static double extra_over_bytes(const race *r, unsigned round)
{
    return (race_at(r, "steps_and_save", round) - race_at(r, "steps", round)) / race_at(r, "aio_mix", round);
}

static void judge_async(const checkpoint_options *options, const checkpoint_found *found, bench_figures *out)
{
    static const bench_asked ASKED[] = {
        {"async_save_over_bytes", -1, 1.15,
         "time that a save adds to ten steps / time of its bytes, while the disk has no pause", NULL, NULL},
        {"async_save_over_bytes_throttled", -1, 1.15, "the same on a disk held at 1 GB/s each way", NULL, NULL},
        {"async_save_over_bytes_compute", -1, 1.15, "the same where half of the time is compute", NULL, NULL},
        {"async_save_over_bytes_reflink", -1, 0.15, "the same on XFS, which shares blocks", NULL, NULL}};
    static const char *const PARTS[][2] = {{"async", "the disk has no pause"},
                                           {"async", "the disk is held at 1 GB/s each way"},
                                           {"async", "half of the time is compute"},
                                           {"reflink", ""}};
    const char *const reasons[] = {"", found->no_throttle, "", found->no_reflink};
    for (unsigned i = 0; i < 4; i++) {
        bench_figure *f = bench_figures_add(out, &ASKED[i], NULL);
        check(options, found, f);
        check_queue(found, f);
        set_value(f, race_of(&found->book, PARTS[i][0], PARTS[i][1]), extra_over_bytes);
        bench_figures_excuse(f, reasons[i]);
    }
}

static double seconds_per_gib(const race *r, unsigned round)
{
    const race_entry *e = race_find(r, "save_reflink");
    return e ? e->seconds[round] / (12 * e->elements) * (1 << 30) : NAN;
}

static void judge_reflink(const checkpoint_options *options, const checkpoint_found *found, bench_figures *out)
{
    static const bench_asked ASKED = {"save_nvme_reflink_seconds_per_gib",
                                      -1,
                                      0.5,
                                      "seconds of a save from files on XFS, which shares blocks, for each GiB",
                                      NULL,
                                      NULL};
    bench_figure *f = bench_figures_add(out, &ASKED, NULL);
    check(options, found, f);
    set_value(f, race_of(&found->book, "reflink", ""), seconds_per_gib);
    bench_figures_excuse(f, found->no_reflink);
}

static void judge_memory(const checkpoint_options *options, const checkpoint_found *found, bench_figures *out)
{
    static const bench_asked ASKED[] = {
        {"save_peak_over_plan", -1, 1.02, "peak of memory in a save / the plan and 64 MiB, the most of both tiers", NULL, NULL},
        {"load_peak_over_plan", -1, 1.02, "peak of memory in a load / the plan, and on the NVMe tier one chunk", NULL, NULL}};
    const checkpoint_tier_found *t = found->tiers;
    const double peaks[2][CHECKPOINT_TIERS] = {{t[0].save_peak, t[1].save_peak}, {t[0].load_peak, t[1].load_peak}};
    for (unsigned i = 0; i < 2; i++) {
        bench_figure *f = bench_figures_add(out, &ASKED[i], NULL);
        set_most(f, peaks[i]);
        bench_figures_excuse(f, found->no_memory);
        check(options, found, f);
    }
}

void checkpoint_judge(const checkpoint_options *options, const checkpoint_found *found, bench_figures *out)
{
    *out = (bench_figures){.missing = "not among the parts of this run, or no round of it ended in its time"};
    judge_duels(options, found, out);
    judge_load(options, found, out);
    judge_moved(options, found, out);
    judge_async(options, found, out);
    judge_reflink(options, found, out);
    judge_memory(options, found, out);
}
