/* publish.c: how a checkpoint gets its identity and its name, and how it becomes complete. */
#include "archive.h"

#include "try.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

zoff_status zoff_archive_publish_id(char out[ZOFF_ARCHIVE_ID_BYTES])
{
    uint64_t id;
    ZOFF_FAIL_IF(getrandom(&id, sizeof id, 0) != sizeof id, ZOFF_ERR_IO, "the system gives no random number");
    snprintf(out, ZOFF_ARCHIVE_ID_BYTES, "%016" PRIx64, id);
    return ZOFF_OK;
}

zoff_status zoff_archive_publish_name(const zoff_checkpoint_opts *opts, int64_t t, char out[ZOFF_ARCHIVE_NAME_MOST + 1])
{
    if (opts->label)
        ZOFF_TRY(zoff_archive_folder_check_name("zoff_checkpoint_opts.label", opts->label));
    if (opts->name) {
        ZOFF_TRY(zoff_archive_folder_check_name("zoff_checkpoint_opts.name", opts->name));
        ZOFF_FAIL_IF(strcmp(opts->name, "latest") == 0, ZOFF_ERR_INVALID,
                     "zoff_checkpoint_opts.name is \"latest\", which is the name of the file beside the checkpoints");
        snprintf(out, ZOFF_ARCHIVE_NAME_MOST + 1, "%s", opts->name);
    } else {
        snprintf(out, ZOFF_ARCHIVE_NAME_MOST + 1, "step-%010" PRId64, t);
    }
    return ZOFF_OK;
}

zoff_status zoff_archive_publish_manifest(const char *folder, const char *name, const zoff_archive_manifest *m, unsigned keep)
{
    char path[4096], file[512], *text;
    size_t bytes;
    ZOFF_FAIL_IF(snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path, ZOFF_ERR_INVALID,
                 "the path '%.100s...' is too long", folder);
    ZOFF_TRY(zoff_archive_manifest_print(m, &text, &bytes));
    zoff_archive_folder_manifest_name(m->label, file);
    /* The files must have their names on the disk before a manifest names them. */
    zoff_status status = zoff_archive_folder_flush(path);
    if (status == ZOFF_OK)
        status = zoff_archive_folder_flush(folder);
    if (status == ZOFF_OK)
        status = zoff_archive_folder_write_file(path, file, text, bytes);
    zoff_base_mem_free(text);
    ZOFF_TRY(status);
    return zoff_archive_choose_publish(folder, name, m, keep);
}
