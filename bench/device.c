/* SPDX-License-Identifier: Apache-2.0 */
/* device.c: how much of a step over a device is hidden: copies, norm, update and copies again, beside each of them alone, in
 * turns. A turn is timed from the request of its work to its end. With a backward pass, only the time after that pass counts.
 * Then weights of the engine are fetched behind the computation that uses them.
 *
 * The model is a list of parameters like a transformer's, on a device and on the host, and an engine over each. Both have the
 * same states and take the same step. The host's engine copies nothing, so its step is the update alone. Memory of a device and
 * copies as the engine uses them are not in the public headers, so this file uses internal ones: no benchmark needs CUDA's. */
#include "report.h"
#include "streams.h"

#include "accel.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { PART_COPIES = 1, PART_STAGES = 2, PART_STEP = 4, PART_VISIBLE = 8, PART_DUPLEX = 16, PART_FETCHES = 32, PART_ANY = 63 };
enum { DEVICE_PARAMS = 6, ENOUGH_ROUNDS = 3 };

typedef struct device_slice {
    zoff_param param;
    size_t slice, at, bytes; /* number of the slice; its place in the weights and gradients */
    bool begins_layer;       /* the backward pass computes for a while before this gradient */
} device_slice;

/* Weights and gradients of bf16, on the device and in pinned memory of the host, of the same layout. */
static struct {
    const char *name; /* name of the accelerator, as in the option */
    uint64_t elements;
    zoff_accel *accel;
    size_t layers, width, slices;
    zoff_param_desc params[DEVICE_PARAMS]; /* on the host */
    size_t firsts[DEVICE_PARAMS];          /* byte offset of each parameter */
    size_t bytes;                          /* bytes of the weights, and of the gradients, with alignment */
    char *host[2], *device[2];             /* weights and gradients */
    device_slice *backward;                /* slices in the order of the backward pass */
    void *trainer, *streams[2];            /* the trainer's stream, and two for copies */
    zoff_engine *engine, *host_engine;     /* engines over device memory, and over host memory */
} device = {.name = "cuda"};
enum { WEIGHTS, GRADS };
enum { DOWN, UP };

/* Results of a run. */
static struct {
    double nap, backward;           /* seconds of computation before the gradients of a layer, and before all of them */
    zoff_step_info info, host_info; /* infos of the last step of each engine */
    zoff_step_info at_once;         /* info of the last step without a backward pass */
} found;

static bool is_cuda(void)
{
    return strcmp(device.name, "cuda") == 0;
}

/* --- the model --- */

static const char CONFIG[] = "{\"gradient_clipping\": 1.0, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-5, "
                             "\"weight_decay\": 0.01}}, \"zero_optimization\": {\"stage\": 1, \"offload_optimizer\": "
                             "{\"device\": \"cpu\"}}, \"zoff\": {\"strict\": true}}";

static const size_t MANY = 4000000000u; /* elements from which a model has more layers */
enum { LAYERS = 24, MANY_LAYERS = 48, ALIGN = 512, EMBEDDING = 0, ELEMENT = sizeof(uint16_t) };

/* A layer has 12 width^2 elements in matrices and 13 width in vectors. The remainder of the elements is the embedding. */
static void make_list(void)
{
    device.layers = device.elements < MANY ? LAYERS : MANY_LAYERS;
    device.width = (size_t)sqrt(0.9 * (double)device.elements / (12.0 * (double)device.layers)) / 8 * 8;
    const size_t square = device.width * device.width, layer = 12 * square + 13 * device.width;
    const struct {
        const char *name;
        size_t count, slices;
    } LIST[DEVICE_PARAMS] = {{"embedding", device.elements - device.layers * layer, 1},
                             {"qkv", 3 * square, device.layers},
                             {"projection", square, device.layers},
                             {"up", 4 * square, device.layers},
                             {"down", 4 * square, device.layers},
                             {"vectors", 13 * device.width, device.layers}};
    for (unsigned p = 0; p < DEVICE_PARAMS; p++) {
        device.params[p] = bench_param(NULL, NULL, LIST[p].count, LIST[p].slices, ZOFF_BF16);
        device.params[p].name = LIST[p].name;
        device.firsts[p] = device.bytes;
        device.bytes += (LIST[p].count * LIST[p].slices * ELEMENT + ALIGN - 1) / ALIGN * ALIGN;
        device.slices += LIST[p].slices;
    }
}

