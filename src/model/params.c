/* SPDX-License-Identifier: Apache-2.0 */
/* params.c: the list of parameters, and the addresses of their weights and gradients in the program. */
#include "zoff_model.h"

#include "array.h"
#include "bits.h"
#include "log.h"
#include "mem.h"
#include "try.h"
#include "words.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLICES_MAX = 1 << 30, DIMS_MAX = 64 };

/* The product of dimensions. Dimensions beside a 0 count are part of it, because a checkpoint stores each of them, and
 * multiplies them in any order.
 * @return false: it is more than a checkpoint holds */
static bool multiply_dims(const size_t *dims, size_t count, size_t *out)
{
    size_t product = 1;
    bool is_empty = false;
    for (size_t i = 0; i < count; i++) {
        is_empty = is_empty || dims[i] == 0;
        if (dims[i] && (!zoff_base_bits_mul(product, dims[i], &product) || product > ZOFF_MODEL_ELEMENTS_MOST))
            return false;
    }
    *out = is_empty ? 0 : product;
    return true;
}

static zoff_status check_shape(const zoff_param_desc *d, const char *name)
{
    size_t product;
    if (!d->dims) {
        ZOFF_FAIL_IF(d->dim_count, ZOFF_ERR_INVALID,
                     "%s: zoff_param_desc.dim_count is %zu, but dims is NULL; set dims, or dim_count to 0", name, d->dim_count);
        return ZOFF_OK;
    }
    ZOFF_FAIL_IF(d->dim_count == 0, ZOFF_ERR_INVALID,
                 "%s: zoff_param_desc.dims is given, but dim_count is 0; set it to the number of dimensions", name);
    ZOFF_FAIL_IF(d->dim_count > DIMS_MAX, ZOFF_ERR_INVALID,
                 "%s: zoff_param_desc.dim_count is %zu; a parameter has at most %d dimensions", name, d->dim_count,
                 (int)DIMS_MAX);
    ZOFF_FAIL_IF(!multiply_dims(d->dims, d->dim_count, &product), ZOFF_ERR_INVALID,
                 "%s: the product of the %zu dimensions in zoff_param_desc.dims is beyond 2^58, and count is %zu", name,
                 d->dim_count, d->count);
    ZOFF_FAIL_IF(
        product != d->count, ZOFF_ERR_INVALID,
        "%s: the product of the %zu dimensions in zoff_param_desc.dims is %zu, but count is %zu; dims is the shape of one "
        "slice",
        name, d->dim_count, product, d->count);
    return ZOFF_OK;
}

static zoff_status check_matrix_rows(const zoff_param_desc *d, const char *name)
{
    size_t sum = 0;
    ZOFF_FAIL_IF(!d->matrix_rows != !d->matrix_row_count, ZOFF_ERR_INVALID,
                 "%s: zoff_param_desc.matrix_rows is %s, but matrix_row_count is %zu; set both or none", name,
                 d->matrix_rows ? "given" : "NULL", d->matrix_row_count);
    if (!d->matrix_rows)
        return ZOFF_OK;
    ZOFF_FAIL_IF(!d->dims || d->dim_count < 2, ZOFF_ERR_INVALID,
                 "%s: zoff_param_desc.matrix_rows cuts the first of several dimensions, but dims %s; give the shape of a slice",
                 name, d->dims ? "has only one" : "is NULL");
    for (size_t i = 0; i < d->matrix_row_count; i++) {
        ZOFF_FAIL_IF(d->matrix_rows[i] == 0 || d->matrix_rows[i] > d->dims[0] - sum, ZOFF_ERR_INVALID,
                     "%s: number %zu of zoff_param_desc.matrix_rows is %zu, after %zu rows of the %zu in dims[0]; each is at "
                     "least 1, and together they are at most all",
                     name, i, d->matrix_rows[i], sum, d->dims[0]);
        sum += d->matrix_rows[i];
    }
    ZOFF_FAIL_IF(
        d->dims[0] % sum, ZOFF_ERR_INVALID,
        "%s: zoff_param_desc.matrix_rows add up to %zu, which does not divide the %zu rows in dims[0]; their sum, once "
        "or repeated, must be all rows",
        name, sum, d->dims[0]);
    return ZOFF_OK;
}

