/* program.c: the options of all benchmarks, numbers and lists in options, and commands. */
#include "program.h"

#include "race.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

double bench_run_deadline(const bench_run *run, double share)
{
    return run->start + share * run->seconds;
}

FILE *bench_run_table(const bench_run *run)
{
    return run->json_path && strcmp(run->json_path, "-") == 0 ? stderr : stdout;
}

int bench_fail(const char *format, ...)
{
    char line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, line);
    return -1;
}

bool bench_scan(const char *path, int wanted, const char *format, ...)
{
    FILE *file = fopen(path, "re");
    char line[4096];
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        va_list args;
        va_start(args, format);
        found = vsscanf(line, format, args) == wanted;
        va_end(args);
    }
    if (file)
        fclose(file);
    return found;
}

int bench_told(zoff_status status)
{
    return status < 0 ? bench_fail("%s", zoff_last_error()) : 0;
}

uint64_t bench_traffic(bool written)
{
    uint64_t read_bytes = 0, write_bytes = 0;
    bench_scan("/proc/self/io", 1, "read_bytes: %" SCNu64, &read_bytes);
    bench_scan("/proc/self/io", 1, "write_bytes: %" SCNu64, &write_bytes);
    return written ? write_bytes : read_bytes;
}

zoff_param_desc bench_param(void *value, void *grad, size_t count, size_t slices, zoff_dtype dtype)
{
    zoff_param_desc d = {
        .struct_size = sizeof d, .value = value, .grad = grad, .count = count, .slices = slices, .dtype = dtype};
    return d;
}

int bench_config(const char *text, zoff_config **out)
{
    return bench_told(zoff_config_open(NULL, out)) != 0 ||
                   bench_told(zoff_config_read_text(*out, text, strlen(text), "the benchmark's configuration")) != 0
               ? -1
               : 0;
}

int bench_engine_open(const char *config, zoff_engine_opts opts, const zoff_param_desc *params, size_t count, zoff_engine **out)
{
    zoff_config *parsed = NULL;
    *out = NULL;
    int ret = config ? bench_config(config, &parsed) : 0;
    opts.struct_size = sizeof opts;
    opts.config = parsed;
    if (ret == 0)
        ret = bench_told(zoff_engine_create(&opts, out));
    zoff_config_close(parsed);
    for (size_t i = 0; i < count && ret == 0; i++)
        ret = bench_told(zoff_engine_add_param(*out, &params[i], NULL));
    return ret == 0 ? bench_told(zoff_engine_seal(*out)) : ret;
}

int bench_command(char *text, size_t bytes, const char *format, ...)
{
    char command[4096], self[1024] = "", rest[256];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    if (readlink("/proc/self/exe", self, sizeof self - 1) > 0)
        setenv("ZOFF_BENCH_SELF", self, 1);
    FILE *from = popen(command, "re");
    text[from ? fread(text, 1, bytes - 1, from) : 0] = 0;
    while (from && fread(rest, 1, sizeof rest, from)) {
    }
    return from && pclose(from) == 0 ? 0 : -1;
}

/* --- values --- */

const char *bench_program_quantity(const char *text, uint64_t *out)
{
    static const char *const UNITS[] = {"Ki", "Mi", "Gi"};
    char *end;
    unsigned shift = 0;
    if (*text < '0' || *text > '9') /* strtoull() accepts a sign and white space */
        return NULL;
    errno = 0;
    const uint64_t value = strtoull(text, &end, 10);
    for (unsigned i = 0; i < sizeof UNITS / sizeof UNITS[0]; i++) {
        if (strncmp(end, UNITS[i], 2) == 0)
            shift = 10 * (i + 1);
    }
    if (errno || value > UINT64_MAX >> shift)
        return NULL;
    *out = value << shift;
    return shift ? end + 2 : end;
}

