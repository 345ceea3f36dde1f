/* SPDX-License-Identifier: Apache-2.0 */
/* config.h: read a DeepSpeed configuration (ds_config JSON), change it, and query it. */
#ifndef ZOFF_CONFIG_H
#define ZOFF_CONFIG_H

#include <zoff/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Open a configuration.
 *  @param path a ds_config file, with or without comments and trailing commas; NULL: every key has its default
 *  @owns caller; zoff_config_close()  @threads one at a time per handle  @blocks for the read
 *  @return ERR_INVALID with file, line, column, JSON path, expected value and nearest known key; ERR_UNSUPPORTED for a key that
 *  would change the result and that zoff does not have; ERR_IO when the file cannot be read */
ZOFF_API zoff_status zoff_config_open(const char *path, zoff_config **out);

/** Replace what `config` was opened with by the contents of a file. Values of zoff_config_set() stay, and win already while
 *  the file is checked: with "zoff.strict" set to false, unknown keys of the file pass.
 *  @return as zoff_config_open(); after an error the configuration is unchanged */
ZOFF_API zoff_status zoff_config_read(zoff_config *config, const char *path);

/** Replace the contents of `config` by `bytes` of JSON text; otherwise like zoff_config_read().
 *  @param name stands for the file in messages; NULL: "configuration" */
ZOFF_API zoff_status zoff_config_read_text(zoff_config *config, const char *text, size_t bytes, const char *name);

/** Set one key, as if it stood in the file: ("optimizer.params.lr", "3e-4"). Wins over the file.
 *  @return as zoff_config_open(); after an error the configuration is unchanged */
ZOFF_API zoff_status zoff_config_set(zoff_config *config, const char *key, const char *value);

/** Settle values that depend on other keys and on the number of ranks: "auto", batch sizes, old key names.
 *  zoff_engine_create() does this with the size of its communicator. A call with another size starts afresh.
 *  @return ERR_INVALID when values contradict each other, with each value and its place */
ZOFF_API zoff_status zoff_config_resolve(zoff_config *config, unsigned world_size);

/** Read one number of a resolved configuration, such as "optimizer.params.lr". Booleans are 0 and 1.
 *  @return ERR_INVALID for an unknown key, or one that is not a number */
ZOFF_API zoff_status zoff_config_number(const zoff_config *config, const char *key, double *out);

/** Read one text of a resolved configuration. *out is NULL where the key is null or not set.
 *  @owns the configuration  @return ERR_INVALID for an unknown key, or one that is not a text */
ZOFF_API zoff_status zoff_config_string(const zoff_config *config, const char *key, const char **out);

/** Write the effective configuration, one key a line: its value, and where that comes from (file and line, default, api,
 *  computed).
 *  @return OK; *out_bytes is the length of the whole text without the final 0, also where `dst` is shorter */
ZOFF_API zoff_status zoff_config_dump(const zoff_config *config, char *dst, size_t dst_bytes, size_t *out_bytes);

/** Write the reference of all keys as Markdown, generated from the schema that parses them; sizes as zoff_config_dump(). */
ZOFF_API zoff_status zoff_config_reference(char *dst, size_t dst_bytes, size_t *out_bytes);

/** Write a JSON Schema (draft-07) of the configuration, for editors, generated from the same schema; sizes as
 *  zoff_config_dump(). Its "$comment" lists the rules that it cannot say. */
ZOFF_API zoff_status zoff_config_schema(char *dst, size_t dst_bytes, size_t *out_bytes);

/** Free a configuration. NULL is allowed. */
ZOFF_API void zoff_config_close(zoff_config *config);

#ifdef __cplusplus
}
#endif
#endif
