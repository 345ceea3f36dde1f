/* checkpoint_states.c: engines whose states are saved and loaded, and the bytes and the memory that this takes. */
#include "checkpoint_bench.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char NAME[] = "last"; /* of each checkpoint */

/* A state file has no name any more: it is found among the open files of the process. */
static void find_state_file(checkpoint_states *s)
{
    char target[DISK_PATH];
    glob_t files = {.gl_pathc = 0};
    (void)glob("/proc/self/fd/*", 0, NULL, &files);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        const ssize_t length = readlink(files.gl_pathv[i], target, sizeof target - 1);
        target[length > 0 ? length : 0] = 0;
        if (strncmp(target, s->engine.folder, strlen(s->engine.folder)) == 0 && strstr(target, ".swap"))
            snprintf(s->state_file, sizeof s->state_file, "%s", files.gl_pathv[i]);
    }
    globfree(&files);
}

int checkpoint_states_open(const step_model *m, const char *folder, checkpoint_tier tier, uint64_t budget,
                           checkpoint_states *out)
{
    static const char *const NAMES[CHECKPOINT_TIERS] = {"host", "nvme"};
    const step_engine_opts on_nvme = {.paths = &folder, .path_count = 1, .host_bytes = budget}, on_host = {.paths = NULL};
    *out = (checkpoint_states){.bytes = 12.0 * (double)m->elements};
    snprintf(out->folder, sizeof out->folder, "%.4000s/of-%s", folder, NAMES[tier]);
    int ret = step_engine_open(m, NAMES[tier], tier == CHECKPOINT_NVME ? &on_nvme : &on_host, &out->engine);
    for (unsigned i = 0; ret == 0 && i < 2; i++)
        ret = step_engine_step(&out->engine, 0);
    if (ret != 0 || tier == CHECKPOINT_HOST)
        return ret;
    find_state_file(out);
    return out->state_file[0] ? 0 : bench_fail("the open state file is not in /proc/self/fd");
}

void checkpoint_states_close(checkpoint_states *s)
{
    if (s->folder[0])
        (void)checkpoint_states_forget(s, 0);
    step_engine_close(&s->engine);
}

int checkpoint_states_forget(void *ctx, int which)
{
    const checkpoint_states *s = ctx;
    char text[512];
    checkpoint_states_rest(ctx, which);
    /* The disk frees its blocks before the turn. */
    return bench_command(text, sizeof text, "rm -rf --one-file-system '%s' 2>&1 && sync", s->folder);
}

/* Reads ahead of the next step are no part of a turn. */
int checkpoint_states_rest(void *ctx, int which)
{
    const checkpoint_states *s = ctx;
    step_engine_rest(&s->engine);
    return 0;
}

int checkpoint_states_save(void *ctx, int which)
{
    const checkpoint_states *s = ctx;
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.name = NAME;
    return bench_told(zoff_checkpoint_save(s->engine.engine, s->folder, &opts));
}

int checkpoint_states_load(void *ctx, int which)
{
    const checkpoint_states *s = ctx;
    return bench_told(zoff_checkpoint_load(s->engine.engine, s->folder, NULL));
}

/* Run a turn, and count its bytes of files over those of the states, without those that it reads for the next step. */
static int count_turn(checkpoint_states *s, bench_work_fn turn, double dst[2])
{
    zoff_step_info info = {.struct_size = sizeof info};
    checkpoint_states_rest(s, 0);
    const uint64_t before[2] = {bench_traffic(false), bench_traffic(true)};
    if (turn(s, 0) != 0)
        return -1;
    checkpoint_states_rest(s, 0);
    for (unsigned way = 0; way < 2; way++)
        dst[way] = (double)(bench_traffic(way) - before[way]) / s->bytes;
    if (bench_told(zoff_step(s->engine.engine, NULL, &info)) != 0)
        return -1;
    dst[0] -= turn == checkpoint_states_load ? (double)info.bytes.nvme_read_ahead / s->bytes : 0;
    return checkpoint_states_rest(s, 0);
}

