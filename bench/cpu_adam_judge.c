/* cpu_adam_judge.c: from races to the figures that the run is for, with what is asked of each and what makes one worthless: a
 * rival that is slow for another reason than the one in question proves nothing. */
#include "cpu_adam_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A rival below this share of its own no-math kernel is a straw man. */
static const double HONEST_SHARE = 0.9;
static const size_t PROMISED_SIZE = (size_t)64 << 20;

typedef struct judge {
    const bench_options *options;
    const bench_book *book;
    bench_figures *out;
    unsigned part; /* of the figures that are being named */
} judge;

static bench_figure *add(judge *j, const char *name, int sense, double limit, const char *meaning)
{
    bench_figure *f = bench_figures_add(j->out, name, sense, limit, meaning,
                                        "not among the parts, types or threads of this run, or no clean round in its time");
    f->part = j->part;
    return f;
}

static void check_size(const judge *j, bench_figure *r)
{
    const size_t last = j->options->sizes[j->options->size_count - 1];
    if (last != PROMISED_SIZE)
        bench_figures_spoil(r, "measured at %zu elements; what is asked is about %zu", last, PROMISED_SIZE);
}

static void check_honest(bench_figure *r, const race *from, const char *rival)
{
    const double share = from ? race_share(from, race_find(from, rival)) : NAN;
    if (!(share < HONEST_SHARE) || r->spoilt[0])
        return;
    r->slow_rival = true;
    bench_figures_spoil(r, "%s reached only %.3f of its own no-math kernel: too slow a rival", rival, share);
}

/* The race of a part for the largest size. */
static const race *largest(const judge *j, const char *part)
{
    char label[64];
    snprintf(label, sizeof label, "%zu", j->options->sizes[j->options->size_count - 1]);
    return bench_book_find(j->book, part, label);
}

/* The race of a part whose label ends so. */
static const race *ending(const judge *j, const char *part, const char *end)
{
    for (unsigned i = 0; i < j->book->count; i++) {
        const race *r = j->book->races[i];
        const size_t length = strlen(r->label), wanted = strlen(end);
        if (strcmp(r->part, part) == 0 && length >= wanted && strcmp(r->label + length - wanted, end) == 0)
            return r;
    }
    return NULL;
}

/* Scaling of zoff over scaling of its no-math kernel: four samples of one round. */
static void set_scaling(bench_figure *out, const race *r)
{
    double ratios[RACE_ROUNDS];
    unsigned pairs = 0;
    if (!r)
        return;
    const int z1 = race_find(r, "zoff_fp32_alone"), z = race_find(r, "zoff_fp32");
    const int n1 = race_find(r, "nomath_fp32_alone"), n = race_find(r, "nomath_fp32");
    for (unsigned k = 0; z1 >= 0 && n1 >= 0 && k < r->rounds; k++) {
        const race_entry *e = r->entries;
        const double ratio = e[z1].seconds[k] / e[z].seconds[k] / (e[n1].seconds[k] / e[n].seconds[k]);
        if (!isnan(ratio))
            ratios[pairs++] = ratio;
    }
    if (pairs)
        bench_figures_set(out, bench_stopwatch_spread(ratios, pairs).median, pairs);
}

static void judge_step(judge *j)
{
    const race *step = largest(j, "step");
    bench_figure *r = add(j, "share_bf16", 1, 0.95, "time of the no-math kernel / zoff's step, bf16 gradient and copy-out");
    bench_figures_set_pair(r, step, "nomath_bf16", "zoff_bf16");
    check_size(j, r);
    r = add(j, "share_fp32", 1, 0.95, "time of the no-math kernel / zoff's step, fp32 in place");
    bench_figures_set_pair(r, step, "nomath_fp32", "zoff_fp32");
    check_size(j, r);
    r = add(j, "share_bf16_keep", 0, 0, "the same for bf16 weights in place, without a master");
    bench_figures_set_pair(r, step, "nomath_keep", "zoff_bf16_keep");
    r = add(j, "share_fp32_alone", 0, 0, "share_fp32 on one thread");
    bench_figures_set_pair(r, step, "nomath_fp32_alone", "zoff_fp32_alone");
    r = add(j, "scaling_1_to_2", 1, 0.95, "speed-up of zoff's fp32 step from one thread to all / that of its no-math kernel");
    set_scaling(r, step);
    check_size(j, r);

    r = add(j, "bf16_vs_fp32_bytes", 1, 0.95,
            "bytes a second of zoff's step with bf16 gradient and copy-out / of fp32 in place");
    bench_figures_set_pair(r, step, "zoff_fp32", "zoff_bf16");
    check_size(j, r);
    /* A larger part of its bytes are written, which memory is slower at, with math or without. */
    r = add(j, "bf16_keep_vs_fp32_bytes", 1, 0.9, "the same for bf16 weights in place, without a master");
    bench_figures_set_pair(r, step, "zoff_fp32", "zoff_bf16_keep");
    r->value *= 22.0 / 28;
    check_size(j, r);
}

