/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c: parses JSON with jansson, after it has blanked out comments and trailing commas. A second pass over the valid text
 * finds the line and column of every member, and keys that occur twice. */
#include "config_priv.h"

#include "array.h"
#include "mem.h"
#include "try.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- places ---- */

static bool is_character_start(char c)
{
    return ((unsigned char)c & 0xC0) != 0x80;
}

static zoff_config_place place_of(const char *text, size_t offset)
{
    zoff_config_place place = {1, 1};
    for (size_t i = 0; i < offset; i++) {
        if (text[i] == '\n')
            place = (zoff_config_place){place.line + 1, 1};
        else
            place.column += is_character_start(text[i]);
    }
    return place;
}

/* ---- extensions of JSON ---- */

/* The end of the string that starts at `at`: behind its closing quote, or the end of the text. */
static size_t skip_string(const char *text, size_t bytes, size_t at)
{
    for (at++; at < bytes; at++) {
        if (text[at] == '\\')
            at++;
        else if (text[at] == '"')
            return at + 1;
    }
    return bytes;
}

static void blank(char *text, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        if (text[i] != '\n')
            text[i] = ' ';
    }
}

/* Overwrite comments and trailing commas with blanks, which keeps lines and columns correct. A comma is trailing if it follows
 * a value and a closing bracket follows it. So "[,]" stays an error. */
static zoff_status blank_extensions(char *text, size_t bytes, const char *name)
{
    size_t comma = SIZE_MAX; /* the last comma, if only blanks have followed it */
    char last = 0;           /* the last character that is not blank, outside of comments */
    for (size_t i = 0; i < bytes;) {
        char c = text[i], next = i + 1 < bytes ? text[i + 1] : 0;
        size_t end = i + 1;
        if (c == '#' || (c == '/' && next == '/')) {
            while (end < bytes && text[end] != '\n')
                end++;
            blank(text, i, end);
        } else if (c == '/' && next == '*') {
            const char *close = bytes - i > 2 ? memmem(text + i + 2, bytes - i - 2, "*/", 2) : NULL;
            zoff_config_place at = place_of(text, close ? 0 : i);
            ZOFF_FAIL_IF(!close, ZOFF_ERR_INVALID, "%s:%u:%u: a comment starts here and never ends; expected */", name, at.line,
                         at.column);
            end = (size_t)(close - text) + 2;
            blank(text, i, end);
        } else if (c == ',') {
            comma = last && !strchr("[{,:", last) ? i : SIZE_MAX;
            last = c;
        } else if (!strchr(" \t\r\n", c) || c == 0) {
            if ((c == ']' || c == '}') && comma != SIZE_MAX)
                text[comma] = ' ';
            if (c == '"')
                end = skip_string(text, bytes, i);
            comma = SIZE_MAX;
            last = c;
        }
        i = end;
    }
    return ZOFF_OK;
}

/* ---- errors in JSON ---- */

static bool is_word(char c)
{
    return c != 0 && !strchr(" \t\r\n,:[]{}\"", c);
}

/* The start of the wrong token. jansson reports how far it had read, which is behind that. */
static size_t token_start(const char *text, size_t bytes, size_t position)
{
    size_t at = position > bytes ? bytes : position;
    if (at == 0)
        return at;
    at--;
    if (text[at] == '"') {
        for (size_t i = at; i > 0; i--) {
            if (text[i - 1] == '"' && (i < 2 || text[i - 2] != '\\'))
                return i - 1;
            if (text[i - 1] == '\n')
                break;
        }
        return at;
    }
    while (at > 0 && is_word(text[at]) && is_word(text[at - 1]))
        at--;
    return at;
}

static bool is_capital(char c)
{
    return (c >= 'A' && c <= 'Z') || c == '_';
}

/* Whether the token that is no JSON would be Hjson, which DeepSpeed reads: a key without quotes, a text in single quotes, or a
 * member behind the end of a line without a comma. */
