/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c: the page cache, used when O_DIRECT is refused. Pages are dropped after their transfer: the memory belongs to the
 * run, and no block is needed twice in a row.
 *
 * Pages are dropped a little later, for two reasons. Written pages are dirty, and for a dirty page the advice to drop it only
 * starts its writing. So writing starts when the piece completes, and is waited for before the drop. Pages that were read ahead
 * lie in large folios, and a folio is not dropped while a part of it is outside the range. On a disk that is slower than the
 * run, the run waits here, as it would with O_DIRECT.
 *
 * No advice about reading ahead is given: the kernel's own is the best. On one machine, pieces of 1 MiB by pread gave 1.4 to
 * 1.6 GB/s without advice, at 0.2 CPU seconds per GB. WILLNEED for each piece gave 1.0 to 1.1 GB/s (0.7), RANDOM 0.6 GB/s
 * (0.7), because both make small pages. */
#include "file_priv.h"

#include "bits.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum {
    FOLIO_MOST = 2 << 20, /* most bytes that the kernel keeps and drops as one */
    INTERRUPTIONS = 100   /* most EINTR in a row that are accepted */
};

/* The kernel reports a failed write once, and drops its bytes: so the error must be stored. Other errors come from file systems
 * that do not support the call. */
static void sync_range(zoff_aio_file *file, zoff_aio_range range, unsigned how)
{
    int ret = -1;
    errno = EINTR;
    for (unsigned i = 0; ret != 0 && errno == EINTR && i < INTERRUPTIONS; i++)
        ret = sync_file_range(file->fd, (off_t)range.offset, (off_t)range.bytes, how);
    if (ret != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT) && !file->late_error) {
        file->late_error = errno;
        file->late_range = range;
    }
}

static void drop_oldest(zoff_aio_file *file)
{
    zoff_aio_range range = file->behind[file->behind_first];
    uint64_t from = range.offset / FOLIO_MOST * FOLIO_MOST;
    file->behind_first = (file->behind_first + 1) % ZOFF_AIO_BEHIND_RANGES;
    file->behind_count--;
    file->behind_bytes -= range.bytes;
    sync_range(file, range, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    /* This is advice, so the kernel decides what to do with it. */
    (void)posix_fadvise(file->fd, (off_t)from,
                        (off_t)zoff_base_bits_align((size_t)(range.offset + range.bytes - from), FOLIO_MOST),
                        POSIX_FADV_DONTNEED);
}

/* Remember a range. If it continues the last one, join the two. */
static void remember(zoff_aio_file *file, uint64_t offset, uint64_t bytes)
{
    zoff_aio_range *last = NULL;
    if (file->behind_count)
        last = &file->behind[(file->behind_first + file->behind_count - 1) % ZOFF_AIO_BEHIND_RANGES];
    if (last && last->offset + last->bytes == offset && last->bytes + bytes <= ZOFF_AIO_BEHIND_BYTES / 4) {
        last->bytes += bytes;
    } else {
        if (file->behind_count == ZOFF_AIO_BEHIND_RANGES)
            drop_oldest(file);
        file->behind[(file->behind_first + file->behind_count++) % ZOFF_AIO_BEHIND_RANGES] = (zoff_aio_range){offset, bytes};
    }
    file->behind_bytes += bytes;
}

void zoff_aio_cache_moved(zoff_aio_file *file, bool writes, uint64_t offset, size_t bytes)
{
    if (!file->drops_cache)
        return;
    if (writes)
        sync_range(file, (zoff_aio_range){offset, bytes}, SYNC_FILE_RANGE_WRITE);
    remember(file, offset, bytes);
    while (file->behind_bytes > ZOFF_AIO_BEHIND_BYTES)
        drop_oldest(file);
}

void zoff_aio_cache_finish(zoff_aio_file *file)
{
    while (file->behind_count)
        drop_oldest(file);
}
