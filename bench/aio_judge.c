/* aio_judge.c: from races to the figures that the run is for, with what is asked of each and what makes one worthless. */
#include "aio_bench.h"

#include <math.h>

static const double BOUND_RATE = 1e9; /* of the disk of known speed; twice that when both ways are in use */

typedef struct judge {
    const bench_options *options;
    const bench_book *book;
    bench_figures *out;
} judge;

/* What our two contestants are called in the names of figures; their places in the races. */
static const char *const OURS[] = {"1gib", "16mib"};

static bench_figure *add(judge *j, const char *name, int sense, double limit, const char *meaning, unsigned enough)
{
    bench_figure *f = bench_figures_add(j->out, name, sense, limit, meaning,
                                        "not among the parts of this run, or no round of it ended in its time");
    f->enough = enough;
    return f;
}

static void check_file(const judge *j, bench_figure *r)
{
    const bench_place *place = &j->book->place;
    if (j->options->bytes != GIB)
        bench_figures_spoil(r, "measured on a file of %llu MiB; what is asked is about 1 GiB",
                            (unsigned long long)(j->options->bytes / MIB));
    if (!place->direct)
        bench_figures_spoil(r, "the file system has no O_DIRECT: that is the speed of the page cache");
    if (place->huge_bytes < j->options->bytes * 9 / 10)
        bench_figures_spoil(r, "our memory did not come in huge pages (/sys/kernel/mm/transparent_hugepage/enabled)");
}

static void check_fio(const judge *j, bench_figure *r)
{
    check_file(j, r);
    if (!j->book->place.pages_for_fio)
        bench_figures_spoil(r, "fio had no huge pages, so it was not at its best; run as root, or raise vm.nr_hugepages by 80");
}

/* `others_matter`: what the disk did for somebody else may have decided it. */
static void set_pair(bench_figure *r, const bench_match *match, int a, int b, int others_matter)
{
    int busy;
    const race_ratio ratio = bench_match_compare(match, a, b, r->enough, &busy);
    bench_figures_set(r, ratio.median, ratio.pairs);
    if (busy && (others_matter || ratio.median < r->limit))
        bench_figures_spoil(r, "the disk worked for others too in most samples; run again on a quieter machine");
}

/* Bandwidth of one of ours / that of fio's best line, in pairs of one round. */
static void set_contest(bench_figure *r, const bench_match *match, unsigned ours, int others_matter)
{
    const int best = match ? bench_match_best_fio(match) : -1;
    if (best < 0)
        return;
    set_pair(r, match, (int)ours, best, others_matter);
}

static void judge_contest(judge *j)
{
    static const double LIMITS[WAYS] = {0.92, 0.97, 0.95};
    static const char *const MEANINGS[WAYS][2] = {
        {"bytes a second of one read of the whole file / of fio's best setting", "the same, reads of 16 MiB, 4 for each wait"},
        {"the same, one write", "the same, writes of 16 MiB, 4 for each wait"},
        {"the same, a read of one half and a write of the other in flight at once",
         "the same, 2 reads and 2 writes of 16 MiB for each wait"}};
    for (unsigned way = 0; way < WAYS; way++) {
        for (unsigned ours = 0; ours < 2; ours++) {
            char name[48];
            snprintf(name, sizeof name, "%s_vs_fio_%s", bench_way_name((bench_way)way), OURS[ours]);
            bench_figure *r = add(j, name, 1, LIMITS[way], MEANINGS[way][ours], ENOUGH_ROUNDS);
            check_fio(j, r);
            set_contest(r, bench_book_find(j->book, "contest", (bench_way)way), ours, 1);
            bench_figures_excuse(r, "%s", j->book->no_fio);
        }
    }
}

/* A bound that did not bind says nothing. */
static void check_bound(bench_figure *r, const bench_match *match)
{
    const int best = match ? bench_match_best_fio(match) : -1;
    const double rate = match && best >= 0 ? bench_match_rate(match, best) / (match->way == WAY_MIX ? 2 : 1) : NAN;
    if (rate < 0.97 * BOUND_RATE || rate > 1.15 * BOUND_RATE)
        bench_figures_spoil(r, "the disk was to give 1 GB/s each way, but gave fio %.2f", 1e-9 * rate);
}

static void judge_throttle(judge *j)
{
    for (unsigned way = 0; way < WAYS; way++) {
        for (unsigned ours = 0; ours < 2; ours++) {
            const bench_match *match = bench_book_find(j->book, "throttle", (bench_way)way);
            char name[48];
            snprintf(name, sizeof name, "throttled_%s_vs_fio_%s", bench_way_name((bench_way)way), ours ? OURS[1] : "whole");
            bench_figure *r = add(j, name, 1, 0.98,
                                  ours ? "the same on a disk held at 1 GB/s each way, 16 MiB, 4 for each wait"
                                       : "bytes a second / fio's on a disk held at 1 GB/s each way (cgroup), one request",
                                  ENOUGH_THROTTLED);
            check_fio(j, r);
            check_bound(r, match);
            set_contest(r, match, ours, 0); /* a disk with twice that to give serves others too */
            bench_figures_excuse(r, "%s", j->book->no_fio);
            bench_figures_excuse(r, "%s", j->book->no_throttle);
        }
    }
}

/* The dearest of the three ways. */
static void judge_cpu(judge *j)
{
    for (unsigned ours = 0; ours < 2; ours++) {
        char name[48];
        snprintf(name, sizeof name, "cpu_s_per_gb_%s", OURS[ours]);
        bench_figure *r = add(j, name, -1, 0.010,
                              "CPU seconds of our process for 1e9 bytes moved, the dearest of the three ways", ENOUGH_ROUNDS);
        for (unsigned way = 0; way < WAYS; way++) {
            const bench_match *match = bench_book_find(j->book, "contest", (bench_way)way);
            const double cpu = match ? bench_match_cpu(match, (int)ours) : NAN;
            if (match)
                bench_figures_set(r, isnan(r->value) ? cpu : fmax(cpu, r->value), match->r.rounds);
        }
        check_file(j, r);
    }
}

static void judge_pages(judge *j)
{
    for (unsigned way = 0; way < WAYS; way++) {
        const bench_match *match = bench_book_find(j->book, "pages", (bench_way)way);
        char name[48];
        snprintf(name, sizeof name, "%s_vs_libaio_4k_pages", bench_way_name((bench_way)way));
        bench_figure *r = add(j, name, 0, 0, "16 MiB requests / fio with libaio, 1 MiB, 8 in flight, 4 KiB pages", 1);
        if (match && match->r.count > 2)
            set_pair(r, match, 0, 2, 1);
        bench_figures_excuse(r, "%s", j->book->no_fio);
        snprintf(name, sizeof name, "%s_4k_pages_vs_huge", bench_way_name((bench_way)way));
        r = add(j, name, 0, 0, "16 MiB requests, memory of 4 KiB pages / of huge pages", 1);
        if (match)
            set_pair(r, match, 1, 0, 1);
    }
}

void bench_judge(const bench_options *options, const bench_book *book, bench_figures *out)
{
    *out = (bench_figures){0};
    judge j = {.options = options, .book = book, .out = out};
    judge_contest(&j);
    judge_cpu(&j);
    judge_throttle(&j);
    judge_pages(&j);
}

int bench_judge_enough(const bench_figures *figures)
{
    int all = 1;
    for (unsigned i = 0; i < figures->count; i++) {
        const bench_figure *f = &figures->list[i];
        all = all && (!f->sense || !bench_figures_measured(f) || f->rounds >= f->enough);
    }
    return all;
}
