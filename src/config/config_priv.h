/* SPDX-License-Identifier: Apache-2.0 */
/* config_priv.h: the inside of a configuration. It has three layers of cells: defaults, file and program. Resolving merges them
 * into a fourth layer, the effective one. Each layer has one cell for each row of the schema. */
#ifndef ZOFF_CONFIG_PRIV_H
#define ZOFF_CONFIG_PRIV_H

#include "config.h"
#include "schema.h"

#include <jansson.h>
#include <stdint.h>

enum { ZOFF_CONFIG_NUMBERS_MAX = 4 };

typedef enum zoff_cell_kind {
    ZOFF_CELL_ABSENT = 0,
    ZOFF_CELL_NULL, /* the key is null, which has the same effect as no key */
    ZOFF_CELL_AUTO, /* the key is "auto": its value is computed, or is the default */
    ZOFF_CELL_VALUE
} zoff_cell_kind;

/* Further values of a flag: the word zoff_config_key.word, and a number in zoff_config_cell.number for keys with `counts`. */
enum { ZOFF_FLAG_WORD = 2, ZOFF_FLAG_COUNT = 3 };

typedef struct zoff_config_cell {
    zoff_cell_kind kind;
    int64_t integer; /* value of BOOL (or ZOFF_FLAG_...), INTEGER and BYTES; of ANY: 0 if the value is off or empty, else 1 */
    double number;   /* value of NUMBER; the same as `integer` for INTEGER, BYTES and most flags */
    double numbers[ZOFF_CONFIG_NUMBERS_MAX];
    /* words of CHOICE (spelt as in the schema) and TEXTS; owned by the three layers, borrowed by the effective one */
    char **texts;
    size_t count; /* number of numbers or texts */
    char *source; /* source, "ds_config.json:3:5" or "api"; NULL: default or computed; owned as `texts` */
    bool is_computed;
} zoff_config_cell;

struct zoff_config {
    char *name;
    size_t key_count;
    zoff_config_cell *defaults, *file, *api, *effective;
    zoff_config_cell cpu_device; /* the device "cpu", for the old keys cpu_offload and cpu_offload_params */
    bool is_resolved, has_warned;
    unsigned world_size;
    const char **paths; /* folders of the state files; the texts belong to a cell */
    size_t path_count;
    const char **weight_paths; /* folders of the files with weights, if given; the texts belong to a cell */
    size_t weight_path_count;
};

/* The place of a value, for messages such as "ds_config.json:3:17: optimizer.params.lr: ...". */
typedef struct zoff_config_where {
    const char *place;
    const char *path;
} zoff_config_where;

/* ---- value.c ---- */

/* Convert a JSON value into a cell; `out` must be empty.  @return ERR_INVALID with the expected form. Values that zoff does not
 * support pass: see zoff_config_value_accepted() */
zoff_status zoff_config_value_from_json(const zoff_config_key *key, json_t *value, zoff_config_where where,
                                        zoff_config_cell *out);

/* Convert the text of zoff_config_set() or of a default into a cell. The text is JSON, or a word without quotes if the key
 * takes text. */
zoff_status zoff_config_value_from_text(const zoff_config_key *key, const char *text, zoff_config_where where,
                                        zoff_config_cell *out);

/* Whether zoff supports the value of a cell. */
bool zoff_config_value_accepted(const zoff_config_key *key, const zoff_config_cell *cell);

/* Write the reason why a value is refused, without its place. */
void zoff_config_value_refusal(const zoff_config_key *key, const zoff_config_cell *cell, char *dst, size_t dst_bytes);

/* Write a value as it would stand in the file: 0.001, "cpu", [0.9, 0.999]. */
void zoff_config_value_print(const zoff_config_key *key, const zoff_config_cell *cell, char *dst, size_t dst_bytes);
/* Copy the text of a value, as it would stand in the file, to memory of any length.  @owns out: zoff_base_mem_free()  @return
 * ERR_NO_MEMORY */
zoff_status zoff_config_value_text(const zoff_config_key *key, const zoff_config_cell *cell, char **out);

/* Whether a cell, if there is one, has a value. */
static inline bool zoff_config_value_has(const zoff_config_cell *cell)
{
    return cell && cell->kind == ZOFF_CELL_VALUE;
}

/* Store the source of a given value. The cell's kind is added to `place`: "auto at ds_config.json:3:5". */
zoff_status zoff_config_value_set_source(zoff_config_cell *cell, const char *place);

/* The place in a cell's source, without the kind: "ds_config.json:3:5". Only for cells that have a source. */
const char *zoff_config_value_place(const zoff_config_cell *cell);

void zoff_config_value_free(zoff_config_cell *cell);

