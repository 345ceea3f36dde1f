/* SPDX-License-Identifier: Apache-2.0 */
/* export_plan.c: names and shapes of tensors, their files, and the metadata that records ties and slices. */
#include "export_plan.h"

#include "dtype.h"
#include "names.h"
#include "records.h"
#include "verbs.h"

#include <stdlib.h>
#include <string.h>

/* The tensors that are exported of a parameter. */
typedef struct chosen {
    const char **names;  /* name of each tensor; NULL: it is left out. NULL: all are */
    const char **before; /* names in the checkpoint, for messages */
    bool is_whole;       /* the tensors make the parameter; otherwise each is one of its own */
    size_t holder;       /* a tied parameter: the one whose tensors have its data; itself: none has */
    size_t first_tensor; /* index in the plan */
} chosen;

/* The data that the steps of planning share. */
typedef struct planner {
    export_plan *plan;
    zoff_checkpoint_reader *reader;
    const export_choice *choice;
    bool *only_matched, *rename_matched, *rename_used; /* by pattern */
    zoff_checkpoint_param *params;                     /* with the names that they have in the export */
    chosen *chosen;
    size_t param_count;
    const char *first_name; /* name of the first tensor of the checkpoint, as an example in messages */
    json_t *names;          /* {name in use: its name in the checkpoint} */
    zoff_dtype dtype;
} planner;

/* ---- the choice ---- */

static bool is_wanted(planner *m, const char *name, bool is_there)
{
    bool wanted = !m->choice->only;
    for (size_t i = 0; m->choice->only && m->choice->only[i]; i++) {
        const char *const pattern[] = {m->choice->only[i], NULL};
        const bool matches = st_matches(name, pattern);
        m->only_matched[i] = m->only_matched[i] || (matches && is_there);
        wanted = wanted || matches;
    }
    return wanted;
}

/* Match a name with a pattern of --rename.  @return the text for "*"; NULL: it does not match */
static const char *match(const char *from, const char *name, size_t *out_bytes)
{
    const char *star = strchr(from, '*');
    const size_t bytes = strlen(name), before = star ? (size_t)(star - from) : 0, behind = star ? strlen(star + 1) : 0;
    *out_bytes = star ? bytes - before - behind : 0;
    if (!star)
        return strcmp(from, name) == 0 ? name : NULL;
    const bool matches =
        bytes >= before + behind && strncmp(from, name, before) == 0 && strcmp(star + 1, name + bytes - behind) == 0;
    return matches ? name + before : NULL;
}

/* Put a text in place of each "*".  @return as pool_take() */
static char *fill_in(pool *p, const char *to, const char *text, size_t bytes)
{
    size_t stars = 0;
    for (const char *c = to; *c; c++)
        stars += *c == '*';
    char *name = pool_take(p, strlen(to) + stars * bytes + 1, 1), *at = name;
    for (; name && *to; to++) {
        memcpy(at, *to == '*' ? text : to, *to == '*' ? bytes : 1);
        at += *to == '*' ? bytes : 1;
    }
    return name;
}

/* The new name of a tensor, or of the pattern of slices: that of the first --rename that matches.  @return as pool_take() */
static const char *rename_tensor(planner *m, const char *name, bool is_pattern)
{
    const char *renamed = NULL;
    for (size_t i = 0; i < m->choice->rename_count; i++) {
        size_t bytes;
        const export_rename *r = &m->choice->renames[i];
        const char *text = match(r->from, name, &bytes);
        m->rename_matched[i] = m->rename_matched[i] || (text && !is_pattern);
        if (!text || renamed)
            continue;
        m->rename_used[i] = true;
        renamed = fill_in(&m->plan->memory, r->to, text, bytes);
        if (!renamed)
            return NULL;
    }
    return renamed ? renamed : name;
}

/* Undo name_of_tensor() of a whole name.  @return NULL: no parameter has a tensor of this name */
static const char *name_behind(planner *m, const char *tensor)
{
    if (name_is_plain(tensor))
        return *tensor ? tensor : NULL;
    const char *name = name_is_utf8(tensor) ? name_decode(&m->plan->memory, tensor) : NULL;
    const char *again = name ? name_of_tensor(&m->plan->memory, name, NAME_WHOLE) : NULL;
    return again && strcmp(again, tensor) == 0 ? name : NULL;
}

/* Let a parameter of several slices keep its record, with another pattern of their names. */
static bool rename_slices(planner *m, zoff_checkpoint_param *p, const chosen *c)
{
    const char *pattern = name_of_tensor(&m->plan->memory, p->slice_name, NAME_WHOLE);
    pattern = pattern ? rename_tensor(m, pattern, true) : NULL;
    pattern = pattern ? name_behind(m, pattern) : NULL;
    for (size_t i = 0; pattern && i < p->slices; i++) {
        const char *name = name_of_tensor(&m->plan->memory, pattern, i);
        if (!name || strcmp(name, c->names[i]) != 0 || !strstr(pattern, "{}"))
            return false;
    }
    p->slice_name = pattern ? pattern : p->slice_name;
    return pattern;
}

