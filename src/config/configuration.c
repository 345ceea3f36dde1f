/* SPDX-License-Identifier: Apache-2.0 */
/* configuration.c: the public calls on a configuration: open, parse, read, set, query and close. */
#include "config_priv.h"
#include "mem.h"
#include "try.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_LIMIT_MIB = 16 };
static const size_t FILE_LIMIT_BYTES = (size_t)FILE_LIMIT_MIB << 20;

/* ---- create and close ---- */

static zoff_status alloc_layers(zoff_config *config)
{
    zoff_config_cell **layers[] = {&config->defaults, &config->file, &config->api, &config->effective};
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++)
        ZOFF_TRY(zoff_base_mem_alloc(config->key_count, sizeof **layers[i], "a configuration", layers[i]));
    return ZOFF_OK;
}

static zoff_status fill_defaults(zoff_config *config)
{
    size_t count;
    const zoff_config_key *table = zoff_config_schema_table(&count);
    for (size_t i = 0; i < count; i++) {
        if (table[i].fallback)
            ZOFF_TRY(zoff_config_value_from_text(&table[i], table[i].fallback, (zoff_config_where){"default", table[i].path},
                                                 &config->defaults[i]));
    }
    return zoff_config_value_from_text(zoff_config_schema_find("zero_optimization.offload_optimizer.device"), "cpu",
                                       (zoff_config_where){"default", "cpu_offload"}, &config->cpu_device);
}

static zoff_status create(const char *name, zoff_config **out)
{
    zoff_config *config;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *config, "a configuration", &config));
    zoff_config_schema_table(&config->key_count);
    zoff_status status;
    ZOFF_TRY_OR(close_config, zoff_base_mem_copy_text(name, &config->name));
    ZOFF_TRY_OR(close_config, alloc_layers(config));
    ZOFF_TRY_OR(close_config, fill_defaults(config));
    *out = config;
    return ZOFF_OK;
close_config:
    zoff_config_close(config);
    return status;
}

static void free_layer(const zoff_config *config, zoff_config_cell *layer)
{
    for (size_t i = 0; layer && i < config->key_count; i++)
        zoff_config_value_free(&layer[i]);
    zoff_base_mem_free(layer);
}

void zoff_config_close(zoff_config *config)
{
    if (!config)
        return;
    free_layer(config, config->defaults);
    free_layer(config, config->file);
    free_layer(config, config->api);
    zoff_config_value_free(&config->cpu_device);
    zoff_base_mem_free(config->effective);
    zoff_base_mem_free(config->paths);
    zoff_base_mem_free(config->weight_paths);
    zoff_base_mem_free(config->name);
    zoff_base_mem_free(config);
}

/* ---- read ---- */

/* Replace the file layer, and the file's name for messages. If the text is refused, the old ones stay. */
static zoff_status read_text(zoff_config *config, const char *text, size_t bytes, const char *name)
{
    zoff_config_cell *old_file = config->file, *file = NULL;
    char *old_name = config->name, *copy = NULL, *new_name = NULL;
    zoff_status status;
    ZOFF_TRY_OR(leave, zoff_base_mem_copy_text(name, &new_name));
    ZOFF_TRY_OR(leave, zoff_base_mem_alloc(config->key_count, sizeof *file, "a configuration", &file));
    ZOFF_TRY_OR(leave, zoff_base_mem_alloc(bytes + 1, 1, "the text of a configuration", &copy));
    if (bytes)
        memcpy(copy, text, bytes);
    config->file = file;
    config->name = new_name;
    status = zoff_config_parse_text(config, copy, bytes);
    file = status < 0 ? file : old_file; /* from here on `file` and `new_name` are those to free */
    new_name = status < 0 ? new_name : old_name;
    config->file = status < 0 ? old_file : config->file;
    config->name = status < 0 ? old_name : config->name;
    config->is_resolved = config->is_resolved && status < 0;
    config->has_warned = config->has_warned && status < 0;
leave:
    free_layer(config, file);
    zoff_base_mem_free(new_name);
    zoff_base_mem_free(copy);
    return status;
}

/* Read until the end of the file, or until `limit_bytes`. */
static zoff_status read_all(int fd, const char *path, char *dst, size_t limit_bytes, size_t *out_bytes)
{
    size_t used = 0;
    while (used < limit_bytes) {
        ssize_t ret = read(fd, dst + used, limit_bytes - used);
        if (ret < 0 && errno == EINTR)
            continue;
        ZOFF_FAIL_IF(ret < 0, ZOFF_ERR_IO, "%s: cannot read this configuration: %s", path, zoff_base_status_errno(errno));
        if (ret == 0)
            break;
        used += (size_t)ret;
    }
    *out_bytes = used;
    return ZOFF_OK;
}

