/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: `zoff plan FILE`: prints the memory and disk that a model needs under a configuration, whether this machine has them,
 * the time of a step, and how many steps a drive lasts. The sizes come from an engine's own plan, without the allocation of
 * such memory. */
#include "dtype.h"
#include "options.h"
#include "plan_ranks.h"
#include "verbs.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <zoff/zoff.h>

/* Matrices of one shape, in the form of zoff_param_desc.dims. */
typedef struct plan_matrices {
    size_t dims[2], count;
} plan_matrices;

typedef struct plan_options {
    const char *path;
    plan_matrices *matrices;
    size_t shape_count;
    double elements, tbw; /* elements of the model; write endurance of the drive in terabytes, 0 if it is not given */
    zoff_dtype dtype;
    unsigned ranks;
    plan_links links;
    bool measures; /* measure the folder as well */
    char **sets;
    int set_count;
} plan_options;

static void print_bytes(const char *what, uint64_t bytes)
{
    printf("%-34s %12.3f GiB  %16" PRIu64 "\n", what, (double)bytes / (1 << 30), bytes);
}

/* Print the DRAM that an engine uses on each rank, by purpose and in total. zoff.host_memory limits only the first line. */
static void print_memory(const zoff_plan_info *info)
{
    print_bytes("DRAM for states", info->host_bytes);
    if (info->tier == ZOFF_TIER_NVME)
        print_bytes("  of these, resident chunks", info->resident_bytes);
    if (info->accumulator_bytes)
        print_bytes("DRAM for gradient accumulation", info->accumulator_bytes);
    if (info->matrix_bytes)
        print_bytes("DRAM for matrices", info->matrix_bytes);
    if (info->weight_bytes)
        print_bytes("DRAM for weights of the engine", info->weight_host_bytes);
    if (info->exchange_bytes)
        print_bytes("DRAM for exchange between ranks", info->exchange_bytes);
    if (info->device_host_bytes)
        print_bytes("DRAM for transfers to a device", info->device_host_bytes);
    if (info->speculation_bytes)
        print_bytes("DRAM for updates ahead of a step", info->speculation_bytes);
    if (info->nvme_memory_bytes)
        print_bytes("DRAM for files on a tmpfs", info->nvme_memory_bytes);
    print_bytes("DRAM in total", info->memory_bytes);
    print_bytes("more while a checkpoint is saved", info->save_bytes);
}

static void print_files(const zoff_plan_info *info)
{
    if (info->nvme_bytes)
        print_bytes("files", info->nvme_bytes);
    if (info->weight_nvme_bytes)
        print_bytes("files of weights", info->weight_nvme_bytes);
    if (info->tier == ZOFF_TIER_NVME)
        printf("%-34s %12" PRIu64 "  of at most %.1f MiB, %u of them in DRAM at a time\n", "chunks", info->chunk_count,
               (double)info->chunk_bytes / (1 << 20), info->slots);
    if (info->tier == ZOFF_TIER_NVME || info->step_write_bytes) {
        print_bytes("read from files in a step", info->step_read_bytes);
        print_bytes("written to files in a step", info->step_write_bytes);
    }
}

/* ---- this machine ---- */

static const char *first_folder(const zoff_config *config)
{
    static const char *const KEYS[] = {"zoff.nvme_paths", "zero_optimization.offload_optimizer.nvme_path",
                                       "zero_optimization.offload_param.nvme_path"};
    const char *folder = NULL;
    for (size_t i = 0; i < sizeof KEYS / sizeof KEYS[0] && !folder; i++) {
        if (zoff_config_string(config, KEYS[i], &folder) < 0)
            folder = NULL; /* nothing is checked for a list of folders, because only zoff_engine_seal() checks their total */
    }
    return folder;
}

static void print_machine(const plan_options *o, const zoff_plan_info *info, const char *folder)
{
    const double need = (double)info->memory_bytes * o->ranks, have = (double)info->memory_free_bytes;
    const double files = (double)(info->nvme_bytes + info->weight_nvme_bytes) * o->ranks;
    struct statvfs about;
    printf("\nthis machine%s\n", o->ranks > 1 ? ", if all ranks run on it" : "");
    printf("%-34s %12.3f GiB  of %.3f GiB free: %s\n", "DRAM", need / (1 << 30), have / (1 << 30),
           need <= have ? "enough" : "NOT ENOUGH");
    if (files > 0 && folder && statvfs(folder, &about) == 0) {
        const double free_bytes = (double)about.f_bavail * (double)about.f_frsize;
        print_line(stdout, "%-34s %12.3f GiB  of %.3f GiB free in %s: %s", "files", files / (1 << 30), free_bytes / (1 << 30),
                   folder, files <= free_bytes ? "enough" : "NOT ENOUGH");
    } else if (files > 0) {
        printf("%-34s %12.3f GiB  %s\n", "files", files / (1 << 30),
               folder ? "the folder does not exist" : "in several folders");
    }
}

