/* cpu_adam_judge.c: compute the figures of a run from its races, with the limit of each and the reasons that make one
 * worthless. A rival that is slow for an unrelated reason proves nothing. */
#include "cpu_adam_bench.h"

#include <math.h>
#include <string.h>

/* A rival below this share of its own no-math kernel is not a fair rival. */
static const double HONEST_SHARE = 0.9;
static const size_t PROMISED_SIZE = (size_t)64 << 20;

static void check_honest(bench_figure *f, const race *r, const char *rival)
{
    const double share = race_share(r, race_find(r, rival));
    if (!(share < HONEST_SHARE) || f->spoilt[0])
        return;
    f->slow_rival = true;
    bench_figures_spoil(f, "%s reached only %.3f of its own no-math kernel: too slow a rival", rival, share);
}

/* Scaling of zoff over scaling of its no-math kernel, from four samples of one round. */
static double scaling(const race *r, unsigned k)
{
    return race_at(r, "zoff_fp32_alone", k) / race_at(r, "zoff_fp32", k) /
           (race_at(r, "nomath_fp32_alone", k) / race_at(r, "nomath_fp32", k));
}

/* The limit of a step with split masters and some format of moments: the longer of its instructions, on data in the first
 * cache, and its streams without math. */
typedef struct limited {
    const char *cached, *nomath;
    race_value_fn over;
} limited;

static double over_limit(const race *r, unsigned k, const char *zoff, const char *cached, const char *nomath)
{
    return race_at(r, zoff, k) / fmax(race_at(r, cached, k), race_at(r, nomath, k));
}

static double bf16_over_limit(const race *r, unsigned k)
{
    return over_limit(r, k, "zoff_split_bf16", "zoff_split_bf16_l1", "nomath_split_bf16");
}

static double m8v16_over_limit(const race *r, unsigned k)
{
    return over_limit(r, k, "zoff_split_m8v16", "zoff_split_m8v16_l1", "nomath_split_m8v16");
}

static double q8_over_limit(const race *r, unsigned k)
{
    return over_limit(r, k, "zoff_split_q8", "zoff_split_q8_l1", "nomath_split_q8");
}

/* Cycles that a core is busy for one parameter, and the time of a step over its limit, memory or core. */
static void judge_limits(const race *step, bench_figures *out)
{
    static const bench_asked CYCLES[] = {
        {"split_bf16_cycles", 0, 0, "cycles of the time-stamp counter a parameter on data in the first cache, bf16 moments",
         NULL, NULL},
        {"split_m8v16_cycles", 0, 0, "the same with m in 8 bits", NULL, NULL},
        {"split_q8_cycles", 0, 0, "the same with both moments in 8 bits", NULL, NULL}};
    static const bench_asked MEMORY[] = {
        {"split_bf16_over_limit", -1, 1 / 0.95, "step with bf16 moments / its no-math kernel: memory is the limit", NULL, NULL},
        {"split_m8v16_over_limit", -1, 1 / 0.95, "step with m in 8 bits / its no-math kernel: memory is the limit", NULL, NULL},
        {"split_q8_over_limit", -1, 1 / 0.95, "step with moments in 8 bits / its no-math kernel: memory is the limit", NULL,
         NULL}};
    static const bench_asked CORE[] = {
        {"split_bf16_over_limit", -1, 1.25,
         "step with bf16 moments / the longer of no math and data in L1: the core is a limit", NULL, NULL},
        {"split_m8v16_over_limit", -1, 1.25,
         "step with m in 8 bits / the longer of no math and data in L1: the core is a limit", NULL, NULL},
        {"split_q8_over_limit", -1, 1.25,
         "step with moments in 8 bits / the longer of no math and data in L1: the core is a limit", NULL, NULL}};
    static const limited ALL[] = {{"zoff_split_bf16_l1", "nomath_split_bf16", bf16_over_limit},
                                  {"zoff_split_m8v16_l1", "nomath_split_m8v16", m8v16_over_limit},
                                  {"zoff_split_q8_l1", "nomath_split_q8", q8_over_limit}};
    const double cycles = bench_cycles_a_second();
    for (unsigned i = 0; i < sizeof ALL / sizeof ALL[0]; i++) {
        const race_entry *cached = race_find(step, ALL[i].cached);
        /* Two limits that are as close as this do not overlap to the end. */
        const bool by_core = race_ratio(step, ALL[i].cached, ALL[i].nomath).median > 0.85;
        bench_figures_add_values(out, by_core ? &CORE[i] : &MEMORY[i], step, ALL[i].over);
        bench_figure *f = bench_figures_add(out, &CYCLES[i], NULL);
        if (cached && cached->elements > 0)
            bench_figures_set(f,
                              bench_spread_of(cached->seconds, step->rounds).median * step->threads * cycles / cached->elements,
                              step->rounds);
    }
}

