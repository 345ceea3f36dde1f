/* device.c: how much of a step over a device is hidden: copies, norm, update and copies again, beside each of them alone. This
 * file has the options, the order of the run, and the figures with their limits and the reasons that make them worthless. */
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
        {"duplex", PART_DUPLEX}, {"fetches", PART_FETCHES}, {"all", PART_ANY},   {NULL}};
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
    /* twice the states; weights and gradients of the host; gradients from the device; windows and alignment */
    const double wanted = (double)options->elements * (2 * 12 + 2 + 2 + 2 + 0.5);
    double room = 0;
    bench_scan("/proc/meminfo", 1, "MemAvailable: %lf kB", &room);
    room *= 1024;
    return room == 0 || wanted < room
               ? 0
               : bench_fail("%zu elements want %.1f GB of memory, %.1f GB are to be had; ask for fewer with --elements",
                            (size_t)options->elements, 1e-9 * wanted, 1e-9 * room);
}

int device_rounds(const device_options *options, race *r, double share)
{
    int ret = 0;
    while (ret == 0 && r->rounds < options->run.rounds &&
           (!r->rounds || bench_now() < bench_run_deadline(&options->run, share)))
        ret = race_round(r, 0);
    return ret;
}

/* --- figures --- */

enum { BUS = 1, ROUNDS = ENOUGH_ROUNDS };
/* clang-format off */
static const bench_asked FIGURES[] = {
    {"wall_over_slowest", -1, 1.10, "step without a backward pass / the longest of download, update, upload alone", "device", "step / max(update_only, down_only, up_only)", BUS, ROUNDS},
    /* On a device the norm of gradients is the device's work; on the host it is part of the step. */
    {"wall_over_kernels", 0, 0, "the same, of the update without the norm, which is the device's here", "device", "step / max(update_only - update_only.other, down_only, up_only)", BUS, ROUNDS},
    /* Without the cast of a push: the CPU takes longer for it than the bus for its bytes, so no copy could make up for it. */
    {"slices_over_memcpy_both", 1, 0.85, "rate of both ways at a time, slice by slice / of two plain copies", "device", "copy_both / duplex", BUS, ROUNDS},
    {"push_beside_over_push", 0, 0, "time of the engine's casts and uploads while gradients come down / alone", "device", "push_beside / push_only", BUS, ROUNDS},
    {"bus_in_step", 0, 0, "bytes of the step over its time / the same rate", "device", "copy_both / step", BUS, ROUNDS},
    {"slices_over_memcpy_down", 0, 0, "rate of gradients slice by slice / of one copy", "device", "copy_down / down_only", BUS, ROUNDS},
    {"slices_over_memcpy_up", 0, 0, "rate of weights slice by slice / of one copy", "device", "copy_up / up_only", BUS, ROUNDS},
    {"two_way_over_one_way", 0, 0, "one way after the other / both at a time, plain copies: 2 where neither slows the other", "device", "(copy_down + copy_up) / copy_both", BUS, ROUNDS},
    {"visible_over_update", 0, 0, "from the end of the backward pass to new weights / the update alone", "device", "visible / update_only", BUS, ROUNDS},
    /* The waits cost time of their own, which is none of the fetches'. */
    {"fetches_hidden_share", 1, 0.8, "part of the uploads of weights that a computation of 1.5 times their length hides", "fetches", "1 - (fetch_hidden - waits_alone) / fetch_alone"}};

/* Counts, which are the same on every machine. */
static const bench_asked COUNTS[] = {
    {"bytes_per_parameter", -1, 4, "between the device and the host in a step, / parameters: 2 of gradients, 2 of weights"},
    {"pageable_copies", -1, 0, "copies whose host memory was not pinned"},
    {"bounced_bytes", -1, 0, "copied twice, because host memory was not pinned"}};
/* clang-format on */

static void judge(const device_options *options, const device_found *found, const zoff_accel_info *about, bench_figures *out)
{
    static const size_t LEAST_ELEMENTS = (size_t)256 << 20; /* with fewer elements the fixed cost of a copy shows */
    const race *r = race_of(&found->book, "device");
    out->missing = "not among the parts of this run";
    bench_figures_add(out, FIGURES, BENCH_COUNT(FIGURES), &found->book);
    if (strcmp(options->accel, "cuda") != 0)
        bench_figures_void(out, BUS, "the accelerator \"%s\" has no bus", options->accel);
    if (found->model.elements < LEAST_ELEMENTS)
        bench_figures_void(out, BUS, "measured with %zu elements; what is asked is about %zu and more", found->model.elements,
                           LEAST_ELEMENTS);
    bench_figures_check_rounds(out);
    if (!r || !r->rounds)
        return;
    const double moved = (double)(found->info.bytes.device_read + found->info.bytes.device_written);
    bench_figure *f = bench_figures_add(out, COUNTS, BENCH_COUNT(COUNTS), &found->book);
    if (race_find(r, "step") || race_find(r, "visible"))
        bench_figures_set(&f[0], moved / (double)found->model.elements, r->rounds);
    bench_figures_set(&f[1], (double)about->pageable_copies, r->rounds);
    bench_figures_set(&f[2], (double)about->bounced_bytes, r->rounds);
}

/* --- report --- */

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

static int report(const device_options *options, const device_found *found)
{
    static bench_figures figures;
    const device_model *m = &found->model;
    zoff_accel_info about = {.struct_size = sizeof about};
    zoff_plan_info plan = {.struct_size = sizeof plan};
    (void)zoff_accel_get_info(m->accel, &about);
    (void)zoff_engine_plan(m->engine, &plan);
    judge(options, found, &about, &figures);
    FILE *out = bench_run_table(&options->run);
    fprintf(out, "%s (%s); %zu elements of bf16, %zu layers of width %zu in %zu slices; %u threads, %s kernels\n", about.name,
            about.backend, m->elements, m->layers, m->width, m->slices, plan.threads, zoff_isa());
    fprintf(out, "GB/s are bytes between the device and the host; the backward pass of \"visible\" takes %.1f ms\n",
            1e3 * found->backward);
    json_t *root =
        json_pack("{s:o, s:I, s:I, s:I, s:I, s:i, s:s, s:f, s:o, s:o, s:o}", "accelerator", about_object(&about), "elements",
                  (json_int_t)m->elements, "layers", (json_int_t)m->layers, "slices", (json_int_t)m->slices, "host_bytes",
                  (json_int_t)(plan.host_bytes + plan.device_host_bytes), "threads", (int)plan.threads, "isa", zoff_isa(),
                  "backward_seconds", found->backward, "last_step", step_object(&found->at_once), "last_visible",
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
            ret = device_fetches(&options, &found);
        if (found.model.host_engine)
            reported = report(&options, &found); /* also the measurements of a failed run */
        device_model_close(&found.model);
    }
    race_book_free(&found.book);
    zoff_accel_close(accel);
    return ret ? 1 : reported;
}
