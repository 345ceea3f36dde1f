/* SPDX-License-Identifier: Apache-2.0 */
/* throttle.c: cgroups of version 1 (blkio.throttle), or of version 2 (io.max) if the io controller is available. */
#include "throttle.h"

#include "program.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static struct {
    int version;         /* version of the cgroups: 1 or 2 */
    const char *root;    /* mount point of the hierarchy that limits disks */
    const char *home;    /* the cgroup that the process came from */
    const char *enabled; /* version 2: the cgroup whose children were given the controller; NULL: none */
    const char *device;  /* of the file last named, MAJOR:MINOR */
} own;
const char *throttle_cgroup;

static const char *fail(const char *what, const char *where, const char *why)
{
    return bench_text("%s %s: %s", what, where, why);
}

/* Write a text into a file of a cgroup; 0, or -1 with errno. */
static int put(const char *folder, const char *name, const char *text)
{
    FILE *file = fopen(bench_text("%s/%s", folder, name), "we");
    const bool written = file && fputs(text, file) >= 0;
    return file && fclose(file) == 0 && written ? 0 : -1; /* the kernel's answer comes when the buffer is written */
}

/* The first line of a file; "" if there is none. */
static const char *get(const char *folder, const char *name)
{
    char line[512] = "";
    bench_scan(bench_text("%s/%s", folder, name), 1, "%511[^\n]", line);
    return bench_text("%s", line);
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
    return has_word(get(folder, file), "io");
}

/* Find the disk of the file: the kernel limits whole disks, not partitions. */
static const char *find_device(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return fail("cannot find the device of", path, strerror(errno));
    own.device = bench_text("%u:%u", major(info.st_dev), minor(info.st_dev));
    const char *folder = bench_text("/sys/dev/block/%s", own.device);
    if (access(folder, F_OK) != 0)
        return fail("no block device holds", path, "choose a folder on ext4 or XFS of a disk");
    if (get(folder, "partition")[0])
        own.device = get(folder, "../dev");
    return own.device[0] ? NULL : fail("cannot find the disk of", path, "the system does not tell");
}

/* Find the mount point of a hierarchy that can limit disks, and its version; 0: there is none. */
static void find_mount(void)
{
    char line[4096], at[512], options[1024];
    FILE *file = fopen("/proc/self/mountinfo", "re");
    own.version = 0;
    while (file && own.version != 1 && fgets(line, sizeof line, file)) {
        const char *tail = strstr(line, " - ");
        if (!tail || sscanf(line, "%*s %*s %*s %*s %511s", at) != 1)
            continue;
        const bool first = sscanf(tail, " - cgroup %*s %1023s", options) == 1 && has_word(options, "blkio");
        if (first || (strncmp(tail, " - cgroup2 ", 11) == 0 && hands_down(at, "cgroup.controllers"))) {
            own.version = first ? 1 : 2;
            own.root = bench_text("%s", at);
        }
    }
    if (file)
        fclose(file);
}

/* The cgroup of this process in that hierarchy. In a container the path may be the host's, which is not mounted here. */
static void find_home(void)
{
    char line[4096];
    FILE *file = fopen("/proc/self/cgroup", "re");
    own.home = own.root;
    while (file && fgets(line, sizeof line, file)) {
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        path[strcspn(path, "\n")] = 0;
        const bool ours = own.version == 1 ? has_word(names + 1, "blkio") : strncmp(line, "0:", 2) == 0;
        const char *whole = bench_text("%s%s", own.root, path);
        if (ours && strcmp(path, "/") != 0 && access(whole, F_OK) == 0)
            own.home = whole;
    }
    if (file)
        fclose(file);
}

/* Create a cgroup beside the others. One of that name is a leftover of a process that has ended. */
static int make_cgroup(const char *parent)
{
    throttle_cgroup = bench_text("%s/zoff-bench-%ld", parent, (long)getpid());
    if (mkdir(throttle_cgroup, 0755) == 0)
        return 0;
    return errno == EEXIST && rmdir(throttle_cgroup) == 0 ? mkdir(throttle_cgroup, 0755) : -1;
}

/* Version 2 limits a cgroup only if its parent enables the controller for its children. A cgroup with processes of its own,
 * except the root, cannot do that. So go up to one that can. */
static int make_v2(void)
{
    char *parent = bench_text("%s", own.home);
    for (;; *strrchr(parent, '/') = 0) {
        const bool handed = hands_down(parent, "cgroup.subtree_control");
        if (handed || put(parent, "cgroup.subtree_control", "+io") == 0) {
            own.enabled = handed ? NULL : parent;
            if (make_cgroup(parent) == 0)
                return 0;
            if (!handed)
                put(parent, "cgroup.subtree_control", "-io");
        }
        if (strcmp(parent, own.root) == 0)
            return -1;
    }
}

static int limit(unsigned long long rate)
{
    const char *text = bench_text("%s %llu", own.device, rate);
    if (own.version == 2)
        return put(throttle_cgroup, "io.max", bench_text("%s rbps=%llu wbps=%llu", own.device, rate, rate));
    return put(throttle_cgroup, "blkio.throttle.read_bps_device", text) == 0
               ? put(throttle_cgroup, "blkio.throttle.write_bps_device", text)
               : -1;
}

const char *throttle_open(const char *path, uint64_t bytes_per_second)
{
    const char *reason = find_device(path);
    if (reason)
        return reason;
    find_mount();
    if (!own.version)
        return fail("no cgroup here can bound", path,
                    "neither blkio of version 1 nor io of version 2 is mounted; run it on the host, or mount one");
    find_home();
    if ((own.version == 1 ? make_cgroup(own.home) : make_v2()) != 0) {
        throttle_cgroup = NULL;
        return fail("cannot make a cgroup under", own.home,
                    errno == EBUSY                      ? "its processes are in the way; run it as root in the root cgroup"
                    : errno == EACCES || errno == EPERM ? "only root may; run it as root"
                    : errno == EROFS                    ? "the tree is read-only, as in a container; run it on the host"
                                                        : strerror(errno));
    }
    if (limit(bytes_per_second) != 0)
        reason =
            fail("cannot bound the device", own.device, errno == ENODEV ? "the kernel knows no such disk" : strerror(errno));
    else if (put(throttle_cgroup, "cgroup.procs", bench_text("%ld", (long)getpid())) != 0)
        reason = fail("cannot enter the cgroup", throttle_cgroup, strerror(errno));
    if (reason)
        throttle_close();
    return reason;
}

const char *throttle_add(const char *path, uint64_t bytes_per_second)
{
    const char *reason = throttle_cgroup ? find_device(path) : fail("cannot bound", path, "no throttle is open");
    if (!reason && limit(bytes_per_second) != 0)
        reason = fail("cannot bound the device", own.device, strerror(errno));
    return reason;
}

/* Move all processes back, this one first. Then the cgroup can be removed. */
void throttle_close(void)
{
    enum { TRIES = 100 };
    char line[64];
    if (!throttle_cgroup)
        return;
    put(own.home, "cgroup.procs", bench_text("%ld", (long)getpid()));
    for (int try = 0; rmdir(throttle_cgroup) != 0 && errno == EBUSY && try < TRIES; try++) {
        FILE *procs = fopen(bench_text("%s/cgroup.procs", throttle_cgroup), "re");
        while (procs && fgets(line, sizeof line, procs))
            put(own.home, "cgroup.procs", line);
        if (procs)
            fclose(procs);
        bench_sleep(0.01); /* a process that has just ended still counts */
    }
    if (own.enabled)
        put(own.enabled, "cgroup.subtree_control", "-io");
    throttle_cgroup = NULL;
}
