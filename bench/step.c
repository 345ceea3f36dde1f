/* step.c: how long does a step take whose states are on a disk, and how far is that from what the disk and the memory allow?
 * Options, and the order of the parts. */
#include "step_bench.h"

#include <errno.h>
#include <getopt.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

static const char USAGE[] =
    "usage: step [OPTION]...\n"
    "Times zoff's whole optimizer step with states in files beside yardsticks: the same transfers alone, the same update "
    "alone,\n"
    "half of the states in DRAM, and the ways in which DeepSpeed's swappers move the same bytes over libaio.\n"
    "  --path FOLDER   on the disk in question; needs room for 8 times the states (default: the current folder)\n"
    "  --elements N    of the model, 12 bytes of states each; 48Mi and the like are understood (default 32Mi; --full: 128Mi).\n"
    "                  Below 32Mi ratios are void\n"
    "  --budget N      the small budget of DRAM is a part in N of the states (default 10)\n"
    "  --only LIST     parts: race, throttle, rss, paths (default: all; throttle and paths need root)\n"
    "  --rounds N      of each race, at most 64 (default 4; --full: 15)\n"
    "  --seconds N     time for all of it: there are fewer rounds then (default 44; --full: 600)\n"
    "  --quick         the defaults\n"
    "  --full          more of everything\n"
    "  --json[=FILE]   write JSON to FILE, or to standard output with the table on standard error\n"
    "Exit status 3: nothing that is asked of the project could be measured.\n";

static int refuse(const char *option, const char *text, const char *wanted)
{
    fprintf(stderr, "step: --%s %s: %s; see --help\n", option, text, wanted);
    return -1;
}

static int parse_parts(const char *text, unsigned *out)
{
    static const struct {
        const char *name;
        unsigned bits;
    } WORDS[] = {{"race", PART_RACE}, {"throttle", PART_THROTTLE}, {"rss", PART_RSS}, {"paths", PART_PATHS}, {"all", PART_ANY}};
    enum { COUNT = sizeof WORDS / sizeof WORDS[0] };
    *out = 0;
    for (const char *p = text;; p++) {
        const size_t length = strcspn(p, ",");
        unsigned i = 0;
        while (i < COUNT && (strlen(WORDS[i].name) != length || strncmp(WORDS[i].name, p, length) != 0))
            i++;
        if (i == COUNT)
            return refuse("only", text, "unknown part");
        *out |= WORDS[i].bits;
        p += length;
        if (!*p)
            return 0;
    }
}

/* "4096", "64Ki", "48Mi", "1Gi", from `least` to `most`. */
static int parse_number(const char *option, const char *text, unsigned long long least, unsigned long long most,
                        unsigned long long *out)
{
    static const char *const UNITS[] = {"", "Ki", "Mi", "Gi"};
    char *end = NULL, wanted[96];
    unsigned unit = 0;
    errno = 0;
    *out = *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    while (end && unit < 4 && strcmp(end, UNITS[unit]) != 0)
        unit++;
    if (end && unit < 4 && !errno && *out <= most >> (10 * unit)) {
        *out <<= 10 * unit;
        if (*out >= least)
            return 0;
    }
    snprintf(wanted, sizeof wanted, "wanted is a number from %llu to %llu", least, most);
    return refuse(option, text, wanted);
}