static int take_words(const char *text, const bench_word *words, unsigned *out)
{
    *out = 0;
    for (const char *p = text;; p++) {
        const size_t length = strcspn(p, ",");
        const bench_word *w = words;
        while (w->name && (strlen(w->name) != length || strncmp(w->name, p, length) != 0))
            w++;
        if (!w->name)
            return -1;
        *out |= w->bits;
        p += length;
        if (!*p)
            return 0;
    }
}

static int take(const bench_option *o, const char *text)
{
    if (o->take)
        return o->take(text, o->ctx) == 0 ? 0 : bench_fail("--%s %s: %s; see --help", o->name, text, o->wanted);
    if (o->words)
        return take_words(text, o->known, o->words) == 0 ? 0 : bench_fail("--%s %s: unknown word; see --help", o->name, text);
    if (o->text) {
        *o->text = text;
        return *text ? 0 : bench_fail("--%s: wanted is a text; see --help", o->name);
    }
    const char *end = bench_program_quantity(text, o->number);
    if (end && !*end && *o->number >= o->least && *o->number <= o->most && (!o->unit || *o->number % o->unit == 0))
        return 0;
    return bench_fail("--%s %s: wanted is a number from %llu to %llu%s; see --help", o->name, text,
                      (unsigned long long)o->least, (unsigned long long)o->most, o->unit ? ", a multiple of the first" : "");
}

/* --- options --- */

int bench_program_parse(int argc, char **argv, const char *usage, const bench_option *own, const bench_word *parts,
                        const bench_default defaults[2], bench_run *out)
{
    enum { MOST = 16, QUICK = 'q', FULL = 'f', JSON = 'j', HELP = 'h', OTHER = 256 };
    static const char HELP_TEXT[] =
        "%s  --rounds N      rounds to take of each race (default %u, with --quick %u; at most %d)\n"
        "  --seconds N     time for all of it, there are fewer rounds then (default %u, with --quick %u)\n"
        "  --quick         less of everything%s\n"
        "  --full          all of it%s\n"
        "  --json[=FILE]   write JSON to FILE, or to standard output with the table on standard error\n"
        "Exit status 3: nothing that is asked of the project could be measured.\n";
    const bool quick_first = out->quick;
    uint64_t seconds = 0;
    const bench_option common[] = {{"only", .words = &out->parts, .known = parts},
                                   {"rounds", .number = &out->rounds, .least = 1, .most = RACE_ROUNDS},
                                   {"seconds", .number = &seconds, .least = 1, .most = 86400}};
    const bench_option *all[MOST];
    struct option options[MOST] = {{"quick", no_argument, NULL, QUICK},
                                   {"full", no_argument, NULL, FULL},
                                   {"json", optional_argument, NULL, JSON},
                                   {"help", no_argument, NULL, HELP}};
    unsigned count = 4;
    for (unsigned i = 0; i < 3 || own->name; i++) {
        all[count] = i < 3 ? &common[i] : own++;
        options[count] = (struct option){all[count]->name, required_argument, NULL, OTHER + (int)count};
        count++;
    }
    for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        if (c == QUICK || c == FULL) {
            out->quick = c == QUICK;
        } else if (c == JSON) {
            out->json_path = optarg ? optarg : "-";
        } else if (c < OTHER) {
            fprintf(c == HELP ? stdout : stderr, HELP_TEXT, usage, defaults[0].rounds, defaults[1].rounds, RACE_ROUNDS,
                    defaults[0].seconds, defaults[1].seconds, quick_first ? " (default)" : "", quick_first ? "" : " (default)");
            if (c == HELP)
                exit(0);
            return -1;
        } else if (take(all[c - OTHER], optarg) != 0) {
            return -1;
        }
    }
    if (optind < argc)
        return bench_fail("%s: not an option; see --help", argv[optind]);
    const bench_default *by = &defaults[out->quick];
    out->parts = out->parts ? out->parts : by->parts;
    out->rounds = out->rounds ? out->rounds : by->rounds;
    out->seconds = (double)(seconds ? seconds : by->seconds);
    out->start = bench_now();
    return 0;
}
