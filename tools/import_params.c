/* SPDX-License-Identifier: Apache-2.0 */
/* import_params.c: tensors become parameters: alone, as slices of one parameter, or tied to another one. */
#include "import_params.h"

#include "names.h"
#include "records.h"
#include "verbs.h"

#include <stdlib.h>
#include <string.h>

/* The data that the steps share. */
typedef struct maker {
    const import_files *files;
    import_params *out;
    import_param *special, *tied; /* parameters of records and stacks; parameters without data */
    const char **tied_files;      /* file of the record of each tied parameter */
    size_t special_count, tied_count, room;
    size_t *owner;      /* for each tensor, 1 + the index of its special parameter; 0: none */
    size_t *param;      /* for each tensor that is the first of a parameter, 1 + the index of that parameter; 0: none */
    json_t *names;      /* {encoded name of a parameter: its index} */
    json_t *listed;     /* every name in the metadata of the files */
    json_t *tied_names; /* names among these that are tensors without data of a record */
    const import_options *options;
} maker;

static size_t index_of(const maker *m, const source_tensor *t)
{
    return (size_t)(t - m->files->tensors);
}

/* Take the shape, type and states of a parameter from its first tensor. */
static int set_facts(maker *m, import_param *p)
{
    const st_tensor *t = p->tensors[0]->tensor;
    const bool is_stack = !p->facts.slice_name && p->facts.slices != 1;
    if (is_stack && (t->dim_count == 0 || t->dims[0] != p->facts.slices))
        return failed("%s: tensor \"%s\": its first dimension is not the %zu slices of the parameter",
                      p->tensors[0]->file->path, t->name, p->facts.slices);
    p->facts.struct_size = sizeof p->facts;
    p->facts.dims = t->dims + is_stack;
    p->facts.dim_count = t->dim_count - is_stack;
    p->facts.count = 1;
    for (size_t i = 0; i < p->facts.dim_count; i++)
        p->facts.count *= p->facts.dims[i];
    p->facts.dtype = m->options->dtype ? m->options->dtype : t->dtype;
    if (st_matches(p->facts.name, m->options->frozen))
        p->facts.states = 1u << ZOFF_STATE_WEIGHTS;
    if (!p->facts.states)
        p->facts.states = p->tensors[0]->states ? p->tensors[0]->states : 1u << ZOFF_STATE_MASTER | m->options->moments;
    return EXIT_DONE;
}

/* The slices of a parameter have one type and shape. */
static int compare_slices(const import_param *p)
{
    const st_tensor *first = p->tensors[0]->tensor;
    for (size_t i = 1; i < p->tensor_count; i++) {
        const st_tensor *t = p->tensors[i]->tensor;
        if (t->dtype != first->dtype || t->dim_count != first->dim_count || p->tensors[i]->states != p->tensors[0]->states ||
            memcmp(t->dims, first->dims, t->dim_count * sizeof *t->dims) != 0)
            return failed(
                "%s: tensor \"%s\": has another type, shape or states than \"%s\", so they are not slices of one parameter",
                p->tensors[i]->file->path, t->name, first->name);
    }
    return EXIT_DONE;
}

/* ---- records and stacks ---- */

/* Add a parameter that has tensors of its own.
 * @param whose for messages: the file of its record, or the option */
static int add_special(maker *m, const char *whose, const zoff_checkpoint_param *facts)
{
    import_param *p = &m->special[m->special_count++];
    *p = (import_param){.facts = *facts, .tensor_count = record_tensors(facts)};
    if (p->tensor_count > m->files->tensor_count)
        return failed("%s: parameter \"%s\": would have %zu slices, but there are only %zu tensors", whose, facts->name,
                      p->tensor_count, m->files->tensor_count);
    p->tensors = pool_take(&m->out->memory, p->tensor_count, sizeof *p->tensors);
    for (size_t i = 0; i < p->tensor_count; i++) {
        const char *name = p->tensors ? record_tensor_name(&m->out->memory, facts, i) : NULL;
        if (!name)
            return EXIT_FAILED;
        p->tensors[i] = import_files_find(m->files, name);
        if (!p->tensors[i])
            return failed("%s: parameter \"%s\": its tensor \"%s\" is missing", whose, facts->name, name);
        size_t *owner = &m->owner[index_of(m, p->tensors[i])];
        if (*owner)
            return failed("%s: parameter \"%s\": its tensor \"%s\" belongs to parameter \"%s\", too", whose, facts->name, name,
                          m->special[*owner - 1].facts.name);
        *owner = m->special_count;
    }
    const int result = set_facts(m, p);
    return result == EXIT_DONE ? compare_slices(p) : result;
}

