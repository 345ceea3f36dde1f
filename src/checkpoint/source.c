/* SPDX-License-Identifier: Apache-2.0 */
/* source.c: reads the bytes of a region from where they are: DRAM, a state file, or the weights of pieces. */
#include "checkpoint_priv.h"

#include "bits.h"
#include "digest.h"
#include "try.h"

#include <errno.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const zoff_archive_region *region_of(const zoff_saver *s, const zoff_save_source *source)
{
    return &s->part.table.regions[source->region];
}

/* The first piece of a chunk whose bytes end after `byte` of the chunk's region of weights. */
static size_t piece_at(const zoff_saver *s, const zoff_plan_chunk *c, uint64_t byte)
{
    size_t low = c->first_piece, high = c->first_piece + c->piece_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (s->weights_at[middle] + s->weights_bytes[middle] <= byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Copy the weights of pieces that lie in bytes [from, from + bytes) of the chunk's region. */
static void copy_pieces(const zoff_saver *s, const zoff_save_source *source, char *weights, uint64_t from, size_t bytes,
                        char *dst)
{
    const zoff_plan *plan = s->view.plan;
    const zoff_plan_chunk *c = &plan->chunks[source->chunk];
    const size_t last = c->first_piece + c->piece_count;
    memset(dst, 0, bytes);
    for (size_t i = piece_at(s, c, from); i < last && s->weights_at[i] < from + bytes; i++) {
        const uint64_t at = s->weights_at[i], begin = zoff_base_bits_max(at, from);
        const uint64_t end = zoff_base_bits_min(at + s->weights_bytes[i], from + bytes);
        if (begin >= end)
            continue;
        const char *value = zoff_model_params_value(s->view.model, &plan->pieces[i], weights);
        memcpy(dst + (begin - from), value + (begin - at), end - begin);
    }
}

void zoff_checkpoint_source_copy(const zoff_saver *s, const zoff_save_source *source, zoff_chunk_memory memory, uint64_t from,
                                 size_t bytes, char *dst)
{
    if (source->array == ZOFF_STORE_ARRAYS)
        copy_pieces(s, source, memory.weights, from, bytes, dst);
    else
        memcpy(dst, memory.states + source->begin + from, bytes);
}

/* Complete the bytes: those behind the file's are zero. Compare all with the checksum of the state file. */
static zoff_status complete(const zoff_store_source *f, size_t chunk, char *bytes, unsigned threads)
{
    memset(bytes + f->written, 0, f->bytes - f->written);
    ZOFF_FAIL_IF(f->has_checksum && zoff_digest_blocks_whole(bytes, f->bytes, threads) != f->checksum, ZOFF_ERR_CORRUPT,
                 "chunk %zu of a state file is not what was written: its checksum does not hold at offset %llu. The checkpoint "
                 "is not saved",
                 chunk, (unsigned long long)f->offset);
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_source_check(const zoff_save_source *source, char *bytes, unsigned threads)
{
    return complete(&source->file, source->chunk, bytes, threads);
}

/* The descriptor of a state file may need the alignment of O_DIRECT, which buffers and arrays have. */
zoff_status zoff_checkpoint_source_file(const zoff_store_source *f, size_t chunk, char *dst)
{
    for (size_t done = 0; done < f->written;) {
        const ssize_t got = pread(f->fd, dst + done, f->written - done, (off_t)(f->offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        ZOFF_FAIL_IF(got <= 0, ZOFF_ERR_IO, "cannot read a state file at offset %llu for the checkpoint: %s",
                     (unsigned long long)(f->offset + done), got < 0 ? zoff_base_status_errno(errno) : "it ends there");
        done += (size_t)got;
    }
    return complete(f, chunk, dst, 1);
}

void zoff_checkpoint_source_read(const zoff_saver *s, const zoff_save_source *source, size_t unit, char *dst)
{
    const zoff_archive_region *r = region_of(s, source);
    const uint64_t from = unit * r->unit;
    if (source->place == ZOFF_SAVE_PIECES)
        copy_pieces(s, source, (char *)(uintptr_t)source->memory, from, zoff_archive_table_unit_bytes(r, unit), dst);
    else
        memcpy(dst, source->memory + from, zoff_archive_table_unit_bytes(r, unit));
}

bool zoff_checkpoint_source_share(const zoff_store_source *f, int fd, uint64_t offset)
{
    struct file_clone_range range = {.src_fd = f->fd, .src_offset = f->offset, .src_length = f->written, .dest_offset = offset};
    return f->written == 0 || ioctl(fd, FICLONERANGE, &range) == 0;
}

/* Share only arrays whose checksum is known, because it must not be computed from bytes that nobody has compared. */
bool zoff_checkpoint_source_clone(const zoff_saver *s, const zoff_save_source *source)
{
    return source->place == ZOFF_SAVE_FILE && source->file.has_checksum &&
           zoff_checkpoint_source_share(&source->file, s->part.fd, region_of(s, source)->offset);
}