static bool is_hjson(const char *text, size_t bytes, size_t start, size_t length)
{
    size_t before = start, after = start + length;
    while (before > 0 && strchr(" \t\r\n", text[before - 1]))
        before--;
    while (after < bytes && text[after] && strchr(" \t\r\n", text[after]))
        after++;
    const char c = start < bytes ? text[start] : 0, last = before > 0 ? text[before - 1] : 0;
    const bool lacks_comma = c == '"' && last && !strchr("{[,:", last) && memchr(text + before, '\n', start - before);
    return c == '\'' || lacks_comma || (length > 0 && after < bytes && text[after] == ':');
}

static zoff_status not_json(const char *text, size_t bytes, const char *name, const json_error_t *error)
{
    size_t position = error->position > 0 ? (size_t)error->position : 0, length = 0, start = position;
    enum json_error_code code = json_error_code(error);
    ZOFF_FAIL_IF(code == json_error_out_of_memory || !error->text[0], ZOFF_ERR_NO_MEMORY,
                 "%s: out of memory for %zu bytes of JSON", name, bytes);
    /* There is no token at the end of the text, or at an invalid UTF-8 byte. */
    if (code != json_error_premature_end_of_input && !(code == json_error_invalid_utf8 && position < bytes))
        start = token_start(text, bytes, position);
    start = start < bytes ? start : bytes;
    zoff_config_place at = place_of(text, start);
    while (start + length < bytes && length < 40 && is_word(text[start + length]))
        length++;
    const char *token = text + start;
    bool placeholder = length > 0 && (token[0] == '$' || (length > 1 && is_capital(token[0]) && is_capital(token[1])));
    char fault[80];
    /* jansson's message has only the start of an invalid word, so show the whole word. */
    if (length > 0 && code == json_error_invalid_syntax && strncmp(error->text, "invalid token", 13) == 0)
        snprintf(fault, sizeof fault, "\"%.*s\" is not a value", (int)length, token);
    else
        snprintf(fault, sizeof fault, "%.79s", error->text);
    ZOFF_FAIL_IF(!placeholder && is_hjson(text, bytes, start, length), ZOFF_ERR_INVALID,
                 "%s:%u:%u: not JSON: %s; this looks like Hjson, which zoff does not read. Convert it with `hjson -j %s > "
                 "NEW.json` (DeepSpeed installs hjson; else pip install hjson), or put keys and texts into \"...\" and "
                 "commas between members",
                 name, at.line, at.column, fault, name);
    return zoff_base_status_fail(ZOFF_ERR_INVALID, "%s:%u:%u: not JSON: %s; expected %s", name, at.line, at.column, fault,
                                 placeholder ? "a value: is this a template whose placeholders have not been filled in?"
                                             : "JSON (comments and trailing commas are fine, keys and texts need \"...\")");
}

/* ---- lines and columns ---- */

typedef struct walker {
    const char *text;
    size_t bytes, at;
    zoff_config_place place;
    const char *name;
    zoff_config_tree *tree;
    unsigned remarks; /* number of enclosing remarks */
    bool has_lost;    /* a member of the text is not in the tree */
} walker;

static void step_to(walker *w, size_t to)
{
    for (; w->at < to && w->at < w->bytes; w->at++) {
        if (w->text[w->at] == '\n')
            w->place = (zoff_config_place){w->place.line + 1, 1};
        else
            w->place.column += is_character_start(w->text[w->at]);
    }
}

/* Skip blanks and punctuation. The text is valid JSON, so nothing else stands between two tokens. */
static void step_over(walker *w, const char *characters)
{
    size_t to = w->at;
    while (to < w->bytes && w->text[to] && strchr(characters, w->text[to]))
        to++;
    step_to(w, to);
}

static zoff_status add_member(walker *w, zoff_config_member member, size_t *out_index)
{
    zoff_config_tree *tree = w->tree;
    ZOFF_TRY(zoff_base_array_reserve(&tree->members, tree->count, &tree->room, tree->count + 1, sizeof member,
                                     "the members of a configuration"));
    tree->members[tree->count] = member;
    *out_index = tree->count++;
    return ZOFF_OK;
}