static zoff_status read_fd(zoff_config *config, int fd, const char *path)
{
    struct stat about;
    ZOFF_FAIL_IF(fstat(fd, &about) != 0, ZOFF_ERR_IO, "%s: cannot stat this configuration: %s", path,
                 zoff_base_status_errno(errno));
    ZOFF_FAIL_IF(!S_ISREG(about.st_mode), ZOFF_ERR_IO, "%s: %s, not a regular file; expected a JSON file", path,
                 S_ISDIR(about.st_mode) ? "this is a folder" : "this is a device or a pipe");
    /* One byte more than the file has shows whether the end was reached. Files in /proc report a size of 0. */
    size_t room =
        about.st_size > 0 && (size_t)about.st_size < FILE_LIMIT_BYTES ? (size_t)about.st_size + 1 : FILE_LIMIT_BYTES + 1;
    char *text;
    size_t bytes = 0;
    ZOFF_TRY(zoff_base_mem_alloc(room, 1, "the text of a configuration", &text));
    zoff_status status = read_all(fd, path, text, room, &bytes);
    if (status == ZOFF_OK && bytes > FILE_LIMIT_BYTES)
        status = zoff_base_status_fail(ZOFF_ERR_INVALID,
                                       "%s: larger than %d MiB, the limit for a configuration; expected a JSON file", path,
                                       FILE_LIMIT_MIB);
    if (status == ZOFF_OK)
        status = read_text(config, text, bytes, path);
    zoff_base_mem_free(text);
    return status;
}

