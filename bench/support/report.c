/* SPDX-License-Identifier: Apache-2.0 */
/* report.c: races and figures as tables and as JSON. */
#include "report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

/* --- figures --- */

struct bench_figures bench_figures;

bench_figure *bench_figures_add(const bench_asked *table, size_t count)
{
    bench_figure *first = &bench_figures.list[bench_figures.count];
    for (const bench_asked *asked = table; asked < table + count; asked++) {
        if (bench_figures.count == BENCH_COUNT(bench_figures.list))
            abort(); /* an error in the benchmark */
        bench_figure *f = &bench_figures.list[bench_figures.count++];
        const race *r = asked->race ? race_of(asked->race) : NULL;
        *f = (bench_figure){
            .asked = *asked, .value = NAN, .p10 = NAN, .p90 = NAN, .missing = bench_figures.missing, .spoilt = ""};
        if (r && asked->formula) {
            const bench_spread quiet = race_values(r, asked->formula, true), any = race_values(r, asked->formula, false);
            const bool enough = quiet.count && quiet.count >= asked->enough;
            const bench_spread spread = enough ? quiet : any;
            f->disturbed = enough ? 0 : any.count - quiet.count;
            f->value = spread.median;
            f->p10 = spread.p10;
            f->p90 = spread.p90;
            f->rounds = spread.count;
        }
        bench_figures_excuse(f, r ? r->missing : "");
    }
    return first;
}

bench_figure *bench_figures_find(const char *name)
{
    for (EACH_FIGURE(f)) {
        if (strcmp(f->asked.name, name) == 0)
            return f;
    }
    abort(); /* an error in the benchmark */
}

void bench_figures_set(bench_figure *figure, double value, unsigned rounds)
{
    if (isfinite(value)) {
        figure->value = value;
        figure->rounds = rounds;
    }
}

void bench_figures_excuse(bench_figure *figure, const char *reason)
{
    if (reason[0] && !bench_figures_measured(figure))
        figure->missing = reason;
}

void bench_figures_spoil(bench_figure *figure, const char *reason)
{
    if (!figure->spoilt[0])
        figure->spoilt = reason;
}

void bench_figures_void(unsigned about, const char *reason)
{
    for (EACH_FIGURE(f)) {
        if (!about || f->asked.about & about)
            bench_figures_spoil(f, reason);
    }
}

void bench_figures_check_rounds(void)
{
    for (EACH_FIGURE(f)) {
        if (bench_figures_measured(f) && f->rounds < f->asked.enough)
            bench_figures_spoil(f, bench_text("%u rounds ended in time; a verdict needs %u: raise --seconds or --rounds",
                                              f->rounds, f->asked.enough));
    }
}

void bench_figures_check_quiet(const char *others)
{
    for (EACH_FIGURE(f)) {
        if (f->disturbed)
            bench_figures_spoil(
                f, bench_text("%s in %u of %u rounds; run again on a quieter machine", others, f->disturbed, f->rounds));
    }
}

bool bench_figures_measured(const bench_figure *figure)
{
    return isfinite(figure->value);
}

bool bench_figures_held(const bench_figure *f)
{
    return isfinite(f->value) && !f->spoilt[0] &&
           (f->asked.sense >= 0 ? f->value >= f->asked.limit : f->value <= f->asked.limit);
}

static void print_figures(FILE *out)
{
    fprintf(out, "\nratios, medians of paired rounds\n");
    for (EACH_FIGURE(f)) {
        const char *asked = !f->asked.sense ? "" : bench_text("%s %.2f", f->asked.sense > 0 ? ">=" : "<=", f->asked.limit);
        if (!bench_figures_measured(f)) {
            fprintf(out, "%-30s  %8s  %-8s not measured: %s\n", f->asked.name, "-", asked, f->missing);
            continue;
        }
        const char *verdict = f->spoilt[0] ? "void" : !f->asked.sense ? "" : bench_figures_held(f) ? "held" : "MISSED";
        const int decimals = fabs(f->value) >= 1000 ? 0 : fabs(f->value) >= 0.1 ? 3 : 4;
        fprintf(out, "%-30s  %8.*f  %-8s %-7s %s%s%s\n", f->asked.name, decimals, f->value, asked, verdict, f->asked.meaning,
                f->spoilt[0] ? "; void: " : "", f->spoilt);
    }
}

/* "ratios", their "percentiles", "verdict", "not_measured" and "meanings". */
static json_t *figures_object(const char *rounds_name)
{
    json_t *values = json_object(), *verdict = json_object(), *missing = json_object(), *meanings = json_object(),
           *percentiles = json_object();
    for (EACH_FIGURE(f)) {
        json_object_set_new(values, f->asked.name, bench_report_number(f->value));
        json_object_set_new(meanings, f->asked.name, json_string(f->asked.meaning));
        if (!bench_figures_measured(f))
            json_object_set_new(missing, f->asked.name, json_string(f->missing));
        if (f->asked.sense)
            json_object_set_new(verdict, f->asked.name,
                                json_pack("{s:o, s:f, s:b, s:i, s:s?}", "value", bench_report_number(f->value),
                                          f->asked.sense > 0 ? "at_least" : "at_most", f->asked.limit, "held",
                                          bench_figures_held(f), rounds_name, (int)f->rounds, "void",
                                          f->spoilt[0] ? f->spoilt : NULL));
        if (isfinite(f->p10))
            json_object_set_new(percentiles, f->asked.name, json_pack("{s:f, s:f}", "p10", f->p10, "p90", f->p90));
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "ratios", values, "percentiles", percentiles, "verdict", verdict,
                     "not_measured", missing, "meanings", meanings);
}