static void add_slice(device_slice *out, unsigned param, size_t slice, bool begins_layer)
{
    const size_t bytes = device.params[param].count * ELEMENT;
    *out = (device_slice){param, slice, device.firsts[param] + slice * bytes, bytes, begins_layer};
}

/* The order of a backward pass: the last layer first, the embedding at the end. */
static void make_order(void)
{
    device_slice *next = device.backward = bench_array(device.slices * sizeof *device.backward, true);
    for (size_t layer = device.layers; layer-- > 0;) {
        for (unsigned p = DEVICE_PARAMS; --p > EMBEDDING;)
            add_slice(next++, p, layer, p == DEVICE_PARAMS - 1);
    }
    add_slice(next, EMBEDDING, 0, true);
}

static void enqueue(void *stream, void *dst, const void *src, size_t bytes)
{
    bench_must(device.accel->ops->copy(device.accel, stream, dst, src, bytes));
}

BENCH_CLOSER(unpin, device.accel->ops->pages.unpin(device.accel, x))
BENCH_CLOSER(free_memory, device.accel->ops->free(device.accel, x))

static void make_memory(void)
{
    for (unsigned i = WEIGHTS; i <= GRADS; i++) {
        uint16_t *memory = bench_array(device.bytes, true);
        void *copy;
        bench_fill_bf16(memory, device.bytes / ELEMENT, i, i == GRADS ? 0.01f : 0.02f);
        bench_must(device.accel->ops->pages.pin(device.accel, memory, device.bytes));
        bench_later(unpin, memory, 0);
        bench_must(device.accel->ops->alloc(device.accel, device.bytes, &copy));
        bench_later(free_memory, copy, 0);
        device.host[i] = (char *)memory;
        device.device[i] = copy;
        enqueue(device.streams[0], copy, memory, device.bytes);
    }
    bench_must(zoff_accel_stream_wait(device.accel, device.streams[0]));
}

static zoff_engine *make_engine(zoff_accel *accel, char *const memory[2])
{
    zoff_param_desc params[DEVICE_PARAMS];
    for (unsigned p = 0; p < DEVICE_PARAMS; p++) {
        params[p] = device.params[p];
        params[p].value = memory[WEIGHTS] + device.firsts[p];
        params[p].grad = memory[GRADS] + device.firsts[p];
    }
    return bench_engine(CONFIG, (zoff_engine_opts){.accel = accel}, params, DEVICE_PARAMS);
}

BENCH_CLOSER(close_stream, zoff_accel_stream_close(device.accel, x))

/* Open a stream, until the end of the part. */
static void *open_stream(void)
{
    void *stream;
    bench_must(zoff_accel_stream_open(device.accel, &stream));
    bench_later(close_stream, stream, 0);
    return stream;
}

static void open_model(void)
{
    make_list();
    device.streams[0] = open_stream();
    device.streams[1] = open_stream();
    make_memory();
    make_order();
    device.host_engine = make_engine(NULL, device.host);
    device.trainer = open_stream();
    device.engine = make_engine(device.accel, device.device);
}

/* Length of the backward pass, as a multiple of the download of its gradients: they can hide behind it. */
static const double BACKWARD = 2;

/* Enqueue copies in one direction, of everything at once or slice by slice. */
static void put(int direction, bool slices)
{
    char *dst = direction == DOWN ? device.host[GRADS] : device.device[WEIGHTS];
    const char *src = direction == DOWN ? device.device[GRADS] : device.host[WEIGHTS];
    for (size_t i = 0; i < (slices ? device.slices : 1); i++) {
        const size_t at = slices ? device.backward[i].at : 0, bytes = slices ? device.backward[i].bytes : device.bytes;
        enqueue(device.streams[direction], dst + at, src + at, bytes);
    }
}

/* Copies in one direction, or in both at the same time. */
static void copy(bool down, bool up, bool slices)
{
    if (down)
        put(DOWN, slices);
    if (up)
        put(UP, slices);
    if (down)
        bench_must(zoff_accel_stream_wait(device.accel, device.streams[DOWN]));
    if (up)
        bench_must(zoff_accel_stream_wait(device.accel, device.streams[UP]));
}

