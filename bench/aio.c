/* aio.c: does the file queue move bytes as fast as the disk gives them? Beside fio, on the same file, in the same seconds.
 * Options, and the order of the parts: what is asked of the project first. */
#include "aio_bench.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zoff/zoff.h>

static const char USAGE[] =
    "usage: aio [OPTION]...\n"
    "Times zoff's file queue beside fio at its best on one file, whole and in requests of 16 MiB; and again on a disk that a\n"
    "cgroup holds at 1 GB/s each way. As root fio has huge pages (vm.nr_hugepages, put back in the end) and that cgroup is\n"
    "to be had; else those figures are void or not measured, with the reason.\n"
    "  --folder DIR    where the file is made and removed (default: the folder of this program)\n"
    "  --size N        bytes of the file, like 512Mi or 2Gi, a multiple of 64Mi (default 1Gi; others are void)\n"
    "  --only LIST     parts: contest, throttle, pages, sweep (default: all; with --quick all but sweep)\n"
    "  --block N       bytes of a piece of our queue, like 1Mi (default: the library's default)\n"
    "  --depth N       pieces in flight of our queue (default: the library's default)\n"
    "  --rounds N      rounds to take of each race, at most 64 (default 15)\n"
    "  --seconds N     time for all of it (default 600)\n"
    "  --quick         fewer settings of fio, 47 s\n"
    "  --full          all of them (default)\n"
    "  --json[=FILE]   write JSON to FILE, or to standard output with the table on standard error\n"
    "Exit status 3: nothing that is asked of the project could be measured.\n";

typedef struct part {
    const char *name;
    unsigned bit;
    double quick, full; /* share of the time */
    int (*run)(const bench_options *options, double deadline, bench_book *book);
} part;
static const part PARTS[] = {
    {"contest", PART_CONTEST, 0.77, 0.5, bench_contest},
    {"throttle", PART_THROTTLE, 0.19, 0.2, bench_throttle},
    {"pages", PART_PAGES, 0.04, 0.1, bench_pages},
    {"sweep", PART_SWEEP, 0.2, 0.2, bench_sweep},
};
enum { PART_COUNT = sizeof PARTS / sizeof PARTS[0] };

static int refuse(const char *option, const char *text, const char *wanted)
{
    fprintf(stderr, "aio: --%s %s: %s; see --help\n", option, text, wanted);
    return -1;
}

static int parse_parts(const char *text, unsigned *out)
{
    *out = 0;
    for (const char *p = text;; p++) {
        const size_t length = strcspn(p, ",");
        unsigned i = 0;
        while (i < PART_COUNT && (strlen(PARTS[i].name) != length || strncmp(PARTS[i].name, p, length) != 0))
            i++;
        if (i == PART_COUNT)
            return refuse("only", text, "unknown word");
        *out |= PARTS[i].bit;
        p += length;
        if (!*p)
            return 0;
    }
}

static int parse_number(const char *option, const char *text, unsigned long most, unsigned long *out)
{
    char *end;
    errno = 0;
    *out = *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;
    if (*out == 0 || *end || errno || *out > most) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "wanted is a number from 1 to %lu", most);
        return refuse(option, text, wanted);
    }
    return 0;
}

static int parse_bytes(const char *option, const char *text, uint64_t unit, uint64_t most, const char *wanted, uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    const uint64_t value = *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    const uint64_t scale = !value ? 0 : !strcmp(end, "Gi") ? GIB : !strcmp(end, "Mi") ? MIB : !strcmp(end, "Ki") ? KIB : !*end;
    *out = value * scale;
    return !scale || errno || value > most / scale || *out % unit ? refuse(option, text, wanted) : 0;
}

static int parse_option(int c, bench_options *out, unsigned long *rounds, unsigned long *seconds)
{
    unsigned long number;
    int ret;
    switch (c) {
    case 'f':
        out->folder = optarg;
        return *optarg ? 0 : refuse("folder", optarg, "wanted is a folder");
    case 's':
        return parse_bytes("size", optarg, FILE_UNIT, 64 * GIB, "wanted is a multiple of 64Mi, at most 64Gi, like 512Mi or 2Gi",
                           &out->bytes);
    case 'b':
        return parse_bytes("block", optarg, 4 * KIB, GIB, "wanted is a multiple of 4Ki, at most 1Gi, like 512Ki or 4Mi",
                           &out->block);
    case 'd':
        ret = parse_number("depth", optarg, 4096, &number);
        out->depth = (unsigned)number;
        return ret;
    case 'o':
        return parse_parts(optarg, &out->parts);
    case 'r':
        return parse_number("rounds", optarg, RACE_ROUNDS, rounds);
    case 'S':
        return parse_number("seconds", optarg, 86400, seconds);
    case 'q':
    case 'F':
        out->quick = c == 'q';
        return 0;
    case 'j':
        out->json_path = optarg ? optarg : "-";
        return 0;
    case 'h':
        fputs(USAGE, stdout);
        exit(0);
    default:
        fputs(USAGE, stderr);
        return -1;
    }
}