int checkpoint_states_count(checkpoint_states *s, checkpoint_costs *found)
{
    return count_turn(s, checkpoint_states_save, found->saved) != 0 ? -1 : count_turn(s, checkpoint_states_load, found->loaded);
}

int checkpoint_states_part(const checkpoint_states *s, char out[DISK_PATH])
{
    char pattern[DISK_PATH + 64];
    glob_t found = {.gl_pathc = 0};
    snprintf(pattern, sizeof pattern, "%s/%s/*{part,rank}*", s->folder, NAME);
    const bool any = glob(pattern, GLOB_BRACE, NULL, &found) == 0;
    snprintf(out, DISK_PATH, "%.4000s", any ? found.gl_pathv[found.gl_pathc - 1] : "");
    globfree(&found);
    return any ? 0 : bench_fail("%s/%s has no file of states", s->folder, NAME);
}

/* --- memory --- */

static double status_bytes(const char *format)
{
    size_t kib = 0;
    bench_scan("/proc/self/status", 1, format, &kib);
    return 1024.0 * (double)kib;
}

/* Run one turn, and return the most memory meanwhile; negative: it failed. */
static double peak_of(bench_work_fn turn, checkpoint_states *s)
{
    FILE *file = fopen("/proc/self/clear_refs", "we");
    const bool reset = file && fputs("5", file) >= 0;
    if (!file || fclose(file) != 0 || !reset)
        return bench_fail("the peak of memory cannot be reset (/proc/self/clear_refs)");
    return turn(s, 0) == 0 ? status_bytes("VmHWM: %zu kB") : -1;
}

/* Print the peaks of a save and a load over what is expected: the plan, and the memory of a save or one chunk. */
static int print_peaks(const step_model *m, const char *folder, checkpoint_tier tier, uint64_t budget)
{
    checkpoint_states s;
    const double before = status_bytes("VmRSS: %zu kB");
    if (checkpoint_states_open(m, folder, tier, budget, &s) != 0)
        return -1;
    const double plan = (double)s.engine.plan.memory_bytes, chunk = (double)s.engine.plan.chunk_bytes;
    const double save = peak_of(checkpoint_states_save, &s), load = save < 0 ? -1 : peak_of(checkpoint_states_load, &s);
    printf("%.6f %.6f ", (save - before) / (plan + (double)s.engine.plan.save_bytes),
           (load - before) / (plan + (tier == CHECKPOINT_NVME ? chunk : 0)));
    checkpoint_states_close(&s);
    return load < 0 ? -1 : 0;
}

int checkpoint_memory_child(char **arguments)
{
    const char *folder = disk_child_begin();
    step_model model;
    if (!folder || step_model_open(strtoull(arguments[0], NULL, 10), &model) != 0)
        return 1;
    int ret = 0;
    for (unsigned tier = 0; ret == 0 && tier < CHECKPOINT_TIERS; tier++)
        ret = print_peaks(&model, folder, (checkpoint_tier)tier, strtoull(arguments[1], NULL, 10));
    putchar('\n');
    bench_streams_close(&model.mapping);
    return ret ? 1 : 0;
}

int checkpoint_memory(checkpoint_run *run)
{
    const unsigned long long elements = run->options.elements, budget = 12 * elements / run->options.budget_share;
    checkpoint_costs *t = run->tiers;
    race *r = race_open(&run->book, "memory", "peaks");
    if (disk_is_late(&run->options, 0.99, r))
        return 0;
    const char *line = disk_child(r, NULL, "--memory-of %llu %llu", elements, budget);
    if (line && sscanf(line, "%lf %lf %lf %lf", &t[0].save_peak, &t[0].load_peak, &t[1].save_peak, &t[1].load_peak) != 4)
        race_excuse(r, "%.250s", line);
    return 0;
}
