/* SPDX-License-Identifier: Apache-2.0 */
/* footprint.h: the device memory that zoff holds: as it planned, and as it counts. */
#ifndef CUDA_TRAINER_FOOTPRINT_H
#define CUDA_TRAINER_FOOTPRINT_H

#include <zoff/zoff.h>

/* Bytes. */
typedef struct footprint {
    uint64_t planned, sealed; /* bytes by the plan, and bytes when the first look was taken */
    uint64_t most;            /* most bytes at any look */
} footprint;

/* Take a look, the first one before the first step. Returns -1 with an error in zoff_last_error(). */
int footprint_look(const zoff_engine *engine, const zoff_accel *accel, footprint *f);

#endif
