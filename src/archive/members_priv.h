/* SPDX-License-Identifier: Apache-2.0 */
/* members_priv.h: JSON without a tree of all of it. A tree takes up to 70 times the bytes of its text. */
#ifndef ZOFF_ARCHIVE_MEMBERS_PRIV_H
#define ZOFF_ARCHIVE_MEMBERS_PRIV_H

#include <zoff/status.h>

#include <jansson.h>
#include <stddef.h>

/* The bytes of one value. */
typedef struct zoff_archive_value {
    const char *text; /* text of the member; NULL: it is not there */
    size_t bytes;
} zoff_archive_value;

/* Read an object. Members that `wanted` names go into *out_rest. The values of those that `listed` names stay text. Others are
 * skipped. Both lists end with NULL.  @owns out_rest: json_decref()  @return ERR_CORRUPT */
zoff_status zoff_archive_members_read(const char *text, size_t bytes, const char *const *wanted, const char *const *listed,
                                      zoff_archive_value *out_listed, json_t **out_rest);
/* Count the elements of a list.  @return ERR_CORRUPT for another value */
zoff_status zoff_archive_members_count(zoff_archive_value list, size_t *out);
/* Parse the next element of a list. Begin with *at = 0, and ask for as many as were counted.  @owns out: json_decref() */
zoff_status zoff_archive_members_next(zoff_archive_value list, size_t *at, json_t **out);

#endif
