/* swap_drive.c: flush a drive, and erase a record in doubt before the bytes that it names are overwritten. */
#include "swap_priv.h"

#include "try.h"

#include <errno.h>
#include <unistd.h>

zoff_status zoff_offload_swap_drive_flush(const zoff_swap_store *s, const zoff_swap_file *file)
{
    if (!s->record.power_safe)
        return ZOFF_OK;
    ZOFF_FAIL_IF(fdatasync(file->lock) != 0, ZOFF_ERR_IO,
                 "cannot flush '%s' to the drive: %s; the drive may have lost what was written since the last flush",
                 file->name, zoff_base_status_errno(errno));
    return ZOFF_OK;
}

/* Erase a record in doubt. The next writes go to the places that it names. If the process died then, the record would name
 * bytes that are not there. */
zoff_status zoff_offload_swap_drive_take_back(zoff_swap_store *s)
{
    for (size_t i = 0; s->record.in_doubt && i < s->file_count; i++) {
        ZOFF_TRY(zoff_offload_swap_record_take_back(s->files[i].aio, s->record.generation + 1));
        ZOFF_TRY(zoff_offload_swap_drive_flush(s, &s->files[i]));
    }
    s->record.in_doubt = false;
    return ZOFF_OK;
}

/* Bytes that all runs have written to all files. */
uint64_t zoff_offload_swap_drive_lifetime(const zoff_swap_store *s)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < s->file_count; i++)
        sum += s->files[i].write_bytes;
    return sum;
}
