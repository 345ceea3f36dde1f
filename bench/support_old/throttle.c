/* throttle.c: cgroups of version 1 (blkio.throttle) or, where the io controller is there, of version 2 (io.max). */
#include "throttle.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

static int fail(throttle *t, const char *what, const char *where, const char *why)
{
    snprintf(t->reason, sizeof t->reason, "%s %s: %s", what, where, why);
    return -1;
}

static int join(char *out, const char *folder, const char *name)
{
    return snprintf(out, THROTTLE_PATH, "%s/%s", folder, name) < THROTTLE_PATH ? 0 : -1;
}

/* Write a text into a file of a cgroup; 0, or -1 with errno. */
static int put(const char *folder, const char *name, const char *text)
{
    char path[THROTTLE_PATH];
    if (join(path, folder, name) != 0)
        return errno = ENAMETOOLONG, -1;
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    const ssize_t ret = write(fd, text, strlen(text));
    const int error = errno;
    close(fd);
    errno = error;
    return ret < 0 ? -1 : 0;
}

static int exists(const char *folder, const char *name)
{
    char path[THROTTLE_PATH];
    return join(path, folder, name) == 0 && access(path, F_OK) == 0;
}

/* --- which device --- */

/* A partition is bounded by its disk. */
static int find_device(throttle *t, const char *path)
{
    struct stat info;
    char folder[64], name[THROTTLE_PATH];
    if (stat(path, &info) != 0)
        return fail(t, "cannot find the device of", path, strerror(errno));
    snprintf(t->device, sizeof t->device, "%u:%u", major(info.st_dev), minor(info.st_dev));
    snprintf(folder, sizeof folder, "/sys/dev/block/%s", t->device);
    if (access(folder, F_OK) != 0)
        return fail(t, "no block device holds", path, "choose a folder on ext4 or XFS of a disk");
    if (!exists(folder, "partition"))
        return 0;
    snprintf(name, sizeof name, "%s/../dev", folder);
    FILE *file = fopen(name, "re");
    const int got = file ? fscanf(file, "%31s", t->device) : 0;
    if (file)
        fclose(file);
    return got == 1 ? 0 : fail(t, "cannot find the disk of", path, "the system does not tell");
}

/* --- which cgroup --- */

static int has_word(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (const char *p = list; (p = strstr(p, word)); p += length) {
        const char before = p == list ? ',' : p[-1], after = p[length];
        if ((before == ',' || before == ' ') && (after == ',' || after == 0 || after == ' ' || after == '\n'))
            return 1;
    }
    return 0;
}

/* Whether the first line of a file of a cgroup has that word. */
static int tells(const char *folder, const char *name, const char *word)
{
    char path[THROTTLE_PATH], line[512] = "";
    FILE *file = join(path, folder, name) == 0 ? fopen(path, "re") : NULL;
    const int has = file && fgets(line, sizeof line, file) && has_word(line, word);
    if (file)
        fclose(file);
    return has;
}

/* Where a hierarchy is mounted that can bound disks; the version, or 0. */
static int find_mount(char *out)
{
    char line[4096];
    int version = 0;
    FILE *file = fopen("/proc/self/mountinfo", "re");
    while (file && version != 1 && fgets(line, sizeof line, file)) {
        char at[THROTTLE_PATH], options[1024], *tail = strstr(line, " - ");
        if (!tail || sscanf(line, "%*s %*s %*s %*s %511s", at) != 1)
            continue;
        if (sscanf(tail, " - cgroup %*s %1023s", options) == 1 && has_word(options, "blkio")) {
            version = 1;
            strcpy(out, at);
        } else if (strncmp(tail, " - cgroup2 ", 11) == 0 && tells(at, "cgroup.controllers", "io")) {
            version = 2;
            strcpy(out, at);
        }
    }
    if (file)
        fclose(file);
    return version;
}

/* The cgroup of this process in that hierarchy. In a container the path may be the host's, which is not mounted here. */
static void find_home(int version, const char *root, char *out)
{
    char line[4096];
    FILE *file = fopen("/proc/self/cgroup", "re");
    strcpy(out, root);
    while (file && fgets(line, sizeof line, file)) {
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        path[strcspn(path, "\n")] = 0;
        if (version == 1 ? !has_word(names + 1, "blkio") : strncmp(line, "0:", 2) != 0)
            continue;
        char whole[THROTTLE_PATH];
        if (strcmp(path, "/") != 0 && join(whole, root, path + 1) == 0 && exists(whole, "cgroup.procs"))
            strcpy(out, whole);
    }
    if (file)
        fclose(file);
}

