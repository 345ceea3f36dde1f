/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_values.c: looks up values of a pickle, and copies a pickle with other numbers. */
#include "pickle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool pickle_is_text(const pickle_value *v, const char *text)
{
    return v && v->type == PICKLE_TEXT && v->text_bytes == strlen(text) && memcmp(v->text, text, v->text_bytes) == 0;
}

bool pickle_is_global(const pickle_value *v, const char *name)
{
    if (!v || v->type != PICKLE_GLOBAL || v->text_bytes != strlen(name))
        return false;
    const size_t module = strcspn(name, " ");
    return memcmp(v->text, name, module) == 0 && v->text[module] == '\n' &&
           memcmp(v->text + module + 1, name + module + 1, v->text_bytes - module - 1) == 0;
}

static const pickle_value *find_item(const pickle_value *v, const char *key)
{
    for (const pickle_item *item = v->first; item && item->next; item = item->next->next) {
        if (pickle_is_text(item->value, key))
            return item->next->value;
    }
    return NULL;
}

const pickle_value *pickle_find(const pickle_value *v, const char *key)
{
    if (!v || (v->type != PICKLE_DICT && v->type != PICKLE_OBJECT))
        return NULL;
    const pickle_value *found = find_item(v, key);
    if (!found && v->type == PICKLE_OBJECT && v->state && v->state->type == PICKLE_DICT)
        found = find_item(v->state, key);
    return found;
}

const pickle_value *pickle_at(const pickle_value *v, size_t index)
{
    const pickle_item *item = v ? v->first : NULL;
    for (; item && index > 0; index--)
        item = item->next;
    return item ? item->value : NULL;
}

bool pickle_number(const pickle_value *v, int64_t *out)
{
    if (v && v->type == PICKLE_INT) {
        *out = v->number;
        return true;
    }
    if (!v || v->type != PICKLE_FLOAT || !(fabs(v->real) < 9e15) || v->real != floor(v->real))
        return false;
    *out = (int64_t)v->real;
    return true;
}

/* ---- a copy with other numbers ---- */

static int by_place(const void *a, const void *b)
{
    const uint32_t x = ((const pickle_edit *)a)->value->begin, y = ((const pickle_edit *)b)->value->begin;
    return x < y ? -1 : x > y;
}

/* Write `number` as an opcode: a float of 9 bytes, or an integer of 10. A fraction becomes a float, as does a number that an
 * integer of 64 bits cannot hold. Returns the end. */
static unsigned char *put_number(unsigned char *to, pickle_type type, double number)
{
    const bool is_whole = number == floor(number) && number >= -0x1p63 && number < 0x1p63;
    uint64_t bits = is_whole ? (uint64_t)(int64_t)number : 0;
    if (type == PICKLE_FLOAT || !is_whole) {
        memcpy(&bits, &number, sizeof bits);
        *to++ = 'G';
        for (unsigned shift = 64; shift > 0; shift -= 8)
            *to++ = (unsigned char)(bits >> (shift - 8));
        return to;
    }
    *to++ = 0x8a;
    *to++ = 8;
    for (unsigned shift = 0; shift < 64; shift += 8)
        *to++ = (unsigned char)(bits >> shift);
    return to;
}

bool pickle_copy_edited(const void *bytes, size_t count, pickle_edit *edits, size_t edit_count, unsigned char **out,
                        size_t *out_count, fault *f)
{
    const unsigned char *from = bytes;
    unsigned char *copy = malloc(count + 10 * edit_count + 1), *to = copy;
    if (!copy)
        return fault_set(f, "out of memory for the copy of a pickle");
    if (edit_count > 0)
        qsort(edits, edit_count, sizeof *edits, by_place);
    size_t at = 0;
    for (size_t i = 0; i < edit_count; i++) {
        const pickle_value *v = edits[i].value;
        if (v->begin < at) /* the number has been edited before */
            continue;
        memcpy(to, from + at, v->begin - at);
        to = put_number(to + (v->begin - at), v->type, edits[i].number);
        at = v->end;
    }
    memcpy(to, from + at, count - at);
    *out = copy;
    *out_count = (size_t)(to - copy) + count - at;
    return true;
}
