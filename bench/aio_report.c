/* aio_report.c: the table for people and the JSON for programs. */
#include "aio_bench.h"

#include "json.h"

#include <math.h>

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

void bench_report_table(FILE *out, const bench_options *options, const bench_book *book, const bench_figures *figures)
{
    const bench_place *place = &book->place;
    fprintf(out, "%s, %s, memory %s with the kernel, %zu MiB in huge pages; fio: %s, %s\n", place->backend,
            place->direct ? "O_DIRECT" : "page cache", place->registered ? "registered" : "not registered",
            place->huge_bytes >> 20, book->fio_version[0] ? book->fio_version : "none",
            place->pages_for_fio ? "huge pages" : "no huge pages");
    for (unsigned i = 0; i < book->count; i++)
        print_race(out, book->races[i]);
    fprintf(out, "\nratios, medians of paired rounds\n");
    bench_figures_print(out, figures);
    if (!bench_judge_enough(figures))
        fprintf(out, "Some figures come from fewer than %d rounds: run again with more --seconds.\n", ENOUGH_ROUNDS);
    fprintf(out, "%.1f s\n", bench_stopwatch_now() - options->run.start);
}

/* null: what the library takes of its own accord. */
static json_t *chosen(uint64_t value)
{
    return value ? json_integer((json_int_t)value) : json_null();
}

static json_t *row(const bench_match *match, unsigned index)
{
    const bench_line *line = &match->lines[index];
    unsigned count;
    const bench_spread spread = race_spread(&match->r, (int)index, &count);
    const uint64_t request = line->request ? line->request : match->way == WAY_MIX ? match->bytes / 2 : match->bytes;
    json_t *out = json_pack("{s:s, s:s, s:o, s:o, s:b, s:i, s:o}", "name", line->name, "program", line->engine ? "fio" : "zoff",
                            "block_bytes", chosen(line->block), "depth", chosen(line->depth), "huge_pages", !line->small_pages,
                            "samples", (int)count, "seconds", bench_json_samples(&match->r, index));
    bench_json_spread(out, spread);
    json_object_set_new(out, "gb_per_s", bench_json_number(1e-9 * bench_match_rate(match, (int)index)));
    json_object_set_new(out, "cpu_s_per_gb", bench_json_number(bench_match_cpu(match, (int)index)));
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

/* The machine, and what was found out about the file, the memory and fio. */
static json_t *setting_object(const bench_options *options, const bench_book *book)
{
    const bench_place *place = &book->place;
    json_t *out = bench_json_machine();
    json_t *found = json_pack("{s:s, s:b, s:b, s:I, s:I, s:b, s:s}", "backend", place->backend, "direct", place->direct,
                              "registered", place->registered, "file_bytes", (json_int_t)options->bytes, "huge_page_bytes",
                              (json_int_t)place->huge_bytes, "fio_huge_pages", place->pages_for_fio, "fio", book->fio_version);
    if (json_object_update(out, found) != 0) {
        json_decref(out);
        out = NULL;
    }
    json_decref(found);
    return out;
}

int bench_report_json(const bench_options *options, const bench_book *book, const bench_figures *figures)
{
    json_t *root = json_pack("{s:s, s:o, s:b, s:f, s:b}", "bench", "aio", "setting", setting_object(options, book), "quick",
                             options->run.quick, "seconds", bench_stopwatch_now() - options->run.start, "enough_rounds",
                             bench_judge_enough(figures));
    json_t *races = json_array();
    for (unsigned i = 0; i < book->count; i++)
        json_array_append_new(races, race_object(book->races[i]));
    bench_figures_put(root, figures, "rounds");
    json_object_set_new(root, "races", races);
    return bench_json_write(root, options->run.json_path);
}
