/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_inspect.c: `zoff checkpoint inspect`: what a checkpoint has, and with --stats the range of the numbers in each
 * state. The numbers go by in one pass, one block of elements at a time. */
#include "dtype.h"
#include "import_kind.h"
#include "names.h"
#include "progress.h"
#include "records.h"
#include "verbs.h"

#include <float.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zoff/zoff.h>

enum { BLOCK = 1 << 20, KIND_COUNT = 4 };

static const char *const KINDS[KIND_COUNT] = {"master", "m", "v", "weights"};

/* The numbers of one state. Least, most and squares are those of finite numbers. */
typedef struct numbers {
    uint64_t finite, nan, infinite;
    float least, most;
    double squares; /* sum in the order of elements */
} numbers;

typedef struct inspection {
    const char *folder, *label;
    bool manifest, json, stats;
    zoff_checkpoint_reader *reader;
    zoff_checkpoint_info info;
    float *block;
    uint64_t done, total;           /* bytes of numbers as fp32 */
    size_t with_nan, with_infinite; /* parameters */
    char *first;                    /* name of the first of them */
    progress progress;
} inspection;

/* ---- numbers ---- */

static void add(numbers *n, const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const float value = values[i];
        if (fabsf(value) <= FLT_MAX) {
            n->finite++;
            n->least = value < n->least ? value : n->least;
            n->most = value > n->most ? value : n->most;
            n->squares += (double)value * value;
        } else if (isnan(value)) {
            n->nan++;
        } else {
            n->infinite++;
        }
    }
}

static int read_numbers(inspection *s, size_t index, const zoff_checkpoint_param *p, unsigned kind, numbers *out)
{
    const size_t all = p->count * p->slices;
    *out = (numbers){.least = INFINITY, .most = -INFINITY};
    for (size_t at = 0; at < all; at += BLOCK) {
        const size_t count = all - at < BLOCK ? all - at : BLOCK;
        if (zoff_checkpoint_reader_read(s->reader, index, (zoff_state_kind)kind, at, count, s->block) < 0)
            return library_error();
        add(out, s->block, count);
        s->done += count * sizeof(float);
        if (!progress_tell("inspect", s->done, s->total, &s->progress))
            return failed("canceled");
    }
    return EXIT_DONE;
}

static double rms_of(const numbers *n)
{
    return sqrt(n->squares / (double)n->finite);
}

static void print_numbers(const numbers *n, const char *kind)
{
    printf("    %-7s", kind);
    if (n->finite)
        printf(" min %.6g  max %.6g  rms %.6g", (double)n->least, (double)n->most, rms_of(n));
    else
        printf(" no finite number");
    if (n->nan)
        printf("  NaN %" PRIu64, n->nan);
    if (n->infinite)
        printf("  inf %" PRIu64, n->infinite);
    printf("\n");
}

/* Add the numbers to the JSON of a state. JSON has no infinite ones, so without a finite one they are null. */
static void set_numbers(json_t *state, const numbers *n)
{
    const bool has = n->finite > 0;
    json_object_set_new(state, "min", has ? json_real((double)n->least) : json_null());
    json_object_set_new(state, "max", has ? json_real((double)n->most) : json_null());
    json_object_set_new(state, "rms", has ? json_real(rms_of(n)) : json_null());
    json_object_set_new(state, "nan", json_integer((json_int_t)n->nan));
    json_object_set_new(state, "inf", json_integer((json_int_t)n->infinite));
}

/* ---- parameters ---- */

static bool has_state(const zoff_checkpoint_param *p, unsigned kind)
{
    return !p->tied_to && (p->states >> kind & 1);
}

static void print_param(const inspection *s, size_t index, const zoff_checkpoint_param *p)
{
    const char *before = " ", *format;
    print_text(stdout, "  %s  ", p->name);
    record_print_shape(p);
    if (p->slice_name)
        print_text(stdout, " as %s", p->slice_name);
    for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
        if (has_state(p, kind) && zoff_checkpoint_reader_format(s->reader, index, (zoff_state_kind)kind, &format) == ZOFF_OK) {
            printf("%s%s %s", before, KINDS[kind], format);
            before = ", ";
        }
    }
    if (p->tied_to)
        print_text(stdout, " tied to %s", p->tied_to);
    else if (p->rule)
        print_text(stdout, ", rule %s", p->rule);
    printf("\n");
}

/* A name as zoff export writes it, because JSON holds UTF-8 only. */
static json_t *json_name(const char *name)
{
    pool memory = {0};
    const char *plain = name ? name_of_tensor(&memory, name, NAME_WHOLE) : NULL;
    json_t *text = plain ? json_string(plain) : json_null();
    pool_free(&memory);
    return text;
}

