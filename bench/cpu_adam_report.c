/* cpu_adam_report.c: the table for people and the JSON for programs. */
#include "cpu_adam_bench.h"

#include <jansson.h>
#include <string.h>
#include <sys/utsname.h>
#include <zoff/zoff.h>

/* The figures that matter: time of the one over time of the other. */
static const struct {
    const char *name;
    contestant_id slower, faster;
} RATIOS[] = {
    {"share_fp32", CONTESTANT_NOMATH_FP32, CONTESTANT_ZOFF_FP32},
    {"share_bf16", CONTESTANT_NOMATH_BF16, CONTESTANT_ZOFF_BF16},
    {"vs_plain_loop", CONTESTANT_PLAIN_FP32, CONTESTANT_ZOFF_FP32},
    {"vs_chain", CONTESTANT_CHAIN, CONTESTANT_NORM_ZOFF},
};
enum { RATIO_COUNT = sizeof RATIOS / sizeof RATIOS[0] };

double bench_ratio(const bench_result *result, contestant_id a, contestant_id b)
{
    double ratios[MOST_ROUNDS];
    for (unsigned r = 0; r < result->rounds; r++) {
        if (result->seconds[a][r] <= 0 || result->seconds[b][r] <= 0)
            return 0;
        ratios[r] = result->seconds[a][r] / result->seconds[b][r];
    }
    return result->rounds ? bench_stopwatch_spread(ratios, result->rounds).median : 0;
}

static int ran(const bench_result *result, contestant_id id)
{
    return result->rounds && result->seconds[id][0] > 0;
}

/* The processor's name, as the system tells it. */
static void find_cpu(char *name, size_t bytes)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[512];
    snprintf(name, bytes, "unknown");
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon) {
            line[strcspn(line, "\n")] = 0;
            snprintf(name, bytes, "%s", colon + 2);
            break;
        }
    }
    if (file)
        fclose(file);
}

void bench_report_table(FILE *out, const bench_options *options, const bench_result *results, unsigned count)
{
    char cpu[256];
    find_cpu(cpu, sizeof cpu);
    fprintf(out, "%s, %u threads, %s kernels\n", cpu, options->threads, zoff_isa());
    for (unsigned s = 0; s < count; s++) {
        const bench_result *r = &results[s];
        fprintf(out,
                "\n%zu elements, %u clean rounds%s (%u rounds dropped, %u samples taken again), %zu of %zu MiB in huge pages\n",
                r->count, r->rounds, r->enough ? "" : " - FEWER THAN ASKED FOR", r->dropped_rounds, r->retried_samples,
                r->huge_bytes >> 20, r->total_bytes >> 20);
        fprintf(out, "%-16s %6s  %10s %10s %10s  %8s %9s  %6s  %s\n", "", "B/elem", "min us", "median us", "max us", "GB/s",
                "Gparam/s", "share", "");
        for (unsigned id = 0; id < CONTESTANT_COUNT; id++) {
            const contestant *c = &CONTESTANTS[id];
            if (!ran(r, id))
                continue;
            const bench_spread spread = bench_stopwatch_spread(r->seconds[id], r->rounds);
            const double elements = (double)r->count;
            fprintf(out, "%-16s %6u  %10.2f %10.2f %10.2f  %8.2f %9.3f  ", c->name, c->bytes, 1e6 * spread.min,
                    1e6 * spread.median, 1e6 * spread.max, 1e-9 * elements * c->bytes / spread.median,
                    1e-9 * elements / spread.median);
            if (c->yardstick == id)
                fprintf(out, "%6s", "");
            else /* in bytes moved: for equal bytes it is the ratio of the times */
                fprintf(out, "%6.3f", bench_ratio(r, c->yardstick, id) * c->bytes / CONTESTANTS[c->yardstick].bytes);
            fprintf(out, "  %s\n", c->what);
        }
    }
    const bench_result *last = &results[count - 1];
    if (!last->rounds) {
        fprintf(out, "\nNo ratios: in no round had the threads their cores. Run again on a quieter machine.\n");
        return;
    }
    fprintf(out, "\nAt %zu elements, medians of paired rounds:", last->count);
    for (unsigned k = 0; k < RATIO_COUNT; k++) {
        const double value = bench_ratio(last, RATIOS[k].slower, RATIOS[k].faster);
        if (value > 0)
            fprintf(out, "  %s %.3f", RATIOS[k].name, value);
    }
    fputc('\n', out);
}

static json_t *row(const bench_result *r, contestant_id id)
{
    const contestant *c = &CONTESTANTS[id];
    const bench_spread spread = bench_stopwatch_spread(r->seconds[id], r->rounds);
    const double elements = (double)r->count;
    json_t *out = json_pack("{s:s, s:s, s:i, s:i, s:f, s:f, s:f, s:f, s:f}", "name", c->name, "what", c->what,
                            "bytes_per_element", (int)c->bytes, "calls_per_sample", (int)r->calls[id], "seconds_min",
                            spread.min, "seconds_median", spread.median, "seconds_max", spread.max, "gb_per_s",
                            1e-9 * elements * c->bytes / spread.median, "gparam_per_s", 1e-9 * elements / spread.median);
    if (out && c->yardstick != id)
        json_object_set_new(out, "share",
                            json_real(bench_ratio(r, c->yardstick, id) * c->bytes / CONTESTANTS[c->yardstick].bytes));
    return out;
}

static json_t *size_object(const bench_result *r)
{
    json_t *rows = json_array();
    for (unsigned id = 0; id < CONTESTANT_COUNT; id++) {
        if (ran(r, id))
            json_array_append_new(rows, row(r, id));
    }
    return json_pack("{s:I, s:i, s:b, s:i, s:i, s:I, s:I, s:o}", "elements", (json_int_t)r->count, "clean_rounds",
                     (int)r->rounds, "enough_clean_rounds", r->enough, "dropped_rounds", (int)r->dropped_rounds,
                     "retried_samples", (int)r->retried_samples, "huge_page_bytes", (json_int_t)r->huge_bytes, "bytes",
                     (json_int_t)r->total_bytes, "rows", rows);
}

int bench_report_json(const bench_options *options, const bench_result *results, unsigned count)
{
    char cpu[256];
    struct utsname system = {0};
    find_cpu(cpu, sizeof cpu);
    uname(&system);
    json_t *sizes = json_array(), *ratios = json_object();
    for (unsigned s = 0; s < count; s++)
        json_array_append_new(sizes, size_object(&results[s]));
    for (unsigned k = 0; k < RATIO_COUNT; k++) { /* of the largest size; one that could not be formed is left out */
        const double value = bench_ratio(&results[count - 1], RATIOS[k].slower, RATIOS[k].faster);
        if (value > 0)
            json_object_set_new(ratios, RATIOS[k].name, json_real(value));
    }
    json_t *root = json_pack("{s:s, s:{s:s, s:s, s:s}, s:i, s:s, s:b, s:o, s:o}", "bench", "cpu_adam", "machine", "cpu", cpu,
                             "architecture", system.machine, "kernel", system.release, "threads", (int)options->threads, "isa",
                             zoff_isa(), "quick", options->quick, "sizes", sizes, "ratios", ratios);
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