/* Add a tied parameter of a record, and the names of its tensors that the metadata lists. The number of slices is not trusted,
 * so the names end where one is not listed, or belongs to another record. */
static int add_tied_record(maker *m, const char *file, const zoff_checkpoint_param *facts)
{
    m->tied_files[m->tied_count] = file;
    m->tied[m->tied_count++] = (import_param){.facts = *facts};
    for (size_t i = 0; i < record_tensors(facts); i++) {
        const char *name = record_tensor_name(&m->out->memory, facts, i);
        if (!name)
            return EXIT_FAILED;
        if (!json_object_get(m->listed, name) || json_object_get(m->tied_names, name))
            break;
        if (json_object_set_new(m->tied_names, name, json_true()) != 0)
            return failed("%s: out of memory for names", file);
    }
    return EXIT_DONE;
}

static int add_records(maker *m, const st_reader *file, const json_t *records)
{
    size_t i;
    json_t *record;
    json_array_foreach(records, i, record)
    {
        zoff_checkpoint_param facts;
        int result = record_read(&m->out->memory, file->path, record, &facts);
        if (result == EXIT_DONE)
            result = facts.tied_to ? add_tied_record(m, file->path, &facts) : add_special(m, file->path, &facts);
        if (result != EXIT_DONE)
            return result;
    }
    return EXIT_DONE;
}

/* Parse the records of a file; `*out` stays NULL where there are none. */
static int parse_records(const st_reader *file, json_t **out)
{
    const char *text = json_string_value(json_object_get(file->metadata, RECORDS_KEY));
    json_error_t error;
    if (!text)
        return EXIT_DONE;
    *out = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    return json_is_array(*out) ? EXIT_DONE
                               : failed("%s: \"" RECORDS_KEY "\" of its metadata is not a list of records", file->path);
}

/* Add the parameter of a text NAME=PATTERN. */
static int add_stack(maker *m, const char *text)
{
    const char *equals = strchr(text, '=');
    zoff_checkpoint_param facts = {.slice_name = equals + 1};
    facts.name = pool_text(&m->out->memory, text, (size_t)(equals - text));
    if (!facts.name)
        return EXIT_FAILED;
    for (const char *name;
         (name = record_tensor_name(&m->out->memory, &facts, facts.slices)) && import_files_find(m->files, name);)
        facts.slices++;
    return facts.slices > 0 ? add_special(m, "--stack", &facts)
                            : failed("--stack %s: there is no tensor of this pattern with 0 for {}", text);
}

/* ---- all parameters ---- */

/* Add a parameter to the result, which must not have its name yet. */
static int emit(maker *m, const import_param *p)
{
    const char *key = name_encode(&m->out->memory, p->facts.name);
    if (!key)
        return EXIT_FAILED;
    if (json_object_get(m->names, key))
        return failed("two parameters would be named \"%s\"; choose another name in --stack, or leave one out with --skip",
                      p->facts.name);
    if (json_object_set_new(m->names, key, json_integer((json_int_t)m->out->count)) != 0)
        return failed("out of memory for the name of parameter \"%s\"", p->facts.name);
    m->out->params[m->out->count++] = *p;
    return EXIT_DONE;
}

/* Emit the parameter of one tensor. */
static int emit_whole(maker *m, const source_tensor *t)
{
    import_param p = {.tensor_count = 1, .facts = {.name = t->tensor->name, .slices = 1}};
    p.tensors = pool_take(&m->out->memory, 1, sizeof *p.tensors);
    if (!p.tensors)
        return EXIT_FAILED;
    p.tensors[0] = t;
    const int result = set_facts(m, &p);
    return result == EXIT_DONE ? emit(m, &p) : result;
}

static int emit_owners(maker *m)
{
    int result = EXIT_DONE;
    for (size_t i = 0; i < m->files->tensor_count && result == EXIT_DONE; i++) {
        const source_tensor *t = &m->files->tensors[i];
        const import_param *special = m->owner[i] ? &m->special[m->owner[i] - 1] : NULL;
        if (special && special->tensors[0] != t)
            continue;
        result = special ? emit(m, special) : emit_whole(m, t);
        m->param[i] = m->out->count;
    }
    return result;
}

/* Emit a tied parameter, after all that are not tied. */
static int emit_tied(maker *m, const char *file, const import_param *tied)
{
    import_param p = *tied;
    const char *key = name_encode(&m->out->memory, p.facts.tied_to);
    const json_t *index = key ? json_object_get(m->names, key) : NULL;
    const import_param *owner = index ? &m->out->params[json_integer_value(index)] : NULL;
    if (!owner || owner->facts.tied_to)
        return failed("%s: parameter \"%s\" is tied to \"%s\", which has no tensor", file, p.facts.name, p.facts.tied_to);
    if (p.facts.count != owner->facts.count || p.facts.slices != owner->facts.slices)
        return failed("%s: parameter \"%s\" is tied to \"%s\", which has another size", file, p.facts.name, p.facts.tied_to);
    p.facts.states = owner->facts.states;
    p.facts.dtype = owner->facts.dtype;
    m->out->tied_count++;
    return emit(m, &p);
}

