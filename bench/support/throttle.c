/* throttle.c: cgroups of version 1 (blkio.throttle), or of version 2 (io.max) if the io controller is available. */
#include "throttle.h"

#include <errno.h>
#include <stdbool.h>
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

static FILE *open_in(const char *folder, const char *name, const char *mode)
{
    char path[THROTTLE_PATH + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fopen(path, mode);
}

/* Write a text into a file of a cgroup; 0, or -1 with errno. */
static int put(const char *folder, const char *name, const char *text)
{
    FILE *file = open_in(folder, name, "we");
    if (!file)
        return -1;
    const bool written = fputs(text, file) >= 0;
    return fclose(file) == 0 && written ? 0 : -1; /* the kernel's answer comes when the buffer is written */
}

/* The first line of a file; "" if there is none. */
static void get(const char *folder, const char *name, char *line, int bytes)
{
    FILE *file = open_in(folder, name, "re");
    if (!file || !fgets(line, bytes, file))
        line[0] = 0;
    line[strcspn(line, "\n")] = 0;
    if (file)
        fclose(file);
}

/* Whether a list, parted by commas or spaces, has a word. */
static bool has_word(const char *list, const char *word)
{
    for (const char *p = list; *p; p += strcspn(p, ", "), p += strspn(p, ", ")) {
        if (strcspn(p, ", ") == strlen(word) && strncmp(p, word, strlen(word)) == 0)
            return true;
    }
    return false;
}

static bool hands_down(const char *folder, const char *file)
{
    char line[512];
    get(folder, file, line, sizeof line);
    return has_word(line, "io");
}

/* Find the disk of the file: the kernel limits whole disks, not partitions. */
static int find_device(throttle *t, const char *path)
{
    struct stat info;
    char folder[64], line[32];
    if (stat(path, &info) != 0)
        return fail(t, "cannot find the device of", path, strerror(errno));
    snprintf(t->device, sizeof t->device, "%u:%u", major(info.st_dev), minor(info.st_dev));
    snprintf(folder, sizeof folder, "/sys/dev/block/%s", t->device);
    if (access(folder, F_OK) != 0)
        return fail(t, "no block device holds", path, "choose a folder on ext4 or XFS of a disk");
    get(folder, "partition", line, sizeof line);
    if (line[0])
        get(folder, "../dev", t->device, sizeof t->device);
    return t->device[0] ? 0 : fail(t, "cannot find the disk of", path, "the system does not tell");
}

/* Find the mount point of a hierarchy that can limit disks. Returns its version, or 0. */
static int find_mount(char *out)
{
    char line[4096], at[THROTTLE_PATH], options[1024];
    int version = 0;
    FILE *file = fopen("/proc/self/mountinfo", "re");
    while (file && version != 1 && fgets(line, sizeof line, file)) {
        const char *tail = strstr(line, " - ");
        if (!tail || sscanf(line, "%*s %*s %*s %*s %511s", at) != 1)
            continue;
        const bool first = sscanf(tail, " - cgroup %*s %1023s", options) == 1 && has_word(options, "blkio");
        if (first || (strncmp(tail, " - cgroup2 ", 11) == 0 && hands_down(at, "cgroup.controllers"))) {
            version = first ? 1 : 2;
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
    char line[4096], whole[THROTTLE_PATH];
    FILE *file = fopen("/proc/self/cgroup", "re");
    strcpy(out, root);
    while (file && fgets(line, sizeof line, file)) {
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        path[strcspn(path, "\n")] = 0;
        const bool ours = version == 1 ? has_word(names + 1, "blkio") : strncmp(line, "0:", 2) == 0;
        if (ours && strcmp(path, "/") != 0 && snprintf(whole, sizeof whole, "%s%s", root, path) < THROTTLE_PATH &&
            access(whole, F_OK) == 0)
            strcpy(out, whole);
    }
    if (file)
        fclose(file);
}

/* Create a cgroup beside the others. One of that name is a leftover of a process that has ended. */
static int make_cgroup(const char *parent, char *out)
{
    if (snprintf(out, THROTTLE_PATH, "%s/zoff-bench-%ld", parent, (long)getpid()) >= THROTTLE_PATH)
        return errno = ENAMETOOLONG, -1;
    if (mkdir(out, 0755) == 0)
        return 0;
    return errno == EEXIST && rmdir(out) == 0 ? mkdir(out, 0755) : -1;
}

/* Version 2 limits a cgroup only if its parent enables the controller for its children. A cgroup with processes of its own,
 * except the root, cannot do that. So go up to one that can. */
static int make_v2(throttle *t)
{
    char parent[THROTTLE_PATH];
    for (strcpy(parent, t->home);; *strrchr(parent, '/') = 0) {
        const bool handed = hands_down(parent, "cgroup.subtree_control");
        if (handed || put(parent, "cgroup.subtree_control", "+io") == 0) {
            if (make_cgroup(parent, t->own) == 0) {
                strcpy(t->enabled, handed ? "" : parent);
                return 0;
            }
            if (!handed)
                put(parent, "cgroup.subtree_control", "-io");
        }
        if (strcmp(parent, t->root) == 0)
            return -1;
    }
}

static int limit(const throttle *t, uint64_t rate)
{
    char text[128];
    const unsigned long long bytes = rate;
    if (t->version == 2) {
        snprintf(text, sizeof text, "%s rbps=%llu wbps=%llu", t->device, bytes, bytes);
        return put(t->own, "io.max", text);
    }
    snprintf(text, sizeof text, "%s %llu", t->device, bytes);
    return put(t->own, "blkio.throttle.read_bps_device", text) == 0 ? put(t->own, "blkio.throttle.write_bps_device", text) : -1;
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

/* Move all processes back, this one first. Then the cgroup can be removed. */
void throttle_close(throttle *t)
{
    enum { TRIES = 100 };
    char line[64];
    if (!t->version)
        return;
    snprintf(line, sizeof line, "%ld", (long)getpid());
    put(t->home, "cgroup.procs", line);
    for (int try = 0; rmdir(t->own) != 0 && errno == EBUSY && try < TRIES; try++) {
        FILE *procs = open_in(t->own, "cgroup.procs", "re");
        while (procs && fgets(line, sizeof line, procs))
            put(t->home, "cgroup.procs", line);
        if (procs)
            fclose(procs);
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL); /* a process that has just ended still counts */
    }
    if (t->enabled[0])
        put(t->enabled, "cgroup.subtree_control", "-io");
    t->version = 0;
}