static int parse_options(int argc, char **argv, step_options *out)
{
    static const struct option OPTIONS[] = {
        {"path", required_argument, NULL, 'p'},
        {"elements", required_argument, NULL, 'e'},
        {"budget", required_argument, NULL, 'b'},
        {"only", required_argument, NULL, 'o'},
        {"rounds", required_argument, NULL, 'r'},
        {"seconds", required_argument, NULL, 'S'},
        {"quick", no_argument, NULL, 'q'},
        {"full", no_argument, NULL, 'f'},
        {"json", optional_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    unsigned long long elements = 0, budget = 10, rounds = 0, seconds = 0;
    *out = (step_options){.parts = PART_ANY, .quick = true, .path = "."};
    for (int c, bad = 0; (c = getopt_long(argc, argv, "h", OPTIONS, NULL)) != -1;) {
        if (c == 'p')
            out->path = optarg;
        else if (c == 'e')
            bad = parse_number("elements", optarg, 64 << 10, 1ull << 36, &elements);
        else if (c == 'b')
            bad = parse_number("budget", optarg, 2, 1000, &budget);
        else if (c == 'o')
            bad = parse_parts(optarg, &out->parts);
        else if (c == 'r')
            bad = parse_number("rounds", optarg, 1, RACE_ROUNDS, &rounds);
        else if (c == 'S')
            bad = parse_number("seconds", optarg, 1, 86400, &seconds);
        else if (c == 'q' || c == 'f')
            out->quick = c == 'q';
        else if (c == 'j')
            out->json_path = optarg ? optarg : "-";
        else if (c == 'h') {
            fputs(USAGE, stdout);
            exit(0);
        } else {
            fputs(USAGE, stderr);
            return -1;
        }
        if (bad)
            return -1;
    }
    if (optind < argc)
        return refuse("", argv[optind], "not an option");
    out->elements = elements ? (size_t)elements : (size_t)(out->quick ? 32 : 128) << 20;
    out->budget_share = (unsigned)budget;
    out->rounds = rounds ? (unsigned)rounds : out->quick ? 4 : 15;
    out->seconds = seconds ? (double)seconds : out->quick ? 44 : 600;
    return 0;
}

double step_options_deadline(const step_options *options, double share)
{
    return options->start + share * options->seconds;
}

bool step_options_late(const step_options *options, double share, char *reason)
{
    if (bench_stopwatch_now() < step_options_deadline(options, share))
        return false;
    snprintf(reason, STEP_REASON, "no time was left for it; raise --seconds, or name fewer parts with --only");
    return true;
}

/* Files of all contestants are there at a time. */
static int check_room(const step_options *options)
{
    enum { TIMES = 8 };
    struct statvfs fs;
    const double wanted = 12.0 * (double)options->elements * TIMES;
    if (statvfs(options->path, &fs) != 0) {
        fprintf(stderr, "step: --path %s: %s\n", options->path, strerror(errno));
        return -1;
    }
    const double room = (double)fs.f_bavail * (double)fs.f_frsize;
    if (room >= wanted)
        return 0;
    fprintf(stderr, "step: --path %s: %.1f GB are free, %.1f GB are wanted; name another folder, or fewer with --elements\n",
            options->path, 1e-9 * room, 1e-9 * wanted);
    return -1;
}

static int run_parts(const step_options *options, step_book *book)
{
    char folder[STEP_PATH];
    struct statfs fs;
    if (check_room(options) != 0 || step_folder_make(options->path, folder) != 0)
        return -1;
    book->in_memory = statfs(folder, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
    int ret = 0;
    if (options->parts & (PART_RACE | PART_THROTTLE))
        ret = step_race(options, folder, book);
    if (ret == 0 && options->parts & PART_RSS)
        ret = step_rss(options, folder, book);
    if (ret == 0 && options->parts & PART_PATHS)
        ret = step_paths(options, folder, book);
    step_folder_remove(folder);
    return ret;
}

static int report(const step_options *options, const step_book *book)
{
    bench_figures figures;
    unsigned measured = 0;
    step_judge(options, book, &figures);
    for (unsigned i = 0; i < figures.count; i++)
        measured += figures.list[i].sense && figures.list[i].rounds > 0;
    const int to_stdout = options->json_path && strcmp(options->json_path, "-") == 0;
    step_report_table(to_stdout ? stderr : stdout, options, book, &figures);
    if (options->json_path && step_report_json(options, book, &figures) != 0) {
        fprintf(stderr, "step: cannot write %s\n", options->json_path);
        return 1;
    }
    return measured ? 0 : 3;
}

/* What the library warns of matters to a measurement; what it tells of each engine does not. */
static void log_warnings(zoff_log_level level, const char *room, const char *line, void *ctx)
{
    (void)ctx;
    if (level <= ZOFF_LOG_WARN)
        fprintf(stderr, "zoff %s: %s\n", room, line);
}

int main(int argc, char **argv)
{
    step_options options;
    zoff_log_set(log_warnings, NULL);
    /* How this program starts itself again for a part; see step_child.c. */
    if (argc == 5 && strcmp(argv[1], "--rss-of") == 0)
        return step_rss_child(argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
    if (argc == 6 && strcmp(argv[1], "--paths-of") == 0)
        return step_paths_child(argv[2], strtoull(argv[3], NULL, 10), (unsigned)strtoul(argv[4], NULL, 10),
                                strtod(argv[5], NULL));
    if (parse_options(argc, argv, &options) != 0)
        return 2;
    options.start = bench_stopwatch_now();
    step_book *book = calloc(1, sizeof *book);
    int ret = book ? 0 : 1;
    if (book)
        book->agree = -1;
    if (book && run_parts(&options, book) != 0)
        ret = 1;
    const int reported = book ? report(&options, book) : 1; /* also what a failed run has measured */
    free(book);
    return ret ? ret : reported;
}