/* Longer names fit no checkpoint. */
static zoff_status check_names(const char *slice_name, const char *name)
{
    const size_t most = ZOFF_MODEL_NAME_MOST, bytes = strlen(name), slice_bytes = slice_name ? strlen(slice_name) : 0;
    ZOFF_FAIL_IF(bytes > most, ZOFF_ERR_INVALID, "zoff_param_desc.name '%.100s...' has %zu bytes, and may have %zu", name,
                 bytes, most);
    ZOFF_FAIL_IF(slice_bytes > most, ZOFF_ERR_INVALID,
                 "%.100s: zoff_param_desc.slice_name '%.100s...' has %zu bytes, and may have %zu", name, slice_name,
                 slice_bytes, most);
    const char *place = slice_name ? strstr(slice_name, "{}") : NULL;
    ZOFF_FAIL_IF(slice_name && (!place || strstr(place + 2, "{}")), ZOFF_ERR_INVALID,
                 "%s: zoff_param_desc.slice_name is \"%.300s\"; it must contain \"{}\" once, for the index of the slice", name,
                 slice_name);
    return ZOFF_OK;
}

/* Weights and gradients may be written while the dimensions are read. */
static zoff_status check_dims_place(const zoff_param_desc *d, size_t slices, zoff_dtype dtype, zoff_dtype grad_dtype,
                                    const char *name)
{
    const char *buffers[] = {d->value, d->grad}, *dims = (const char *)d->dims;
    const size_t strides[] = {d->value_stride, d->grad_stride};
    for (int i = 0; i < 2 && d->count && dims; i++) {
        const size_t elements = (slices - 1) * zoff_base_bits_max(strides[i], d->count) + d->count;
        const size_t bytes = elements * zoff_adam_dtype_bytes(i ? grad_dtype : dtype);
        ZOFF_FAIL_IF(buffers[i] && dims < buffers[i] + bytes && buffers[i] < dims + d->dim_count * sizeof *d->dims,
                     ZOFF_ERR_INVALID, "%s: dims and %s overlap in memory", name, i ? "grad" : "value");
    }
    return ZOFF_OK;
}

static zoff_status check(const zoff_param_desc *d, const char *name)
{
    zoff_dtype dtype = d->dtype ? d->dtype : ZOFF_F32;
    zoff_dtype grad_dtype = d->grad_dtype ? d->grad_dtype : dtype;
    ZOFF_TRY(check_names(d->slice_name, name));
    ZOFF_FAIL_IF(!zoff_adam_dtype_bytes(dtype), ZOFF_ERR_INVALID, "%s: dtype %d is not a zoff_dtype", name, (int)dtype);
    ZOFF_FAIL_IF(!zoff_adam_dtype_bytes(grad_dtype), ZOFF_ERR_INVALID, "%s: grad_dtype %d is not a zoff_dtype", name,
                 (int)grad_dtype);
    size_t slices = d->slices ? d->slices : 1;
    ZOFF_FAIL_IF(slices > SLICES_MAX, ZOFF_ERR_INVALID, "%s: %zu slices are more than the %d that a parameter may have", name,
                 slices, (int)SLICES_MAX);
    size_t strides[] = {d->value_stride, d->grad_stride};
    for (int i = 0; i < 2; i++) {
        size_t bytes;
        ZOFF_FAIL_IF(strides[i] && strides[i] < d->count && slices > 1, ZOFF_ERR_INVALID,
                     "%s: %s_stride %zu is less than count %zu: the slices would overlap", name, i ? "grad" : "value",
                     strides[i], d->count);
        size_t stride = zoff_base_bits_max(strides[i], d->count);
        ZOFF_FAIL_IF(!zoff_base_bits_mul(stride, slices, &bytes) || !zoff_base_bits_mul(bytes, sizeof(float), &bytes) ||
                         bytes > SIZE_MAX / 2,
                     ZOFF_ERR_INVALID, "%s: %zu slices of %zu elements, %zu apart, are more than fits in memory", name, slices,
                     d->count, stride);
    }
    ZOFF_FAIL_IF((size_t)d->value % zoff_adam_dtype_bytes(dtype) || (size_t)d->grad % zoff_adam_dtype_bytes(grad_dtype),
                 ZOFF_ERR_INVALID, "%s: value and grad must be aligned to their element", name);
    size_t all;
    ZOFF_FAIL_IF(!zoff_base_bits_mul(d->count, slices, &all) || all > ZOFF_MODEL_ELEMENTS_MOST, ZOFF_ERR_INVALID,
                 "%s: %zu slices of %zu elements are more than the 2^58 that a parameter may have", name, slices, d->count);
    ZOFF_TRY(check_shape(d, name));
    ZOFF_TRY(check_matrix_rows(d, name));
    return check_dims_place(d, slices, dtype, grad_dtype, name);
}

