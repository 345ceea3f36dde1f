/* aio_report.c: the table for people and the JSON for programs. */
#include "aio_bench.h"

#include <jansson.h>
#include <math.h>
#include <string.h>
#include <sys/utsname.h>

static void print_race(FILE *out, const bench_match *match)
{
    fprintf(out, "\n%s, %s, %llu MiB: %u rounds, %u of them undisturbed (%u samples taken again)\n", match->r.part,
            match->r.label, (unsigned long long)(match->bytes / MIB), match->r.rounds, match->r.clean_rounds,
            match->r.retried_samples);
    fprintf(out, "%-34s %10s %10s %10s  %8s %9s\n", "", "min ms", "median ms", "max ms", "GB/s", "CPU s/GB");
    for (unsigned i = 0; i < match->r.count; i++) {
        unsigned count;
        const bench_spread spread = race_spread(&match->r, (int)i, &count);
        if (!count) {
            fprintf(out, "%-34s no sample\n", match->lines[i].name);
            continue;
        }
        fprintf(out, "%-34s %10.1f %10.1f %10.1f  %8.3f", match->lines[i].name, 1e3 * spread.min, 1e3 * spread.median,
                1e3 * spread.max, 1e-9 * bench_match_rate(match, (int)i));
        const double cpu = bench_match_cpu(match, (int)i);
        if (!isnan(cpu))
            fprintf(out, " %9.4f", cpu);
        fprintf(out, "%s\n", (int)i == bench_match_best_fio(match) ? "  fio's best" : "");
    }
}

static void print_ratio(FILE *out, const bench_ratio *r)
{
    if (!isfinite(r->value)) {
        fprintf(out, "%-29s  %8s  %-8s not measured: %s\n", r->name, "-", "", r->missing);
        return;
    }
    char asked[32] = "";
    if (r->sense)
        snprintf(asked, sizeof asked, "%s %.2f", r->sense > 0 ? ">=" : "<=", r->limit);
    fprintf(out, "%-29s  %8.*f  %-8s %-7s %s%s%s\n", r->name, r->sense < 0 ? 4 : 3, r->value, asked,
            r->spoilt[0]          ? "void"
            : !r->sense           ? ""
            : bench_judge_held(r) ? "held"
                                  : "MISSED",
            r->meaning, r->spoilt[0] ? "; void: " : "", r->spoilt);
}

void bench_report_table(FILE *out, const bench_options *options, const bench_book *book, const bench_ratio *ratios,
                        unsigned ratio_count)
{
    const bench_place *place = &book->place;
    fprintf(out, "%s, %s, memory %s with the kernel, %zu MiB in huge pages; fio: %s, %s\n", place->backend,
            place->direct ? "O_DIRECT" : "page cache", place->registered ? "registered" : "not registered",
            place->huge_bytes >> 20, book->fio_version[0] ? book->fio_version : "none",
            place->pages_for_fio ? "huge pages" : "no huge pages");
    for (unsigned i = 0; i < book->count; i++)
        print_race(out, book->races[i]);
    fprintf(out, "\nratios, medians of paired rounds\n");
    for (unsigned i = 0; i < ratio_count; i++)
        print_ratio(out, &ratios[i]);
    if (!bench_judge_enough(ratios, ratio_count))
        fprintf(out, "Some figures come from fewer than %d rounds: run again with more --seconds.\n", ENOUGH_ROUNDS);
    fprintf(out, "%.1f s\n", bench_stopwatch_now() - options->start);
}

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* null: what the library takes of its own accord. */
static json_t *chosen(uint64_t value)
{
    return value ? json_integer((json_int_t)value) : json_null();
}

static json_t *samples(const bench_match *match, unsigned index)
{
    json_t *out = json_array();
    for (unsigned k = 0; k < match->r.rounds; k++)
        json_array_append_new(out, number(match->r.entries[index].seconds[k]));
    return out;
}

