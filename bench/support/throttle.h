/* SPDX-License-Identifier: Apache-2.0 */
/* throttle.h: a disk of known speed. The process and its children move into a cgroup in which the kernel limits the bytes per
 * second of a file's device, in each direction. That removes the noise of a shared disk from a comparison. The remaining
 * difference between two programs is the time in which they requested nothing. The kernel lets a cgroup catch up on unused
 * bytes of the last ten milliseconds or so. So pause before every sample or before none. */
#ifndef ZOFF_BENCH_THROTTLE_H
#define ZOFF_BENCH_THROTTLE_H

#include <stdint.h>

/* Limit the device under `path`, an existing file or folder, to this many bytes per second of reads, and of writes. NULL; or
 * the reason why not, with a way out: then no limit is in force and nothing is left behind. */
const char *throttle_open(const char *path, uint64_t bytes_per_second);
/* Limit another device, too, or change the limit of this one. NULL, or the reason: then limits stay as they were. */
const char *throttle_add(const char *path, uint64_t bytes_per_second);
/* Move back to the cgroup before, with running children. Does nothing if no limit is in force. */
void throttle_close(void);
extern const char *throttle_cgroup; /* in which the process is; NULL: no limit is in force */

#endif
