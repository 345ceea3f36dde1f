/* step_rss.c: whether the memory of an engine depends on the size of the model: two processes with the same budget, one with a
 * model ten times as large. */
#include "step_bench.h"

#include <string.h>

static const double MIB = 1 << 20;
enum { LARGER = 10, STEPS = 2 };

/* The most memory that this process ever had, in bytes; 0 where the system does not tell. */
static size_t most_memory(void)
{
    return bench_streams_process_bytes("/proc/self/status", "VmHWM");
}

int step_rss_child(const char *folder, size_t elements, uint64_t budget)
{
    const step_engine_opts opts = {.paths = &folder, .path_count = 1, .host_bytes = budget};
    char name[64];
    step_model model;
    step_engine engine;
    snprintf(name, sizeof name, "rss-%zu", elements);
    if (step_model_open(elements, &model) != 0)
        return 1;
    if (step_engine_open(&model, name, &opts, &engine) != 0) {
        printf("%s\n", engine.reason);
        return 1;
    }
    for (int i = 0; i < STEPS; i++)
        step_engine_step(&engine);
    const size_t most = most_memory(), shared = 2 * elements * sizeof(uint16_t);
    const int ret = engine.failed || most <= shared;
    if (ret)
        printf("the step failed, or /proc/self/status lacks VmHWM\n");
    else
        printf("%zu\n", most - shared);
    step_engine_close(&engine);
    step_model_close(&model);
    return ret;
}

/* MiB beside weights and gradients; below 0 with no_rss. */
static double measure(const char *folder, size_t elements, uint64_t budget, step_book *book)
{
    char count[32], bytes[32], line[512], path[STEP_PATH];
    size_t rss = 0;
    snprintf(count, sizeof count, "%zu", elements);
    snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)budget);
    snprintf(path, sizeof path, "%s", folder);
    char program[] = "/proc/self/exe", option[] = "--rss-of";
    char *const argv[] = {program, option, path, count, bytes, NULL};
    if (step_child_run(argv, false, line, sizeof line) != 0 || sscanf(line, "%zu", &rss) != 1) {
        snprintf(book->no_rss, sizeof book->no_rss, "%.250s", line);
        return -1;
    }
    return (double)rss / MIB;
}

int step_rss(const step_options *options, const char *folder, step_book *book)
{
    if (step_options_late(options, 0.85, book->no_rss))
        return 0;
    /* Half of the small model's states fit: it streams, too. */
    const size_t large = options->elements;
    const uint64_t budget = 3 * sizeof(float) * large / LARGER / 2;
    book->rss[0] = measure(folder, large / LARGER, budget, book);
    if (book->rss[0] > 0)
        book->rss[1] = measure(folder, large, budget, book);
    return 0;
}
