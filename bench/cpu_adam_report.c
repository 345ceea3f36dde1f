/* cpu_adam_report.c: the table for people and the JSON for programs. */
#include "cpu_adam_bench.h"

#include "json.h"

#include <math.h>
#include <string.h>

static void print_race(FILE *out, const race *r)
{
    fprintf(out, "\n%s, %s: %u rounds, %u of them clean throughout%s (%u samples taken again)\n", r->part, r->label, r->rounds,
            r->clean_rounds, r->clean_rounds < ENOUGH_ROUNDS ? " - FEWER THAN 9" : "", r->retried_samples);
    fprintf(out, "%-18s %7s  %11s %11s %11s  %8s %9s  %6s\n", "", "B/elem", "min us", "median us", "max us", "GB/s", "Gparam/s",
            "share");
    for (unsigned i = 0; i < r->count; i++) {
        const race_entry *e = &r->entries[i];
        unsigned clean;
        const bench_spread spread = race_spread(r, (int)i, &clean);
        if (!clean) {
            fprintf(out, "%-18s %7.0f  no clean sample\n", e->name, e->bytes);
            continue;
        }
        fprintf(out, "%-18s %7.0f  %11.3f %11.3f %11.3f  %8.2f %9.4f  ", e->name, e->bytes, 1e6 * spread.min,
                1e6 * spread.median, 1e6 * spread.max, 1e-9 * e->elements * e->bytes / spread.median,
                1e-9 * e->elements / spread.median);
        const double share = race_share(r, (int)i);
        if (isnan(share))
            fprintf(out, "%6s", "");
        else
            fprintf(out, "%6.3f", share);
        fprintf(out, "  %s%s%s\n", e->what, e->kernel ? ": " : "", e->kernel ? e->kernel : "");
    }
}

/* One line for each size instead of a table of four. */
static void print_sweep(FILE *out, const bench_book *book)
{
    static const char *const COLUMNS[] = {"zoff", "plain", "plain_if", "nomath", "plain_serial"};
    int head = 0;
    for (unsigned i = 0; i < book->count; i++) {
        const race *r = book->races[i];
        unsigned clean = 0;
        if (strcmp(r->part, "sweep") != 0)
            continue;
        if (!head++)
            fprintf(out, "\nsweep, fp32, medians in us\n%12s %8s %12s %12s %12s %12s %12s  %s\n", "elements", "rounds",
                    COLUMNS[0], COLUMNS[1], COLUMNS[2], COLUMNS[3], COLUMNS[4], "faster of plain and plain_if / zoff");
        fprintf(out, "%12s %8u", r->label, r->clean_rounds);
        for (unsigned c = 0; c < sizeof COLUMNS / sizeof COLUMNS[0]; c++) {
            const int e = race_find(r, COLUMNS[c]);
            fprintf(out, " %12.4f", e < 0 ? NAN : 1e6 * race_spread(r, e, &clean).median);
        }
        const int own = race_find(r, "zoff");
        fprintf(
            out, "  %.3f\n",
            fmin(race_compare(r, race_find(r, "plain"), own).median, race_compare(r, race_find(r, "plain_if"), own).median));
    }
}

void bench_report_table(FILE *out, const bench_options *options, const bench_book *book, const bench_figures *figures)
{
    char cpu[256];
    bench_json_cpu(cpu, sizeof cpu);
    fprintf(out, "%s, %u threads, %s kernels, %zu MiB in huge pages\n", cpu, options->threads, zoff_isa(),
            book->huge_bytes >> 20);
    for (unsigned i = 0; i < book->count; i++) {
        if (strcmp(book->races[i]->part, "sweep") != 0 && strcmp(book->races[i]->part, "yardstick") != 0)
            print_race(out, book->races[i]);
    }
    print_sweep(out, book);
    fprintf(out, "\nratios, medians of paired rounds\n");
    bench_figures_print(out, figures);
    if (!bench_judge_enough(figures, PART_ANY))
        fprintf(out, "Some figures come from fewer than %d clean rounds: run again on a quieter machine.\n", ENOUGH_ROUNDS);
    fprintf(out, "%.1f s\n", bench_stopwatch_now() - options->run.start);
}

static json_t *row(const race *r, int index)
{
    const race_entry *e = &r->entries[index];
    unsigned clean;
    const bench_spread spread = race_spread(r, index, &clean);
    json_t *out = json_pack("{s:s, s:s, s:f, s:f, s:i, s:i}", "name", e->name, "what", e->what, "elements", e->elements,
                            "bytes_per_element", e->bytes, "calls_per_sample", (int)e->calls, "clean_samples", (int)clean);
    bench_json_spread(out, spread);
    json_object_set_new(out, "gb_per_s", bench_json_number(1e-9 * e->elements * e->bytes / spread.median));
    json_object_set_new(out, "gparam_per_s", bench_json_number(1e-9 * e->elements / spread.median));
    if (e->kernel)
        json_object_set_new(out, "kernel", json_string(e->kernel));
    if (e->yardstick >= 0) {
        json_object_set_new(out, "yardstick", json_string(r->entries[e->yardstick].name));
        json_object_set_new(out, "share", bench_json_number(race_share(r, index)));
    }
    return out;
}

static json_t *race_object(const race *r)
{
    json_t *rows = json_array();
    for (unsigned i = 0; i < r->count; i++)
        json_array_append_new(rows, row(r, (int)i));
    return json_pack("{s:s, s:s, s:i, s:i, s:b, s:i, s:o}", "part", r->part, "label", r->label, "rounds", (int)r->rounds,
                     "clean_rounds", (int)r->clean_rounds, "enough_clean_rounds", r->clean_rounds >= ENOUGH_ROUNDS,
                     "retried_samples", (int)r->retried_samples, "rows", rows);
}

int bench_report_json(const bench_options *options, const bench_book *book, const bench_figures *figures)
{
    json_t *root = json_pack("{s:s, s:o, s:i, s:s, s:b, s:f, s:I, s:b}", "bench", "cpu_adam", "machine", bench_json_machine(),
                             "threads", (int)options->threads, "isa", zoff_isa(), "quick", options->run.quick, "seconds",
                             bench_stopwatch_now() - options->run.start, "huge_page_bytes", (json_int_t)book->huge_bytes,
                             "enough_clean_rounds", bench_judge_enough(figures, PART_ANY));
    json_t *races = json_array();
    for (unsigned i = 0; i < book->count; i++)
        json_array_append_new(races, race_object(book->races[i]));
    bench_figures_put(root, figures, "clean_rounds");
    json_object_set_new(root, "races", races);
    return bench_json_write(root, options->run.json_path);
}
