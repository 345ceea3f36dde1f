/* program.c: the options that all benchmarks have, and how numbers and lists in options are read. */
#include "program.h"

#include "race.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

double bench_run_deadline(const bench_run *run, double share)
{
    return run->start + share * run->seconds;
}

FILE *bench_run_table(const bench_run *run)
{
    return run->json_path && strcmp(run->json_path, "-") == 0 ? stderr : stdout;
}

int bench_program_refuse(const char *option, const char *text, const char *wanted)
{
    fprintf(stderr, "%s: --%s %s: %s; see --help\n", program_invocation_short_name, option, text, wanted);
    return -1;
}

const char *bench_program_quantity(const char *text, uint64_t *out)
{
    static const char *const UNITS[] = {"Ki", "Mi", "Gi"};
    char *end;
    unsigned shift = 0;
    if (*text < '0' || *text > '9') /* strtoull() takes a sign and white space */
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

int bench_program_number(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    char wanted[96];
    const char *end = bench_program_quantity(text, out);
    if (end && !*end && *out >= least && *out <= most)
        return 0;
    snprintf(wanted, sizeof wanted, "wanted is a number from %llu to %llu", (unsigned long long)least,
             (unsigned long long)most);
    return bench_program_refuse(option, text, wanted);
}

int bench_program_words(const char *option, const char *text, const bench_word *words, unsigned *out)
{
    *out = 0;
    for (const char *p = text;; p++) {
        const size_t length = strcspn(p, ",");
        const bench_word *w = words;
        while (w->name && (strlen(w->name) != length || strncmp(w->name, p, length) != 0))
            w++;
        if (!w->name)
            return bench_program_refuse(option, text, "unknown word");
        *out |= w->bits;
        p += length;
        if (!*p)
            return 0;
    }
}

/* Their letters are no others'. */
static const struct option COMMON[] = {
    {"only", required_argument, NULL, 'o'}, {"rounds", required_argument, NULL, 'r'}, {"seconds", required_argument, NULL, 'S'},
    {"quick", no_argument, NULL, 'q'},      {"json", optional_argument, NULL, 'j'},   {"help", no_argument, NULL, 'h'},
};
enum { COMMON_COUNT = sizeof COMMON / sizeof COMMON[0], MOST_OPTIONS = 24 };

/* An option that all benchmarks have; any other is told by the usage. */
static int parse_common(const bench_program *program, int letter, bench_run *out)
{
    uint64_t number = 0;
    int ret = 0;
    switch (letter) {
    case 'o':
        return bench_program_words("only", optarg, program->parts, &out->parts);
    case 'r':
        ret = bench_program_number("rounds", optarg, 1, RACE_ROUNDS, &number);
        out->rounds = (unsigned)number;
        return ret;
    case 'S':
        ret = bench_program_number("seconds", optarg, 1, 86400, &number);
        out->seconds = (double)number;
        return ret;
    case 'q':
    case 'F':
        out->quick = letter == 'q';
        return 0;
    case 'j':
        out->json_path = optarg ? optarg : "-";
        return 0;
    case 'h':
        fputs(program->usage, stdout);
        exit(0);
    default:
        fputs(program->usage, stderr);
        return -1;
    }
}

int bench_program_parse(const bench_program *program, int argc, char **argv, bench_run *out)
{
    struct option options[MOST_OPTIONS + 1] = {{0}}; /* and one without a name */
    unsigned count = 0;
    for (; program->options[count].name; count++) {
        if (count + COMMON_COUNT == MOST_OPTIONS)
            abort(); /* a mistake in the benchmark */
        options[count] = program->options[count];
    }
    memcpy(options + count, COMMON, sizeof COMMON);
    for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        const bool common = strchr("orSqFjh?", c) != NULL;
        if ((common ? parse_common(program, c, out) : program->own(c, optarg, program->ctx)) != 0)
            return -1;
    }
    return optind < argc ? bench_program_refuse("", argv[optind], "not an option") : 0;
}

void bench_program_log(zoff_log_level level, const char *room, const char *line, void *ctx)
{
    static _Thread_local char last[512]; /* the library may warn from its own threads */
    (void)ctx;
    if (level > ZOFF_LOG_WARN || strncmp(line, last, sizeof last - 1) == 0)
        return;
    snprintf(last, sizeof last, "%s", line);
    fprintf(stderr, "zoff %s: %s\n", room, line);
}
