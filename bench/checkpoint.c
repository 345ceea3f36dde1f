/* checkpoint.c: the speed of saves and loads beside that of their bytes alone. This file has the options and the order of the
 * parts. */
#include "checkpoint_bench.h"

#include <string.h>

static const char USAGE[] =
    "usage: checkpoint [OPTION]...\n"
    "Times saves and loads of checkpoints beside yardsticks: zoff's file queue with the same bytes, and a plain copy. Then "
    "saves\n"
    "beside training steps, also on XFS, which shares blocks (a loop device; needs root and mkfs.xfs).\n"
    "  --path FOLDER   on the disk in question; needs room for 8 times the states (default: the current folder)\n"
    "  --elements N    of the model, 12 bytes of states each; 48Mi and the like are understood (default 96Mi; --full: 128Mi).\n"
    "                  Below 1 GiB of states ratios are void\n"
    "  --budget N      on the NVMe tier the budget of DRAM is a part in N of the states (default 10)\n"
    "  --only LIST     parts: save, load, async, reflink, memory (default: all)\n"
    "  --busy N        beside N processes that compute all the time, and whatever else runs; nothing is judged\n";

static const bench_word PARTS[] = {{"save", CHECKPOINT_SAVE},
                                   {"load", CHECKPOINT_LOAD},
                                   {"async", CHECKPOINT_ASYNC},
                                   {"reflink", CHECKPOINT_REFLINK},
                                   {"memory", CHECKPOINT_MEMORY},
                                   {"all", CHECKPOINT_ALL},
                                   {NULL}};

static int run_parts(checkpoint_run *run)
{
    static const struct {
        unsigned parts;
        int (*run)(checkpoint_run *run);
    } ORDER[] = {{CHECKPOINT_SAVE | CHECKPOINT_LOAD, checkpoint_race},
                 {CHECKPOINT_ASYNC, checkpoint_async},
                 {CHECKPOINT_REFLINK, checkpoint_reflink},
                 {CHECKPOINT_MEMORY, checkpoint_memory}};
    /* the files of all contestants exist at the same time */
    if (disk_folder_make(&run->options, 8, run->folder, &run->in_memory) != 0)
        return -1;
    int ret = 0;
    for (unsigned i = 0; i < BENCH_COUNT(ORDER) && ret == 0; i++)
        ret = run->options.run.parts & ORDER[i].parts ? ORDER[i].run(run) : 0;
    disk_folder_remove();
    return ret;
}

static json_t *costs_object(const checkpoint_costs *c)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "save_read", c->saved[0], "save_written", c->saved[1], "load_read",
                     c->loaded[0], "load_written", c->loaded[1], "save_peak", c->save_peak, "load_peak", c->load_peak);
}

static int report(const checkpoint_run *run)
{
    static bench_figures figures;
    checkpoint_judge(run, &figures);
    fprintf(bench_run_table(&run->options.run), "%.0f MiB of states\n", 12.0 * (double)run->options.elements / (1 << 20));
    json_t *root = json_pack("{s:I, s:I, s:I, s:i, s:b, s:o, s:o}", "elements", (json_int_t)run->options.elements, "host_bytes",
                             (json_int_t)run->plan.host_bytes, "chunk_bytes", (json_int_t)run->plan.chunk_bytes, "slots",
                             (int)run->plan.slots, "registered", run->registered, "host",
                             costs_object(&run->tiers[CHECKPOINT_HOST]), "nvme", costs_object(&run->tiers[CHECKPOINT_NVME]));
    return bench_report(&run->options.run, root, &run->book, &figures, "rounds");
}

int main(int argc, char **argv)
{
    static checkpoint_run run = {.book.enough = CHECKPOINT_ROUNDS, .registered = true};
    static const bench_default DEFAULTS[] = {{CHECKPOINT_ALL, 15, 1200}, {CHECKPOINT_ALL, 5, 300}};
    static const unsigned MEBI_ELEMENTS[] = {128, 96};
    /* The program starts itself again in this way for a part. */
    if (argc == 4 && strcmp(argv[1], "--memory-of") == 0)
        return checkpoint_memory_child(argv + 2);
    if (argc == 7 && strcmp(argv[1], "--reflink-of") == 0)
        return checkpoint_reflink_child(argv + 2);
    const int refused =
        disk_start(argc, argv, USAGE, (bench_option){.name = NULL}, PARTS, DEFAULTS, MEBI_ELEMENTS, &run.options);
    if (refused)
        return refused;
    const int ret = run_parts(&run), reported = report(&run); /* also of a failed run */
    race_book_free(&run.book);
    return ret ? 1 : reported;
}
