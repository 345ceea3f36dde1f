/* SPDX-License-Identifier: Apache-2.0 */
/* latest.c: the file `latest`, which names the newest complete checkpoint of a folder for people and scripts: its first line.
 * The second line is a checksum of the name, because one wrong bit can make the name of another checkpoint. */
#include "archive_priv.h"

#include "digest.h"
#include "try.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char LATEST[] = ZOFF_ARCHIVE_LATEST;

enum { TEXT_MOST = ZOFF_ARCHIVE_NAME_MOST + 1 + 16 + 1 };

static void print(const char *name, char text[TEXT_MOST + 1])
{
    snprintf(text, TEXT_MOST + 1, "%.255s\n%016" PRIx64 "\n", name, zoff_digest_blocks_small(name, strlen(name)));
}

/* The new file begins in the folder of the checkpoint, so that it goes with that folder if its writer is killed. */
zoff_status zoff_archive_latest_write(const char *folder, const char *name, const zoff_archive_manifest *m)
{
    char text[TEXT_MOST + 1], early[4096], path[4096];
    print(name, text);
    ZOFF_TRY(zoff_archive_folder_join(folder, LATEST, path));
    ZOFF_FAIL_IF(snprintf(early, sizeof early, "%s/%s/.%s.%s.new", folder, name, LATEST, m->id) >= (int)sizeof early,
                 ZOFF_ERR_INVALID, "the path '%.100s...' is too long", folder);
    ZOFF_TRY(zoff_archive_folder_write_file(early, path, text, strlen(text)));
    return zoff_archive_folder_flush(folder);
}

zoff_status zoff_archive_latest_read(const char *folder, char out[ZOFF_ARCHIVE_NAME_MOST + 1])
{
    char *text, wanted[TEXT_MOST + 1] = "", name[ZOFF_ARCHIVE_NAME_MOST + 1];
    size_t bytes;
    ZOFF_TRY(zoff_archive_folder_read_file(folder, LATEST, TEXT_MOST, &text, &bytes));
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "\n"), text);
    print(name, wanted);
    const bool holds = strlen(wanted) == bytes && memcmp(wanted, text, bytes) == 0;
    zoff_base_mem_free(text);
    if (!holds || zoff_archive_folder_check_name(LATEST, name) < 0)
        return zoff_base_status_fail(ZOFF_ERR_CORRUPT, "'%s/%s' is damaged or was changed", folder, LATEST);
    strcpy(out, name);
    return ZOFF_OK;
}