static void judge_chain(judge *j)
{
    static const char *const PASSES[] = {"chain_upcast", "chain_norm", "chain_scale", "chain_adam", "chain_cast"};
    const race *chain = largest(j, "chain");
    bench_figure *plain = add(j, "vs_chain", 1, 1.75, "five passes with plain stores / norm and zoff's fused bf16 step");
    bench_figure *best = add(j, "vs_chain_streaming", 0, 0, "the same, the chain's casts with streaming stores");
    bench_figures_set_pair(plain, chain, "chain", "norm_zoff_bf16");
    bench_figures_set_pair(best, chain, "chain_streaming", "norm_zoff_bf16");
    for (unsigned i = 0; i < sizeof PASSES / sizeof PASSES[0]; i++)
        check_honest(plain, chain, PASSES[i]);
    check_size(j, plain);
}

/* Over the sizes of the sweep: the faster of the two plain loops, by the median, over zoff. */
static void judge_sweep(judge *j)
{
    double logs = 0, worst = INFINITY, worst_size = NAN, last_size = 0, serial_worst = INFINITY;
    unsigned sizes = 0, pairs = RACE_ROUNDS, worst_pairs = 0, skipped = 0;
    const race *last = NULL;
    for (unsigned i = 0; i < j->book->count; i++) {
        const race *r = j->book->races[i];
        if (strcmp(r->part, "sweep") != 0)
            continue;
        const race_ratio a = race_compare(r, race_find(r, "plain"), race_find(r, "zoff"));
        const race_ratio b = race_compare(r, race_find(r, "plain_if"), race_find(r, "zoff"));
        const race_ratio rival = b.median < a.median || isnan(a.median) ? b : a;
        if (isnan(rival.median)) {
            skipped++;
            continue;
        }
        const race_ratio serial = race_compare(r, race_find(r, "plain_serial"), race_find(r, "zoff"));
        serial_worst = fmin(serial_worst, serial.median);
        logs += log(rival.median);
        sizes++;
        pairs = rival.pairs < pairs ? rival.pairs : pairs;
        if (rival.median < worst)
            worst = rival.median, worst_size = r->entries[0].elements, worst_pairs = rival.pairs;
        if (r->entries[0].elements > last_size)
            last = r, last_size = r->entries[0].elements;
    }
    bench_figure *mean = add(j, "vs_plain_loop", 1, 1, "faster plain loop / zoff's fp32 step, geometric mean over the sweep");
    bench_figure *least = add(j, "vs_plain_loop_worst", 1, 0.95, "smallest of the sweep");
    bench_figure *where = add(j, "vs_plain_loop_worst_elements", 0, 0, "the size of that");
    bench_figure *serial =
        add(j, "vs_serial_loop_worst", 0, 0, "below 32768 elements, the loop without OpenMP / zoff, smallest");
    bench_figures_set(serial, serial_worst, pairs);
    if (sizes) {
        bench_figures_set(mean, exp(logs / sizes), pairs);
        bench_figures_set(least, worst, worst_pairs);
        bench_figures_set(where, worst_size, worst_pairs);
    }
    bench_figure *const both[] = {mean, least};
    for (unsigned k = 0; k < 2; k++) {
        check_size(j, both[k]);
        if (sizes && skipped)
            bench_figures_spoil(both[k], "%u sizes had no clean round", skipped);
        if (last && last_size >= (double)PROMISED_SIZE / 4) /* smaller ones may be in a cache, where the math shows */
            check_honest(both[k], last, "plain");
    }
}

