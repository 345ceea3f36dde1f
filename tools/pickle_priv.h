/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_priv.h: the state of a reader, shared by pickle.c and the opcodes in pickle_opcodes.c. */
#ifndef ZOFF_TOOL_PICKLE_PRIV_H
#define ZOFF_TOOL_PICKLE_PRIV_H

#include "pickle.h"

#include <stdio.h>

typedef struct pickle_reader {
    pickle *pickle;
    const unsigned char *bytes;
    size_t count, at;
    size_t opcode_at; /* place of the current opcode */
    pickle_names names;
    pickle_value **stack, **memo;
    size_t stack_room, height, memo_room, memo_count;
    size_t marks[PICKLE_DEPTH]; /* heights of the stack */
    size_t mark_count;
    bool ended;
    const pickle_value *root;
    fault *fault;
} pickle_reader;

/* The functions return false after an error, with its message in r->fault; pickle_reader_make() returns NULL. */
bool pickle_reader_push(pickle_reader *r, pickle_value *v);
pickle_value *pickle_reader_make(pickle_reader *r, pickle_type type);
bool pickle_reader_pop(pickle_reader *r, pickle_value **out); /* pops a value above the last mark */
bool pickle_reader_mark(pickle_reader *r);
bool pickle_reader_unmark(pickle_reader *r, size_t *out_first); /* pops the last mark, a height of the stack */
size_t pickle_reader_floor(const pickle_reader *r);             /* returns the last mark; 0: none */
bool pickle_reader_add(pickle_reader *r, pickle_value *to, const pickle_value *v);
bool pickle_reader_remember(pickle_reader *r, size_t index);
bool pickle_reader_recall(pickle_reader *r, size_t index);
bool pickle_reader_bytes(pickle_reader *r, size_t count, const unsigned char **out);
/* reads a little-endian number of at most 8 bytes */
bool pickle_reader_unsigned(pickle_reader *r, size_t bytes, uint64_t *out);

/* Carry out one opcode. */
bool pickle_opcode_run(pickle_reader *r, unsigned char code);

#endif
