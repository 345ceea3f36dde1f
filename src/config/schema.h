/* schema.h: what a configuration key is. The table in schema.c is the one source of parsing, defaults, ranges and docs. */
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
    ZOFF_KEY_ANY      /* not looked into */
} zoff_key_type;

typedef enum zoff_key_class {
    ZOFF_CLASS_HONOURED, /* zoff acts on it */
    ZOFF_CLASS_IGNORED,  /* known; changes no result of zoff, or is the business of another layer */
    ZOFF_CLASS_REFUSED,  /* known; would change the result, so only the values in `accepts` pass */
    ZOFF_CLASS_ALIAS     /* another name of the row named in `target` */
} zoff_key_class;

typedef struct zoff_config_key {
    const char *path; /* "optimizer.params.lr" */
    zoff_key_type type;
    zoff_key_class class_;
    const char *fallback; /* default as zoff_config_set() would take it; NULL: none */
    double min, max;      /* when ranged; in units of the value */
    bool ranged;
    bool below_max;      /* max itself is not allowed */
    bool open;           /* of a section: keys that are not in the table are nobody's error */
    bool several_ranks;  /* the values not in `accepts` matter only from two ranks on */
    bool may_differ;     /* between ranks, for no number depends on it; every other key must be the same on all ranks */
    unsigned count;      /* of numbers in a list */
    const char *choices; /* "a|b|c": every value that is known */
    const char *accepts; /* "a|b": the values among them that zoff can do; NULL: all. "" is: none but null */
    const char *why;     /* for the others: why not, and what to do */
    const char *target;  /* of an alias */
    const char *help;
} zoff_config_key;

/* The table: *out_count rows, static. */
const zoff_config_key *zoff_config_schema_table(size_t *out_count);

/* The row of a path; NULL when there is none. Aliases are rows too: see zoff_config_schema_target(). */
const zoff_config_key *zoff_config_schema_find(const char *path);

/* The row of a key inside a section ("" for the top level); NULL when there is none, or when the key has a dot in it. */
const zoff_config_key *zoff_config_schema_child(const char *section, const char *key);

/* The row that an alias stands for; the row itself where it is none. */
const zoff_config_key *zoff_config_schema_target(const zoff_config_key *key);

/* As find, also through sections that are aliases ("bfloat16.enabled"), and never an alias itself. */
const zoff_config_key *zoff_config_schema_resolve(const char *path);

/* Number of a row in the table. */
size_t zoff_config_schema_index(const zoff_config_key *key);

/* What a value of this key must be, in words: "an integer >= 1", "one of ...". */
void zoff_config_schema_expected(const zoff_config_key *key, char *dst, size_t dst_bytes);

/* Whether `word` is in a list "a|b|c", case ignored; *out_word (may be NULL) points to it in the list, with *out_bytes. */
bool zoff_config_schema_in_list(const char *list, const char *word, const char **out_word, size_t *out_bytes);

/* "a|b|c" as "a", "b" or "c". */
void zoff_config_schema_join(const char *list, char *dst, size_t dst_bytes);

#endif