/* ---- time of a step ---- */

static bool copy_key(const zoff_config *from, const char *path, zoff_config *to)
{
    const char *value;
    return zoff_config_string(from, path, &value) == 0 && zoff_config_set(to, path, value) == 0;
}

/* Operations a second of a short measurement; 0: not measured. */
typedef struct rates {
    double elements; /* updated */
    double flop;     /* of the orthogonalization of a matrix */
} rates;

/* Measure what an engine does with this optimizer, these formats and threads, and states in DRAM. */
static rates measure_update(const plan_options *o, const zoff_config *asked, unsigned threads)
{
    enum { COUNT = 4 << 20, SIDE = 768, STEPS = 5 };
    static const size_t DIMS[] = {SIDE, SIDE};
    const size_t element = o->dtype == ZOFF_F32 ? 4 : 2, counts[] = {COUNT, SIDE * SIDE}, params = o->shape_count ? 2 : 1;
    zoff_config *config = NULL;
    zoff_engine *e = NULL;
    char *value = calloc(COUNT + SIDE * SIDE, element), *grad = calloc(COUNT + SIDE * SIDE, element);
    rates best = {0};
    if (value && grad && zoff_config_open(NULL, &config) == 0 && copy_key(asked, "optimizer.type", config) &&
        copy_key(asked, "zoff.moments", config) && copy_key(asked, "zoff.master", config)) {
        zoff_engine_opts opts = {.struct_size = sizeof opts, .config = config, .threads = threads};
        zoff_step_info info = {.struct_size = sizeof info};
        zoff_plan_info plan = {.struct_size = sizeof plan};
        bool works = zoff_engine_create(&opts, &e) == 0;
        for (size_t i = 0; i < params; i++) {
            zoff_param_desc desc = {.struct_size = sizeof desc,
                                    .count = counts[i],
                                    .dtype = o->dtype,
                                    .value = value + i * COUNT * element,
                                    .grad = grad + i * COUNT * element,
                                    .dims = i ? DIMS : NULL,
                                    .dim_count = i ? 2 : 0,
                                    .name = i ? "matrix" : "sample"};
            works = works && zoff_engine_add_param(e, &desc, NULL) == 0;
        }
        works = works && zoff_engine_seal(e) == 0 && zoff_engine_plan(e, &plan) == 0;
        for (int i = 0; works && i < STEPS; i++) {
            works = zoff_step(e, NULL, &info) == 0;
            const double matrices = info.seconds.orthogonalize, update = info.seconds.total - matrices;
            if (works && i > 0 && update > 0)
                best.elements = fmax(best.elements, (double)plan.elements / update);
            if (works && matrices > 0)
                best.flop = fmax(best.flop, (double)plan.matrix_flop / matrices);
        }
        zoff_engine_destroy(e);
    }
    zoff_config_close(config);
    free(value);
    free(grad);
    return best;
}

/* @return seconds; 0: there are no matrices */
static double print_orthogonal(const zoff_plan_info *info, double rate)
{
    enum { LONG = 10 /* seconds */ };
    if (!(rate > 0))
        return 0;
    const double seconds = (double)info->matrix_flop / rate;
    printf("%-34s %12.3f s    measured now: %.1f GFLOP/s, %u threads\n", "orthogonalize matrices", seconds, rate * 1e-9,
           info->threads);
    if (seconds > LONG)
        printf("%-34s              a larger batch hides more of it, more ranks at stage 1 share it\n", "  more than 10 s");
    return seconds;
}

