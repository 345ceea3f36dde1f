/* SPDX-License-Identifier: Apache-2.0 */
/* race.c: rounds, and formulas over the samples of contestants. */
#include "race.h"

#include "program.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Repeat work of a few microseconds within a sample, so that the clock's resolution does not show. */
static const double SAMPLE_SECONDS = 0.004;

/* --- the book --- */

struct race_book race_book;
bool (*race_agree)(bool late);

race *race_of(const char *name)
{
    const size_t part = strcspn(name, "/");
    const char *end = name + part + (name[part] == '/');
    for (unsigned i = 0; i < race_book.count; i++) {
        race *r = race_book.races[i];
        const size_t length = strlen(r->label), wanted = strlen(end);
        if (strlen(r->part) == part && strncmp(r->part, name, part) == 0 && length >= wanted &&
            strcmp(r->label + length - wanted, end) == 0)
            return r;
    }
    return NULL;
}

race *race_open(const char *part, const char *label)
{
    for (unsigned i = 0; i < race_book.count; i++) {
        if (strcmp(race_book.races[i]->part, part) == 0 && strcmp(race_book.races[i]->label, label) == 0)
            return race_book.races[i];
    }
    race *r = race_book.count < RACE_BOOK ? calloc(1, sizeof *r) : NULL;
    if (!r)
        bench_die("no room for the results of %s", part);
    *r = (race){.part = part, .label = label, .threads = race_book.threads, .missing = ""};
    return race_book.races[race_book.count++] = r;
}

const race_entry *race_find(const race *r, const char *name)
{
    for (unsigned i = 0; r && i < r->count; i++) {
        if (strcmp(r->entries[i].line.name, name) == 0)
            return &r->entries[i];
    }
    return NULL;
}

race_entry *race_add(race *r, const race_line *line, double elements, void *ctx, unsigned calls)
{
    race_entry *e = (race_entry *)race_find(r, line->name);
    if (!e) {
        if (r->count == RACE_ENTRIES)
            abort(); /* an error in the benchmark */
        e = &r->entries[r->count++];
        *e = (race_entry){.line = *line, .elements = elements, .calls = calls};
    }
    e->work = (bench_work){line->run, ctx ? ctx : line->ctx, line->which};
    return e;
}

void race_add_lines(race *r, const race_line *lines, unsigned tags, double elements, void *ctx, unsigned calls)
{
    for (; lines->name; lines++) {
        if (!tags || lines->tags & tags)
            race_add(r, lines, elements, ctx, calls);
    }
}

/* --- rounds --- */

static double take_sample(race *r, race_entry *e, double deadline)
{
    enum { TRIES = 4, MOST_CALLS = 1 << 24 };
    bench_sample sample = bench_stopwatch_sample(&e->work, e->calls, r->threads, TRIES, deadline);
    /* A busy moment may have made a call look longer than it is. */
    while (e->found && sample.clean && sample.seconds * e->calls < SAMPLE_SECONDS / 2 && e->calls < MOST_CALLS) {
        e->calls *= 2;
        sample = bench_stopwatch_sample(&e->work, e->calls, r->threads, TRIES, deadline);
    }
    r->retried_samples += sample.retries;
    return sample.clean ? sample.seconds : NAN;
}

void race_round(race *r, double deadline)
{
    unsigned clean = 0;
    for (unsigned k = 0; k < r->count; k++) {
        const unsigned turn = r->neighbours ? k : (k + r->rounds / 2 * 3) % r->count;
        race_entry *e = &r->entries[r->rounds % 2 ? r->count - 1 - turn : turn];
        e->other[r->rounds] = NAN;
        e->disturbed[r->rounds] = false;
        if (e->line.before)
            e->line.before(e->work.ctx, e->work.which);
        e->seconds[r->rounds] = (r->sample ? r->sample : take_sample)(r, e, deadline);
        clean += isfinite(e->seconds[r->rounds]) && !e->disturbed[r->rounds];
    }
    r->rounds++;
    r->clean_rounds += clean == r->count;
}

static bool is_late(const race *r, double deadline)
{
    const bool late = r->rounds >= r->least && bench_now() >= deadline;
    return race_agree ? race_agree(late) : late;
}

void race_run(race *r, unsigned wanted, double deadline)
{
    for (unsigned i = 0; i < r->count && r->clean_rounds < wanted; i++) {
        race_entry *e = &r->entries[i];
        if (e->calls || bench_now() >= deadline)
            continue;
        e->found = true;
        e->calls = bench_stopwatch_calls(&e->work, SAMPLE_SECONDS);
    }
    while (r->clean_rounds < wanted && r->rounds < RACE_ROUNDS && !is_late(r, deadline))
        race_round(r, deadline);
}