/* The effective cell of a path, which must be in the schema. */
zoff_config_cell *zoff_config_value_find(const zoff_config *config, const char *path);

/* The given cell of a row: the program's, else the file's; NULL if neither gives one. */
const zoff_config_cell *zoff_config_value_given(const zoff_config *config, const char *path);

/* The source of an effective cell. Never NULL. */
const char *zoff_config_value_source(const zoff_config_cell *cell);

/* Text that is appended to a caller's buffer. Text that does not fit is cut, but counted. */
typedef struct zoff_config_sink {
    char *dst;
    size_t dst_bytes, used; /* `used` counts the cut text, too */
} zoff_config_sink;

void zoff_config_value_append(zoff_config_sink *sink, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Append a text in quotes, as in JSON. */
void zoff_config_value_quote(zoff_config_sink *sink, const char *text);

/* ---- nearest.c: the known word that a misspelt one probably means ---- */

/* The number of letters to change, add, drop or swap to turn one word into the other, ignoring case. If a word is longer than
 * 64 letters, the result is 65. */
unsigned zoff_config_nearest_distance(const char *a, const char *b);

/* The path of the known key that is closest to `key` in `section`; NULL if none is close. */
const char *zoff_config_nearest_key(const char *section, const char *key);

/* Whether a key of the top level resembles no key that has a meaning, not even a refused one, so it is no misspelt one. */
bool zoff_config_nearest_is_stray(const char *key);

/* Copy the word of "a|b|c" that is closest to `word` into dst; "" if none is close. */
void zoff_config_nearest_choice(const char *list, const char *word, char *dst, size_t dst_bytes);

/* ---- scan.c: the bytes of a file as a JSON tree, with the line and column of every member ---- */

/* A place in the text. Lines and columns count from 1, columns in characters. */
typedef struct zoff_config_place {
    unsigned line, column;
} zoff_config_place;

/* One member of an object. Members are stored in the order of the text. Elements of lists are members without a key. */
typedef struct zoff_config_member {
    size_t parent; /* index of the member whose value holds this one; SIZE_MAX at the top */
    const char *key;
    json_t *value; /* borrowed from the root */
    zoff_config_place key_at, value_at;
} zoff_config_member;

typedef struct zoff_config_tree {
    json_t *root;
    zoff_config_member *members;
    size_t count, room;
} zoff_config_tree;

/* Parse `text`. Comments and trailing commas in it are overwritten with blanks.  @return ERR_INVALID with name:line:column if
 * the text is not JSON, is not an object, or has a key twice */
zoff_status zoff_config_scan(char *text, size_t bytes, const char *name, zoff_config_tree *out);
void zoff_config_scan_free(zoff_config_tree *tree);

/* Whether a key is a remark: it starts with "_", "//" or "#", or is "$schema", which is for editors. */
bool zoff_config_scan_is_remark(const char *key);

/* Write the path of a member: "optimizer.params.lr". A longer path is cut at dst_bytes. */
void zoff_config_scan_path(const zoff_config_tree *tree, size_t member, char *dst, size_t dst_bytes);

/* ---- parse.c ---- */

/* Parse the text of a file into the file layer. Overwrites `text`. */
zoff_status zoff_config_parse_text(zoff_config *config, char *text, size_t bytes);

/* ---- resolve.c ---- */

/* Resolve as zoff_config_resolve() does, but require no folder for state files, because zoff_engine_opts may name one. */
zoff_status zoff_config_resolve_settle(zoff_config *config, unsigned world_size);

/* Refuse fp16 and bf16 together. */
zoff_status zoff_config_resolve_check_pair(const zoff_config_cell *fp16, const zoff_config_cell *bf16);

/* ---- optimizer.c ---- */

/* Give hyper-parameters without a value the defaults of optimizer.type, and refuse those that this optimizer does not have. */
zoff_status zoff_config_optimizer_settle(zoff_config *config);

zoff_optimizer zoff_config_optimizer_type(const zoff_config *config);

/* False if `path` is a parameter of other optimizers only, not of optimizer.type. True for any other key. */
bool zoff_config_optimizer_has(const zoff_config *config, const char *path);

/* ---- schedule.c ---- */

/* Check that scheduler.type has the parameters that it needs, and set the defaults that depend on it. A needed parameter may
 * still be "auto" here. */
zoff_status zoff_config_schedule_settle(zoff_config *config);

/* False if `path` is a parameter of other schedules only, not of scheduler.type. True for any other key. */
bool zoff_config_schedule_has(const zoff_config *config, const char *path);

/* Whether scheduler.type needs a key that has no value. */
bool zoff_config_schedule_needs(const zoff_config *config, const char *path);

#endif
