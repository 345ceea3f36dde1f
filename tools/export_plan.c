/* export_plan.c: names and shapes of tensors, their files, and the metadata that records ties and slices. */
#include "export_plan.h"

#include "dtype.h"
#include "records.h"
#include "verbs.h"

#include <stdlib.h>
#include <string.h>

/* The data that the steps of planning share. */
typedef struct planner {
    export_plan *plan;
    zoff_checkpoint_reader *reader;
    zoff_checkpoint_param *params;
    size_t param_count;
    size_t *first_tensor; /* index of the first tensor of each parameter */
    json_t *names;        /* every name in use */
    zoff_dtype dtype;
} planner;

/* Set the shape of a slice, preceded by the number of slices if they are one tensor. */
static int set_shape(planner *m, const zoff_checkpoint_param *p, st_tensor *t)
{
    const bool is_stack = !p->slice_name && p->slices != 1;
    t->dim_count = p->dim_count + is_stack;
    t->dims = p->dims;
    t->count = is_stack ? (uint64_t)p->count * p->slices : p->count;
    if (!is_stack)
        return EXIT_DONE;
    size_t *dims = pool_take(&m->plan->memory, t->dim_count, sizeof *dims);
    if (!dims)
        return EXIT_FAILED;
    dims[0] = p->slices;
    memcpy(dims + 1, p->dims, p->dim_count * sizeof *dims);
    t->dims = dims;
    return EXIT_DONE;
}

/* Take a name once, because two names may become one by encoding, or by their slices. */
static int take_name(planner *m, const zoff_checkpoint_param *p, const char *name)
{
    if (!name)
        return EXIT_FAILED;
    if (json_object_get(m->names, name))
        return failed("parameter \"%s\": its tensor would be named \"%s\", as another one; give the parameters other names, or "
                      "another zoff_param_desc.slice_name",
                      p->name, name);
    return json_object_set_new(m->names, name, json_true()) == 0 ? EXIT_DONE : failed("out of memory for names");
}

static int add_tensors(planner *m, size_t index)
{
    const zoff_checkpoint_param *p = &m->params[index];
    const bool has_masters = p->states >> ZOFF_STATE_MASTER & 1;
    if (!p->states) { /* left out by zoff_checkpoint_opts.skip_frozen */
        m->plan->missing_count++;
        return EXIT_DONE;
    }
    const zoff_dtype own = p->dtype == ZOFF_DTYPE_DEFAULT ? ZOFF_F32 : p->dtype;
    if (!has_masters && !record_is_frozen(p))
        return failed("parameter \"%s\": the checkpoint has neither masters nor weights of it", p->name);
    m->first_tensor[index] = m->plan->tensor_count;
    for (size_t i = 0; i < record_tensors(p); i++) {
        planned_tensor *t = &m->plan->tensors[m->plan->tensor_count++];
        *t = (planned_tensor){
            .param = index,
            .kind = has_masters ? ZOFF_STATE_MASTER : ZOFF_STATE_WEIGHTS,
            .first = (uint64_t)p->count * i,
            .tensor = {.name = record_tensor_name(&m->plan->memory, p, i), .dtype = m->dtype ? m->dtype : own}};
        int result = take_name(m, p, t->tensor.name);
        if (result == EXIT_DONE)
            result = set_shape(m, p, &t->tensor);
        if (result != EXIT_DONE)
            return result;
        m->plan->data_bytes += t->tensor.count * dtype_bytes(t->tensor.dtype);
    }
    return EXIT_DONE;
}

/* ---- files ---- */

/* Fill one file after the other, in the order of parameters. */
static void choose_shards(export_plan *plan, uint64_t shard_bytes)
{
    uint64_t filled = 0;
    for (size_t i = 0; i < plan->tensor_count; i++) {
        planned_tensor *t = &plan->tensors[i];
        const uint64_t bytes = t->tensor.count * dtype_bytes(t->tensor.dtype);
        if (filled > 0 && bytes > 0 && (bytes > shard_bytes || filled > shard_bytes - bytes)) {
            plan->shard_count++;
            filled = 0;
        }
        filled += bytes;
        t->shard = plan->shard_count;
    }
    plan->shard_count++;
}

/* ---- metadata ---- */

/* The metadata of a file, which is made if there is none yet. Loaders of Python want "format": "pt". */
static json_t *metadata_of(export_plan *plan, size_t shard)
{
    while (json_array_size(plan->shards) <= shard) {
        if (json_array_append_new(plan->shards, json_pack("{s:s}", "format", "pt")) != 0)
            return NULL;
    }
    return json_array_get(plan->shards, shard);
}

/* Add a record to the list of a file, which becomes a text when all are there. */
static int add_record(export_plan *plan, const zoff_checkpoint_param *p, size_t shard)
{
    json_t *metadata = metadata_of(plan, shard), *records = json_object_get(metadata, RECORDS_KEY);
    if (metadata && !records) {
        json_object_set_new(metadata, RECORDS_KEY, json_array());
        records = json_object_get(metadata, RECORDS_KEY);
    }
    const bool works = records && json_array_append_new(records, record_make(p)) == 0;
    return works ? EXIT_DONE : failed("out of memory for the record of parameter \"%s\"", p->name);
}

