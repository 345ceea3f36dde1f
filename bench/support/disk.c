/* disk.c: the folder of a benchmark and its removal, children on drives of their own, and the kernel's count of a disk's bytes.
 */
#include "disk.h"

#include <errno.h>
#include <linux/magic.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

throttle disk_throttle;
static bool keeps_folder; /* the thread that waits for signals must not remove it */

/* --- options --- */

/* Start processes that each use a CPU as long as this one lives. Samples count in spite of them. */
static int start_busy(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const pid_t child = fork();
        if (child < 0)
            return bench_fail("--busy: %s", strerror(errno));
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (volatile unsigned long turns = 0;; turns++)
                ;
        }
    }
    bench_stopwatch_beside_others();
    return 0;
}

int disk_start(int argc, char **argv, const char *usage, bench_option extra, const bench_word *parts,
               const bench_default defaults[2], const unsigned mebi_elements[2], disk_options *out)
{
    const bench_option own[] = {{"path", .text = &out->path},
                                {"elements", .number = &out->elements, .least = 64 << 10, .most = 1ull << 36},
                                {"budget", .number = &out->budget_share, .least = 2, .most = 1000},
                                {"busy", .number = &out->busy, .least = 0, .most = 64},
                                extra,
                                {.name = NULL}};
    *out = (disk_options){.budget_share = 10, .busy = UINT64_MAX, .path = ".", .run = {.quick = true}};
    if (bench_program_parse(argc, argv, usage, own, parts, defaults, &out->run) != 0)
        return 2;
    out->elements = out->elements ? out->elements : (uint64_t)mebi_elements[out->run.quick] << 20;
    return out->busy != UINT64_MAX && start_busy(out->busy) != 0;
}

/* --- the folder --- */

void disk_folder_remove(void)
{
    char text[256];
    (void)bench_command(text, sizeof text, "rm -rf --one-file-system \"$ZOFF_BENCH_FOLDER\"");
}

/* Files of the size of a model must not stay behind. All threads block these signals, and this one waits for them. */
static void *await_signal(void *ctx)
{
    int number;
    if (sigwait(ctx, &number) != 0)
        return NULL;
    throttle_close(&disk_throttle);
    if (!keeps_folder)
        disk_folder_remove();
    _exit(128 + number);
}

static void guard(void)
{
    static sigset_t set;
    pthread_t thread;
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

int disk_folder_make(const disk_options *options, double times, char out[DISK_PATH], bool *in_memory)
{
    char full[DISK_PATH];
    struct statvfs space;
    struct statfs fs;
    if (!realpath(options->path, full) || statvfs(full, &space) != 0)
        return bench_fail("--path %s: %s", options->path, strerror(errno));
    const double room = (double)space.f_bavail * (double)space.f_frsize, wanted = times * 12 * (double)options->elements;
    if (room < wanted)
        return bench_fail("--path %s: %.1f GB are free, %.1f GB are wanted; name another folder, or fewer with --elements",
                          options->path, 1e-9 * room, 1e-9 * wanted);
    if (snprintf(out, DISK_PATH, "%s/zoff-step-XXXXXX", full) >= DISK_PATH || !mkdtemp(out))
        return bench_fail("--path %s: cannot make a folder there: %s", options->path, strerror(errno));
    setenv("ZOFF_BENCH_FOLDER", out, 1);
    guard();
    *in_memory = statfs(out, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
    return 0;
}

int disk_hold(race *r, const char *path, uint64_t bytes_per_second)
{
    if (throttle_open(&disk_throttle, path, bytes_per_second) == 0)
        return 0;
    race_excuse(r, "%s", disk_throttle.reason);
    return -1;
}

bool disk_is_late(const disk_options *options, double share, race *r)
{
    if (bench_now() < bench_run_deadline(&options->run, share))
        return false;
    race_excuse(r, "no time was left for it; raise --seconds, or name fewer parts with --only");
    return true;
}

double disk_moved(const char *path)
{
    enum { SECTOR = 512 }; /* whatever the disk has */
    struct stat about;
    char name[64];
    double reads, writes;
    if (stat(path, &about) != 0)
        return NAN;
    snprintf(name, sizeof name, "/sys/dev/block/%u:%u/partition", major(about.st_dev), minor(about.st_dev));
    const char *up = access(name, F_OK) == 0 ? "../" : "";
    snprintf(name, sizeof name, "/sys/dev/block/%u:%u/%sstat", major(about.st_dev), minor(about.st_dev), up);
    return bench_scan(name, 2, "%*s %*s %lf %*s %*s %*s %lf", &reads, &writes) ? SECTOR * (reads + writes) : NAN;
}

/* --- children --- */

/* A device that is detached at once lives as long as its mount. The child has its own mount namespace, so mounts and devices
 * are gone when it ends, in any way. */
static const char DRIVES[] = "exec unshare --mount --propagation private sh -ec '"
                             "  cd \"$ZOFF_BENCH_FOLDER\";"
                             "  for drive in %s; do"
                             "    %s %llu $drive.img; mkdir $drive;"
                             "    device=$(losetup --find --show --direct-io=on $drive.img);"
                             "    { %s $device && mount $device $drive; } || failed=1;"
                             "    losetup --detach $device; [ -z \"$failed\" ];"
                             "  done;"
                             "  exec \"$ZOFF_BENCH_SELF\" %s' 2>&1";

const char *disk_child(race *r, const disk_drives *drives, const char *arguments, ...)
{
    static char text[1 << 16];
    char own[256];
    va_list args;
    va_start(args, arguments);
    vsnprintf(own, sizeof own, arguments, args);
    va_end(args);
    const int ret =
        drives ? bench_command(text, sizeof text, DRIVES, drives->names, drives->allocate, drives->bytes, drives->format, own)
               : bench_command(text, sizeof text, "exec \"$ZOFF_BENCH_SELF\" %s 2>&1", own);
    while (text[0] && text[strlen(text) - 1] == '\n')
        text[strlen(text) - 1] = 0;
    const char *line = strrchr(text, '\n') ? strrchr(text, '\n') + 1 : text;
    if (ret == 0)
        return line;
    race_excuse(r, "%s%.250s", drives && geteuid() != 0 ? "loop devices and mounts need root: " : "", line);
    return NULL;
}

const char *disk_child_begin(void)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    keeps_folder = true;
    guard();
    return getppid() == 1 ? NULL : getenv("ZOFF_BENCH_FOLDER");
}