static int by_key_then_order(const void *left, const void *right)
{
    const zoff_config_member *a = *(const zoff_config_member *const *)left;
    const zoff_config_member *b = *(const zoff_config_member *const *)right;
    if (a->key != b->key)
        return (uintptr_t)a->key < (uintptr_t)b->key ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* Find and report a key that an object has twice. The tree has only one of several equal keys, so equal members have the same
 * key address. Remarks may repeat. Called only if some keys are equal. */
static zoff_status report_twin(walker *w, size_t first, size_t parent, size_t count)
{
    const zoff_config_member **children, *twin = NULL, *original = NULL;
    size_t found = 0;
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *children, "the members of an object", &children));
    for (size_t i = first; i < w->tree->count && found < count; i++) {
        if (w->tree->members[i].parent == parent)
            children[found++] = &w->tree->members[i];
    }
    qsort(children, found, sizeof *children, by_key_then_order);
    for (size_t i = 1; i < found; i++) {
        bool equal = children[i]->key == children[i - 1]->key && !zoff_config_scan_is_remark(children[i]->key);
        if (equal && (!twin || children[i] < twin)) {
            twin = children[i];
            original = children[i - 1];
        }
    }
    zoff_base_mem_free(children);
    if (!twin)
        return ZOFF_OK; /* only remarks have equal keys */
    char path[512];
    zoff_config_scan_path(w->tree, (size_t)(twin - w->tree->members), path, sizeof path);
    return zoff_base_status_fail(ZOFF_ERR_INVALID, "%s:%u:%u: %s: this key is given twice, first at %s:%u:%u; expected it once",
                                 w->name, twin->key_at.line, twin->key_at.column, path, w->name, original->key_at.line,
                                 original->key_at.column);
}

static zoff_status walk_value(walker *w, json_t *value, size_t self);

static zoff_status walk_object(walker *w, json_t *object, size_t self)
{
    size_t first = w->tree->count, count = 0;
    step_to(w, w->at + 1);
    for (step_over(w, " \t\r\n,"); w->at < w->bytes && w->text[w->at] != '}'; step_over(w, " \t\r\n,")) {
        zoff_config_member member = {.parent = self, .key_at = w->place};
        size_t end = skip_string(w->text, w->bytes, w->at), index;
        /* Let jansson decode the escapes of the key. */
        json_t *key = json_loadb(w->text + w->at, end - w->at, JSON_DECODE_ANY, NULL);
        ZOFF_FAIL_IF(!key, ZOFF_ERR_NO_MEMORY, "%s:%u:%u: out of memory for a key", w->name, w->place.line, w->place.column);
        void *found = json_object_iter_at(object, json_string_value(key));
        json_decref(key);
        step_to(w, end);
        step_over(w, " \t\r\n:");
        if (!found) { /* this object belongs to a repeated key, so the caller reports it: the tree has the other object */
            w->has_lost = w->has_lost || !w->remarks;
            ZOFF_TRY(walk_value(w, NULL, self));
            continue;
        }
        member.key = json_object_iter_key(found);
        member.value = json_object_iter_value(found);
        member.value_at = w->place;
        ZOFF_TRY(add_member(w, member, &index));
        unsigned remark = zoff_config_scan_is_remark(member.key);
        w->remarks += remark;
        ZOFF_TRY(walk_value(w, member.value, index));
        w->remarks -= remark;
        count++;
    }
    step_to(w, w->at + 1);
    return count == json_object_size(object) ? ZOFF_OK : report_twin(w, first, self, count);
}

static zoff_status walk_array(walker *w, json_t *array, size_t self)
{
    size_t next = 0;
    step_to(w, w->at + 1);
    for (step_over(w, " \t\r\n,"); w->at < w->bytes && w->text[w->at] != ']'; step_over(w, " \t\r\n,")) {
        zoff_config_member member = {.parent = self, .key_at = w->place, .value_at = w->place};
        size_t index;
        member.value = json_array_get(array, next++);
        ZOFF_TRY(add_member(w, member, &index));
        ZOFF_TRY(walk_value(w, member.value, index));
    }
    step_to(w, w->at + 1);
    return ZOFF_OK;
}

