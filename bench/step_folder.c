/* step_folder.c: the benchmark's own folder, and what becomes of it when the program is stopped. */
#include "step_bench.h"

#include <errno.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

throttle step_throttle;
static char kept[STEP_PATH]; /* removed by the thread below */

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    remove(path);
    return 0;
}

void step_folder_remove(const char *folder)
{
    if (folder[0])
        nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* Files of the size of a model must not stay behind. All threads block these signals; this one waits for them. */
static void *await_signal(void *ctx)
{
    const sigset_t *set = ctx;
    int number;
    if (sigwait(set, &number) != 0)
        return NULL;
    throttle_close(&step_throttle);
    step_folder_remove(kept);
    _exit(128 + number);
}

void step_folder_guard(const char *folder)
{
    static sigset_t set;
    pthread_t thread;
    snprintf(kept, sizeof kept, "%s", folder);
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (pthread_create(&thread, NULL, await_signal, &set) == 0)
        pthread_detach(thread);
    else
        pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

int step_folder_make(const char *path, char *out)
{
    char full[STEP_PATH];
    if (!realpath(path, full) || (size_t)snprintf(out, STEP_PATH, "%s/zoff-step-XXXXXX", full) >= STEP_PATH || !mkdtemp(out)) {
        fprintf(stderr, "step: --path %s: cannot make a folder there: %s\n", path, strerror(errno));
        out[0] = 0;
        return -1;
    }
    if (strpbrk(out, "\"\\")) {
        fprintf(stderr, "step: --path %s: its name must not have quotes or backslashes\n", path);
        rmdir(out);
        out[0] = 0;
        return -1;
    }
    step_folder_guard(out);
    return 0;
}
