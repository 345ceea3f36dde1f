/* report.c: races as tables and as JSON. */
#include "report.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/utsname.h>

/* --- the table --- */

static void print_brief(FILE *out, const race *r)
{
    fprintf(out, "%s, %s: %u rounds;", r->part, r->label, r->rounds);
    for (const race_entry *e = r->entries; e < r->entries + r->count; e++)
        fprintf(out, "%s %s %.3f us", e > r->entries ? "," : "", e->name, 1e6 * bench_spread_of(e->seconds, r->rounds).median);
    fputc('\n', out);
}

static void print_race(FILE *out, const race *r, unsigned enough)
{
    static const struct {
        const char *name;
        double least;
    } UNITS[] = {{"s", 1}, {"ms", 1e-3}, {"us", 0}};
    const bench_spread first = r->count ? bench_spread_of(r->entries[0].seconds, r->rounds) : (bench_spread){.count = 0};
    unsigned unit = 0;
    while (first.count && first.median < UNITS[unit].least)
        unit++;
    const double factor = unit == 2 ? 1e6 : 1 / UNITS[unit].least;
    fprintf(out, "\n%s, %s: %u rounds, %u of them clean%s (%u samples taken again)\n%-22s %13s %10s %10s  %8s %6s  (%s)\n",
            r->part, r->label, r->rounds, r->clean_rounds, r->clean_rounds < enough ? " - TOO FEW" : "", r->retried_samples, "",
            "min", "median", "max", "GB/s", "share", UNITS[unit].name);
    for (const race_entry *e = r->entries; e < r->entries + r->count; e++) {
        const bench_spread s = bench_spread_of(e->seconds, r->rounds);
        const double share = race_share(r, e);
        fprintf(out, "%-22s %13.4f %10.4f %10.4f  %8.2f ", e->name, factor * s.min, factor * s.median, factor * s.max,
                1e-9 * e->elements * e->bytes / s.median);
        if (isnan(share))
            fprintf(out, "%6s", "");
        else
            fprintf(out, "%6.3f", share);
        fprintf(out, "  %s%s%s\n", e->what, e->kernel ? ": " : "", e->kernel ? e->kernel : "");
    }
}

/* --- the JSON --- */

json_t *bench_report_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *row_object(const race *r, unsigned index)
{
    const race_entry *e = &r->entries[index];
    const bench_spread s = bench_spread_of(e->seconds, r->rounds);
    json_t *samples = json_array();
    for (unsigned k = 0; k < r->rounds; k++)
        json_array_append_new(samples, bench_report_number(e->seconds[k]));
    json_t *row =
        json_pack("{s:s, s:s, s:f, s:f, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", e->name, "what", e->what,
                  "elements", e->elements, "bytes_per_element", e->bytes, "calls_per_sample", (int)e->calls, "clean_samples",
                  (int)s.count, "seconds_min", bench_report_number(s.min), "seconds_p10", bench_report_number(s.p10),
                  "seconds_median", bench_report_number(s.median), "seconds_p90", bench_report_number(s.p90), "seconds_max",
                  bench_report_number(s.max), "gb_per_s", bench_report_number(1e-9 * e->elements * e->bytes / s.median),
                  "gparam_per_s", bench_report_number(1e-9 * e->elements / s.median), "seconds", samples);
    if (e->kernel)
        json_object_set_new(row, "kernel", json_string(e->kernel));
    if (e->yardstick) {
        json_object_set_new(row, "yardstick", json_string(e->yardstick));
        json_object_set_new(row, "share", bench_report_number(race_share(r, e)));
    }
    if (r->describe)
        r->describe(r, index, row);
    return row;
}

static json_t *race_object(const race *r, unsigned enough)
{
    json_t *rows = json_array();
    for (unsigned i = 0; i < r->count; i++)
        json_array_append_new(rows, row_object(r, i));
    json_t *out = json_pack("{s:s, s:s, s:i, s:i, s:b, s:i, s:o}", "part", r->part, "label", r->label, "rounds", (int)r->rounds,
                            "clean_rounds", (int)r->clean_rounds, "enough_clean_rounds", r->clean_rounds >= enough,
                            "retried_samples", (int)r->retried_samples, "rows", rows);
    if (r->describe)
        r->describe(r, r->count, out);
    return out;
}

json_t *bench_report_machine(void)
{
    char cpu[256] = "unknown";
    struct utsname system = {0};
    bench_scan("/proc/cpuinfo", 1, "model name : %255[^\n]", cpu);
    uname(&system);
    return json_pack("{s:s, s:s, s:s}", "cpu", cpu, "architecture", system.machine, "kernel", system.release);
}

static int write_json(const json_t *root, const char *path)
{
    FILE *out = !root ? NULL : strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
    int ret = out ? json_dumpf(root, out, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : -1;
    if (out)
        fputc('\n', out);
    if (out && (out == stdout ? fflush(out) : fclose(out)) != 0)
        ret = -1;
    return ret == 0 ? 0
                    : bench_fail("cannot write %s: %s", path,
                                 root ? strerror(errno) : "no memory for it, or a text that is no UTF-8");
}

int bench_report(const bench_run *run, json_t *root, const race_book *book, const bench_figures *figures,
                 const char *rounds_name)
{
    FILE *out = bench_run_table(run);
    json_t *races = json_array();
    bool measured = false;
    const double seconds = bench_now() - run->start;
    for (unsigned i = 0; i < book->count; i++) {
        const race *r = book->races[i];
        if (r->rounds && r->brief)
            print_brief(out, r);
        else if (r->rounds)
            print_race(out, r, book->enough);
        if (r->count)
            json_array_append_new(races, race_object(r, book->enough));
    }
    bench_figures_print(out, figures);
    for (unsigned i = 0; i < figures->count; i++)
        measured = measured || (figures->list[i].sense && figures->list[i].rounds);
    fprintf(out, "%.1f s\n", seconds);
    json_object_update_new(root, json_pack("{s:s, s:o, s:b, s:f, s:o}", "bench", program_invocation_short_name, "machine",
                                           bench_report_machine(), "quick", run->quick, "seconds", seconds, "races", races));
    bench_figures_put(root, figures, rounds_name);
    const int ret = run->json_path ? write_json(root, run->json_path) : 0;
    json_decref(root);
    return ret != 0 ? 1 : measured ? 0 : 3;
}
