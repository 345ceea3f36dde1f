/* swap_file_priv.h: one state file of the NVMe tier: its name, its lock, its head page, its end. Private to the offload room
 * (swap_life.c), one for each path and rank. */
#ifndef ZOFF_OFFLOAD_SWAP_FILE_PRIV_H
#define ZOFF_OFFLOAD_SWAP_FILE_PRIV_H

#include "aio.h"
#include "fork.h"

enum { ZOFF_SWAP_HEAD_BYTES = 4096 }; /* chunks start behind it */

typedef struct zoff_swap_file {
    char *name;             /* full path */
    int lock;               /* descriptor that holds the lock; -1: none */
    zoff_fork_guard *guard; /* of it: a child does not keep the lock */
    zoff_aio *aio;
    uint64_t bytes;
    size_t chunk_count;   /* in it */
    uint64_t write_bytes; /* of chunks; of a persistent file by all runs */
    bool keep;            /* do not remove it in the end */
} zoff_swap_file;

/* Remove what dead runs left in `folder`: state files that nobody holds locked. Says what it removed. On a file system that
 * other hosts may share only files of this boot of this host count: locks of others may not be seen here. The rest is named in
 * a warning. */
void zoff_offload_swap_file_clean(const char *folder);

/* Create and lock a file that lives as long as its engine, open its queue, and take its name away: the file ends with the
 * process, however that ends. The name was zoff-<host>-<pid>-<random>-r<rank>.swap; the file is readable by its owner alone. */
zoff_status zoff_offload_swap_file_open(const char *folder, unsigned rank, const zoff_aio_opts *aio, zoff_swap_file *out);

/* Open or create, and lock, the file that persists: zoff-r<rank>.states.
 * @return ERR_STATE when another engine has it */
zoff_status zoff_offload_swap_file_open_kept(const char *folder, unsigned rank, const zoff_aio_opts *aio, zoff_swap_file *out);

/* Open that file for reading, if it is there: a descriptor and its name, which is the caller's; or -1. */
int zoff_offload_swap_file_peek(const char *folder, unsigned rank, char **out_name);

/* Reserve file->bytes. */
zoff_status zoff_offload_swap_file_reserve(zoff_swap_file *file);

/* Write the head page of a file that does not persist. */
zoff_status zoff_offload_swap_file_write_head(zoff_swap_file *file, unsigned rank);

/* Close, and remove it unless it is to be kept. A zeroed struct with lock -1 is allowed. False: a transfer does not end; then
 * descriptors and lock stay as they are, so that no other engine uses the file, and memory that was transferred must stay. */
bool zoff_offload_swap_file_close(zoff_swap_file *file);

#endif