static int choose(planner *m, size_t index)
{
    zoff_checkpoint_param *p = &m->params[index];
    chosen *c = &m->chosen[index];
    const size_t count = record_tensors(p);
    size_t wanted = 0;
    bool renamed = false;
    c->names = pool_take(&m->plan->memory, count, sizeof *c->names);
    c->before = pool_take(&m->plan->memory, count, sizeof *c->before);
    if (!c->names || !c->before)
        return EXIT_FAILED;
    for (size_t i = 0; i < count; i++) {
        c->before[i] = record_tensor_name(&m->plan->memory, p, i);
        if (!c->before[i])
            return EXIT_FAILED;
        m->first_name = m->first_name ? m->first_name : c->before[i];
        if (!is_wanted(m, c->before[i], p->states))
            continue;
        wanted++;
        c->names[i] = p->states ? rename_tensor(m, c->before[i], false) : c->before[i];
        if (!c->names[i])
            return EXIT_FAILED;
        renamed = renamed || c->names[i] != c->before[i];
        if (c->names[i] != c->before[i] && !name_behind(m, c->names[i]))
            return failed(
                "--rename: tensor \"%s\" cannot be named \"%s\": a name is UTF-8, not empty, and not \"__metadata__\"",
                c->before[i], c->names[i]);
    }
    c->is_whole = wanted == count;
    c->names = wanted || count == 0 ? c->names : NULL;
    if (c->is_whole && renamed && p->slice_name)
        c->is_whole = rename_slices(m, p, c);
    else if (c->is_whole && renamed)
        p->name = name_behind(m, c->names[0]);
    return EXIT_DONE;
}

static int check_patterns(const planner *m)
{
    for (size_t i = 0; m->choice->only && m->choice->only[i]; i++) {
        if (!m->only_matched[i])
            return failed("--only \"%s\" matches no tensor of the checkpoint, whose first one is \"%s\"", m->choice->only[i],
                          m->first_name ? m->first_name : "");
    }
    for (size_t i = 0; i < m->choice->rename_count; i++) {
        const export_rename *r = &m->choice->renames[i];
        if (!m->rename_matched[i])
            return failed("--rename \"%s=%s\" matches no tensor%s; the first one of the checkpoint is \"%s\"", r->from, r->to,
                          m->choice->only ? " that --only chooses" : "", m->first_name ? m->first_name : "");
        if (!m->rename_used[i])
            return failed("--rename \"%s=%s\": an earlier --rename has all of its tensors; put it before that one", r->from,
                          r->to);
    }
    return EXIT_DONE;
}

/* Let a tied parameter have the data of its owner, or of another one that is tied to it, if that is exported as a whole.
 * Otherwise it has a copy of its own. */
static int choose_holder(planner *m, size_t index, size_t *holders)
{
    size_t owner;
    zoff_checkpoint_param *p = &m->params[index];
    chosen *c = &m->chosen[index];
    if (zoff_checkpoint_reader_find(m->reader, p->tied_to, &owner) < 0)
        return library_error();
    if (holders[owner] == 0 && m->chosen[owner].names && m->chosen[owner].is_whole)
        holders[owner] = owner + 1;
    if (c->names && c->is_whole && holders[owner])
        c->holder = holders[owner] - 1;
    else if (c->names && c->is_whole)
        holders[owner] = index + 1;
    p->tied_to = c->holder != index ? m->params[c->holder].name : NULL;
    return EXIT_DONE;
}

/* ---- tensors ---- */

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

/* Take a name once, because two names may become one by encoding, by their slices, or by --rename. */
static int take_name(planner *m, const zoff_checkpoint_param *p, const char *name, const char *before)
{
    const char *other = json_string_value(json_object_get(m->names, name));
    if (other && m->choice->rename_count)
        return failed("tensors \"%s\" and \"%s\" would both be named \"%s\"; change --rename", other, before, name);
    if (other)
        return failed("parameter \"%s\": its tensor would be named \"%s\", as another one; give the parameters other names, or "
                      "another zoff_param_desc.slice_name",
                      p->name, name);
    return json_object_set_new(m->names, name, json_string(before)) == 0 ? EXIT_DONE : failed("out of memory for names");
}

