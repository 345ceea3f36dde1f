/* disk.h: common parts of the benchmarks of states on a disk: options, the folder, a disk that is held at a known speed, and
 * parts that run in processes of their own. */
#ifndef ZOFF_BENCH_DISK_H
#define ZOFF_BENCH_DISK_H

#include "report.h"
#include "throttle.h"

enum { DISK_PATH = 4096 };

typedef struct disk_options {
    uint64_t elements;     /* of the model; 12 bytes of states each */
    uint64_t budget_share; /* bytes of states over the DRAM that may hold them */
    uint64_t busy;         /* processes that compute meanwhile; UINT64_MAX: this one must be alone */
    const char *path;      /* an existing folder on the disk in question */
    bench_run run;
} disk_options;

/* Parse --path, --elements, --budget, --busy and `extra`, with these Mi of elements in a full and a quick run. Start the busy
 * processes. 0, or the exit status after a message. */
int disk_start(int argc, char **argv, const char *usage, bench_option extra, const bench_word *parts,
               const bench_default defaults[2], const unsigned mebi_elements[2], disk_options *out);

/* Make a folder with room for `times` the states, which children find as ZOFF_BENCH_FOLDER. On a signal that ends the program
 * it is removed, and disk_throttle closed. 0, or -1 with a message. */
int disk_folder_make(const disk_options *options, double times, char out[DISK_PATH], bool *in_memory);
void disk_folder_remove(void);

extern throttle disk_throttle; /* of this process; there is only one */
/* Hold the disk under `path` at this many bytes a second each way. 0; or -1, and the race has the reason. */
int disk_hold(race *r, const char *path, uint64_t bytes_per_second);

/* Whether `share` of the run's time has passed; then the race has that reason. */
bool disk_is_late(const disk_options *options, double share, race *r);

/* Drives for a child: loop devices over files in the folder, which are mounted there under these names. */
typedef struct disk_drives {
    const char *names, *allocate, *format; /* names; commands that make a file of a given size, and a file system */
    unsigned long long bytes;
} disk_drives;
/* Run this program with other arguments, in a mount namespace with these drives, or NULL. Returns the last line that it prints;
 * NULL: it failed, and the race has the reason. */
const char *disk_child(race *r, const disk_drives *drives, const char *arguments, ...) __attribute__((format(printf, 3, 4)));
/* In that child: end with the parent, and close disk_throttle then. Returns the folder; NULL: the parent is gone already. */
const char *disk_child_begin(void);

/* Bytes that were read from and written to the disk with a file or folder, since the system has started: of the whole disk,
 * also if the file is on a partition. NAN if the kernel has no count, as for a file system in memory or one made of layers. */
double disk_moved(const char *path);

#endif
