/* SPDX-License-Identifier: Apache-2.0 */
// script.cc: a program as C. Each rank writes the calls that it makes while it runs; gradients are drawn from the same dice,
// and weights are compared with checksums of the reference's. Faults and schedules are the world's, so they are comments in C.
#include "life.h"

#include <stdarg.h>
#include <stdio.h>

#include <filesystem>
#include <fstream>
#include <sstream>

using namespace sim;

void life::c(const char *format, ...)
{
    if (!with.writes_c || number)
        return;
    if (!script)
        script = fopen((folder + "/script" + std::to_string(rank)).c_str(), "w");
    if (!script)
        stop(REFUSED, "no file for the program in C\n");
    va_list args;
    va_start(args, format);
    fputs("    ", script);
    vfprintf(script, format, args);
    fputc('\n', script);
    fflush(script); // the process may end anywhere
    va_end(args);
}

void life::c_args(const zoff_step_args &args)
{
    c("args = (zoff_step_args)ZOFF_STEP_ARGS_INIT;");
    if (args.grad_scale)
        c("args.grad_scale = %g;", args.grad_scale);
    if (args.clip_norm)
        c("args.clip_norm = %g;", args.clip_norm);
    if (args.flags)
        c("args.flags = ZOFF_STEP_ZERO_GRADS;");
    if (args.t)
        c("args.t = %lld;", (long long)args.t);
}

void life::c_same(const param &q, size_t slice)
{
    const size_t at = slice * q.stride * width_of(q.dtype), bytes = q.count * width_of(q.dtype);
    uint64_t hash = 0;
    for (size_t i = 0; with.writes_c && i < bytes; i++)
        hash = (hash ^ static_cast<unsigned char>(q.ref_value[at + i])) * 1099511628211u;
    if (q.owned)
        return c("same(\"slice %zu of %s\", bytes, %zu, 0x%llxu);", slice, q.name.c_str(), bytes, (unsigned long long)hash);
    c("same(\"slice %zu of %s\", %s_value + %zu, %zu, 0x%llxu);", slice, q.name.c_str(), (q.tie ? q.tie : &q)->name.c_str(), at,
      bytes, (unsigned long long)hash);
}

static const char BEGIN[] = R"(#include <zoff/zoff.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char folder[4096];
static int wrong;

static void ok(zoff_status status, const char *call)
{
    if (status < 0) {
        printf("%s: %d: %s\n", call, status, zoff_last_error());
        exit(1);
    }
}
#define OK(call) ok(call, #call)

/* A key; each $ in its value is the folder of an engine. */
static void set(zoff_config *config, const char *key, const char *value, const char *engine)
{
    char text[8192] = "";
    for (size_t end = 0; *value; value++, end = strlen(text)) {
        if (*value == '$')
            snprintf(text + end, sizeof text - end, "%s%s", folder, engine);
        else
            text[end] = *value;
    }
    ok(zoff_config_set(config, key, text), key);
}

static double unit(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (double)((x ^ x >> 31) >> 11) * 0x1p-53;
}

static void put(void *at, zoff_dtype dtype, size_t i, float x)
{
    uint32_t bits;
    uint16_t half;
    memcpy(&bits, &x, 4);
    half = (uint16_t)(bits >> 16);
    if (dtype == ZOFF_F16) {
        const uint32_t exponent = bits >> 23 & 255, sign = bits >> 16 & 0x8000, digits = bits >> 13 & 0x3ff;
        half = (uint16_t)(sign | (exponent < 113 ? 0 : exponent < 143 ? (exponent - 112) << 10 | digits : x != x ? 0x7e00 : 0x7c00));
    }
    memcpy((char *)at + i * (dtype == ZOFF_F32 ? 4 : 2), dtype == ZOFF_F32 ? (void *)&bits : (void *)&half, dtype == ZOFF_F32 ? 4 : 2);
}

static void fill_from(void *at, zoff_dtype dtype, size_t count, uint64_t state, double size, double least)
{
    for (size_t i = 0; i < count; i++)
        put(at, dtype, i, (float)((unit(&state) + least) * size));
}

/* Random numbers around 0. */
static void fill(void *at, zoff_dtype dtype, size_t count, uint64_t state, double size)
{
    fill_from(at, dtype, count, state, size, -0.5);
}

/* Compare bytes with a checksum. */
static void same(const char *what, const void *at, size_t bytes, uint64_t want)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)at)[i]) * 1099511628211u;
    if (hash != want)
        printf("%s differs\n", what), wrong = 1;
}
)";

static const char REST[] = R"(
int main(int argc, char **argv)
{
    zoff_comm *comms[RANKS] = {NULL};
    pthread_t threads[RANKS];
    snprintf(folder, sizeof folder, "%s/", argc > 1 ? argv[1] : ".");
    for (const char *name = "a0\0a1\0b0\0b1\0"; *name; name += 3) {
        char path[4200];
        snprintf(path, sizeof path, "%s%s", folder, name);
        mkdir(path, 0700);
    }
    if (RANKS > 1)
        OK(zoff_comm_open_threads(NULL, RANKS, comms));
    for (int r = 1; r < RANKS; r++)
        pthread_create(&threads[r], NULL, run[r], comms[r]);
    run[0](comms[0]);
    for (int r = 1; r < RANKS; r++)
        pthread_join(threads[r], NULL);
    return wrong;
}
)";

std::string sim::to_c(const program &p, const std::string &folder)
{
    std::ostringstream all, list;
    all << "/*\n * cc this.c -lzoff -lpthread && mkdir files && ./a.out files\n * Prints which weights differ from those of a "
           "plain "
           "engine. The program:\n *\n";
    for (const std::string &text : p)
        all << " *      " << text << "\n";
    all << " */\n" << BEGIN;
    unsigned ranks = 0;
    for (std::string path; std::filesystem::exists(path = folder + "/script" + std::to_string(ranks)); ranks++) {
        std::ifstream in(path);
        all << "\nstatic void *rank" << ranks
            << "(void *comm)\n{\n    zoff_engine *e[2] = {NULL};\n    zoff_accel *device = NULL;\n"
            << "    zoff_config *config;\n    zoff_engine_opts opts;\n    zoff_param_desc desc;\n    zoff_step_args args;\n"
            << "    zoff_step_info info = ZOFF_STEP_INFO_INIT;\n    zoff_norm_sum sums[2];\n    zoff_optimizer_hyper hyper;\n"
            << "    zoff_checkpoint_opts save = ZOFF_CHECKPOINT_OPTS_INIT;\n    zoff_checkpoint *saving = NULL;\n    const "
               "void *lent;\n    void *to;\n    char "
               "path[4200];\n"
            << "    static _Alignas(64) char bytes[2000000]; /* as a parameter or its states */\n"
            << in.rdbuf()
            << "    (void)device, (void)sums, (void)hyper, (void)save, (void)saving, (void)lent, (void)to, (void)path, "
               "(void)bytes, "
               "(void)args;\n"
            << "    return NULL;\n}\n";
        list << (ranks ? ", rank" : "rank") << ranks;
    }
    all << "\nenum { RANKS = " << ranks << " };\nstatic void *(*const run[RANKS])(void *) = {" << list.str() << "};\n" << REST;
    return all.str();
}