static void judge_lists(judge *j)
{
    static const struct {
        const char *end, *calls, *serial, *steps;
        double limit;
    } LISTS[] = {
        {" x 1024", "list_vs_calls_1k", "list_vs_serial_calls_1k", "list_vs_step_calls_1k", 3},
        {" x 256", "list_vs_calls_256", "list_vs_serial_calls_256", "list_vs_step_calls_256", 0},
    };
    for (unsigned i = 0; i < 2; i++) {
        const race *r = ending(j, "lists", LISTS[i].end);
        bench_figure *calls = add(j, LISTS[i].calls, LISTS[i].limit > 0, LISTS[i].limit,
                                  "2,000 plain-loop calls, each its own OpenMP region / one zoff_adam_step_list");
        bench_figures_set_pair(calls, r, "plain_calls", "zoff_list");
        check_size(j, calls);
        bench_figures_set_pair(
            add(j, LISTS[i].serial, 0, 0, "the same, plain-loop calls on the calling thread, without OpenMP / one list call"),
            r, "plain_calls_serial", "zoff_list");
        bench_figures_set_pair(add(j, LISTS[i].steps, 0, 0, "2,000 zoff_adam_step calls / one list call"), r, "zoff_calls",
                               "zoff_list");
        /* What is slow about it are its regions: even without math they would lose by what is asked, or the figure is void. */
        const double without_math = r ? race_compare(r, race_find(r, "nomath_calls"), race_find(r, "zoff_list")).median : NAN;
        if (!(without_math >= LISTS[i].limit))
            check_honest(calls, r, "plain_calls");
    }
    bench_figure *one = add(j, "list_vs_one_tensor", 1, 0.8, "one tensor of 10,000,000 / a list of 10,000 tensors of 1,000");
    bench_figures_set_pair(one, ending(j, "list_and_one", " x 1000"), "zoff_one", "zoff_list");
    check_size(j, one);
}

/* Time of an element in each partition against the middle of its round; then the worst over the best. */
static void set_layout(bench_figure *out, const race *r)
{
    double worst = 0, best = INFINITY;
    unsigned pairs = RACE_ROUNDS;
    for (unsigned i = 0; r && i < r->count; i++) {
        double relative[RACE_ROUNDS];
        unsigned clean = 0;
        for (unsigned k = 0; k < r->rounds; k++) {
            double others[RACE_ENTRIES];
            unsigned n = 0;
            for (unsigned o = 0; o < r->count; o++) {
                if (!isnan(r->entries[o].seconds[k]))
                    others[n++] = r->entries[o].seconds[k] / r->entries[o].elements;
            }
            const double own = r->entries[i].seconds[k] / r->entries[i].elements;
            if (!isnan(own))
                relative[clean++] = own / bench_stopwatch_spread(others, n).median;
        }
        if (!clean)
            return;
        const double middle = bench_stopwatch_spread(relative, clean).median;
        worst = fmax(worst, middle);
        best = fmin(best, middle);
        pairs = clean < pairs ? clean : pairs;
    }
    if (r && r->count)
        bench_figures_set(out, worst / best, pairs);
}

static void judge_layout(judge *j)
{
    bench_figure *r =
        add(j, "layout_worst_over_best", -1, 1.1, "time of an element, engines with streams of 2^k .. 2^k + 8 KiB");
    set_layout(r, ending(j, "layout", ""));
    check_size(j, r);
    r = add(j, "layout_naive_over_staggered", 0, 0, "zoff_adam_step on arrays of 2^k bytes back to back / with 4 KiB between");
    bench_figures_set_pair(r, ending(j, "spacing", ""), "naive", "staggered");
}

void bench_judge(const bench_options *options, const bench_book *book, bench_figures *out)
{
    *out = (bench_figures){0};
    judge j = {.options = options, .book = book, .out = out, .part = PART_COMPARE};
    judge_step(&j);
    judge_chain(&j);
    j.part = PART_SWEEP;
    judge_sweep(&j);
    j.part = PART_LISTS;
    judge_lists(&j);
    j.part = PART_LAYOUT;
    judge_layout(&j);
}

int bench_judge_enough(const bench_figures *figures, unsigned parts)
{
    int all = 1;
    for (unsigned i = 0; i < figures->count; i++) {
        const bench_figure *f = &figures->list[i];
        all = all && (!f->sense || !(f->part & parts) || f->rounds >= ENOUGH_ROUNDS);
    }
    return all;
}

int bench_judge_close(const bench_figure *f)
{
    const double margin = 0.05 * f->limit;
    return f->sense && f->rounds && (f->sense > 0 ? f->value < f->limit + margin : f->value > f->limit - margin);
}