static void judge_compare(const race *step, const race *chain, bench_figures *out)
{
    static const bench_asked SHARES[] = {
        {"share_bf16", 1, 0.95, "time of the no-math kernel / zoff's step, bf16 gradient and copy-out", "nomath_bf16",
         "zoff_bf16"},
        {"share_fp32", 1, 0.95, "time of the no-math kernel / zoff's step, fp32 in place", "nomath_fp32", "zoff_fp32"},
        {"share_bf16_moments", 0, 0, "the same for bf16 moments, gradient and copy-out", "nomath_moments", "zoff_bf16_moments"},
        {"share_split", 0, 0, "the same for split masters and a bf16 gradient", "nomath_split", "zoff_split"},
        {"share_split_bf16", 0, 0, "the same with bf16 moments, too", "nomath_split_bf16", "zoff_split_bf16"},
        {"share_split_m8v16", 0, 0, "the same with m in 8 bits", "nomath_split_m8v16", "zoff_split_m8v16"},
        {"share_split_q8", 0, 0, "the same with both moments in 8 bits", "nomath_split_q8", "zoff_split_q8"},
        {"share_bf16_keep", 0, 0, "the same for bf16 weights in place, without a master", "nomath_keep", "zoff_bf16_keep"},
        {"share_fp32_alone", 0, 0, "share_fp32 on one thread", "nomath_fp32_alone", "zoff_fp32_alone"}};
    static const bench_asked SCALING = {"scaling_1_to_2",
                                        1,
                                        0.95,
                                        "speed-up of zoff's fp32 step from one thread to all / that of its no-math kernel",
                                        NULL,
                                        NULL};
    static const bench_asked BYTES[] = {
        {"bf16_vs_fp32_bytes", 1, 0.9, "bytes a second of zoff's step with bf16 gradient and copy-out / of fp32 in place",
         "zoff_fp32", "zoff_bf16"},
        /* More of its bytes are writes, which are slower in memory, with or without math. */
        {"bf16_keep_vs_fp32_bytes", 1, 0.9, "the same for bf16 weights in place, without a master", "zoff_fp32",
         "zoff_bf16_keep"}};
    static const bench_asked CHAIN = {
        "vs_chain", 1, 1.75, "five passes with plain stores / norm and zoff's fused bf16 step", "chain", "norm_zoff_bf16"};
    static const bench_asked FORMATS[] = {
        {"moments_vs_chain", 0, 0, "the same passes / norm and zoff's step with bf16 moments", "chain",
         "norm_zoff_bf16_moments"},
        {"split_fp32_vs_chain", 1, 2.0, "the same passes / norm and zoff's step with split masters", "chain",
         "norm_zoff_split"},
        {"split_bf16_vs_chain", 1, 2.7, "the same passes / norm and zoff's step with split masters and bf16 moments", "chain",
         "norm_zoff_split_bf16"},
        {"split_m8v16_vs_chain", 0, 0, "the same passes / norm and zoff's step with split masters and m in 8 bits", "chain",
         "norm_zoff_split_m8v16"},
        {"split_q8_vs_chain", 1, 2.9, "the same passes / norm and zoff's step with split masters and moments in 8 bits",
         "chain", "norm_zoff_split_q8"}};
    static const bench_asked APART[] = {
        {"apart_vs_in_place", 0, 0, "time of a bf16 step whose new states go to another place / in place", "apart",
         "zoff_bf16"},
        {"apart_split_vs_in_place", 0, 0, "the same with split masters", "apart_split", "zoff_split"}};
    static const char *const PASSES[] = {"chain_upcast", "chain_norm", "chain_scale", "chain_adam", "chain_cast"};
    bench_figures_add_all(out, SHARES, sizeof SHARES / sizeof SHARES[0], step);
    bench_figures_add_values(out, &SCALING, step, scaling);
    judge_limits(step, out);
    bench_figures_map(bench_figures_add_all(out, BYTES, 2, step) + 1, 0, 22.0 / 28);
    bench_figures_add_all(out, APART, sizeof APART / sizeof APART[0], step);
    enum { AGAINST_CHAIN = 1 + sizeof FORMATS / sizeof FORMATS[0] };
    bench_figure *f = bench_figures_add(out, &CHAIN, chain); /* the others follow it */
    bench_figures_add_all(out, FORMATS, AGAINST_CHAIN - 1, chain);
    if (strcmp(zoff_isa(), "avx512") != 0) /* with 8 lanes, the instructions take longer than the bytes: see split_q8_cycles */
        f[AGAINST_CHAIN - 1].sense = 0;
    for (unsigned i = 0; i < AGAINST_CHAIN * (sizeof PASSES / sizeof PASSES[0]); i++)
        check_honest(&f[i % AGAINST_CHAIN], chain, PASSES[i / AGAINST_CHAIN]);
}

