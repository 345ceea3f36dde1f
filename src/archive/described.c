/* SPDX-License-Identifier: Apache-2.0 */
/* described.c: the content of the description beside a state file: the bytes of the next part (u64), the parameters as in a
 * manifest, and a table as in the file of a checkpoint. The table has a region for each chunk of a rank, in the order of their
 * numbers; one of 0 bytes has no states. Its `offset` is the sum of the bytes before it. It has no units and no checksums,
 * because the records of a state file have those. Pieces are in the order of regions and kinds, so that a reader finds those of
 * an array without an index. */
#include "archive.h"

#include "try.h"

#include <string.h>

zoff_status zoff_archive_described_write(const zoff_archive_manifest *m, const zoff_archive_table *t, char **out,
                                         size_t *out_bytes)
{
    char *params;
    size_t bytes;
    ZOFF_TRY(zoff_archive_manifest_print_params(m, &params, &bytes));
    const uint64_t number = bytes;
    const size_t all = sizeof number + bytes + zoff_archive_table_bytes(t);
    const zoff_status status = zoff_base_mem_alloc(all, 1, "the description of states", out);
    if (status == ZOFF_OK) {
        memcpy(*out, &number, sizeof number);
        memcpy(*out + sizeof number, params, bytes);
        zoff_archive_table_write(t, *out + sizeof number + bytes);
        *out_bytes = all;
    }
    zoff_base_mem_free(params);
    return status;
}

zoff_status zoff_archive_described_read(const char *where, const char *src, size_t bytes, zoff_archive_manifest *m,
                                        zoff_archive_table *out)
{
    uint64_t number = 0;
    if (bytes >= sizeof number)
        memcpy(&number, src, sizeof number);
    ZOFF_FAIL_IF(bytes < sizeof number || number > bytes - sizeof number, ZOFF_ERR_CORRUPT, "'%s' is shorter than it says",
                 where);
    src += sizeof number;
    const zoff_status status = m ? zoff_archive_manifest_read_params(src, (size_t)number, m) : ZOFF_OK;
    if (status < 0)
        return zoff_base_status_prefix(status, "'%s': ", where);
    return zoff_archive_table_read(where, src + number, bytes - sizeof number - (size_t)number, 0, out);
}
