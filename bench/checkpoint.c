/* checkpoint.c: the speed of saves and loads beside that of their bytes alone. This file has the options and the order of the
 * parts. */
#include "checkpoint_async.h"

#include <linux/magic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

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
                                   {NULL, 0}};

static int parse_options(int argc, char **argv, checkpoint_options *out)
{
    static const bench_default DEFAULTS[] = {{CHECKPOINT_ALL, 15, 1200}, {CHECKPOINT_ALL, 5, 300}};
    const bench_option own[] = {{"path", .text = &out->path},
                                {"elements", .number = &out->elements, .least = 64 << 10, .most = 1ull << 36},
                                {"budget", .number = &out->budget_share, .least = 2, .most = 1000},
                                {"busy", .number = &out->busy, .least = 0, .most = 64},
                                {.name = NULL}};
    *out = (checkpoint_options){.budget_share = 10, .busy = UINT64_MAX, .path = ".", .run = {.quick = true}};
    if (bench_program_parse(argc, argv, USAGE, own, PARTS, DEFAULTS, &out->run) != 0)
        return -1;
    out->elements = out->elements ? out->elements : (out->run.quick ? 96u : 128u) << 20;
    return 0;
}

static int run_parts(const checkpoint_options *options, checkpoint_found *found)
{
    enum { TIMES = 8 }; /* the files of all contestants exist at the same time */
    static char folder[CHECKPOINT_PATH];
    struct statfs fs;
    const unsigned parts = options->run.parts;
    if (bench_check_room(options->path, TIMES * 12.0 * (double)options->elements) != 0 ||
        step_folder_make(options->path, folder) != 0)
        return -1;
    found->in_memory = statfs(folder, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
    int ret = 0;
    if (parts & (CHECKPOINT_SAVE | CHECKPOINT_LOAD))
        ret = checkpoint_race(options, folder, found);
    if (ret == 0 && parts & CHECKPOINT_ASYNC)
        ret = checkpoint_async(options, folder, found);
    if (ret == 0 && parts & CHECKPOINT_REFLINK)
        ret = checkpoint_reflink(options, found);
    if (ret == 0 && parts & CHECKPOINT_MEMORY)
        ret = checkpoint_memory(options, found);
    step_folder_remove();
    return ret;
}

static json_t *moved_object(const checkpoint_tier_found *t)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "save_read", t->saved[0], "save_written", t->saved[1], "load_read",
                     t->loaded[0], "load_written", t->loaded[1], "save_peak", t->save_peak, "load_peak", t->load_peak);
}

static int report(const checkpoint_options *options, const checkpoint_found *found)
{
    static bench_figures figures;
    checkpoint_judge(options, found, &figures);
    fprintf(bench_run_table(&options->run), "%.0f MiB of states\n", 12.0 * (double)options->elements / (1 << 20));
    json_t *root =
        json_pack("{s:I, s:I, s:I, s:i, s:b, s:o, s:o}", "elements", (json_int_t)options->elements, "host_bytes",
                  (json_int_t)found->plan.host_bytes, "chunk_bytes", (json_int_t)found->plan.chunk_bytes, "slots",
                  (int)found->plan.slots, "registered", found->registered, "host", moved_object(&found->tiers[CHECKPOINT_HOST]),
                  "nvme", moved_object(&found->tiers[CHECKPOINT_NVME]));
    return bench_report(&options->run, root, &found->book, &figures, "rounds");
}

int main(int argc, char **argv)
{
    static checkpoint_found found = {.book.enough = CHECKPOINT_ROUNDS, .registered = true};
    checkpoint_options options;
    /* The program starts itself again in this way for a part. */
    if (argc == 4 && strcmp(argv[1], "--memory-of") == 0)
        return checkpoint_memory_child(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
    if (argc == 7 && strcmp(argv[1], "--reflink-of") == 0)
        return checkpoint_reflink_child(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10),
                                        (unsigned)strtoul(argv[4], NULL, 10), strtod(argv[5], NULL), argv[6][0] == '1');
    if (parse_options(argc, argv, &options) != 0)
        return 2;
    if (options.busy != UINT64_MAX && bench_start_busy(options.busy) != 0)
        return 1;
    const int ret = run_parts(&options, &found), reported = report(&options, &found); /* also of a failed run */
    race_book_free(&found.book);
    return ret ? 1 : reported;
}