static void wait_a_little(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
}

/* A folder beside the others; one of that name is a leftover of a process that is no more. */
static int make_cgroup(const char *parent, char *out)
{
    char name[64];
    snprintf(name, sizeof name, "zoff-bench-%ld", (long)getpid());
    if (join(out, parent, name) != 0)
        return errno = ENAMETOOLONG, -1;
    if (mkdir(out, 0755) == 0)
        return 0;
    return errno == EEXIST && rmdir(out) == 0 ? mkdir(out, 0755) : -1;
}

/* Version 2 bounds a cgroup only if its parent hands the controller down, and one that has processes of its own (the root
 * excepted) may not: so go up until one may. */
static int make_v2(throttle *t)
{
    char parent[THROTTLE_PATH];
    strcpy(parent, t->home);
    for (;;) {
        const int handed = tells(parent, "cgroup.subtree_control", "io");
        if (handed || put(parent, "cgroup.subtree_control", "+io") == 0) {
            if (make_cgroup(parent, t->own) == 0) {
                if (!handed)
                    strcpy(t->enabled, parent);
                return 0;
            }
            if (!handed)
                put(parent, "cgroup.subtree_control", "-io");
        }
        if (strcmp(parent, t->root) == 0)
            return -1;
        *strrchr(parent, '/') = 0;
    }
}

static int limit(throttle *t, uint64_t rate)
{
    char text[128];
    if (t->version == 2) {
        snprintf(text, sizeof text, "%s rbps=%llu wbps=%llu", t->device, (unsigned long long)rate, (unsigned long long)rate);
        return put(t->own, "io.max", text);
    }
    snprintf(text, sizeof text, "%s %llu", t->device, (unsigned long long)rate);
    return put(t->own, "blkio.throttle.read_bps_device", text) == 0 ? put(t->own, "blkio.throttle.write_bps_device", text) : -1;
}

/* All that is in the cgroup goes home, ourselves first; then the folder can go. */
static void leave(throttle *t)
{
    enum { TRIES = 100 };
    char path[THROTTLE_PATH], line[64];
    snprintf(line, sizeof line, "%ld", (long)getpid());
    put(t->home, "cgroup.procs", line);
    for (int try = 0; rmdir(t->own) != 0 && errno == EBUSY && try < TRIES; try++) {
        FILE *procs = join(path, t->own, "cgroup.procs") == 0 ? fopen(path, "re") : NULL;
        while (procs && fgets(line, sizeof line, procs))
            put(t->home, "cgroup.procs", line);
        if (procs)
            fclose(procs);
        wait_a_little(); /* one that has just ended is still counted */
    }
    if (t->enabled[0])
        put(t->enabled, "cgroup.subtree_control", "-io");
}

int throttle_open(throttle *t, const char *path, uint64_t bytes_per_second)
{
    char pid[32];
    *t = (throttle){0};
    if (find_device(t, path) != 0)
        return -1;
    const int version = find_mount(t->root);
    if (!version)
        return fail(t, "no cgroup here can bound", path,
                    "neither blkio of version 1 nor io of version 2 is mounted; run it on the host, or mount one");
    find_home(version, t->root, t->home);
    if ((version == 1 ? make_cgroup(t->home, t->own) : make_v2(t)) != 0)
        return fail(t, "cannot make a cgroup under", t->home,
                    errno == EBUSY                      ? "its processes are in the way; run it as root in the root cgroup"
                    : errno == EACCES || errno == EPERM ? "only root may; run it as root"
                    : errno == EROFS                    ? "the tree is read-only, as in a container; run it on the host"
                                                        : strerror(errno));
    t->version = version;
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    if (limit(t, bytes_per_second) != 0)
        fail(t, "cannot bound the device", t->device, errno == ENODEV ? "the kernel knows no such disk" : strerror(errno));
    else if (put(t->own, "cgroup.procs", pid) != 0)
        fail(t, "cannot enter the cgroup", t->own, strerror(errno));
    else
        return 0;
    throttle_close(t);
    return -1;
}

int throttle_add(throttle *t, const char *path, uint64_t bytes_per_second)
{
    if (!t->version)
        return fail(t, "cannot bound", path, "no throttle is open");
    if (find_device(t, path) != 0)
        return -1;
    return limit(t, bytes_per_second) == 0 ? 0 : fail(t, "cannot bound the device", t->device, strerror(errno));
}

void throttle_close(throttle *t)
{
    if (t->version)
        leave(t);
    t->version = 0;
}
