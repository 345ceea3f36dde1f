/* step.c: how long does a step take whose states are on a disk, and how far is that from what the disk and the memory allow?
 * Options, and the order of the parts. */
#include "step_bench.h"

#include <errno.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

static const char USAGE[] =
    "usage: step [OPTION]...\n"
    "Times zoff's whole optimizer step with states in files beside yardsticks: the same transfers alone, the same update "
    "alone,\n"
    "half of the states in DRAM, and the ways in which DeepSpeed's swappers move the same bytes over libaio.\n"
    "  --path FOLDER   on the disk in question; needs room for 8 times the states (default: the current folder)\n"
    "  --elements N    of the model, 12 bytes of states each; 48Mi and the like are understood (default 16Mi; --full: 128Mi).\n"
    "                  Below 16Mi ratios are void\n"
    "  --budget N      the small budget of DRAM is a part in N of the states (default 10)\n"
    "  --only LIST     parts: race, throttle, rss, paths, loop, windows (default: all; throttle and paths need root)\n"
    "  --rounds N      of each race, at most 64 (default 9; --full: 15); of the dear ones half as many\n"
    "  --seconds N     time for all of it: there are fewer rounds then (default 46; --full: 600)\n"
    "  --busy N        beside N processes that compute all the time, and whatever else runs; nothing is judged\n"
    "  --quick         the defaults\n"
    "  --full          more of everything\n"
    "  --json[=FILE]   write JSON to FILE, or to standard output with the table on standard error\n"
    "Exit status 3: nothing that is asked of the project could be measured.\n";

static const bench_word PARTS[] = {{"race", PART_RACE}, {"throttle", PART_THROTTLE}, {"rss", PART_RSS}, {"paths", PART_PATHS},
                                   {"loop", PART_LOOP}, {"windows", PART_WINDOWS},   {"all", PART_ANY}, {NULL, 0}};

static int parse_option(int letter, const char *text, void *ctx)
{
    step_options *out = ctx;
    uint64_t number = 0;
    switch (letter) {
    case 'p':
        out->path = text;
        return 0;
    case 'B':
        if (bench_program_number("busy", text, 0, 64, &number) != 0)
            return -1;
        out->busy = (unsigned)number;
        out->beside = true;
        return 0;
    case 'e':
        if (bench_program_number("elements", text, 64 << 10, 1ull << 36, &number) != 0)
            return -1;
        out->elements = (size_t)number;
        return 0;
    default:
        if (bench_program_number("budget", text, 2, 1000, &number) != 0)
            return -1;
        out->budget_share = (unsigned)number;
        return 0;
    }
}

static int parse_options(int argc, char **argv, step_options *out)
{
    static const struct option OPTIONS[] = {
        {"path", required_argument, NULL, 'p'},   {"elements", required_argument, NULL, 'e'},
        {"budget", required_argument, NULL, 'b'}, {"busy", required_argument, NULL, 'B'},
        {"full", no_argument, NULL, 'F'},         {NULL, 0, NULL, 0},
    };
    const bench_program program = {.usage = USAGE, .options = OPTIONS, .parts = PARTS, .own = parse_option, .ctx = out};
    *out = (step_options){.budget_share = 10, .path = ".", .run = {.parts = PART_ANY, .quick = true}};
    bench_run *run = &out->run;
    if (bench_program_parse(&program, argc, argv, run) != 0)
        return -1;
    if (!out->elements)
        out->elements = (size_t)(run->quick ? 16 : 128) << 20;
    if (!run->rounds)
        run->rounds = run->quick ? 9 : 15;
    if (run->seconds == 0)
        run->seconds = run->quick ? 46 : 600;
    return 0;
}

bool step_options_late(const step_options *options, double share, char *reason)
{
    if (bench_stopwatch_now() < bench_run_deadline(&options->run, share))
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

/* Processes that want a CPU each for as long as this one lives. */
static int start_busy(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const pid_t child = fork();
        if (child < 0) {
            perror("step: --busy");
            return -1;
        }
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (volatile unsigned long turns = 0;; turns++)
                ;
        }
    }
    bench_stopwatch_beside_others();
    return 0;
}

static int run_parts(const step_options *options, step_book *book)
{
    char folder[STEP_PATH];
    struct statfs fs;
    if (check_room(options) != 0 || step_folder_make(options->path, folder) != 0)
        return -1;
    book->in_memory = statfs(folder, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
    int ret = 0;
    if (options->run.parts & (PART_RACE | PART_THROTTLE))
        ret = step_race(options, folder, book);
    if (ret == 0 && options->run.parts & PART_RSS)
        ret = step_rss(options, folder, book);
    if (ret == 0 && options->run.parts & PART_PATHS)
        ret = step_paths(options, folder, book);
    if (ret == 0 && options->run.parts & PART_LOOP)
        ret = step_loop(options, book);
    if (ret == 0 && options->run.parts & PART_WINDOWS)
        ret = step_windows(options, folder, book);
    step_folder_remove(folder);
    return ret;
}

static int report(const step_options *options, const step_book *book)
{
    bench_figures figures;
    step_judge(options, book, &figures);
    step_report_table(bench_run_table(&options->run), options, book, &figures);
    if (options->run.json_path && step_report_json(options, book, &figures) != 0)
        return 1;
    return bench_figures_any(&figures) ? 0 : 3;
}

int main(int argc, char **argv)
{
    step_options options;
    zoff_log_set(bench_program_log, NULL);
    /* How this program starts itself again for a part; see step_child.c. */
    if (argc == 5 && strcmp(argv[1], "--rss-of") == 0)
        return step_rss_child(argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
    if (argc == 6 && strcmp(argv[1], "--paths-of") == 0)
        return step_paths_child(argv[2], strtoull(argv[3], NULL, 10), (unsigned)strtoul(argv[4], NULL, 10),
                                strtod(argv[5], NULL));
    if (parse_options(argc, argv, &options) != 0)
        return 2;
    options.run.start = bench_stopwatch_now();
    if (options.beside && start_busy(options.busy) != 0)
        return 1;
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
