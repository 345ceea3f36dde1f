/* SPDX-License-Identifier: Apache-2.0 */
/* selftest_engine.c: one small model, trained in several ways that must give the same bits. */
#include "selftest.h"
#include "verbs.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zoff/zoff.h>

enum {
    PARAMS = 4,
    STEPS = 4,
    MICRO_BATCHES = 4,
    MOST_WORDS = 3 * 5002,
    MOST_SETS = 5,
    MOST_WAY_RANKS = 4,
    PATH_BYTES = SCRATCH_BYTES + 32
};

/* The event between the second step and the third one, or in all steps. */
typedef enum event { PLAIN, REOPENED, SAVED, HIDDEN } event;

typedef struct way {
    const char *name;
    unsigned ranks;
    event event;
    const char *sets[MOST_SETS][2];  /* keys of the configuration; the value "FOLDER" is a folder of the way's own */
    const char *later[MOST_SETS][2]; /* those of the engine that goes on, if they differ */
} way;

#define NVME                                                                                                                   \
    {"zero_optimization.offload_optimizer.device", "nvme"},                                                                    \
    {                                                                                                                          \
        "zoff.nvme_paths", "FOLDER"                                                                                            \
    }

#define MUON                                                                                                                   \
    {                                                                                                                          \
        "optimizer.type", "Muon"                                                                                               \
    }

static const way WAYS[] = {
    {"DRAM", 1, PLAIN, {{"zoff.threads", "1"}}, {{0}}},
    {"DRAM, all cores", 1, PLAIN, {{0}}, {{0}}},
    {"DRAM, small chunks", 1, PLAIN, {{"zero_optimization.sub_group_size", "1500"}}, {{0}}},
    {"DRAM, whole masters", 1, PLAIN, {{"zoff.master", "fp32"}}, {{0}}},
    {"NVMe", 1, PLAIN, {NVME, {"zero_optimization.sub_group_size", "4000"}}, {{0}}},
    {"NVMe, blocking calls", 1, PLAIN, {NVME, {"zoff.io_backend", "posix"}, {"zoff.direct_io", "off"}}, {{0}}},
    {"2 ranks, stage 1", 2, PLAIN, {{"zero_optimization.stage", "1"}}, {{0}}},
    {"4 ranks, stage 2, NVMe", 4, PLAIN, {NVME, {"zero_optimization.stage", "2"}}, {{0}}},
    {"persistent files, opened again", 1, REOPENED, {NVME, {"zoff.persist", "true"}}, {{0}}},
    {"checkpoint, from NVMe to DRAM", 1, SAVED, {NVME}, {{"zoff.threads", "1"}}},
    {"checkpoint, from 2 ranks on DRAM to NVMe", 2, SAVED, {{"zero_optimization.stage", "2"}}, {NVME}},
    {"steps beside the program", 1, HIDDEN, {{"zoff.background_threads", "1"}}, {{0}}},
    {"the same, NVMe, updates ahead",
     1,
     HIDDEN,
     {NVME, {"zoff.background_threads", "1"}, {"zoff.speculation_memory", "64MiB"}},
     {{0}}},
    {"Muon, DRAM", 1, PLAIN, {MUON, {"zoff.threads", "1"}}, {{0}}},
    {"Muon, 2 ranks, NVMe",
     2,
     PLAIN,
     {MUON, NVME, {"zero_optimization.stage", "2"}, {"zero_optimization.sub_group_size", "1500"}},
     {{0}}},
    {"Muon, checkpoint, from NVMe to DRAM", 1, SAVED, {MUON, NVME}, {MUON, {"zoff.threads", "1"}}},
};

static const struct {
    const char *name;
    zoff_dtype dtype;
    size_t count, slices;
    unsigned group;
    size_t dims[2]; /* of a matrix */
} MODEL[PARAMS] = {{"matrix", ZOFF_BF16, 5002, 3, 0, {82, 61}},
                   {"half", ZOFF_F16, 2049, 1, 0, {3, 683}},
                   {"wide", ZOFF_F32, 9001, 1, 0, {0}},
                   {"bias", ZOFF_F32, 1, 1, 1, {0}}};

/* Digests of weights and states after the last step. They are the same on every machine, so they are constants. */
static const uint64_t REFERENCE = 0x1d3489f57b5930c1, REFERENCE_OF_MUON = 0x87eb087419463b98;

/* One rank of a way. */
typedef struct rank {
    const way *way;
    zoff_comm *comm; /* NULL: one rank */
    const char *folder;
    uint32_t weights[PARAMS][MOST_WORDS], grads[PARAMS][MOST_WORDS];
    float state[MOST_WORDS];
    uint64_t digest; /* of weights and states after the last step */
    int64_t t;
    bool failed;
    char words[SELFTEST_WORDS];
} rank;