/* --- steps --- */

static _Atomic double over; /* time at which the trainer's stream had computed the last gradient */

/* Whether a step did its work. */
static void check_step(const zoff_step_info *info)
{
    if (info->skipped || info->numbers.elements_updated != device.elements)
        bench_die("a step %s, %llu of %zu elements were updated", info->skipped ? "was skipped" : "was not whole",
                  (unsigned long long)info->numbers.elements_updated, (size_t)device.elements);
}

static void update_only(void)
{
    found.host_info.struct_size = sizeof found.host_info;
    bench_must(zoff_step(device.host_engine, NULL, &found.host_info));
    check_step(&found.host_info);
}

static void nap(void *ctx)
{
    bench_sleep(found.nap);
}

static void note_end(void *ctx)
{
    atomic_store(&over, bench_now());
}

/* Enqueue the trainer's work for one gradient. Before the last gradient is handed over, a host function notes the end of the
 * work. So the time is known when that gradient arrives. */
static void compute(size_t i)
{
    if (device.backward[i].begins_layer)
        bench_must(zoff_accel_stream_call(device.accel, device.trainer, nap, NULL));
    if (i == device.slices - 1)
        bench_must(zoff_accel_stream_call(device.accel, device.trainer, note_end, NULL));
}

/* Take a step after a backward pass, or without one. */
static void take_step(bool computes)
{
    const zoff_step_args args = {.struct_size = sizeof args};
    found.info.struct_size = sizeof found.info;
    for (size_t i = 0; i < device.slices; i++) {
        if (computes)
            compute(i);
        bench_must(zoff_grad_ready(device.engine, device.backward[i].param, device.backward[i].slice, device.trainer));
    }
    bench_must(zoff_step_begin(device.engine, &args));
    bench_must(zoff_step_wait(device.engine, &found.info));
}

/* The engine makes weights of their masters and uploads them, alone or while gradients come down. The gradients beside them are
 * copies by this program, because an engine that has gradients refuses zoff_params_push(). */
static void push(bool down)
{
    if (down)
        put(DOWN, true);
    bench_must(zoff_params_push(device.engine));
    if (down)
        bench_must(zoff_accel_stream_wait(device.accel, device.streams[DOWN]));
}

/* --- rounds --- */

enum { COPY_DOWN, COPY_UP, COPY_BOTH, DOWN_ONLY, UP_ONLY, DUPLEX, UPDATE_ONLY, STEP, VISIBLE, PUSH_ONLY, PUSH_BESIDE };

/* Bytes are those between device and host, for each element; tags are parts. */
static const race_line TABLE[] = {
    {"copy_down", "one copy of all gradients", 2, NULL, COPY_DOWN, PART_COPIES},
    {"copy_up", "one copy of all weights", 2, NULL, COPY_UP, PART_COPIES},
    {"copy_both", "both at a time", 4, NULL, COPY_BOTH, PART_COPIES},
    {"down_only", "gradients, slice by slice", 2, NULL, DOWN_ONLY, PART_STAGES},
    {"up_only", "weights, slice by slice", 2, NULL, UP_ONLY, PART_STAGES},
    {"update_only", "the same step with weights and gradients on the host", 0, NULL, UPDATE_ONLY, PART_STAGES},
    {"step", "gradients down, norm, update, weights up", 4, NULL, STEP, PART_STEP},
    {"visible", "the same step, from the end of a backward pass", 4, NULL, VISIBLE, PART_VISIBLE},
    {"duplex", "gradients and weights, slice by slice, both at a time", 4, NULL, DUPLEX, PART_DUPLEX},
    {"push_only", "the engine makes weights of their masters and sends them", 2, NULL, PUSH_ONLY, PART_DUPLEX},
    {"push_beside", "the same while gradients come down", 4, NULL, PUSH_BESIDE, PART_DUPLEX},
    {NULL}};

