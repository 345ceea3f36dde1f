/* SPDX-License-Identifier: Apache-2.0 */
/* swap_file_priv.h: one state file of the NVMe tier: its name, its lock, its head page, its end. Private to the offload room
 * (swap_life.c). There is one for each path and rank. */
#ifndef ZOFF_OFFLOAD_SWAP_FILE_PRIV_H
#define ZOFF_OFFLOAD_SWAP_FILE_PRIV_H

#include "aio.h"
#include "fork.h"
#include "offload.h"
#include "swap_record_priv.h"

enum { ZOFF_SWAP_HEAD_BYTES = 4096 }; /* chunks start behind it */

typedef struct zoff_swap_file {
    char *name;             /* full path */
    int lock;               /* descriptor that holds the lock; -1: none */
    zoff_fork_guard *guard; /* guard of the lock, so that a child does not keep it */
    zoff_aio *aio;
    uint64_t bytes;
    size_t chunk_count;   /* chunks in this file */
    uint64_t write_bytes; /* bytes of chunks that were written; for a persistent file by all runs */
    bool keep;            /* the file stays at close */
    bool is_moved;        /* a warning has said that the persistent file does not lie at its name */
} zoff_swap_file;

/* Remove the files that dead runs left in `folder`: state files that nobody has locked. Log what was removed. On a file system
 * that other hosts may share, only files of this boot of this host count, because locks of others may be invisible here. A
 * warning names the rest. */
void zoff_offload_swap_file_clean(const char *folder);

/* Create and lock a file that lives as long as its engine, open its queue, and unlink it, so that the file ends with the
 * process, in any way. Its name was zoff-<host>-<pid>-<random>-r<rank>.swap, readable by its owner alone. */
zoff_status zoff_offload_swap_file_open(const char *folder, unsigned rank, const zoff_aio_opts *aio, zoff_swap_file *out);

/* Open or create the persistent file, zoff-r<rank>.states or zoff-p<part>-r<rank>.states, and lock it.
 * @return ERR_STATE: another engine has it */
zoff_status zoff_offload_swap_file_open_kept(const char *folder, zoff_store_owner owner, const zoff_aio_opts *aio,
                                             zoff_swap_file *out);

/* Open the persistent file for reading, if it exists.  @return a descriptor, and its name, which the caller frees; or -1 */
int zoff_offload_swap_file_peek(const char *folder, zoff_store_owner owner, char **out_name);

/* Whether a name without its folder is that of a persistent file. */
bool zoff_offload_swap_file_is_kept(const char *name);

/* Check that a persistent file still lies at its name.  @return ERR_IO: it was removed, or another lies there */
zoff_status zoff_offload_swap_file_check_name(zoff_swap_file *file);

/* Reserve file->bytes. */
zoff_status zoff_offload_swap_file_reserve(zoff_swap_file *file);

/* Write the head page of a file that does not persist. */
zoff_status zoff_offload_swap_file_write_head(zoff_swap_file *file, unsigned rank);

/* Close the file, and remove it unless `keep` is set. Accepts a zeroed struct with lock -1.  @return false: a transfer does not
 * end. Then descriptors and lock stay, so that no other engine uses the file, and memory of transfers must stay. */
bool zoff_offload_swap_file_close(zoff_swap_file *file);

/* ---- swap_layout.c: the description beside a persistent file ---- */

/* Flush the names in a folder to the drive; otherwise a power cut could remove one. Warns where it cannot. */
void zoff_offload_swap_layout_sync_folder(const char *folder);
/* Refuse a state file whose description has the former format. @return ERR_UNSUPPORTED */
zoff_status zoff_offload_swap_layout_check(const char *state_file);
/* Write the description of a state file: durable, and whole at any time. Does nothing if it is there already.
 * @return ERR_IO or ERR_NO_SPACE: an earlier one is unchanged */
zoff_status zoff_offload_swap_layout_write(const char *state_file, const zoff_swap_identity *id, const void *content,
                                           size_t bytes);
/* Read the description of a state file, and check that it is of these states.
 * @owns out: zoff_base_mem_free()  @return ERR_IO: there is none; ERR_CORRUPT; ERR_UNSUPPORTED: another version */
zoff_status zoff_offload_swap_layout_read(const char *state_file, const zoff_swap_identity *id, char **out, size_t *out_bytes);
void zoff_offload_swap_layout_remove(const char *state_file);

#endif
