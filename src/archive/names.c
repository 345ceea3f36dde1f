/* SPDX-License-Identifier: Apache-2.0 */
/* names.c: parameters by name. A checkpoint may have 100,000 of them, so nothing searches their list from its start. */
#include "archive.h"

#include "try.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    return strcmp((*(const zoff_archive_param *const *)a)->name, (*(const zoff_archive_param *const *)b)->name);
}

static int compare_name(const void *key, const void *b)
{
    return strcmp(key, (*(const zoff_archive_param *const *)b)->name);
}

zoff_status zoff_archive_names_sort(const zoff_archive_param *params, size_t count, const zoff_archive_param ***out)
{
    const zoff_archive_param **sorted;
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *sorted, "names of parameters", &sorted));
    for (size_t i = 0; i < count; i++)
        sorted[i] = &params[i];
    qsort(sorted, count, sizeof *sorted, compare);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) != 0)
            continue;
        const char *name = sorted[i]->name;
        zoff_base_mem_free(sorted);
        return zoff_base_status_fail(ZOFF_ERR_INVALID, "there are two parameters '%.200s'", name);
    }
    *out = sorted;
    return ZOFF_OK;
}

const zoff_archive_param *zoff_archive_names_find(const zoff_archive_param *const *sorted, size_t count, const char *name)
{
    const zoff_archive_param *const *found = bsearch(name, sorted, count, sizeof *sorted, compare_name);
    return found ? *found : NULL;
}

zoff_status zoff_archive_names_tie(const zoff_archive_manifest *m, const zoff_archive_param *const *sorted, const char *owner,
                                   zoff_archive_param *p)
{
    const zoff_archive_param *found = zoff_archive_names_find(sorted, m->param_count, owner);
    ZOFF_FAIL_IF(!found, ZOFF_ERR_INVALID, "parameter '%.200s' is tied to '%.200s', which is not there", p->name, owner);
    ZOFF_FAIL_IF(found == p || !found->states || found->count != p->count || found->slices != p->slices, ZOFF_ERR_INVALID,
                 "parameter '%.200s' is tied to '%.200s', which has no states of its own or another size", p->name, owner);
    p->tied_to = 1 + (uint32_t)(found - m->params);
    return ZOFF_OK;
}