static int add_tensors(planner *m, size_t index)
{
    const zoff_checkpoint_param *p = &m->params[index];
    chosen *c = &m->chosen[index];
    const bool has_masters = p->states >> ZOFF_STATE_MASTER & 1;
    if (!c->names)
        return EXIT_DONE;
    if (!p->states) { /* left out by zoff_checkpoint_opts.skip_frozen */
        m->plan->missing_count++;
        return EXIT_DONE;
    }
    const zoff_dtype own = p->dtype == ZOFF_DTYPE_DEFAULT ? ZOFF_F32 : p->dtype;
    if (!has_masters && !record_is_frozen(p))
        return failed("parameter \"%s\": the checkpoint has neither masters nor weights of it", p->name);
    c->first_tensor = m->plan->tensor_count;
    for (size_t i = 0; i < record_tensors(p); i++) {
        if (!c->names[i])
            continue;
        planned_tensor *t = &m->plan->tensors[m->plan->tensor_count++];
        *t = (planned_tensor){.param = index,
                              .kind = has_masters ? ZOFF_STATE_MASTER : ZOFF_STATE_WEIGHTS,
                              .first = (uint64_t)p->count * i,
                              .tensor = {.name = c->names[i], .dtype = m->dtype ? m->dtype : own}};
        int result = take_name(m, p, t->tensor.name, c->before[i]);
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
static int add_tie(planner *m, size_t index)
{
    const zoff_checkpoint_param *p = &m->params[index], *o = &m->params[m->chosen[index].holder];
    const chosen *c = &m->chosen[index];
    const planned_tensor *with_data = &m->plan->tensors[m->chosen[c->holder].first_tensor];
    const size_t count = record_tensors(o);
    const bool is_alike = !p->slice_name == !o->slice_name && p->slices == o->slices && p->dim_count == o->dim_count &&
                          memcmp(p->dims, o->dims, p->dim_count * sizeof *p->dims) == 0;
    for (size_t i = 0; is_alike && i < count; i++) {
        const char *name = c->names[i];
        const int result = take_name(m, p, name, c->before[i]);
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

/* Record tensors that are parameters of their own, because not all slices are there, or their names have no pattern. */
static int add_single_records(planner *m, size_t index)
{
    int result = EXIT_DONE;
    const chosen *c = &m->chosen[index];
    size_t tensor = c->first_tensor;
    for (size_t i = 0; i < record_tensors(&m->params[index]) && result == EXIT_DONE; i++) {
        if (!c->names[i])
            continue;
        zoff_checkpoint_param one = m->params[index];
        one.name = name_behind(m, c->names[i]);
        one.slice_name = NULL;
        one.slices = 1;
        if (one.name && record_is_needed(&one))
            result = add_record(m->plan, &one, m->plan->tensors[tensor].shard);
        tensor++;
    }
    return result;
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
        const chosen *c = &m->chosen[i];
        if (!c->names || !p->states)
            continue;
        if (p->tied_to)
            result = add_tie(m, i);
        else if (!c->is_whole)
            result = add_single_records(m, i);
        else if (record_is_needed(p))
            result =
                add_record(m->plan, p, c->first_tensor < m->plan->tensor_count ? m->plan->tensors[c->first_tensor].shard : 0);
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
    m->chosen = pool_take(&m->plan->memory, info.param_count, sizeof *m->chosen);
    if (!m->params || !m->chosen)
        return EXIT_FAILED;
    for (size_t i = 0; i < info.param_count; i++) {
        m->params[i].struct_size = sizeof *m->params;
        m->chosen[i].holder = i;
        if (zoff_checkpoint_reader_param(m->reader, i, &m->params[i]) < 0)
            return library_error();
        tensors += record_tensors(&m->params[i]);
    }
    m->plan->tensors = pool_take(&m->plan->memory, tensors, sizeof *m->plan->tensors);
    return m->plan->tensors ? EXIT_DONE : EXIT_FAILED;
}

static int choose_all(planner *m)
{
    size_t patterns = 0;
    while (m->choice->only && m->choice->only[patterns])
        patterns++;
    m->only_matched = pool_take(&m->plan->memory, patterns, sizeof *m->only_matched);
    m->rename_matched = pool_take(&m->plan->memory, m->choice->rename_count, sizeof *m->rename_matched);
    m->rename_used = pool_take(&m->plan->memory, m->choice->rename_count, sizeof *m->rename_used);
    size_t *holders = pool_take(&m->plan->memory, m->param_count, sizeof *holders); /* by owner: 1 + who has its data */
    int result = m->only_matched && m->rename_matched && m->rename_used && holders ? EXIT_DONE : EXIT_FAILED;
    for (size_t i = 0; i < m->param_count && result == EXIT_DONE; i++)
        result = choose(m, i);
    if (result == EXIT_DONE)
        result = check_patterns(m);
    for (size_t i = 0; i < m->param_count && result == EXIT_DONE; i++)
        result = m->params[i].tied_to ? choose_holder(m, i, holders) : EXIT_DONE;
    return result;
}

int export_plan_make(export_plan *plan, zoff_checkpoint_reader *r, const export_choice *choice, zoff_dtype dtype,
                     uint64_t shard_bytes)
{
    *plan = (export_plan){.aliases = json_object(), .shards = json_array()};
    planner m = {.plan = plan, .reader = r, .choice = choice, .dtype = dtype, .names = json_object()};
    int result = plan->aliases && plan->shards && m.names ? EXIT_DONE : failed("out of memory for names");
    if (result == EXIT_DONE)
        result = read_params(&m);
    if (result == EXIT_DONE)
        result = choose_all(&m);
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
