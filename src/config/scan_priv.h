/* scan_priv.h: from the bytes of a file to a JSON tree in which every member knows its line and column. */
#ifndef ZOFF_CONFIG_SCAN_PRIV_H
#define ZOFF_CONFIG_SCAN_PRIV_H

#include <jansson.h>
#include <zoff/status.h>

/* A place in the text: both count from 1, columns in characters. */
typedef struct zoff_config_place {
    unsigned line, column;
} zoff_config_place;

/* One member of an object, in the order of the text. Elements of lists are members without a key. */
typedef struct zoff_config_member {
    size_t parent; /* index of the member whose value holds this one; SIZE_MAX at the top */
    const char *key;
    json_t *value; /* borrowed from the root */
    zoff_config_place key_at, value_at;
} zoff_config_member;

typedef struct zoff_config_tree {
    json_t *root;
    zoff_config_member *members;
    size_t count, room;
} zoff_config_tree;

/* Read `text` (changed: comments and trailing commas are blanked out). ERR_INVALID with name:line:column for what is not
 * JSON, not an object, or has the same key twice. */
zoff_status zoff_config_scan(char *text, size_t bytes, const char *name, zoff_config_tree *out);
void zoff_config_scan_free(zoff_config_tree *tree);

/* Keys that are remarks: they start with "_", "//" or "#". */
bool zoff_config_scan_is_remark(const char *key);

/* The path of a member as it stands in the file: "optimizer.params.lr". Cut at dst_bytes. */
void zoff_config_scan_path(const zoff_config_tree *tree, size_t member, char *dst, size_t dst_bytes);

#endif
