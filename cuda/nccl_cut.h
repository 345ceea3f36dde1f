/* nccl_cut.h: how much of a piece travels in a round. A rank stages a cut for each other rank, and one of each, so what it
 * takes of the device is twice their number times a cut. */
#ifndef ZOFF_NCCL_CUT_H
#define ZOFF_NCCL_CUT_H

#include <stddef.h>

enum {
    ZOFF_NCCL_ROUND = 4 << 20, /* bytes that a rank stages in a round, for all others together */
    ZOFF_NCCL_CUT_ALIGN = 64 << 10,
    ZOFF_NCCL_CUT_LEAST = 512 /* then a round grows with the ranks: from 8,192 on */
};

/* The same on all ranks: it depends on their number alone. */
static inline size_t zoff_nccl_cut(unsigned ranks)
{
    const size_t share = (size_t)ZOFF_NCCL_ROUND / ranks;
    const size_t align = share < ZOFF_NCCL_CUT_ALIGN ? ZOFF_NCCL_CUT_LEAST : ZOFF_NCCL_CUT_ALIGN;
    return share < ZOFF_NCCL_CUT_LEAST ? (size_t)ZOFF_NCCL_CUT_LEAST : share / align * align;
}

#endif
