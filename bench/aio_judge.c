/* aio_judge.c: compute the figures of a run from its races, with the limit of each and the reasons that make one worthless. */
#include "aio_bench.h"

#include <math.h>

static const double BOUND_RATE = 1e9; /* bytes per second of the limited disk, for each direction */

/* Names of our two contestants in figures, and their indices in the races. */
static const char *const OURS[] = {"1gib", "16mib"};
static const char *const WAY_NAMES[WAYS] = {"read", "write", "mix"};

static void check_file(const aio_options *options, const aio_place *place, bench_figure *f)
{
    if (options->bytes != GIB)
        bench_figures_spoil(f, "measured on a file of %llu MiB; what is asked is about 1 GiB",
                            (unsigned long long)(options->bytes / MIB));
    if (!place->direct)
        bench_figures_spoil(f, "the file system has no O_DIRECT: that is the speed of the page cache");
    if (place->huge_bytes < options->bytes * 9 / 10)
        bench_figures_spoil(f, "our memory did not come in huge pages (/sys/kernel/mm/transparent_hugepage/enabled)");
}

/* Ratio of bytes per second, `a` over `b`: the median of the rounds in which neither was disturbed, or of all rounds if those
 * are too few. Set `others_matter` if the disk's work for other processes may have decided it. */
static void set_pair(bench_figure *f, const aio_match *match, int a, int b, bool others_matter)
{
    double clean[RACE_ROUNDS] = {0}, all[RACE_ROUNDS] = {0};
    bool busy = false;
    if (!match || a < 0 || b < 0)
        return;
    for (unsigned k = 0; k < match->r->rounds; k++) {
        const bool disturbed = match->busy[a][k] || match->busy[b][k];
        all[k] = match->r->entries[b].seconds[k] / match->r->entries[a].seconds[k];
        clean[k] = disturbed ? NAN : all[k];
        busy = busy || (disturbed && !isnan(all[k]));
    }
    bench_spread spread = bench_spread_of(clean, match->r->rounds);
    busy = busy && spread.count < f->enough;
    if (busy)
        spread = bench_spread_of(all, match->r->rounds);
    bench_figures_set_median(f, spread);
    if (busy && (others_matter || spread.median < f->limit))
        bench_figures_spoil(f, "the disk worked for others too in most samples; run again on a quieter machine");
}

static bench_figure *add(bench_figures *out, const char *name, int sense, double limit, const char *meaning, unsigned enough)
{
    bench_figure *f = bench_figures_add(out, &(bench_asked){name, sense, limit, meaning, NULL, NULL}, NULL);
    f->enough = enough;
    return f;
}

/* A limit that did not bind proves nothing. */
static void check_bound(bench_figure *f, const aio_match *match, int best)
{
    const double ways = match && match->way == WAY_MIX ? 2 : 1;
    const bench_spread fio =
        bench_spread_of(match && best >= 0 ? match->r->entries[best].seconds : NULL, match && best >= 0 ? match->r->rounds : 0);
    const double rate = match ? (double)match->bytes / fio.median / ways : NAN;
    if (rate < 0.97 * BOUND_RATE || rate > 1.15 * BOUND_RATE)
        bench_figures_spoil(f, "the disk was to give 1 GB/s each way, but gave fio %.2f", 1e-9 * rate);
}

/* Bandwidth of each of our lines over that of fio's best line, in pairs of one round. The disk is free, or limited to a known
 * rate. */
static void judge_contest(const aio_options *options, const aio_found *found, bool bound, bench_figures *out)
{
    enum { ENOUGH_THROTTLED = 1 };
    static const double LIMITS[WAYS] = {0.92, 0.97, 0.95};
    static const char *const MEANINGS[WAYS][2] = {
        {"bytes a second of one read of the whole file / of fio's best setting", "the same, reads of 16 MiB, 4 for each wait"},
        {"the same, one write", "the same, writes of 16 MiB, 4 for each wait"},
        {"the same, a read of one half and a write of the other in flight at once",
         "the same, 2 reads and 2 writes of 16 MiB for each wait"}};
    static const char *const BOUND[2] = {"bytes a second / fio's on a disk held at 1 GB/s each way (cgroup), one request",
                                         "the same on a disk held at 1 GB/s each way, 16 MiB, 4 for each wait"};
    for (unsigned i = 0; i < 2 * WAYS; i++) {
        const unsigned way = i / 2, ours = i % 2;
        const aio_match *match = aio_match_of(found, bound ? "throttle" : "contest", (aio_way)way);
        const int best = aio_match_best_fio(match, NULL);
        char name[48];
        snprintf(name, sizeof name, "%s%s_vs_fio_%s", bound ? "throttled_" : "", WAY_NAMES[way],
                 bound && !ours ? "whole" : OURS[ours]);
        bench_figure *f = add(out, name, 1, bound ? 0.98 : LIMITS[way], bound ? BOUND[ours] : MEANINGS[way][ours],
                              bound ? ENOUGH_THROTTLED : ENOUGH_ROUNDS);
        check_file(options, &found->place, f);
        if (!found->place.pages_for_fio)
            bench_figures_spoil(
                f, "fio had no huge pages, so it was not at its best; run as root, or raise vm.nr_hugepages by 80");
        if (bound)
            check_bound(f, match, best);
        set_pair(f, match, (int)ours, best, !bound); /* a disk with twice that bandwidth serves other processes, too */
        bench_figures_excuse(f, found->no_fio);
        bench_figures_excuse(f, bound ? found->no_throttle : "");
    }
}

/* The direction with the highest cost counts. */
static void judge_cpu(const aio_options *options, const aio_found *found, bench_figures *out)
{
    for (unsigned ours = 0; ours < 2; ours++) {
        char name[48];
        snprintf(name, sizeof name, "cpu_s_per_gb_%s", OURS[ours]);
        bench_figure *f = add(out, name, -1, 0.010,
                              "CPU seconds of our process for 1e9 bytes moved, the dearest of the three ways", ENOUGH_ROUNDS);
        for (unsigned way = 0; way < WAYS; way++) {
            const aio_match *match = aio_match_of(found, "contest", (aio_way)way);
            if (match)
                bench_figures_set(f, fmax(aio_match_cpu(match, ours), f->value), match->r->rounds);
        }
        check_file(options, &found->place, f);
    }
}

static void judge_pages(const aio_found *found, bench_figures *out)
{
    for (unsigned way = 0; way < WAYS; way++) {
        const aio_match *match = aio_match_of(found, "pages", (aio_way)way);
        char name[48];
        snprintf(name, sizeof name, "%s_vs_libaio_4k_pages", WAY_NAMES[way]);
        bench_figure *f = add(out, name, 0, 0, "16 MiB requests / fio with libaio, 1 MiB, 8 in flight, 4 KiB pages", 1);
        set_pair(f, match, 0, match && match->r->count > 2 ? 2 : -1, true);
        bench_figures_excuse(f, found->no_fio);
        snprintf(name, sizeof name, "%s_4k_pages_vs_huge", WAY_NAMES[way]);
        set_pair(add(out, name, 0, 0, "16 MiB requests, memory of 4 KiB pages / of huge pages", 1), match, 1, 0, true);
    }
}

void aio_judge(const aio_options *options, const aio_found *found, bench_figures *out)
{
    *out = (bench_figures){.missing = "not among the parts of this run, or no round of it ended in its time"};
    judge_contest(options, found, false, out);
    judge_cpu(options, found, out);
    judge_contest(options, found, true, out);
    judge_pages(found, out);
}
