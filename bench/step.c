/* step.c: the time of a step with states on a disk, and its distance from the limits of the disk and the memory. This file has
 * the options and the order of the parts. */
#include "step_bench.h"

#include <linux/magic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

static const char USAGE[] =
    "usage: step [OPTION]...\n"
    "Times zoff's whole optimizer step with states in files beside yardsticks: the same transfers alone, the same update "
    "alone,\n"
    "half of the states in DRAM, and the ways in which DeepSpeed's swappers move the same bytes over libaio.\n"
    "  --path FOLDER   on the disk in question; needs room for 10 times the states (default: the current folder)\n"
    "  --elements N    of the model, 12 bytes of states each; 48Mi and the like are understood (default 16Mi; --full: 128Mi).\n"
    "                  Below 16Mi ratios are void. The part ahead has 4 times as many in DRAM, up to 64Mi\n"
    "  --budget N      the small budget of DRAM is a part in N of the states (default 10)\n"
    "  --only LIST     parts: race, throttle, rss, paths, loop, windows, hidden, ahead (default: all; throttle, paths,\n"
    "                  hidden and ahead need root)\n"
    "  --background N  threads of the engine in DRAM that updates ahead of steps (default 2)\n"
    "  --busy N        beside N processes that compute all the time, and whatever else runs; nothing is judged\n";

static const bench_word PARTS[] = {
    {"race", PART_RACE},       {"throttle", PART_THROTTLE}, {"rss", PART_RSS},     {"paths", PART_PATHS}, {"loop", PART_LOOP},
    {"windows", PART_WINDOWS}, {"hidden", PART_HIDDEN},     {"ahead", PART_AHEAD}, {"all", PART_ANY},     {NULL, 0}};

static int parse_options(int argc, char **argv, step_options *out)
{
    static const bench_default DEFAULTS[] = {{PART_ANY, 15, 600}, {PART_ANY, 9, 46}};
    const bench_option own[] = {{"path", .text = &out->path},
                                {"elements", .number = &out->elements, .least = 64 << 10, .most = 1ull << 36},
                                {"budget", .number = &out->budget_share, .least = 2, .most = 1000},
                                {"background", .number = &out->background, .least = 1, .most = 64},
                                {"busy", .number = &out->busy, .least = 0, .most = 64},
                                {.name = NULL}};
    *out = (step_options){.budget_share = 10, .busy = UINT64_MAX, .background = 2, .path = ".", .run = {.quick = true}};
    if (bench_program_parse(argc, argv, USAGE, own, PARTS, DEFAULTS, &out->run) != 0)
        return -1;
    out->elements = out->elements ? out->elements : (out->run.quick ? 16u : 128u) << 20;
    return 0;
}

static int run_parts(const step_options *options, step_found *found)
{
    enum { TIMES = 10 }; /* the files of all contestants exist at the same time */
    static char folder[STEP_PATH];
    struct statfs fs;
    const unsigned parts = options->run.parts;
    if (bench_check_room(options->path, TIMES * 12.0 * (double)options->elements) != 0 ||
        step_folder_make(options->path, folder) != 0)
        return -1;
    found->in_memory = statfs(folder, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
    int ret = 0;
    if (parts & (PART_RACE | PART_THROTTLE))
        ret = step_race(options, folder, found);
    if (ret == 0 && parts & PART_RSS)
        ret = step_rss(options, found);
    if (ret == 0 && parts & PART_PATHS)
        ret = step_paths(options, found);
    if (ret == 0 && parts & PART_LOOP)
        ret = step_loop(options, found);
    if (ret == 0 && parts & PART_WINDOWS)
        ret = step_windows(options, folder, found);
    if (ret == 0 && parts & PART_HIDDEN)
        ret = step_hidden(options, folder, found);
    if (ret == 0 && parts & PART_AHEAD)
        ret = step_ahead(options, folder, found);
    step_folder_remove();
    return ret;
}

/* --- report --- */

static json_t *plan_object(const zoff_plan_info *p)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:i}", "state_bytes", (json_int_t)p->state_bytes, "host_bytes",
                     (json_int_t)p->host_bytes, "resident_bytes", (json_int_t)p->resident_bytes, "nvme_bytes",
                     (json_int_t)p->nvme_bytes, "chunk_count", (json_int_t)p->chunk_count, "chunk_bytes",
                     (json_int_t)p->chunk_bytes, "slots", (int)p->slots);
}

