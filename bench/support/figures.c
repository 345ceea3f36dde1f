/* figures.c: figures as lines for people and as JSON for programs. */
#include "figures.h"

#include "report.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

bench_figure *bench_figures_add_values(bench_figures *all, const bench_asked *asked, const race *from, race_value_fn value)
{
    if (all->count == MOST_FIGURES)
        abort(); /* an error in the benchmark */
    bench_figure *f = &all->list[all->count++];
    *f = (bench_figure){.meaning = asked->meaning,
                        .sense = asked->sense,
                        .limit = asked->limit,
                        .value = NAN,
                        .p10 = NAN,
                        .p90 = NAN,
                        .part = all->part};
    snprintf(f->name, sizeof f->name, "%s", asked->name);
    snprintf(f->missing, sizeof f->missing, "%s", all->missing);
    if (value || asked->slower) {
        const bench_spread spread = value ? race_values(from, value) : race_ratio(from, asked->slower, asked->faster);
        bench_figures_set_median(f, spread);
    }
    return f;
}

bench_figure *bench_figures_add(bench_figures *all, const bench_asked *asked, const race *from)
{
    return bench_figures_add_values(all, asked, from, NULL);
}

bench_figure *bench_figures_add_all(bench_figures *all, const bench_asked *table, size_t count, const race *from)
{
    bench_figure *first = &all->list[all->count];
    for (size_t i = 0; i < count; i++)
        bench_figures_add(all, &table[i], from);
    return first;
}

void bench_figures_set(bench_figure *figure, double value, unsigned rounds)
{
    if (!isfinite(value))
        return;
    figure->value = value;
    figure->rounds = rounds;
    figure->missing[0] = 0;
}

void bench_figures_set_median(bench_figure *figure, bench_spread spread)
{
    bench_figures_set(figure, spread.median, spread.count);
    figure->p10 = spread.p10;
    figure->p90 = spread.p90;
}

void bench_figures_map(bench_figure *figure, double offset, double scale)
{
    const double p10 = offset + scale * figure->p10, p90 = offset + scale * figure->p90;
    figure->value = offset + scale * figure->value;
    figure->p10 = scale > 0 ? p10 : p90;
    figure->p90 = scale > 0 ? p90 : p10;
}

void bench_figures_excuse(bench_figure *figure, const char *reason)
{
    if (reason[0] && !bench_figures_measured(figure))
        snprintf(figure->missing, sizeof figure->missing, "%s", reason);
}

void bench_figures_spoil(bench_figure *figure, const char *format, ...)
{
    va_list args;
    if (figure->spoilt[0])
        return;
    va_start(args, format);
    vsnprintf(figure->spoilt, sizeof figure->spoilt, format, args);
    va_end(args);
}

bool bench_figures_measured(const bench_figure *figure)
{
    return isfinite(figure->value);
}

bool bench_figures_held(const bench_figure *f)
{
    return isfinite(f->value) && !f->spoilt[0] && (f->sense >= 0 ? f->value >= f->limit : f->value <= f->limit);
}

void bench_figures_print(FILE *out, const bench_figures *all)
{
    fprintf(out, "\nratios, medians of paired rounds\n");
    for (const bench_figure *f = all->list; f < all->list + all->count; f++) {
        char asked[32] = "";
        if (f->sense)
            snprintf(asked, sizeof asked, "%s %.2f", f->sense > 0 ? ">=" : "<=", f->limit);
        if (!bench_figures_measured(f)) {
            fprintf(out, "%-30s  %8s  %-8s not measured: %s\n", f->name, "-", asked, f->missing);
            continue;
        }
        const char *verdict = f->spoilt[0] ? "void" : !f->sense ? "" : bench_figures_held(f) ? "held" : "MISSED";
        const int decimals = fabs(f->value) >= 1000 ? 0 : fabs(f->value) >= 0.1 ? 3 : 4;
        fprintf(out, "%-30s  %8.*f  %-8s %-7s %s%s%s\n", f->name, decimals, f->value, asked, verdict, f->meaning,
                f->spoilt[0] ? "; void: " : "", f->spoilt);
    }
}

void bench_figures_put(json_t *root, const bench_figures *all, const char *rounds_name)
{
    json_t *values = json_object(), *verdict = json_object(), *missing = json_object(), *meanings = json_object(),
           *percentiles = json_object();
    for (const bench_figure *f = all->list; f < all->list + all->count; f++) {
        json_object_set_new(values, f->name, bench_report_number(f->value));
        json_object_set_new(meanings, f->name, json_string(f->meaning));
        if (!bench_figures_measured(f))
            json_object_set_new(missing, f->name, json_string(f->missing));
        if (f->sense)
            json_object_set_new(verdict, f->name,
                                json_pack("{s:o, s:f, s:b, s:i, s:o}", "value", bench_report_number(f->value),
                                          f->sense > 0 ? "at_least" : "at_most", f->limit, "held", bench_figures_held(f),
                                          rounds_name, (int)f->rounds, "void",
                                          f->spoilt[0] ? json_string(f->spoilt) : json_null()));
        if (isfinite(f->p10))
            json_object_set_new(percentiles, f->name, json_pack("{s:f, s:f}", "p10", f->p10, "p90", f->p90));
    }
    json_object_set_new(root, "ratios", values);
    json_object_set_new(root, "percentiles", percentiles);
    json_object_set_new(root, "verdict", verdict);
    json_object_set_new(root, "not_measured", missing);
    json_object_set_new(root, "meanings", meanings);
}