/* Emit a tied parameter for each text of metadata that is the name of a tensor, unless a record describes it. Files of the
 * reference implementation have such texts: {name without data: name with data}. */
static int emit_tied_names(maker *m, const st_reader *file)
{
    const char *name;
    json_t *value;
    json_object_foreach(file->metadata, name, value)
    {
        const source_tensor *t = import_files_find(m->files, json_string_value(value));
        if (!t || strcmp(name, "format") == 0 || import_files_find(m->files, name) || json_object_get(m->tied_names, name))
            continue;
        const size_t index = m->param[index_of(m, t)];
        const import_param *owner = index ? &m->out->params[index - 1] : NULL;
        if (!owner || owner->facts.slice_name)
            return failed("%s: tensor \"%s\" is tied to \"%s\", which is a slice of a parameter; leave out its --stack",
                          file->path, name, t->tensor->name);
        import_param tied = {.facts = owner->facts};
        tied.facts.name = name;
        tied.facts.tied_to = owner->facts.name;
        if (json_object_set_new(m->tied_names, name, json_true()) != 0)
            return failed("%s: out of memory for names", file->path);
        const int result = emit_tied(m, file->path, &tied);
        if (result != EXIT_DONE)
            return result;
    }
    return EXIT_DONE;
}

/* Allocate for the most that the files can have. */
static int take_memory(maker *m, const json_t *const *records)
{
    size_t metadata = 0;
    m->room = m->options->stack_count;
    for (size_t i = 0; i < m->files->file_count; i++) {
        m->room += json_array_size(records[i]);
        metadata += json_object_size(m->files->files[i].metadata);
        if (m->files->files[i].metadata && json_object_update(m->listed, m->files->files[i].metadata) != 0)
            return failed("%s: out of memory for names", m->files->files[i].path);
    }
    pool *memory = &m->out->memory;
    m->special = pool_take(memory, m->room, sizeof *m->special);
    m->tied = pool_take(memory, m->room, sizeof *m->tied);
    m->tied_files = pool_take(memory, m->room, sizeof *m->tied_files);
    m->owner = pool_take(memory, m->files->tensor_count, sizeof *m->owner);
    m->param = pool_take(memory, m->files->tensor_count, sizeof *m->param);
    m->out->params = pool_take(memory, m->files->tensor_count + m->room + metadata, sizeof *m->out->params);
    return m->special && m->tied && m->tied_files && m->owner && m->param && m->out->params ? EXIT_DONE : EXIT_FAILED;
}

static int make(maker *m, json_t **records)
{
    const size_t file_count = m->files->file_count;
    int result = EXIT_DONE;
    for (size_t i = 0; i < file_count && result == EXIT_DONE; i++)
        result = parse_records(&m->files->files[i], &records[i]);
    if (result == EXIT_DONE)
        result = take_memory(m, (const json_t *const *)records);
    for (size_t i = 0; i < file_count && result == EXIT_DONE; i++)
        result = add_records(m, &m->files->files[i], records[i]);
    for (size_t i = 0; i < m->options->stack_count && result == EXIT_DONE; i++)
        result = add_stack(m, m->options->stacks[i]);
    if (result == EXIT_DONE)
        result = emit_owners(m);
    for (size_t i = 0; i < m->tied_count && result == EXIT_DONE; i++)
        result = emit_tied(m, m->tied_files[i], &m->tied[i]);
    for (size_t i = 0; i < file_count && result == EXIT_DONE; i++)
        result = emit_tied_names(m, &m->files->files[i]);
    return result;
}

int import_params_make(import_params *p, const import_files *f, const import_options *o)
{
    *p = (import_params){0};
    maker m = {
        .files = f, .out = p, .options = o, .names = json_object(), .listed = json_object(), .tied_names = json_object()};
    json_t **records = calloc(f->file_count + 1, sizeof *records);
    const int result =
        records && m.names && m.listed && m.tied_names ? make(&m, records) : failed("out of memory for the parameters");
    for (size_t i = 0; records && i < f->file_count; i++)
        json_decref(records[i]);
    free(records);
    json_decref(m.names);
    json_decref(m.listed);
    json_decref(m.tied_names);
    return result;
}

void import_params_free(import_params *p)
{
    pool_free(&p->memory);
    *p = (import_params){0};
}
