/* device.c: how much of a step over a device is hidden: copies, norm, update and copies again, beside each of them alone. This
 * file has the options and the order of the run. */
#include "device_bench.h"

#include <string.h>

static const char USAGE[] =
    "usage: device [OPTION]...\n"
    "Times zoff's step for weights and gradients on a device beside its stages alone: gradients down, update, weights up; and\n"
    "beside plain copies from and to pinned memory. The step is taken at once, and behind a backward pass that releases\n"
    "gradients layer by layer.\n"
    "  --accel NAME    cuda or emulated (default cuda). Of an emulated one times are void\n"
    "  --elements N    of the model, bf16; 48Mi and the like are understood. The host needs 31 bytes for each (default\n"
    "                  1100000000; with --quick 256Mi; emulated 16Mi and 4Mi)\n"
    "  --only LIST     parts: copies, stages, step, visible, duplex, fetches (default: all)\n";

static int take_accel(const char *text, void *ctx)
{
    ((device_options *)ctx)->accel = text;
    return strcmp(text, "cuda") == 0 || strcmp(text, "emulated") == 0 ? 0 : -1;
}

static int parse_options(int argc, char **argv, device_options *out)
{
    static const bench_word PARTS[] = {
        {"copies", PART_COPIES}, {"stages", PART_STAGES},   {"step", PART_STEP}, {"visible", PART_VISIBLE},
        {"duplex", PART_DUPLEX}, {"fetches", PART_FETCHES}, {"all", PART_ANY},   {NULL, 0}};
    static const bench_default DEFAULTS[] = {{PART_ANY, 15, 300}, {PART_ANY, 5, 25}};
    const bench_option own[] = {{"accel", .take = take_accel, .ctx = out, .wanted = "wanted is cuda or emulated"},
                                {"elements", .number = &out->elements, .least = 64 << 10, .most = 1ull << 36},
                                {.name = NULL}};
    *out = (device_options){.accel = "cuda"};
    if (bench_program_parse(argc, argv, USAGE, own, PARTS, DEFAULTS, &out->run) != 0)
        return -1;
    const bool quick = out->run.quick, emulated = strcmp(out->accel, "emulated") == 0;
    if (!out->elements)
        out->elements = emulated ? (quick ? 4u : 16u) << 20 : quick ? 256u << 20 : 1100000000u;
    return 0;
}

/* Check the memory first: a process that takes too much gets no error, it is killed. */
static int check_room(const device_options *options)
{
    const double wanted = device_model_host_bytes(options->elements);
    double room = 0;
    bench_scan("/proc/meminfo", 1, "MemAvailable: %lf kB", &room);
    room *= 1024;
    return room == 0 || wanted < room
               ? 0
               : bench_fail("%zu elements want %.1f GB of memory, %.1f GB are to be had; ask for fewer with --elements",
                            (size_t)options->elements, 1e-9 * wanted, 1e-9 * room);
}

static json_t *about_object(const zoff_accel_info *a)
{
    return json_pack("{s:s, s:s, s:i, s:i, s:I, s:I, s:I, s:I, s:I}", "backend", a->backend, "name", a->name, "index", a->index,
                     "numa_node", a->numa_node, "memory_bytes", (json_int_t)a->memory_bytes, "pinned_bytes",
                     (json_int_t)a->pinned_bytes, "pin_refused_bytes", (json_int_t)a->pin_refused_bytes, "bounced_bytes",
                     (json_int_t)a->bounced_bytes, "pageable_copies", (json_int_t)a->pageable_copies);
}

static json_t *step_object(const zoff_step_info *s)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:I, s:I, s:I}", "seconds", s->seconds.total, "measure_seconds", s->seconds.measure,
                     "update_seconds", s->seconds.update, "device_wait_seconds", s->seconds.device_wait, "elements_updated",
                     (json_int_t)s->numbers.elements_updated, "device_read_bytes", (json_int_t)s->bytes.device_read,
                     "device_write_bytes", (json_int_t)s->bytes.device_written);
}

static int report(const device_options *options, device_found *found)
{
    static bench_figures figures;
    const device_model *m = &found->model;
    found->about.struct_size = sizeof found->about;
    found->plan.struct_size = sizeof found->plan;
    (void)zoff_accel_get_info(m->accel, &found->about);
    (void)zoff_engine_plan(m->engine, &found->plan);
    device_judge(options, found, &figures);
    device_fetches_judge(found, &figures);
    FILE *out = bench_run_table(&options->run);
    fprintf(out, "%s (%s); %zu elements of bf16, %zu layers of width %zu in %zu slices; %u threads, %s kernels\n",
            found->about.name, found->about.backend, m->elements, m->layers, m->width, m->slices, found->plan.threads,
            zoff_isa());
    fprintf(out, "GB/s are bytes between the device and the host; the backward pass of \"visible\" takes %.1f ms\n",
            1e3 * found->backward);
    json_t *root = json_pack(
        "{s:o, s:I, s:I, s:I, s:I, s:i, s:s, s:f, s:o, s:o, s:o}", "accelerator", about_object(&found->about), "elements",
        (json_int_t)m->elements, "layers", (json_int_t)m->layers, "slices", (json_int_t)m->slices, "host_bytes",
        (json_int_t)(found->plan.host_bytes + found->plan.device_host_bytes), "threads", (int)found->plan.threads, "isa",
        zoff_isa(), "backward_seconds", found->backward, "last_step", step_object(&found->at_once), "last_visible",
        step_object(&found->info), "last_update", step_object(&found->host_info));
    return bench_report(&options->run, root, &found->book, &figures, "rounds");
}

int main(int argc, char **argv)
{
    static device_found found = {.book.enough = ENOUGH_ROUNDS};
    device_options options;
    zoff_accel *accel;
    if (parse_options(argc, argv, &options) != 0)
        return 2;
    const zoff_status status = zoff_accel_open(options.accel, 0, &accel);
    if (bench_told(status) != 0)
        return status == ZOFF_ERR_UNSUPPORTED ? 3 : 1;
    int ret = check_room(&options), reported = 1;
    if (ret == 0) {
        ret = device_model_open(options.elements, accel, &found.model);
        if (ret == 0)
            ret = device_race(&options, &found);
        if (ret == 0 && options.run.parts & PART_FETCHES)
            ret = device_fetches_run(&options, &found);
        if (found.model.host_engine)
            reported = report(&options, &found); /* also the measurements of a failed run */
        device_model_close(&found.model);
    }
    race_book_free(&found.book);
    zoff_accel_close(accel);
    return ret ? 1 : reported;
}
