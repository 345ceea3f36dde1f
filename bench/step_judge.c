/* step_judge.c: from races to the figures that the run is for, with what is asked of each and what makes one worthless. */
#include "step_bench.h"

#include <math.h>

/* States are this many times the DRAM that they go through, in so many chunks, or nothing is streamed to speak of. */
enum { LEAST_RATIO = 8, LEAST_CHUNKS = 40 };
static const size_t LEAST_ELEMENTS = (size_t)16 << 20; /* chunks of 4.8 MiB */

static const char LEFT_OUT[] = "not among the parts of this run, or no round in its time";

static const char *reason(const char *text)
{
    return text[0] ? text : LEFT_OUT;
}

/* Time of the step over that of the longer of its two halves, in each round. */
static void set_over_io(bench_figure *f, const race *r)
{
    double ratios[RACE_ROUNDS];
    unsigned count = 0;
    const int own = race_find(r, "zoff"), io = race_find(r, "io_only"), update = race_find(r, "update_only");
    for (unsigned k = 0; own >= 0 && io >= 0 && k < r->rounds; k++) {
        const double *const seconds[] = {r->entries[own].seconds, r->entries[io].seconds};
        const double bound = update < 0 ? seconds[1][k] : fmax(seconds[1][k], r->entries[update].seconds[k]);
        if (isfinite(seconds[0][k] / bound) && isfinite(seconds[1][k]))
            ratios[count++] = seconds[0][k] / bound;
    }
    if (count)
        bench_figures_set(f, bench_stopwatch_spread(ratios, count).median, count);
}

/* What makes any figure about the disk worthless. */
static void check_disk(const step_options *options, const step_book *book, bench_figure *f)
{
    const double host = (double)book->small.host_bytes, states = (double)book->small.state_bytes;
    if (!bench_figures_measured(f))
        return;
    if (book->in_memory)
        bench_figures_spoil(f, "the folder is in memory, not on a disk; name one with --path");
    if (!book->direct)
        bench_figures_spoil(f, "the file system has no O_DIRECT: the page cache was measured; name another folder with --path");
    if (!(states >= LEAST_RATIO * host))
        bench_figures_spoil(f, "states are %.1f times the DRAM that they go through; what is asked is about %d times",
                            states / host, LEAST_RATIO);
    if (options->elements < LEAST_ELEMENTS)
        bench_figures_spoil(f, "measured with %zu elements; what is asked is about %zu and more", options->elements,
                            LEAST_ELEMENTS);
    if (book->small.chunk_count < LEAST_CHUNKS)
        bench_figures_spoil(f, "%llu chunks are too few to overlap anything; what is asked is about %d",
                            (unsigned long long)book->small.chunk_count, LEAST_CHUNKS);
    if (f->rounds < ENOUGH_ROUNDS)
        bench_figures_spoil(f, "%u rounds are too few", f->rounds);
    if (book->agree == 0)
        bench_figures_spoil(f, "the contestants do not have the same states");
}

static void judge_step(const step_options *options, const step_book *book, bench_figures *out)
{
    const race *r = &book->free_race;
    bench_figure *f = bench_figures_add(out, "wall_over_io", -1, 1.12,
                                        "step / the longer of its transfers alone and its update alone", LEFT_OUT);
    set_over_io(f, r);
    check_disk(options, book, f);
    f = bench_figures_add(out, "wall_over_io_throttled", -1, 1.03, "the same on a disk of 1 GB/s each way",
                          reason(book->no_throttle));
    set_over_io(f, &book->throttled);
    if (book->throttled.rounds && !book->throttled.clean_rounds)
        bench_figures_excuse(f, "in none of %u rounds were the CPUs idle and the disk below as fast as 1 GB/s each way",
                             book->throttled.rounds);
    check_disk(options, book, f);
    f = bench_figures_add(out, "update_over_io", 0, 0, "update alone / transfers alone: above 1 the disk is not what bounds",
                          LEFT_OUT);
    bench_figures_set_pair(f, r, "update_only", "io_only");
    f = bench_figures_add(out, "checksums", 0, 0, "step / the same without checksums of what is read and written", LEFT_OUT);
    bench_figures_set_pair(f, r, "zoff", "zoff_unverified");
    f = bench_figures_add(out, "cached50_over_uncached", -1, 0.58,
                          "step with half of the states in DRAM / with the small budget", LEFT_OUT);
    bench_figures_set_pair(f, r, "zoff_cached50", "zoff");
    check_disk(options, book, f);
    f = bench_figures_add(out, "persist_cached50_over_uncached", -1, 0.78, "the same, both kept on the disk after each step",
                          reason(book->no_persist));
    bench_figures_set_pair(f, r, "zoff_persist_cached50", "zoff_persist");
    check_disk(options, book, f);
    f = bench_figures_add(out, "persist_over_plain", 0, 0, "step that keeps its states / one that does not",
                          reason(book->no_persist));
    bench_figures_set_pair(f, r, "zoff_persist", "zoff");
}

