/* throttle.h: a disk of known speed. The process and its children go into a cgroup of their own, in which the kernel bounds the
 * bytes a second, each way, of the device that holds a file. That takes the noise of a shared disk out of a comparison: what is
 * left between two programs is the time in which they asked for nothing. The kernel lets a cgroup catch up on what it left
 * unused a moment ago, some ten milliseconds' worth. So either pause before every sample or before none. */
#ifndef ZOFF_BENCH_THROTTLE_H
#define ZOFF_BENCH_THROTTLE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { THROTTLE_PATH = 512 };

typedef struct throttle {
    int version;                    /* of the cgroups: 1 or 2; 0: not in force */
    char root[THROTTLE_PATH];       /* mount point of the hierarchy that limits disks */
    char home[THROTTLE_PATH];       /* the cgroup that the process came from */
    char own[THROTTLE_PATH];        /* the cgroup that it is in now */
    char enabled[THROTTLE_PATH];    /* version 2: the cgroup whose children were given the controller; "": none */
    char device[32];                /* of the file last named, MAJOR:MINOR */
    char reason[2 * THROTTLE_PATH]; /* why the last call failed, with a way out */
} throttle;

/* Bound the device under `path`, a file or folder that is there, to so many bytes a second of reads and as many of writes.
 * 0, or -1 with `reason`; then nothing is in force and nothing is left behind. One throttle at a time for a process. */
int throttle_open(throttle *t, const char *path, uint64_t bytes_per_second);
/* Bound another device too, or the same one differently. 0, or -1 with `reason`; what was in force still is. */
int throttle_add(throttle *t, const char *path, uint64_t bytes_per_second);
/* Back to where the process was. Children that still run go there too. Does nothing for one that is not open. */
void throttle_close(throttle *t);

#ifdef __cplusplus
}
#endif
#endif