void race_print_samples(const race *r)
{
    for (unsigned k = 0; k < r->rounds; k++) {
        for (const race_entry *e = r->entries; e < r->entries + r->count; e++)
            printf("%.6f %d ", e->seconds[k], e->disturbed[k]);
    }
    putchar('\n');
}

void race_read_samples(race *r, const char *line)
{
    for (int used = 0; r->count && r->rounds < RACE_ROUNDS; r->rounds++) {
        int disturbed = 0, finite = 1;
        for (race_entry *e = r->entries; e < r->entries + r->count; e++, line += used) {
            int own;
            if (sscanf(line, "%lf %d%n", &e->seconds[r->rounds], &own, &used) != 2)
                return;
            disturbed |= own;
            finite = finite && isfinite(e->seconds[r->rounds]);
        }
        for (race_entry *e = r->entries; e < r->entries + r->count; e++)
            e->disturbed[r->rounds] = disturbed;
        r->clean_rounds += finite && !disturbed;
    }
}

/* --- formulas --- */

/* The rest of a formula, and whether a contestant in its first part was disturbed in this round. */
typedef struct reader {
    const char *at;
    const race *r;
    unsigned round;
    bool disturbed;
} reader;

static double read_sum(reader *in);

static bool take(reader *in, const char *word)
{
    in->at += strspn(in->at, " ");
    const size_t length = strlen(word);
    const bool found = strncmp(in->at, word, length) == 0;
    in->at += found ? length : 0;
    return found;
}

static double read_name(reader *in)
{
    char name[128];
    const bool quoted = take(in, "'");
    const size_t length = strcspn(in->at, quoted ? "'" : " .,+-*/()");
    snprintf(name, sizeof name, "%.*s", (int)length, in->at);
    in->at += length + quoted;
    const bool bytes = take(in, ".bytes"), elements = take(in, ".elements"), other = take(in, ".other");
    const race_entry *e = race_find(in->r, name);
    in->disturbed = in->disturbed || (e && e->disturbed[in->round]);
    return !e ? NAN : bytes ? e->line.bytes : elements ? e->elements : other ? e->other[in->round] : e->seconds[in->round];
}

static double read_factor(reader *in)
{
    if (take(in, "max(")) {
        double most = read_sum(in);
        while (take(in, ",")) {
            const double next = read_sum(in);
            most = next > most ? next : most; /* this is false if one of them is no number */
        }
        take(in, ")");
        return most;
    }
    if (take(in, "(")) {
        const double value = read_sum(in);
        take(in, ")");
        return value;
    }
    if (!isdigit((unsigned char)*in->at))
        return read_name(in);
    char *end;
    const double value = strtod(in->at, &end);
    in->at = end;
    return value;
}

static double read_product(reader *in)
{
    double value = read_factor(in);
    for (bool times = false; (times = take(in, "*")) || take(in, "/");)
        value = times ? value * read_factor(in) : value / read_factor(in);
    return value;
}

static double read_sum(reader *in)
{
    double value = read_product(in);
    for (bool plus = false; (plus = take(in, "+")) || take(in, "-");)
        value = plus ? value + read_product(in) : value - read_product(in);
    return value;
}

bench_spread race_values(const race *r, const char *formula, bool quiet)
{
    double values[RACE_ROUNDS];
    const unsigned rounds = r ? r->rounds : 0;
    for (unsigned k = 0; k < rounds; k++) {
        reader in = {.at = formula, .r = r, .round = k};
        values[k] = read_sum(&in);
        if (*in.at)
            abort(); /* an error in the benchmark */
        values[k] = quiet && in.disturbed ? NAN : values[k];
    }
    return bench_spread_of(values, rounds);
}

double race_median(const race *r, const char *name)
{
    const race_entry *e = race_find(r, name);
    return bench_spread_of(e ? e->seconds : NULL, e ? r->rounds : 0).median;
}

double race_share(const race *r, const race_entry *e)
{
    const race_entry *y = e && e->line.yardstick ? race_find(r, e->line.yardstick) : NULL;
    return y ? race_values(r, bench_text("'%s' / '%s'", y->line.name, e->line.name), false).median *
                   (e->line.bytes * e->elements) / (y->line.bytes * y->elements)
             : NAN;
}
