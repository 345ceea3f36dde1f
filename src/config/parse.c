/* SPDX-License-Identifier: Apache-2.0 */
/* parse.c: checks the members of a file against the schema. First it converts every value to the type of its key. Then it
 * reports contradictions, refused values and unknown keys, in this order. At last it gives one warning for all ignored keys. */
#include "config_priv.h"
#include "log.h"
#include "mem.h"
#include "try.h"

#include <stdio.h>
#include <string.h>

enum { PLACE_BYTES = 512, PATH_BYTES = 512, LIST_BYTES = 2400, ERROR_LIST_BYTES = 500 };

/* The result of checking one member of the file. */
typedef struct verdict {
    const zoff_config_key *row; /* row of the key; NULL: the key is unknown, or inside of a member that is not examined */
    bool is_opaque;             /* the members inside are not examined */
    bool is_unknown, is_ignored, is_shadowed; /* shadowed: the same key at the top level wins */
    bool is_stray;                            /* an unknown key of the top level that resembles no known one */
} verdict;

typedef struct parser {
    zoff_config *config;
    zoff_config_tree tree;
    verdict *verdicts;
} parser;

/* ---- places and lists ---- */

static void place_text(const parser *p, zoff_config_place place, char dst[PLACE_BYTES])
{
    enum { SHOWN = 400 };
    size_t length = strlen(p->config->name);
    bool cut = length > SHOWN;
    snprintf(dst, PLACE_BYTES, "%s%s:%u:%u", cut ? "..." : "", p->config->name + (cut ? length - SHOWN : 0), place.line,
             place.column);
}

typedef struct name_list {
    char text[LIST_BYTES];
    size_t room;                  /* usable bytes of `text`: errors get a shorter list than log lines */
    size_t used, count, left_off; /* bytes used, names listed, and names that did not fit */
} name_list;

