/* config.h: read a DeepSpeed configuration (ds_config JSON) and see what it comes to. */
#ifndef ZOFF_CONFIG_H
#define ZOFF_CONFIG_H

#include <zoff/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Read and check the configuration file at `path`. Comments and trailing commas are allowed.
 *  @owns caller; zoff_config_close()  @threads one at a time per handle  @blocks for the read
 *  @return ERR_INVALID with `file:line:column`, the JSON path, what was expected and the nearest known key;
 *  ERR_UNSUPPORTED for a key that would change the result and is not there yet; ERR_IO when it can't be read */
ZOFF_API zoff_status zoff_config_open(const char *path, zoff_config **out);

/** The same for text in memory; `name` stands for the file in messages. `{}` gives the defaults. */
ZOFF_API zoff_status zoff_config_parse(const char *text, size_t bytes, const char *name, zoff_config **out);

/** Read a file into a configuration that is there, in place of what it was opened with. What zoff_config_set() has set wins
 *  already while the file is checked: so "zoff.strict" set to false lets its unknown keys pass, and a value of the file that
 *  would be refused passes where the program sets another. Start from `zoff_config_parse("{}", 2, NULL, &config)`.
 *  @return as zoff_config_open(); after an error the configuration is as before */
ZOFF_API zoff_status zoff_config_read(zoff_config *config, const char *path);

/** The same for text in memory, as zoff_config_parse(). */
ZOFF_API zoff_status zoff_config_read_text(zoff_config *config, const char *text, size_t bytes, const char *name);

/** Set one key from the program, as if it stood in the file ("optimizer.params.lr", "3e-4"). Wins over the file.
 *  @return as zoff_config_open() */
ZOFF_API zoff_status zoff_config_set(zoff_config *config, const char *key, const char *value);

/** Settle what depends on other keys and on the number of ranks: "auto" values, the batch triangle, old names.
 *  zoff_engine_create() does this with the size of its communicator; a second call with another size starts afresh.
 *  @return ERR_INVALID when the values contradict each other, naming each value and where it came from */
ZOFF_API zoff_status zoff_config_resolve(zoff_config *config, unsigned world_size);

/** Read one value of a resolved configuration ("train_micro_batch_size_per_gpu", "optimizer.params.lr"). Booleans are 0 and 1.
 *  @return ERR_INVALID for a key that is not in the schema or is not a number */
ZOFF_API zoff_status zoff_config_number(const zoff_config *config, const char *key, double *out);

/** The same for text values; NULL in *out where the key is null or not set.  @owns the configuration */
ZOFF_API zoff_status zoff_config_string(const zoff_config *config, const char *key, const char **out);

/** Write the effective configuration as text, one key a line: value, and where it came from (file:line, default, api,
 * computed).
 *  @return OK; *out_bytes is the full length without the final 0, whatever fitted into dst_bytes */
ZOFF_API zoff_status zoff_config_dump(const zoff_config *config, char *dst, size_t dst_bytes, size_t *out_bytes);

/** Write the reference of every key, made from the schema that parses them, as Markdown; otherwise as zoff_config_dump(). */
ZOFF_API zoff_status zoff_config_reference(char *dst, size_t dst_bytes, size_t *out_bytes);

/** Free. NULL is allowed. */
ZOFF_API void zoff_config_close(zoff_config *config);

#ifdef __cplusplus
}
#endif
#endif
