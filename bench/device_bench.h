/* device_bench.h: shared by the files of bench/device: a model on a device and on the host, its two engines, results. */
#ifndef ZOFF_BENCH_DEVICE_BENCH_H
#define ZOFF_BENCH_DEVICE_BENCH_H

#include "report.h"
#include "streams.h"

#include <stdatomic.h>

enum { PART_COPIES = 1, PART_STAGES = 2, PART_STEP = 4, PART_VISIBLE = 8, PART_DUPLEX = 16, PART_FETCHES = 32, PART_ANY = 63 };
enum { DEVICE_PARAMS = 6, ENOUGH_ROUNDS = 3 };

typedef struct device_options {
    bench_run run;
    const char *accel;
    uint64_t elements;
} device_options;

typedef struct device_move {
    void *dst;
    const void *src;
    size_t bytes;
} device_move;

typedef struct device_slice {
    zoff_param param;
    size_t slice;
    bool begins_layer;    /* the backward pass computes for a while before this gradient */
    device_move moves[2]; /* its gradient to the host, its weights to the device */
} device_slice;

/* Weights and gradients of bf16, on the device and in pinned memory of the host, of the same layout. */
typedef struct device_model {
    zoff_accel *accel;
    size_t elements, layers, width, slices;
    zoff_param_desc params[DEVICE_PARAMS]; /* on the host */
    size_t firsts[DEVICE_PARAMS];          /* byte offset of each */
    size_t bytes;                          /* bytes of the weights, and of the gradients, with alignment */
    bench_streams mapping;
    char *host[2], *device[2];         /* weights and gradients */
    bool pinned[2];                    /* those on the host */
    device_slice *backward;            /* slices in the order of the backward pass */
    void *trainer, *streams[2];        /* the trainer's stream, and two for copies */
    zoff_engine *engine, *host_engine; /* over device memory, and over host memory */
} device_model;
enum { WEIGHTS, GRADS };
enum { DOWN, UP };

/* device_model.c: 0, or -1 with a message. Close the model also after an error. */
int device_model_open(size_t elements, zoff_accel *accel, device_model *out);
void device_model_close(device_model *m);

/* device_copies.c: memory and copies as the engine uses them, which are not in the public headers. 0, or -1 with a message. */
int device_copies_alloc(zoff_accel *accel, size_t bytes, char **out);
void device_copies_free(zoff_accel *accel, void *memory);
int device_copies_pin(zoff_accel *accel, void *memory, size_t bytes);
void device_copies_unpin(zoff_accel *accel, void *memory);
int device_copies_put(zoff_accel *accel, void *stream, const device_move *move);

/* Results of a run. */
typedef struct device_found {
    race_book book;
    device_model model;
    double nap, backward;           /* seconds of computation before the gradients of a layer, and before all of them */
    _Atomic double over;            /* when the trainer's stream had computed the last gradient */
    zoff_step_info info, host_info; /* of the last step of each engine */
    zoff_step_info at_once;         /* of the last step without a backward pass */
} device_found;

/* device_race.c: copies, the stages of a step, and the step, in turns. 0, or -1 with a message; the race holds the measurements
 * until then. In it, the second figure of "update_only" is the time of its norm. */
int device_race(const device_options *options, device_found *found);
/* device_fetches.c: weights of the engine that are fetched, with a model of their own. */
int device_fetches(const device_options *options, device_found *found);
/* device.c: at least one round, and others until the deadline. */
int device_rounds(const device_options *options, race *r, double share);

#endif