/* A yardstick with plain pages has plain pages, one with huge pages has those. */
static void check_pages(const step_book *book, bench_figure *f, bool huge)
{
    const double plain = (double)book->plain_huge, thp = (double)book->thp_huge, bytes = (double)book->buffer_bytes;
    if (!bench_figures_measured(f))
        return;
    if (!huge && plain > 0.1 * bytes)
        bench_figures_spoil(f, "this system gave the yardstick's plain buffers huge pages (transparent_hugepage is always?)");
    if (huge && thp < 0.9 * bytes)
        bench_figures_spoil(f, "only %.0f of %.0f MiB of the yardstick's buffers are in huge pages", thp / (1 << 20),
                            bytes / (1 << 20));
}

static void judge_rivals(const step_options *options, const step_book *book, bench_figures *out)
{
    static const struct {
        const char *name, *entry, *meaning;
        int sense;
        double limit;
        bool huge;
    } LINES[] = {
        {"vs_libaio_pattern", "libaio_pattern", "DeepSpeed's default order over libaio / zoff's step", 1, 2.0, false},
        {"vs_libaio_pattern_grads", "libaio_pattern_grads", "the same with the way of its gradients over the disk", 0, 0,
         false},
        {"vs_libaio_pipelined", "libaio_pipelined", "DeepSpeed's pipelined order over libaio / zoff's step", 1, 1.35, false},
        {"vs_libaio_pipelined_qd32", "libaio_pipelined_qd32", "the same with a queue depth of 32", 0, 0, false},
        {"vs_libaio_pipelined_thp", "libaio_pipelined_thp", "the pipelined order with huge pages for its buffers", 1, 0.95,
         true},
    };
    for (unsigned i = 0; i < sizeof LINES / sizeof LINES[0]; i++) {
        bench_figure *f =
            bench_figures_add(out, LINES[i].name, LINES[i].sense, LINES[i].limit, LINES[i].meaning, reason(book->no_rivals));
        bench_figures_set_pair(f, LINES[i].sense ? &book->rivals : &book->extra, LINES[i].entry, "zoff");
        if (LINES[i].sense)
            check_disk(options, book, f);
        check_pages(book, f, LINES[i].huge);
    }
}

void step_judge(const step_options *options, const step_book *book, bench_figures *out)
{
    *out = (bench_figures){0};
    judge_step(options, book, out);
    judge_rivals(options, book, out);
    step_loop_judge(book, out);
    step_windows_judge(options, book, out);
    bench_figure *f = bench_figures_add(out, "rss_growth_mib", -1, 16,
                                        "memory of a process beside weights and gradients, from a model to ten times it",
                                        reason(book->no_rss));
    if (book->rss[1] > 0)
        bench_figures_set(f, book->rss[1] - book->rss[0], 1);
    if (bench_figures_measured(f) && options->elements < LEAST_ELEMENTS)
        bench_figures_spoil(f, "%zu elements are few for the large model", options->elements);
    f = bench_figures_add(out, "two_paths_speedup", 1, 1.8, "step on one drive of 300 MB/s each way / on two of them",
                          reason(book->no_paths));
    bench_figures_set_pair(f, &book->paths, "one_path", "two_paths");
    if (bench_figures_measured(f) && f->rounds < ENOUGH_ROUNDS)
        bench_figures_spoil(f, "%u rounds are too few", f->rounds);
    if (bench_figures_measured(f) && options->elements < LEAST_ELEMENTS)
        bench_figures_spoil(f, "%zu elements are too few", options->elements);
    for (unsigned i = 0; options->beside && i < out->count; i++) {
        if (bench_figures_measured(&out->list[i]))
            bench_figures_spoil(&out->list[i], "beside %u busy processes", options->busy);
    }
}

bool step_judge_enough(const step_book *book)
{
    const race *const races[] = {&book->free_race, &book->rivals, &book->throttled, &book->paths};
    bool all = true;
    for (unsigned i = 0; i < sizeof races / sizeof races[0]; i++)
        all = all && (!races[i]->rounds || races[i]->clean_rounds >= ENOUGH_ROUNDS);
    return all;
}
