/* figures.c: figures as lines for people and as JSON for programs. */
#include "figures.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

bench_figure *bench_figures_add(bench_figures *all, const char *name, int sense, double limit, const char *meaning,
                                const char *missing)
{
    if (all->count == MOST_FIGURES)
        abort(); /* a mistake in the benchmark */
    bench_figure *f = &all->list[all->count++];
    *f = (bench_figure){.name = name, .meaning = meaning, .value = NAN, .sense = sense, .limit = limit};
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

void bench_figures_spoil(bench_figure *figure, const char *format, ...)
{
    va_list args;
    if (figure->spoilt[0] || !isfinite(figure->value))
        return;
    va_start(args, format);
    vsnprintf(figure->spoilt, sizeof figure->spoilt, format, args);
    va_end(args);
}

int bench_figures_held(const bench_figure *f)
{
    return isfinite(f->value) && !f->spoilt[0] && (f->sense >= 0 ? f->value >= f->limit : f->value <= f->limit);
}

void bench_figures_print(FILE *out, const bench_figures *all)
{
    for (unsigned i = 0; i < all->count; i++) {
        const bench_figure *f = &all->list[i];
        char asked[32] = "";
        if (f->sense)
            snprintf(asked, sizeof asked, "%s %.2f", f->sense > 0 ? ">=" : "<=", f->limit);
        if (!isfinite(f->value)) {
            fprintf(out, "%-34s %8s  %-8s %-7s %s\n", f->name, "-", asked, "", f->missing);
            continue;
        }
        const char *verdict = f->spoilt[0] ? "void" : !f->sense ? "" : bench_figures_held(f) ? "held" : "MISSED";
        fprintf(out, "%-34s %8.3f  %-8s %-7s %s%s%s\n", f->name, f->value, asked, verdict, f->meaning,
                f->spoilt[0] ? "; void: " : "", f->spoilt);
    }
}

json_t *bench_figures_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* What is asked of a figure and whether it was met; `void` says why a figure proves nothing. */
static json_t *verdict_of(const bench_figure *f)
{
    json_t *out = json_object();
    json_object_set_new(out, "value", bench_figures_number(f->value));
    json_object_set_new(out, f->sense > 0 ? "at_least" : "at_most", json_real(f->limit));
    json_object_set_new(out, "held", json_boolean(bench_figures_held(f)));
    json_object_set_new(out, "rounds", json_integer(f->rounds));
    json_object_set_new(out, "void", f->spoilt[0] ? json_string(f->spoilt) : json_null());
    return out;
}

void bench_figures_put(json_t *root, const bench_figures *all)
{
    json_t *values = json_object(), *verdict = json_object(), *missing = json_object(), *meanings = json_object();
    for (unsigned i = 0; i < all->count; i++) {
        const bench_figure *f = &all->list[i];
        json_object_set_new(values, f->name, bench_figures_number(f->value));
        json_object_set_new(meanings, f->name, json_string(f->meaning));
        if (!isfinite(f->value))
            json_object_set_new(missing, f->name, json_string(f->missing));
        if (f->sense)
            json_object_set_new(verdict, f->name, verdict_of(f));
    }
    json_object_set_new(root, "ratios", values);
    json_object_set_new(root, "verdict", verdict);
    json_object_set_new(root, "not_measured", missing);
    json_object_set_new(root, "meanings", meanings);
}

/* The processor's name, as the system tells it. */
static void find_cpu(char *name, size_t bytes)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[512];
    snprintf(name, bytes, "unknown");
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon) {
            line[strcspn(line, "\n")] = 0;
            snprintf(name, bytes, "%s", colon + 2);
            break;
        }
    }
    if (file)
        fclose(file);
}

json_t *bench_figures_machine(void)
{
    char cpu[256];
    struct utsname system = {0};
    find_cpu(cpu, sizeof cpu);
    uname(&system);
    return json_pack("{s:s, s:s, s:s}", "cpu", cpu, "architecture", system.machine, "kernel", system.release);
}

int bench_figures_write(json_t *root, const char *path)
{
    FILE *out = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
    int ret = out ? json_dumpf(root, out, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : -1;
    if (out)
        fputc('\n', out);
    if (out && out != stdout && fclose(out) != 0)
        ret = -1;
    return ret;
}