/* Walk over a value. The text decides its shape, because the tree has only the last value of a repeated key. */
static zoff_status walk_value(walker *w, json_t *value, size_t self)
{
    char c = w->at < w->bytes ? w->text[w->at] : 0;
    if (c == '{' && json_is_object(value))
        return walk_object(w, value, self);
    if (c == '[' && json_is_array(value))
        return walk_array(w, value, self);
    size_t depth = 0, to = w->at;
    do {
        c = to < w->bytes ? w->text[to] : 0;
        if (c == '"') {
            to = skip_string(w->text, w->bytes, to);
        } else if (c && is_word(c)) {
            while (to < w->bytes && is_word(w->text[to]))
                to++;
        } else {
            depth += c == '{' || c == '[';
            depth -= depth && (c == '}' || c == ']');
            to++;
        }
    } while (depth && to < w->bytes);
    step_to(w, to);
    return ZOFF_OK;
}

zoff_status zoff_config_scan(char *text, size_t bytes, const char *name, zoff_config_tree *out)
{
    *out = (zoff_config_tree){0};
    if (bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        text += 3;
        bytes -= 3;
    }
    /* jansson does not notice a zero byte behind a number. */
    const char *zero = memchr(text, 0, bytes);
    zoff_config_place at = place_of(text, zero ? (size_t)(zero - text) : 0);
    ZOFF_FAIL_IF(zero, ZOFF_ERR_INVALID, "%s:%u:%u: not JSON: a zero byte; expected text in UTF-8", name, at.line, at.column);
    ZOFF_TRY(blank_extensions(text, bytes, name));
    size_t start = 0;
    while (start < bytes && text[start] && strchr(" \t\r\n", text[start]))
        start++;
    ZOFF_FAIL_IF(start == bytes, ZOFF_ERR_INVALID, "%s:1:1: the file is empty; expected a JSON object ({} gives the defaults)",
                 name);
    at = place_of(text, start);
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_DECODE_ANY, &error);
    /* Integers beyond int64_t are allowed, and mean "never" or "no limit": parse integers as doubles then. */
    if (!root && json_error_code(&error) == json_error_numeric_overflow)
        root = json_loadb(text, bytes, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, &error);
    if (!root)
        return not_json(text, bytes, name, &error);
    zoff_config_tree tree = {.root = root};
    walker w = {.text = text, .bytes = bytes, .at = start, .place = at, .name = name, .tree = &tree};
    zoff_status status;
    if (!json_is_object(root))
        status = zoff_base_status_fail(ZOFF_ERR_INVALID, "%s:%u:%u: this is not an object; expected {\"key\": value, ...}",
                                       name, at.line, at.column);
    else
        status = walk_value(&w, root, SIZE_MAX);
    /* A lost member without a repeated key means that jansson ran out of memory inside of a key, and continued with a part of
     * it. */
    if (status == ZOFF_OK && w.has_lost)
        status = zoff_base_status_fail(ZOFF_ERR_NO_MEMORY, "%s: out of memory for %zu bytes of JSON", name, bytes);
    if (status < 0)
        zoff_config_scan_free(&tree);
    else
        *out = tree;
    return status;
}

void zoff_config_scan_free(zoff_config_tree *tree)
{
    json_decref(tree->root);
    zoff_base_mem_free(tree->members);
    *tree = (zoff_config_tree){0};
}

bool zoff_config_scan_is_remark(const char *key)
{
    return key[0] == '_' || key[0] == '#' || (key[0] == '/' && key[1] == '/') || strcmp(key, "$schema") == 0;
}

void zoff_config_scan_path(const zoff_config_tree *tree, size_t member, char *dst, size_t dst_bytes)
{
    enum { DEEPEST = 64 };
    size_t chain[DEEPEST], depth = 0, used = 0;
    for (size_t i = member; i != SIZE_MAX && depth < DEEPEST; i = tree->members[i].parent)
        chain[depth++] = i;
    dst[0] = 0;
    while (depth-- > 0 && used < dst_bytes) {
        const char *key = tree->members[chain[depth]].key;
        int length = snprintf(dst + used, dst_bytes - used, "%s%.100s", used && key ? "." : "", key ? key : "[]");
        used += length > 0 ? (size_t)length : 0;
    }
}
