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

#define RATE_MOST 1e15

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

static bool get_integer(const json_t *object, const char *key, double least, double most, double *out)
{
    const json_t *value = json_object_get(object, key);
    *out = json_is_integer(value) ? (double)json_integer_value(value) : -1;
    return *out >= least && *out <= most;
}

static bool has_text(const json_t *object, const char *key, const char *wanted)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text && strcmp(text, wanted) == 0;
}

static bool has_flag(const json_t *object, const char *key, bool wanted)
{
    const json_t *value = json_object_get(object, key);
    return wanted ? json_is_true(value) : json_is_false(value);
}

static bool read_result(const json_t *root, zoff_aio_tune_result *io)
{
    const json_t *aio = json_object_get(root, "aio"), *measured = json_object_get(root, "_measured");
    double block, depth, version, milliseconds;
    zoff_aio_tune_result found = *io;
    bool ours = get_integer(measured, "zoff_version", zoff_version(), zoff_version(), &version) &&
                has_text(measured, "back_end", io->backend) && has_flag(measured, "direct", io->direct) &&
                has_text(measured, "file_system", io->file_system) &&
                (uint64_t)json_integer_value(json_object_get(measured, "device")) == io->device;
    bool whole = get_integer(aio, "block_size", 4096, ZOFF_AIO_TUNE_BLOCK_MOST, &block) &&
                 get_integer(aio, "queue_depth", 1, ZOFF_AIO_TUNE_DEPTH_MOST, &depth) &&
                 get_integer(measured, "read_bytes_per_second", 1, RATE_MOST, &found.read_rate) &&
                 get_integer(measured, "write_bytes_per_second", 1, RATE_MOST, &found.write_rate) &&
                 get_integer(measured, "mixed_bytes_per_second", 1, RATE_MOST, &found.mixed_rate) &&
                 get_integer(measured, "milliseconds", 0, RATE_MOST, &milliseconds) &&
                 json_is_boolean(json_object_get(measured, "registered"));
    if (!ours || !whole)
        return false;
    found.block_bytes = (size_t)block;
    found.depth = (unsigned)depth;
    found.seconds = milliseconds * 1e-3;
    found.registered = json_is_true(json_object_get(measured, "registered"));
    found.cached = true;
    *io = found;
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
    /* Do not block: the name may be that of a pipe. */
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