/* --- the table of a race --- */

static void print_brief(FILE *out, const race *r)
{
    fprintf(out, "%s, %s: %u rounds;", r->part, r->label, r->rounds);
    for (const race_entry *e = r->entries; e < r->entries + r->count; e++)
        fprintf(out, "%s %s %.3f us", e > r->entries ? "," : "", e->line.name, 1e6 * race_median(r, e->line.name));
    fputc('\n', out);
}

static void print_race(FILE *out, const race *r)
{
    static const char *const UNITS[] = {"s", "ms", "us"};
    const double median = r->count ? race_median(r, r->entries[0].line.name) : NAN;
    const unsigned unit = median < 1e-3 ? 2 : median < 1;
    const double factor = unit == 2 ? 1e6 : unit == 1 ? 1e3 : 1;
    fprintf(out, "\n%s, %s: %u rounds, %u of them clean%s (%u samples taken again)\n%-22s %13s %10s %10s  %8s %6s  (%s)\n",
            r->part, r->label, r->rounds, r->clean_rounds, r->clean_rounds < race_book.enough ? " - TOO FEW" : "",
            r->retried_samples, "", "min", "median", "max", "GB/s", "share", UNITS[unit]);
    for (const race_entry *e = r->entries; e < r->entries + r->count; e++) {
        const bench_spread s = bench_spread_of(e->seconds, r->rounds);
        const double share = race_share(r, e);
        fprintf(out, "%-22s %13.4f %10.4f %10.4f  %8.2f %6s  %s%s%s\n", e->line.name, factor * s.min, factor * s.median,
                factor * s.max, 1e-9 * e->elements * e->line.bytes / s.median, isnan(share) ? "" : bench_text("%.3f", share),
                e->line.what, e->kernel ? ": " : "", e->kernel ? e->kernel : "");
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
    json_t *row = json_pack(
        "{s:s, s:s, s:f, s:f, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", e->line.name, "what", e->line.what,
        "elements", e->elements, "bytes_per_element", e->line.bytes, "calls_per_sample", (int)e->calls, "clean_samples",
        (int)s.count, "seconds_min", bench_report_number(s.min), "seconds_p10", bench_report_number(s.p10), "seconds_median",
        bench_report_number(s.median), "seconds_p90", bench_report_number(s.p90), "seconds_max", bench_report_number(s.max),
        "gb_per_s", bench_report_number(1e-9 * e->elements * e->line.bytes / s.median), "gparam_per_s",
        bench_report_number(1e-9 * e->elements / s.median), "seconds", samples);
    if (e->kernel)
        json_object_set_new(row, "kernel", json_string(e->kernel));
    if (e->line.yardstick) {
        json_object_set_new(row, "yardstick", json_string(e->line.yardstick));
        json_object_set_new(row, "share", bench_report_number(race_share(r, e)));
    }
    if (r->describe)
        r->describe(r, index, row);
    return row;
}

static json_t *race_object(const race *r)
{
    json_t *rows = json_array();
    for (unsigned i = 0; i < r->count; i++)
        json_array_append_new(rows, row_object(r, i));
    json_t *out = json_pack("{s:s, s:s, s:i, s:i, s:b, s:i, s:o}", "part", r->part, "label", r->label, "rounds", (int)r->rounds,
                            "clean_rounds", (int)r->clean_rounds, "enough_clean_rounds", r->clean_rounds >= race_book.enough,
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

int bench_report(const bench_spec *spec)
{
    FILE *out = bench.json_path && strcmp(bench.json_path, "-") == 0 ? stderr : stdout;
    json_t *races = json_array();
    bool measured = false;
    bench_figures.count = 0;
    bench_figures.missing = "not among the parts of this run, or no round in its time";
    spec->judge();
    json_t *root = spec->describe(out);
    const double seconds = bench_now() - bench.start;
    for (unsigned i = 0; i < race_book.count; i++) {
        const race *r = race_book.races[i];
        if (r->rounds && r->brief)
            print_brief(out, r);
        else if (r->rounds)
            print_race(out, r);
        if (r->count)
            json_array_append_new(races, race_object(r));
    }
    print_figures(out);
    for (EACH_FIGURE(f))
        measured = measured || ((f->asked.sense || spec->needs_no_limit) && f->rounds);
    fprintf(out, "%.1f s\n", seconds);
    json_object_update_new(root, json_pack("{s:s, s:o, s:b, s:f, s:o}", "bench", program_invocation_short_name, "machine",
                                           bench_report_machine(), "quick", bench.quick, "seconds", seconds, "races", races));
    json_object_update_new(root, figures_object(spec->rounds_name ? spec->rounds_name : "rounds"));
    const int ret = bench.json_path ? write_json(root, bench.json_path) : 0;
    json_decref(root);
    return ret != 0 ? 1 : measured ? 0 : 3;
}
