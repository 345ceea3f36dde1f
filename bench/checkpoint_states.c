/* checkpoint_states.c: engines whose states are saved and loaded, and the bytes that a turn moves. */
#include "checkpoint_states.h"

#include <dirent.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char NAME[] = "last"; /* of each checkpoint */

/* A state file has no name any more: it is found among the open files of the process. */
static void find_state_file(checkpoint_states *s)
{
    char link[64], target[CHECKPOINT_PATH];
    DIR *dir = opendir("/proc/self/fd");
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        snprintf(link, sizeof link, "/proc/self/fd/%.20s", entry->d_name);
        const ssize_t length = readlink(link, target, sizeof target - 1);
        target[length > 0 ? length : 0] = 0;
        if (strncmp(target, s->engine.folder, strlen(s->engine.folder)) == 0 && strstr(target, ".swap"))
            snprintf(s->state_file, sizeof s->state_file, "%s", link);
    }
    if (dir)
        closedir(dir);
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
    (void)which;
    while (zoff_engine_progress(s->engine.engine) == ZOFF_PENDING)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    return 0;
}

int checkpoint_states_save(void *ctx, int which)
{
    const checkpoint_states *s = ctx;
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    (void)which;
    opts.name = NAME;
    return bench_told(zoff_checkpoint_save(s->engine.engine, s->folder, &opts));
}

int checkpoint_states_load(void *ctx, int which)
{
    const checkpoint_states *s = ctx;
    (void)which;
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

int checkpoint_states_count(checkpoint_states *s, checkpoint_tier_found *found)
{
    return count_turn(s, checkpoint_states_save, found->saved) != 0 ? -1 : count_turn(s, checkpoint_states_load, found->loaded);
}

int checkpoint_states_part(const checkpoint_states *s, char out[CHECKPOINT_PATH])
{
    char folder[CHECKPOINT_PATH + 16];
    snprintf(folder, sizeof folder, "%s/%s", s->folder, NAME);
    DIR *dir = opendir(folder);
    out[0] = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (strstr(entry->d_name, "part") || strstr(entry->d_name, "rank"))
            snprintf(out, CHECKPOINT_PATH, "%.3800s/%.250s", folder, entry->d_name);
    }
    if (dir)
        closedir(dir);
    return out[0] ? 0 : bench_fail("%s has no file of states", folder);
}

int checkpoint_sample(race *r, race_entry *e, double deadline)
{
    checkpoint_mover *m = r->user;
    m->registering = 0;
    const bench_sample sample = bench_stopwatch_sample(&e->work, 1, 0, 1, deadline);
    e->seconds[r->rounds] = sample.seconds - m->registering;
    e->other[r->rounds] = !sample.status;
    return sample.status;
}