/* ---- the names of the configuration ---- */

const char *zoff_model_params_match(const zoff_patterns *patterns, char end, const char *name)
{
    for (size_t i = 0; i < patterns->count; i++) {
        const char *text = patterns->texts[i], *stop = end ? strrchr(text, end) : NULL;
        if (zoff_base_words_match(text, stop ? (size_t)(stop - text) : strlen(text), name))
            return text;
    }
    return NULL;
}

/* The keys that name a parameter; copy_texts() adds zoff.muon_rows. */
static unsigned named_by(const zoff_config_values *v, const char *name)
{
    return (zoff_model_params_match(&v->fp32_moments, 0, name) ? ZOFF_NAMED_FP32_MOMENTS : 0u) |
           (zoff_model_params_match(&v->no_decay, 0, name) ? ZOFF_NAMED_NO_DECAY : 0u) |
           (zoff_model_params_match(&v->muon_params, 0, name) ? ZOFF_NAMED_MUON : 0u) |
           (zoff_model_params_match(&v->adam_params, 0, name) ? ZOFF_NAMED_ADAM : 0u);
}

size_t zoff_model_params_unused(const zoff_model *m, const zoff_patterns *patterns, char end, const char **out_first)
{
    size_t count = 0;
    for (size_t i = 0; i < patterns->count; i++) {
        const zoff_patterns one = {patterns->texts + i, 1};
        bool found = false;
        for (size_t k = 0; k < m->param_count && !found; k++)
            found = zoff_model_params_match(&one, end, m->params[k].name) != NULL;
        *out_first = count || found ? *out_first : one.texts[0];
        count += !found;
    }
    return count;
}

static void warn_of_unused(const zoff_model *m, const char *key, const zoff_patterns *patterns, char end)
{
    const char *first = NULL;
    const size_t count = zoff_model_params_unused(m, patterns, end, &first);
    if (count)
        ZOFF_WARN("%s: %zu of %zu patterns match no parameter of rank 0; the first of them is \"%s\"", key, count,
                  patterns->count, first);
}

void zoff_model_params_warn(const zoff_model *m)
{
    warn_of_unused(m, "zoff.fp32_moments", &m->values->fp32_moments, 0);
    warn_of_unused(m, "zoff.no_decay", &m->values->no_decay, 0);
    warn_of_unused(m, "zoff.muon_params", &m->values->muon_params, 0);
    warn_of_unused(m, "zoff.adam_params", &m->values->adam_params, 0);
    warn_of_unused(m, "zoff.muon_rows", &m->values->muon_rows, '=');
}

/* ---- the parameter of a name ---- */

/* A node of m->names, the tree of tsearch(). */
typedef struct named_param {
    const char *name; /* the parameter's own */
    zoff_param param;
} named_param;

static int by_name(const void *a, const void *b)
{
    const named_param *x = a, *y = b;
    return strcmp(x->name, y->name);
}

const zoff_param *zoff_model_params_find(const zoff_model *m, const char *name)
{
    const named_param *const *found = tfind(&(named_param){.name = name}, &m->names, by_name);
    return found ? &(*found)->param : NULL;
}