static void print_seconds(const plan_options *o, const zoff_plan_info *info, const zoff_config *config, const char *folder)
{
    const rates rate = measure_update(o, config, info->threads);
    const double bytes = (double)(info->step_read_bytes + info->step_write_bytes);
    double update = rate.elements > 0 ? (double)info->elements / rate.elements : 0, disk = 0;
    printf("\na step\n");
    if (rate.elements > 0)
        printf("%-34s %12.3f s    measured now: %.3f Gelements/s, %u threads, states in DRAM\n", "measure and update", update,
               rate.elements * 1e-9, info->threads);
    update += print_orthogonal(info, rate.flop);
    if (bytes <= 0)
        return;
    zoff_aio_tune_opts opts = {.struct_size = sizeof opts};
    zoff_aio_tune_result result = {.struct_size = sizeof result};
    if (!o->measures || !folder) {
        printf("%-34s              not measured: %s\n", "read and write files",
               folder ? "--measure does it in two seconds" : "there are several folders");
    } else if (zoff_aio_tune(folder, &opts, &result) < 0) {
        print_line(stdout, "%-34s              not measured: %s", "read and write files", zoff_last_error());
    } else {
        disk = bytes / result.mixed_rate;
        print_line(stdout, "%-34s %12.3f s    measured %s: %.2f GB/s in %s", "read and write files", disk,
                   result.cached ? "before" : "now", result.mixed_rate * 1e-9, folder);
        printf("%-34s %12.3f s    the longer of the two, because they overlap\n", "at least", disk > update ? disk : update);
    }
}

/* Print how states are stored, which decides their bytes. */
static void print_formats(const zoff_config *config)
{
    const char *master = "auto", *moments = "fp32";
    (void)zoff_config_string(config, "zoff.master", &master);
    (void)zoff_config_string(config, "zoff.moments", &moments);
    printf("%-34s zoff.master \"%s\", zoff.moments \"%s\"\n", "stored as", master, moments);
}

static double matrix_elements(const plan_options *o)
{
    double sum = 0;
    for (size_t i = 0; i < o->shape_count; i++)
        sum += (double)o->matrices[i].dims[0] * (double)o->matrices[i].dims[1] * (double)o->matrices[i].count;
    return sum;
}

static void print_matrices(const plan_options *o, const zoff_plan_info *info)
{
    double count = 0;
    for (size_t i = 0; i < o->shape_count; i++)
        count += (double)o->matrices[i].count;
    if (!o->shape_count)
        return;
    printf("%-34s %12.0f  of %.0f elements together\n", "matrices", count, matrix_elements(o));
    printf("%-34s %12.3f TFLOP  in a step%s\n", "their orthogonalization", (double)info->matrix_flop * 1e-12,
           o->ranks > 1 ? ", of one rank" : "");
}

static void print_plan(const plan_options *o, const zoff_config *config, const zoff_plan_info *info, double stage,
                       const char *optimizer, bool owned)
{
    const bool nvme = info->tier == ZOFF_TIER_NVME;
    const char *folder = first_folder(config);
    printf("%.0f elements of %s (--dtype), ZeRO stage %.0f, %s, %u rank%s; weights are %s\n", o->elements, dtype_name(o->dtype),
           stage, optimizer, o->ranks, o->ranks > 1 ? "s" : "",
           owned ? "the engine's (offload_param)" : "in the program's own memory");
    printf("%" PRIu64 " elements%s, states on %s, %u threads\n\n", info->elements, o->ranks > 1 ? " on rank 0" : "",
           nvme ? "NVMe" : "DRAM", info->threads);
    print_bytes("states", info->state_bytes);
    print_formats(config);
    print_matrices(o, info);
    if (info->weight_bytes)
        print_bytes("weights of the engine", info->weight_bytes);
    print_memory(info);
    print_files(info);
    print_machine(o, info, folder);
    print_seconds(o, info, config, folder);
    if (o->tbw > 0 && info->step_write_bytes)
        printf("\na drive with an endurance of %g TB written lasts %.0f steps\n", o->tbw,
               floor(o->tbw * 1e12 / (double)info->step_write_bytes));
    else if (o->tbw > 0)
        printf("\nno step writes to a drive\n");
}

bool drop_matrix_names(zoff_config *config)
{
    return zoff_config_set(config, "zoff.muon_params", "null") == 0 &&
           zoff_config_set(config, "zoff.adam_params", "null") == 0 && zoff_config_set(config, "zoff.muon_rows", "null") == 0;
}

/* ---- a rank of others that do not exist ---- */

static int nobody_send(void *ctx, unsigned to, int tag, const void *data, size_t bytes, void **request)
{
    *request = NULL;
    return 0;
}

