/* swap_record_priv.h: what a persistent state file says of itself. Private to the offload room.
 *
 *      0         4 KiB     8 KiB
 *      | head 0  | head 1  | table 0 | table 1 | chunk: slot 0, slot 1 | chunk: slot 0, slot 1 | ...
 *
 * Generation g is described by head g & 1 and table g & 1, so that the record of generation g - 1 stays whole while that of g
 * is written. A head counts when its own checksum and that of its table hold: a record that was torn while it was written is
 * none. All numbers are little-endian, as the machines are that this library runs on. */
#ifndef ZOFF_OFFLOAD_SWAP_RECORD_PRIV_H
#define ZOFF_OFFLOAD_SWAP_RECORD_PRIV_H

#include "map.h"
#include "offload.h"

#include <zoff/aio.h>

enum {
    ZOFF_RECORD_HEAD_BYTES = 4096,
    ZOFF_RECORD_VERSION = 3,
};

/* Identifies the states in a file: whose they are, and which part. */
typedef struct zoff_swap_identity {
    uint64_t layout; /* of the model and of how it was cut into chunks */
    uint64_t limit_bytes, limit_elements;
    uint64_t chunk_count; /* in all files */
    uint32_t rank, ranks;
    uint32_t file, files;
} zoff_swap_identity;

/* One array of a chunk. */
typedef struct zoff_swap_entry_array {
    uint64_t end; /* in the chunk, in bytes; it begins where the one before it ends */
    uint64_t checksum;
    uint32_t slot, flags;
} zoff_swap_entry_array;

/* One chunk in a table. */
typedef struct zoff_swap_entry {
    uint64_t chunk, offset;
    uint64_t first_bytes; /* of its fresh arrays: what is behind them was never filled, and reads as zeros */
    zoff_swap_entry_array arrays[ZOFF_STORE_ARRAYS];
} zoff_swap_entry;

enum { ZOFF_ENTRY_FRESH = 1, ZOFF_ENTRY_HAS_CHECKSUM = 2 };

enum { ZOFF_HEAD_STEPPED = 1 }; /* a step was recorded at some time, whatever `t` is now */

typedef struct zoff_swap_head {
    char magic[8];
    uint32_t version, entry_bytes;
    uint64_t generation;
    int64_t t; /* the step after which the states are so */
    uint64_t flags;
    zoff_swap_identity identity;
    uint64_t entry_count, table_room; /* bytes of one table, padded */
    uint64_t file_bytes;
    uint64_t write_bytes; /* into this file, by all runs */
    uint64_t table_checksum;
    uint64_t checksum; /* of all before it */
} zoff_swap_head;

/* The two records of a file as they were found. */
typedef struct zoff_swap_found {
    bool is_blank;    /* nothing was ever written to either head */
    bool is_whole[2]; /* head and table hold */
    bool has_head[2]; /* the head holds */
    bool is_empty[2]; /* the head is zeros */
    bool is_taken_back[2];
    uint32_t other_version; /* of a head that another version of the library wrote; 0: none */
    zoff_swap_head heads[2];
    zoff_swap_entry *tables[2]; /* of those that are whole; on the heap */
} zoff_swap_found;

/* Bytes in front of the first chunk of a file with so many of them. */
uint64_t zoff_offload_swap_record_room(size_t entries);

/* Write a record; `head` needs generation, t, identity, entry_count, file_bytes and write_bytes.  @blocks until it is written
 */
zoff_status zoff_offload_swap_record_write(zoff_aio *aio, zoff_swap_head *head, const zoff_swap_entry *entries);

/* Make both records of a file with so many chunks blank: all bytes in front of the first chunk are written.  @blocks yes */
zoff_status zoff_offload_swap_record_clear(zoff_aio *aio, size_t entries);

/* Say in place of the record of a generation that there is none.  @blocks yes */
zoff_status zoff_offload_swap_record_take_back(zoff_aio *aio, uint64_t generation);

/* Read both. An error is one of reading; what does not hold is told in *out.  @owns out: zoff_offload_swap_record_free() */
zoff_status zoff_offload_swap_record_read(int fd, const char *name, zoff_swap_found *out);
void zoff_offload_swap_record_free(zoff_swap_found *found);

#endif