static json_t *row(const bench_match *match, unsigned index)
{
    const bench_line *line = &match->lines[index];
    unsigned count;
    const bench_spread spread = race_spread(&match->r, (int)index, &count);
    const uint64_t request = line->request ? line->request : match->way == WAY_MIX ? match->bytes / 2 : match->bytes;
    json_t *out = json_pack("{s:s, s:s, s:o, s:o, s:b, s:i, s:o}", "name", line->name, "program", line->engine ? "fio" : "zoff",
                            "block_bytes", chosen(line->block), "depth", chosen(line->depth), "huge_pages", !line->small_pages,
                            "samples", (int)count, "seconds", samples(match, index));
    json_object_set_new(out, "seconds_min", number(spread.min));
    json_object_set_new(out, "seconds_median", number(spread.median));
    json_object_set_new(out, "seconds_max", number(spread.max));
    json_object_set_new(out, "gb_per_s", number(1e-9 * bench_match_rate(match, (int)index)));
    json_object_set_new(out, "cpu_s_per_gb", number(bench_match_cpu(match, (int)index)));
    if (line->engine)
        json_object_set_new(out, "engine", json_string(line->engine));
    else
        json_object_set_new(out, "request_bytes", json_integer((json_int_t)request));
    return out;
}

static json_t *race_object(const bench_match *match)
{
    const int best = bench_match_best_fio(match);
    json_t *rows = json_array();
    for (unsigned i = 0; i < match->r.count; i++)
        json_array_append_new(rows, row(match, i));
    return json_pack("{s:s, s:s, s:I, s:i, s:i, s:i, s:o, s:o}", "part", match->r.part, "way", match->r.label, "bytes",
                     (json_int_t)match->bytes, "rounds", (int)match->r.rounds, "clean_rounds", (int)match->r.clean_rounds,
                     "retried_samples", (int)match->r.retried_samples, "best_fio",
                     best < 0 ? json_null() : json_string(match->lines[best].name), "rows", rows);
}

/* What is asked of a figure and whether it was met; `void` says why a figure proves nothing. */
static json_t *verdict_object(const bench_ratio *r)
{
    json_t *out = json_object();
    json_object_set_new(out, "value", number(r->value));
    json_object_set_new(out, r->sense > 0 ? "at_least" : "at_most", json_real(r->limit));
    json_object_set_new(out, "held", json_boolean(bench_judge_held(r)));
    json_object_set_new(out, "rounds", json_integer(r->rounds));
    json_object_set_new(out, "void", r->spoilt[0] ? json_string(r->spoilt) : json_null());
    return out;
}

static json_t *setting_object(const bench_options *options, const bench_book *book)
{
    const bench_place *place = &book->place;
    struct utsname system = {0};
    uname(&system);
    return json_pack("{s:s, s:s, s:s, s:b, s:b, s:I, s:I, s:b, s:s}", "architecture", system.machine, "kernel", system.release,
                     "backend", place->backend, "direct", place->direct, "registered", place->registered, "file_bytes",
                     (json_int_t)options->bytes, "huge_page_bytes", (json_int_t)place->huge_bytes, "fio_huge_pages",
                     place->pages_for_fio, "fio", book->fio_version);
}

int bench_report_json(const bench_options *options, const bench_book *book, const bench_ratio *ratios, unsigned ratio_count)
{
    json_t *races = json_array(), *figures = json_object(), *verdict = json_object(), *missing = json_object();
    json_t *meanings = json_object();
    for (unsigned i = 0; i < book->count; i++)
        json_array_append_new(races, race_object(book->races[i]));
    for (unsigned i = 0; i < ratio_count; i++) {
        const bench_ratio *r = &ratios[i];
        json_object_set_new(figures, r->name, number(r->value));
        json_object_set_new(meanings, r->name, json_string(r->meaning));
        if (!isfinite(r->value))
            json_object_set_new(missing, r->name, json_string(r->missing));
        if (r->sense)
            json_object_set_new(verdict, r->name, verdict_object(r));
    }
    json_t *root =
        json_pack("{s:s, s:o, s:b, s:f, s:b, s:o, s:o, s:o, s:o, s:o}", "bench", "aio", "setting",
                  setting_object(options, book), "quick", options->quick, "seconds", bench_stopwatch_now() - options->start,
                  "enough_rounds", bench_judge_enough(ratios, ratio_count), "ratios", figures, "verdict", verdict,
                  "not_measured", missing, "meanings", meanings, "races", races);
    if (!root)
        return -1;
    FILE *out = strcmp(options->json_path, "-") == 0 ? stdout : fopen(options->json_path, "we");
    int ret = out ? json_dumpf(root, out, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : -1;
    if (out)
        fputc('\n', out);
    if (out && out != stdout && fclose(out) != 0)
        ret = -1;
    json_decref(root);
    return ret;
}
