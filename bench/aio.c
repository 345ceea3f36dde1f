/* aio.c: the speed of the file queue beside fio, on the same file, in the same seconds. This file has the options and the order
 * of the parts. Parts with limits come first. */
#include "aio_bench.h"

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

typedef struct part {
    unsigned bit;
    double full, quick; /* share of the time */
    int (*run)(const aio_options *options, double deadline, aio_found *found);
} part;
static const part PARTS[] = {{PART_CONTEST, 0.5, 0.77, aio_contest},
                             {PART_THROTTLE, 0.2, 0.19, aio_throttle},
                             {PART_PAGES, 0.1, 0.04, aio_pages},
                             {PART_SWEEP, 0.2, 0.2, aio_sweep}};
enum { PART_COUNT = sizeof PARTS / sizeof PARTS[0] };

volatile int aio_stopped;

static int parse_options(int argc, char **argv, aio_options *out)
{
    static const bench_word NAMES[] = {
        {"contest", PART_CONTEST}, {"throttle", PART_THROTTLE}, {"pages", PART_PAGES}, {"sweep", PART_SWEEP}, {NULL, 0}};
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
    for (unsigned i = 0; i < PART_COUNT; i++)
        sum += share_of(options, i);
    const double begin = bench_now(), left = bench_run_deadline(&options->run, 1) - begin;
    for (unsigned i = 0; ret == 0 && i < PART_COUNT && !aio_stopped; i++) {
        done += share_of(options, i);
        if (share_of(options, i) > 0)
            ret = PARTS[i].run(options, begin + left * done / sum, found);
    }
    return ret;
}

static int report(const aio_options *options, const aio_found *found)
{
    static bench_figures figures;
    const aio_place *place = &found->place;
    bool enough = true;
    aio_judge(options, found, &figures);
    for (const bench_figure *f = figures.list; f < figures.list + figures.count; f++)
        enough = enough && (!f->sense || !bench_figures_measured(f) || f->rounds >= f->enough);
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
    aio_fio_find(&found);
    int ret = aio_place_open(&options, found.fio_version[0] != 0, &found.place);
    if (ret == 0)
        ret = run_parts(&options, &found);
    aio_place_close(&found.place);
    const int reported = found.count && !aio_stopped ? report(&options, &found) : 1;
    race_book_free(&found.book);
    return aio_stopped ? 128 + aio_stopped : ret ? 1 : reported;
}