static zoff_status note_name(zoff_model *m, const char *name)
{
    named_param *node;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *node, "the name of a parameter", &node));
    *node = (named_param){name, (zoff_param)m->param_count};
    if (tsearch(node, &m->names, by_name))
        return ZOFF_OK;
    zoff_base_mem_free(node);
    return zoff_base_status_fail(ZOFF_ERR_NO_MEMORY, "no memory for the name of a parameter");
}

static void forget_name(zoff_model *m, const char *name)
{
    named_param key = {.name = name}, **found = tfind(&key, &m->names, by_name);
    named_param *node = *found;
    tdelete(&key, &m->names, by_name);
    zoff_base_mem_free(node);
}

static zoff_status check_name_is_new(const zoff_model *m, const char *name)
{
    const zoff_param *found = zoff_model_params_find(m, name);
    ZOFF_FAIL_IF(
        found, ZOFF_ERR_INVALID,
        "parameters %u and %zu are both named '%.200s', and checkpoints find parameters by their names: give each another "
        "zoff_param_desc.name (without one, the name is \"param\" and the number)",
        *found, m->param_count, name);
    return ZOFF_OK;
}

static void free_texts(zoff_model_param *p)
{
    zoff_base_mem_free(p->name);
    zoff_base_mem_free(p->shape.dims);
    zoff_base_mem_free(p->shape.matrices.rows);
    zoff_base_mem_free(p->slice_name);
}

/* Copy what the program may free after the call. */
static zoff_status copy_texts(const zoff_model *m, const zoff_param_desc *d, const char *name, zoff_model_param *p)
{
    const char *entry = d->matrix_rows ? NULL : zoff_model_params_match(&m->values->muon_rows, '=', name);
    p->shape.matrices.row_count = entry ? zoff_config_optimizer_rows(entry, NULL) : d->matrix_row_count;
    if (p->shape.matrices.row_count)
        ZOFF_TRY(zoff_base_mem_alloc(p->shape.matrices.row_count, sizeof *p->shape.matrices.rows, "rows of matrices",
                                     &p->shape.matrices.rows));
    if (entry)
        zoff_config_optimizer_rows(entry, p->shape.matrices.rows);
    else if (d->matrix_rows)
        memcpy(p->shape.matrices.rows, d->matrix_rows, p->shape.matrices.row_count * sizeof *p->shape.matrices.rows);
    p->named |= entry ? ZOFF_NAMED_ROWS : 0;
    ZOFF_TRY(zoff_base_mem_copy_text(name, &p->name));
    p->shape.count = d->dims ? d->dim_count : 1;
    p->shape.is_given = d->dims != NULL;
    ZOFF_TRY(zoff_base_mem_alloc(p->shape.count, sizeof *p->shape.dims, "the shape of a parameter", &p->shape.dims));
    memcpy(p->shape.dims, d->dims ? d->dims : &d->count, p->shape.count * sizeof *p->shape.dims);
    return d->slice_name ? zoff_base_mem_copy_text(d->slice_name, &p->slice_name) : ZOFF_OK;
}