/* Take a turn. Returns the seconds from its start; of "visible", from the end of the backward pass. */
static double take_turn(int turn)
{
    const double from = bench_now();
    if (turn == UPDATE_ONLY)
        update_only();
    else if (turn == STEP || turn == VISIBLE)
        take_step(turn == VISIBLE);
    else if (turn == PUSH_ONLY || turn == PUSH_BESIDE)
        push(turn == PUSH_BESIDE);
    else
        copy(turn != COPY_UP && turn != UP_ONLY, turn != COPY_DOWN && turn != DOWN_ONLY, turn >= DOWN_ONLY);
    const double end = bench_now();
    if (turn == STEP || turn == VISIBLE)
        check_step(&found.info);
    found.at_once = turn == STEP ? found.info : found.at_once;
    return end - (turn == VISIBLE ? atomic_load(&over) : from);
}

static double sample(race *r, race_entry *e, double deadline)
{
    const double seconds = take_turn(e->work.which);
    e->other[r->rounds] = found.host_info.seconds.measure;
    return seconds;
}

/* Take each turn once, untimed, for pages and connections. The download of gradients sets the length of the backward pass. */
static void warm_up(const race *r)
{
    const double first = take_turn(DOWN_ONLY);
    found.backward = BACKWARD * fmin(first, take_turn(DOWN_ONLY));
    found.nap = found.backward / (double)(device.layers + 1);
    for (unsigned i = 0; i < r->count; i++)
        (void)take_turn(r->entries[i].work.which);
}

static void run_race(const bench_part *part)
{
    race *r = race_open("device", bench_text("%zu elements", (size_t)device.elements));
    r->sample = sample;
    r->least = 1;
    race_add_lines(r, TABLE, bench.parts, (double)device.elements, NULL, 1);
    warm_up(r);
    race_run(r, (unsigned)bench.rounds, bench_share(bench.parts & PART_FETCHES ? 0.9 : 1));
}

/* --- weights of the engine (ZeRO-3), stored in DRAM --- */

/* A pass fetches slice after slice; in the program's stream each is used for 1.5 times its copy, which a timed wait stands for,
 * and then released. The figure is the time of a pass beyond its waits, beside a pass without waits.
 *
 * A slice has 64 MiB, like a layer of a model with billions of parameters: the fixed cost of a copy does not show. Where there
 * is no bus, smaller ones do. It has no more elements than the model that was asked for. */
enum { SLICES = 16, ELEMENTS = 32 << 20, ELEMENTS_EMULATED = 4 << 20 };
enum { ALONE, HIDDEN, WAITS };
static const double COMPUTE = 1.5; /* a multiple of the fetches alone */

static struct {
    zoff_engine *engine;
    void *stream;
    double seconds;        /* seconds of the computation of a slice */
    _Atomic double waited; /* seconds that the stream has waited in this pass */
    double asked;          /* seconds that the calls have taken, in this pass */
} fetches;

/* Three slices fit: the one in use, and two that are prefetched. */
static void open_engine(size_t count)
{
    const char *config =
        bench_text("{\"gradient_accumulation_steps\": 1000000, \"zero_optimization\": {\"stage\": 3, \"offload_param\": "
                   "{\"device\": \"cpu\"}, \"stage3_max_live_parameters\": %zu, \"stage3_prefetch_bucket_size\": %zu, "
                   "\"stage3_param_persistence_threshold\": 0}}",
                   3 * count, 2 * count);
    uint16_t *weights = bench_array(count * SLICES * sizeof *weights, true);
    zoff_param_desc d = bench_param(weights, NULL, count, SLICES, ZOFF_BF16);
    d.engine_owned = true;
    fetches.stream = open_stream();
    fetches.engine = bench_engine(config, (zoff_engine_opts){.accel = device.accel}, &d, 1);
}

static void use(void *ctx)
{
    const double from = bench_now();
    while (bench_now() < from + fetches.seconds)
        bench_sleep(2e-5);
    atomic_store(&fetches.waited, atomic_load(&fetches.waited) + bench_now() - from);
}

