/* SPDX-License-Identifier: Apache-2.0 */
/* records.c: parameters to JSON and back. */
#include "records.h"

#include "dtype.h"
#include "names.h"
#include "verbs.h"

#include <string.h>

bool record_is_frozen(const zoff_checkpoint_param *p)
{
    return (p->states >> ZOFF_STATE_WEIGHTS & 1) && !(p->states >> ZOFF_STATE_MASTER & 1);
}

void record_print_shape(const zoff_checkpoint_param *p)
{
    printf("%s [", dtype_name(p->dtype));
    if (p->slices > 1)
        printf("%zu x ", p->slices);
    for (size_t i = 0; i < p->dim_count; i++)
        printf("%s%zu", i ? ", " : "", p->dims[i]);
    printf("]");
}

size_t record_tensors(const zoff_checkpoint_param *p)
{
    return p->slice_name ? p->slices : 1;
}

char *record_tensor_name(pool *memory, const zoff_checkpoint_param *p, size_t i)
{
    return p->slice_name ? name_of_tensor(memory, p->slice_name, i) : name_of_tensor(memory, p->name, NAME_WHOLE);
}

bool record_is_needed(const zoff_checkpoint_param *p)
{
    return p->slices != 1 || p->slice_name || p->tied_to || record_is_frozen(p) || !name_is_plain(p->name);
}

/* Set a member unless its text is NULL. */
static bool set_name(json_t *record, pool *memory, const char *key, const char *text)
{
    const char *encoded = text ? name_encode(memory, text) : NULL;
    return !text || (encoded && json_object_set_new(record, key, json_string(encoded)) == 0);
}

static bool set_dims(json_t *record, const zoff_checkpoint_param *p)
{
    json_t *dims = json_array();
    for (size_t i = 0; dims && i < p->dim_count; i++)
        json_array_append_new(dims, json_integer((json_int_t)p->dims[i]));
    return json_object_set_new(record, "dims", dims) == 0;
}

json_t *record_make(const zoff_checkpoint_param *p)
{
    pool memory = {0};
    json_t *record = json_object();
    bool works = record && set_name(record, &memory, "name", p->name) &&
                 set_name(record, &memory, "slice_name", p->slice_name) && set_name(record, &memory, "tied_to", p->tied_to);
    if (works && p->slices != 1)
        works = json_object_set_new(record, "slices", json_integer((json_int_t)p->slices)) == 0;
    if (works && record_is_frozen(p))
        works = json_object_set_new(record, "frozen", json_true()) == 0;
    if (works && p->tied_to)
        works = set_dims(record, p);
    pool_free(&memory);
    if (works)
        return record;
    json_decref(record);
    return NULL;
}

/* Read a name; `*out` stays NULL where there is none. */
static int get_name(pool *memory, const char *file, const json_t *record, const char *key, const char **out)
{
    const json_t *value = json_object_get(record, key);
    if (!value)
        return EXIT_DONE;
    *out = json_is_string(value) ? name_decode(memory, json_string_value(value)) : NULL;
    return *out ? EXIT_DONE : failed("%s: \"%s\" of a record in \"" RECORDS_KEY "\" is not an encoded name", file, key);
}

static int get_dims(pool *memory, const char *file, const json_t *record, zoff_checkpoint_param *out)
{
    const json_t *list = json_object_get(record, "dims");
    out->dim_count = json_array_size(list);
    size_t *dims = pool_take(memory, out->dim_count, sizeof *dims);
    if (!dims)
        return EXIT_FAILED;
    out->count = 1;
    for (size_t i = 0; i < out->dim_count; i++) {
        const json_t *dim = json_array_get(list, i);
        dims[i] = json_is_integer(dim) && json_integer_value(dim) >= 0 ? (size_t)json_integer_value(dim) : SIZE_MAX;
        if (dims[i] == SIZE_MAX || __builtin_mul_overflow(out->count, dims[i], &out->count))
            return failed("%s: \"dims\" of parameter \"%s\" in \"" RECORDS_KEY "\" are no shape", file, out->name);
    }
    out->dims = dims;
    return EXIT_DONE;
}

int record_read(pool *memory, const char *file, const json_t *record, zoff_checkpoint_param *out)
{
    *out = (zoff_checkpoint_param){.struct_size = sizeof *out, .slices = 1};
    int result = get_name(memory, file, record, "name", &out->name);
    if (result == EXIT_DONE)
        result = get_name(memory, file, record, "slice_name", &out->slice_name);
    if (result == EXIT_DONE)
        result = get_name(memory, file, record, "tied_to", &out->tied_to);
    if (result != EXIT_DONE)
        return result;
    if (!out->name)
        return failed("%s: a record in \"" RECORDS_KEY "\" has no name", file);
    const json_t *slices = json_object_get(record, "slices");
    if (slices && (!json_is_integer(slices) || json_integer_value(slices) < 1))
        return failed("%s: \"slices\" of parameter \"%s\" in \"" RECORDS_KEY "\" is not a number from 1 on", file, out->name);
    out->slices = slices ? (size_t)json_integer_value(slices) : 1;
    out->states = json_is_true(json_object_get(record, "frozen")) ? 1u << ZOFF_STATE_WEIGHTS : 0;
    return out->tied_to ? get_dims(memory, file, record, out) : EXIT_DONE;
}
