/* aio.c: the speed of the file queue beside fio, on the same file, in the same seconds. This file has the options, the order of
 * the parts, and the figures with their limits and the reasons that make them worthless. Parts with limits come first. */
#include "aio_bench.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static const char USAGE[] =
    "usage: aio [OPTION]...\n"
    "Times zoff's file queue beside fio at its best on one file, whole and in requests of 16 MiB; and again on a disk that a\n"
    "cgroup holds at 1 GB/s each way. As root fio has huge pages (vm.nr_hugepages, put back in the end) and that cgroup is\n"
    "to be had; else those figures are void or not measured, with the reason.\n"
    "  --folder DIR    where the file is made and removed (default: the folder of this program)\n"
    "  --size N        bytes of the file, like 512Mi or 2Gi, a multiple of 64Mi (default 1Gi; others are void)\n"
    "  --only LIST     parts: contest, throttle, pages, sweep (default: all; with --quick all but sweep)\n"
    "  --block N       bytes of a piece of our queue, like 1Mi (default: the library's default)\n"
    "  --depth N       pieces in flight of our queue (default: the library's default)\n";

enum { PART_CONTEST = 1, PART_THROTTLE = 2, PART_PAGES = 4, PART_SWEEP = 8, PART_ANY = 15 };
static const struct {
    unsigned bit;
    double full, quick; /* share of the time */
    int (*run)(const aio_options *options, double deadline, aio_found *found);
} PARTS[] = {{PART_CONTEST, 0.5, 0.77, aio_contest},
             {PART_THROTTLE, 0.2, 0.19, aio_throttle},
             {PART_PAGES, 0.1, 0.04, aio_pages},
             {PART_SWEEP, 0.2, 0.2, aio_sweep}};

volatile int aio_stopped;

static int parse_options(int argc, char **argv, aio_options *out)
{
    static const bench_word NAMES[] = {
        {"contest", PART_CONTEST}, {"throttle", PART_THROTTLE}, {"pages", PART_PAGES}, {"sweep", PART_SWEEP}, {NULL}};
    static const bench_default DEFAULTS[] = {{PART_ANY, 15, 600}, {PART_ANY & ~PART_SWEEP, 15, 47}};
    const bench_option own[] = {{"folder", .text = &out->folder},
                                {"size", .number = &out->bytes, .least = FILE_UNIT, .most = 64 * GIB, .unit = FILE_UNIT},
                                {"block", .number = &out->block, .least = 4 * KIB, .most = GIB, .unit = 4 * KIB},
                                {"depth", .number = &out->depth, .least = 1, .most = 4096},
                                {.name = NULL}};
    *out = (aio_options){.bytes = GIB};
    return bench_program_parse(argc, argv, USAGE, own, NAMES, DEFAULTS, &out->run);
}

/* Put the file beside the program: the disk that people build on, and no tmpfs. */
static void choose_folder(aio_options *options)
{
    static char folder[AIO_PATH];
    if (options->folder)
        return;
    const ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    char *slash = length > 0 ? strrchr(folder, '/') : NULL;
    if (slash)
        *slash = 0;
    options->folder = slash ? folder : ".";
}

static double share_of(const aio_options *options, unsigned i)
{
    if (!(options->run.parts & PARTS[i].bit))
        return 0;
    return options->run.quick ? PARTS[i].quick : PARTS[i].full;
}

/* Divide the time between the chosen parts by their shares. */
static int run_parts(const aio_options *options, aio_found *found)
{
    double sum = 0, done = 0;
    int ret = 0;
    for (unsigned i = 0; i < BENCH_COUNT(PARTS); i++)
        sum += share_of(options, i);
    const double begin = bench_now(), left = bench_run_deadline(&options->run, 1) - begin;
    for (unsigned i = 0; ret == 0 && i < BENCH_COUNT(PARTS) && !aio_stopped; i++) {
        done += share_of(options, i);
        if (share_of(options, i) > 0)
            ret = PARTS[i].run(options, begin + left * done / sum, found);
    }
    return ret;
}

/* --- figures --- */

/* A figure is about the file and our memory; about fio at its best. */
enum { WHOLE = 1, FIO = 2, ENOUGH = 5 };

