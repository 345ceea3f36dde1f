/* aio_judge.c: from races to the figures that the run is for, with what is asked of each and what makes one worthless. */
#include "aio_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double BOUND_RATE = 1e9; /* of the disk of known speed; twice that when both ways are in use */

typedef struct judge {
    const bench_options *options;
    const bench_book *book;
    bench_ratio *out;
    unsigned count;
} judge;

/* What our two contestants are called in the names of figures; their places in the races. */
static const char *const OURS[] = {"1gib", "16mib"};

static bench_ratio *add(judge *j, int sense, double limit, const char *meaning, unsigned enough)
{
    if (j->count == MOST_RATIOS)
        abort(); /* a mistake in this file */
    bench_ratio *r = &j->out[j->count++];
    *r = (bench_ratio){.meaning = meaning, .value = NAN, .sense = sense, .limit = limit, .enough = enough};
    snprintf(r->missing, sizeof r->missing, "not among the parts of this run, or no round of it ended in its time");
    return r;
}

static void set(bench_ratio *r, double value, unsigned rounds)
{
    if (!isfinite(value))
        return;
    r->value = value;
    r->rounds = rounds;
    r->missing[0] = 0;
}

static void set_missing(bench_ratio *r, const char *why)
{
    if (!isfinite(r->value) && why[0])
        snprintf(r->missing, sizeof r->missing, "%s", why);
}

static void spoil(bench_ratio *r, const char *why)
{
    if (!r->spoilt[0])
        snprintf(r->spoilt, sizeof r->spoilt, "%s", why);
}

static void check_file(const judge *j, bench_ratio *r)
{
    const bench_place *place = &j->book->place;
    if (j->options->bytes != GIB && !r->spoilt[0])
        snprintf(r->spoilt, sizeof r->spoilt, "measured on a file of %llu MiB; what is asked is about 1 GiB",
                 (unsigned long long)(j->options->bytes / MIB));
    if (!place->direct)
        spoil(r, "the file system has no O_DIRECT: that is the speed of the page cache");
    if (place->huge_bytes < j->options->bytes * 9 / 10)
        spoil(r, "our memory did not come in huge pages (/sys/kernel/mm/transparent_hugepage/enabled)");
}

static void check_fio(const judge *j, bench_ratio *r)
{
    check_file(j, r);
    if (!j->book->place.pages_for_fio)
        spoil(r, "fio had no huge pages, so it was not at its best; run as root, or raise vm.nr_hugepages by 80");
}

/* `others_matter`: what the disk did for somebody else may have decided it. */
static void set_pair(bench_ratio *r, const bench_match *match, int a, int b, int others_matter)
{
    int busy;
    const race_ratio ratio = bench_match_compare(match, a, b, r->enough, &busy);
    set(r, ratio.median, ratio.pairs);
    if (busy && (others_matter || ratio.median < r->limit))
        spoil(r, "the disk worked for others too in most samples; run again on a quieter machine");
}

/* Bandwidth of one of ours / that of fio's best line, in pairs of one round. */
static void set_contest(bench_ratio *r, const bench_match *match, unsigned ours, int others_matter)
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
            bench_ratio *r = add(j, 1, LIMITS[way], MEANINGS[way][ours], ENOUGH_ROUNDS);
            snprintf(r->name, sizeof r->name, "%s_vs_fio_%s", bench_way_name((bench_way)way), OURS[ours]);
            check_fio(j, r);
            set_contest(r, bench_book_find(j->book, "contest", (bench_way)way), ours, 1);
            set_missing(r, j->book->no_fio);
        }
    }
}

/* A bound that did not bind says nothing. */
static void check_bound(bench_ratio *r, const bench_match *match)
{
    const int best = match ? bench_match_best_fio(match) : -1;
    const double rate = match && best >= 0 ? bench_match_rate(match, best) / (match->way == WAY_MIX ? 2 : 1) : NAN;
    if (!r->spoilt[0] && (rate < 0.97 * BOUND_RATE || rate > 1.15 * BOUND_RATE))
        snprintf(r->spoilt, sizeof r->spoilt, "the disk was to give 1 GB/s each way, but gave fio %.2f", 1e-9 * rate);
}

static void judge_throttle(judge *j)
{
    for (unsigned way = 0; way < WAYS; way++) {
        for (unsigned ours = 0; ours < 2; ours++) {
            const bench_match *match = bench_book_find(j->book, "throttle", (bench_way)way);
            bench_ratio *r = add(j, 1, 0.98,
                                 ours ? "the same on a disk held at 1 GB/s each way, 16 MiB, 4 for each wait"
                                      : "bytes a second / fio's on a disk held at 1 GB/s each way (cgroup), one request",
                                 ENOUGH_THROTTLED);
            snprintf(r->name, sizeof r->name, "throttled_%s_vs_fio_%s", bench_way_name((bench_way)way),
                     ours ? OURS[1] : "whole");
            check_fio(j, r);
            check_bound(r, match);
            set_contest(r, match, ours, 0); /* a disk with twice that to give serves others too */
            set_missing(r, j->book->no_fio);
            set_missing(r, j->book->no_throttle);
        }
    }
}

/* The dearest of the three ways. */
static void judge_cpu(judge *j)
{
    for (unsigned ours = 0; ours < 2; ours++) {
        bench_ratio *r =
            add(j, -1, 0.010, "CPU seconds of our process for 1e9 bytes moved, the dearest of the three ways", ENOUGH_ROUNDS);
        snprintf(r->name, sizeof r->name, "cpu_s_per_gb_%s", OURS[ours]);
        for (unsigned way = 0; way < WAYS; way++) {
            const bench_match *match = bench_book_find(j->book, "contest", (bench_way)way);
            const double cpu = match ? bench_match_cpu(match, (int)ours) : NAN;
            if (match)
                set(r, isnan(r->value) ? cpu : fmax(cpu, r->value), match->r.rounds);
        }
        check_file(j, r);
    }
}

static void judge_pages(judge *j)
{
    for (unsigned way = 0; way < WAYS; way++) {
        const bench_match *match = bench_book_find(j->book, "pages", (bench_way)way);
        bench_ratio *r = add(j, 0, 0, "16 MiB requests / fio with libaio, 1 MiB, 8 in flight, 4 KiB pages", 1);
        snprintf(r->name, sizeof r->name, "%s_vs_libaio_4k_pages", bench_way_name((bench_way)way));
        if (match && match->r.count > 2)
            set_pair(r, match, 0, 2, 1);
        set_missing(r, j->book->no_fio);
        r = add(j, 0, 0, "16 MiB requests, memory of 4 KiB pages / of huge pages", 1);
        snprintf(r->name, sizeof r->name, "%s_4k_pages_vs_huge", bench_way_name((bench_way)way));
        if (match)
            set_pair(r, match, 1, 0, 1);
    }
}

unsigned bench_judge(const bench_options *options, const bench_book *book, bench_ratio out[MOST_RATIOS])
{
    judge j = {.options = options, .book = book, .out = out};
    judge_contest(&j);
    judge_cpu(&j);
    judge_throttle(&j);
    judge_pages(&j);
    return j.count;
}

int bench_judge_held(const bench_ratio *r)
{
    return isfinite(r->value) && !r->spoilt[0] && (r->sense >= 0 ? r->value >= r->limit : r->value <= r->limit);
}

int bench_judge_enough(const bench_ratio *ratios, unsigned count)
{
    int all = 1;
    for (unsigned i = 0; i < count; i++)
        all = all && (!ratios[i].sense || !isfinite(ratios[i].value) || ratios[i].rounds >= ratios[i].enough);
    return all;
}
