/* match.c: whether a checkpoint is of the engine's model: names, shapes and states. Everything is compared before anything
 * changes, and a message names the first differences. */
#include "checkpoint_priv.h"

#include "bits.h"
#include "try.h"
#include "words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Differences, as many as fit into a message. */
typedef struct differences {
    char text[1200];
    size_t used, count;
} differences;

static void add(differences *d, const char *name, const char *what)
{
    enum { MOST = 6 };
    if (d->count++ < MOST)
        d->used +=
            (size_t)snprintf(d->text + d->used, sizeof d->text - d->used, "%s'%.80s' %.100s", d->used ? "; " : "", name, what);
    d->used = zoff_base_bits_min(d->used, sizeof d->text - 1);
}

/* Whether a name matches one of the patterns, which are separated by spaces. */
static bool is_allowed(const char *allow, const char *name)
{
    for (const char *at = allow; at && *at;) {
        const size_t bytes = strcspn(at, " ");
        if (bytes && zoff_base_words_match(at, bytes, name))
            return true;
        at += bytes + strspn(at + bytes, " ");
    }
    return false;
}

/* ---- names ---- */

typedef struct names {
    const zoff_archive_param *params;
    uint32_t *sorted;
    size_t count;
} names;

static int compare_names(const void *a, const void *b, void *ctx)
{
    const names *n = ctx;
    return strcmp(n->params[*(const uint32_t *)a].name, n->params[*(const uint32_t *)b].name);
}

static zoff_status sort_names(const zoff_archive *a, names *out)
{
    *out = (names){.params = a->manifest.params, .count = a->manifest.param_count};
    ZOFF_TRY(zoff_base_mem_alloc(out->count + 1, sizeof *out->sorted, "names of a checkpoint", &out->sorted));
    for (uint32_t i = 0; i < out->count; i++)
        out->sorted[i] = i;
    qsort_r(out->sorted, out->count, sizeof *out->sorted, compare_names, out);
    return ZOFF_OK;
}

/* 1 + the parameter of the checkpoint with this name; 0: none. */
static uint32_t find_name(const names *n, const char *name)
{
    size_t low = 0, high = n->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = strcmp(n->params[n->sorted[middle]].name, name);
        if (order == 0)
            return n->sorted[middle] + 1;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

/* ---- one parameter ---- */

static void compare_shape(const zoff_model_param *p, const zoff_archive_param *a, differences *d)
{
    char what[128];
    if (p->count != a->count || p->slices != a->slices) {
        snprintf(what, sizeof what, "has %zu slices of %zu elements, here %zu of %zu", a->slices, a->count, p->slices,
                 p->count);
        add(d, p->name, what);
    } else if (p->shape.count > 1 && a->dim_count > 1 && /* one dimension: its program has not told the shape */
               (a->dim_count != p->shape.count || memcmp(p->shape.dims, a->dims, p->shape.count * sizeof *a->dims) != 0)) {
        add(d, p->name, "has other dims");
    }
}

static void compare_states(const zoff_engine_view *v, size_t param, const zoff_archive_param *a, differences *d)
{
    const zoff_model_param *p = &v->model->params[param];
    const unsigned need = zoff_checkpoint_describe_states(v, param, false);
    if (p->frozen && a->states == 0)
        return; /* frozen weights were left out: they stay as they are */
    if (p->frozen != (a->states >> ZOFF_STATE_WEIGHTS & 1))
        add(d, p->name, p->frozen ? "is trained, here frozen" : "is frozen, here trained");
    else if (p->frozen && p->dtype != a->dtype)
        add(d, p->name, "is frozen, and its weights have another type");
    else if ((a->states & need) != need)
        add(d, p->name, "lacks states that its optimizer has here");
    else if (a->states & ~need)
        add(d, p->name, "has states that its optimizer has not here");
}

/* A tied parameter has the states of its owner in the checkpoint, too. The owner comes first in the list. */
static void compare_tie(const zoff_match *m, size_t i, zoff_param owner, uint32_t found, differences *d)
{
    char what[128];
    const zoff_model_param *params = m->view->model->params;
    const uint32_t there = zoff_archive_owner(m->archive, found - 1);
    if (m->to[owner] && zoff_archive_owner(m->archive, m->to[owner] - 1) == there)
        return;
    if (there == found - 1) {
        add(d, params[i].name, "has states of its own, here it is tied to another");
        return;
    }
    snprintf(what, sizeof what, "is tied to '%.30s', here to '%.30s'", m->archive->manifest.params[there].name,
             params[owner].name);
    add(d, params[i].name, what);
}

static void compare_param(const zoff_match *m, size_t i, const char *allow, const names *n, differences *d)
{
    const zoff_model_param *p = &m->view->model->params[i];
    const uint32_t found = find_name(n, p->name);
    if (!found) {
        if (!is_allowed(allow, p->name))
            add(d, p->name, "is not in the checkpoint");
        return;
    }
    const zoff_archive_param *a = &m->archive->manifest.params[found - 1];
    const zoff_archive_param *owner = &m->archive->manifest.params[zoff_archive_owner(m->archive, found - 1)];
    const size_t before = d->count;
    compare_shape(p, a, d);
    const zoff_param owner_here = zoff_model_params_owner(m->view->model, (zoff_param)i);
    if (d->count == before && owner_here == i)
        compare_states(m->view, i, owner, d);
    else if (d->count == before)
        compare_tie(m, i, owner_here, found, d);
    m->to[i] = found;
}

/* ---- all ---- */

static zoff_status compare(const zoff_match *m, const char *allow, const names *n)
{
    differences d = {.count = 0};
    uint8_t *seen;
    const zoff_archive_manifest *manifest = &m->archive->manifest;
    ZOFF_TRY(zoff_base_mem_alloc(manifest->param_count + 1, 1, "names of a checkpoint", &seen));
    for (size_t i = 0; i < m->view->model->param_count; i++) {
        compare_param(m, i, allow, n, &d);
        if (m->to[i])
            seen[m->to[i] - 1] = 1;
    }
    for (size_t i = 0; i < manifest->param_count; i++) {
        if (!seen[i] && !is_allowed(allow, manifest->params[i].name))
            add(&d, manifest->params[i].name, "is in the checkpoint only");
    }
    zoff_base_mem_free(seen);
    ZOFF_FAIL_IF(
        d.count, ZOFF_ERR_INVALID,
        "the checkpoint '%s' is of another model, in %zu places: %s%s. zoff_checkpoint_opts.allow names parameters that may "
        "be missing or extra",
        m->archive->folder, d.count, d.text, d.count > 6 ? "; ..." : "");
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_match_open(const zoff_engine_view *v, const zoff_archive *a, const char *allow, zoff_match *out)
{
    names n;
    zoff_match m = {.view = v, .archive = a};
    ZOFF_TRY(sort_names(a, &n));
    zoff_status status = zoff_base_mem_alloc(v->model->param_count + 1, sizeof *m.to, "parameters of a checkpoint", &m.to);
    if (status == ZOFF_OK)
        status = compare(&m, allow, &n);
    zoff_base_mem_free(n.sorted);
    if (status < 0)
        zoff_checkpoint_match_close(&m);
    else
        *out = m;
    return status;
}

void zoff_checkpoint_match_close(zoff_match *m)
{
    zoff_base_mem_free(m->to);
    m->to = NULL;
}
