/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_diff.c: compares two checkpoints, one block of elements at a time. Elements are equal if their bits are. */
#include "checkpoint_diff.h"

#include "progress.h"
#include "records.h"
#include "verbs.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 1 << 20, KIND_COUNT = 4 };

static const char *const KINDS[KIND_COUNT] = {"master", "m", "v", "weights"};

typedef struct comparison {
    zoff_checkpoint_reader *sides[2];
    float *blocks[2];
    zoff_checkpoint_info infos[2];
    size_t next_datum[2];              /* index behind the last one that was found */
    uint64_t differences, done, total; /* number of differences; bytes compared, and bytes in all */
    progress progress;
} comparison;

/* ---- facts ---- */

static void compare_facts(comparison *c)
{
    const zoff_checkpoint_info *a = &c->infos[0], *b = &c->infos[1];
    if (a->t != b->t) {
        print_line(stdout, "step: %" PRId64 " and %" PRId64, a->t, b->t);
        c->differences++;
    }
    const bool scales = a->has_loss_scaler && b->has_loss_scaler;
    if (a->has_loss_scaler != b->has_loss_scaler ||
        (scales && (a->loss_scaler.scale != b->loss_scaler.scale || a->loss_scaler.iterations != b->loss_scaler.iterations ||
                    a->loss_scaler.last_overflow != b->loss_scaler.last_overflow ||
                    a->loss_scaler.hysteresis != b->loss_scaler.hysteresis))) {
        print_line(stdout, "loss scaler: scale %g after %" PRId64 " steps and scale %g after %" PRId64 " steps",
                   a->loss_scaler.scale, a->loss_scaler.iterations, b->loss_scaler.scale, b->loss_scaler.iterations);
        c->differences++;
    }
}

/* ---- states ---- */

/* Differences in one state. */
typedef struct found {
    uint64_t count;
    size_t first;   /* element */
    double largest; /* difference of two finite numbers */
} found;

static void compare_block(const float *a, const float *b, size_t at, size_t count, found *f)
{
    if (memcmp(a, b, count * sizeof *a) == 0)
        return;
    for (size_t i = 0; i < count; i++) {
        if (memcmp(&a[i], &b[i], sizeof *a) == 0)
            continue;
        f->first = f->count++ ? f->first : at + i;
        const double difference = fabs((double)a[i] - (double)b[i]);
        f->largest = difference > f->largest ? difference : f->largest;
    }
}

static int compare_state(comparison *c, size_t index, size_t other, const zoff_checkpoint_param *p, unsigned kind)
{
    found f = {.count = 0};
    const size_t all = p->count * p->slices;
    for (size_t at = 0; at < all; at += BLOCK) {
        const size_t count = all - at < BLOCK ? all - at : BLOCK;
        if (zoff_checkpoint_reader_read(c->sides[0], index, (zoff_state_kind)kind, at, count, c->blocks[0]) < 0 ||
            zoff_checkpoint_reader_read(c->sides[1], other, (zoff_state_kind)kind, at, count, c->blocks[1]) < 0)
            return library_error();
        compare_block(c->blocks[0], c->blocks[1], at, count, &f);
        c->done += 2 * count * sizeof(float);
        if (!progress_tell("diff", c->done, c->total, &c->progress))
            return failed("canceled");
    }
    if (f.count) {
        print_line(stdout, "%s of %s: %" PRIu64 " of %zu elements differ, by up to %g; the first is element %zu", KINDS[kind],
                   p->name, f.count, all, f.largest, f.first);
        c->differences++;
    }
    return EXIT_DONE;
}

/* ---- parameters ---- */

static void only_in(comparison *c, int side, const char *name)
{
    print_line(stdout, "%s: only in %s", name, c->infos[side].folder);
    c->differences++;
}

static bool is_same_shape(const zoff_checkpoint_param *a, const zoff_checkpoint_param *b)
{
    return a->count == b->count && a->slices == b->slices && a->dtype == b->dtype && a->dim_count == b->dim_count &&
           memcmp(a->dims, b->dims, a->dim_count * sizeof *a->dims) == 0;
}