/* Speed of our line over that of another line in the same race. On the limited disk one round is enough. */
enum { BEST = -1 /* line of fio */ };
/* clang-format off */
static const struct {
    bench_asked asked;
    int ours, rival; /* their numbers in the race */
} SPEEDS[] = {
    {{"read_vs_fio_1gib", 1, 0.92, "bytes a second of one read of the whole file / of fio's best setting", "contest/read", NULL, WHOLE | FIO, ENOUGH}, 0, BEST},
    {{"read_vs_fio_16mib", 1, 0.92, "the same, reads of 16 MiB, 4 for each wait", "contest/read", NULL, WHOLE | FIO, ENOUGH}, 1, BEST},
    {{"write_vs_fio_1gib", 1, 0.97, "the same, one write", "contest/write", NULL, WHOLE | FIO, ENOUGH}, 0, BEST},
    {{"write_vs_fio_16mib", 1, 0.97, "the same, writes of 16 MiB, 4 for each wait", "contest/write", NULL, WHOLE | FIO, ENOUGH}, 1, BEST},
    {{"mix_vs_fio_1gib", 1, 0.95, "the same, a read of one half and a write of the other in flight at once", "contest/mix", NULL, WHOLE | FIO, ENOUGH}, 0, BEST},
    {{"mix_vs_fio_16mib", 1, 0.95, "the same, 2 reads and 2 writes of 16 MiB for each wait", "contest/mix", NULL, WHOLE | FIO, ENOUGH}, 1, BEST},
    {{"throttled_read_vs_fio_whole", 1, 0.98, "bytes a second / fio's on a disk held at 1 GB/s each way (cgroup), one request", "throttle/read", NULL, WHOLE | FIO, 1}, 0, BEST},
    {{"throttled_read_vs_fio_16mib", 1, 0.98, "the same on a disk held at 1 GB/s each way, 16 MiB, 4 for each wait", "throttle/read", NULL, WHOLE | FIO, 1}, 1, BEST},
    {{"throttled_write_vs_fio_whole", 1, 0.98, "bytes a second / fio's on a disk held at 1 GB/s each way (cgroup), one request", "throttle/write", NULL, WHOLE | FIO, 1}, 0, BEST},
    {{"throttled_write_vs_fio_16mib", 1, 0.98, "the same on a disk held at 1 GB/s each way, 16 MiB, 4 for each wait", "throttle/write", NULL, WHOLE | FIO, 1}, 1, BEST},
    {{"throttled_mix_vs_fio_whole", 1, 0.98, "bytes a second / fio's on a disk held at 1 GB/s each way (cgroup), one request", "throttle/mix", NULL, WHOLE | FIO, 1}, 0, BEST},
    {{"throttled_mix_vs_fio_16mib", 1, 0.98, "the same on a disk held at 1 GB/s each way, 16 MiB, 4 for each wait", "throttle/mix", NULL, WHOLE | FIO, 1}, 1, BEST},
    {{"read_vs_libaio_4k_pages", 0, 0, "16 MiB requests / fio with libaio, 1 MiB, 8 in flight, 4 KiB pages", "pages/read", NULL, 0, 1}, 0, 2},
    {{"read_4k_pages_vs_huge", 0, 0, "16 MiB requests, memory of 4 KiB pages / of huge pages", "pages/read", NULL, 0, 1}, 1, 0},
    {{"write_vs_libaio_4k_pages", 0, 0, "16 MiB requests / fio with libaio, 1 MiB, 8 in flight, 4 KiB pages", "pages/write", NULL, 0, 1}, 0, 2},
    {{"write_4k_pages_vs_huge", 0, 0, "16 MiB requests, memory of 4 KiB pages / of huge pages", "pages/write", NULL, 0, 1}, 1, 0},
    {{"mix_vs_libaio_4k_pages", 0, 0, "16 MiB requests / fio with libaio, 1 MiB, 8 in flight, 4 KiB pages", "pages/mix", NULL, 0, 1}, 0, 2},
    {{"mix_4k_pages_vs_huge", 0, 0, "16 MiB requests, memory of 4 KiB pages / of huge pages", "pages/mix", NULL, 0, 1}, 1, 0}};

static const bench_asked COSTS[] = {
    {"cpu_s_per_gb_1gib", -1, 0.010, "CPU seconds of our process for 1e9 bytes moved, the dearest of the three ways", NULL, NULL, WHOLE, ENOUGH},
    {"cpu_s_per_gb_16mib", -1, 0.010, "CPU seconds of our process for 1e9 bytes moved, the dearest of the three ways", NULL, NULL, WHOLE, ENOUGH}};
/* clang-format on */

/* A limit that did not bind proves nothing. */
static void check_bound(bench_figure *f, const aio_match *match, int best)
{
    const double ways = match->way == WAY_MIX ? 2 : 1;
    const double rate = (double)match->bytes / race_median(match->r, match->lines[best].name) / ways, bound = (double)BOUND;
    if (rate < 0.97 * bound || rate > 1.15 * bound)
        bench_figures_spoil(f, "the disk was to give 1 GB/s each way, but gave fio %.2f", 1e-9 * rate);
}

