/* SPDX-License-Identifier: Apache-2.0 */
/* dither.c: the table of random bits that kernels on the CPU read. */
#include "dither.h"

#include <pthread.h>

enum { REGISTER_MOST = 64 }; /* lanes */

static struct {
    pthread_once_t once;
    uint16_t lanes[2 * ZOFF_NORM_BLOCK + REGISTER_MOST];
} table = {.once = PTHREAD_ONCE_INIT};

static void fill(void)
{
    for (size_t i = 0; i < ZOFF_NORM_BLOCK; i++) {
        table.lanes[i] = dither_lane_m(i);
        table.lanes[ZOFF_NORM_BLOCK + i] = dither_lane_v(i);
    }
}

const uint16_t *zoff_adam_dither_lanes(void)
{
    pthread_once(&table.once, fill);
    return table.lanes;
}

uint64_t zoff_adam_dither_key(const char *name, size_t slice, size_t first)
{
    uint64_t key = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *name; name++)
        key = (key ^ (unsigned char)*name) * 0x100000001b3u;
    key = (key ^ (uint64_t)slice) * 0x9e3779b97f4a7c15u;
    return key + first / ZOFF_NORM_BLOCK;
}