static json_t *json_param(const inspection *s, size_t index, const zoff_checkpoint_param *p, const numbers *stats)
{
    const char *format;
    json_t *param = json_object(), *dims = json_array(), *states = json_object();
    for (size_t i = 0; i < p->dim_count; i++)
        json_array_append_new(dims, json_integer((json_int_t)p->dims[i]));
    json_object_set_new(param, "name", json_name(p->name));
    json_object_set_new(param, "dtype", json_string(dtype_name(p->dtype)));
    json_object_set_new(param, "dims", dims);
    json_object_set_new(param, "slices", json_integer((json_int_t)p->slices));
    json_object_set_new(param, "slice_name", json_name(p->slice_name));
    json_object_set_new(param, "tied_to", json_name(p->tied_to));
    for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
        if (!has_state(p, kind) || zoff_checkpoint_reader_format(s->reader, index, (zoff_state_kind)kind, &format) < 0)
            continue;
        json_t *state = json_pack("{s:s}", "format", format);
        if (s->stats)
            set_numbers(state, &stats[kind]);
        json_object_set_new(states, KINDS[kind], state);
    }
    json_object_set_new(param, "states", states);
    if (p->rule && !p->tied_to)
        json_object_set_new(param, "rule", json_string(p->rule));
    return param;
}

/* Count a parameter whose numbers are not all finite. */
static int note(inspection *s, const zoff_checkpoint_param *p, const numbers *stats)
{
    bool nan = false, infinite = false;
    for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
        nan = nan || stats[kind].nan;
        infinite = infinite || stats[kind].infinite;
    }
    s->with_nan += nan;
    s->with_infinite += infinite;
    if ((nan || infinite) && !s->first)
        s->first = strdup(p->name);
    return (nan || infinite) && !s->first ? failed("out of memory for a name") : EXIT_DONE;
}

static int print_json(const json_t *value, const char *before)
{
    if (printf("%s", before) < 0 || !value || json_dumpf(value, stdout, JSON_COMPACT) != 0)
        return value ? EXIT_DONE : failed("out of memory for JSON"); /* finish_output() tells of a write that failed */
    return EXIT_DONE;
}

static int inspect_param(inspection *s, size_t index)
{
    zoff_checkpoint_param p = ZOFF_CHECKPOINT_PARAM_INIT;
    numbers stats[KIND_COUNT] = {{.finite = 0}};
    if (zoff_checkpoint_reader_param(s->reader, index, &p) < 0)
        return library_error();
    if (!s->json)
        print_param(s, index, &p);
    for (unsigned kind = 0; kind < KIND_COUNT && s->stats; kind++) {
        const int result = has_state(&p, kind) ? read_numbers(s, index, &p, kind, &stats[kind]) : EXIT_DONE;
        if (result != EXIT_DONE)
            return result;
        if (has_state(&p, kind) && !s->json)
            print_numbers(&stats[kind], KINDS[kind]);
    }
    int result = note(s, &p, stats);
    if (s->json && result == EXIT_DONE) {
        json_t *param = json_param(s, index, &p, stats);
        result = print_json(param, index ? ",\n  " : "\n  ");
        json_decref(param);
    }
    return result;
}

/* ---- the program's own bytes ---- */

static int inspect_datum(const inspection *s, size_t index)
{
    unsigned rank;
    zoff_checkpoint_data d;
    int result = EXIT_DONE;
    if (zoff_checkpoint_reader_data_at(s->reader, index, &d, &rank) < 0)
        return library_error();
    if (s->json) {
        json_t *datum = json_pack("{s:o, s:I, s:o}", "name", json_name(d.name), "bytes", (json_int_t)d.count, "rank",
                                  d.each_rank ? json_integer((json_int_t)rank) : json_null());
        result = print_json(datum, index ? ",\n  " : "\n  ");
        json_decref(datum);
        return result;
    }
    print_text(stdout, "  data \"%s\"", d.name);
    if (d.each_rank)
        printf(" of rank %u", rank);
    printf(": %zu byte%s\n", d.count, d.count == 1 ? "" : "s");
    return result;
}

/* ---- all of it ---- */

static const char *plural(size_t count)
{
    return count == 1 ? "" : "s";
}

static void print_facts(const inspection *s)
{
    char bytes[32];
    const zoff_checkpoint_info *i = &s->info;
    progress_bytes(bytes, (double)i->bytes);
    print_line(stdout, "%s", i->folder);
    printf("step %" PRId64 ", id %s, %s, written by %u rank%s%s\n", i->t, i->id, bytes, i->ranks, plural(i->ranks),
           i->pinned ? ", pinned" : "");
    if (i->has_loss_scaler)
        printf("loss scale %g, %" PRId64 " steps, last overflow %" PRId64 ", hysteresis %" PRIu64 "\n", i->loss_scaler.scale,
               i->loss_scaler.iterations, i->loss_scaler.last_overflow, i->loss_scaler.hysteresis);
    printf("%zu parameter%s\n", i->param_count, plural(i->param_count));
}

