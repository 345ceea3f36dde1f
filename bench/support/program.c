/* SPDX-License-Identifier: Apache-2.0 */
/* program.c: messages, what is closed in the end, commands, and the run of a benchmark with its options. */
#include "disk.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct bench_run bench;

double bench_share(double share)
{
    return bench.start + share * bench.seconds;
}

/* --- messages --- */

char *bench_text(const char *format, ...)
{
    char *text;
    va_list args;
    va_start(args, format);
    const int length = vasprintf(&text, format, args);
    va_end(args);
    if (length < 0)
        abort();
    return text;
}

int bench_say(const char *line)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, line);
    return -1;
}

int bench_told(zoff_status status)
{
    return status < 0 ? bench_fail("%s", zoff_last_error()) : 0;
}

void bench_must(zoff_status status)
{
    if (status < 0)
        bench_die("%s", zoff_last_error());
}

/* --- what is open --- */

static struct thing {
    void (*close)(void *ctx, size_t value);
    void *ctx;
    size_t value;
} open_things[512];
static size_t open_count;

void bench_later(void (*close)(void *ctx, size_t value), void *ctx, size_t value)
{
    if (open_count == BENCH_COUNT(open_things))
        abort(); /* an error in the benchmark */
    open_things[open_count++] = (struct thing){close, ctx, value};
}

size_t bench_opened(void)
{
    return open_count;
}

void bench_close(size_t mark)
{
    while (open_count > mark) {
        const struct thing last = open_things[--open_count];
        last.close(last.ctx, last.value);
    }
}

/* --- the system and the library --- */

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

uint64_t bench_traffic(bool written)
{
    uint64_t bytes = 0;
    bench_scan("/proc/self/io", 1, written ? "write_bytes: %" SCNu64 : "read_bytes: %" SCNu64, &bytes);
    return bytes;
}

double bench_memory(const char *field)
{
    double kib = 0;
    bench_scan("/proc/self/status", 1, bench_text("%s: %%lf kB", field), &kib);
    return 1024 * kib;
}

void bench_sleep(double seconds)
{
    struct timespec left = {.tv_sec = (time_t)seconds};
    left.tv_nsec = (long)(1e9 * (seconds - (double)left.tv_sec));
    while (nanosleep(&left, &left) != 0)
        continue;
}

zoff_param_desc bench_param(void *value, void *grad, size_t count, size_t slices, zoff_dtype dtype)
{
    zoff_param_desc d = {
        .struct_size = sizeof d, .value = value, .grad = grad, .count = count, .slices = slices, .dtype = dtype};
    return d;
}

int bench_config(const char *text, zoff_config **out)
{
    const int ret = bench_told(zoff_config_open(NULL, out));
    return ret == 0 ? bench_told(zoff_config_read_text(*out, text, strlen(text), "the benchmark's configuration")) : ret;
}

BENCH_CLOSER(close_engine, zoff_engine_destroy(x))

zoff_engine *bench_engine_try(const char *config, zoff_engine_opts opts, const zoff_param_desc *params, size_t count)
{
    zoff_config *parsed = NULL;
    zoff_engine *engine = NULL;
    int ret = config ? bench_config(config, &parsed) : 0;
    opts.struct_size = sizeof opts;
    opts.config = parsed;
    if (ret == 0 && (ret = bench_told(zoff_engine_create(&opts, &engine))) == 0)
        bench_later(close_engine, engine, 0);
    zoff_config_close(parsed);
    for (size_t i = 0; i < count && ret == 0; i++)
        ret = bench_told(zoff_engine_add_param(engine, &params[i], NULL));
    return ret == 0 && bench_told(zoff_engine_seal(engine)) == 0 ? engine : NULL;
}

zoff_engine *bench_engine(const char *config, zoff_engine_opts opts, const zoff_param_desc *params, size_t count)
{
    zoff_engine *engine = bench_engine_try(config, opts, params, count);
    if (!engine)
        bench_end(1);
    return engine;
}

