/* aio.c: does the file queue move bytes as fast as the disk gives them? Beside fio, on the same file, in the same seconds.
 * Options, and the order of the parts: what is asked of the project first. */
#include "aio_bench.h"

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
    unsigned bit;
    double quick, full; /* share of the time */
    int (*run)(const bench_options *options, double deadline, bench_book *book);
} part;
static const part PARTS[] = {
    {PART_CONTEST, 0.77, 0.5, bench_contest},
    {PART_THROTTLE, 0.19, 0.2, bench_throttle},
    {PART_PAGES, 0.04, 0.1, bench_pages},
    {PART_SWEEP, 0.2, 0.2, bench_sweep},
};
enum { PART_COUNT = sizeof PARTS / sizeof PARTS[0] };
static const bench_word PART_NAMES[] = {
    {"contest", PART_CONTEST}, {"throttle", PART_THROTTLE}, {"pages", PART_PAGES}, {"sweep", PART_SWEEP}, {NULL, 0}};

static int parse_bytes(const char *option, const char *text, uint64_t unit, uint64_t most, const char *wanted, uint64_t *out)
{
    const char *end = bench_program_quantity(text, out);
    return !end || *end || !*out || *out > most || *out % unit ? bench_program_refuse(option, text, wanted) : 0;
}

static int parse_option(int letter, const char *text, void *ctx)
{
    bench_options *out = ctx;
    uint64_t number = 0;
    switch (letter) {
    case 'f':
        out->folder = text;
        return *text ? 0 : bench_program_refuse("folder", text, "wanted is a folder");
    case 's':
        return parse_bytes("size", text, FILE_UNIT, 64 * GIB, "wanted is a multiple of 64Mi, at most 64Gi, like 512Mi or 2Gi",
                           &out->bytes);
    case 'b':
        return parse_bytes("block", text, 4 * KIB, GIB, "wanted is a multiple of 4Ki, at most 1Gi, like 512Ki or 4Mi",
                           &out->block);
    default:
        if (bench_program_number("depth", text, 1, 4096, &number) != 0)
            return -1;
        out->depth = (unsigned)number;
        return 0;
    }
}

static int parse_options(int argc, char **argv, bench_options *out)
{
    static const struct option OPTIONS[] = {
        {"folder", required_argument, NULL, 'f'}, {"size", required_argument, NULL, 's'},
        {"block", required_argument, NULL, 'b'},  {"depth", required_argument, NULL, 'd'},
        {"full", no_argument, NULL, 'F'},         {NULL, 0, NULL, 0},
    };
    const bench_program program = {.usage = USAGE, .options = OPTIONS, .parts = PART_NAMES, .own = parse_option, .ctx = out};
    *out = (bench_options){.bytes = GIB, .run = {.rounds = 15}};
    bench_run *run = &out->run;
    if (bench_program_parse(&program, argc, argv, run) != 0)
        return -1;
    if (run->seconds == 0)
        run->seconds = run->quick ? 47 : 600;
    if (!run->parts)
        run->parts = run->quick ? PART_ANY & ~(unsigned)PART_SWEEP : PART_ANY;
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
        sum += options->run.parts & PARTS[i].bit ? options->run.quick ? PARTS[i].quick : PARTS[i].full : 0;
    const double begin = bench_stopwatch_now(), left = bench_run_deadline(&options->run, 1) - begin;
    for (unsigned i = 0; ret == 0 && i < PART_COUNT && !bench_stopped; i++) {
        if (!(options->run.parts & PARTS[i].bit))
            continue;
        done += options->run.quick ? PARTS[i].quick : PARTS[i].full;
        ret = PARTS[i].run(options, begin + left * done / sum, book);
    }
    return ret;
}

static int report(const bench_options *options, const bench_book *book)
{
    bench_figures figures;
    bench_judge(options, book, &figures);
    bench_report_table(bench_run_table(&options->run), options, book, &figures);
    if (options->run.json_path && bench_report_json(options, book, &figures) != 0)
        return 1;
    return bench_figures_any(&figures) ? 0 : 3;
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
    options.run.start = bench_stopwatch_now();
    zoff_log_set(bench_program_log, NULL);
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
