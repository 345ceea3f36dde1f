/* SPDX-License-Identifier: Apache-2.0 */
/* budget.c: MemAvailable and cgroup limits, version 1 and 2. A limit holds for the group and for each group above it. */
#include "budget.h"

#include "bits.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 1024 };

/* Read the number in a file.  @return false: the file is missing, says "max", or holds no number */
static bool read_number(const char *root, const char *folder, const char *file, uint64_t *out)
{
    char path[PATH_BYTES * 2];
    char text[64];
    snprintf(path, sizeof path, "%s%s/%s", root, folder, file);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    bool found = fgets(text, sizeof text, f) && sscanf(text, "%llu", (unsigned long long *)out) == 1;
    fclose(f);
    return found;
}

/* Read the two numbers of cpu.max. Both stay unchanged for "max 100000", without a file, or without numbers. */
static void read_pair(const char *root, const char *folder, const char *file, uint64_t *out_first, uint64_t *out_second)
{
    char path[PATH_BYTES * 2];
    char text[64];
    unsigned long long first, second;
    snprintf(path, sizeof path, "%s%s/%s", root, folder, file);
    FILE *f = fopen(path, "re");
    if (!f)
        return;
    if (fgets(text, sizeof text, f) && sscanf(text, "%llu %llu", &first, &second) == 2) {
        *out_first = first;
        *out_second = second;
    }
    fclose(f);
}

/* Find our group's folder in a hierarchy: controller "" is version 2 ("0::/path"), else version 1 ("5:memory:/path"). */
static bool group_folder(const char *root, const char *controller, char *out, size_t out_bytes)
{
    char path[PATH_BYTES];
    char line[PATH_BYTES];
    bool found = false;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    while (!found && fgets(line, sizeof line, f)) {
        char *names = strchr(line, ':');
        char *folder = names ? strchr(names + 1, ':') : NULL;
        if (!folder)
            continue;
        *folder++ = 0;
        names++;
        folder[strcspn(folder, "\n")] = 0;
        bool mine = controller[0] == 0 && names[0] == 0;
        for (char *save, *name = strtok_r(names, ",", &save); name && !mine && controller[0]; name = strtok_r(NULL, ",", &save))
            mine = strcmp(name, controller) == 0;
        if (mine) {
            snprintf(out, out_bytes, "/sys/fs/cgroup%s%s%s", controller[0] ? "/" : "", controller,
                     strcmp(folder, "/") ? folder : "");
            found = true;
        }
    }
    fclose(f);
    return found;
}

/* Go from a group to its parent, in place; false at the top. In a container the path may be the host's, while the container
 * sees its own group at the top. So a missing folder on the way is no error. */
static bool go_up(char *folder, const char *controller)
{
    size_t top = strlen("/sys/fs/cgroup") + (controller[0] ? 1 + strlen(controller) : 0);
    if (strlen(folder) <= top)
        return false;
    *strrchr(folder, '/') = 0;
    return true;
}

/* Compute limit minus use of one group. Use counts pages of the file cache, which the kernel can drop: add them back. */
static bool read_left(const char *root, const char *folder, const char *const files[3], uint64_t *out)
{
    uint64_t limit, used, cache = 0;
    char path[PATH_BYTES * 2];
    char line[128];
    if (!read_number(root, folder, files[0], &limit) || !read_number(root, folder, files[1], &used))
        return false;
    snprintf(path, sizeof path, "%s%s/memory.stat", root, folder);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        unsigned long long value;
        char key[64];
        if (sscanf(line, "%63s %llu", key, &value) == 2 && strcmp(key, files[2]) == 0)
            cache = value;
    }
    if (f)
        fclose(f);
    used = used > cache ? used - cache : 0;
    *out = limit > used ? limit - used : 0;
    return true;
}

/* FNV-1a. */
static uint64_t hash(uint64_t seed, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        seed = (seed ^ at[i]) * UINT64_C(0x100000001b3);
    return seed;
}

/* Identify the boot of a machine. Containers on it have different names, but the same boot. */
static uint64_t machine_id(const char *root)
{
    const uint64_t start = UINT64_C(0xcbf29ce484222325);
    char path[PATH_BYTES];
    char text[128] = "";
    snprintf(path, sizeof path, "%s/proc/sys/kernel/random/boot_id", root);
    FILE *f = fopen(path, "re");
    const bool found = f && fgets(text, sizeof text, f);
    if (f)
        fclose(f);
    if (!found)
        (void)gethostname(text, sizeof text - 1);
    return hash(start, text, strlen(text));
}