static zoff_status read_path(zoff_config *config, const char *path)
{
    /* O_NONBLOCK: opening a pipe must not wait for a writer, because read_fd() refuses pipes. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ZOFF_FAIL_IF(fd < 0, ZOFF_ERR_IO, "%s: cannot open this configuration: %s", path, zoff_base_status_errno(errno));
    zoff_status status = read_fd(config, fd, path);
    close(fd);
    return status;
}

/* Give the configuration to the caller, or close it after an error. */
static zoff_status hand_out(zoff_config *config, zoff_status status, zoff_config **out)
{
    if (status < 0)
        zoff_config_close(config);
    else
        *out = config;
    return status;
}

zoff_status zoff_config_open(const char *path, zoff_config **out)
{
    ZOFF_FAIL_IF(!out, ZOFF_ERR_INVALID, "zoff_config_open: out must not be NULL");
    zoff_config *config;
    ZOFF_TRY(create(path ? path : "defaults", &config));
    return hand_out(config, path ? read_path(config, path) : read_text(config, "{}", 2, "defaults"), out);
}

zoff_status zoff_config_read(zoff_config *config, const char *path)
{
    ZOFF_FAIL_IF(!config || !path, ZOFF_ERR_INVALID, "zoff_config_read: config and path must not be NULL");
    return read_path(config, path);
}

zoff_status zoff_config_read_text(zoff_config *config, const char *text, size_t bytes, const char *name)
{
    ZOFF_FAIL_IF(!config || (!text && bytes), ZOFF_ERR_INVALID, "zoff_config_read_text: config and text must not be NULL");
    return read_text(config, text, bytes, name ? name : "configuration");
}

/* ---- set ---- */

static zoff_status find_key(const char *caller, const char *path, const zoff_config_key **out)
{
    ZOFF_FAIL_IF(!path, ZOFF_ERR_INVALID, "%s: key must not be NULL", caller);
    const zoff_config_key *row = zoff_config_schema_resolve(path);
    if (!row) {
        char section[256] = "";
        const char *dot = strrchr(path, '.');
        if (dot && (size_t)(dot - path) < sizeof section)
            memcpy(section, path, (size_t)(dot - path));
        const char *near = zoff_config_nearest_key(section, dot ? dot + 1 : path);
        return zoff_base_status_fail(ZOFF_ERR_INVALID,
                                     "api: %.200s: this key is not known; expected a key of docs/CONFIG.md%s%s%s", path,
                                     near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    }
    *out = row;
    return ZOFF_OK;
}

zoff_status zoff_config_set(zoff_config *config, const char *key, const char *value)
{
    ZOFF_FAIL_IF(!config || !value, ZOFF_ERR_INVALID, "zoff_config_set: config and value must not be NULL");
    const zoff_config_key *row = NULL;
    zoff_config_cell cell = {0};
    ZOFF_TRY(find_key("zoff_config_set", key, &row));
    ZOFF_FAIL_IF(row->type == ZOFF_KEY_SECTION && strcasecmp(value, "auto") != 0, ZOFF_ERR_INVALID,
                 "api: %s: this is a section; expected one of its keys, as in %s.%s", key, key, "key");
    ZOFF_TRY(zoff_config_value_from_text(row, value, (zoff_config_where){"api", key}, &cell));
    zoff_status status;
    if (!zoff_config_value_accepted(row, &cell)) {
        char words[640];
        zoff_config_value_refusal(row, &cell, words, sizeof words);
        status = zoff_base_status_fail(ZOFF_ERR_UNSUPPORTED, "api: %s: %s", key, words);
        goto free_cell;
    }
    ZOFF_TRY_OR(free_cell, zoff_config_value_set_source(&cell, "api"));
    zoff_config_cell *slot = &config->api[zoff_config_schema_index(row)];
    zoff_config_value_free(slot);
    *slot = cell;
    config->is_resolved = false;
    return ZOFF_OK;
free_cell:
    zoff_config_value_free(&cell);
    return status;
}

/* ---- read one value ---- */

static zoff_status find_resolved(const zoff_config *config, const char *caller, const char *path,
                                 const zoff_config_key **out_row, const zoff_config_cell **out_cell)
{
    ZOFF_FAIL_IF(!config, ZOFF_ERR_INVALID, "%s: config must not be NULL", caller);
    ZOFF_TRY(find_key(caller, path, out_row));
    ZOFF_FAIL_IF(!config->is_resolved, ZOFF_ERR_STATE, "%s: call zoff_config_resolve() first", caller);
    *out_cell = &config->effective[zoff_config_schema_index(*out_row)];
    return ZOFF_OK;
}

zoff_status zoff_config_number(const zoff_config *config, const char *key, double *out)
{
    const zoff_config_key *row = NULL;
    const zoff_config_cell *cell = NULL;
    ZOFF_FAIL_IF(!out, ZOFF_ERR_INVALID, "zoff_config_number: out must not be NULL");
    ZOFF_TRY(find_resolved(config, "zoff_config_number", key, &row, &cell));
    bool is_number = row->type == ZOFF_KEY_BOOL || row->type == ZOFF_KEY_INTEGER || row->type == ZOFF_KEY_NUMBER ||
                     row->type == ZOFF_KEY_BYTES;
    ZOFF_FAIL_IF(!is_number, ZOFF_ERR_INVALID, "api: %s: this is not a number", key);
    ZOFF_FAIL_IF(cell->kind < ZOFF_CELL_AUTO, ZOFF_ERR_INVALID, "api: %s: this is not set", key);
    *out = cell->kind == ZOFF_CELL_VALUE ? cell->number : 0; /* "auto" is 0: the engine chooses */
    return ZOFF_OK;
}

zoff_status zoff_config_string(const zoff_config *config, const char *key, const char **out)
{
    const zoff_config_key *row = NULL;
    const zoff_config_cell *cell = NULL;
    ZOFF_FAIL_IF(!out, ZOFF_ERR_INVALID, "zoff_config_string: out must not be NULL");
    ZOFF_TRY(find_resolved(config, "zoff_config_string", key, &row, &cell));
    ZOFF_FAIL_IF(row->type != ZOFF_KEY_CHOICE && row->type != ZOFF_KEY_TEXTS, ZOFF_ERR_INVALID, "api: %s: this is not a text",
                 key);
    ZOFF_FAIL_IF(cell->count > 1, ZOFF_ERR_INVALID, "api: %s: this is a list of %zu texts, not one", key, cell->count);
    *out = cell->kind == ZOFF_CELL_VALUE ? cell->texts[0] : NULL;
    return ZOFF_OK;
}

const char *zoff_config_source(const zoff_config *config, const char *key)
{
    const zoff_config_key *row = key ? zoff_config_schema_resolve(key) : NULL;
    if (!config || !row)
        return "unknown";
    size_t index = zoff_config_schema_index(row);
    if (config->is_resolved)
        return zoff_config_value_source(&config->effective[index]);
    return zoff_config_value_source(config->api[index].source ? &config->api[index] : &config->file[index]);
}