/* Record a tied parameter, and its tensors as the reference implementation does: {name without data: name with data}. */
static int add_tie(planner *m, const zoff_checkpoint_param *p)
{
    size_t owner;
    if (zoff_checkpoint_reader_find(m->reader, p->tied_to, &owner) < 0)
        return library_error();
    const zoff_checkpoint_param *o = &m->params[owner];
    if (o->tied_to)
        return failed("parameter \"%s\" is tied to \"%s\", which is tied itself", p->name, p->tied_to);
    const planned_tensor *with_data = &m->plan->tensors[m->first_tensor[owner]];
    const size_t count = record_tensors(o);
    const bool is_alike = !p->slice_name == !o->slice_name && p->slices == o->slices && p->dim_count == o->dim_count &&
                          memcmp(p->dims, o->dims, p->dim_count * sizeof *p->dims) == 0;
    for (size_t i = 0; is_alike && i < count; i++) {
        const char *name = record_tensor_name(&m->plan->memory, p, i);
        const int result = take_name(m, p, name);
        if (result != EXIT_DONE)
            return result;
        json_t *kept = json_string(with_data[i].tensor.name), *metadata = metadata_of(m->plan, with_data[i].shard);
        /* a name such as "format" is taken */
        const bool is_free = strcmp(name, RECORDS_KEY) != 0 && !json_object_get(metadata, name);
        const bool works =
            json_object_set(m->plan->aliases, name, kept) == 0 && (!is_free || json_object_set(metadata, name, kept) == 0);
        json_decref(kept);
        if (!works)
            return failed("out of memory for the names of parameter \"%s\"", p->name);
    }
    m->plan->alias_count++;
    return add_record(m->plan, p, count > 0 ? with_data->shard : 0);
}

/* Replace each list of records by its text, because metadata has texts only. */
static int close_records(export_plan *plan)
{
    for (size_t i = 0; i < plan->shard_count; i++) {
        json_t *metadata = metadata_of(plan, i), *records = json_object_get(metadata, RECORDS_KEY);
        char *text = records ? json_dumps(records, JSON_COMPACT) : NULL;
        const bool works =
            metadata && (!records || (text && json_object_set_new(metadata, RECORDS_KEY, json_string(text)) == 0));
        free(text);
        if (!works)
            return failed("out of memory for the records of parameters");
    }
    return EXIT_DONE;
}

static int add_metadata(planner *m)
{
    int result = EXIT_DONE;
    for (size_t i = 0; i < m->param_count && result == EXIT_DONE; i++) {
        const zoff_checkpoint_param *p = &m->params[i];
        const size_t tensor = m->first_tensor[i];
        if (p->tied_to)
            result = add_tie(m, p);
        else if (p->states && record_is_needed(p))
            result = add_record(m->plan, p, tensor < m->plan->tensor_count ? m->plan->tensors[tensor].shard : 0);
    }
    return result == EXIT_DONE ? close_records(m->plan) : result;
}

/* ---- all of it ---- */

static int read_params(planner *m)
{
    zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
    size_t tensors = 0;
    if (zoff_checkpoint_reader_info(m->reader, &info) < 0)
        return library_error();
    m->param_count = info.param_count;
    m->params = pool_take(&m->plan->memory, info.param_count, sizeof *m->params);
    m->first_tensor = pool_take(&m->plan->memory, info.param_count, sizeof *m->first_tensor);
    if (!m->params || !m->first_tensor)
        return EXIT_FAILED;
    for (size_t i = 0; i < info.param_count; i++) {
        m->params[i].struct_size = sizeof *m->params;
        if (zoff_checkpoint_reader_param(m->reader, i, &m->params[i]) < 0)
            return library_error();
        tensors += m->params[i].tied_to ? 0 : record_tensors(&m->params[i]);
    }
    m->plan->tensors = pool_take(&m->plan->memory, tensors, sizeof *m->plan->tensors);
    return m->plan->tensors ? EXIT_DONE : EXIT_FAILED;
}

int export_plan_make(export_plan *plan, zoff_checkpoint_reader *r, zoff_dtype dtype, uint64_t shard_bytes)
{
    *plan = (export_plan){.aliases = json_object(), .shards = json_array()};
    planner m = {.plan = plan, .reader = r, .dtype = dtype, .names = json_object()};
    int result = plan->aliases && plan->shards && m.names ? EXIT_DONE : failed("out of memory for names");
    if (result == EXIT_DONE)
        result = read_params(&m);
    for (size_t i = 0; i < m.param_count && result == EXIT_DONE; i++) {
        if (!m.params[i].tied_to)
            result = add_tensors(&m, i);
    }
    if (result == EXIT_DONE) {
        choose_shards(plan, shard_bytes);
        result = add_metadata(&m);
    }
    json_decref(m.names);
    return result;
}

void export_plan_free(export_plan *plan)
{
    json_decref(plan->aliases);
    json_decref(plan->shards);
    pool_free(&plan->memory);
    *plan = (export_plan){0};
}