zoff_status zoff_model_params_add(zoff_model *m, const zoff_param_desc *d, zoff_param *out)
{
    char fallback[32];
    snprintf(fallback, sizeof fallback, "param%zu", m->param_count);
    const char *name = d->name ? d->name : fallback;
    ZOFF_FAIL_IF(m->param_count >= UINT32_MAX, ZOFF_ERR_INVALID, "an engine holds at most %u parameters", UINT32_MAX);
    ZOFF_TRY(check(d, name));
    ZOFF_TRY(check_name_is_new(m, name));
    ZOFF_FAIL_IF(
        m->values->split_asked && d->dtype == ZOFF_F16 && !d->frozen, ZOFF_ERR_INVALID,
        "%s: zoff.master is \"split\", and fp16 weights are no half of an fp32 number; set it to \"auto\", or use bf16 "
        "weights",
        name);
    ZOFF_TRY(zoff_base_array_reserve(&m->params, m->param_count, &m->param_capacity, m->param_count + 1, sizeof *m->params,
                                     "the list of parameters"));
    zoff_model_param p = {.value = d->value,
                          .grad = d->grad,
                          .count = d->count,
                          .slices = d->slices ? d->slices : 1,
                          .dtype = d->dtype ? d->dtype : ZOFF_F32,
                          .group = d->group,
                          .frozen = d->frozen,
                          .engine_owned = d->engine_owned,
                          .named = named_by(m->values, name),
                          .norm_replicated = d->norm_replicated,
                          .reduced = d->reduced,
                          .first_flag = m->slice_count};
    p.grad_dtype = d->grad_dtype ? d->grad_dtype : p.dtype;
    p.value_stride = (d->value_stride ? d->value_stride : d->count) * zoff_adam_dtype_bytes(p.dtype);
    p.grad_stride = (d->grad_stride ? d->grad_stride : d->count) * zoff_adam_dtype_bytes(p.grad_dtype);
    zoff_status status = copy_texts(m, d, name, &p);
    if (status == ZOFF_OK)
        status = note_name(m, p.name);
    if (status == ZOFF_OK) {
        status = zoff_model_groups_reserve(m, d->group); /* last, because a list of groups cannot shrink again after an error */
        if (status < 0)
            forget_name(m, p.name);
    }
    if (status < 0) {
        free_texts(&p);
        return status;
    }
    m->params[m->param_count] = p;
    m->groups[p.group].used = m->groups[p.group].used || !p.frozen;
    m->slice_count += p.slices;
    if (out)
        *out = (zoff_param)m->param_count;
    m->param_count++;
    return ZOFF_OK;
}

/* ---- names that an export has ---- */

/* The name of a parameter, or that of one of its slices in an export. */
typedef struct label {
    uint64_t hash; /* hash of the name, so that few names are compared as texts */
    uint32_t param, slice;
} label;

enum { WHOLE = UINT32_MAX, LABEL_BYTES = ZOFF_MODEL_NAME_MOST + 24 };

static void print_label(const zoff_model *m, const label *l, char dst[LABEL_BYTES])
{
    const zoff_model_param *p = &m->params[l->param];
    const char *place = l->slice == WHOLE ? NULL : strstr(p->slice_name, "{}");
    if (place)
        snprintf(dst, LABEL_BYTES, "%.*s%u%s", (int)(place - p->slice_name), p->slice_name, l->slice, place + 2);
    else
        snprintf(dst, LABEL_BYTES, "%s", p->name);
}

static label make_label(const zoff_model *m, size_t param, uint32_t slice)
{
    char text[LABEL_BYTES];
    label l = {.hash = 14695981039346656037u, .param = (uint32_t)param, .slice = slice};
    print_label(m, &l, text);
    for (const char *c = text; *c; c++)
        l.hash = (l.hash ^ (unsigned char)*c) * 1099511628211u; /* FNV-1a */
    return l;
}

static int by_hash(const void *a, const void *b)
{
    const label *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return x->param != y->param ? (x->param < y->param ? -1 : 1) : x->slice < y->slice ? -1 : x->slice > y->slice;
}

/* The slice of a parameter that has only one may have the parameter's name. */
static zoff_status compare_labels(const zoff_model *m, const label *a, const label *b)
{
    char one[LABEL_BYTES], other[LABEL_BYTES];
    print_label(m, a, one);
    print_label(m, b, other);
    if (a->param == b->param || strcmp(one, other) != 0)
        return ZOFF_OK;
    return zoff_base_status_fail(
        ZOFF_ERR_INVALID,
        "zoff_engine_seal: parameter %u ('%.200s') and parameter %u ('%.200s') both have '%.200s' in an "
        "export, where slices are named by zoff_param_desc.slice_name: give one another name",
        a->param, m->params[a->param].name, b->param, m->params[b->param].name, one);
}