static int nobody_receive(void *ctx, unsigned from, int tag, void *data, size_t bytes, void **request)
{
    *request = ctx;
    return 0;
}

/* Nothing arrives, so the only receives that end are those that are canceled. */
static int nobody_test(void *ctx, void **request)
{
    return !*request || *(bool *)ctx;
}

static int nobody_cancel(void *ctx, void **request)
{
    *(bool *)ctx = true;
    return 0;
}

static const char *nobody_error(void *ctx)
{
    return "";
}

static void nobody_close(void *ctx, int clean) {}

/* A plan needs no exchange, so the other ranks need not exist. */
int plan_params(zoff_config *config, unsigned ranks, unsigned node_ranks, zoff_accel *device, const zoff_param_desc *params,
                size_t count, zoff_plan_info *info)
{
    bool is_closing = false;
    zoff_engine *e = NULL;
    zoff_comm *comm = NULL;
    const zoff_comm_transport nobody = {.struct_size = sizeof nobody,
                                        .name = "plan",
                                        .ctx = &is_closing,
                                        .size = ranks,
                                        .node_ranks = node_ranks,
                                        .send = nobody_send,
                                        .receive = nobody_receive,
                                        .test = nobody_test,
                                        .cancel = nobody_cancel,
                                        .error = nobody_error,
                                        .close = nobody_close,
                                        .any_thread = 1};
    bool works = ranks == 1 || zoff_comm_open_transport(NULL, &nobody, &comm) == 0;
    zoff_engine_opts opts = {.struct_size = sizeof opts, .config = config, .comm = comm, .accel = device};
    works = works && drop_matrix_names(config) && zoff_engine_create(&opts, &e) == 0;
    for (size_t i = 0; i < count && works; i++)
        works = zoff_engine_add_param(e, &params[i], NULL) == 0;
    works = works && zoff_engine_plan(e, info) == 0;
    int result = works ? EXIT_DONE : library_error();
    zoff_engine_destroy(e);
    zoff_comm_close(comm);
    return result;
}

static int check_matrices(const plan_options *o, const char *optimizer)
{
    if (o->shape_count && strcmp(optimizer, "Muon") != 0)
        return failed("--matrices is for optimizer.type Muon, and it is %s; use --set optimizer.type=Muon to see what it needs",
                      optimizer);
    return matrix_elements(o) <= o->elements
               ? EXIT_DONE
               : failed("--matrices have %.0f elements, and --elements is %.0f, which counts them", matrix_elements(o),
                        o->elements);
}

/* A model, which is planned for several numbers of ranks. */
typedef struct plan_input {
    const plan_options *o;
    zoff_config *config;
    bool owned;
} plan_input;

/* Plan the matrices as slices of one parameter for each shape, and all other elements as another parameter. */
static int plan_model(const void *model, unsigned ranks, unsigned node_ranks, zoff_plan_info *info)
{
    const plan_options *o = ((const plan_input *)model)->o;
    const bool owned = ((const plan_input *)model)->owned;
    const size_t rest = (size_t)(o->elements - matrix_elements(o));
    zoff_param_desc *params = calloc(o->shape_count + 1, sizeof *params);
    if (!params)
        return failed("out of memory for %zu shapes", o->shape_count);
    for (size_t i = 0; i < o->shape_count; i++) {
        const plan_matrices *shape = &o->matrices[i];
        params[i] = (zoff_param_desc){
            .count = shape->dims[0] * shape->dims[1], .slices = shape->count, .dims = shape->dims, .dim_count = 2};
    }
    params[o->shape_count] = (zoff_param_desc){.count = rest, .name = "model"};
    for (size_t i = 0; i <= o->shape_count; i++) {
        params[i].struct_size = sizeof *params;
        params[i].dtype = o->dtype;
        params[i].engine_owned = owned;
    }
    const int result =
        plan_params(((const plan_input *)model)->config, ranks, node_ranks, NULL, params, o->shape_count + (rest > 0), info);
    free(params);
    return result;
}

static int plan_once(const plan_input *input, double stage, const char *optimizer)
{
    zoff_plan_info info = {.struct_size = sizeof info};
    const plan_options *o = input->o;
    int result = plan_model(input, o->ranks, o->links.node_ranks, &info);
    if (result != EXIT_DONE)
        return result;
    print_plan(o, input->config, &info, stage, optimizer, input->owned);
    if (o->links.node_ranks)
        result = print_traffic(&o->links, o->ranks, &info, input->config, plan_model, input);
    const int printed = finish_output();
    return result == EXIT_DONE ? printed : result;
}

