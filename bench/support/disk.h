/* SPDX-License-Identifier: Apache-2.0 */
/* disk.h: common parts of the benchmarks of states on a disk: options, the folder, a disk that is held at a known speed, and
 * parts that run in processes of their own. */
#ifndef ZOFF_BENCH_DISK_H
#define ZOFF_BENCH_DISK_H

#include "report.h"
#include "throttle.h"

enum { DISK_ALONE = 1 << 30 };

extern struct disk_options {
    uint64_t elements;     /* elements of the model; 12 bytes of states each */
    uint64_t budget_share; /* bytes of states over the DRAM that may hold them */
    uint64_t busy;         /* number of processes that compute meanwhile; DISK_ALONE: this one must be alone */
    const char *path;      /* an existing folder on the disk in question */
    const char *folder;    /* the run's own folder, inside `path` */
    bool in_memory;        /* the folder is a tmpfs */
} disk;

/* clang-format off */
#define DISK_OPTIONS(room, elements_help)                                                                                      \
    {"path", "FOLDER", "on the disk in question; needs room for " room " times the states (default: the current folder)", .text = &disk.path}, \
    {"elements", "N", "of the model, 12 bytes of states each; 48Mi and the like are understood " elements_help, .number = &disk.elements, .least = 64 << 10, .most = 1ull << 36}, \
    {"budget", "N", "the budget of DRAM is a part in N of the states (default 10)", .number = &disk.budget_share, .least = 2, .most = 1000}, \
    {"busy", "N", "beside N processes that compute all the time, and whatever else runs; nothing is judged", .number = &disk.busy, .least = 0, .most = 64}
/* clang-format on */

/* Set what the options leave open, with these Mi of elements in a full and a quick run, start the busy processes, and make a
 * folder with room for `times` the states. */
void disk_begin(double times, unsigned full, unsigned quick);

/* Make a folder with this much room under `path`, which children find as ZOFF_BENCH_FOLDER. It is removed at the end, and on a
 * signal, which also ends a limit of the disk and calls `undo` (NULL: nothing). Messages name `option`, which gave the path. */
void disk_folder_make(const char *option, const char *path, double bytes, void (*undo)(void));

/* Hold the disk under `path` at this many bytes a second each way, until the end of the part or throttle_close(). Returns
 * whether it does; if not, the race has the reason. */
bool disk_hold(race *r, const char *path, uint64_t bytes_per_second);

/* Whether `share` of the run's time has passed; then the race has that reason. */
bool disk_is_late(double share, race *r);

/* Drives for a child: loop devices over files in the folder, which are mounted there under these names. */
typedef struct disk_drives {
    const char *names, *allocate, *format; /* names; commands that make a file of a given size, and a file system */
    unsigned long long bytes;
} disk_drives;
/* Have a part's `child` run in a process of its own, in a mount namespace with these drives, or NULL. `arguments` are the name
 * of the part and numbers. Returns the last line that it prints; NULL: it failed, and the race has the reason. */
const char *disk_child(race *r, const disk_drives *drives, const char *arguments);
/* In that child: end with the parent, and free the disk then, because nobody else would. */
void disk_child_begin(void);

/* Bytes that were read from and written to the disk with a file or folder, since the system has started: of the whole disk,
 * also if the file is on a partition. NAN if the kernel has no count, as for a file system in memory or one made of layers. */
double disk_moved(const char *path);

#endif
