/* json.c: what every benchmark writes for programs in the same way. */
#include "json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

json_t *bench_json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

void bench_json_spread(json_t *row, bench_spread spread)
{
    json_object_set_new(row, "seconds_min", bench_json_number(spread.min));
    json_object_set_new(row, "seconds_median", bench_json_number(spread.median));
    json_object_set_new(row, "seconds_max", bench_json_number(spread.max));
}

json_t *bench_json_samples(const race *r, unsigned entry)
{
    json_t *out = json_array();
    for (unsigned k = 0; k < r->rounds; k++)
        json_array_append_new(out, bench_json_number(r->entries[entry].seconds[k]));
    return out;
}

void bench_json_cpu(char *name, size_t bytes)
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

json_t *bench_json_machine(void)
{
    char cpu[256];
    struct utsname system = {0};
    bench_json_cpu(cpu, sizeof cpu);
    uname(&system);
    return json_pack("{s:s, s:s, s:s}", "cpu", cpu, "architecture", system.machine, "kernel", system.release);
}

int bench_json_write(json_t *root, const char *path)
{
    FILE *out = !root ? NULL : strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
    int ret = out ? json_dumpf(root, out, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : -1;
    if (out)
        fputc('\n', out);
    if (out && (out == stdout ? fflush(out) : fclose(out)) != 0)
        ret = -1;
    if (ret != 0)
        fprintf(stderr, "%s: cannot write %s: %s\n", program_invocation_short_name, path,
                root ? strerror(errno) : "no memory for it, or a text that is no UTF-8");
    json_decref(root);
    return ret;
}
