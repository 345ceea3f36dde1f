/* race.c: rounds, and ratios between contestants. */
#include "race.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Repeat work of a few microseconds within a sample, so that the clock's resolution does not show. */
static const double SAMPLE_SECONDS = 0.004;

const race *race_of(const race_book *book, const char *part, const char *label_end)
{
    for (unsigned i = 0; i < book->count; i++) {
        const race *r = book->races[i];
        const size_t length = strlen(r->label), wanted = strlen(label_end);
        if (strcmp(r->part, part) == 0 && length >= wanted && strcmp(r->label + length - wanted, label_end) == 0)
            return r;
    }
    return NULL;
}

race *race_open(race_book *book, const char *part, const char *label, ...)
{
    char text[sizeof book->races[0]->label];
    va_list args;
    va_start(args, label);
    vsnprintf(text, sizeof text, label, args);
    va_end(args);
    for (unsigned i = 0; i < book->count; i++) {
        if (strcmp(book->races[i]->part, part) == 0 && strcmp(book->races[i]->label, text) == 0)
            return book->races[i];
    }
    race *r = book->count < RACE_BOOK ? calloc(1, sizeof *r) : NULL;
    if (!r) {
        fprintf(stderr, "%s: no room for the results of %s\n", program_invocation_short_name, part);
        exit(1);
    }
    r->part = part;
    r->threads = book->threads;
    memcpy(r->label, text, sizeof text);
    return book->races[book->count++] = r;
}

void race_book_free(race_book *book)
{
    while (book->count)
        free(book->races[--book->count]);
}

const race_entry *race_find(const race *r, const char *name)
{
    for (unsigned i = 0; r && i < r->count; i++) {
        if (strcmp(r->entries[i].name, name) == 0)
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
        *e = (race_entry){.name = line->name, .what = line->what, .yardstick = line->yardstick, .bytes = line->bytes};
        e->elements = elements;
        e->calls = calls;
    }
    e->work = (bench_work){line->run, ctx, line->which};
    return e;
}

void race_add_lines(race *r, const race_line *lines, unsigned tags, double elements, void *ctx, unsigned calls)
{
    for (; lines->name; lines++) {
        if (lines->tags & tags)
            race_add(r, lines, elements, ctx, calls);
    }
}

static int take_sample(race *r, race_entry *e, double deadline)
{
    enum { TRIES = 4, MOST_CALLS = 1 << 24 };
    bench_sample sample = bench_stopwatch_sample(&e->work, e->calls, r->threads, TRIES, deadline);
    /* A busy moment may have made a call look longer than it is. */
    while (e->found && sample.status == 1 && sample.seconds * e->calls < SAMPLE_SECONDS / 2 && e->calls < MOST_CALLS) {
        e->calls *= 2;
        sample = bench_stopwatch_sample(&e->work, e->calls, r->threads, TRIES, deadline);
    }
    e->seconds[r->rounds] = sample.status == 1 ? sample.seconds : NAN;
    r->retried_samples += sample.retries;
    return sample.status;
}

int race_round(race *r, double deadline)
{
    unsigned clean = 0;
    for (unsigned k = 0; k < r->count; k++) {
        const unsigned turn = r->neighbours ? k : (k + r->rounds / 2 * 3) % r->count;
        race_entry *e = &r->entries[r->rounds % 2 ? r->count - 1 - turn : turn];
        e->seconds[r->rounds] = e->other[r->rounds] = NAN;
        if (e->before && e->before(e->work.ctx, e->work.which) != 0)
            return -1;
        const int status = r->sample ? r->sample(r, e, deadline) : take_sample(r, e, deadline);
        if (status < 0)
            return -1;
        clean += status == 1;
    }
    r->rounds++;
    r->clean_rounds += clean == r->count;
    return 0;
}

int race_run(race *r, unsigned wanted, double deadline)
{
    for (unsigned i = 0; i < r->count && r->clean_rounds < wanted; i++) {
        race_entry *e = &r->entries[i];
        if (e->calls || bench_now() >= deadline)
            continue;
        e->found = true;
        e->calls = bench_stopwatch_calls(&e->work, SAMPLE_SECONDS);
        if (!e->calls)
            return -1;
    }
    while (r->clean_rounds < wanted && r->rounds < RACE_ROUNDS && bench_now() < deadline) {
        if (race_round(r, deadline) != 0)
            return -1;
    }
    return 0;
}

double race_at(const race *r, const char *name, unsigned round)
{
    const race_entry *e = race_find(r, name);
    return e && round < r->rounds ? e->seconds[round] : NAN;
}

bench_spread race_values(const race *r, race_value_fn value)
{
    double values[RACE_ROUNDS];
    const unsigned rounds = r ? r->rounds : 0;
    for (unsigned k = 0; k < rounds; k++)
        values[k] = value(r, k);
    return bench_spread_of(values, rounds);
}

bench_spread race_ratio(const race *r, const char *a, const char *b)
{
    double values[RACE_ROUNDS];
    const unsigned rounds = r ? r->rounds : 0;
    for (unsigned k = 0; k < rounds; k++)
        values[k] = race_at(r, a, k) / race_at(r, b, k);
    return bench_spread_of(values, rounds);
}

double race_share(const race *r, const race_entry *e)
{
    const race_entry *y = e && e->yardstick ? race_find(r, e->yardstick) : NULL;
    return y ? race_ratio(r, y->name, e->name).median * (e->bytes * e->elements) / (y->bytes * y->elements) : NAN;
}