static zoff_status compare_all(const zoff_model *m, label *list, size_t count)
{
    size_t at = 0;
    for (size_t i = 0; i < m->param_count; i++) {
        list[at++] = make_label(m, i, WHOLE);
        for (size_t slice = 0; m->params[i].slice_name && slice < m->params[i].slices; slice++)
            list[at++] = make_label(m, i, (uint32_t)slice);
    }
    qsort(list, count, sizeof *list, by_hash);
    for (size_t i = 1; i < count; i++) {
        for (size_t k = i; k > 0 && list[k - 1].hash == list[i].hash; k--)
            ZOFF_TRY(compare_labels(m, &list[k - 1], &list[i]));
    }
    return ZOFF_OK;
}

zoff_status zoff_model_params_check_names(const zoff_model *m)
{
    label *list;
    size_t count = m->param_count;
    for (size_t i = 0; i < m->param_count; i++)
        count += m->params[i].slice_name ? m->params[i].slices : 0;
    if (count == m->param_count) /* names alone differ since they were added */
        return ZOFF_OK;
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *list, "the names of parameters", &list));
    const zoff_status status = compare_all(m, list, count);
    zoff_base_mem_free(list);
    return status;
}

void zoff_model_params_free(zoff_model *m)
{
    tdestroy(m->names, zoff_base_mem_free);
    for (size_t i = 0; i < m->param_count; i++)
        free_texts(&m->params[i]);
    zoff_base_mem_free(m->params);
    zoff_base_mem_free(m->groups);
}

bool zoff_model_params_owns_frozen(const zoff_model *m)
{
    bool owns = false;
    for (size_t i = 0; i < m->param_count; i++)
        owns = owns || (m->params[i].frozen && m->params[i].engine_owned && m->params[i].count);
    return owns;
}

bool zoff_model_params_any_owned(const zoff_model *m)
{
    for (size_t i = 0; i < m->param_count; i++) {
        if (m->params[i].engine_owned)
            return true;
    }
    return false;
}

/* A block has a header, where the moment is in blocks. */
static void add_moment(zoff_moments moments, unsigned stream, zoff_plan_tensor *tensor)
{
    const zoff_moment which = zoff_model_moments_which(stream);
    const size_t one = zoff_adam_moments_size(moments, which, 1), two = zoff_adam_moments_size(moments, which, 2);
    tensor->bytes[stream] = two - one;
    tensor->headers[stream] = one - tensor->bytes[stream];
}

zoff_adam_states zoff_model_params_states(const zoff_model *m, const zoff_model_param *p)
{
    const zoff_matrix_rule *rule = zoff_model_matrices_rule(m, p);
    return rule ? rule->states : zoff_model_groups_states(m, p->group);
}

zoff_plan_tensor zoff_model_params_tensor(const zoff_model *m, const zoff_model_param *p)
{
    const zoff_adam_states states = zoff_model_params_states(m, p);
    zoff_plan_tensor tensor = {.count = p->count,
                               .slices = p->slices,
                               .frozen = p->frozen,
                               .weight_bytes = p->engine_owned ? zoff_adam_dtype_bytes(p->dtype) : 0};
    if (p->frozen)
        return tensor;
    tensor.bytes[ZOFF_STREAM_MASTER] = zoff_model_masters_of(m, p)->bytes;
    tensor.block = ZOFF_NORM_BLOCK;
    if (states.m)
        add_moment(zoff_model_moments_of(m, p), ZOFF_STREAM_M, &tensor);
    if (states.v)
        add_moment(zoff_model_moments_of(m, p), ZOFF_STREAM_V, &tensor);
    return tensor;
}

zoff_param zoff_model_params_owner(const zoff_model *m, zoff_param p)
{
    const bool is_tied = p < m->param_count && m->params[p].tie;
    return is_tied ? m->ties.all[m->params[p].tie - 1].owner : p;
}

bool zoff_model_params_same_shape(const zoff_model_param *a, const zoff_model_param *b)
{
    return a->shape.count == b->shape.count &&
           memcmp(a->shape.dims, b->shape.dims, a->shape.count * sizeof *a->shape.dims) == 0;
}

void zoff_model_params_print_shape(const zoff_model_param *p, char *dst, size_t dst_bytes)
{
    size_t used = (size_t)snprintf(dst, dst_bytes, "[");
    for (size_t i = 0; i < p->shape.count && used < dst_bytes; i++)
        used += (size_t)snprintf(dst + used, dst_bytes - used, "%s%zu", i ? ", " : "", p->shape.dims[i]);
    if (used < dst_bytes)
        snprintf(dst + used, dst_bytes - used, "]");
}

