/* config_priv.h: the room's own table: a configuration is three layers of cells (defaults, file, program) and, once
 * resolved, the effective one. One cell for each row of the schema in each layer. */
#ifndef ZOFF_CONFIG_PRIV_H
#define ZOFF_CONFIG_PRIV_H

#include "config.h"
#include "schema.h"

#include <jansson.h>
#include <stdint.h>

enum { ZOFF_CONFIG_NUMBERS_MAX = 4 };

typedef enum zoff_cell_kind {
    ZOFF_CELL_ABSENT = 0,
    ZOFF_CELL_NULL, /* given as null: as if it were absent */
    ZOFF_CELL_AUTO, /* given as "auto": computed, or the default */
    ZOFF_CELL_VALUE
} zoff_cell_kind;

typedef struct zoff_config_cell {
    zoff_cell_kind kind;
    int64_t integer; /* BOOL, INTEGER, BYTES; of ANY: whether it asks for something */
    double number;   /* the same as a double; NUMBER */
    double numbers[ZOFF_CONFIG_NUMBERS_MAX];
    char **texts; /* CHOICE (as the schema spells it), TEXTS; owned by the layers, borrowed by the effective one */
    size_t count; /* of numbers or texts */
    char *source; /* "ds_config.json:3:5", "api"; NULL: the default, or computed; owned likewise */
    bool is_computed;
} zoff_config_cell;

struct zoff_config {
    char *name;
    size_t key_count;
    zoff_config_cell *defaults, *file, *api, *effective;
    zoff_config_cell cpu_device; /* what the old keys cpu_offload and cpu_offload_params stand for */
    bool is_resolved, has_warned;
    unsigned world_size;
    const char **paths; /* of the state files; texts of some cell */
    size_t path_count;
    const char **weight_paths; /* likewise of weights, where they have folders of their own */
    size_t weight_path_count;
};

/* Who speaks: "ds_config.json:3:17: optimizer.params.lr", ready for messages. */
typedef struct zoff_config_where {
    const char *place;
    const char *path;
} zoff_config_where;

/* ---- value.c ---- */

/* Make a cell of a JSON value; `out` must be empty. ERR_INVALID says what was expected. ERR_UNSUPPORTED is not its affair. */
zoff_status zoff_config_value_from_json(const zoff_config_key *key, json_t *value, zoff_config_where where,
                                        zoff_config_cell *out);

/* The same from the text of zoff_config_set() or of a default: JSON, or bare words where the key takes text. */
zoff_status zoff_config_value_from_text(const zoff_config_key *key, const char *text, zoff_config_where where,
                                        zoff_config_cell *out);

/* Whether zoff can do what a cell asks for; several_ranks keys are always fine when `ranks` is 1. */
bool zoff_config_value_accepted(const zoff_config_key *key, const zoff_config_cell *cell, unsigned ranks);

/* The words for the refusal of a value, without the place. */
void zoff_config_value_refusal(const zoff_config_key *key, const zoff_config_cell *cell, char *dst, size_t dst_bytes);

/* A value as the file would have it: 0.001, "cpu", [0.9, 0.999]. */
void zoff_config_value_print(const zoff_config_key *key, const zoff_config_cell *cell, char *dst, size_t dst_bytes);

/* Remember the place of a value that was given: "ds_config.json:3:5", "auto at ds_config.json:3:5", "api". */
zoff_status zoff_config_value_set_source(zoff_config_cell *cell, const char *place);

/* That place alone; only for cells that have a source. */
const char *zoff_config_value_place(const zoff_config_cell *cell);

void zoff_config_value_free(zoff_config_cell *cell);

/* ---- parse.c ---- */

/* Fill the file layer. `text` is changed. */
zoff_status zoff_config_parse_text(zoff_config *config, char *text, size_t bytes);

/* ---- cells.c ---- */

/* The effective cell of a path, which must be in the schema. */
zoff_config_cell *zoff_config_cells_find(const zoff_config *config, const char *path);

/* What was given for a row, by whom it counts; NULL: nobody. */
const zoff_config_cell *zoff_config_cells_given(const zoff_config *config, const char *path);

/* Where an effective cell came from. Never NULL. */
const char *zoff_config_cells_source(const zoff_config_cell *cell);

/* ---- resolve.c ---- */

/* All of zoff_config_resolve() but one check: that state files have a folder. The engine's caller may bring one. */
zoff_status zoff_config_resolve_settle(zoff_config *config, unsigned world_size);

/* ---- optimizer.c ---- */

/* Give the hyper-parameters that are left open the defaults of optimizer.type, and refuse those that it does not have. */
zoff_status zoff_config_optimizer_settle(zoff_config *config);

zoff_optimizer zoff_config_optimizer_type(const zoff_config *config);

/* False for a parameter of other optimizers than optimizer.type; true for any other key. */
bool zoff_config_optimizer_has(const zoff_config *config, const char *path);

/* ---- schedule.c ---- */

/* Check what scheduler.type needs, and give its parameters the defaults that depend on it. What is needed and "auto" passes. */
zoff_status zoff_config_schedule_settle(zoff_config *config);

/* False for a parameter of other schedules than scheduler.type; true for any other key. */
bool zoff_config_schedule_has(const zoff_config *config, const char *path);

/* Whether scheduler.type cannot do without a key, which has no value. */
bool zoff_config_schedule_needs(const zoff_config *config, const char *path);

/* ---- precision.c ---- */

/* Either may be true, not both. */
zoff_status zoff_config_precision_check_pair(const zoff_config_cell *fp16, const zoff_config_cell *bf16);

/* That, and the parameters of a loss scale that is in use. */
zoff_status zoff_config_precision_check(const zoff_config *config);

/* ---- batch.c ---- */

/* Fill in the batch sizes that are not given and check all three. */
zoff_status zoff_config_batch_solve(zoff_config *config, unsigned world_size);

/* ---- sink.c ---- */

/* Text that grows into a caller's buffer: what does not fit is counted. */
typedef struct zoff_config_sink {
    char *dst;
    size_t dst_bytes, used;
} zoff_config_sink;

void zoff_config_sink_add(zoff_config_sink *sink, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