/* Seconds that a pass takes beyond its waits, and that its waits take beyond their time, as the device calls the host. */
static double pass(bool fetching, bool waits)
{
    fetches.asked = 0;
    atomic_store(&fetches.waited, 0);
    const double from = bench_now();
    for (size_t slice = 0; slice < SLICES; slice++) {
        const void *lent;
        const double asked = bench_now();
        if (fetching)
            bench_must(zoff_param_fetch(fetches.engine, 0, slice, fetches.stream, &lent));
        fetches.asked += fetching ? bench_now() - asked : 0;
        if (waits)
            bench_must(zoff_accel_stream_call(device.accel, fetches.stream, use, NULL));
        if (fetching)
            bench_must(zoff_param_release(fetches.engine, 0, slice, fetches.stream));
    }
    bench_must(zoff_accel_stream_wait(device.accel, fetches.stream));
    const double took = bench_now() - from - atomic_load(&fetches.waited);
    if (fetching)
        bench_must(zoff_step(fetches.engine, NULL, NULL)); /* the next pass begins: the order is known */
    return took;
}

static double sample_fetches(race *r, race_entry *e, double deadline)
{
    const double seconds = pass(e->work.which != WAITS, e->work.which != ALONE);
    e->other[r->rounds] = fetches.asked;
    return seconds;
}

static const race_line FETCHES[] = {{"fetch_alone", "fetches, one after the other", 2, NULL, ALONE},
                                    {"fetch_hidden", "the rest beyond the waits", 2, NULL, HIDDEN},
                                    {"waits_alone", "the rest of waits without fetches", 0, NULL, WAITS},
                                    {NULL}};

static void run_fetches(const bench_part *part)
{
    const size_t most = is_cuda() ? ELEMENTS : ELEMENTS_EMULATED;
    const size_t count = device.elements < most ? device.elements : most;
    race *r = race_open("fetches", bench_text("%zu elements", count * SLICES));
    open_engine(count);
    (void)pass(true, false); /* it learns the order */
    fetches.seconds = COMPUTE * fmin(pass(true, false), pass(true, false)) / SLICES;
    r->sample = sample_fetches;
    r->least = 1;
    race_add_lines(r, FETCHES, 0, (double)(SLICES * count), NULL, 1);
    race_run(r, (unsigned)bench.rounds, bench_share(1));
}

/* --- figures --- */