static int parse_options(int argc, char **argv, bench_options *out)
{
    static const struct option OPTIONS[] = {
        {"folder", required_argument, NULL, 'f'},  {"size", required_argument, NULL, 's'},
        {"only", required_argument, NULL, 'o'},    {"block", required_argument, NULL, 'b'},
        {"depth", required_argument, NULL, 'd'},   {"rounds", required_argument, NULL, 'r'},
        {"seconds", required_argument, NULL, 'S'}, {"quick", no_argument, NULL, 'q'},
        {"full", no_argument, NULL, 'F'},          {"json", optional_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
    };
    unsigned long rounds = 15, seconds = 0;
    *out = (bench_options){.bytes = GIB};
    for (int c; (c = getopt_long(argc, argv, "h", OPTIONS, NULL)) != -1;) {
        if (parse_option(c, out, &rounds, &seconds) != 0)
            return -1;
    }
    if (optind < argc)
        return refuse("", argv[optind], "not an option");
    out->rounds = (unsigned)rounds;
    out->seconds = seconds ? (double)seconds : out->quick ? 47 : 600;
    if (!out->parts)
        out->parts = out->quick ? PART_ANY & ~(unsigned)PART_SWEEP : PART_ANY;
    return 0;
}

/* The file lies beside the program: that is the disk on which people build, and no tmpfs. */
static void choose_folder(bench_options *options)
{
    static char folder[BENCH_PATH];
    if (options->folder)
        return;
    const ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    char *slash = length > 0 ? strrchr(folder, '/') : NULL;
    if (slash)
        *slash = 0;
    options->folder = slash ? folder : ".";
}

/* Each part has its share of what the chosen parts have together. */
static int run_parts(const bench_options *options, bench_book *book)
{
    double sum = 0, done = 0;
    int ret = 0;
    for (unsigned i = 0; i < PART_COUNT; i++)
        sum += options->parts & PARTS[i].bit ? options->quick ? PARTS[i].quick : PARTS[i].full : 0;
    const double begin = bench_stopwatch_now(), left = options->start + options->seconds - begin;
    for (unsigned i = 0; ret == 0 && i < PART_COUNT && !bench_stopped; i++) {
        if (!(options->parts & PARTS[i].bit))
            continue;
        done += options->quick ? PARTS[i].quick : PARTS[i].full;
        ret = PARTS[i].run(options, begin + left * done / sum, book);
    }
    return ret;
}

static int report(const bench_options *options, const bench_book *book)
{
    bench_ratio ratios[MOST_RATIOS];
    const unsigned count = bench_judge(options, book, ratios);
    unsigned measured = 0;
    for (unsigned i = 0; i < count; i++)
        measured += ratios[i].sense && ratios[i].rounds;
    bench_report_table(options->json_path && strcmp(options->json_path, "-") == 0 ? stderr : stdout, options, book, ratios,
                       count);
    if (options->json_path && bench_report_json(options, book, ratios, count) != 0) {
        fprintf(stderr, "aio: cannot write %s\n", options->json_path);
        return 1;
    }
    return measured ? 0 : 3;
}

/* What the library warns of matters to a measurement, once; what it tells of each queue does not. */
static void log_warnings(zoff_log_level level, const char *room, const char *line, void *ctx)
{
    static char last[512];
    (void)ctx;
    if (level > ZOFF_LOG_WARN || strncmp(line, last, sizeof last - 1) == 0)
        return;
    snprintf(last, sizeof last, "%s", line);
    fprintf(stderr, "zoff %s: %s\n", room, line);
}

/* The file, the huge pages and the cgroup are given back before the program ends. */
static void stop(int number)
{
    bench_stopped = number;
}

int main(int argc, char **argv)
{
    bench_options options;
    if (parse_options(argc, argv, &options) != 0)
        return 2;
    choose_folder(&options);
    options.start = bench_stopwatch_now();
    zoff_log_set(log_warnings, NULL);
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    bench_book *book = calloc(1, sizeof *book);
    if (!book)
        return 1;
    bench_fio_find(book->fio_version, sizeof book->fio_version, book->no_fio, sizeof book->no_fio);
    int ret =
        bench_place_open(&options, book->fio_version[0] != 0, &book->place) == 0 && run_parts(&options, book) == 0 ? 0 : 1;
    bench_place_close(&book->place);
    const int reported = book->count && !bench_stopped ? report(&options, book) : 1;
    bench_book_free(book);
    free(book);
    return bench_stopped ? 128 + bench_stopped : ret ? ret : reported;
}