int bench_command(char *text, size_t bytes, const char *command)
{
    char self[1024] = "", rest[256];
    if (readlink("/proc/self/exe", self, sizeof self - 1) > 0)
        setenv("ZOFF_BENCH_SELF", self, 1);
    FILE *from = popen(command, "re");
    text[from ? fread(text, 1, bytes - 1, from) : 0] = 0;
    while (from && fread(rest, 1, sizeof rest, from)) {
    }
    return from && pclose(from) == 0 ? 0 : -1;
}

const char *bench_program_quantity(const char *text, uint64_t *out)
{
    static const char *const UNITS[] = {"Ki", "Mi", "Gi"};
    char *end;
    unsigned shift = 0;
    if (*text < '0' || *text > '9') /* strtoull() accepts a sign and white space */
        return NULL;
    errno = 0;
    const uint64_t value = strtoull(text, &end, 10);
    for (unsigned i = 0; i < BENCH_COUNT(UNITS); i++) {
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
        return o->take(text) == 0 ? 0 : bench_fail("--%s %s: %s; see --help", o->name, text, o->wanted);
    if (o->words)
        return take_words(text, o->known, o->words) == 0 ? 0 : bench_fail("--%s %s: unknown word; see --help", o->name, text);
    if (o->text) {
        *o->text = text;
        return *text ? 0 : bench_fail("--%s: wanted is a text; see --help", o->name);
    }
    const char *end = bench_program_quantity(text, o->number);
    if (end && !*end && *o->number >= o->least && *o->number <= o->most && (!o->unit || *o->number % o->unit == 0))
        return 0;
    return bench_fail("--%s %s: wanted is a number from %" PRIu64 " to %" PRIu64 "%s; see --help", o->name, text, o->least,
                      o->most, o->unit ? ", a multiple of the first" : "");
}

/* --- options --- */

static const bench_spec *spec;

enum { MOST = 20, QUICK = 'q', FULL = 'f', JSON = 'j', HELP = 'h', OTHER = 256 };

static void print_help(FILE *out, const bench_option *const *all)
{
    fputs(spec->usage, out);
    for (; *all; all++)
        fprintf(out, "  --%s %-*s %s\n", (*all)->name, 12 - (int)strlen((*all)->name), (*all)->argument, (*all)->help);
    fprintf(out,
            "  --quick         less of everything%s\n"
            "  --full          all of it%s\n"
            "  --json[=FILE]   write JSON to FILE, or to standard output with the table on standard error\n"
            "Exit status 3: nothing that is asked of the project could be measured.\n",
            spec->quick_first ? " (default)" : "", spec->quick_first ? "" : " (default)");
}

/* The words of --only, and their list for --help. */
static const char *list_parts(const bench_part *parts, bench_word words[MOST])
{
    const char *list = "parts:";
    unsigned all = 0, count = 0;
    for (; parts->name; parts++) {
        list = bench_text("%s %s,", list, parts->name);
        words[count++] = (bench_word){parts->name, parts->bit};
        all |= parts->bit;
    }
    words[count++] = (bench_word){"all", all};
    words[count] = (bench_word){NULL};
    return bench_text("%s all (default: all)", list);
}

static int parse(int argc, char **argv)
{
    uint64_t seconds = 0;
    bench_word words[MOST];
    const bench_option common[] = {
        {"only", "LIST", list_parts(spec->parts, words), .words = &bench.parts, .known = words},
        {"rounds", "N", .number = &bench.rounds, .least = 1, .most = RACE_ROUNDS,
         .help = bench_text("rounds to take of each race (default %u, with --quick %u; at most %d)", spec->full.rounds,
                            spec->quick.rounds, RACE_ROUNDS)},
        {"seconds", "N", .number = &seconds, .least = 1, .most = 86400,
         .help = bench_text("time for all of it, there are fewer rounds then (default %u, with --quick %u)", spec->full.seconds,
                            spec->quick.seconds)}};
    const bench_option *all[MOST] = {NULL}, *own = spec->options;
    struct option options[MOST] = {{"quick", no_argument, NULL, QUICK},
                                   {"full", no_argument, NULL, FULL},
                                   {"json", optional_argument, NULL, JSON},
                                   {"help", no_argument, NULL, HELP}};
    for (unsigned i = 0, more = 0; (own && own->name) || more < BENCH_COUNT(common); i++) {
        all[i] = own && own->name ? own++ : &common[more++];
        options[4 + i] = (struct option){all[i]->name, required_argument, NULL, OTHER + (int)i};
    }
    bench = (struct bench_run){.quick = spec->quick_first};
    for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        if (c == QUICK || c == FULL) {
            bench.quick = c == QUICK;
        } else if (c == JSON) {
            bench.json_path = optarg ? optarg : "-";
        } else if (c < OTHER) {
            print_help(c == HELP ? stdout : stderr, all);
            if (c == HELP)
                exit(0);
            return -1;
        } else if (take(all[c - OTHER], optarg) != 0) {
            return -1;
        }
    }
    if (optind < argc)
        return bench_fail("%s: not an option; see --help", argv[optind]);
    bench.parts = bench.parts ? bench.parts : bench.quick ? spec->quick.parts : spec->full.parts;
    bench.rounds = bench.rounds ? bench.rounds : bench.quick ? spec->quick.rounds : spec->full.rounds;
    bench.seconds = (double)(seconds ? seconds : bench.quick ? spec->quick.seconds : spec->full.seconds);
    bench.start = bench_now();
    return 0;
}

