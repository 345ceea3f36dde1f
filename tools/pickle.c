/* SPDX-License-Identifier: Apache-2.0 */
/* pickle.c: reads a pickle of PyTorch as data: a stack of values, a memo, and a table of opcodes. */
#include "pickle.h"
#include "pickle_priv.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory: blocks that live as long as the pickle ---- */

enum { BLOCK_BYTES = 1 << 16 };

typedef struct block {
    struct block *next;
    size_t used;
    max_align_t bytes[];
} block;

struct pickle {
    block *blocks;
    size_t values; /* values and items so far */
    const pickle_value *root;
};

static void *take(pickle_reader *r, size_t bytes)
{
    pickle *p = r->pickle;
    if (++p->values > PICKLE_VALUES_MAX) {
        fault_write(r->fault, "the pickle has more than %d values", PICKLE_VALUES_MAX);
        return NULL;
    }
    const size_t room = BLOCK_BYTES - sizeof(block);
    if (!p->blocks || p->blocks->used + bytes > room) {
        block *fresh = malloc(BLOCK_BYTES);
        if (!fresh) {
            fault_write(r->fault, "out of memory for the values of a pickle");
            return NULL;
        }
        *fresh = (block){.next = p->blocks};
        p->blocks = fresh;
    }
    void *at = (char *)p->blocks->bytes + p->blocks->used;
    p->blocks->used += (bytes + sizeof(void *) - 1) / sizeof(void *) * sizeof(void *);
    return memset(at, 0, bytes);
}

/* Double an array when it is full. */
static bool grow(pickle_reader *r, void **array, size_t *room, size_t count, size_t size)
{
    if (count < *room)
        return true;
    const size_t more = *room ? *room * 2 : 64;
    void *moved = realloc(*array, more * size);
    if (!moved)
        return fault_set(r->fault, "out of memory for the stack of a pickle");
    *array = moved, *room = more;
    return true;
}

/* ---- the stack ---- */

bool pickle_reader_push(pickle_reader *r, pickle_value *v)
{
    if (!grow(r, (void **)&r->stack, &r->stack_room, r->height, sizeof *r->stack))
        return false;
    r->stack[r->height++] = v;
    return true;
}

pickle_value *pickle_reader_make(pickle_reader *r, pickle_type type)
{
    pickle_value *v = take(r, sizeof *v);
    if (v) {
        v->type = type;
        v->begin = (uint32_t)r->opcode_at;
        v->end = (uint32_t)r->at;
    }
    return v;
}

size_t pickle_reader_floor(const pickle_reader *r)
{
    return r->mark_count ? r->marks[r->mark_count - 1] : 0;
}

bool pickle_reader_pop(pickle_reader *r, pickle_value **out)
{
    if (r->height == pickle_reader_floor(r))
        return fault_set(r->fault, "an opcode needs a value, and there is none on the stack");
    *out = r->stack[--r->height];
    return true;
}

bool pickle_reader_mark(pickle_reader *r)
{
    if (r->mark_count == PICKLE_DEPTH)
        return fault_set(r->fault, "the pickle is nested deeper than %d levels", PICKLE_DEPTH);
    r->marks[r->mark_count++] = r->height;
    return true;
}

bool pickle_reader_unmark(pickle_reader *r, size_t *out_first)
{
    if (r->mark_count == 0)
        return fault_set(r->fault, "an opcode needs a mark, and there is none");
    *out_first = r->marks[--r->mark_count];
    return true;
}

bool pickle_reader_add(pickle_reader *r, pickle_value *to, const pickle_value *v)
{
    pickle_item *item = take(r, sizeof *item);
    if (!item)
        return false;
    if (v->depth + 1 > to->depth)
        to->depth = v->depth + 1;
    if (to->depth > PICKLE_DEPTH)
        return fault_set(r->fault, "the pickle is nested deeper than %d levels", PICKLE_DEPTH);
    item->value = v;
    if (to->last)
        to->last->next = item;
    else
        to->first = item;
    to->last = item;
    return true;
}

bool pickle_reader_remember(pickle_reader *r, size_t index)
{
    pickle_value *v;
    if (!pickle_reader_pop(r, &v) || !pickle_reader_push(r, v))
        return false;
    if (index > r->memo_count)
        return fault_set(r->fault, "memo entry %zu is set when there are only %zu", index, r->memo_count);
    if (index == r->memo_count) {
        if (!grow(r, (void **)&r->memo, &r->memo_room, r->memo_count, sizeof *r->memo))
            return false;
        r->memo_count++;
    }
    r->memo[index] = v;
    return true;
}

bool pickle_reader_recall(pickle_reader *r, size_t index)
{
    if (index >= r->memo_count)
        return fault_set(r->fault, "memo entry %zu is read when there are only %zu", index, r->memo_count);
    return pickle_reader_push(r, r->memo[index]);
}

/* ---- bytes ---- */

bool pickle_reader_bytes(pickle_reader *r, size_t count, const unsigned char **out)
{
    if (count > r->count - r->at)
        return fault_set(r->fault, "it ends within an opcode");
    *out = r->bytes + r->at;
    r->at += count;
    return true;
}

bool pickle_reader_unsigned(pickle_reader *r, size_t bytes, uint64_t *out)
{
    const unsigned char *from;
    if (!pickle_reader_bytes(r, bytes, &from))
        return false;
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;)
        value = value << 8 | from[i];
    *out = value;
    return true;
}

/* ---- the whole ---- */

static bool read_values(pickle_reader *r)
{
    while (!r->ended) {
        r->opcode_at = r->at;
        const unsigned char *code;
        if (!pickle_reader_bytes(r, 1, &code) || !pickle_opcode_run(r, *code)) {
            char where[40];
            snprintf(where, sizeof where, "the pickle, at byte %zu", r->opcode_at);
            return fault_at(r->fault, where);
        }
    }
    if (r->at != r->count)
        return fault_set(r->fault, "the pickle ends at byte %zu, but %zu bytes follow", r->at, r->count - r->at);
    return true;
}

bool pickle_open(const void *bytes, size_t count, pickle_names names, pickle **out, fault *f)
{
    if (count > PICKLE_BYTES_MAX)
        return fault_set(f, "the pickle has %zu bytes, more than %d", count, PICKLE_BYTES_MAX);
    pickle *p = calloc(1, sizeof *p);
    if (!p)
        return fault_set(f, "out of memory for a pickle");
    pickle_reader r = {.pickle = p, .bytes = bytes, .count = count, .names = names, .fault = f};
    const bool ok = read_values(&r);
    p->root = r.root;
    free(r.stack);
    free(r.memo);
    if (ok)
        *out = p;
    else
        pickle_close(p);
    return ok;
}

void pickle_close(pickle *p)
{
    if (!p)
        return;
    for (block *b = p->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(p);
}

const pickle_value *pickle_root(const pickle *p)
{
    return p->root;
}
