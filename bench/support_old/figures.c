/* figures.c: figures as lines for people and as JSON for programs. */
#include "figures.h"

#include "json.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

bench_figure *bench_figures_add(bench_figures *all, const char *name, int sense, double limit, const char *meaning,
                                const char *missing)
{
    if (all->count == MOST_FIGURES)
        abort(); /* a mistake in the benchmark */
    bench_figure *f = &all->list[all->count++];
    *f = (bench_figure){.meaning = meaning, .value = NAN, .sense = sense, .limit = limit};
    snprintf(f->name, sizeof f->name, "%s", name);
    snprintf(f->missing, sizeof f->missing, "%s", missing);
    return f;
}

void bench_figures_set(bench_figure *figure, double value, unsigned rounds)
{
    if (!isfinite(value))
        return;
    figure->value = value;
    figure->rounds = rounds;
    figure->missing[0] = 0;
}

void bench_figures_set_pair(bench_figure *figure, const race *from, const char *slower, const char *faster)
{
    if (!from)
        return;
    const race_ratio ratio = race_compare(from, race_find(from, slower), race_find(from, faster));
    bench_figures_set(figure, ratio.median, ratio.pairs);
}

void bench_figures_excuse(bench_figure *figure, const char *format, ...)
{
    char reason[sizeof figure->missing];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
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

bool bench_figures_any(const bench_figures *all)
{
    bool any = false;
    for (unsigned i = 0; i < all->count; i++)
        any = any || (all->list[i].sense && all->list[i].rounds);
    return any;
}

void bench_figures_print(FILE *out, const bench_figures *all)
{
    for (unsigned i = 0; i < all->count; i++) {
        const bench_figure *f = &all->list[i];
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

/* What is asked of a figure and whether it was met; `void` says why a figure proves nothing. */
static json_t *verdict_of(const bench_figure *f, const char *rounds_name)
{
    json_t *out = json_object();
    json_object_set_new(out, "value", bench_json_number(f->value));
    json_object_set_new(out, f->sense > 0 ? "at_least" : "at_most", json_real(f->limit));
    json_object_set_new(out, "held", json_boolean(bench_figures_held(f)));
    json_object_set_new(out, rounds_name, json_integer(f->rounds));
    json_object_set_new(out, "void", f->spoilt[0] ? json_string(f->spoilt) : json_null());
    return out;
}

void bench_figures_put(json_t *root, const bench_figures *all, const char *rounds_name)
{
    json_t *values = json_object(), *verdict = json_object(), *missing = json_object(), *meanings = json_object();
    for (unsigned i = 0; i < all->count; i++) {
        const bench_figure *f = &all->list[i];
        json_object_set_new(values, f->name, bench_json_number(f->value));
        json_object_set_new(meanings, f->name, json_string(f->meaning));
        if (!bench_figures_measured(f))
            json_object_set_new(missing, f->name, json_string(f->missing));
        if (f->sense)
            json_object_set_new(verdict, f->name, verdict_of(f, rounds_name));
    }
    json_object_set_new(root, "ratios", values);
    json_object_set_new(root, "verdict", verdict);
    json_object_set_new(root, "not_measured", missing);
    json_object_set_new(root, "meanings", meanings);
}
