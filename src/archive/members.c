/* SPDX-License-Identifier: Apache-2.0 */
/* members.c: reads a JSON object member by member, and its lists element by element. So the memory for parsing is that of one
 * element, not of all. This file finds where a value ends, and jansson parses it. */
#include "members_priv.h"

#include "try.h"

#include <stdbool.h>
#include <string.h>

/* Most bytes of one value that is parsed: more than any parameter needs. So a tree of it takes at most some MiB. */
enum { VALUE_MOST = 64 << 10 };

typedef struct cursor {
    const char *at, *end;
} cursor;

static void skip_space(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\r' || *c->at == '\t'))
        c->at++;
}

/* Whether the next character that is no space is this one; if so, go behind it. */
static bool take(cursor *c, char what)
{
    skip_space(c);
    if (c->at == c->end || *c->at != what)
        return false;
    c->at++;
    return true;
}

static bool skip_text(cursor *c)
{
    for (c->at++; c->at < c->end && *c->at != '"'; c->at++) {
        if (*c->at == '\\' && ++c->at == c->end)
            return false;
    }
    if (c->at == c->end)
        return false;
    c->at++;
    return true;
}

/* Go behind a value. It is not checked here beyond its texts and brackets. */
static zoff_status skip_value(cursor *c, zoff_archive_value *out)
{
    size_t depth = 0;
    skip_space(c);
    out->text = c->at;
    while (c->at < c->end) {
        const char here = *c->at;
        if (depth == 0 && (here == ',' || here == '}' || here == ']'))
            break;
        if (here == '"') {
            ZOFF_FAIL_IF(!skip_text(c), ZOFF_ERR_CORRUPT, "it is no JSON: a text does not end");
            continue;
        }
        depth += here == '{' || here == '[';
        depth -= here == '}' || here == ']';
        c->at++;
    }
    out->bytes = (size_t)(c->at - out->text);
    ZOFF_FAIL_IF(depth || out->bytes == 0, ZOFF_ERR_CORRUPT, "it is no JSON: a value is missing, or does not end");
    return ZOFF_OK;
}