char *zoff_model_params_value(const zoff_model *m, const zoff_plan_piece *piece, char *weights)
{
    const zoff_model_param *p = &m->params[piece->param];
    if (p->engine_owned && weights)
        return weights + piece->weight_offset;
    if (!p->value)
        return NULL;
    return p->value + piece->slice * p->value_stride + piece->first * zoff_adam_dtype_bytes(p->dtype);
}

const char *zoff_model_params_there(const zoff_model *m, const zoff_plan_piece *piece)
{
    const zoff_model_param *p = &m->params[piece->param];
    return p->grad + piece->slice * p->grad_stride + piece->first * zoff_adam_dtype_bytes(p->grad_dtype);
}

/* Gradient buffers as the program passed them. */
zoff_given zoff_model_params_given(const zoff_model *m, size_t i)
{
    const zoff_model_param *p = &m->params[i];
    if (p->tie && zoff_model_params_owner(m, (zoff_param)i) == i)
        return m->ties.all[p->tie - 1].given;
    return (zoff_given){.grad = p->grad, .stride = p->grad_stride, .dtype = p->grad_dtype};
}

char *zoff_model_params_given_grad(const zoff_model *m, zoff_param p, size_t slice, zoff_dtype *out_dtype)
{
    const zoff_given given = zoff_model_params_given(m, p);
    *out_dtype = given.dtype;
    return given.grad ? given.grad + slice * given.stride : NULL;
}

char *zoff_model_params_own_grad(const zoff_model *m, zoff_param p, size_t slice, zoff_dtype *out_dtype)
{
    const zoff_model_param *param = &m->params[p];
    if (param->tie)
        return zoff_model_params_given_grad(m, p, slice, out_dtype);
    *out_dtype = param->grad_dtype;
    return param->grad ? param->grad + slice * param->grad_stride : NULL;
}

bool zoff_model_params_is_given(const zoff_model *m, zoff_param p, size_t slice)
{
    const zoff_model_param *param = &m->params[p];
    return m->flags[param->first_flag + slice] & (param->tie ? ZOFF_SLICE_GIVEN : ZOFF_SLICE_READY);
}

/* Whether a gradient in this buffer was handed over in this step and is not yet reused, under any tied name that passes the
 * buffer. With `mark`, mark them as reused. A slice without a gradient gets no flag: any flag says that it takes part in the
 * step. */
static bool is_in_use(const zoff_model *m, zoff_param p, size_t slice, bool mark)
{
    zoff_dtype dtype;
    bool is_used = false;
    const zoff_tie *tie = m->params[p].tie ? &m->ties.all[m->params[p].tie - 1] : NULL;
    const char *grad = zoff_model_params_own_grad(m, p, slice, &dtype);
    for (size_t k = 0; k < (tie ? tie->count : 1); k++) {
        const zoff_param name = tie ? m->ties.members[tie->first + k] : p;
        uint8_t *flag = &m->flags[m->params[name].first_flag + slice];
        const bool is_it = name == p || zoff_model_params_own_grad(m, name, slice, &dtype) == grad;
        if (!is_it || !zoff_model_params_is_given(m, name, slice))
            continue;
        is_used = is_used || !(*flag & ZOFF_SLICE_REUSED);
        if (mark)
            *flag |= ZOFF_SLICE_REUSED;
    }
    return is_used;
}

void zoff_model_params_reuse(zoff_model *m, zoff_param p, size_t slice)
{
    (void)is_in_use(m, p, slice, true);
}

char *zoff_model_params_grad_to_clear(const zoff_model *m, zoff_param p, size_t slice, size_t *out_bytes)
{
    zoff_dtype dtype;
    char *grad = zoff_model_params_own_grad(m, p, slice, &dtype);
    *out_bytes = m->params[p].count * zoff_adam_dtype_bytes(dtype);
    return is_in_use(m, p, slice, false) ? grad : NULL;
}