/* Over the sizes of the sweep: the faster of the two plain loops, by the median, over zoff. */
static void judge_sweep(const race_book *book, bench_figures *out)
{
    static const bench_asked ASKED[] = {
        {"vs_plain_loop", 1, 1, "faster plain loop / zoff's fp32 step, geometric mean over the sweep", NULL, NULL},
        {"vs_plain_loop_worst", 1, 0.95, "smallest of the sweep", NULL, NULL},
        {"vs_plain_loop_worst_elements", 0, 0, "the size of that", NULL, NULL},
        {"vs_serial_loop_worst", 0, 0, "below 32768 elements, the loop without OpenMP / zoff, smallest", NULL, NULL}};
    double logs = 0, worst = INFINITY, worst_size = NAN, last_size = 0, serial_worst = INFINITY;
    unsigned sizes = 0, pairs = RACE_ROUNDS, worst_pairs = 0, skipped = 0;
    const race *last = NULL;
    for (unsigned i = 0; i < book->count; i++) {
        const race *r = book->races[i];
        if (strcmp(r->part, "sweep") != 0)
            continue;
        const bench_spread a = race_ratio(r, "plain", "zoff"), b = race_ratio(r, "plain_if", "zoff");
        const bench_spread rival = b.median < a.median || !a.count ? b : a;
        if (!rival.count) {
            skipped++;
            continue;
        }
        const double elements = r->entries[0].elements;
        serial_worst = fmin(serial_worst, race_ratio(r, "plain_serial", "zoff").median);
        logs += log(rival.median);
        sizes++;
        pairs = rival.count < pairs ? rival.count : pairs;
        if (rival.median < worst) {
            worst = rival.median;
            worst_size = elements;
            worst_pairs = rival.count;
        }
        last = elements > last_size ? r : last;
        last_size = fmax(elements, last_size);
    }
    bench_figure *f = bench_figures_add_all(out, ASKED, sizeof ASKED / sizeof ASKED[0], NULL);
    bench_figures_set(&f[0], exp(logs / sizes), pairs);
    bench_figures_set(&f[1], worst, worst_pairs);
    bench_figures_set(&f[2], worst_size, worst_pairs);
    bench_figures_set(&f[3], serial_worst, pairs);
    for (unsigned k = 0; k < 2; k++) {
        if (sizes && skipped)
            bench_figures_spoil(&f[k], "%u sizes had no clean round", skipped);
        if (last_size >= (double)PROMISED_SIZE / 4) /* smaller arrays may be in a cache, where the math shows */
            check_honest(&f[k], last, "plain");
    }
}

static void judge_lists(const race_book *book, bench_figures *out)
{
    static const char CALLS[] = "2,000 plain-loop calls, each its own OpenMP region / one zoff_optimizer_step_list";
    static const char SERIAL[] = "the same, plain-loop calls on the calling thread, without OpenMP / one list call";
    static const char STEPS[] = "2,000 zoff_optimizer_step calls / one list call";
    static const bench_asked ASKED[2][3] = {{{"list_vs_calls_1k", 1, 3, CALLS, "plain_calls", "zoff_list"},
                                             {"list_vs_serial_calls_1k", 0, 0, SERIAL, "plain_calls_serial", "zoff_list"},
                                             {"list_vs_step_calls_1k", 0, 0, STEPS, "zoff_calls", "zoff_list"}},
                                            {{"list_vs_calls_256", 0, 0, CALLS, "plain_calls", "zoff_list"},
                                             {"list_vs_serial_calls_256", 0, 0, SERIAL, "plain_calls_serial", "zoff_list"},
                                             {"list_vs_step_calls_256", 0, 0, STEPS, "zoff_calls", "zoff_list"}}};
    static const bench_asked ONE = {
        "list_vs_one_tensor", 1, 0.8, "one tensor of 10,000,000 / a list of 10,000 tensors of 1,000", "zoff_one", "zoff_list"};
    for (unsigned i = 0; i < 2; i++) {
        const race *r = race_of(book, "lists", i ? " x 256" : " x 1024");
        bench_figure *calls = bench_figures_add_all(out, ASKED[i], 3, r);
        /* The rival's parallel regions cost the time. Without math it must lose by the same limit, or the figure is void. */
        if (!(race_ratio(r, "nomath_calls", "zoff_list").median >= calls->limit))
            check_honest(calls, r, "plain_calls");
    }
    bench_figures_add(out, &ONE, race_of(book, "list_and_one", " x 1000"));
}

