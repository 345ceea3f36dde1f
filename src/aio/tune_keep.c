/* SPDX-License-Identifier: Apache-2.0 */
/* tune_keep.c: results as JSON, and the file in the folder that stores the last one. A stored result is used only if all of it
 * is valid and was measured in this place. A damaged, foreign or old file leads to a new measurement. */
#include "tune_priv.h"

#include "bits.h"
#include "files.h"
#include "log.h"
#include "mem.h"
#include "try.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEXT_BYTES = 1024, FILE_MOST = 65536 };

#define RATE_MOST 1000000000000000

/* Keys that begin with "_" are remarks for readers of configurations. */
static size_t print(const zoff_aio_tune_result *result, char *dst, size_t dst_bytes)
{
    int length = snprintf(dst, dst_bytes,
                          "{\n"
                          "  \"aio\": {\"block_size\": %zu, \"queue_depth\": %u},\n"
                          "  \"_measured\": {\n"
                          "    \"read_bytes_per_second\": %.0f,\n"
                          "    \"write_bytes_per_second\": %.0f,\n"
                          "    \"mixed_bytes_per_second\": %.0f,\n"
                          "    \"back_end\": \"%s\",\n"
                          "    \"direct\": %s,\n"
                          "    \"registered\": %s,\n"
                          "    \"file_system\": \"%s\",\n"
                          "    \"device\": %llu,\n"
                          "    \"milliseconds\": %.0f,\n"
                          "    \"zoff_version\": %u\n"
                          "  }\n"
                          "}\n",
                          result->block_bytes, result->depth, result->read_rate, result->write_rate, result->mixed_rate,
                          result->backend, result->direct ? "true" : "false", result->registered ? "true" : "false",
                          result->file_system, (unsigned long long)result->device, result->seconds * 1e3, zoff_version());
    return length > 0 ? (size_t)length : 0;
}

zoff_status zoff_aio_tune_print(const zoff_aio_tune_result *result, char *dst, size_t dst_bytes, size_t *out_bytes)
{
    ZOFF_FAIL_IF(!result || (!dst && dst_bytes), ZOFF_ERR_INVALID, "zoff_aio_tune_print: %s is NULL",
                 result ? "dst" : "the result");
    ZOFF_FAIL_IF(result->struct_size < sizeof *result || !result->backend, ZOFF_ERR_INVALID,
                 "zoff_aio_tune_print: this is not a result of zoff_aio_tune()");
    size_t bytes = print(result, dst, dst_bytes);
    if (out_bytes)
        *out_bytes = bytes;
    return ZOFF_OK;
}

static bool is_in(json_int_t least, json_int_t number, json_int_t most)
{
    return number >= least && number <= most;
}

static bool read_result(json_t *root, zoff_aio_tune_result *io)
{
    json_int_t block, depth, read, write, mixed, device, milliseconds, version;
    const char *backend, *file_system;
    int direct, registered;
    if (json_unpack(root, "{s:{s:I, s:I}, s:{s:I, s:I, s:I, s:s, s:b, s:b, s:s, s:I, s:I, s:I}}", "aio", "block_size", &block,
                    "queue_depth", &depth, "_measured", "read_bytes_per_second", &read, "write_bytes_per_second", &write,
                    "mixed_bytes_per_second", &mixed, "back_end", &backend, "direct", &direct, "registered", &registered,
                    "file_system", &file_system, "device", &device, "milliseconds", &milliseconds, "zoff_version",
                    &version) != 0)
        return false;
    if (version != zoff_version() || strcmp(backend, io->backend) != 0 || direct != io->direct ||
        strcmp(file_system, io->file_system) != 0 || (uint64_t)device != io->device)
        return false;
    if (!is_in(4096, block, ZOFF_AIO_TUNE_BLOCK_MOST) || !is_in(1, depth, ZOFF_AIO_TUNE_DEPTH_MOST) ||
        !is_in(1, read, RATE_MOST) || !is_in(1, write, RATE_MOST) || !is_in(1, mixed, RATE_MOST) ||
        !is_in(0, milliseconds, RATE_MOST))
        return false;
    io->block_bytes = (size_t)block;
    io->depth = (unsigned)depth;
    io->read_rate = (double)read;
    io->write_rate = (double)write;
    io->mixed_rate = (double)mixed;
    io->seconds = (double)milliseconds * 1e-3;
    io->registered = registered;
    io->cached = true;
    return true;
}

static zoff_status join(const char *folder, const char *name, char **out)
{
    size_t bytes = strlen(folder) + strlen(name) + 2;
    ZOFF_TRY(zoff_base_mem_alloc(bytes, 1, "a path", out));
    snprintf(*out, bytes, "%s/%s", folder, name);
    return ZOFF_OK;
}

bool zoff_aio_tune_keep_load(const char *folder, zoff_aio_tune_result *io)
{
    char *path;
    struct stat st;
    if (join(folder, ZOFF_AIO_TUNE_FILE, &path) < 0)
        return false;
    /* Do not block, because the name may be that of a pipe. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    zoff_base_mem_free(path);
    if (fd < 0)
        return false;
    json_t *root = NULL;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= FILE_MOST)
        root = json_loadfd(fd, JSON_REJECT_DUPLICATES, NULL);
    bool found = read_result(root, io);
    json_decref(root);
    close(fd);
    return found;
}

/* Write under another name first, so that nobody ever reads half of it.  @return 0, or an errno */
static int replace(const char *path, char *temporary, const char *text, size_t bytes)
{
    int fd = mkostemp(temporary, O_CLOEXEC); /* mode 0600 */
    if (fd < 0)
        return errno;
    ssize_t ret = zoff_base_files_fits(bytes) ? write(fd, text, bytes) : -1;
    int error = ret == (ssize_t)bytes ? 0 : ret < 0 ? errno : ENOSPC;
    if (close(fd) != 0 && !error)
        error = errno;
    if (!error && rename(temporary, path) != 0)
        error = errno;
    if (error)
        unlink(temporary);
    return error;
}

void zoff_aio_tune_keep_store(const char *folder, const zoff_aio_tune_result *result)
{
    char text[TEXT_BYTES], *path = NULL, *temporary = NULL;
    int error = ENOMEM;
    if (join(folder, ZOFF_AIO_TUNE_FILE, &path) == ZOFF_OK && join(folder, ZOFF_AIO_TUNE_FILE ".XXXXXX", &temporary) == ZOFF_OK)
        error = replace(path, temporary, text, zoff_base_bits_min(print(result, text, sizeof text), sizeof text - 1));
    if (error)
        ZOFF_WARN("cannot keep '%s/" ZOFF_AIO_TUNE_FILE "': %s; the folder will be measured again the next time", folder,
                  zoff_base_status_errno(error));
    zoff_base_mem_free(temporary);
    zoff_base_mem_free(path);
}
