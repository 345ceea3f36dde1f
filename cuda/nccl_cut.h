/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_cut.h: how many bytes of a piece travel in a round. A rank stages one cut for each other rank and one from each. It
 * takes twice that much device memory. */
#ifndef ZOFF_NCCL_CUT_H
#define ZOFF_NCCL_CUT_H

#include <stddef.h>

enum {
    ZOFF_NCCL_ROUND = 4 << 20, /* bytes that a rank stages in a round, for all other ranks together */
    ZOFF_NCCL_CUT_ALIGN = 64 << 10,
    ZOFF_NCCL_CUT_LEAST = 512 /* the least cut: beyond 8,192 ranks a round grows */
};

/* Bytes of a cut. It depends on the number of ranks alone, so all ranks compute the same. */
static inline size_t zoff_nccl_cut(unsigned ranks)
{
    const size_t share = (size_t)ZOFF_NCCL_ROUND / ranks;
    const size_t align = share < ZOFF_NCCL_CUT_ALIGN ? ZOFF_NCCL_CUT_LEAST : ZOFF_NCCL_CUT_ALIGN;
    return share < ZOFF_NCCL_CUT_LEAST ? (size_t)ZOFF_NCCL_CUT_LEAST : share / align * align;
}

#endif
