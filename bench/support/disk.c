/* SPDX-License-Identifier: Apache-2.0 */
/* disk.c: the folder of a benchmark and its removal, children on drives of their own, and the kernel's count of a disk's bytes.
 */
#include "disk.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <linux/magic.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

struct disk_options disk = {.budget_share = 10, .busy = DISK_ALONE, .path = "."};
static bool keeps_folder; /* the thread that waits for signals must not remove the folder */
static void (*undo_more)(void);

/* Start processes that each use a CPU as long as this one lives. Samples count in spite of them. */
static void start_busy(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const pid_t child = fork();
        if (child < 0)
            bench_die("--busy: %s", strerror(errno));
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (volatile unsigned long turns = 0;; turns++)
                ;
        }
    }
    bench_beside_others = true;
}

void disk_begin(double times, unsigned full, unsigned quick)
{
    disk.elements = disk.elements ? disk.elements : (uint64_t)(bench.quick ? quick : full) << 20;
    if (disk.busy != DISK_ALONE)
        start_busy(disk.busy);
    disk_folder_make("path", disk.path, times * 12 * (double)disk.elements, NULL);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    return remove(path);
}

/* Mounts of a child are not entered, because their files go with the image of the drive. */
BENCH_CLOSER(remove_folder, nftw(disk.folder, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT))

/* Files of the size of a model must not stay behind. All threads block these signals, and this one waits for them. */
static void *await_signal(void *ctx)
{
    int number;
    if (sigwait(ctx, &number) != 0)
        return NULL;
    throttle_close();
    if (undo_more)
        undo_more();
    if (!keeps_folder)
        remove_folder(NULL, 0);
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

void disk_folder_make(const char *option, const char *path, double bytes, void (*undo)(void))
{
    char full[PATH_MAX];
    struct statvfs space;
    struct statfs fs;
    if (!realpath(path, full) || statvfs(full, &space) != 0)
        bench_die("--%s %s: %s", option, path, strerror(errno));
    const double room = (double)space.f_bavail * (double)space.f_frsize;
    if (room < bytes)
        bench_die("--%s %s: %.1f GB are free, %.1f GB are wanted; name another folder, or ask for less", option, path,
                  1e-9 * room, 1e-9 * bytes);
    char *made = bench_text("%s/zoff-step-XXXXXX", full);
    if (!mkdtemp(made))
        bench_die("--%s %s: cannot make a folder there: %s", option, path, strerror(errno));
    setenv("ZOFF_BENCH_FOLDER", made, 1);
    undo_more = undo;
    guard();
    bench_later(remove_folder, NULL, 0);
    disk.folder = made;
    disk.in_memory = statfs(made, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

BENCH_CLOSER(release, throttle_close())

bool disk_hold(race *r, const char *path, uint64_t bytes_per_second)
{
    const char *reason = throttle_open(path, bytes_per_second);
    if (reason)
        r->missing = reason;
    else
        bench_later(release, NULL, 0);
    return !reason;
}

bool disk_is_late(double share, race *r)
{
    const bool late = bench_now() >= bench_share(share);
    if (late)
        r->missing = "no time was left for it; raise --seconds, or name fewer parts with --only";
    return late;
}

double disk_moved(const char *path)
{
    enum { SECTOR = 512 }; /* bytes of a sector, whatever the disk has */
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
                             "  exec %s' 2>&1";

const char *disk_child(race *r, const disk_drives *drives, const char *arguments)
{
    static char text[1 << 16];
    const char *own = bench_text("\"$ZOFF_BENCH_SELF\" --child %s", arguments);
    const int ret =
        bench_command(text, sizeof text,
                      drives ? bench_text(DRIVES, drives->names, drives->allocate, drives->bytes, drives->format, own)
                             : bench_text("exec %s 2>&1", own));
    while (text[0] && text[strlen(text) - 1] == '\n')
        text[strlen(text) - 1] = 0;
    const char *line = strrchr(text, '\n') ? strrchr(text, '\n') + 1 : text;
    if (ret == 0)
        return line;
    r->missing = bench_text("%s%.250s", drives && geteuid() != 0 ? "loop devices and mounts need root: " : "", line);
    return NULL;
}

void disk_child_begin(void)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    keeps_folder = true;
    guard();
    if (getppid() == 1)
        exit(1); /* the parent is gone already, so nobody reads the result */
    disk.folder = getenv("ZOFF_BENCH_FOLDER");
}