/* Add a member to a list. `near` is the key that was probably meant, or NULL. */
static void list_add_near(name_list *list, const parser *p, size_t member, const char *near)
{
    char path[PATH_BYTES];
    zoff_config_place at = p->tree.members[member].key_at;
    zoff_config_scan_path(&p->tree, member, path, sizeof path);
    list->count++;
    if (list->used + strlen(path) + (near ? strlen(near) : 0) + 80 > list->room) {
        list->left_off++;
        return;
    }
    list->used +=
        (size_t)snprintf(list->text + list->used, sizeof list->text - list->used, "%s%s (%u:%u%s%s%s)", list->used ? ", " : "",
                         path, at.line, at.column, near ? ", did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static void list_add(name_list *list, const parser *p, size_t member)
{
    list_add_near(list, p, member, NULL);
}

static void list_end(name_list *list)
{
    if (list->left_off)
        snprintf(list->text + list->used, sizeof list->text - list->used, ", and %zu more", list->left_off);
}

static zoff_config_cell *file_cell(const parser *p, const char *path)
{
    return &p->config->file[zoff_config_schema_index(zoff_config_schema_find(path))];
}

/* The given cell of a key. The program's value wins over the file's even while parsing, so that it can replace a value for
 * which the file would be refused. */
static const zoff_config_cell *given_cell(const parser *p, const char *path)
{
    const zoff_config_cell *cell = zoff_config_value_given(p->config, path);
    return cell ? cell : file_cell(p, path);
}

static bool is_strict(const parser *p)
{
    const zoff_config_cell *strict = given_cell(p, "zoff.strict");
    return strict->kind != ZOFF_CELL_VALUE || strict->integer;
}

/* ---- types ---- */

/* Handle a key that the file gives under two names. This is an error, except for aio: files in use have it in two places, and
 * the top level wins. */
static zoff_status second_name(parser *p, size_t member, const char *place, const char *path, zoff_config_cell *old,
                               const zoff_config_cell *cell, bool *out_keep)
{
    const zoff_config_key *row = p->verdicts[member].row;
    *out_keep = false;
    if (strncmp(row->path, "aio", 3) != 0)
        return zoff_base_status_fail(ZOFF_ERR_INVALID,
                                     "%s: %s: another name of %s, which is given at %s; expected one of the two", place, path,
                                     row->path, zoff_config_value_place(old));
    bool nested = strncmp(path, "zero_optimization.", 18) == 0;
    if (row->type != ZOFF_KEY_SECTION || (cell->kind == ZOFF_CELL_AUTO) != (old->kind == ZOFF_CELL_AUTO))
        ZOFF_WARN(
            "%s: %s is given twice, at the top level and inside zero_optimization (the other is at %s): the top level wins",
            place, row->path, zoff_config_value_place(old));
    *out_keep = nested;
    p->verdicts[member].is_shadowed = nested;
    return ZOFF_OK;
}

static zoff_status take_cell(parser *p, size_t member, const char *path)
{
    const zoff_config_key *row = p->verdicts[member].row;
    const zoff_config_member *m = &p->tree.members[member];
    zoff_config_cell *slot = &p->config->file[zoff_config_schema_index(row)], cell = {0};
    char place[PLACE_BYTES], value_place[PLACE_BYTES];
    place_text(p, m->key_at, place);
    place_text(p, m->value_at, value_place);
    ZOFF_TRY(zoff_config_value_from_json(row, m->value, (zoff_config_where){value_place, path}, &cell));
    bool keep_old = false;
    zoff_status status = slot->kind == ZOFF_CELL_ABSENT ? ZOFF_OK : second_name(p, member, place, path, slot, &cell, &keep_old);
    if (status == ZOFF_OK && !keep_old)
        status = zoff_config_value_set_source(&cell, place);
    if (status < 0 || keep_old) {
        zoff_config_value_free(&cell);
        return status;
    }
    zoff_config_value_free(slot);
    *slot = cell;
    return ZOFF_OK;
}

/* Handle the oldest form, "zero_optimization": true, which means stage 1. */
static zoff_status take_stage_flag(parser *p, size_t member)
{
    const zoff_config_member *m = &p->tree.members[member];
    zoff_config_cell *stage = file_cell(p, "zero_optimization.stage");
    char place[PLACE_BYTES];
    place_text(p, m->key_at, place);
    stage->kind = ZOFF_CELL_VALUE;
    stage->integer = json_is_true(m->value);
    stage->number = (double)stage->integer;
    return zoff_config_value_set_source(stage, place);
}

static zoff_status take_member(parser *p, size_t member)
{
    const zoff_config_member *m = &p->tree.members[member];
    const verdict *parent = m->parent == SIZE_MAX ? NULL : &p->verdicts[m->parent];
    verdict *v = &p->verdicts[member];
    char path[PATH_BYTES];
    if ((parent && parent->is_opaque) || !m->key || zoff_config_scan_is_remark(m->key)) {
        v->is_opaque = true;
        return ZOFF_OK;
    }
    zoff_config_scan_path(&p->tree, member, path, sizeof path);
    v->row = zoff_config_schema_target(zoff_config_schema_child(parent ? parent->row->path : "", m->key));
    if (!v->row) {
        v->is_opaque = true;
        v->is_ignored = parent && parent->row->open;
        v->is_unknown = !v->is_ignored;
        v->is_stray = !parent && zoff_config_nearest_is_stray(m->key);
        return ZOFF_OK;
    }
    v->is_ignored = v->row->class_ == ZOFF_CLASS_IGNORED;
    v->is_opaque = v->row->type != ZOFF_KEY_SECTION;
    if (json_is_boolean(m->value) && strcmp(v->row->path, "zero_optimization") == 0)
        return take_stage_flag(p, member);
    return take_cell(p, member, path);
}

/* ---- contradictions ---- */

static zoff_status check_pairs(const parser *p)
{
    size_t count;
    const zoff_config_key *table = zoff_config_schema_table(&count);
    ZOFF_TRY(zoff_config_resolve_check_pair(given_cell(p, "fp16.enabled"), given_cell(p, "bf16.enabled")));
    for (size_t i = 0; i < count; i++) {
        if (!table[i].excludes)
            continue;
        const zoff_config_cell *old = &p->config->file[i], *new = file_cell(p, table[i].excludes);
        ZOFF_FAIL_IF(old->kind == ZOFF_CELL_VALUE && new->kind == ZOFF_CELL_VALUE, ZOFF_ERR_INVALID,
                     "%s: %s: the old form of %s, which is given at %s; expected one of the two: remove the old one",
                     old->source, table[i].path, table[i].excludes, new->source);
    }
    return ZOFF_OK;
}

static const char *nearest_of(const parser *p, size_t member)
{
    const zoff_config_member *m = &p->tree.members[member];
    return zoff_config_nearest_key(m->parent == SIZE_MAX ? "" : p->verdicts[m->parent].row->path, m->key);
}

/* List all unknown keys that are errors but the first `skipped`, each with the key that was probably meant. */
static void list_unknown(const parser *p, size_t skipped, name_list *list)
{
    for (size_t i = 0; i < p->tree.count; i++) {
        if (!p->verdicts[i].is_unknown || p->verdicts[i].is_stray)
            continue;
        if (skipped)
            skipped--;
        else
            list_add_near(list, p, i, list->left_off ? NULL : nearest_of(p, i));
    }
    list_end(list);
}

/* Whether the program has set the key. Then the file's value has no effect, and is not refused. */
static bool is_replaced(const parser *p, const zoff_config_key *row)
{
    return p->config->api[zoff_config_schema_index(row)].kind != ZOFF_CELL_ABSENT;
}

static zoff_status check_refusals(const parser *p)
{
    name_list others = {.room = ERROR_LIST_BYTES}, unknown = {.room = ERROR_LIST_BYTES};
    size_t first = SIZE_MAX;
    for (size_t i = 0; i < p->tree.count; i++) {
        const verdict *v = &p->verdicts[i];
        if (!v->row || v->is_shadowed || is_replaced(p, v->row) ||
            zoff_config_value_accepted(v->row, &p->config->file[zoff_config_schema_index(v->row)]))
            continue;
        if (first == SIZE_MAX)
            first = i;
        else
            list_add(&others, p, i);
    }
    if (first == SIZE_MAX)
        return ZOFF_OK;
    const zoff_config_key *row = p->verdicts[first].row;
    char place[PLACE_BYTES], path[PATH_BYTES], words[640];
    place_text(p, p->tree.members[first].value_at, place);
    zoff_config_scan_path(&p->tree, first, path, sizeof path);
    zoff_config_value_refusal(row, &p->config->file[zoff_config_schema_index(row)], words, sizeof words);
    list_end(&others);
    if (is_strict(p))
        list_unknown(p, 0, &unknown);
    return zoff_base_status_fail(ZOFF_ERR_UNSUPPORTED, "%s: %s: %s%s%s%s%s", place, path, words,
                                 others.count ? "; refused too: " : "", others.text, unknown.count ? "; not known: " : "",
                                 unknown.text);
}

static zoff_status unknown_key(const parser *p, size_t member)
{
    const char *near = nearest_of(p, member);
    char place[PLACE_BYTES], path[PATH_BYTES], hint[PATH_BYTES] = "";
    name_list others = {.room = 2 * ERROR_LIST_BYTES};
    place_text(p, p->tree.members[member].key_at, place);
    zoff_config_scan_path(&p->tree, member, path, sizeof path);
    if (near)
        snprintf(hint, sizeof hint, "; did you mean \"%s\"?", near);
    list_unknown(p, 1, &others);
    return zoff_base_status_fail(ZOFF_ERR_INVALID,
                                 "%s: %s: this key is not known; expected a key of docs/CONFIG.md (`zoff reference`), or "
                                 "\"zoff\": {\"strict\": false} to let unknown keys pass with a warning%s%s%s",
                                 place, path, hint, others.count ? "; not known either: " : "", others.text);
}

/* DeepSpeed ignores unknown keys of the top level, so files in use have keys of their trainer there. */
static zoff_status check_unknown(const parser *p)
{
    const bool strict = is_strict(p);
    name_list unknown = {.room = LIST_BYTES};
    for (size_t i = 0; i < p->tree.count; i++) {
        if (!p->verdicts[i].is_unknown)
            continue;
        if (strict && !p->verdicts[i].is_stray)
            return unknown_key(p, i);
        list_add(&unknown, p, i);
    }
    list_end(&unknown);
    if (unknown.count)
        ZOFF_WARN("%s: unknown keys, which have no effect%s: %s", p->config->name, strict ? "" : " (zoff.strict is false)",
                  unknown.text);
    return ZOFF_OK;
}

/* Warn about known keys that zoff ignores. */
static void warn_ignored(const parser *p)
{
    name_list ignored = {.room = LIST_BYTES};
    for (size_t i = 0; i < p->tree.count; i++) {
        if (p->verdicts[i].is_ignored)
            list_add(&ignored, p, i);
    }
    list_end(&ignored);
    if (ignored.count)
        ZOFF_WARN("%s: known keys that zoff ignores (`zoff reference` says why): %s", p->config->name, ignored.text);
}

static zoff_status run(parser *p)
{
    for (size_t i = 0; i < p->tree.count; i++)
        ZOFF_TRY(take_member(p, i));
    ZOFF_TRY(check_pairs(p));
    ZOFF_TRY(check_refusals(p));
    ZOFF_TRY(check_unknown(p));
    warn_ignored(p);
    return ZOFF_OK;
}

zoff_status zoff_config_parse_text(zoff_config *config, char *text, size_t bytes)
{
    parser p = {.config = config};
    ZOFF_TRY(zoff_config_scan(text, bytes, config->name, &p.tree));
    zoff_status status = zoff_base_mem_alloc(p.tree.count, sizeof *p.verdicts, "the keys of a configuration", &p.verdicts);
    if (status == ZOFF_OK)
        status = run(&p);
    zoff_base_mem_free(p.verdicts);
    zoff_config_scan_free(&p.tree);
    return status;
}
