/* device.c: how much of a step over a device is hidden: copies, norm, update and copies again, beside each of them alone.
 * Options, and the order of the run. */
#include "device_bench.h"

#include <stdlib.h>
#include <string.h>

static const char USAGE[] =
    "usage: device [OPTION]...\n"
    "Times zoff's step for weights and gradients on a device beside its stages alone: gradients down, update, weights up; and\n"
    "beside plain copies from and to pinned memory. The step is taken at once, and behind a backward pass that releases\n"
    "gradients layer by layer.\n"
    "  --accel NAME    cuda or emulated (default cuda). Of an emulated one times are void\n"
    "  --elements N    of the model, bf16; 48Mi and the like are understood. The host needs 31 bytes for each (default\n"
    "                  1100000000; with --quick 256Mi; emulated 16Mi and 4Mi)\n"
    "  --only LIST     parts: copies, stages, step, visible, duplex (default: all)\n"
    "  --rounds N      at most 64 (default 15, with --quick 5)\n"
    "  --seconds N     time for all of it: there are fewer rounds then (default 300, with --quick 25)\n"
    "  --quick         fewer rounds, of a smaller model\n"
    "  --full          all of them (default)\n"
    "  --json[=FILE]   write JSON to FILE, or to standard output with the table on standard error\n"
    "Exit status 3: nothing that is asked of the project could be measured, as where there is no such accelerator.\n";

static const bench_word PARTS[] = {{"copies", PART_COPIES},
                                   {"stages", PART_STAGES},
                                   {"step", PART_STEP},
                                   {"visible", PART_VISIBLE},
                                   {"duplex", PART_DUPLEX},
                                   {"all", PART_ANY},
                                   {NULL, 0}};

static int parse_option(int letter, const char *text, void *ctx)
{
    device_options *out = ctx;
    uint64_t number = 0;
    if (letter == 'a') {
        out->accel = text;
        return strcmp(text, "cuda") == 0 || strcmp(text, "emulated") == 0
                   ? 0
                   : bench_program_refuse("accel", text, "wanted is cuda or emulated");
    }
    if (bench_program_number("elements", text, 64 << 10, 1ull << 36, &number) != 0)
        return -1;
    out->elements = (size_t)number;
    return 0;
}

static int parse_options(int argc, char **argv, device_options *out)
{
    static const struct option OPTIONS[] = {{"accel", required_argument, NULL, 'a'},
                                            {"elements", required_argument, NULL, 'e'},
                                            {"full", no_argument, NULL, 'F'},
                                            {NULL, 0, NULL, 0}};
    const bench_program program = {.usage = USAGE, .options = OPTIONS, .parts = PARTS, .own = parse_option, .ctx = out};
    *out = (device_options){.accel = "cuda", .run = {.parts = PART_ANY}};
    bench_run *run = &out->run;
    if (bench_program_parse(&program, argc, argv, run) != 0)
        return -1;
    const bool quick = run->quick, emulated = strcmp(out->accel, "emulated") == 0;
    if (!out->elements && emulated)
        out->elements = (size_t)(quick ? 4 : 16) << 20;
    else if (!out->elements)
        out->elements = quick ? (size_t)256 << 20 : 1100000000;
    run->rounds = run->rounds ? run->rounds : quick ? 5 : 15;
    run->seconds = run->seconds > 0 ? run->seconds : quick ? 25 : 300;
    return 0;
}

/* A process that takes more than there is does not get an error, it is killed. */
static int check_room(const device_options *options)
{
    const double wanted = device_model_host_bytes(options->elements);
    const double room = (double)bench_streams_process_bytes("/proc/meminfo", "MemAvailable");
    if (room == 0 || wanted < room)
        return 0;
    fprintf(stderr, "device: %zu elements want %.1f GB of memory, %.1f GB are to be had; ask for fewer with --elements\n",
            options->elements, 1e-9 * wanted, 1e-9 * room);
    return -1;
}

static int run(const device_options *options, zoff_accel *accel)
{
    device_book *book = calloc(1, sizeof *book);
    int ret = book ? device_model_open(options, accel, &book->model) : -1;
    if (ret == 0)
        ret = device_race(options, book);
    int reported = 1;
    if (book && book->model.engine && book->model.host_engine) {
        book->about.struct_size = sizeof book->about;
        book->plan.struct_size = sizeof book->plan;
        (void)zoff_accel_get_info(accel, &book->about);
        (void)zoff_engine_plan(book->model.engine, &book->plan);
        reported = device_report(options, book); /* also what a failed run has measured */
    }
    if (book)
        device_model_close(&book->model);
    free(book);
    return ret ? 1 : reported;
}

int main(int argc, char **argv)
{
    device_options options;
    zoff_accel *accel;
    zoff_log_set(bench_program_log, NULL);
    if (parse_options(argc, argv, &options) != 0)
        return 2;
    options.run.start = bench_stopwatch_now();
    const zoff_status status = zoff_accel_open(options.accel, 0, &accel);
    if (status < 0)
        fprintf(stderr, "device: %s\n", zoff_last_error());
    if (status < 0)
        return status == ZOFF_ERR_UNSUPPORTED ? 3 : 1;
    const int ret = check_room(&options) == 0 ? run(&options, accel) : 1;
    zoff_accel_close(accel);
    return ret;
}