/* ---- the model ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Numbers that are exact in each type, so that they need no rounding here: up to 8 bits, times a power of two. */
static void fill(zoff_dtype dtype, void *to, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        const uint64_t random = mix(seed * 0x9e3779b97f4a7c15u + i);
        const uint32_t sign = (uint32_t)(random >> 63), fraction = (uint32_t)(random >> 8) % 128, scale = (uint32_t)random % 8;
        if (dtype == ZOFF_F32)
            ((uint32_t *)to)[i] = sign << 31 | (120 + scale) << 23 | fraction << 16;
        else
            ((uint16_t *)to)[i] = (uint16_t)(dtype == ZOFF_BF16 ? sign << 15 | (120 + scale) << 7 | fraction
                                                                : sign << 15 | (8 + scale) << 10 | fraction << 3);
    }
}

static void digest(uint64_t *to, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        *to = (*to ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
}

static size_t element_bytes(size_t p)
{
    return MODEL[p].dtype == ZOFF_F32 ? 4 : 2;
}

/* ---- an engine ---- */

static bool works(rank *r, zoff_status status)
{
    if (status < 0 && !r->failed) {
        snprintf(r->words, sizeof r->words, "%s", zoff_last_error());
        r->failed = true;
    }
    return !r->failed;
}

static bool is_muon(const way *w)
{
    return w->sets[0][0] && strcmp(w->sets[0][0], "optimizer.type") == 0;
}

static bool configure(rank *r, const char *const sets[MOST_SETS][2], zoff_config *config)
{
    static const char TEXT[] = "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.003, \"weight_decay\": 0.1}},"
                               " \"gradient_clipping\": 1.0, \"aio\": {\"block_size\": 65536}}";
    char micro_steps[16];
    snprintf(micro_steps, sizeof micro_steps, "%u", MICRO_BATCHES / (r->comm ? zoff_comm_size(r->comm) : 1));
    bool done = works(r, zoff_config_read_text(config, TEXT, sizeof TEXT - 1, "selftest")) &&
                works(r, zoff_config_set(config, "gradient_accumulation_steps", micro_steps));
    for (size_t i = 0; done && i < MOST_SETS && sets[i][0]; i++)
        done = works(r, zoff_config_set(config, sets[i][0], strcmp(sets[i][1], "FOLDER") == 0 ? r->folder : sets[i][1]));
    return done;
}

/* Open an engine over weights as they are. */
static zoff_engine *open_with(rank *r, const char *const sets[MOST_SETS][2])
{
    zoff_param_desc params[PARAMS] = {{0}};
    zoff_engine_opts opts = {.struct_size = sizeof opts, .comm = r->comm};
    zoff_engine *engine = NULL;
    for (size_t p = 0; p < PARAMS; p++)
        params[p] = (zoff_param_desc){.value = r->weights[p],
                                      .grad = r->grads[p],
                                      .count = MODEL[p].count,
                                      .dims = MODEL[p].dims[0] ? MODEL[p].dims : NULL,
                                      .dim_count = MODEL[p].dims[0] ? 2 : 0,
                                      .slices = MODEL[p].slices,
                                      .dtype = MODEL[p].dtype,
                                      .group = MODEL[p].group,
                                      .name = MODEL[p].name};
    if (works(r, zoff_config_open(NULL, &opts.config)) && configure(r, sets, opts.config))
        works(r, zoff_engine_open(&opts, params, PARAMS, &engine));
    zoff_config_close(opts.config);
    return engine;
}

/* Hand all gradients over, begin the step, and wait for each weight, as a trainer does whose next pass has begun. */
static bool step_hidden(rank *r, zoff_engine *engine)
{
    for (size_t p = PARAMS; p-- > 0;)
        for (size_t slice = MODEL[p].slices; slice-- > 0;)
            if (!works(r, zoff_grad_ready(engine, (zoff_param)p, slice, NULL)))
                return false;
    if (!works(r, zoff_step_begin(engine, NULL)))
        return false;
    for (size_t p = 0; p < PARAMS; p++)
        for (size_t slice = 0; slice < MODEL[p].slices; slice++)
            if (!works(r, zoff_param_wait(engine, (zoff_param)p, slice, NULL)))
                return false;
    return works(r, zoff_step_wait(engine, NULL));
}

/* Take steps, each with the gradients of MICRO_BATCHES micro-batches. They are dealt out in turns, so that any number of ranks
 * adds them in one order. */
static void take_steps(rank *r, zoff_engine *engine, int64_t until)
{
    const unsigned self = r->comm ? zoff_comm_rank(r->comm) : 0, ranks = r->comm ? zoff_comm_size(r->comm) : 1;
    while (r->t < until) {
        for (unsigned batch = self; batch < MICRO_BATCHES; batch += ranks) {
            for (size_t p = 0; p < PARAMS; p++)
                fill(MODEL[p].dtype, r->grads[p], MODEL[p].count * MODEL[p].slices,
                     1000 + (uint64_t)r->t * 100 + batch * 10 + p);
            if (!(r->way->event == HIDDEN ? step_hidden(r, engine) : works(r, zoff_step(engine, NULL, NULL))))
                return;
        }
        r->t++;
    }
}

static void digest_all(rank *r, zoff_engine *engine)
{
    static const zoff_state_kind KINDS[] = {ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V};
    r->digest = 0xcbf29ce484222325u;
    for (size_t p = 0; p < PARAMS; p++) {
        const size_t count = MODEL[p].count * MODEL[p].slices;
        digest(&r->digest, r->weights[p], count * element_bytes(p));
        const size_t kinds = is_muon(r->way) && MODEL[p].dims[0] ? 2 : 3; /* Muon has no v */
        for (size_t kind = 0; kind < kinds; kind++) {
            if (!works(r, zoff_state_read(engine, (zoff_param)p, KINDS[kind], 0, count, r->state)))
                return;
            digest(&r->digest, r->state, count * sizeof *r->state);
        }
    }
}

/* ---- a way ---- */

/* End the engine, and open the one that goes on. Its weights come from the files. */
static zoff_engine *go_on(rank *r, zoff_engine *engine)
{
    const char *const(*sets)[2] = r->way->later[0][0] ? r->way->later : r->way->sets;
    char saves[PATH_BYTES];
    snprintf(saves, sizeof saves, "%s/saves", r->folder);
    if (r->way->event == SAVED)
        works(r, zoff_checkpoint_save(engine, saves, NULL));
    zoff_engine_destroy(engine);
    memset(r->weights, 0, sizeof r->weights);
    engine = r->failed ? NULL : open_with(r, sets);
    if (engine)
        works(r, r->way->event == SAVED ? zoff_checkpoint_load(engine, saves, NULL) : zoff_params_push(engine));
    return engine;
}

static void *train(void *argument)
{
    rank *r = argument;
    const bool is_cut = r->way->event == REOPENED || r->way->event == SAVED;
    for (size_t p = 0; p < PARAMS; p++)
        fill(MODEL[p].dtype, r->weights[p], MODEL[p].count * MODEL[p].slices, p);
    zoff_engine *engine = open_with(r, r->way->sets);
    if (engine)
        take_steps(r, engine, is_cut ? STEPS / 2 : STEPS);
    if (engine && is_cut && !r->failed)
        engine = go_on(r, engine);
    if (engine && !r->failed)
        take_steps(r, engine, STEPS);
    if (engine && !r->failed)
        digest_all(r, engine);
    zoff_engine_destroy(engine);
    zoff_comm_close(r->comm);
    return NULL;
}

static void train_ranks(rank *ranks, unsigned count)
{
    pthread_t threads[MOST_WAY_RANKS];
    unsigned begun = 0;
    while (begun < count && pthread_create(&threads[begun], NULL, train, &ranks[begun]) == 0)
        begun++;
    for (unsigned i = begun; i < count; i++) { /* the others then say that it is missing */
        works(&ranks[i], ZOFF_ERR_NO_MEMORY);
        zoff_comm_close(ranks[i].comm);
    }
    for (unsigned i = 0; i < begun; i++)
        pthread_join(threads[i], NULL);
}

size_t selftest_ways(void)
{
    return sizeof WAYS / sizeof WAYS[0];
}

const char *selftest_way_name(size_t index)
{
    return WAYS[index].name;
}

void selftest_way(size_t index, const char *folder, selftest_result *out)
{
    const way *w = &WAYS[index];
    zoff_comm *comms[MOST_WAY_RANKS] = {NULL};
    char own[SCRATCH_BYTES];
    rank *ranks = calloc(w->ranks, sizeof *ranks);
    *out = (selftest_result){.words = "out of memory, or of room for a folder"};
    if (!ranks || make_scratch(folder, own) != EXIT_DONE) {
        free(ranks);
        return;
    }
    if (w->ranks > 1 && zoff_comm_open_threads(NULL, w->ranks, comms) < 0) {
        snprintf(out->words, sizeof out->words, "%s", zoff_last_error());
        free(ranks);
        return;
    }
    for (unsigned i = 0; i < w->ranks; i++)
        ranks[i] = (rank){.way = w, .comm = comms[i], .folder = own};
    train_ranks(ranks, w->ranks);
    out->agrees = true;
    snprintf(out->words, sizeof out->words, "%d steps, %d parameters", STEPS, PARAMS);
    for (unsigned i = 0; i < w->ranks && out->agrees; i++) {
        out->agrees = !ranks[i].failed && ranks[i].digest == (is_muon(w) ? REFERENCE_OF_MUON : REFERENCE);
        if (ranks[i].failed)
            memcpy(out->words, ranks[i].words, sizeof out->words);
        else if (!out->agrees)
            snprintf(out->words, sizeof out->words, "the digest of weights and states is %016llx",
                     (unsigned long long)ranks[i].digest);
    }
    free(ranks);
}
