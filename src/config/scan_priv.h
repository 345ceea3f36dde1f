/* scan_priv.h: parses the bytes of a file into a JSON tree, with the line and column of every member. */
#ifndef ZOFF_CONFIG_SCAN_PRIV_H
#define ZOFF_CONFIG_SCAN_PRIV_H

#include <jansson.h>
#include <zoff/status.h>

/* A place in the text. Lines and columns count from 1, columns in characters. */
typedef struct zoff_config_place {
    unsigned line, column;
} zoff_config_place;

/* One member of an object. Members are stored in the order of the text. Elements of lists are members without a key. */
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

/* Parse `text`. Comments and trailing commas in it are overwritten with blanks.  @return ERR_INVALID with name:line:column if
 * the text is not JSON, is not an object, or has a key twice */
zoff_status zoff_config_scan(char *text, size_t bytes, const char *name, zoff_config_tree *out);
void zoff_config_scan_free(zoff_config_tree *tree);

/* Whether a key is a remark: it starts with "_", "//" or "#". */
bool zoff_config_scan_is_remark(const char *key);

/* Write the path of a member: "optimizer.params.lr". A longer path is cut at dst_bytes. */
void zoff_config_scan_path(const zoff_config_tree *tree, size_t member, char *dst, size_t dst_bytes);

#endif
