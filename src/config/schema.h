/* SPDX-License-Identifier: Apache-2.0 */
/* schema.h: describes configuration keys. Parsing, defaults, ranges and docs/CONFIG.md all come from the table in schema.c. */
#ifndef ZOFF_CONFIG_SCHEMA_H
#define ZOFF_CONFIG_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>

typedef enum zoff_key_type {
    ZOFF_KEY_SECTION, /* an object whose keys are rows of their own */
    ZOFF_KEY_BOOL,
    ZOFF_KEY_INTEGER,
    ZOFF_KEY_NUMBER,
    ZOFF_KEY_BYTES,   /* an integer, or "64MiB" */
    ZOFF_KEY_CHOICE,  /* one of `choices`, case ignored */
    ZOFF_KEY_NUMBERS, /* a list of exactly `count` numbers */
    ZOFF_KEY_TEXTS,   /* a text, or a list of texts */
    ZOFF_KEY_ANY      /* any value; only whether it is off matters, see zoff_config_cell.integer */
} zoff_key_type;

typedef enum zoff_key_class {
    ZOFF_CLASS_HONOURED, /* a key that zoff acts on */
    ZOFF_CLASS_IGNORED,  /* zoff knows the key, which changes no result of zoff, or concerns only the trainer */
    ZOFF_CLASS_REFUSED,  /* zoff knows the key, which would change the result, so only the values in `accepts` pass */
    ZOFF_CLASS_ALIAS     /* another name of the key in `target` */
} zoff_key_class;

typedef struct zoff_config_key {
    const char *path; /* "optimizer.params.lr" */
    zoff_key_type type;
    zoff_key_class class_;
    const char *fallback; /* default, in the form that zoff_config_set() takes; NULL: none */
    double min, max;      /* allowed range, if `ranged` */
    bool ranged;
    bool below_max;       /* `max` itself is not allowed */
    bool open;            /* sections: unknown keys inside are ignored, not errors */
    bool cuts;            /* integers: a fraction is cut off, because DeepSpeed took computed sizes such as 0.9 * 4096 * 4096 */
    bool may_differ;      /* may differ between ranks, because no number depends on it; all others must be the same */
    unsigned count;       /* length of a list of numbers */
    const char *word;     /* flags: a third value, as a text; NULL: none */
    bool counts;          /* flags: a whole number of 1 and more is a value of its own, and 0 and 1 are no flags */
    const char *choices;  /* "a|b|c": every known value */
    const char *accepts;  /* "a|b": the supported values among them; NULL: all; "": only null */
    const char *why;      /* the reason why values are unsupported, and what to do instead */
    const char *excludes; /* old names: the section that may not be given as well; NULL: none */
    const char *target;   /* aliases: the path of the real key */
    const char *help;     /* a phrase for docs/CONFIG.md */
} zoff_config_key;

/* The table, which is static, and its number of rows. */
const zoff_config_key *zoff_config_schema_table(size_t *out_count);

/* The row of a path, or NULL. It may be an alias: see zoff_config_schema_target(). */
const zoff_config_key *zoff_config_schema_find(const char *path);

/* The row of a key inside a section ("" is the top level), or NULL. A key that contains a dot has no row. */
const zoff_config_key *zoff_config_schema_child(const char *section, const char *key);

/* The target row of an alias; any other row is its own target. */
const zoff_config_key *zoff_config_schema_target(const zoff_config_key *key);

/* As zoff_config_schema_find(), but follows aliases, also those of sections ("bfloat16.enabled"). Never returns an alias. */
const zoff_config_key *zoff_config_schema_resolve(const char *path);

/* Index of a row in the table. */
size_t zoff_config_schema_index(const zoff_config_key *key);

/* Describe the values that a key takes: "an integer >= 1", "true or false". */
void zoff_config_schema_expected(const zoff_config_key *key, char *dst, size_t dst_bytes);

/* Whether `word` is in a list "a|b|c", ignoring case. If out_word is not NULL, it gets the address of the word in the list, and
 * out_bytes its length. */
bool zoff_config_schema_in_list(const char *list, const char *word, const char **out_word, size_t *out_bytes);

/* Write a list "a|b|c" as: "a", "b" or "c". */
void zoff_config_schema_join(const char *list, char *dst, size_t dst_bytes);

#endif