/* Identify a group on a machine. The folder's inode number is used, because each container may see its own group at the top. */
static uint64_t group_id(const char *root, const char *folder, uint64_t machine)
{
    char path[PATH_BYTES * 2];
    struct stat s = {.st_ino = 0};
    snprintf(path, sizeof path, "%s%s", root, folder);
    (void)stat(path, &s);
    const uint64_t numbers[] = {(uint64_t)s.st_dev, (uint64_t)s.st_ino};
    return hash(machine, numbers, sizeof numbers);
}

/* Collect a group and the groups above it, all of one version of cgroups. */
static size_t group_levels(const char *root, const char *controller, const char *const files[3], size_t count,
                           zoff_budget_level *out)
{
    char folder[PATH_BYTES];
    if (!group_folder(root, controller, folder, sizeof folder))
        return count;
    do {
        uint64_t left;
        if (count < ZOFF_BUDGET_LEVELS && read_left(root, folder, files, &left))
            out[count++] = (zoff_budget_level){.id = group_id(root, folder, out[0].id), .bytes = left};
    } while (go_up(folder, controller));
    return count;
}

static uint64_t machine_memory(const char *root)
{
    char path[PATH_BYTES];
    char line[128];
    unsigned long long kib = 0;
    uint64_t result = UINT64_MAX;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            result = kib * 1024;
    }
    if (f)
        fclose(f);
    return result;
}

size_t zoff_base_budget_levels(const char *root, zoff_budget_level out[ZOFF_BUDGET_LEVELS])
{
    static const char *const V2[] = {"memory.max", "memory.current", "inactive_file"};
    static const char *const V1[] = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
    out[0] = (zoff_budget_level){.id = machine_id(root), .bytes = machine_memory(root)};
    return group_levels(root, "memory", V1, group_levels(root, "", V2, 1, out), out);
}

uint64_t zoff_base_budget_memory(const char *root, const char **out_source)
{
    zoff_budget_level levels[ZOFF_BUDGET_LEVELS];
    const size_t count = zoff_base_budget_levels(root, levels);
    size_t least = 0;
    for (size_t i = 1; i < count; i++)
        least = levels[i].bytes < levels[least].bytes ? i : least;
    *out_source = least ? "cgroup limit" : "MemAvailable";
    return levels[least].bytes;
}

/* CPUs by the tightest quota of our group and its parents; UINT64_MAX without one. */
static uint64_t group_cpus(const char *root, const char *controller)
{
    char folder[PATH_BYTES];
    uint64_t least = UINT64_MAX;
    if (!group_folder(root, controller, folder, sizeof folder))
        return least;
    do {
        uint64_t quota = 0, period = 0;
        if (controller[0]) {
            if (!read_number(root, folder, "cpu.cfs_quota_us", &quota) || quota > INT64_MAX || /* -1 means no quota */
                !read_number(root, folder, "cpu.cfs_period_us", &period))
                quota = 0;
        } else {
            read_pair(root, folder, "cpu.max", &quota, &period);
        }
        if (quota && period)
            least = zoff_base_bits_min(least, zoff_base_bits_ceil_div(quota, period));
    } while (go_up(folder, controller));
    return least;
}

unsigned zoff_base_budget_cpus(const char *root)
{
    uint64_t v2 = group_cpus(root, "");
    uint64_t v1 = group_cpus(root, "cpu");
    uint64_t least = v2 < v1 ? v2 : v1;
    return least > UINT_MAX ? 0 : (unsigned)least;
}

/* Find the list of a group or of its nearest parent that has one. A list may exist and be empty: then the parent decides. */
static bool find_list(const char *root, const char *controller, const char *file, char *out_path)
{
    char folder[PATH_BYTES];
    if (!group_folder(root, controller, folder, sizeof folder))
        return false;
    do {
        uint64_t first;
        if (read_number(root, folder, file, &first)) {
            snprintf(out_path, ZOFF_BUDGET_PATH_BYTES, "%s%s/%s", root, folder, file);
            return true;
        }
    } while (go_up(folder, controller));
    return false;
}

bool zoff_base_budget_cpuset(const char *root, char out_path[ZOFF_BUDGET_PATH_BYTES])
{
    return find_list(root, "", "cpuset.cpus.effective", out_path) ||
           find_list(root, "cpuset", "cpuset.effective_cpus", out_path) || find_list(root, "cpuset", "cpuset.cpus", out_path);
}