/* Find a parameter by name. Most often the parameters have the same order. */
static bool find_other(const comparison *c, int side, size_t index, const char *name, size_t *out)
{
    zoff_checkpoint_param p = ZOFF_CHECKPOINT_PARAM_INIT;
    *out = index;
    return (zoff_checkpoint_reader_param(c->sides[side], index, &p) >= 0 && strcmp(p.name, name) == 0) ||
           zoff_checkpoint_reader_find(c->sides[side], name, out) >= 0;
}

/* Print how a parameter is tied if the checkpoints differ in it. The states are compared at its owners. */
static bool is_tied_alike(comparison *c, const zoff_checkpoint_param *a, const zoff_checkpoint_param *b)
{
    if (!a->tied_to == !b->tied_to && (!a->tied_to || strcmp(a->tied_to, b->tied_to) == 0))
        return true;
    print_text(stdout, "%s: ", a->name);
    for (int i = 0; i < 2; i++) {
        const char *to = i ? b->tied_to : a->tied_to;
        print_text(stdout, "%s%s%s in %s", i ? ", and " : "", to ? "tied to " : "not tied", to ? to : "", c->infos[i].folder);
    }
    printf("\n");
    c->differences++;
    return false;
}

static int compare_param(comparison *c, size_t index)
{
    size_t other;
    zoff_checkpoint_param a = ZOFF_CHECKPOINT_PARAM_INIT, b = ZOFF_CHECKPOINT_PARAM_INIT;
    if (zoff_checkpoint_reader_param(c->sides[0], index, &a) < 0)
        return library_error();
    if (!find_other(c, 1, index, a.name, &other)) {
        only_in(c, 0, a.name);
        return EXIT_DONE;
    }
    if (zoff_checkpoint_reader_param(c->sides[1], other, &b) < 0)
        return library_error();
    if (!is_same_shape(&a, &b)) {
        print_text(stdout, "%s: ", a.name);
        record_print_shape(&a);
        printf(" and ");
        record_print_shape(&b);
        printf("\n");
        c->differences++;
        return EXIT_DONE;
    }
    if (!is_tied_alike(c, &a, &b))
        return EXIT_DONE;
    for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
        const bool has_a = a.states >> kind & 1, has_b = b.states >> kind & 1;
        if (has_a != has_b) {
            print_line(stdout, "%s of %s: only in %s", KINDS[kind], a.name, c->infos[has_a ? 0 : 1].folder);
            c->differences++;
        }
        const int result = has_a && has_b && !a.tied_to ? compare_state(c, index, other, &a, kind) : EXIT_DONE;
        if (result != EXIT_DONE)
            return result;
    }
    return EXIT_DONE;
}

static int compare_params(comparison *c)
{
    for (size_t i = 0; i < c->infos[0].param_count; i++) {
        const int result = compare_param(c, i);
        if (result != EXIT_DONE)
            return result;
    }
    for (size_t i = 0; i < c->infos[1].param_count; i++) {
        zoff_checkpoint_param p = ZOFF_CHECKPOINT_PARAM_INIT;
        size_t index;
        if (zoff_checkpoint_reader_param(c->sides[1], i, &p) < 0)
            return library_error();
        if (!find_other(c, 0, i, p.name, &index))
            only_in(c, 1, p.name);
    }
    return EXIT_DONE;
}

/* ---- the program's own bytes ---- */

/* Bytes that a program has saved. */
typedef struct datum {
    zoff_checkpoint_data facts;
    unsigned rank; /* rank that has saved the bytes; 0 for those of all ranks */
} datum;

static bool read_datum(const zoff_checkpoint_reader *r, size_t index, datum *out)
{
    return zoff_checkpoint_reader_data_at(r, index, &out->facts, &out->rank) >= 0;
}

/* Find the bytes of the same name and rank. Both sides have mostly the same bytes in the same order, so the search begins
 * behind the last hit. Nothing is searched that the side does not have. */
