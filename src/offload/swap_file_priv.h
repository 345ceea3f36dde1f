/* swap_file_priv.h: one state file of the NVMe tier: its name, its lock, its head page, its end. Private to the offload room
 * (swap.c), one for each path and rank. */
#ifndef ZOFF_OFFLOAD_SWAP_FILE_PRIV_H
#define ZOFF_OFFLOAD_SWAP_FILE_PRIV_H

#include <zoff/aio.h>

enum { ZOFF_SWAP_HEAD_BYTES = 4096 }; /* chunks start behind it */

typedef struct zoff_swap_file {
    char *name; /* full path */
    int lock;   /* descriptor that holds the lock; -1: none */
    zoff_aio *aio;
    uint64_t bytes;
} zoff_swap_file;

/* Remove what dead runs left in `folder`: state files that nobody holds locked. Says what it removed. */
void zoff_offload_swap_file_clean(const char *folder);

/* Create, lock, reserve `bytes`, write the head page.
 * The name is zoff-<host>-<pid>-<random>-r<rank>.swap; the file is readable by its owner alone. */
zoff_status zoff_offload_swap_file_open(const char *folder, unsigned rank, uint64_t bytes, const zoff_aio_opts *aio,
                                        zoff_swap_file *out);

/* Close and remove. A zeroed struct with lock -1 is allowed. */
void zoff_offload_swap_file_close(zoff_swap_file *file);

#endif
