/* swap_drive.c: flushes of a drive, and a record in doubt that is erased before what it names is overwritten. */
#include "swap_priv.h"

#include "try.h"

#include <errno.h>
#include <unistd.h>

zoff_status zoff_offload_swap_drive_flush(const zoff_swap_store *s, const zoff_swap_file *file)
{
    if (!s->power_safe)
        return ZOFF_OK;
    ZOFF_FAIL_IF(fdatasync(file->lock) != 0, ZOFF_ERR_IO,
                 "cannot flush '%s' to the drive: %s; the drive may have lost what was written since the last flush",
                 file->name, zoff_base_status_errno(errno));
    return ZOFF_OK;
}

/* The places that a record in doubt names are those that will be written next: a process that died then would leave a record
 * of things that are not there. */
zoff_status zoff_offload_swap_drive_take_back(zoff_swap_store *s)
{
    for (size_t i = 0; s->record.in_doubt && i < s->file_count; i++) {
        ZOFF_TRY(zoff_offload_swap_record_take_back(s->files[i].aio, s->record.generation + 1));
        ZOFF_TRY(zoff_offload_swap_drive_flush(s, &s->files[i]));
    }
    s->record.in_doubt = false;
    return ZOFF_OK;
}

/* Bytes into all files by all runs. */
uint64_t zoff_offload_swap_drive_lifetime(const zoff_swap_store *s)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < s->file_count; i++)
        sum += s->files[i].write_bytes;
    return sum;
}