/* Time of an element in each partition over the middle of its round; then the worst over the best. */
static void judge_layout(const race *r, const race *spacing, bench_figures *out)
{
    static const bench_asked ASKED[] = {
        {"layout_worst_over_best", -1, 1.1, "time of an element, engines with streams of 2^k .. 2^k + 8 KiB", NULL, NULL},
        {"layout_naive_over_staggered", 0, 0, "zoff_optimizer_step on arrays of 2^k bytes back to back / with 4 KiB between",
         "naive", "staggered"}};
    double worst = 0, best = INFINITY, middles[RACE_ROUNDS], values[RACE_ROUNDS];
    unsigned pairs = RACE_ROUNDS;
    for (unsigned k = 0; r && k < r->rounds; k++) {
        for (unsigned i = 0; i < r->count; i++)
            values[i] = r->entries[i].seconds[k] / r->entries[i].elements;
        middles[k] = bench_spread_of(values, r->count).median;
    }
    for (unsigned i = 0; r && i < r->count; i++) {
        for (unsigned k = 0; k < r->rounds; k++)
            values[k] = r->entries[i].seconds[k] / r->entries[i].elements / middles[k];
        const bench_spread own = bench_spread_of(values, r->rounds);
        worst = fmax(worst, own.median);
        best = fmin(best, own.median);
        pairs = own.count < pairs ? own.count : pairs;
    }
    bench_figure *f = bench_figures_add(out, &ASKED[0], NULL);
    if (!isfinite(best)) /* the deadline passed before an engine was open */
        pairs = 0;
    bench_figures_set(f, pairs ? worst / best : NAN, pairs);
    bench_figures_add(out, &ASKED[1], spacing);
}

void bench_judge(const bench_options *options, const race_book *book, bench_figures *out)
{
    char largest[32];
    snprintf(largest, sizeof largest, "%zu", options->largest);
    *out = (bench_figures){.missing = "not among the parts, types or threads of this run, or no clean round in its time"};
    out->part = PART_COMPARE;
    judge_compare(race_of(book, "step", largest), race_of(book, "chain", largest), out);
    out->part = PART_SWEEP;
    judge_sweep(book, out);
    out->part = PART_LISTS;
    judge_lists(book, out);
    out->part = PART_LAYOUT;
    judge_layout(race_of(book, "layout", ""), race_of(book, "spacing", ""), out);
    for (bench_figure *f = out->list; f < out->list + out->count; f++) {
        if (f->sense && options->largest != PROMISED_SIZE)
            bench_figures_spoil(f, "measured at %zu elements; what is asked is about %zu", options->largest, PROMISED_SIZE);
    }
}

bool bench_judge_enough(const bench_figures *figures, unsigned parts)
{
    bool all = true;
    for (const bench_figure *f = figures->list; f < figures->list + figures->count; f++)
        all = all && (!f->sense || !(f->part & parts) || f->rounds >= ENOUGH_ROUNDS);
    return all;
}

unsigned bench_judge_undecided(const bench_options *options, const bench_figures *figures)
{
    unsigned parts = 0;
    for (const bench_figure *f = figures->list; f < figures->list + figures->count; f++) {
        const double margin = 0.05 * f->limit;
        const bool close = f->sense > 0 ? f->value < f->limit + margin : f->value > f->limit - margin;
        if ((f->sense && (f->rounds < ENOUGH_ROUNDS || close)) || (f->slow_rival && options->largest >= 1 << 24))
            parts |= f->part;
    }
    return parts & options->run.parts;
}