static zoff_status parse(zoff_archive_value value, json_t **out)
{
    json_error_t error;
    ZOFF_FAIL_IF(value.bytes > VALUE_MOST, ZOFF_ERR_CORRUPT, "a value has %zu bytes, and at most %d are expected", value.bytes,
                 VALUE_MOST);
    json_t *parsed = json_loadb(value.text, value.bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    ZOFF_FAIL_IF(!parsed && json_error_code(&error) == json_error_out_of_memory, ZOFF_ERR_NO_MEMORY,
                 "no memory for a value of a manifest");
    ZOFF_FAIL_IF(!parsed, ZOFF_ERR_CORRUPT, "it is no JSON: '%.*s': %s", value.bytes < 40 ? (int)value.bytes : 40, value.text,
                 error.text);
    *out = parsed;
    return ZOFF_OK;
}

static zoff_status read_key(cursor *c, json_t **out)
{
    zoff_archive_value key = {.text = NULL};
    skip_space(c);
    key.text = c->at;
    ZOFF_FAIL_IF(c->at == c->end || *c->at != '"' || !skip_text(c), ZOFF_ERR_CORRUPT, "it is no JSON: a member has no name");
    key.bytes = (size_t)(c->at - key.text);
    ZOFF_TRY(parse(key, out));
    if (!take(c, ':')) {
        json_decref(*out);
        return zoff_base_status_fail(ZOFF_ERR_CORRUPT, "it is no JSON: a member has no value");
    }
    return ZOFF_OK;
}

/* The index of a name in a list that ends with NULL, or the length of the list. */
static size_t index_of(const char *const *names, const char *name)
{
    size_t i = 0;
    while (names[i] && strcmp(names[i], name) != 0)
        i++;
    return i;
}

/* Read the value of one member. */
static zoff_status read_member(cursor *c, const char *key, const char *const *wanted, const char *const *listed,
                               zoff_archive_value *out_listed, json_t *rest)
{
    const size_t place = index_of(listed, key);
    const bool is_wanted = wanted[index_of(wanted, key)];
    zoff_archive_value value;
    json_t *parsed = NULL;
    ZOFF_TRY(skip_value(c, &value));
    ZOFF_FAIL_IF((listed[place] && out_listed[place].text) || (is_wanted && json_object_get(rest, key)), ZOFF_ERR_CORRUPT,
                 "there are two members \"%.40s\"", key);
    if (listed[place])
        out_listed[place] = value;
    if (!is_wanted)
        return ZOFF_OK;
    ZOFF_TRY(parse(value, &parsed));
    ZOFF_FAIL_IF(json_object_set_new(rest, key, parsed) != 0, ZOFF_ERR_NO_MEMORY, "no memory for a manifest");
    return ZOFF_OK;
}

static zoff_status read_all(cursor *c, const char *const *wanted, const char *const *listed, zoff_archive_value *out_listed,
                            json_t *rest)
{
    ZOFF_FAIL_IF(!take(c, '{'), ZOFF_ERR_CORRUPT, "it is no JSON object");
    for (bool is_first = true; !take(c, '}'); is_first = false) {
        json_t *key = NULL;
        ZOFF_FAIL_IF(!is_first && !take(c, ','), ZOFF_ERR_CORRUPT, "it is no JSON: no comma is between two members");
        ZOFF_TRY(read_key(c, &key));
        const zoff_status status = read_member(c, json_string_value(key), wanted, listed, out_listed, rest);
        json_decref(key);
        ZOFF_TRY(status);
    }
    skip_space(c);
    ZOFF_FAIL_IF(c->at != c->end, ZOFF_ERR_CORRUPT, "it is no JSON: something is behind its end");
    return ZOFF_OK;
}

zoff_status zoff_archive_members_read(const char *text, size_t bytes, const char *const *wanted, const char *const *listed,
                                      zoff_archive_value *out_listed, json_t **out_rest)
{
    cursor c = {.at = text, .end = text + bytes};
    json_t *rest = json_object();
    ZOFF_FAIL_IF(!rest, ZOFF_ERR_NO_MEMORY, "no memory for a manifest");
    for (size_t i = 0; listed[i]; i++)
        out_listed[i] = (zoff_archive_value){.text = NULL};
    const zoff_status status = read_all(&c, wanted, listed, out_listed, rest);
    if (status < 0)
        json_decref(rest);
    else
        *out_rest = rest;
    return status;
}

/* ---- lists ---- */

/* Go to the next element; false: there is none. */
static zoff_status next(cursor *c, bool is_first, zoff_archive_value *out, bool *out_is)
{
    *out_is = false;
    if (take(c, ']')) {
        skip_space(c);
        ZOFF_FAIL_IF(c->at != c->end, ZOFF_ERR_CORRUPT, "it is no JSON: something is behind a list");
        return ZOFF_OK;
    }
    ZOFF_FAIL_IF(!is_first && !take(c, ','), ZOFF_ERR_CORRUPT, "it is no JSON: no comma is between two elements");
    *out_is = true;
    return skip_value(c, out);
}

zoff_status zoff_archive_members_count(zoff_archive_value list, size_t *out)
{
    cursor c = {.at = list.text, .end = list.text ? list.text + list.bytes : NULL};
    size_t count = 0;
    ZOFF_FAIL_IF(!list.text || !take(&c, '['), ZOFF_ERR_CORRUPT, "it is no list");
    for (;;) {
        zoff_archive_value element;
        bool is;
        ZOFF_TRY(next(&c, count == 0, &element, &is));
        if (!is)
            break;
        count++;
    }
    *out = count;
    return ZOFF_OK;
}

zoff_status zoff_archive_members_next(zoff_archive_value list, size_t *at, json_t **out)
{
    cursor c = {.at = list.text + *at, .end = list.text + list.bytes};
    zoff_archive_value element = {.text = NULL};
    bool is = false;
    const bool is_first = *at == 0;
    ZOFF_FAIL_IF(is_first && !take(&c, '['), ZOFF_ERR_CORRUPT, "it is no list");
    ZOFF_TRY(next(&c, is_first, &element, &is));
    ZOFF_FAIL_IF(!is, ZOFF_ERR_CORRUPT, "a list ends too early");
    *at = (size_t)(c.at - list.text);
    return parse(element, out);
}