static json_t *findings(const step_options *options, const step_found *found)
{
    static const char *const JUDGED[] = {"race", "rivals", "throttled", "paths"};
    bool enough = true;
    for (unsigned i = 0; i < sizeof JUDGED / sizeof JUDGED[0]; i++) {
        const race *r = race_of(&found->book, JUDGED[i], "");
        enough = enough && (!r || !r->rounds || r->clean_rounds >= ENOUGH_ROUNDS);
    }
    json_t *root =
        json_pack("{s:I, s:i, s:s, s:s, s:b, s:o, s:o, s:I, s:b, s:o, s:i, s:{s:o, s:o}}", "elements",
                  (json_int_t)options->elements, "threads", (int)found->threads, "isa", zoff_isa(), "path", options->path,
                  "enough_clean_rounds", enough, "plan", plan_object(&found->small), "plan_cached50",
                  plan_object(&found->cached), "step_read_bytes", (json_int_t)found->step_bytes, "direct_io", found->direct,
                  "states_agree", found->agree < 0 ? json_null() : json_boolean(found->agree), "states_compared",
                  (int)found->compared, "rss_mib", "model", bench_report_number(found->rss[0] > 0 ? found->rss[0] : NAN),
                  "ten_times_the_model", bench_report_number(found->rss[1] > 0 ? found->rss[1] : NAN));
    if (found->agree == 0)
        json_object_set_new(root, "states_differ", json_string(found->disagree));
    if (!found->no_rivals[0] && found->buffer_bytes)
        json_object_set_new(root, "libaio_buffers",
                            json_pack("{s:I, s:I, s:I, s:b}", "bytes", (json_int_t)found->buffer_bytes, "plain_in_huge_pages",
                                      (json_int_t)found->plain_huge, "thp_in_huge_pages", (json_int_t)found->thp_huge, "locked",
                                      found->locked));
    return root;
}

static int report(const step_options *options, const step_found *found)
{
    static bench_figures figures;
    FILE *out = bench_run_table(&options->run);
    const zoff_plan_info *small = &found->small;
    step_judge(options, found, &figures);
    fprintf(out, "%zu weights and gradients of bf16, %.0f MiB of states", (size_t)options->elements,
            12.0 * (double)options->elements / (1 << 20));
    if (small->chunk_count)
        fprintf(out, " in %llu chunks through %u slots, %.0f MiB of DRAM; %u threads, %s kernels",
                (unsigned long long)small->chunk_count, small->slots, (double)small->host_bytes / (1 << 20), found->threads,
                zoff_isa());
    fprintf(out, "\nGB/s are bytes read and written in files\n");
    if (found->agree >= 0)
        fprintf(out, "states: %s\n", found->agree ? "all contestants have the same bits" : found->disagree);
    return bench_report(&options->run, findings(options, found), &found->book, &figures, "rounds");
}

int main(int argc, char **argv)
{
    static step_found found = {.agree = -1, .book.enough = ENOUGH_ROUNDS};
    step_options options;
    /* The program starts itself again in this way for a part. */
    if (argc == 4 && strcmp(argv[1], "--rss-of") == 0)
        return step_rss_child(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
    if (argc == 5 && strcmp(argv[1], "--paths-of") == 0)
        return step_paths_child(strtoull(argv[2], NULL, 10), (unsigned)strtoul(argv[3], NULL, 10), strtod(argv[4], NULL));
    if (parse_options(argc, argv, &options) != 0)
        return 2;
    if (options.busy != UINT64_MAX && bench_start_busy(options.busy) != 0)
        return 1;
    const int ret = run_parts(&options, &found),
              reported = report(&options, &found); /* also the measurements of a failed run */
    race_book_free(&found.book);
    return ret ? 1 : reported;
}