/* Resolve once for the warnings about the file. Afterwards remove the schedule, which a plan does not need, and drop log lines
 * about training. */
static int plan(const plan_options *o, zoff_config *config)
{
    const char *device = NULL, *optimizer = NULL;
    double stage = 0;
    if (zoff_config_resolve(config, o->ranks) < 0 || zoff_config_set(config, "scheduler.type", "null") < 0 ||
        zoff_config_resolve(config, o->ranks) < 0 ||
        zoff_config_string(config, "zero_optimization.offload_param.device", &device) < 0 ||
        zoff_config_string(config, "optimizer.type", &optimizer) < 0 ||
        zoff_config_number(config, "zero_optimization.stage", &stage) < 0)
        return library_error();
    const plan_input input = {.o = o, .config = config, .owned = device && strcmp(device, "none") != 0};
    set_log(false);
    int result = check_matrices(o, optimizer);
    if (result == EXIT_DONE && o->links.sweeps && zoff_config_set(config, "train_batch_size", "auto") < 0)
        result = library_error();
    if (result == EXIT_DONE && o->links.sweeps)
        result = print_sweep(&o->links, o->ranks, config, plan_model, &input);
    else if (result == EXIT_DONE)
        result = plan_once(&input, stage, optimizer);
    set_log(true);
    return result;
}

static int run(const plan_options *o)
{
    zoff_config *config;
    int result = open_config(o->path, o->sets, o->set_count, &config);
    if (result != EXIT_DONE)
        return result;
    result = plan(o, config);
    zoff_config_close(config);
    return result;
}

/* Read a number such as "7e9", "7000000000" or "7B". */
static int read_number(const char *option, const char *text, double most, double *out)
{
    static const char UNITS[] = "kmbt";
    char *end;
    errno = 0;
    *out = strtod(text, &end);
    const char *unit = *end ? strchr(UNITS, tolower((unsigned char)*end)) : NULL;
    if (unit && end != text) {
        *out *= pow(1000, (double)(unit - UNITS + 1));
        end++;
    }
    if (*end || end == text || errno || !(*out >= 1 && *out <= most))
        return usage_error("%s needs a number from 1 to %g (7e9, 7B, 350M), not \"%s\"", option, most, text);
    return EXIT_DONE;
}

static int wrong_matrices(const char *text)
{
    return usage_error("--matrices needs shapes as in 768x2304*12,768x768, not \"%s\"", text);
}

/* Read a number from 1 on, and what follows it. */
static bool read_count(const char **text, size_t *out)
{
    char *end;
    if (!isdigit((unsigned char)**text))
        return false;
    errno = 0;
    const unsigned long long number = strtoull(*text, &end, 10);
    *text = end;
    *out = (size_t)number;
    return !errno && number >= 1 && number <= 1u << 30;
}

/* Read --matrices: "RxC" or "RxC*N", with commas between them. */
static int read_matrices(plan_options *o, const char *text)
{
    const char *at = text;
    free(o->matrices);
    o->matrices = calloc(strlen(text) + 1, sizeof *o->matrices);
    if (!o->matrices)
        return failed("out of memory for the shapes of matrices");
    for (o->shape_count = 0; o->shape_count == 0 || *at++ == ',';) {
        plan_matrices *shape = &o->matrices[o->shape_count++];
        shape->count = 1;
        if (!read_count(&at, &shape->dims[0]) || *at++ != 'x' || !read_count(&at, &shape->dims[1]))
            return wrong_matrices(text);
        if (*at == '*' && (at++, !read_count(&at, &shape->count)))
            return wrong_matrices(text);
        if (*at && *at != ',')
            return wrong_matrices(text);
        if (!*at)
            break;
    }
    return EXIT_DONE;
}

/* Options with the place of their value. */
static const struct {
    const char *option;
    size_t at;
} LINKS[] = {{"--link-intra", offsetof(plan_links, intra)},
             {"--link-inter", offsetof(plan_links, inter)},
             {"--message-us", offsetof(plan_links, message_us)},
             {"--compute-seconds", offsetof(plan_links, compute_seconds)}};
enum { LINK_COUNT = sizeof LINKS / sizeof LINKS[0] };