/* --- the run --- */

static bool measures;
static size_t begun; /* number of things that are open while all parts run */

void bench_end(int status)
{
    static bool ends;
    if (status == 1 && bench.abort)
        bench.abort();
    if (!ends) {
        ends = true;
        bench_close(begun);
        /* report the measurements of a failed run, too */
        const int reported = measures && !bench.silent ? bench_report(spec) : 0;
        status = status ? status : reported;
        bench_close(0);
    }
    exit(status);
}

/* Run the chosen parts. Those with a share of the time divide what is left, so that none goes without. */
static void run_parts(void)
{
    const double begin = bench_now(), left = bench_share(1) - begin;
    double sum = 0, done = 0;
    for (const bench_part *p = spec->parts; p->name; p++)
        sum += bench.parts & p->bit ? p->share[bench.quick] : 0;
    for (const bench_part *p = spec->parts; p->name; p++) {
        const size_t mark = bench_opened();
        unsigned bits = p->bit;
        for (const bench_part *q = p + 1; q->name && !q->run; q++)
            bits |= q->bit;
        if (!p->run || !(bench.parts & bits))
            continue;
        done += p->share[bench.quick];
        bench.deadline = begin + (sum > 0 ? left * done / sum : left);
        p->run(p);
        bench_close(mark);
    }
}

int bench_main(int argc, char **argv, const bench_spec *program)
{
    enum { MOST_NUMBERS = 8 };
    spec = program;
    for (const bench_part *p = spec->parts; argc > 2 && strcmp(argv[1], "--child") == 0 && p->name; p++) {
        double numbers[MOST_NUMBERS] = {0};
        if (strcmp(argv[2], p->name) != 0)
            continue;
        for (int i = 0; i < MOST_NUMBERS && i + 3 < argc; i++)
            numbers[i] = strtod(argv[i + 3], NULL);
        disk_child_begin();
        p->child(numbers);
        bench_end(0);
    }
    if (parse(argc, argv) != 0)
        return 2;
    if (spec->begin)
        spec->begin(argv);
    measures = true;
    begun = bench_opened();
    (spec->run ? spec->run : run_parts)();
    bench_end(0);
}
