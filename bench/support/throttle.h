/* throttle.h: a disk of known speed. The process and its children move into a cgroup in which the kernel limits the bytes per
 * second of a file's device, in each direction. That removes the noise of a shared disk from a comparison. The remaining
 * difference between two programs is the time in which they requested nothing. The kernel lets a cgroup catch up on unused
 * bytes of the last ten milliseconds or so. So pause before every sample or before none. */
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

/* Limit the device under `path`, an existing file or folder, to this many bytes per second of reads, and of writes. 0, or -1
 * with `reason`: then no limit is in force and nothing is left behind. A process has at most one throttle. */
int throttle_open(throttle *t, const char *path, uint64_t bytes_per_second);
/* Limit another device, too, or change the limit of this one. 0, or -1 with `reason`: then limits stay as they were. */
int throttle_add(throttle *t, const char *path, uint64_t bytes_per_second);
/* Move back to the cgroup before, with running children. Does nothing for a throttle that is not open. */
void throttle_close(throttle *t);

#ifdef __cplusplus
}
#endif
#endif