static bool find_datum(comparison *c, int side, const datum *like, datum *out)
{
    const size_t count = c->infos[side].data_count;
    if (zoff_checkpoint_reader_data(c->sides[side], like->facts.name, like->rank, NULL, 0, NULL) < 0)
        return false;
    for (size_t tried = 0; tried < count; tried++) {
        const size_t i = c->next_datum[side]++ % count;
        if (read_datum(c->sides[side], i, out) && out->rank == like->rank && out->facts.each_rank == like->facts.each_rank &&
            strcmp(out->facts.name, like->facts.name) == 0)
            return true;
    }
    return false;
}

static void name_datum(const datum *d)
{
    print_text(stdout, "data \"%s\"", d->facts.name);
    if (d->facts.each_rank)
        printf(" of rank %u", d->rank);
}

static int compare_bytes(comparison *c, const datum *d, char *a, char *b)
{
    size_t differ = 0, first = 0;
    const size_t count = d->facts.count;
    if (zoff_checkpoint_reader_data(c->sides[0], d->facts.name, d->rank, a, count, NULL) < 0 ||
        zoff_checkpoint_reader_data(c->sides[1], d->facts.name, d->rank, b, count, NULL) < 0)
        return library_error();
    for (size_t i = 0; i < count; i++) {
        if (a[i] != b[i])
            first = differ++ ? first : i;
    }
    if (differ) {
        name_datum(d);
        printf(": %zu of %zu bytes differ; the first is byte %zu\n", differ, count, first);
        c->differences++;
    }
    return EXIT_DONE;
}

/* Compare bytes of `side` with the other side. Bytes that both have are compared once. */
static int compare_datum(comparison *c, int side, const datum *mine)
{
    datum other;
    const bool is_there = find_datum(c, !side, mine, &other);
    const size_t count = mine->facts.count;
    if (progress_canceled())
        return failed("canceled");
    if (is_there && side == 1)
        return EXIT_DONE;
    if (is_there && count == other.facts.count) {
        char *bytes = malloc(2 * count + 1);
        const int result =
            bytes ? compare_bytes(c, mine, bytes, bytes + count) : failed("out of memory for 2 times %zu bytes", count);
        free(bytes);
        return result;
    }
    name_datum(mine);
    if (is_there)
        printf(": %zu bytes and %zu bytes\n", count, other.facts.count);
    else
        print_line(stdout, ": only in %s", c->infos[side].folder);
    c->differences++;
    return EXIT_DONE;
}

static int compare_data(comparison *c)
{
    int result = EXIT_DONE;
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < c->infos[side].data_count && result == EXIT_DONE; i++) {
            datum mine;
            result = read_datum(c->sides[side], i, &mine) ? compare_datum(c, side, &mine) : library_error();
        }
    }
    return result;
}

int checkpoint_diff(zoff_checkpoint_reader *a, zoff_checkpoint_reader *b, bool *out_equal)
{
    comparison c = {.sides = {a, b}};
    for (int i = 0; i < 2; i++) {
        c.infos[i] = (zoff_checkpoint_info)ZOFF_CHECKPOINT_INFO_INIT;
        if (zoff_checkpoint_reader_info(c.sides[i], &c.infos[i]) < 0)
            return library_error();
        c.total += c.infos[i].bytes;
        c.blocks[i] = malloc(BLOCK * sizeof *c.blocks[i]);
    }
    int result = c.blocks[0] && c.blocks[1] ? EXIT_DONE : failed("out of memory");
    progress_begin(&c.progress, "diff");
    if (result == EXIT_DONE) {
        compare_facts(&c);
        result = compare_params(&c);
    }
    if (result == EXIT_DONE)
        result = compare_data(&c);
    progress_end(&c.progress, result == EXIT_DONE);
    if (result == EXIT_DONE && c.differences == 0)
        print_line(stdout, "%s and %s have the same states", c.infos[0].folder, c.infos[1].folder);
    for (int i = 0; i < 2; i++)
        free(c.blocks[i]);
    *out_equal = c.differences == 0;
    return result;
}
