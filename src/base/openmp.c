/* SPDX-License-Identifier: Apache-2.0 */
/* openmp.c: check the program's OpenMP runtime, and borrow its threads while they are awake.
 *
 * After a parallel region libgomp's threads spin for some milliseconds, LLVM's for 200, and with OMP_WAIT_POLICY=active for
 * ever. A team of our own would share its cores with them. The runtime has no call that lists its threads, so the kernel is
 * asked which threads of this process run. The runtime ends the process if it cannot start a thread. So it gets a region only
 * if that starts none, as far as can be known beforehand. */
#include "openmp.h"

#include "clock.h"
#include "workers.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ThreadSanitizer does not see the barriers of a runtime that is not built with it. */
#if defined(__SANITIZE_THREAD__)
enum { BORROWS = 0 };
#elif defined(__has_feature)
enum { BORROWS = !__has_feature(thread_sanitizer) };
#else
enum { BORROWS = 1 };
#endif

enum { BORROWED_MOST = 256 };

/* A check costs some 10 microseconds. */
static const double LOOK_SECONDS = 1e-3, LOOK_SECONDS_MOST = 64e-3;

/* Time after which threads without work have stopped spinning. */
static const double ASLEEP_SECONDS = 0.3;

/* The calling thread's OpenMP pool, as far as it is known. */
static _Thread_local struct {
    unsigned threads; /* threads of a known pool; 0: none */
    pid_t tids[BORROWED_MOST];
    bool awake;         /* the pool's threads were awake at the last check */
    double now;         /* time of the last question, in seconds */
    double check;       /* time to check whether its threads still exist */
    double next, pause; /* time of the next check, and the pause after a check that found nothing */
} pool;

/* Whether a thread of this process runs, or would run if it had a CPU. */
static bool runs(pid_t tid)
{
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)tid);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    const ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    text[got > 0 ? got : 0] = 0;
    const char *name_end = strrchr(text, ')');
    const bool ours = name_end && name_end - text >= 9 && strncmp(name_end - 9, ZOFF_TEAM_NAME, 9) == 0;
    return name_end && !ours && strncmp(name_end, ") R", 3) == 0;
}

/* List the threads of this process that run, without the calling one and the first. At most `most` are listed; the result is
 * larger if there are more. The first thread is in nobody else's pool. If it were taken for one, the region that get_to_know()
 * runs might be the runtime's first, and LLVM's runtime gives the mask of the thread that starts it to all threads. */
static unsigned find_running(pid_t *out, unsigned most)
{
    const pid_t self = (pid_t)syscall(SYS_gettid), first = getpid();
    unsigned count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; tasks && count <= most && (entry = readdir(tasks));) {
        const pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (tid <= 0 || tid == self || tid == first || !runs(tid))
            continue;
        if (count < most)
            out[count] = tid;
        count++;
    }
    if (tasks)
        closedir(tasks);
    return count;
}

typedef struct region {
    const zoff_openmp *runtime;
    zoff_team_fn fn;
    void *ctx;
    pid_t *tids; /* ids by thread; NULL: not asked for */
} region;

static void run_in_region(void *ctx)
{
    const region *r = ctx;
    const unsigned thread = (unsigned)r->runtime->thread_num();
    if (r->tids && thread < BORROWED_MOST)
        r->tids[thread] = (pid_t)syscall(SYS_gettid);
    if (r->fn)
        r->fn(r->ctx, thread, (unsigned)r->runtime->num_threads());
}

static bool has(const pid_t *tids, unsigned count, pid_t wanted)
{
    for (unsigned i = 0; i < count; i++) {
        if (tids[i] == wanted)
            return true;
    }
    return false;
}

/* The running threads may be the calling thread's pool. An empty region shows who is in it. If that region started threads,
 * because there was no pool or it slept, they stay with the runtime. They are used only if they run at a later check, after a
 * region of the program. The system is first asked whether it would give that many threads. */
static bool get_to_know(const pid_t *running, unsigned count)
{
    region r = {.runtime = zoff_base_openmp_settings_find(), .tids = pool.tids};
    bool all = true;
    if (!zoff_base_workers_available(count))
        return false;
    r.runtime->parallel(run_in_region, &r, count + 1, 0);
    pool.threads = count + 1;
    for (unsigned i = 1; i <= count; i++)
        all = all && has(running, count, pool.tids[i]);
    return all;
}

/* Whether all threads of the pool still exist; signal 0 only checks. */
static bool all_there(void)
{
    for (unsigned i = 1; i < pool.threads; i++) {
        if (syscall(SYS_tgkill, getpid(), pool.tids[i], 0) != 0)
            return false;
    }
    return true;
}

static bool look(unsigned threads)
{
    pid_t running[BORROWED_MOST];
    if (pool.threads)
        return runs(pool.tids[pool.threads - 1]); /* either all threads of the pool spin, or none */
    /* With another number of threads than the team's, the runtime would start or end threads. */
    return find_running(running, threads - 1) == threads - 1 && get_to_know(running, threads - 1);
}

bool zoff_base_openmp_awake(unsigned threads)
{
    if (!BORROWS || threads < 2 || threads > BORROWED_MOST || !zoff_base_openmp_settings_find())
        return false;
    const double now = pool.now = zoff_base_clock_seconds();
    if (pool.threads && now >= pool.check) {
        pool.check = now + LOOK_SECONDS; /* one system call per thread is too expensive for each of many small runs */
        pool.threads = all_there() ? pool.threads : 0;
    }
    if (pool.threads && pool.threads != threads)
        return false;
    if (now < pool.next)
        return pool.threads && pool.awake;
    const bool known = pool.threads;
    pool.awake = look(threads);
    if (!known && pool.threads && !pool.awake) {
        pool.next = now + ASLEEP_SECONDS;
        return false;
    }
    /* A known pool is checked each time, because a step may follow a region of the program. */
    pool.pause = pool.threads || pool.pause <= 0 ? LOOK_SECONDS : 2 * pool.pause;
    pool.pause = pool.pause < LOOK_SECONDS_MOST ? pool.pause : LOOK_SECONDS_MOST;
    pool.next = now + pool.pause;
    return pool.awake;
}

void zoff_base_openmp_run(unsigned threads, zoff_team_fn fn, void *ctx)
{
    region r = {.runtime = zoff_base_openmp_settings_find(), .fn = fn, .ctx = ctx};
    r.runtime->parallel(run_in_region, &r, threads, 0);
    /* Threads usually spin for longer than the region. Count from before the run: reading the clock once more would cost 2 % of
     * the smallest runs. A check after each long run costs nothing in comparison. */
    pool.next = pool.now + LOOK_SECONDS;
}
