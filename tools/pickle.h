/* SPDX-License-Identifier: Apache-2.0 */
/* pickle.h: reads the pickle of a PyTorch file as data. Nothing is imported, called or executed: a call that the pickle asks
 * for becomes a value that says so.
 *
 * The pickle may be hostile. Its opcodes and, unless the caller wants any name, the Python objects that it names are on a list;
 * everything else is refused with its name. Memory is bounded by a multiple of the pickle's bytes, and nesting by PICKLE_DEPTH.
 * No function here recurses. */
#ifndef ZOFF_TOOL_PICKLE_H
#define ZOFF_TOOL_PICKLE_H

#include "fault.h"

#include <stddef.h>
#include <stdint.h>

enum {
    PICKLE_DEPTH = 100,                /* most containers within containers */
    PICKLE_VALUES_MAX = 6000000,       /* most values of a pickle: enough for the model states of 200,000 parameters */
    PICKLE_BYTES_MAX = 128 * (1 << 20) /* most bytes of a pickle */
};

typedef enum pickle_type {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,
    PICKLE_FLOAT,
    PICKLE_LARGE, /* an integer of more than 64 bits, whose value is not kept */
    PICKLE_TEXT,
    PICKLE_TUPLE,
    PICKLE_LIST,
    PICKLE_DICT,   /* items are key, value, key, value, ... */
    PICKLE_GLOBAL, /* a Python object: its text is the module, a line end, and the name */
    PICKLE_OBJECT, /* result of a call that is not made, with the items of the list or dict that it was filled as */
    PICKLE_STORAGE /* a persistent id, which names the data of a tensor */
} pickle_type;

typedef struct pickle_value pickle_value;

typedef struct pickle_item {
    const pickle_value *value;
    struct pickle_item *next;
} pickle_item;

struct pickle_value {
    pickle_type type;
    unsigned depth;      /* nesting depth of its content; 0: it has none */
    uint32_t begin, end; /* bytes of the opcode that made the value */
    pickle_item *first;  /* items of a container */
    pickle_item *last;
    union {
        int64_t number; /* BOOL, INT */
        double real;    /* FLOAT */
        struct {
            const char *text; /* TEXT, GLOBAL: in the caller's bytes, without a final 0 */
            size_t text_bytes;
        };
        struct {
            const pickle_value *callee;    /* OBJECT */
            const pickle_value *arguments; /* OBJECT: a tuple of arguments; STORAGE: the id */
            const pickle_value *state;     /* OBJECT: the state it was built from; NULL: none */
        };
    };
};

typedef struct pickle pickle;

/* Which Python objects a pickle may name. */
typedef enum pickle_names {
    PICKLE_NAMES_LISTED, /* objects of tensors and of DeepSpeed's universal files */
    PICKLE_NAMES_ANY     /* any object, because none is ever looked up: for files from which a caller wants only numbers */
} pickle_names;

/* Read a pickle. `bytes` stay the caller's and must outlive *out.
 * On success the caller frees *out by pickle_close(). On a failure *out is not written. */
bool pickle_open(const void *bytes, size_t count, pickle_names names, pickle **out, fault *f);
void pickle_close(pickle *p);

const pickle_value *pickle_root(const pickle *p);

/* The value of a text key in a dict, in an object filled as one, or in the state of an object. NULL: none, also for NULL. */
const pickle_value *pickle_find(const pickle_value *v, const char *key);

/* Item `index` of a container; NULL: none, also for NULL. */
const pickle_value *pickle_at(const pickle_value *v, size_t index);

/* Whether `v`, which may be NULL, is this text, or the Python object that is given as "MODULE NAME". */
bool pickle_is_text(const pickle_value *v, const char *text);
bool pickle_is_global(const pickle_value *v, const char *name);

/* Read a number, of an INT or a whole FLOAT, into *out. Returns false for all else. */
bool pickle_number(const pickle_value *v, int64_t *out);

/* A copy of the pickle's bytes in which numbers are replaced. */
typedef struct pickle_edit {
    const pickle_value
        /* an INT or FLOAT of the pickle, which keeps its type; a fraction or a number of more than 64 bits becomes a float */
        *value;
    double number;
} pickle_edit;

/* Copy a pickle with `edits`, which are sorted by their place. On success the caller frees *out. */
bool pickle_copy_edited(const void *bytes, size_t count, pickle_edit *edits, size_t edit_count, unsigned char **out,
                        size_t *out_count, fault *f);

#endif