static int read_rate(const char *option, const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return *end || end == text || !(*out > 0 && *out <= 1e9)
               ? usage_error("%s needs a number above 0, not \"%s\"", option, text)
               : EXIT_DONE;
}

static int read_node(const char *text, unsigned *out)
{
    char *end;
    const unsigned long ranks = strtoul(text, &end, 10);
    if (*end || !isdigit((unsigned char)*text) || ranks == 0 || ranks > MOST_RANKS)
        return usage_error("--ranks-per-node needs a number from 1 to %d, not \"%s\"", MOST_RANKS, text);
    *out = (unsigned)ranks;
    return EXIT_DONE;
}

/* Check the options of links together. */
static int check_links(plan_options *o, bool asks)
{
    if (!o->links.node_ranks)
        return asks || o->links.sweeps
                   ? usage_error("plan: %s needs --ranks-per-node N, --link-intra GB/s and --link-inter GB/s",
                                 o->links.sweeps ? "--sweep" : "the time of links")
                   : EXIT_DONE;
    if (!(o->links.intra > 0) || !(o->links.inter > 0))
        return usage_error("plan: --ranks-per-node needs --link-intra and --link-inter, the GB/s of a rank within its node and "
                           "to others");
    if (o->links.sweeps && o->ranks == 1)
        o->ranks = MOST_RANKS;
    if (o->ranks == 1)
        return usage_error("plan: --ranks-per-node is for several ranks: add --ranks N");
    return o->links.sweeps || o->ranks % o->links.node_ranks == 0
               ? EXIT_DONE
               : usage_error("plan: nodes of %u ranks do not divide %u ranks, and unequal nodes exchange as if each rank were "
                             "a node: choose another --ranks, or --ranks-per-node 1",
                             o->links.node_ranks, o->ranks);
}

static int read_option(plan_options *o, const char *option, char *value)
{
    if (strcmp(option, "--matrices") == 0)
        return read_matrices(o, value);
    if (strcmp(option, "--elements") == 0)
        return read_number(option, value, 1e15, &o->elements);
    if (strcmp(option, "--tbw") == 0)
        return read_number(option, value, 1e9, &o->tbw);
    if (strcmp(option, "--ranks") == 0) {
        int result = read_ranks(value, &o->ranks);
        return result == EXIT_DONE && o->ranks > MOST_RANKS
                   ? usage_error("plan: --ranks is at most %d, not %u", MOST_RANKS, o->ranks)
                   : result;
    }
    if (strcmp(option, "--ranks-per-node") == 0)
        return read_node(value, &o->links.node_ranks);
    for (size_t i = 0; i < LINK_COUNT; i++) {
        if (strcmp(option, LINKS[i].option) == 0)
            return read_rate(option, value, (double *)((char *)&o->links + LINKS[i].at));
    }
    if (strcmp(option, "--dtype") == 0)
        return option_dtype(value, &o->dtype);
    if (strcmp(option, "--set") == 0) {
        o->sets[o->set_count++] = value; /* collect the values at the front of argv, because it has been read already */
        return EXIT_DONE;
    }
    return usage_error("plan: there is no option \"%s\"", option);
}

static int read_and_run(plan_options *o, int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--measure") == 0) {
            o->measures = true;
        } else if (strcmp(argv[i], "--sweep") == 0) {
            o->links.sweeps = true;
        } else if (argv[i][0] == '-' && argv[i][1]) {
            if (i + 1 == argc)
                return usage_error("%s needs a value", argv[i]);
            int result = read_option(o, argv[i], argv[i + 1]);
            if (result != EXIT_DONE)
                return result;
            i++;
        } else if (o->path) {
            return usage_error("plan takes one file, not both \"%s\" and \"%s\"", o->path, argv[i]);
        } else {
            o->path = argv[i];
        }
    }
    if (!o->path)
        return usage_error("plan needs a file");
    if (o->elements < 1)
        o->elements = matrix_elements(o);
    const int result = check_links(o, o->links.intra > 0 || o->links.inter > 0 || o->links.compute_seconds > 0);
    if (result != EXIT_DONE)
        return result;
    return o->elements >= 1 ? run(o) : usage_error("plan needs --elements N, the number of parameters");
}

int verb_plan(int argc, char **argv)
{
    plan_options o = {.dtype = ZOFF_BF16, .ranks = 1, .links.message_us = 3, .sets = argv};
    const int result = read_and_run(&o, argc, argv);
    free(o.matrices);
    return result;
}