static void judge_speeds(const aio_found *found, bench_figures *out)
{
    for (unsigned i = 0; i < BENCH_COUNT(SPEEDS); i++) {
        char formula[256];
        bench_asked asked = SPEEDS[i].asked;
        const aio_match *match = aio_match_of(found, asked.race);
        const int rival = SPEEDS[i].rival == BEST ? aio_match_best_fio(match, NULL) : SPEEDS[i].rival;
        if (match && rival >= 0 && rival < (int)match->r->count) {
            snprintf(formula, sizeof formula, "'%s' / '%s'", match->lines[rival].name, match->lines[SPEEDS[i].ours].name);
            asked.formula = formula;
        }
        bench_figure *f = bench_figures_add(out, &asked, 1, &found->book);
        if (strncmp(asked.race, "throttle", 8) != 0 || !asked.formula)
            continue;
        check_bound(f, match, rival);
        if (f->value >= asked.limit) /* a disk with twice that bandwidth serves other processes, too */
            f->disturbed = 0;
    }
}

/* The direction with the highest cost counts. */
static void judge_costs(const aio_found *found, bench_figures *out)
{
    static const char *const RACES[] = {"contest/read", "contest/write", "contest/mix"};
    bench_figure *f = bench_figures_add(out, COSTS, BENCH_COUNT(COSTS), &found->book);
    for (unsigned i = 0; i < BENCH_COUNT(COSTS) * WAYS; i++) {
        const aio_match *match = aio_match_of(found, RACES[i % WAYS]);
        if (match)
            bench_figures_set(&f[i / WAYS], fmax(aio_match_cpu(match, i / WAYS), f[i / WAYS].value), match->r->rounds);
    }
}

static void judge(const aio_options *options, const aio_found *found, bench_figures *out)
{
    const aio_place *place = &found->place;
    *out = (bench_figures){.missing = "not among the parts of this run, or no round of it ended in its time"};
    judge_speeds(found, out);
    judge_costs(found, out);
    if (options->bytes != GIB)
        bench_figures_void(out, WHOLE, "measured on a file of %llu MiB; what is asked is about 1 GiB",
                           (unsigned long long)(options->bytes / MIB));
    if (!place->direct)
        bench_figures_void(out, WHOLE, "the file system has no O_DIRECT: that is the speed of the page cache");
    if (place->huge_bytes < options->bytes * 9 / 10)
        bench_figures_void(out, WHOLE, "our memory did not come in huge pages (/sys/kernel/mm/transparent_hugepage/enabled)");
    if (!place->pages_for_fio)
        bench_figures_void(out, FIO,
                           "fio had no huge pages, so it was not at its best; run as root, or raise vm.nr_hugepages by 80");
    bench_figures_check_quiet(out, "the disk worked for others");
}

/* --- report --- */

static int report(const aio_options *options, const aio_found *found)
{
    static bench_figures figures;
    const aio_place *place = &found->place;
    bool enough = true;
    judge(options, found, &figures);
    for (const bench_figure *f = figures.list; f < figures.list + figures.count; f++)
        enough = enough && (!f->asked.sense || !bench_figures_measured(f) || f->rounds >= f->asked.enough);
    fprintf(bench_run_table(&options->run), "%s, %s, memory %s with the kernel, %zu MiB in huge pages; fio: %s, %s\n",
            place->backend, place->direct ? "O_DIRECT" : "page cache", place->registered ? "registered" : "not registered",
            place->huge_bytes >> 20, found->fio_version[0] ? found->fio_version : "none",
            place->pages_for_fio ? "huge pages" : "no huge pages");
    json_t *setting = bench_report_machine();
    json_object_update_new(setting, json_pack("{s:s, s:b, s:b, s:I, s:I, s:b, s:s}", "backend", place->backend, "direct",
                                              place->direct, "registered", place->registered, "file_bytes",
                                              (json_int_t)options->bytes, "huge_page_bytes", (json_int_t)place->huge_bytes,
                                              "fio_huge_pages", place->pages_for_fio, "fio", found->fio_version));
    return bench_report(&options->run, json_pack("{s:o, s:b}", "setting", setting, "enough_rounds", enough), &found->book,
                        &figures, "rounds");
}

/* Before the program ends, undo the file, the huge pages and the cgroup. */
static void stop(int number)
{
    aio_stopped = number;
}

int main(int argc, char **argv)
{
    static aio_found found;
    aio_options options;
    if (parse_options(argc, argv, &options) != 0)
        return 2;
    choose_folder(&options);
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    if (bench_command(found.fio_version, sizeof found.fio_version, "fio --version 2>/dev/null") != 0)
        found.fio_version[0] = 0;
    found.fio_version[strcspn(found.fio_version, "\n")] = 0;
    int ret = aio_place_open(&options, found.fio_version[0] != 0, &found.place);
    if (ret == 0)
        ret = run_parts(&options, &found);
    aio_place_close(&found.place);
    const int reported = found.count && !aio_stopped ? report(&options, &found) : 1;
    race_book_free(&found.book);
    return aio_stopped ? 128 + aio_stopped : ret ? 1 : reported;
}