static int print_json_facts(const inspection *s)
{
    const zoff_checkpoint_info *i = &s->info;
    json_t *facts =
        json_pack("{s:o, s:s, s:s, s:I, s:I, s:i, s:b}", "folder", json_name(i->folder), "id", i->id, "label", i->label, "step",
                  (json_int_t)i->t, "bytes", (json_int_t)i->bytes, "ranks", (int)i->ranks, "pinned", (int)i->pinned);
    char *text = facts ? json_dumps(facts, JSON_COMPACT) : NULL;
    json_decref(facts);
    if (!text)
        return failed("out of memory for JSON");
    printf("%.*s,\n \"params\":[", (int)strlen(text) - 1, text);
    free(text);
    return EXIT_DONE;
}

static void print_finiteness(const inspection *s)
{
    if (!s->first)
        printf("all numbers are finite\n");
    if (s->with_nan)
        printf("%zu parameter%s NaN", s->with_nan, s->with_nan == 1 ? " has" : "s have");
    if (s->with_infinite)
        printf("%s%zu parameter%s infinite numbers", s->with_nan ? ", " : "", s->with_infinite,
               s->with_infinite == 1 ? " has" : "s have");
    if (s->first)
        print_line(stdout, "; the first is %s", s->first);
}

static int inspect_all(inspection *s)
{
    int result = EXIT_DONE;
    if (s->json)
        result = print_json_facts(s);
    else
        print_facts(s);
    for (size_t i = 0; i < s->info.param_count && result == EXIT_DONE; i++)
        result = inspect_param(s, i);
    if (s->json && result == EXIT_DONE)
        printf("],\n \"data\":[");
    for (size_t i = 0; i < s->info.data_count && result == EXIT_DONE; i++)
        result = inspect_datum(s, i);
    if (result != EXIT_DONE)
        return result;
    if (s->json && s->stats)
        printf("],\n \"params_with_nan\":%zu,\"params_with_inf\":%zu}\n", s->with_nan, s->with_infinite);
    else if (s->json)
        printf("]}\n");
    else if (s->stats)
        print_finiteness(s);
    return EXIT_DONE;
}

static int inspect_with_stats(inspection *s)
{
    s->block = malloc(BLOCK * sizeof *s->block);
    if (!s->block)
        return failed("out of memory for a block of elements");
    for (size_t i = 0; i < s->info.param_count; i++) {
        zoff_checkpoint_param p = ZOFF_CHECKPOINT_PARAM_INIT;
        if (zoff_checkpoint_reader_param(s->reader, i, &p) < 0)
            return library_error();
        for (unsigned kind = 0; kind < KIND_COUNT; kind++)
            s->total += has_state(&p, kind) ? (uint64_t)p.count * p.slices * sizeof(float) : 0;
    }
    progress_begin(&s->progress, "inspect");
    const int result = inspect_all(s);
    progress_end(&s->progress, result == EXIT_DONE);
    return result;
}

static int print_manifest(const zoff_checkpoint_reader *r)
{
    size_t bytes = 0;
    if (zoff_checkpoint_reader_manifest(r, NULL, 0, &bytes) < 0)
        return library_error();
    char *text = malloc(bytes + 1);
    if (!text)
        return failed("out of memory for a manifest of %zu bytes", bytes);
    zoff_checkpoint_reader_manifest(r, text, bytes + 1, NULL);
    fwrite(text, 1, bytes, stdout);
    free(text);
    return EXIT_DONE;
}

static int run(inspection *s)
{
    if (zoff_checkpoint_reader_open(s->folder, s->label, &s->reader) < 0)
        return import_kind_no_checkpoint(s->folder);
    s->info = (zoff_checkpoint_info)ZOFF_CHECKPOINT_INFO_INIT;
    int result = zoff_checkpoint_reader_info(s->reader, &s->info) < 0 ? library_error() : EXIT_DONE;
    if (result == EXIT_DONE)
        result = s->manifest ? print_manifest(s->reader) : s->stats ? inspect_with_stats(s) : inspect_all(s);
    if (result == EXIT_DONE)
        result = finish_output();
    zoff_checkpoint_reader_close(s->reader);
    free(s->block);
    free(s->first);
    return result;
}

int verb_checkpoint_inspect(int argc, char **argv)
{
    inspection s = {.folder = NULL};
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--manifest") == 0)
            s.manifest = true;
        else if (strcmp(argv[i], "--stats") == 0)
            s.stats = true;
        else if (strcmp(argv[i], "--json") == 0)
            s.json = true;
        else if (strcmp(argv[i], "--label") == 0 && i + 1 < argc)
            s.label = argv[++i];
        else if (argv[i][0] == '-' && argv[i][1])
            return usage_error("checkpoint inspect: there is no option \"%s\", or it needs a value", argv[i]);
        else if (s.folder)
            return usage_error("checkpoint inspect takes one folder, not both \"%s\" and \"%s\"", s.folder, argv[i]);
        else
            s.folder = argv[i];
    }
    if (!s.folder)
        return usage_error("checkpoint inspect needs a folder");
    if (s.manifest && (s.stats || s.json))
        return usage_error("checkpoint inspect: --manifest is JSON already, without --stats or --json");
    return run(&s);
}