enum { BUS = 1, ROUNDS = ENOUGH_ROUNDS };
/* clang-format off */
static const bench_asked FIGURES[] = {
    {"wall_over_slowest", -1, 1.10, "step without a backward pass / the longest of download, update, upload alone", "device", "step / max(update_only, down_only, up_only)", BUS, ROUNDS},
    /* On a device the norm of gradients is the device's work; on the host it is part of the step. */
    {"wall_over_kernels", 0, 0, "the same, of the update without the norm, which is the device's here", "device", "step / max(update_only - update_only.other, down_only, up_only)", BUS, ROUNDS},
    /* The push is without its cast, because the CPU takes longer for it than the bus for its bytes, so no copy could make up
     * for it. */
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

static zoff_accel_info about = {.struct_size = sizeof about};

static void judge(void)
{
    static const size_t LEAST_ELEMENTS = (size_t)256 << 20; /* with fewer elements the fixed cost of a copy shows */
    const race *r = race_of("device");
    (void)zoff_accel_get_info(device.accel, &about);
    bench_figures.missing = "not among the parts of this run";
    bench_figures_add(FIGURES, BENCH_COUNT(FIGURES));
    if (!is_cuda())
        bench_figures_void(BUS, bench_text("the accelerator \"%s\" has no bus", device.name));
    if (device.elements < LEAST_ELEMENTS)
        bench_figures_void(BUS, bench_text("measured with %zu elements; what is asked is about %zu and more",
                                           (size_t)device.elements, LEAST_ELEMENTS));
    bench_figures_check_rounds();
    if (!r || !r->rounds)
        return;
    const double moved = (double)(found.info.bytes.device_read + found.info.bytes.device_written);
    bench_figure *f = bench_figures_add(COUNTS, BENCH_COUNT(COUNTS));
    if (race_find(r, "step") || race_find(r, "visible"))
        bench_figures_set(&f[0], moved / (double)device.elements, r->rounds);
    bench_figures_set(&f[1], (double)about.pageable_copies, r->rounds);
    bench_figures_set(&f[2], (double)about.bounced_bytes, r->rounds);
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

static json_t *describe(FILE *out)
{
    zoff_plan_info plan = {.struct_size = sizeof plan};
    (void)zoff_engine_plan(device.engine, &plan);
    fprintf(out, "%s (%s); %zu elements of bf16, %zu layers of width %zu in %zu slices; %u threads, %s kernels\n", about.name,
            about.backend, (size_t)device.elements, device.layers, device.width, device.slices, plan.threads, zoff_isa());
    fprintf(out, "GB/s are bytes between the device and the host; the backward pass of \"visible\" takes %.1f ms\n",
            1e3 * found.backward);
    return json_pack("{s:o, s:I, s:I, s:I, s:I, s:i, s:s, s:f, s:o, s:o, s:o}", "accelerator", about_object(&about), "elements",
                     (json_int_t)device.elements, "layers", (json_int_t)device.layers, "slices", (json_int_t)device.slices,
                     "host_bytes", (json_int_t)(plan.host_bytes + plan.device_host_bytes), "threads", (int)plan.threads, "isa",
                     zoff_isa(), "backward_seconds", found.backward, "last_step", step_object(&found.at_once), "last_visible",
                     step_object(&found.info), "last_update", step_object(&found.host_info));
}

/* --- the program --- */

static int take_accel(const char *text)
{
    device.name = text;
    return is_cuda() || strcmp(text, "emulated") == 0 ? 0 : -1;
}

/* Check the memory first: a process that takes too much gets no error, it is killed. */
static void check_room(void)
{
    /* twice the states; weights and gradients of the host; gradients from the device; windows and alignment */
    const double wanted = (double)device.elements * (2 * 12 + 2 + 2 + 2 + 0.5);
    double room = 0;
    bench_scan("/proc/meminfo", 1, "MemAvailable: %lf kB", &room);
    room *= 1024;
    if (room > 0 && wanted >= room)
        bench_die("%zu elements want %.1f GB of memory, %.1f GB are to be had; ask for fewer with --elements",
                  (size_t)device.elements, 1e-9 * wanted, 1e-9 * room);
}

BENCH_CLOSER(close_accel, zoff_accel_close(x))

static void begin(char **argv)
{
    race_book.enough = ENOUGH_ROUNDS;
    if (!device.elements)
        device.elements = !is_cuda() ? (bench.quick ? 4u : 16u) << 20 : bench.quick ? 256u << 20 : 1100000000u;
    const zoff_status status = zoff_accel_open(device.name, 0, &device.accel);
    if (bench_told(status) != 0)
        bench_end(status == ZOFF_ERR_UNSUPPORTED ? 3 : 1);
    bench_later(close_accel, device.accel, 0);
    check_room();
    open_model();
}

int main(int argc, char **argv)
{
    /* clang-format off */
    static const bench_option OPTIONS[] = {
        {"accel", "NAME", "cuda or emulated (default cuda). Of an emulated one times are void", .take = take_accel, .wanted = "wanted is cuda or emulated"},
        {"elements", "N", "of the model, bf16; 48Mi and the like are understood. The host needs 31 bytes for each (default\n"
         "                  1100000000; with --quick 256Mi; emulated 16Mi and 4Mi)", .number = &device.elements, .least = 64 << 10, .most = 1ull << 36},
        {NULL}};
    /* clang-format on */
    static const bench_part PARTS[] = {{"copies", PART_COPIES, run_race},
                                       {"stages", PART_STAGES},
                                       {"step", PART_STEP},
                                       {"visible", PART_VISIBLE},
                                       {"duplex", PART_DUPLEX},
                                       {"fetches", PART_FETCHES, run_fetches},
                                       {NULL}};
    static const bench_spec SPEC = {
        .usage = "usage: device [OPTION]...\n"
                 "Times zoff's step for weights and gradients on a device beside its stages alone: gradients down, update,\n"
                 "weights up; and beside plain copies from and to pinned memory. The step is taken at once, and behind a\n"
                 "backward pass that releases gradients layer by layer.\n",
        .options = OPTIONS,
        .parts = PARTS,
        .full = {PART_ANY, 15, 300},
        .quick = {PART_ANY, 5, 25},
        .begin = begin,
        .judge = judge,
        .describe = describe};
    return bench_main(argc, argv, &SPEC);
}
